# make audit   set up and run the full-stack audit of Llama-70B training on 512 H100 in Quebec
# make test    set up and run ruff, mypy and the tests
# make docs    write the generated documentation pages anew
# make clean   remove the virtual environment and caches

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check -q

.PHONY: audit test docs clean

audit: $(VENV)/.runtime
	@$(BIN)/python examples/full_stack_audit.py

test: $(VENV)/.test
	@echo "[1/4] ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo "[2/4] mypy"
	@$(BIN)/mypy
	@echo "[3/4] budget of 'import mlsysim' (alone, so that other tests do not disturb the clock)"
	@$(BIN)/python -m pytest tests/test_import_budget.py
	@echo "[4/4] tests"
	@$(BIN)/python -m pytest -n auto --ignore tests/test_import_budget.py

docs: $(VENV)/.runtime
	@$(BIN)/python docs/generate.py

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("mlsysim needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; say make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: pyproject.toml | $(VENV)/bin/python
	@echo "installing mlsysim"
	@$(PIP) install -e .
	@touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/bin/python
	@echo "installing mlsysim and the test tools"
	@$(PIP) install -e '.[test]'
	@touch $@ $(VENV)/.runtime

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
