# The two commands of the README: `make demo` and `make test`. Both make their own environment in .venv.
PYTHON ?= python3
VENV := .venv
VENV_OF_PYTHON := $(VENV)-$(notdir $(PYTHON))
OLDEST_TORCH ?= 2.6.0
FUZZ_SECONDS ?= 60
KILLS ?= 100
KILL_SECONDS ?= 600
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Shapes are checked at run time, but not those of settings records, which take text before they coerce it.
SHAPES := residuum.maths,residuum.models.alignment,residuum.activations.store,residuum.activations.extraction,residuum.activations.pooling,residuum.activations.live,residuum.activations.correlation

TEST := HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
DEFAULT_TESTS := -n 2 --dist loadfile -m "not slow"
OLD_WARNINGS := -W default::DeprecationWarning -W default::FutureWarning  # of old packages about newer ones

.PHONY: help demo pictures test test-slow test-oldest test-newest test-python fuzz kill check format docs bench sbom clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/demo.stamp  ## install, look into a real model, shrink it, distil two languages, check a paper, write one HTML page
	$(BIN)/residuum demo --out demo

test: $(VENV)/dev.stamp  ## install the development extra and run the tests
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile -m "not slow" --jaxtyping-packages=$(SHAPES),beartype.beartype

test-slow: $(VENV)/dev.stamp  ## the tests that take minutes
	HF_HUB_OFFLINE=1 $(BIN)/pytest -m slow

test-oldest: $(VENV)-oldest/dev.stamp  ## the tests with the oldest versions that are allowed (OLDEST_TORCH of torch)
	$(TEST) $(VENV)-oldest/bin/pytest $(DEFAULT_TESTS) $(OLD_WARNINGS)

test-newest: $(VENV)-newest/dev.stamp  ## the tests with the newest versions there are, but torch as it is
	$(TEST) $(VENV)-newest/bin/pytest $(DEFAULT_TESTS)

test-python: $(VENV_OF_PYTHON)/dev.stamp  ## the tests with another Python: make test-python PYTHON=python3.13
	$(TEST) $(VENV_OF_PYTHON)/bin/pytest $(DEFAULT_TESTS)

fuzz: $(VENV)/dev.stamp  ## hostile inputs for every reader, for FUZZ_SECONDS (60)
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/fuzz.py --seconds $(FUZZ_SECONDS)

kill: $(VENV)/dev.stamp  ## kill the commands that write KILLS (100) times in all, within KILL_SECONDS (600), and compare
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python tests/faults/kill.py --kills $(KILLS) --seconds $(KILL_SECONDS)

sbom: $(VENV)/dev.stamp  ## the packages of an installation with their versions and licences (CycloneDX, sbom.json)
	$(BIN)/python tests/bill_of_materials.py > sbom.json

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

pictures: demo  ## take the pictures of the documentation from the demo's page (needs a Chromium)
	$(BIN)/python docs/picture.py demo/report.html

bench: $(VENV)/dev.stamp  ## the measurements behind the claims (minutes; needs RESIDUUM_DATA)
	for script in benchmarks/[a-z]*.py; do HF_HUB_OFFLINE=1 $(BIN)/python $$script || exit 1; done

clean:  ## remove the environment and what was built
	rm -rf $(VENV) $(VENV)-* demo site build dist .pytest_cache .ruff_cache .hypothesis

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

# Environments of their own, so that another Python or other versions never meet those of .venv.
$(VENV)-oldest/dev.stamp: pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv --clear $(VENV)-oldest
	$(VENV)-oldest/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints-oldest.txt "torch==$(OLDEST_TORCH)" --editable ".[dev]"
	@touch $@

$(VENV)-newest/dev.stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear $(VENV)-newest
	grep -i '^torch==' constraints.txt > $(VENV)-newest/constraints.txt
	$(VENV)-newest/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(VENV)-newest/constraints.txt --editable ".[dev]"
	@touch $@

$(VENV)-%/dev.stamp: pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear $(VENV)-$*
	$(VENV)-$*/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	@touch $@
