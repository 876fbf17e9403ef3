# Set-up and checks. They need only Python 3.11 to 3.14 and make: each target first creates .venv and installs into it,
# once: `make demo` the package, all others the development tools too. Until pyproject.toml or constraints.txt changes,
# later calls start immediately and need no network.

PYTHON ?= python3
PYTEST_ARGS ?=
PYTEST_WORKERS ?= 2
SECONDS ?= 3600

VENV := .venv
BIN := $(VENV)/bin
# The stamps are named by the checksum of the files that determine the installation, so file times do not matter.
PACKAGE := $(VENV)/.installed-$(shell cat pyproject.toml constraints.txt | cksum | tr ' ' '-')
STAMP := $(PACKAGE)-dev

# In the order of the page.
BENCHMARKS := tutorial_epoch tutorial_run tutorial_equal automatic_steps freed_memory peers startup sweep_overhead \
	driver_memory two_workers resident_memory tracking_overhead bridge_overhead tracking_growth table sweeps_listing \
	reading_growth report_size event_reading printed_output board ui_delay search_runs inference_truth
# The bounds of the extras in pyproject.toml, and what these versions need.
OLDEST_FRAMEWORKS := accelerate==1.1.0 huggingface_hub==0.26.5 lightning==2.5.0 pytorch-lightning==2.5.0 \
	tokenizers==0.21.0 transformers==4.49.0
# The release candidate of Hydra, with what it needs, and the launchers that other packages have for it.
NEXT_HYDRA := hydra-core==1.4.0rc3 omegaconf==2.4.1rc1 hydra-joblib-launcher==1.2.0 joblib==1.6.0 \
	hydra-submitit-launcher==1.2.0 submitit==1.5.4 cloudpickle==3.1.2
HYDRA_TESTS := tests/launching/test_hydra_suites.py tests/launching/test_hydra_internals.py \
	tests/launching/test_hydra_launcher.py tests/launching/test_hydra_job.py tests/app/programs/application \
	tests/app/driver/test_other_sweepers.py tests/app/compose
FUZZER := atheris==3.0.0
# The accuracy of the measurements where the truth is known, for docs/measurement_evidence.md.
TRUTHS := phase_truth warmup_truth bound_truth compare_truth real_sweeps paired_truth tune_truth gate_truth search_truth
# What an image with PyTorch and its usual company lacks, or has too old a version of.
CARRIED := click google-crc32c hydra-core hypothesis markdown-it-py mdurl msgspec nvidia-ml-py omegaconf packaging psutil \
	pydantic pydantic_core pygments annotated-doc annotated-types pytest-timeout rich shellingham sortedcontainers typer \
	typing-inspection
GPU_PYTHON ?= 3.12
# The time of the last commit; that of hatchling for sources without one.
EPOCH = $$(git log -1 --format=%ct 2>/dev/null || echo 1580601600)
# The tools to compare with. Without a network they are skipped, and the page says so.
PEERS := $(PACKAGE:$(VENV)/.installed-%=$(VENV)/.peers-%)

.DEFAULT_GOAL := help
.NOTPARALLEL: # two installations at once would write the same files
.PHONY: help gpu-wheels demo readme-output test test-release test-matrix test-kill test-deaths test-attacks test-faults test-fuzz test-soak \
	test-mutants coverage wheel sbom audit bench truths bench-gpu lint report-library clean FORCE

