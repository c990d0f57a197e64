# The only entry to building and testing. Everything is installed into .venv; nothing needs root or a compiler.
#   make demo PYTHON=python3.12     with another Python (3.11 or newer)
#   make test ARGS="-k sheet -x"    with more arguments for pytest

PYTHON ?= python3
ARGS ?=
# Much of the time the tests wait for processes: three at once keep two cores busy.
JOBS ?= 3

VENV := .venv
BIN := $(VENV)/bin
# Dependencies come as wheels only; the project itself is the one source that is built.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all:

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo check test survival bench docs

help:   ## list the targets
	@sed -n 's/^\([a-z]*\): .*## \(.*\)/  make \1	\2/p' Makefile | expand -t 16

demo: $(VENV)/runs   ## run a small real pipeline on made data, in ./canard-demo
	$(BIN)/canard-pipe demo canard-demo

check: $(VENV)/tests   ## lint, types, import direction; first shows that the checkers can fail
	@if printf 'import os\n' | $(BIN)/ruff check --quiet --stdin-filename bad.py - >/dev/null; then \
		echo 'ruff does not object to a bad file' >&2; exit 1; fi
	@if $(BIN)/mypy -c 'def f(x): return x' >/dev/null; then \
		echo 'mypy does not object to a bad file' >&2; exit 1; fi
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_imports.py tests/test_house.py

test: $(VENV)/tests   ## run all tests
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(ARGS)

survival: $(VENV)/tests   ## kill at random what works on 1,000 samples, 2,000 tasks (make test: on 150)
	CANARD_SURVIVAL=1000 $(BIN)/python -m pytest tests/test_survival_many.py $(ARGS)
	CANARD_BIG=1 $(BIN)/python -m pytest tests/engine/test_served_processes.py $(ARGS)

bench: $(VENV)/tests   ## run the benchmarks (docs/speed.md): figures with their goals; ARGS names some
	$(BIN)/python -m tests.bench $(ARGS)

docs: $(VENV)/tests   ## test the pages: links, Python blocks, command table
	$(BIN)/python -m pytest -q tests/test_docs.py

# Two stamps: the demo does not wait for the tools that only tests need.
$(VENV)/runs: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "canard-pipe needs Python 3.11 or newer, and '$(PYTHON)' is not. Name another: make PYTHON=python3.12 ..." >&2; \
		exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "'$(PYTHON)' cannot make virtual environments. On Debian and Ubuntu the package python3-venv is missing." >&2; \
		exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --editable '.[demo]'
	@touch $@

$(VENV)/tests: $(VENV)/runs
	$(PIP_INSTALL) --editable '.[demo,dev]'
	@touch $@
