# Everything a developer of pydanube runs.  `make help` lists it.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo test check format bench sim sim-long lowest docs proto clean set-up

PYTHON := .venv/bin/python
DANUBE := $(PYTHON) -m pydanube.cli.main
# More words for the command behind a target: make test ARGS='-k journal -x'.
ARGS ?=

help:  ## Show this list.
	@echo "Usage: make TARGET [ARGS='…']"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "Each target sets up .venv by itself the first time, and is quick after that."

set-up:  ## Create .venv with everything in it (every other target does so by itself).
	@tools/set-up

demo: set-up  ## Run the whole system on real data, from messages to a chart.
	@$(DANUBE) demo $(ARGS)

test: set-up  ## Run every test, two files at a time: with real processes and Spark.
	@$(PYTHON) -m pytest -n 2 --dist loadfile $(ARGS)

check: set-up  ## Run before a commit: format, lint, types, floors, fast tests.
	@$(PYTHON) -m ruff format --check --quiet . || \
		{ echo "Some files are not formatted; 'make format' does it:"; \
		  $(PYTHON) -m ruff format --check . ; exit 1; }
	@$(PYTHON) -m ruff check --quiet .
	@$(PYTHON) -m mypy
	@.venv/bin/lint-imports --no-logo
	@$(PYTHON) -m pytest -q -m 'not slow and not e2e' $(ARGS)

format: set-up  ## Format the code, and mend what the linter can mend.
	@$(PYTHON) -m ruff check --quiet --fix-only .
	@$(PYTHON) -m ruff format .

bench: set-up  ## Measure pydanube beside its peers: make bench ARGS='--quick'.
	@cmp -s pyproject.toml .venv/ready-bench || { \
		$(PYTHON) -m pip install --quiet --disable-pip-version-check \
			--editable '.[bench]' && cp pyproject.toml .venv/ready-bench; }
	@$(PYTHON) -m bench $(ARGS)

sim: set-up  ## Run the simulation with one seed: make sim SEED=4711.
	@PYTHONPATH=tests $(PYTHON) -m simulation $(or $(SEED),0) $(ARGS)

sim-long: set-up  ## Run the simulation with seed after seed, until Ctrl-C.
	@PYTHONPATH=tests $(PYTHON) -m simulation $(ARGS)

lowest: set-up  ## Run the fast tests with the oldest dependencies that are allowed.
	@$(PYTHON) tools/lowest.py

docs: set-up  ## Write the generated pages of docs/reference again.
	@$(PYTHON) tools/reference.py
	@$(PYTHON) tools/cli_reference.py

proto: set-up  ## Generate src/pydanube/wire/pb again from its .proto files.
	@$(PYTHON) tools/proto.py

clean:  ## Remove .venv and whatever else was made here (data and demo output stay).
	@rm -rf .venv .venv-lowest .venv-danube-client build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis \
		.import_linter_cache
	@find src bench tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
