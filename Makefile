# `make demo` and `make test` are all that a newcomer needs; each makes what it needs and skips what is there.
SHELL := /bin/bash
VENV := .venv
STAMP := $(VENV)/.set-up
PYTHON ?= python3

.PHONY: setup browser demo test test-slow lint clean
.DEFAULT_GOAL := test

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt tools/set_up.sh
	@PYTHON="$(PYTHON)" VENV="$(VENV)" bash tools/set_up.sh
	@touch $@

demo: setup
	$(VENV)/bin/sightline demo --resume

# What the explorer's page is tried in; without it those tests are skipped.
browser:
	@bash tools/browser.sh

test: setup
	$(VENV)/bin/python -m pytest -n 2 -q

test-slow: setup
	$(VENV)/bin/python -m pytest -n 2 -q -m slow

# PYRIGHT_PYTHON_IGNORE_WARNINGS: the pinned version is meant; newer ones are not to be advertised.
lint: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports --no-logo
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(VENV)/bin/pyright --pythonpath $(VENV)/bin/python

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .import_linter_cache .hypothesis
