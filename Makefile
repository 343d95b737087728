# Two commands matter: `make demo` and `make test`. Each sets up everything it needs.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: demo test test-engines proofs check setup-demo setup-dev clean

demo: $(VENV)/.demo
	$(BIN)/panda-mdp demo --out out/demo

test: $(VENV)/.dev check web/node_modules/.package-lock.json
	.ci/system-packages
	npm --prefix web test
	$(BIN)/pytest -n auto

# Spark on a local cluster of worker processes; needs Java 17 or newer.
test-engines: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet -e '.[engines]'
	$(BIN)/pytest -n 0 tests/engines

check: $(VENV)/.dev
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/mypy

# Machine-checked proofs (docs/proofs.md), and the checker made of them beside the other two.
proofs: $(VENV)/.dev
	.ci/proof-packages
	proofs/build
	PANDA_PROOFS=required $(BIN)/pytest -q -rP -n auto tests/proofs

# The browser's pages are built already; Node (20.19 or newer) is for testing that they still are.
web/node_modules/.package-lock.json: web/package-lock.json
	npm --prefix web ci --no-audit --no-fund

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet -e '.[plot]'
	touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) out web/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis
