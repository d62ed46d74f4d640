# Everything here works on a fresh machine with Python 3.11 or newer, its venv module, and a package registry.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
POC := poc/workspace
LOWEST := .venv-lowest
NEWEST := .venv-newest
# What make coverage runs.
TESTS ?= tests
# Processes among which pytest divides the tests.
WORKERS ?= 2
TRACKERS := .venv-trackers
QUICK := "not slow and not federation and not nightly"
# Not what needs an extra or pip, nor what counts how often torch compiles, which older versions do less often.
WITHOUT_EXTRAS := $(addprefix tests/,aggregators analysis cli contracts controllers core data engine executors figures \
	filters models objectives recipes state sweep) \
	$(addprefix --ignore tests/,analysis/test_distances.py cli/test_data_vessels.py cli/test_export_bundle.py \
	controllers/test_plugins_in_rounds.py core/test_accounting.py data/test_contact_sheets.py data/test_pair_images.py \
	data/test_pairs.py data/test_pairs_in_sessions.py figures/test_overlays.py models/test_monai_networks.py \
	models/test_registry.py objectives/test_compiled_training.py)
INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt
# Tests and simulators start hundreds of processes; without compiled files, each would compile the package anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help install demo demo-medical poc poc-stop test test-slow test-federation test-nightly test-lowest test-newest \
	test-trackers coverage lint generate docs bench dist clean

help:
	@echo "make install          install into .venv, which . .venv/bin/activate puts on the path: fdg, nvflare"
	@echo "make demo             install, then: nvflare simulator jobs/pacs_fedomg (demo-medical: jobs/vessels_fedomg)"
	@echo "make poc              install, then start a federation on this machine, in poc/workspace (poc-stop ends it)"
	@echo "make test             install, then the tests"
	@echo "make test-slow        ... that start simulated federations and break them"
	@echo "make test-federation  ... that provision a federation of separate processes"
	@echo "make test-nightly     ... of which there are many alike, in simulators and federations"
	@echo "make lint             install, then ruff and mypy"
	@echo "make docs             install, then build the documentation as a site, in build/site"
	@echo "make generate         write anew what follows from the code: tables of docs/, and jobs/"
	@echo "make bench            measure ours against references: seconds, bytes and their ratios, as a table"
	@echo "make dist             build wheel and source archive, and check what an index would show of them"
	@echo "make clean            remove the virtual environments, the simulator's workspace and what was built"
	@echo "For CI: test-lowest, test-newest, test-trackers, coverage"

$(VENV)/.created:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv $(VENV) || { echo "Python's venv module is needed (Debian: apt-get install python3-venv)"; exit 1; }
	@touch $@

$(VENV)/.installed: $(VENV)/.created pyproject.toml constraints.txt
	@echo "Installing (torch and CUDA libraries: about 5 GB, a few minutes) ..."
	$(INSTALL) --editable '.[lab]'
	@touch $@

$(VENV)/.installed-medical: $(VENV)/.installed
	$(INSTALL) --editable '.[lab,medical]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(INSTALL) --editable '.[dev]'
	@touch $@

install: $(VENV)/.installed

# Without FLARE's line for every site and task.
demo demo-medical: export FL_LOG_LEVEL := examples/log_config.json

demo: $(VENV)/.installed
	. $(BIN)/activate && nvflare simulator jobs/pacs_fedomg

demo-medical: $(VENV)/.installed-medical
	. $(BIN)/activate && nvflare simulator jobs/vessels_fedomg -t 4

poc: $(VENV)/.installed
	$(BIN)/fdg poc start --folder $(POC) $(POC_OPTIONS)

poc-stop: $(VENV)/.installed
	$(BIN)/fdg poc stop --folder $(POC)

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder -m $(QUICK)

test-slow: $(VENV)/.installed-dev
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder -m "slow and not nightly"

test-nightly: $(VENV)/.installed-dev
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --no-loadscope-reorder -m "nightly and not federation"
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder -m "federation and nightly"

test-federation: $(VENV)/.installed-dev
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder -m "federation and not nightly"

test-lowest: $(VENV)/.installed
	$(INSTALL) uv
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(LOWEST)
	$(BIN)/uv pip install --quiet --python $(LOWEST) --resolution lowest-direct \
		--editable '.[lab]' 'pytest>=8' 'pytest-xdist>=3.6' 'hypothesis>=6.120'
	$(LOWEST)/bin/python -m pytest --numprocesses $(WORKERS) --dist loadfile -m $(QUICK) $(WITHOUT_EXTRAS)

# With pip, by which tests install a plug-in; environments that uv makes have none.
test-newest: $(VENV)/.installed
	$(INSTALL) uv
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(NEWEST)
	$(BIN)/uv pip install --quiet --python $(NEWEST) --upgrade --editable '.[dev]' pip
	$(NEWEST)/bin/python -m pytest --numprocesses $(WORKERS) --dist loadfile -m $(QUICK)

coverage: $(VENV)/.installed-dev
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder -m $(QUICK) \
		--cov=fdg_plugins --cov-branch --cov-report=term:skip-covered --cov-report=xml:build/coverage.xml $(TESTS)

# On top of .venv, since MLflow wants an older gunicorn than FLARE's newest.
test-trackers: $(VENV)/.installed-dev
	$(BIN)/python -m venv --clear $(TRACKERS)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> "$$($(TRACKERS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/below.pth"
	$(TRACKERS)/bin/python -m pip install --quiet 'mlflow>=2.16' 'wandb>=0.19'
	$(TRACKERS)/bin/python -m pytest tests/flare/test_trackers.py

bench: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/bench.py $(BENCH_OPTIONS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

generate: $(VENV)/.installed-dev
	$(BIN)/python docs/make_tables.py
	$(BIN)/python docs/make_data_flow.py
	$(BIN)/python docs/make_method_pages.py
	$(BIN)/python docs/make_compositions.py
	$(BIN)/python -c 'from fdg_plugins.recipes import export_jobs; export_jobs("jobs")'

$(VENV)/.installed-docs: $(VENV)/.installed
	$(INSTALL) --editable '.[docs]'
	@touch $@

docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

$(VENV)/.installed-release: $(VENV)/.installed
	$(INSTALL) --editable '.[release]'
	@touch $@

dist: $(VENV)/.installed-release
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m twine check --strict dist/*

clean:
	rm -rf $(VENV) .venv-* simulator_workspace dist build/site build/sbom.json build/licences.txt build/coverage.xml
