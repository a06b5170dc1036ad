# Every target does its own set-up; PYTHON names the interpreter that the virtual environment is made from.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA ?= $(or $(UNMIX_DATA),../shared/data)

# Python keeps what it compiles of sources, also where a container's image says otherwise: each of a hundred processes takes 0.6 s less.
unexport PYTHONDONTWRITEBYTECODE

# A process for each core. They share the cache of compiled code, and a file's tests stay together, since they mostly use the same kernels:
# spreading single tests (worksteal) took a third longer on two cores with an empty cache. BLAS starts no threads besides.
PYTEST = OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -q -n logical --dist loadfile

# Files of tests of what is no kernel: the house, readers, libraries, the command line's words.
PLAIN = tests/house tests/io/test_axis.py tests/io/test_envi.py tests/io/test_decimal_commas.py tests/library/test_library.py \
	tests/library/test_text_libraries.py tests/cli/test_toolbox.py tests/cli/test_wake.py tests/solvers/test_reference.py

.PHONY: help demo test test-plain test-all test-rest test-night test-wild test-real test-sim test-gpu coverage lint bench bench-paper fuzz release-check lock docs site data clean

help:  ## the targets, and what each does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' Makefile

# Three stamps: a run needs the seven packages of pyproject.toml's `dependencies`, the quick tests those of `test` as well, and lint, the
# site and all tests those of `dev`. Python compiles what is imported: all that is installed took pip 25 s on one core.
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile

$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -e .
	touch $@

$(VENV)/test: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -e '.[test]'
	touch $(VENV)/ready $@

$(VENV)/dev: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -e '.[dev]'
	touch $(VENV)/ready $(VENV)/test $@

demo: $(VENV)/ready  ## the main job on data/, outputs to demo/
	$(BIN)/unmix run data/demo.hdr -o demo --overwrite --certificate
	$(BIN)/unmix verify demo/demo --cube data/demo.hdr

test: $(VENV)/test  ## the quick tier: the same each time; no clusters, kills, real scenes, or searches beside those of the main methods
	$(PYTEST) -m "not slow and not real"

test-plain: $(VENV)/test  ## those of the quick tests that compile little: for other Pythons and systems
	$(PYTEST) -m "not slow and not real" $(PLAIN)

test-all: $(VENV)/dev  ## everything, real scenes where they are; SEED=N draws the random examples of an earlier run again
	UNMIX_DATA=$(DATA) $(PYTEST) --hypothesis-profile=full --hypothesis-seed=$(or $(SEED),$(shell date +%s))

test-rest: $(VENV)/dev  ## what `make test` leaves out, but for what a night is enough for
	UNMIX_DATA=$(DATA) $(PYTEST) -m "(slow or real) and not night" --hypothesis-profile=full --hypothesis-seed=$(or $(SEED),$(shell date +%s))

test-night: $(VENV)/dev  ## the lowest and newest packages, a wheel, the site, long tutorials, more clusters, formats and attacks
	UNMIX_DATA=$(DATA) $(PYTEST) -m night --hypothesis-profile=full --hypothesis-seed=$(or $(SEED),$(shell date +%s))

test-wild: $(VENV)/dev  ## random examples of `make test` again, more and others
	UNMIX_DATA=$(DATA) $(PYTEST) -m "hypothesis and not slow and not real" --hypothesis-profile=full --hypothesis-seed=$(or $(SEED),$(shell date +%s))

test-real: $(VENV)/dev  ## real scenes; fails where they are absent
	UNMIX_DATA=$(DATA) UNMIX_REQUIRE_DATA=1 $(BIN)/pytest -q -m real

test-sim: $(VENV)/test  ## the device suite in the CUDA simulator
	NUMBA_ENABLE_CUDASIM=1 NUMBA_DISABLE_JIT=1 $(PYTEST) -m sim

test-gpu: $(VENV)/dev  ## correctness, kernel times and compute-sanitizer on a real GPU
	UNMIX_DATA=$(DATA) PATH=$(CURDIR)/$(BIN):$$PATH tests/bench/gpu_check.sh demo/gpu

coverage: $(VENV)/dev  ## lines run by the quick tier, and those of kernels by the simulator, where they are plain Python
	$(PYTEST) -m "not slow and not real" --cov --cov-report= --cov-fail-under=0
	NUMBA_ENABLE_CUDASIM=1 NUMBA_DISABLE_JIT=1 $(PYTEST) -m sim --cov --cov-append --cov-report=term:skip-covered

lint: $(VENV)/dev  ## ruff, its formatter, mypy and spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/typos

bench: $(VENV)/dev  ## this machine: solving, whole runs, start-up, memory
	UNMIX_DATA=$(DATA) $(BIN)/python tests/bench/cpu.py

bench-paper: $(VENV)/ready  ## the tables and plots of Li and Li's paper again, to demo/paper; an hour on two cores
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	mkdir -p demo/paper
	UNMIX_DATA=$(DATA) $(BIN)/python tests/bench/paper.py $(or $(SCRATCH),demo/paper) > demo/paper/results.jsonl
	$(BIN)/python tests/bench/paper_report.py demo/paper/results.jsonl demo/paper

fuzz: $(VENV)/dev  ## ten thousand edited records, and as many files after their grammars and damaged scenes; two hours
	$(BIN)/python tests/fuzz_records.py $(or $(COUNT),10000) $(or $(SEED),0)
	$(BIN)/python tests/fuzz_grammar.py $(or $(COUNT),10000) $(or $(SEED),0)

release-check: $(VENV)/ready  ## what is to be true of a release: wheel, source archive, a read-only root (as root)
	tests/release.sh $(BIN)/python

# uv, a tool of its own, resolves for all systems and Pythons at once.
lock: $(VENV)/ready  ## the newest versions of everything that pyproject.toml asks for, with digests, to .ci/requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes --python-version 3.11 --custom-compile-command 'make lock' \
	    $(addprefix --extra ,geo stac plot view xarray remote hdf5 zarr dask) pyproject.toml -o .ci/requirements.lock

docs: $(VENV)/ready  ## the pages and tables of docs/ that are made from the code
	$(BIN)/python -m unmix_cli.docs docs

site: $(VENV)/dev  ## the pages of docs/ as a site, in demo/site/index.html
	$(BIN)/sphinx-build -q -W --keep-going -b html docs demo/site

data: $(VENV)/ready  ## the small scene of README and tests, again
	cd data && ../$(BIN)/unmix synth demo.hdr --lines 60 --samples 50 --bands 96 -n 5 --seed 7 --snr 45 --pure --overwrite

clean:  ## remove the virtual environment, outputs and builds
	rm -rf $(VENV) demo build *.egg-info .coverage
