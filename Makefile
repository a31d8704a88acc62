# `make demo` and `make test` are all that a newcomer needs; each makes what it needs and skips what is there.
SHELL := /bin/bash
VENV := .venv
STAMP := $(VENV)/.set-up
PYTHON ?= python3
# Tests start hundreds of processes: without bytecode each would compile the whole package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup browser demo test test-slow lint docs docs-serve gpu gpu-wheels clean
.DEFAULT_GOAL := setup

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

# A third worker computes while others wait for processes that a test started.
test-slow: setup
	$(VENV)/bin/python -m pytest -n 3 --dist worksteal -q -m slow

# PYRIGHT_PYTHON_IGNORE_WARNINGS: the pinned version is meant; newer ones are not to be advertised.
lint: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports --no-logo
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(VENV)/bin/pyright --pythonpath $(VENV)/bin/python

# The site of docs/, into site/: mkdocs stops at a broken link or a docstring that does not fit its function.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet

docs-serve: setup
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs serve

# On a machine with a GPU: all of its tests and rows in minutes (tools/gpu.py). It may have no package registry; the
# wheels that it lacks, or has in older versions, are fetched elsewhere by `make gpu-wheels` and carried with the source.
MINUTES ?= 8
OUT ?= benchmarks/results
gpu:
	$(PYTHON) tools/gpu.py --minutes $(MINUTES) --out $(OUT)

GPU_PYTHON ?= 3.12
gpu-wheels: setup
	mkdir -p .whl
	$(VENV)/bin/python -m pip download --no-deps --only-binary=:all: --python-version $(GPU_PYTHON) --platform manylinux2014_x86_64 --dest .whl \
		$$(grep -E '^(pydantic|pydantic-core|annotated-types|typing-inspection|typing-extensions|filelock|ruamel-yaml)==' constraints.txt)

clean:
	rm -rf $(VENV) site .pytest_cache .ruff_cache .import_linter_cache .hypothesis
