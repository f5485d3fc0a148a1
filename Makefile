# make audit   set up and run the full-stack audit of Llama-70B training on 512 H100 in Quebec
# make test    set up and run ruff, mypy and the tests; installs Chromium for the browser tests where it may
# make docs    write the generated pages anew and build the documentation, with the labs, into site/
# make clean   remove the virtual environment and caches

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check -q

.PHONY: audit test browser docs clean

audit: $(VENV)/.runtime
	@$(BIN)/python -m mlsysim.examples.full_stack_audit

# Many tests start a Python of their own, each of which would compile the package anew where bytecode is not written.
test: export PYTHONDONTWRITEBYTECODE :=
test: $(VENV)/.test browser
	@echo "[1/5] ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo "[2/5] mypy"
	@$(BIN)/mypy
	@echo "[3/5] budget of 'import mlsysim' (alone, so that other tests do not disturb the clock)"
	@$(BIN)/python -m pytest tests/test_import_budget.py
	@echo "[4/5] tests (a worker more than cores, since some wait for processes and clocks)"
	@$(BIN)/python -m pytest -n $$(( $$(getconf _NPROCESSORS_ONLN) + 1 )) --dist worksteal --ignore tests/test_import_budget.py --ignore tests/browser --ignore tests/docs/test_site.py
	@echo "[5/5] the built sites in a browser (alone, since one engine keeps several cores busy)"
	@$(BIN)/python -m pytest tests/browser tests/docs/test_site.py

# Tests of the built site need a browser. Without one they are skipped, or fail where MLSYSIM_REQUIRE_BROWSER=1.
browser:
	@if { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null; then :; \
	elif [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
	  echo "no Chromium, and only root with apt-get may install it here: the browser tests will not run"; \
	else \
	  echo "installing Chromium for the browser tests"; \
	  export DEBIAN_FRONTEND=noninteractive; \
	  install="apt-get -qq -y -o DPkg::Lock::Timeout=300 install --no-install-recommends chromium fonts-dejavu-core"; \
	  $$install >/dev/null 2>&1 || { apt-get -qq update && $$install >/dev/null; } \
	    || echo "Chromium could not be installed: the browser tests will not run"; \
	fi

docs: $(VENV)/.docs
	@$(BIN)/python docs/generate.py
	@labs=; \
	if $(BIN)/mlsysim labs build build/labs; then labs="--labs build/labs"; \
	else echo "the labs could not be built: the site will have no links into the explorer"; fi; \
	$(BIN)/python docs/build.py $$labs
	@echo "built site/; to read it with search and labs: python3 -m http.server -d site"

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

$(VENV)/.docs: pyproject.toml | $(VENV)/bin/python
	@echo "installing mlsysim and what the documentation is built with"
	@$(PIP) install -e '.[docs]'
	@touch $@ $(VENV)/.runtime

clean:
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
