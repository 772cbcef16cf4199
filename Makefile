# The two commands of the README: `make demo` and `make test`. Both make their own environment in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: help demo test test-slow check format docs bench clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/demo.stamp  ## install, run the main job on what ships, write one HTML report
	$(BIN)/residuum demo --out demo

test: $(VENV)/dev.stamp  ## install the development extra and run the tests
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile -m "not slow" --jaxtyping-packages=residuum.maths,residuum.alignment,residuum.activations,beartype.beartype

test-slow: $(VENV)/dev.stamp  ## the tests that take minutes
	HF_HUB_OFFLINE=1 $(BIN)/pytest -m slow

check: $(VENV)/dev.stamp  ## lint, format, types and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

format: $(VENV)/dev.stamp  ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/dev.stamp  ## build the documentation into site/
	$(BIN)/python docs/reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(VENV)/dev.stamp  ## the measurements behind the claims (minutes; needs RESIDUUM_DATA)
	for script in benchmarks/[a-z]*.py; do HF_HUB_OFFLINE=1 $(BIN)/python $$script || exit 1; done

clean:  ## remove the environment and what was built
	rm -rf $(VENV) demo site build dist .pytest_cache .ruff_cache .hypothesis

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit("Residuum needs Python 3.11 or newer, found " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.stamp: $(VENV)/pyvenv.cfg pyproject.toml constraints.txt
	@echo "Installing Residuum into $(VENV) (a few minutes the first time) …"
	$(PIP_INSTALL) --editable ".[demo]"
	@touch $@

$(VENV)/dev.stamp: $(VENV)/pyvenv.cfg pyproject.toml constraints.txt
	@echo "Installing Residuum and its development tools into $(VENV) (a few minutes the first time) …"
	$(PIP_INSTALL) --editable ".[dev]"
	@touch $@
