# Every target sets up what it needs; on a fresh machine only Python 3.11+, Git and make are there.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SETUP  ?= setup
EPOCH  := 1580601600
BUILT  := src/agent_orchestrator/server/dist/index.html
PAGES  := $(shell find dashboard -name node_modules -prune -o -type f -print)

.PHONY: help setup dashboard test-dashboard demo test check lint types imports docs-test docs reference bench load test-faults test-stalled test-projects fuzz crashes test-agents forges test-forges test-browser test-docker test-cluster test-postgres test-rescue screenshots wheel test-wheel lock clean

help:            ## what can be done here
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/.stamp: requirements-dev.lock pyproject.toml scripts/setup
	@scripts/setup $(PYTHON) $(VENV)
	@touch $@

$(BUILT): $(VENV)/.stamp $(PAGES)
	@$(BIN)/python scripts/dashboard.py build || echo "The daemon runs without its dashboard until that is mended." >&2

setup: $(VENV)/.stamp $(BUILT)   ## make the virtual environment from the lock file, and build the dashboard

dashboard: $(VENV)/.stamp   ## build the dashboard, and say why if that fails
	@$(BIN)/python scripts/dashboard.py build

test-dashboard: $(VENV)/.stamp   ## the dashboard's types and its own tests
	@$(BIN)/python scripts/dashboard.py build check test

demo: setup      ## five issues, five scripted agents, the whole loop; ends with the dashboard's address (ALL=1: every trigger)
	@$(BIN)/python -m agent_orchestrator.testing.demo $(if $(ALL),--all)

test: setup      ## all tests that need nothing but this machine
	@scripts/install-tmux
	@scripts/install-bwrap
	@# Most of the time they wait for other programs: one more at a time than there are cores.
	@$(BIN)/python -m pytest --dist worksteal -n $$($(BIN)/python -c 'import os; print((os.cpu_count() or 1) + 1)')

check: setup lint types imports test docs-test docs dashboard test-dashboard   ## every gate

lint: setup
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: setup
	@$(BIN)/mypy

imports: setup
	@$(BIN)/lint-imports

docs-test: setup
	@$(BIN)/python -m pytest tests/docs

docs: setup      ## the documentation as a site in .cache/site; a dead link or a page outside its navigation fails
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-docs.lock
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict && echo "Read it: .cache/site/index.html; with its search: $(BIN)/python -m http.server -b 127.0.0.1 -d .cache/site"

reference: setup ## write the pages anew that are made from the code: docs/reference, the man page, the dashboard's types
	@$(BIN)/python -m agent_orchestrator.cli.reference docs/reference/commands.md
	@$(BIN)/python -m agent_orchestrator.cli.manual docs/reference/ao.1
	@$(BIN)/python -m agent_orchestrator.server.schema.reference docs/reference/api.md
	@$(BIN)/python -m agent_orchestrator.testing.reference docs/reference/events.md
	@$(BIN)/python -m agent_orchestrator.testing.plugin_reference docs/reference/plugins.md
	@$(BIN)/python -c 'from agent_orchestrator.config.schema import reference_markdown; print(reference_markdown(), end="")' > docs/reference/configuration.md
	@$(BIN)/python -m agent_orchestrator.server.schema.typescript dashboard/src/api/types.ts

test-agents: setup   ## the real agent CLIs, installed outside the repository, on the scripted model
	@scripts/install-tmux
	@$(BIN)/python scripts/agents
	@$(BIN)/python -m pytest tests/agents -n 2 $(ARGS)

forges: setup    ## what the real forges publish, to check our test forges against: fetched by npm into .cache
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-forges.lock
	@-$(BIN)/python tests/forges/fetch.py

test-forges: forges  ## the forge plugins on the test forges, and these against what the real forges publish
	@$(BIN)/python -m pytest tests/forges -n 2 $(ARGS)

test-browser: setup  ## the dashboard in a real Chromium against a real daemon: on a desk and on a phone, light and dark
	@scripts/install-tmux
	@scripts/install-chromium
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-browser.lock
	@$(BIN)/python -m pytest tests/browser $(ARGS)

test-cluster: setup  ## sessions on the nodes of a real Ray cluster, in network namespaces: needs root (storm: python -m tests.cluster.storm)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-ray.lock
	@$(BIN)/python -m pytest tests/cluster -p no:xdist $(ARGS)

test-postgres: setup ## the store and two daemons on a real PostgreSQL 15, started in a temporary folder
	@scripts/install-postgres
	@$(BIN)/python -m pytest tests/postgres -p no:xdist $(ARGS)

