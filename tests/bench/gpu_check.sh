#!/usr/bin/env bash
# Everything that only a real GPU can tell, in one go: kernel times, the device suite, compute-sanitizer.
# Usage: tests/bench/gpu_check.sh OUT   (UNMIX_DATA names the real scenes)
set -u
out=$1
mkdir -p "$out"
workers=$(python3 -c 'import xdist; print("-n 6")' 2>/dev/null)
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | tee "$out/gpu.txt"
timeout 200 python3 tests/bench/kernels.py "${UNMIX_DATA:-../shared/data}" > "$out/kernels.txt" 2>&1
tail -n 60 "$out/kernels.txt"
# shellcheck disable=SC2086
timeout 300 python3 -m pytest -q $workers -p no:cacheprovider tests/solvers tests/runs/test_run.py tests/runs/test_real.py \
    -k "cuda or gpu or counts" > "$out/tests.txt" 2>&1
grep -E "^E  |^FAILED|passed|failed" "$out/tests.txt" | tail -n 40
for tool in memcheck racecheck; do
    timeout 120 compute-sanitizer --tool "$tool" --report-api-errors no --error-exitcode 9 \
        python3 -m pytest -q -p no:cacheprovider tests/solvers/test_solvers.py tests/solvers/test_counts.py \
        -k "test_counts or cuda and (counter or every_support or dark)" \
        > "$out/$tool.txt" 2>&1
    tail -n 3 "$out/$tool.txt"
done
