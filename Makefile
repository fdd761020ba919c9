# Every target sets up what it needs; on a fresh machine only Python 3.11+, Git and make are there.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SETUP  ?= setup
EPOCH  := 1580601600
BUILT  := src/agent_orchestrator/server/dist/index.html
PAGES  := $(shell find dashboard -name node_modules -prune -o -type f -print)
LOCKED := -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements
# Tests wait for other programs about half of their time.
TEST_WORKERS = $$(($$(getconf _NPROCESSORS_ONLN) * 5 / 2))

# With it, each worker compiles every test itself.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup dashboard demo test test-fast check lint types imports docs docs-test reference test-dashboard forges forge bench load screenshots crashes fuzz wheel lock clean

help:            ## list what can be done here
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 17
	@scripts/suite

$(VENV)/.stamp: requirements/dev.lock pyproject.toml scripts/setup
	@scripts/setup $(PYTHON) $(VENV)
	@touch $@

$(BUILT): $(VENV)/.stamp $(PAGES)
	@$(BIN)/python scripts/dashboard.py build || echo "The daemon runs without its dashboard until that is mended." >&2

setup: $(VENV)/.stamp $(BUILT)   ## make the virtual environment from the lock file, and build the dashboard

demo: setup      ## five issues, five scripted agents, the whole loop; ends with the dashboard's address (ALL=1: every trigger)
	@$(BIN)/python -m agent_orchestrator.testing.demo $(if $(ALL),--all)

test: setup      ## run all tests that need nothing but this machine
	@scripts/install-tmux
	@scripts/install-bwrap
	@$(BIN)/python -m pytest --dist worksteal -n $(TEST_WORKERS)

test-fast: setup ## run the tests that start no daemon, for the inner loop
	@$(BIN)/python -m pytest --dist worksteal -n $(TEST_WORKERS) tests/unit tests/contract tests/guards/test_imports.py tests/guards/test_sizes.py $(ARGS)

check: setup lint types imports docs test-dashboard test   ## run every gate, the tests last

lint: setup
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: setup
	@$(BIN)/mypy

imports: setup
	@$(BIN)/lint-imports --cache-dir .cache/import-linter

docs-test: setup
	@$(BIN)/python -m pytest tests/docs

docs: setup      ## build the documentation as a site in .cache/site; a dead link or a page outside its navigation fails
	@$(BIN)/python $(LOCKED)/docs.lock
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict && echo "Read it: .cache/site/index.html; with its search: $(BIN)/python -m http.server -b 127.0.0.1 -d .cache/site"

reference: setup ## write the pages that are made from the code: docs/reference, the man page, the dashboard's types
	@$(BIN)/python -m agent_orchestrator.cli.reference docs/reference/commands.md
	@$(BIN)/python -m agent_orchestrator.cli.manual docs/reference/ao.1
	@$(BIN)/python -m agent_orchestrator.server.schema.reference docs/reference/api.md
	@$(BIN)/python -m agent_orchestrator.testing.events_reference docs/reference/events.md
	@$(BIN)/python -m agent_orchestrator.testing.plugin_reference docs/reference/plugins.md
	@$(BIN)/python -m agent_orchestrator.testing.listeners_reference docs/contributing/listeners.md
	@$(BIN)/python -c 'from agent_orchestrator.config.schema import reference_markdown; print(reference_markdown(), end="")' > docs/reference/configuration.md
	@$(BIN)/python -m agent_orchestrator.server.schema.typescript dashboard/src/api/types.ts

dashboard: $(VENV)/.stamp   ## build the dashboard, and say why if that fails
	@$(BIN)/python scripts/dashboard.py build

test-dashboard: $(VENV)/.stamp   ## check the dashboard's types and run its own tests
	@$(BIN)/python scripts/dashboard.py build check test

forges: setup    ## fetch what the real forges publish, to check our test forges against, into .cache
	@$(BIN)/python $(LOCKED)/forges.lock
	@-$(BIN)/python tests/forges/fetch.py

forge: setup     ## run a forge for tests by hand: make forge KIND=github (gitlab, linear, jira) PORT=8701
	@$(BIN)/python -m tests.forges.serve $(or $(KIND),github) --port $(or $(PORT),0)

test-forges test-faults crashes: forges

test-%: setup
	@scripts/suite $@ $(BIN) $(ARGS)

crashes fuzz: setup
	@scripts/suite $@ $(BIN) $(ARGS)

bench: forges    ## measure the figures of docs/benchmarks.md in one run: make bench ARGS="spawn peers"; table, JSON and pictures in .cache/bench
	@scripts/install-tmux
	@-$(BIN)/python $(LOCKED)/bench.lock
	@mkdir -p .cache/bench
	@AO_GITHUB_SCHEMA="$${AO_GITHUB_SCHEMA:-$$(ls .cache/forges/octokit-graphql-schema-*/schema.graphql 2>/dev/null | head -n 1)}" \
	  $(BIN)/python -m benchmarks --json .cache/bench/results.json --markdown .cache/bench/results.md --plots .cache/bench $(ARGS)

load: forges     ## 200 chatty sessions, 50 viewers, 1,000 webhooks a minute for ten: what is lost, late, growing or left (make load ARGS="--minutes 1")
	@$(BIN)/python -m benchmarks.load $(ARGS)

screenshots: setup   ## take the pictures of docs/dashboard.md
	@scripts/install-chromium
	@$(BIN)/python $(LOCKED)/browser.lock
	@$(BIN)/python -m tests.browser.screenshots docs/pictures

wheel: $(SETUP)     ## build the wheel in dist/, its bill of materials and their digests; the same sources give the same bytes
	@rm -rf dist && mkdir dist
	@SOURCE_DATE_EPOCH=$(EPOCH) PYTHONDONTWRITEBYTECODE=1 $(BIN)/python -m hatchling build --target wheel --directory dist
	@$(BIN)/python scripts/sbom.py dist/sbom.cdx.json
	@cd dist && sha256sum * > SHA256SUMS && cat SHA256SUMS

lock: setup      ## pin the dependencies anew
	@scripts/lock $(BIN)

clean:           ## remove what can be made again, but the fetched packages in .cache
	rm -rf $(VENV) dist build .cache/mypy .cache/ruff .cache/pytest .cache/hypothesis .cache/import-linter .cache/site
