# Everything a person does with this repository. `make` alone explains itself.
# Needs Python 3.11 or newer and a network for the first installation; nothing else.

PYTHON ?= python3
# For `make run`: DATA=folder PORT=number HOST=address ARGS="any other flags of dromos serve"
DATA ?=
PORT ?=
HOST ?=
ARGS ?=
# Passed to `make test`: TESTS=path or expression, JOBS=processes side by side (much of the time is waiting)
TESTS ?=
JOBS ?= 3
# Passed to `make faults` and `make bench`: FULL=1 for the full sizes
FULL ?=

VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps
UV := VIRTUAL_ENV=$(VENV) $(BIN)/uv
INSTALL := $(UV) pip install --quiet --require-hashes -r
UI_SOURCES := $(shell find web -name node_modules -prune -o -type f -print 2>/dev/null)

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help setup run test check fix faults bench docs lock clean

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(STAMPS)/product $(STAMPS)/page ## Set up what is missing and serve Dromos on http://127.0.0.1:8321 (PORT=8400 DATA=folder)
	@echo "starting Dromos; Ctrl-C stops it ..."
	@exec $(BIN)/dromos serve $(if $(DATA),--data "$(DATA)") $(if $(HOST),--host "$(HOST)") $(if $(PORT),--port "$(PORT)") $(ARGS)

setup: $(STAMPS)/dev $(STAMPS)/product $(STAMPS)/page ## Install everything for development into .venv

test: setup ## Run all tests (TESTS=tests/domain for a part, FULL=1 for the long ones too)
	@sh .ci/system-packages
	FULL=$(FULL) $(BIN)/pytest -n $(JOBS) --dist worksteal --durations 20 --durations-min 10 $(TESTS)

faults: setup ## Run only the tests that kill, freeze and starve real processes (FULL=1 writes benchmarks/RESULTS-faults.md and its part of the guide)
	@sh .ci/system-packages
	FULL=$(FULL) $(BIN)/pytest tests/faults
	$(if $(FULL),$(BIN)/python docs/generate.py)

check: setup ## Formatting, lint, types, imports, locks, documents: under a minute
	@$(BIN)/python .ci/check.py

fix: $(STAMPS)/dev ## Repair what can be repaired by itself: formatting, simple lint, generated documents
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format --quiet .
	$(BIN)/python docs/generate.py

docs: setup ## Build the documentation into site/
	$(BIN)/python docs/generate.py --check
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "site/index.html is written"

bench: setup $(STAMPS)/bench ## Measure, against the stock parts, in one run; then the live box and outside effects (FULL=1: two hours)
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.live $(if $(FULL),--full)
	$(BIN)/python -m benchmarks.effects $(if $(FULL),--full)

lock: $(STAMPS)/dev ## Solve the locked versions again (UPGRADE=1 for the newest)
	$(BIN)/python locks/relock.py $(if $(UPGRADE),--upgrade)

clean: ## Remove the environment and everything built; your data stays
	rm -rf $(VENV) site src/dromos/web/static web/node_modules .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

# ── Stamps: each step runs again only when what it was made from has changed ──────────────────────────────

$(STAMPS)/venv:
	@command -v "$(PYTHON)" >/dev/null || { \
	  echo "Dromos needs Python 3.11 or newer and found no '$(PYTHON)'. Install it, or name yours: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Dromos needs Python 3.11 or newer; '$(PYTHON)' is $$("$(PYTHON)" -V 2>&1). Name a newer one: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@echo "making an environment in $(VENV) with $$("$(PYTHON)" -V) ..."
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "'$(PYTHON)' cannot make a virtual environment. On Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/installer: locks/installer.txt | $(STAMPS)/venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r locks/installer.txt
	@touch $@

$(STAMPS)/run: locks/run.txt $(STAMPS)/installer
	@echo "installing Dromos and its small local model (about 300 MB, once) ..."
	@$(INSTALL) locks/run.txt
	@touch $@

$(STAMPS)/dev: locks/dev.txt $(STAMPS)/run
	@echo "installing what development needs ..."
	@$(INSTALL) locks/dev.txt
	@touch $@

$(STAMPS)/bench: locks/bench.txt $(STAMPS)/dev
	@$(INSTALL) locks/bench.txt
	@touch $@

$(STAMPS)/product: pyproject.toml $(STAMPS)/run
	@$(UV) pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(STAMPS)/page: hatch_build.py $(UI_SOURCES) $(STAMPS)/run
	@echo "building the page ..."
	@$(BIN)/python hatch_build.py
	@touch $@
