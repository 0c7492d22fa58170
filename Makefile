PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: install lint types test test-slow demo docs clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: install
	$(BIN)/mypy

test: lint types
	$(BIN)/pytest

demo: install
	$(BIN)/mldecoder demo

docs: install
	$(BIN)/python -m tools.head_cost

test-slow: install
	$(BIN)/pytest -m slow

clean:
	rm -rf $(VENV) dist build runs .mypy_cache .ruff_cache .pytest_cache
