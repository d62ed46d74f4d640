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

.PHONY: help install demo demo-medical poc poc-stop test test-slow test-nightly test-federation test-python test-lowest \
	test-newest test-wheel test-trackers coverage lint docs-tables export-jobs docs bench dist rehearse-images sbom clean

help:
	@echo "make install          install into .venv, which . .venv/bin/activate puts on the path: fdg, nvflare"
	@echo "make demo             install, then: nvflare simulator jobs/pacs_fedomg"
	@echo "make demo-medical     install with MONAI, then: nvflare simulator jobs/vessels_fedomg -t 4"
	@echo "make poc              install, then provision and start a federation on this machine, in poc/workspace"
	@echo "make poc-stop         stop it; what it wrote stays in poc/workspace"
	@echo "make test             install, then the tests (4 to 6 minutes on 2 cores)"
	@echo "make test-slow        install, then the tests that start whole simulated federations and break them"
	@echo "make test-nightly     install, then those of many alike: compositions, methods in the simulator, variants in federations"
	@echo "make test-federation  install, then the tests that provision a federation of separate processes"
	@echo "make test-python      make test with PYTHON=python3.12, or another, in an environment of its own"
	@echo "make test-lowest      tests that need no extra, with the lowest versions of all packages"
	@echo "make test-newest      the quick tests with the newest versions of all packages, whatever constraints.txt says"
	@echo "make test-wheel       install, then build the wheel and use it without the checkout"
	@echo "make coverage         the tests of make test (or TESTS=tests/core), with the lines and branches that they reach"
	@echo "make test-trackers    the tests against a real MLflow server and Weights & Biases, in an environment with both"
	@echo "make export-jobs      install, then write jobs/ anew from the recipes"
	@echo "make docs             install, then build the documentation as a site, in build/site"
	@echo "make bench            install, then measure ours against references: seconds, bytes and their ratios, as a table"
	@echo "make lint             install, then ruff and mypy"
	@echo "make dist             install, then build wheel and source archive, and check what an index would show of them"
	@echo "make rehearse-images  execute what the Dockerfiles in docker/ install, without Docker"
	@echo "make sbom             install, then list what is installed with the package, and under which licences, in build/"
	@echo "make clean            remove the virtual environments, the simulator's workspace and what was built"

$(VENV)/.created:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv $(VENV) || { echo "Python's venv module is needed (Debian: apt-get install python3-venv)"; exit 1; }
	@touch $@

$(VENV)/.installed: $(VENV)/.created pyproject.toml constraints.txt
	@echo "Installing (torch and CUDA libraries: about 5 GB, a few minutes) ..."
	$(INSTALL) --editable .
	@touch $@

$(VENV)/.installed-medical: $(VENV)/.installed
	$(INSTALL) --editable '.[medical]'
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

# Beside .venv, so that a machine can keep an environment for every version of Python.
test-python:
	$(MAKE) test PYTHON=$(PYTHON) VENV=.venv-$(notdir $(PYTHON))

test-lowest: $(VENV)/.installed
	$(INSTALL) uv
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(LOWEST)
	$(BIN)/uv pip install --quiet --python $(LOWEST) --resolution lowest-direct \
		--editable . 'pytest>=8' 'pytest-xdist>=3.6' 'hypothesis>=6.120'
	$(LOWEST)/bin/python -m pytest --numprocesses $(WORKERS) --dist loadfile -m $(QUICK) $(WITHOUT_EXTRAS)

# With pip, by which tests install a plug-in; environments that uv makes have none.
test-newest: $(VENV)/.installed
	$(INSTALL) uv
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(NEWEST)
	$(BIN)/uv pip install --quiet --python $(NEWEST) --upgrade --editable '.[dev]' pip
	$(NEWEST)/bin/python -m pytest --numprocesses $(WORKERS) --dist loadfile -m $(QUICK)

test-wheel: $(VENV)/.installed-dev
	$(BIN)/python -m pytest tests/end_to_end/test_wheel.py

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

docs-tables: $(VENV)/.installed-dev
	$(BIN)/python docs/make_tables.py
	$(BIN)/python docs/make_data_flow.py
	$(BIN)/python docs/make_method_pages.py
	$(BIN)/python docs/make_compositions.py

export-jobs: $(VENV)/.installed
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

rehearse-images: dist
	$(BIN)/python docker/rehearse.py docker/Dockerfile.site docker/Dockerfile.server

sbom: $(VENV)/.installed-release
	$(BIN)/python docs/make_sbom.py --to build

clean:
	rm -rf $(VENV) .venv-* simulator_workspace dist build/site build/sbom.json build/licences.txt build/coverage.xml