help:
	@echo "make demo    run a small grid on the built-in digits, with its tables, in under a minute"
	@echo "make test    run all checks: lint, types, layers, tests"
	@echo "make test-release  the long trials that make test leaves out: repeated kills, power cuts, soaks; before a release"
	@echo "make test-matrix  test with other versions of Python, PyTorch, Hydra and the frameworks; over an hour"
	@echo "make readme-output  run the README's commands, and update the output that it shows"
	@echo "make lint    run all checks except the tests"
	@echo "make test-kill  kill running sweeps 200 times and custom loops 100 times, and resume each; half an hour"
	@echo "make test-deaths  end runs in eight ways under six launchers; half an hour"
	@echo "make test-faults  power cuts, full disks, limits and more while sweeps run; a few hours"
	@echo "make test-attacks  try the attacks of docs/security.md; a few minutes"
	@echo "make test-mutants  change the code in 600 small ways, and see which of them the tests notice; about an hour"
	@echo "make coverage  run all tests, and list which branches of the package they take; about an hour"
	@echo "make wheel   build the wheel into dist/, the same bytes from the same commit"
	@echo "make sbom    write the bill of materials of the wheel into dist/"
	@echo "make audit   look the pinned versions up among known weaknesses; needs the internet"
	@echo "make test-fuzz   fuzz every parser of files, words and addresses; SECONDS=3600 of processor time"
	@echo "make test-soak   a sweep of 5,000 cells and a run of 5,000 epochs; ten minutes"
	@echo "make bench   measure every speed in docs/benchmarks.md; about half an hour on an idle machine"
	@echo "make truths  check the measurements against known truths (docs/measurement_evidence.md); about an hour"
	@echo "make bench-gpu  check and measure an NVIDIA GPU, in calls of nine minutes, into gpu-results/"
	@echo "make gpu-wheels  gather what a machine with PyTorch lacks, to carry along; GPU_PYTHON=3.12"
	@echo "make report-library  build the chart library of report.html from web/; needs Node.js and npm"
	@echo "make clean   remove .venv and caches (never outputs/)"

demo: $(PACKAGE)
	@$(BIN)/runmanager demo

readme-output: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python docs/readme_output.py