test-rescue: setup   ## a thousand random workspaces saved, removed and brought back, byte for byte: make test-rescue EXAMPLES=500 (each of two kinds)
	@AO_RESCUE_EXAMPLES=$(or $(EXAMPLES),500) $(BIN)/python -m pytest tests/integration/rescue/test_any_workspace.py -n 2 $(ARGS)

screenshots: setup   ## the pictures of docs/dashboard.md
	@scripts/install-chromium
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-browser.lock
	@$(BIN)/python -m tests.browser.screenshots docs/pictures

test-docker: setup   ## sessions in containers, on an engine of its own; needs root (Debian's docker.io and podman are installed), else skips
	@scripts/install-tmux
	@scripts/install-docker
	@scripts/install-docker podman
	@$(BIN)/python -m pytest tests/docker $(ARGS)

forge: setup     ## a forge for tests to use by hand: make forge KIND=github (gitlab, linear, jira) PORT=8701
	@$(BIN)/python -m tests.forges.serve $(or $(KIND),github) --port $(or $(PORT),0)

test-faults: forges  ## seeded rounds of faults against a real daemon: make test-faults ROUNDS=200 SEED=1 (MINUTES=45, KINDS=disk-full,sleep, REPLAY=17)
	@scripts/install-tmux
	@$(BIN)/python -m tests.faults.run --rounds $(or $(ROUNDS),200) --seed $(or $(SEED),1) --minutes $(or $(MINUTES),0) $(if $(KINDS),--kinds $(KINDS)) $(if $(REPLAY),--replay $(REPLAY)) $(if $(REPORT),--report $(REPORT))

test-stalled: setup  ## all tests, while processes of the run are stopped at random for up to a second: make test-stalled SEED=1 (ONLY=daemons, ONLY=tests)
	@$(BIN)/python -m tests.stalls $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only $(ONLY)) --dist worksteal -n $$($(BIN)/python -c 'import os; print((os.cpu_count() or 1) + 1)')

crashes: forges  ## kill -9 of the daemon at every statement that touches the outside: make crashes ONLY=messages-tmux JOBS=2
	@$(BIN)/python -m tests.faults.statements --jobs $(or $(JOBS),2) $(if $(ONLY),--only $(ONLY))

test-projects: setup ## real projects from the registries, set up, checked, broken and merged: make test-projects ONLY=humanize,sqlparse (STAGE=verify, MINUTES=60)
	@scripts/install-bwrap
	@$(BIN)/python -m tests.projects $(if $(ONLY),--only $(ONLY)) $(if $(STAGE),--stage $(STAGE)) $(if $(MINUTES),--minutes $(MINUTES))

fuzz: setup      ## inputs near to those in tests/fuzz/corpora, and Schemathesis on the API: make fuzz MINUTES=10 (ONLY=spool, SEED=1)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --target .cache/fuzz --require-hashes -r requirements-fuzz.lock
	@PYTHONPATH=.cache/fuzz $(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),10) $(if $(ONLY),--only $(ONLY)) $(if $(SEED),--seed $(SEED))

bench: forges    ## the figures of docs/benchmarks.md, measured in one run: make bench ARGS="spawning peers"; table, JSON and pictures in .cache/bench
	@scripts/install-tmux
	@-$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-bench.lock
	@mkdir -p .cache/bench
	@AO_GITHUB_SCHEMA="$${AO_GITHUB_SCHEMA:-$$(ls .cache/forges/octokit-graphql-schema-*/schema.graphql 2>/dev/null | head -n 1)}" \
	  $(BIN)/python -m benchmarks --json .cache/bench/results.json --markdown .cache/bench/results.md --plots .cache/bench $(ARGS)

load: forges     ## 200 chatty sessions, 50 viewers, 1,000 webhooks a minute for ten: what is lost, late, growing or left (make load ARGS="--minutes 1")
	@$(BIN)/python -m benchmarks.load $(ARGS)

wheel: $(SETUP)     ## the wheel in dist/, its bill of materials and their digests; the same sources give the same bytes
	@rm -rf dist && mkdir dist
	@SOURCE_DATE_EPOCH=$(EPOCH) PYTHONDONTWRITEBYTECODE=1 $(BIN)/python -m hatchling build --target wheel --directory dist
	@$(BIN)/python scripts/sbom.py dist/sbom.cdx.json
	@cd dist && sha256sum * > SHA256SUMS && cat SHA256SUMS

test-wheel: setup   ## two wheels, made in two places and times, are one; and what is in it
	@$(BIN)/python -m tests.supply.wheel

lock: setup      ## pin the dependencies anew
	@scripts/lock $(BIN)

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
