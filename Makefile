# One front door: everything a person or a CI machine runs is a target here.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Write bytecode even if the environment forbids it, because the tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install --only-binary :all: --require-hashes

.DEFAULT_GOAL := help
.PHONY: help setup setup-test serve demo test test-fast simulate soak check lint types check-deploy bench openapi clients console docs pictures wheel lock clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(VENV)/run.stamp: requirements/run.txt requirements/build.txt pyproject.toml clients/python/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "gatepost needs Python 3.11 or newer; try make PYTHON=python3.12 ...")'
	@test -x $(BIN)/python || { echo "making $(VENV) (once)"; $(PYTHON) -m venv $(VENV); }
	@$(PIP) -r requirements/build.txt -r requirements/run.txt
	@$(BIN)/python -m pip --disable-pip-version-check --quiet install --no-deps --no-build-isolation --editable ./clients/python --editable .
	@touch $@

$(VENV)/test.stamp: $(VENV)/run.stamp requirements/test.txt
	@echo "installing what the tests need (once)"
	@$(PIP) -r requirements/test.txt
	@touch $@

setup: $(VENV)/run.stamp  ## make .venv with what the service needs
setup-test: $(VENV)/test.stamp

serve: setup  ## run the service on SQLite, for this machine only; on other ports: make serve PORT=8081 OPS_PORT=9091
	@$(BIN)/gatepost serve --dev $(if $(PORT),--port $(PORT)) $(if $(OPS_PORT),--ops-port $(OPS_PORT))

demo: setup  ## a token and webhooks to three receivers, watched live, in a temporary directory
	@$(BIN)/python -m examples.demo

test: setup-test  ## run the tests
	@$(BIN)/python -m pytest -n 4 --dist loadgroup

# The folders whose tests start no process and no server and need no database.
FAST := tests/unit tests/property $(wildcard tests/test_*.py)
test-fast: setup-test  ## run the pure tests, in under a minute; one topic: make test-fast K=refresh
	@$(BIN)/python -m pytest -q -p no:schemathesis $(FAST) $(if $(K),-k '$(K)',-n 2)

SEED ?= 1
DAYS ?= 100
simulate: setup-test  ## run simulated days with faults: make simulate SEED=1 DAYS=100
	@$(BIN)/python -m tests.simulation --seed $(SEED) --days $(DAYS)

soak: setup-test  ## kill processes, nodes and PgBouncer hundreds of times, and the primary of PostgreSQL twenty times
	@GATEPOST_TEST_KILLS=200 $(BIN)/python -m pytest -n 2 --dist loadgroup tests/chaos -k 'killed_at_random or web_processes_killed or nodes_killed or behind_pgbouncer or failovers or primaries_killed'

lint: setup-test
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: setup-test
	@$(BIN)/mypy

check: lint  ## lint, types and tests: what CI runs; the types are checked while the tests run
	@$(MAKE) --no-print-directory -j2 types test

# Helm is built from source, if it is not installed. This takes several minutes, once.
HELM := $(or $(shell command -v helm),.cache/bin/helm)
.cache/bin/helm:
	@GOBIN="$(CURDIR)/.cache/bin" GOFLAGS=-mod=mod go install helm.sh/helm/v3/cmd/helm@v3.18.6

check-deploy: setup-test $(HELM)  ## check the Helm chart and the Compose file against their schemas
	@$(PIP) -r requirements/deploy.txt
	@DEPLOY_TESTS=required $(BIN)/python -m pytest -q tests/deploy/test_chart.py tests/deploy/test_compose.py

bench: setup-test  ## measure tokens and deliveries beside their limits and their peers
	@$(BIN)/python -m bench.tokens
	@$(BIN)/python -m bench.deliver

openapi: setup  ## write openapi.json from the code
	@$(BIN)/python -m gatepost.web.openapi > gatepost/openapi.json

clients: setup-test  ## write the types and the conformance table of the client libraries
	@$(BIN)/python clients/generate.py
	@$(BIN)/python clients/python/generate.py
	@$(BIN)/python clients/conformance/generate.py

docs: setup  ## write the generated parts of the pages, and build the site into build/site
	@$(BIN)/python docs/generate.py
	@$(BIN)/python docs/site.py

pictures: setup-test  ## take the pictures of the console and of the demo; needs Chromium
	@$(BIN)/python docs/console_pictures.py
	@$(BIN)/python docs/operator_picture.py
	@$(BIN)/python docs/picture.py

wheel: setup  ## build the wheels into dist, and check them in a new environment
	@rm -rf build/lib build/wheel clients/python/build dist && mkdir -p dist
	@$(BIN)/python -m pip --disable-pip-version-check --quiet wheel --no-deps --no-build-isolation --wheel-dir dist ./clients/python .
	@$(PYTHON) -m venv build/wheel
	@build/wheel/bin/python -m pip --disable-pip-version-check --quiet install --only-binary :all: --require-hashes -r requirements/run.txt
	@build/wheel/bin/python -m pip --disable-pip-version-check --quiet install --no-deps dist/*.whl
	@cd build/wheel && bin/gatepost --version && timeout 30 bin/gatepost serve --dev --data data --port 48080 --ops-port 49090 | grep -m 1 '^ready'
	@ls dist/*.whl

console:  ## build the console's pages; the only target that needs Node
	@cd console && npm ci --silent --no-audit --no-fund && npm run --silent build

lock: setup-test  ## pin the newest allowed versions, with hashes
	@$(BIN)/python -m pip --quiet install uv
	@for one in "pyproject.toml --extra archive --extra postgres --extra nats --extra kafka --extra otel -o requirements/run.txt" "requirements/build.in -o requirements/build.txt" "requirements/test.in -o requirements/test.txt" "requirements/deploy.in -o requirements/deploy.txt"; do \
	  $(BIN)/uv pip compile --quiet --upgrade --generate-hashes --no-emit-index-url --no-header --no-annotate --universal --python-version 3.11 --no-emit-package gatepost-client $$one || exit 1; done

clean:  ## remove what make made
	rm -rf $(VENV) .cache console/node_modules clients/typescript/node_modules clients/typescript/dist build clients/python/build clients/python/*.egg-info dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
