# Everything here works on a fresh machine with Python 3.11 or newer, its venv module, and a package registry.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Processes among which pytest divides the tests.
WORKERS ?= 2
INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt
PYTEST := $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile
# Tests and simulators start hundreds of processes; without compiled files, each would compile the package anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help install demo demo-medical poc test test-slow test-federation lint docs bench

help:
	@echo "make install          install into .venv, which . .venv/bin/activate puts on the path: fdg, nvflare"
	@echo "make demo             install, then: nvflare simulator jobs/pacs_fedomg"
	@echo "make demo-medical     install, then: nvflare simulator jobs/vessels_fedomg"
	@echo "make poc              install, then start a federation on this machine (fdg poc stop ends it)"
	@echo "make test             install, then the tests"
	@echo "make test-slow        ... that start simulated federations and break them"
	@echo "make test-federation  ... that provision a federation of separate processes"
	@echo "make lint             install, then ruff, mypy and the words of the glossary"
	@echo "make docs             install, then build the documentation as a site, in build/site"
	@echo "make bench            measure ours against references: seconds, bytes and their ratios, as a table"
	@echo "What is run now and then: .venv/bin/nox --list"

$(VENV)/.created:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv $(VENV) || { echo "Python's venv module is needed (Debian: apt-get install python3-venv)"; exit 1; }
	@touch $@

$(VENV)/.installed: $(VENV)/.created pyproject.toml constraints.txt
	@echo "Installing (torch and CUDA libraries: about 5 GB, a few minutes) ..."
	$(INSTALL) --editable '.[lab,pretrained]'
	@touch $@

# What an extra adds: medical, dev.
$(VENV)/.installed-%: $(VENV)/.installed
	$(INSTALL) --editable '.[lab,$*]'
	@touch $@

install: $(VENV)/.installed

# Without FLARE's line for every site and task.
demo demo-medical: export FL_LOG_LEVEL := examples/log_config.json

demo: $(VENV)/.installed
	. $(BIN)/activate && nvflare simulator jobs/pacs_fedomg

demo-medical: $(VENV)/.installed-medical
	. $(BIN)/activate && nvflare simulator jobs/vessels_fedomg -t 4

poc: $(VENV)/.installed
	$(BIN)/fdg poc start poc/workspace $(POC_OPTIONS)

test: $(VENV)/.installed-dev
	$(PYTEST) -m "not slow and not federation and not nightly"

test-slow: $(VENV)/.installed-dev
	$(PYTEST) -m "slow and not nightly"

test-federation: $(VENV)/.installed-dev
	$(PYTEST) -m "federation and not nightly"

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python docs/check_language.py

docs: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

bench: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/bench.py $(BENCH_OPTIONS)
