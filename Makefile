# The two commands of the README: `make demo` and `make test`. Both make their own environment in .venv.
PYTHON ?= python3
VENV := .venv
FUZZ_SECONDS ?= 60
KILLS ?= 100
KILL_SECONDS ?= 600
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: help demo test test-slow test-oldest fuzz kill check format docs bench clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/demo.stamp  ## install, run the five studies on what ships, write one HTML report
	$(BIN)/residuum demo --out demo

test: $(VENV)/dev.stamp  ## install the development extra and run the tests
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile -m "not slow" --jaxtyping-packages=residuum.maths,residuum.alignment,residuum.activations,beartype.beartype

test-slow: $(VENV)/dev.stamp  ## the tests that take minutes
	HF_HUB_OFFLINE=1 $(BIN)/pytest -m slow

test-oldest: $(VENV)-oldest/dev.stamp  ## the tests with the oldest versions that are allowed
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(VENV)-oldest/bin/pytest -n 2 --dist loadfile -m "not slow"

fuzz: $(VENV)/dev.stamp  ## hostile inputs for every reader, for FUZZ_SECONDS (60)
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/fuzz.py --seconds $(FUZZ_SECONDS)

kill: $(VENV)/dev.stamp  ## kill every long command KILLS (100) times, within KILL_SECONDS (600), and compare
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python tests/faults/kill.py --kills $(KILLS) --seconds $(KILL_SECONDS)

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
	rm -rf $(VENV) $(VENV)-oldest demo site build dist .pytest_cache .ruff_cache .hypothesis

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

$(VENV)-oldest/dev.stamp: pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv $(VENV)-oldest
	$(VENV)-oldest/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints-oldest.txt --editable ".[dev]"
	@touch $@
