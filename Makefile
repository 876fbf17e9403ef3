# Set-up and checks. A machine with Python 3.11 to 3.13 and make is enough: each target first makes .venv and installs
# into it, once; while pyproject.toml and constraints.txt stay as they are, it starts at once and needs no network.

PYTHON ?= python3
PYTEST_ARGS ?=
PYTEST_WORKERS ?= 2

VENV := .venv
BIN := $(VENV)/bin
# The stamp's name is the content of what decides the installation, so a fresh checkout's new file times change nothing.
STAMP := $(VENV)/.installed-$(shell cat pyproject.toml constraints.txt | cksum | tr ' ' '-')

# In the order of the page.
BENCHMARKS := tutorial_epoch tutorial_run tutorial_equal freed_memory peers sweep_overhead driver_memory two_workers \
	resident_memory tracking_overhead tracking_growth table reading_growth report_size event_reading board
# What the measuring itself finds where the truth is known, for docs/measurement.md.
TRUTHS := phase_truth warmup_truth bound_truth compare_truth paired_truth
# The tools that are compared with. Without a network they are left out, and the page says so.
PEERS := $(STAMP:$(VENV)/.installed-%=$(VENV)/.peers-%)

.DEFAULT_GOAL := help
.PHONY: help demo test test-kill test-deaths bench truths bench-gpu lint clean FORCE

help:
	@echo "make demo    a small grid on the built-in digits, with its tables, in under a minute"
	@echo "make test    everything that must hold: lint, types, layers, tests"
	@echo "make lint    the same without the tests"
	@echo "make test-kill  200 kills of running sweeps, each gone on with; takes a quarter of an hour"
	@echo "make test-deaths  eight ways to die under five launchers; takes half an hour"
	@echo "make bench   every speed in docs/benchmarks.md measured anew; about half an hour on an idle machine"
	@echo "make truths  what the measuring finds where the truth is known (docs/measurement.md); takes about an hour"
	@echo "make bench-gpu  checks and figures of an NVIDIA GPU, under ten minutes, into gpu-results/"
	@echo "make clean   remove .venv and caches (never outputs/)"

demo: $(STAMP)
	@$(BIN)/runmanager demo

# A process of tests that is gone ends them all: a new one in its place would wait for ever for a last test to run.
test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(PYTEST_WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0 $(PYTEST_ARGS)

test-kill: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python tests/reliability/kills.py --kills 200 --write docs/reliability.md

test-deaths: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python tests/reliability/deaths.py --write docs/reliability.md

bench: $(PEERS)
	for name in $(BENCHMARKS); do $(BIN)/python -m benchmarks.$$name --write || failed="$$failed $$name"; done; \
		$(BIN)/python -m benchmarks.summary --write || failed="$$failed summary"; \
		if [ -n "$$failed" ]; then echo "error: not measured:$$failed" >&2; exit 1; fi

truths: $(STAMP)
	for name in $(TRUTHS); do $(BIN)/python -m benchmarks.$$name --write || failed="$$failed $$name"; done; \
		if [ -n "$$failed" ]; then echo "error: not measured:$$failed" >&2; exit 1; fi

# On a machine where nothing can be installed: benchmarks/gpu.sh itself, which says how.
bench-gpu: $(STAMP)
	PYTHON=$(abspath $(BIN)/python) benchmarks/gpu.sh

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/lint-imports

# Anew also where .venv's own Python is gone, as after an upgrade of the system's.
$(STAMP): $(if $(wildcard $(BIN)/python),,FORCE)
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' || \
		{ echo "error: Python must be 3.11 to 3.13, got $$($(PYTHON) --version 2>&1); use make PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || \
		{ echo "error: $(PYTHON) must be able to make virtual environments; on Debian and Ubuntu: apt install python3-venv" >&2; \
		  exit 2; }
	$(BIN)/python -m pip install --editable '.[dev]' --constraint constraints.txt
	@rm -f $(VENV)/.installed-*
	@touch $@

$(PEERS): $(STAMP)
	@rm -f $(VENV)/.peers-*
	$(BIN)/python -m pip install --editable '.[bench]' --constraint constraints.txt && touch $@ || \
		echo "note: the tools of the extra [bench] could not be installed; those that are not there are left out" >&2

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
