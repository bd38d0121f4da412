# mlcc: `make run` shows the main job, `make test` runs the tests; `make help` lists the rest.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CC ?= cc
# NumPy's own kernels, not those that a machine's settings pin: slower ones would flatter us
unexport OPENBLAS_CORETYPE OPENBLAS_L2_SIZE

.PHONY: help run test test-quick test-all test-durations check docs fuzz soak diff bench gpu-check gpu-bench golden clean

help:
	@echo 'make run     set up $(VENV), compile the digits model and run it on the test images'
	@echo 'make test    set up everything for the tests and run them; of many cases a share, another one each day'
	@echo 'make test-quick  a share of each file, in two minutes'
	@echo 'make test-all    all cases of all tests'
	@echo 'make check   format, lint, types (make test runs the tests)'
	@echo 'make docs    write the documentation as a site into build/site; a link that leads nowhere is an error'
	@echo 'make fuzz    long fuzzing (SECONDS_EACH=300)'
	@echo 'make soak    everything under load for hours, resumed where it ended; the record is docs/soak.md (HOURS=2)'
	@echo 'make diff    the whole differential campaign against apache-tvm'
	@echo 'make bench   timings as ratios, of compiling too, against other compilers; BENCH="speed --quick --only mlp" for a part'
	@echo 'make gpu-check  the tests on an NVIDIA GPU, in an environment of its own; compute-sanitizer where it is installed'
	@echo 'make gpu-bench  kernels beside cuBLAS and PyTorch on the GPU, recorded in docs/gpu-speed.md; BENCH="--quick" for less'
	@echo 'make golden  rewrite the golden files; read the diff before you commit it'
	@echo 'make clean   remove what the targets made'

$(VENV)/.python:
	@$(PYTHON) scripts/preflight.py
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.run: $(VENV)/.python setup.cfg pyproject.toml
	@echo 'installing mlcc and what it needs into $(VENV)'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@$(BIN)/python -m compileall -q mlcc grammar passes targets runtime
	@touch $@

$(VENV)/.test: $(VENV)/.run
	@echo 'installing what the tests need (torch and apache-tvm are the largest) into $(VENV)'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $$($(BIN)/python scripts/torch_index.py) -e '.[test,interop,lint,models,cluster,tune,docs]'
	@touch $@

run: $(VENV)/.run
	@$(MAKE) --no-print-directory -C samples/digits MLCC='$(abspath $(BIN))/mlcc' PYTHON='$(abspath $(BIN))/python'

# Worksteal: a worker runs neighbours, which share fixtures.
TESTS = $(BIN)/python -m pytest -n auto --dist worksteal

test: $(VENV)/.test
	@$(TESTS) --function-seconds 0.75 --fuzz-seconds 6 $(PYTEST_FLAGS)

test-quick: $(VENV)/.test
	@$(TESTS) --file-seconds 0.1 $(PYTEST_FLAGS)

test-all: $(VENV)/.test
	@$(TESTS) --fuzz-seconds 20 $(PYTEST_FLAGS)

test-durations: $(VENV)/.test
	@$(TESTS) --write-durations $(PYTEST_FLAGS)

check: $(VENV)/.test
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/python scripts/typecheck.py

$(VENV)/.docs: $(VENV)/.python setup.cfg
	@echo 'installing mkdocs-material into $(VENV)'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	@touch $@

docs: $(VENV)/.docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo 'build/site/index.html'

fuzz: $(VENV)/.test
	@$(BIN)/python -m pytest tests/fuzz --fuzz-seconds $(or $(SECONDS_EACH),300) -s

soak: $(VENV)/.test
	@$(BIN)/python -W ignore -m tests.soak $(if $(SECONDS_ALL),--seconds $(SECONDS_ALL),--hours $(or $(HOURS),2)) $(SOAK)

diff: $(VENV)/.test
	@$(BIN)/python -m pytest tests/interop --all-cases -s --ignore tests/interop/schedule
	@$(BIN)/python -m pytest tests/interop/schedule/test_kinds.py tests/interop/schedule/test_intrinsic_names.py --all-cases
	@$(BIN)/python -m tests.interop.schedule.run --count $(or $(CASES),120) --jobs 2 --show-disagreements

$(VENV)/.bench: $(VENV)/.run
	@echo 'installing the competitors into $(VENV); where one has no wheel, install those that have: docs/speed.md'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	@touch $@

bench: $(VENV)/.bench
	@$(BIN)/python -m bench $(BENCH)

gpu-check:
	@VENV=$(or $(GPU_VENV),.venv-gpu) $(PYTHON) scripts/gpu.py check $(PYTEST_FLAGS)

gpu-bench:
	@VENV=$(or $(GPU_VENV),.venv-gpu) $(PYTHON) scripts/gpu.py bench $(BENCH)

golden: $(VENV)/.test
	@$(BIN)/python -m pytest --update-golden -q
	@git diff --stat -- tests

clean:
	rm -rf build dist *.egg-info samples/*/out .pytest_cache .mypy_cache .ruff_cache .hypothesis
