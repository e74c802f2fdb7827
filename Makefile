# Everything a developer of pydanube runs.  `make help` lists it.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo test soak smoke check lint style types format bench sim sim-long attack lowest versions docs site release proto clean set-up servers

PYTHON := .venv/bin/python
# The package that `make check PKG=broker` checks; PKG=client is pydanube itself.
PACKAGE := packages/pydanube$(addprefix -,$(filter-out client,$(PKG)))
# The files among these that have contracts of imports.
contracts = $$(grep -l '^\[tool.importlinter\]' $(1))
# More words for the command behind a target: make test ARGS='-k journal -x'.
ARGS ?=
# Compile modules and rewrite assertions once, not in every run.
export PYTHONDONTWRITEBYTECODE :=

help:  ## Show this list.
	@echo "Usage: make TARGET [ARGS='…']"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "Each target sets up .venv by itself the first time, and is quick after that."

set-up:  ## Create .venv with everything in it (other targets do so by themselves).
	@tools/set-up dev

servers: set-up  ## Install the servers that tests start (test, soak and smoke do so).
	@tools/servers

demo:  ## Run the whole system on real data, from messages to a chart.
	@tools/set-up demo
	@$(PYTHON) -m examples.demo $(ARGS)

test: servers  ## Run every test but the long ones: with real processes and Spark.
	@$(PYTHON) -m pytest -n 5 --dist loadfile -m 'not soak' --world rotating $(ARGS)

soak: servers  ## Run the long tests: kill suites, clusters, many seeds of the simulation.
	@tools/object-stores
	@tools/zookeeper
	@tools/opensearch
	@tools/kafka
	@tools/dbt
	@$(PYTHON) -m pytest -m 'soak or rotated' $(ARGS)
	@$(if $(ARGS),,$(PYTHON) -m pytest -m 'not soak' --hypothesis-profile soak \
		tests/properties)
	@$(if $(ARGS),,$(PYTHON) -m pytest -n 4 --dist loadfile -m 'not soak' --world all \
		packages/pydanube/tests/client tests/e2e/test_cli.py tests/e2e/test_cli_*.py tests/e2e/test_topic_configuration.py)

smoke: servers  ## Run one or two of each kind of long test, as continuous integration does.
	@$(PYTHON) -m pytest -n 3 --dist loadfile -m 'soak and smoke' $(ARGS)

lint: style types  ## Check format, lint, import contracts and types.

types: set-up
	@$(PYTHON) -m mypy

style: set-up
	@$(PYTHON) -m ruff format --check --quiet . || \
		{ echo "Some files are not formatted; 'make format' does it:"; \
		  $(PYTHON) -m ruff format --check . ; exit 1; }
	@$(PYTHON) -m ruff check --quiet .
	@.venv/bin/lint-imports --no-logo $(call contracts,pyproject.toml packages/*/pyproject.toml)

ifdef PKG
check: set-up
	@$(PYTHON) -m ruff format --check --quiet $(PACKAGE)
	@$(PYTHON) -m ruff check --quiet $(PACKAGE)
	@.venv/bin/lint-imports --no-logo $(call contracts,pyproject.toml $(PACKAGE)/pyproject.toml)
	@$(PYTHON) -m mypy $(PACKAGE)/src
	@$(PYTHON) -m pytest -q -n 2 --dist loadfile --hypothesis-profile quick \
		-m 'not slow and not e2e and not soak' $(PACKAGE)/tests $(ARGS)
else
check: style  ## Run before a commit: lint, types, fast tests; PKG=broker for one package.
	@types=$$(mktemp); trap 'rm -f "$$types"' EXIT; \
		$(PYTHON) -m mypy > "$$types" 2>&1 & \
		$(PYTHON) -m pytest -q -n 2 --dist loadfile --hypothesis-profile quick \
			--ignore tests/e2e -m 'not slow and not e2e and not soak' $(ARGS); tests=$$?; \
		wait $$!; correct=$$?; cat "$$types"; [ $$tests = 0 ] && [ $$correct = 0 ]
endif

format: set-up  ## Format the code, and mend what the linter can mend.
	@$(PYTHON) -m ruff check --quiet --fix-only .
	@$(PYTHON) -m ruff format .

bench: set-up  ## Measure pydanube beside its peers: make bench ARGS='--quick'.
	@$(PYTHON) -m bench $(ARGS)

sim: set-up  ## Run the simulation with one seed: make sim SEED=4711.
	@PYTHONPATH=tests $(PYTHON) -m simulation $(or $(SEED),0) $(ARGS)

sim-long: set-up  ## Run the simulation with seed after seed, until Ctrl-C.
	@PYTHONPATH=tests $(PYTHON) -m simulation $(ARGS)

attack: set-up  ## Attack a broker for MINUTES=10: make attack ONLY=fuzz_native SEED=7.
	@PYTHONPATH=tests $(PYTHON) -m attack --minutes $(or $(MINUTES),10) \
		--seed $(or $(SEED),0) $(addprefix --only ,$(ONLY)) \
		$(addprefix --round ,$(ROUND)) $(ARGS)

lowest: set-up  ## Run the fast tests with the oldest dependencies that are allowed.
	@$(PYTHON) tools/lowest.py

versions: set-up  ## Run the fast tests of the client with each Python that is here.
	@$(PYTHON) tools/versions.py $(ARGS)

docs: set-up  ## Write docs/reference, the dashboards and sync_facades.py again.
	@$(PYTHON) tools/reference.py
	@$(PYTHON) tools/dashboards.py
	@$(PYTHON) tools/cli_reference.py
	@$(PYTHON) tools/api_reference.py
	@$(PYTHON) tools/sync_facades.py

site: set-up  ## Build the documentation site in build/site, and check its links.
	@$(PYTHON) tools/site.py $(ARGS)

release: set-up  ## Build the wheels, the sdists and a bill of materials into dist.
	@$(PYTHON) tools/release.py $(ARGS)

proto: set-up  ## Generate pydanube/wire/pb again from its .proto files.
	@$(PYTHON) tools/proto.py

clean:  ## Remove .venv and whatever else was made here (data and demo output stay).
	@rm -rf .venv .venv-lowest .venv-versions .venv-danube-client build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis \
		.import_linter_cache
	@find packages bench examples tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
