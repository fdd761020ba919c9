# Every target sets up what it needs; on a fresh machine only Python 3.11+, Git and make are there.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: help setup demo test check lint types imports docs-test bench faults crashes test-agents test-forges lock clean

help:            ## what can be done here
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/.stamp: requirements-dev.lock pyproject.toml
	@scripts/setup $(PYTHON) $(VENV)
	@touch $@

setup: $(VENV)/.stamp   ## make the virtual environment from the lock file

demo: setup      ## five issues, five scripted agents, the whole loop; ends with the dashboard's address (ALL=1: every trigger)
	@$(BIN)/python -m agent_orchestrator.testing.demo $(if $(ALL),--all)

test: setup      ## all tests that need nothing but this machine
	@scripts/install-tmux
	@$(BIN)/python -m pytest -n auto

check: setup lint types imports test docs-test   ## every gate

lint: setup
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: setup
	@$(BIN)/mypy

imports: setup
	@$(BIN)/lint-imports

docs-test: setup
	@$(BIN)/python -m pytest tests/docs

test-agents: setup   ## the real agent CLIs, installed outside the repository, on the scripted model
	@scripts/install-tmux
	@$(BIN)/python scripts/agents
	@$(BIN)/python -m pytest tests/agents -n 2 $(ARGS)

test-forges: setup   ## the forge plugins on the test forges, and these against what the real forges publish (fetched by npm into .cache)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-forges.lock
	@-$(BIN)/python tests/forges/fetch.py
	@$(BIN)/python -m pytest tests/forges -n 2 $(ARGS)

faults: setup    ## seeded rounds of kill -9 against a real daemon: make faults ROUNDS=100 SEED=1
	@$(BIN)/python -m tests.faults.run --rounds $(or $(ROUNDS),100) --seed $(or $(SEED),1)

crashes: setup   ## kill -9 of the daemon at every statement that touches the outside: make crashes ONLY=messages-tmux JOBS=2
	@$(BIN)/python -m tests.faults.statements --jobs $(or $(JOBS),2) $(if $(ONLY),--only $(ONLY))

bench: setup     ## the figures of docs/benchmarks.md, as ratios measured in one run
	@$(BIN)/python -m benchmarks

lock: setup      ## pin the dependencies anew
	@scripts/lock $(BIN)

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