# A test process that dies ends all tests: its replacement could wait forever for a last test.
test: lint
	@$(BIN)/python -m compileall -q runmanager # else each process would, where the environment forbids to write bytecode
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(PYTEST_WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0 -m 'not release' $(PYTEST_ARGS)

test-release: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m release $(PYTEST_ARGS)

# Over the environment, as these versions cannot share it with the newest. The warnings of the oldest are their own.
test-matrix: $(STAMP)
	$(BIN)/python tests/compatibility/overlay.py $(VENV)/oldest $(OLDEST_FRAMEWORKS)
	OMP_NUM_THREADS=1 $(VENV)/oldest/bin/python -m pytest tests/integrations -o filterwarnings=ignore
	$(BIN)/python tests/compatibility/overlay.py $(VENV)/next-hydra $(NEXT_HYDRA)
	OMP_NUM_THREADS=1 $(VENV)/next-hydra/bin/python -m pytest $(HYDRA_TESTS)
	$(BIN)/python tests/compatibility/matrix.py --write docs/reliability.md

test-kill: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python tests/reliability/kills.py --kills 200 --write docs/reliability.md
	OMP_NUM_THREADS=1 $(BIN)/python tests/reliability/kills.py --program loop --kills 100 --write docs/reliability.md
	OMP_NUM_THREADS=1 $(BIN)/python tests/reliability/kills.py --program application --kills 60 --write docs/reliability.md
	OMP_NUM_THREADS=1 $(BIN)/python tests/reliability/kills.py --program script --kills 30 --write docs/reliability.md
	OMP_NUM_THREADS=1 $(BIN)/python tests/reliability/kills.py --program steps --kills 20 --write docs/reliability.md

test-deaths: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python tests/reliability/deaths.py --write docs/reliability.md
	OMP_NUM_THREADS=1 $(BIN)/python tests/reliability/program_deaths.py --write docs/reliability.md
	OMP_NUM_THREADS=1 $(BIN)/python tests/reliability/stops.py --write docs/reliability.md

test-faults: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python tests/reliability/fault_rows.py --write docs/reliability.md

test-attacks: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python tests/reliability/attacks.py --write docs/security.md
	OMP_NUM_THREADS=1 $(BIN)/python tests/reliability/secret_search.py --write docs/security.md

# What came of each change is kept in build/mutants: the same command continues.
test-mutants: $(STAMP)
	OMP_NUM_THREADS=1 nice $(BIN)/python tests/mutation/mutants.py --count 600 --write

coverage: $(STAMP)
	$(BIN)/python -m coverage erase
	OMP_NUM_THREADS=1 $(BIN)/python -m coverage run -m pytest --numprocesses $(PYTEST_WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0 $(PYTEST_ARGS)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python tests/reliability/branches.py --write docs/reliability.md

# Times in the wheel are that of the commit, so that two builds give equal bytes.
wheel: $(STAMP)
	SOURCE_DATE_EPOCH=$(EPOCH) $(BIN)/python -m hatchling build -t wheel

sbom: wheel
	SOURCE_DATE_EPOCH=$(EPOCH) $(BIN)/python tools/sbom.py dist/sbom.cdx.json --wheel dist/torch_runmanager-*.whl

# Next to the environment, which needs nothing of it. Strict: what cannot be looked up is not clean.
audit: $(STAMP)
	$(BIN)/python -m pip install --quiet --upgrade --target $(VENV)/audit pip-audit
	PYTHONPATH=$(VENV)/audit $(BIN)/python -m pip_audit --strict --requirement constraints.txt --no-deps --disable-pip

# The fuzzer is next to the environment, as nothing else needs it.
test-fuzz: $(STAMP)
	$(BIN)/python -m pip install --quiet --upgrade --no-deps --target $(VENV)/fuzzer $(FUZZER)
	PYTHONPATH=$(VENV)/fuzzer:. OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzzing.fuzz --seconds $(SECONDS) --write docs/security.md

test-soak: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python tests/reliability/soak.py --epochs 5000 --write docs/reliability.md
	OMP_NUM_THREADS=1 $(BIN)/python tests/reliability/soak.py --cells 5000 --write docs/reliability.md

bench: $(PEERS)
	for name in $(BENCHMARKS); do $(BIN)/python -m benchmarks.$$name --write || failed="$$failed $$name"; done; \
		$(BIN)/python -m benchmarks.summary --write || failed="$$failed summary"; \
		if [ -n "$$failed" ]; then echo "error: not measured:$$failed" >&2; exit 1; fi

truths: $(STAMP)
	for name in $(TRUTHS); do $(BIN)/python -m benchmarks.$$name --write || failed="$$failed $$name"; done; \
		if [ -n "$$failed" ]; then echo "error: not measured:$$failed" >&2; exit 1; fi

# Wheels for the Python of that machine; the source of one package becomes a wheel here.
gpu-wheels: $(STAMP)
	rm -rf $@
	$(BIN)/python -m pip wheel --quiet --no-deps --constraint constraints.txt --wheel-dir $@ antlr4-python3-runtime
	$(BIN)/python -m pip download --quiet --no-deps --only-binary :all: --python-version $(GPU_PYTHON) \
		$(foreach number,17 27 28,--platform manylinux_2_$(number)_x86_64) --platform manylinux2014_x86_64 --platform manylinux1_x86_64 \
		--constraint constraints.txt --dest $@ $(CARRIED)

# On a machine where nothing can be installed, run benchmarks/gpu.sh directly; its comments explain how.
bench-gpu: $(STAMP)
	PYTHON=$(abspath $(BIN)/python) benchmarks/gpu.sh

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/lint-imports

# The built file is committed, so only a change of web/ needs this.
report-library:
	cd web && npm ci --no-audit --no-fund && npm run build

# Both also run if .venv's Python is gone, for instance after a system upgrade.
$(STAMP): EXTRAS := [dev]
$(PACKAGE): COMPILE := --no-compile
$(PACKAGE) $(STAMP): $(if $(wildcard $(BIN)/python),,FORCE)
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' || \
		{ echo "error: Python must be 3.11 to 3.14, got $$($(PYTHON) --version 2>&1); use make PYTHON=python3.12" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
		{ echo "error: $(PYTHON) must be able to create virtual environments; on Debian and Ubuntu: apt install python3-venv" >&2; \
		  exit 2; }
	$(BIN)/python tools/install.py --editable '.$(EXTRAS)' $(COMPILE) --constraint constraints.txt
	@rm -f $(VENV)/.installed-*
	@touch $(PACKAGE) $@

$(PEERS): $(STAMP)
	@rm -f $(VENV)/.peers-*
	$(BIN)/python -m pip install --editable '.[bench]' --constraint constraints.txt && touch $@ || \
		echo "note: the tools of the extra [bench] could not be installed; missing tools are skipped" >&2

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
