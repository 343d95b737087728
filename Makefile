# Two commands matter: `make demo` and `make test`. Each sets up everything it needs.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Hundreds of processes start from the same sources: translate each once.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo docs test test-operate test-engines test-lowest test-lowest-extras mutants release-check proofs check clean

demo: $(VENV)/.demo
	$(BIN)/panda-mdp demo --out out/demo

# Says what it installs and with which rights; what cannot run here is skipped and named at the end.
test: $(VENV)/.dev check
	$(BIN)/python .ci/provide.py
	if $(BIN)/python .ci/provide.py --has node; then npm --prefix web test; fi
	$(BIN)/pytest -n $(WORKERS) --dist worksteal
# One more than there are cores: tests also wait, for servers and browsers.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)')

# The core on the lowest versions that pyproject.toml declares, in an environment of its own.
test-lowest: $(VENV)-lowest/.done
	NUMBA_CACHE_DIR=$(VENV)-lowest/numba $(VENV)-lowest/bin/python .ci/core_tests.py -n 2 \
	  -W ignore::DeprecationWarning -p no:cacheprovider $(LOWEST)
# Typer 0.19 keeps the help of arguments elsewhere than today's, where one test looks for it.
LOWEST := --deselect tests/cli/test_docs.py::test_command_and_options_have_help

# The same for the extras: each is used once.
test-lowest-extras: $(VENV)-lowest/.done
	$(VENV)-lowest/bin/python -m pip install --quiet -c .ci/lowest.txt -c .ci/lowest-extras.txt \
	  -e '.[plot,paper,geo,frames,server]'
	NUMBA_CACHE_DIR=$(VENV)-lowest/numba $(VENV)-lowest/bin/python .ci/extras_smoke.py

# Drills of an operator: attacks, restore, damage, lost keys, clocks, a batch that lies, kills and crashes.
test-operate: $(VENV)/.dev
	PANDA_MDP_INSTALL=1 $(BIN)/pytest -n 2 tests/protocol/server/test_attacks.py tests/protocol/server/test_backup.py \
	  tests/protocol/server/test_damage.py \
	  tests/protocol/server/test_removal.py tests/protocol/server/test_retention.py tests/protocol/server/test_crash.py \
	  tests/protocol/server/test_deploy.py tests/protocol/server/test_operate.py tests/protocol/messages/test_keys.py \
	  tests/protocol/client/test_one_use.py tests/protocol/ledger

# The documentation's site, in out/site: links are checked, the gallery is drawn.
docs: $(VENV)/.dev
	$(BIN)/mkdocs build --quiet --strict

# Builds sdist and wheel, looks inside, and follows the README from the wheel on each Python that is here.
release-check: $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet build
	$(BIN)/python .ci/release_check.py

# Spark on a local cluster of worker processes; needs Java 17 or newer.
test-engines: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet -e '.[engines]'
	$(BIN)/pytest -n 0 tests/engines

# Plants deliberate bugs one at a time and says which ones no test notices; takes about an hour.
mutants: $(VENV)/.dev web/node_modules/.package-lock.json
	$(BIN)/python tests/support/planting.py

check: $(VENV)/.dev
	$(BIN)/ruff check src tests benchmarks examples .ci
	$(BIN)/ruff format --check src tests benchmarks examples .ci
	$(BIN)/mypy
	mkdir -p out && $(BIN)/python .ci/release_check.py --example > out/readme_example.py
	$(BIN)/mypy out/readme_example.py

# Machine-checked proofs (docs/proofs.md), and the checker made of them beside the other two.
proofs: $(VENV)/.dev
	.ci/proof-packages
	proofs/build
	PANDA_PROOFS=required $(BIN)/pytest -q -rP -n auto tests/proofs

$(VENV)/bin/python:
	@echo "setting up $(VENV): Python packages go there and nowhere else; no rights are needed"
	$(PYTHON) -m venv $(VENV)

$(VENV)-lowest/.done: pyproject.toml .ci/lowest.txt
	$(PYTHON) -m venv $(VENV)-lowest
	$(VENV)-lowest/bin/python -m pip install --quiet --no-compile -c .ci/lowest.txt -e . \
	  hypothesis mpmath pytest pytest-xdist
	touch $@

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --no-compile -e '.[plot]'
	touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --no-compile -e '.[dev]'
	touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) $(VENV)-lowest dist out web/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis
