# Two commands do everything on a fresh machine: `make up` and `make test`. They need make and Python 3.11 or newer.

# The first python3 that is new enough; PYTHON=… picks another.
ifndef PYTHON
PYTHON := $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && exit; done; echo python3)
endif
HOST ?= 127.0.0.1
PORT ?= 8000
DEMO ?=
EXAMPLES ?= 100

IN_VENV := .venv/bin/python -m

# `check --deploy` looks at production settings with throw-away values.
PRODUCTION := DJANGO_SETTINGS_MODULE=config.settings.production ALLOWED_HOSTS=recollect.example \
	SECRET_KEY=only-for-make-check-0123456789-abcdefghijklmnopqrstuvwxyz-ABCDEFGHIJ \
	DATABASE_URL=postgres://nobody@localhost/none REDIS_URL=redis://localhost/0 EMAIL_HOST=localhost

.PHONY: help up down doctor quick test test-all check audit vendor conformance conformance-packages schemathesis architecture docs wheel release chaos soak format lock install python
.DEFAULT_GOAL := help

help: ## Show this list.
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r target text; do \
		printf '  make %-12s %s\n' "$$target" "$$text"; done

export PYTHONUTF8 := 1

up: install ## Start everything and print the address (PORT=8000 HOST=127.0.0.1 PUBLIC_URL=https://… DEMO=1 for sample data).
	@exec $(IN_VENV) config.stack up --host "$(HOST)" --port "$(PORT)" $(if $(DEMO),--demo)

down: ## Stop what `make up` started.
	@if [ -x .venv/bin/python ]; then $(IN_VENV) config.stack down; else echo "Nothing is running."; fi

doctor: install ## Say what is wrong with this installation, and what to do; the output is for a bug report.
	@exec .venv/bin/python manage.py doctor

quick: LOCK := dev
quick: install ## Run what starts no product, server, browser or benchmark: before each commit (ARGS as for `make test`).
	@echo "make quick: about 6,100 tests, 5 to 10 minutes on two cores."
	@exec $(IN_VENV) pytest -n auto -m "not extended and not medium" $(ARGS)

test: LOCK := dev
test: install ## Run the suite that every change has to pass (ARGS="-n 0" for one process, ARGS="-k deleting" for a part).
	@echo "make test: about 6,500 tests, 7 to 14 minutes on two cores; make test-all runs all of them."
	@exec $(IN_VENV) pytest -n auto -m "not extended or medium" $(ARGS)

test-all: LOCK := dev
test-all: install ## Run every test, and list the thirty slowest.
	@echo "make test-all: about 7,200 tests, 20 to 45 minutes on two cores."
	@exec $(IN_VENV) pytest -n auto $(ARGS)

check: LOCK := dev
check: install ## Format, lint, types, the house's arrows and rules, deployment settings, missing migrations.
	$(IN_VENV) ruff format --check .
	$(IN_VENV) ruff check .
	$(IN_VENV) mypy .
	.venv/bin/lint-imports
	@# None of these tests asks a server, and so none is started.
	DATABASE_URL=postgres://nobody@localhost/none DATABASE_WORKER_URL=postgres://nobody@localhost/none \
		DATABASE_OWNER_URL=postgres://nobody@localhost/none REDIS_URL=redis://localhost/0 \
		$(IN_VENV) pytest -q -s -n 0 testing/rules
	$(PRODUCTION) .venv/bin/python manage.py check --deploy --fail-level WARNING
	@# Without a database, of which it would warn: models and migrations are all it compares.
	$(PRODUCTION) LOG_LEVEL=ERROR .venv/bin/python -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run

audit: install ## Look the locked packages and the library of diagrams up among known vulnerabilities (asks two databases; needs npm).
	@requirements/audit.sh $(ARGS)

vendor: ## Fetch the library that draws diagrams, by the name and digest in requirements/vendor.sh (needs npm and the network).
	@requirements/vendor.sh

conformance: LOCK := dev
conformance: install conformance-packages ## The official MCP conformance suite and inspector, with a Node 22 of their own (needs npm and the network).
	CONFORMANCE_DIR=var/conformance $(IN_VENV) pytest agent_tools/tests/conformance $(ARGS)

conformance-packages:
	npm install --prefix var/conformance --no-save --no-audit --no-fund --loglevel=error node@22.23.3 \
		@modelcontextprotocol/conformance@0.2.0-alpha.12 @modelcontextprotocol/inspector@2.12.0 @mdn/browser-compat-data@8.1.9

schemathesis: LOCK := dev
schemathesis: install ## Send the API what its OpenAPI document allows and what not (EXAMPLES=100 for each operation).
	SCHEMATHESIS_EXAMPLES=$(EXAMPLES) $(IN_VENV) pytest config/tests/test_schemathesis.py $(ARGS)

architecture: LOCK := dev
architecture: install ## Draw docs/architecture.svg from the import graph.
	$(IN_VENV) docs.draw_architecture

docs: LOCK := dev
docs: install ## Write docs/settings.md and the second half of docs/cli.md from the settings and the commands.
	$(IN_VENV) docs.write_reference

wheel: install ## Build the wheel of the server into dist/, for `pipx run --spec` and `uvx --from` (docs/install.md).
	@exec $(IN_VENV) config.ops.wheel dist

release: install ## Date the changelog, tag, and put wheel, bill of materials and checksums into dist/ (VERSION=1.1.0; CONTRIBUTING.md).
	@deploy/release.sh "$(VERSION)"

chaos: install ## Save 2,000 turns while workers, broker and database fail 20 times (ARGS=--turns=300 …; minutes).
	@exec .venv/bin/python manage.py chaos $(ARGS)

soak: install ## 100,000 calls by people and visitors at once, none of whom may see another's words (ARGS=--calls=5000 …).
	@exec .venv/bin/python manage.py soak $(ARGS)

lock: LOCK := dev
lock: install ## Resolve the dependencies in pyproject.toml anew into locks with hashes, for every supported Python and platform.
	for name in installer server local dev peers; do .venv/bin/uv pip compile --quiet --upgrade --universal \
		--python-version 3.11 --generate-hashes --no-annotate --custom-compile-command "make lock" \
		$$(test $$name = peers && echo --constraints requirements/local.txt) \
		$$(test $$name = server && echo --extra reranker) \
		pyproject.toml --extra $$name --output-file requirements/$$name.txt || exit 1; done

LOCK ?= local
install: python ## Make .venv hold what the locks name; does nothing when it already does.
	@requirements/install.sh "$(PYTHON)" $(LOCK)

python:
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Python 3.11 or newer is needed and $(PYTHON) is not: install it, or name it, as in make up PYTHON=/path/to/python3.11" >&2; \
		exit 1; }
