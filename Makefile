# Everything here works on a fresh machine with Python 3.11 or newer, its venv module, and a package registry.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
POC := poc/workspace
INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt

.PHONY: help install demo demo-medical poc poc-stop test test-slow test-federation lint docs-tables export-jobs docs bench clean

help:
	@echo "make install          install into .venv, which . .venv/bin/activate puts on the path: fdg, nvflare"
	@echo "make demo             install, then: nvflare simulator jobs/pacs_fedomg"
	@echo "make demo-medical     install with MONAI, then: nvflare simulator jobs/vessels_fedomg -t 4"
	@echo "make poc              install, then provision and start a federation on this machine, in poc/workspace"
	@echo "make poc-stop         stop it; what it wrote stays in poc/workspace"
	@echo "make test             install, then the tests (5 to 6 minutes on 2 cores)"
	@echo "make test-slow        install, then the tests that start whole simulated federations and break them"
	@echo "make test-federation  install, then the tests that provision a federation of separate processes"
	@echo "make export-jobs      install, then write jobs/ anew from the recipes"
	@echo "make docs             install, then build the documentation as a site, in build/site"
	@echo "make bench            install, then measure ours against references: seconds, bytes and their ratios, as a table"
	@echo "make lint             install, then ruff and mypy"
	@echo "make clean            remove the virtual environment and the simulator's workspace"

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

demo: $(VENV)/.installed
	. $(BIN)/activate && nvflare simulator jobs/pacs_fedomg

demo-medical: $(VENV)/.installed-medical
	. $(BIN)/activate && nvflare simulator jobs/vessels_fedomg -t 4

poc: $(VENV)/.installed
	$(BIN)/python poc/federation.py start --folder $(POC) $(POC_OPTIONS)

poc-stop: $(VENV)/.installed
	$(BIN)/python poc/federation.py stop --folder $(POC)

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder -m "not slow and not federation"

test-slow: $(VENV)/.installed-dev
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder -m slow

test-federation: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m federation

bench: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/bench.py $(BENCH_OPTIONS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs-tables: $(VENV)/.installed-dev
	$(BIN)/python docs/make_tables.py
	$(BIN)/python docs/make_method_pages.py

export-jobs: $(VENV)/.installed
	$(BIN)/python -c 'from fdg_plugins.recipes import export_jobs; export_jobs("jobs")'

$(VENV)/.installed-docs: $(VENV)/.installed
	$(INSTALL) --editable '.[docs]'
	@touch $@

docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

clean:
	rm -rf $(VENV) simulator_workspace build/site
