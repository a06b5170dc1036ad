# Every target does its own set-up; PYTHON names the interpreter that the virtual environment is made from.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA ?= $(or $(UNMIX_DATA),../shared/data)

.PHONY: demo test test-real test-sim test-gpu lint bench bench-paper fuzz docs data clean

$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

demo: $(VENV)/ready  ## the main job on data/, outputs to demo/
	$(BIN)/unmix run data/demo.hdr --method fcls -o demo --overwrite --certificate
	$(BIN)/unmix verify demo/demo --cube data/demo.hdr

test: $(VENV)/ready  ## all that needs neither a GPU nor real data
	$(BIN)/pytest -q

test-real: $(VENV)/ready  ## real scenes; fails where they are absent
	UNMIX_DATA=$(DATA) UNMIX_REQUIRE_DATA=1 $(BIN)/pytest -q -m real

test-sim: $(VENV)/ready  ## the device suite in the CUDA simulator
	NUMBA_ENABLE_CUDASIM=1 NUMBA_DISABLE_JIT=1 $(BIN)/pytest -q -m sim

test-gpu: $(VENV)/ready  ## correctness, kernel times and compute-sanitizer on a real GPU
	UNMIX_DATA=$(DATA) PATH=$(CURDIR)/$(BIN):$$PATH tests/bench/gpu_check.sh demo/gpu

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/ready  ## this machine: solving, whole runs, start-up, memory
	UNMIX_DATA=$(DATA) $(BIN)/python tests/bench/cpu.py

bench-paper: $(VENV)/ready  ## the tables and plots of Li and Li's paper again, to demo/paper; an hour on two cores
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	mkdir -p demo/paper
	UNMIX_DATA=$(DATA) $(BIN)/python tests/bench/paper.py $(or $(SCRATCH),demo/paper) > demo/paper/results.jsonl
	$(BIN)/python tests/bench/paper_report.py demo/paper/results.jsonl demo/paper

fuzz: $(VENV)/ready  ## ten thousand damaged inputs; ten minutes
	$(BIN)/python tests/fuzz.py $(or $(COUNT),10000) $(or $(SEED),0)

docs: $(VENV)/ready
	$(BIN)/python -m unmix_cli.docs docs

data: $(VENV)/ready  ## the small scene of README and tests, again
	cd data && ../$(BIN)/unmix synth demo.hdr --lines 60 --samples 50 --bands 96 -n 5 --seed 7 --snr 45 --pure --overwrite

clean:
	rm -rf $(VENV) demo build *.egg-info
