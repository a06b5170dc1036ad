#!/usr/bin/env bash
# Everything that only a real GPU can tell, in one go: the device suite, kernel times, compute-sanitizer.
# Usage: tests/bench/gpu_check.sh OUT   (UNMIX_DATA names the real scenes)
set -u
out=$1
mkdir -p "$out"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | tee "$out/gpu.txt"
python3 -m pytest -q -x -p no:cacheprovider tests/test_solvers.py tests/test_run.py tests/test_real.py -k "cuda or gpu" \
    --durations=5 2>&1 | tail -n 40 | tee "$out/tests.txt"
timeout 240 python3 tests/bench/kernels.py "${UNMIX_DATA:-../shared/data}" 2>&1 | tee "$out/kernels.txt"
for tool in memcheck racecheck; do
    timeout 200 compute-sanitizer --tool "$tool" --error-exitcode 9 \
        python3 -m pytest -q -p no:cacheprovider tests/test_solvers.py -k "cuda and (counter or every_support or dark)" \
        2>&1 | tail -n 6 | tee "$out/$tool.txt"
done
