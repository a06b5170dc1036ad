"""What bounds each stage: ``python tests/bench/roofline.py cpu|cuda [SPECTRA,...]``.

Prints a line of JSON for each stage, with its FLOP/s and its bytes of memory per second beside the peaks that the same machine
shows: on a CPU one core, a product of two matrices (numpy) and a copy of 1 GiB; on a GPU what its counters give as the peak.

CPU: the functions that solve a tile (`unmix.solvers.pixels.tile`) over 16 384 pixels of `cliffs.mixtures`, int16, on one core.
FLOPs are those that the mathematics needs: 2 L p for a product, p (p + 1) for a step (half of a symmetric tableau), of each pixel's own
steps; those of a working set are not counted.

GPU: ``ncu`` (of the CUDA toolkit) counts a block of 131 072 such pixels, kernel by kernel; FLOPs are those it counts.
"""

import csv
import json
import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from typing import Any

import cliffs
import numpy as np

from unmix.compiled.jit import WIDE, compiled
from unmix.library import Endmembers
from unmix.methods import choose
from unmix.problem import plan_problem

SPECTRA = (9, 25, 64, 240)
PIXELS, PIXELS_GPU, BANDS = 16_384, 131_072, 224
METRICS = {
    "ns": "gpu__time_duration.sum", "bytes": "dram__bytes.sum", "fma": "smsp__sass_thread_inst_executed_op_dfma_pred_on.sum",
    "add": "smsp__sass_thread_inst_executed_op_dadd_pred_on.sum", "mul": "smsp__sass_thread_inst_executed_op_dmul_pred_on.sum",
    "mma": "sm__inst_executed_pipe_fp64_op_dmma.sum",
    "memory %": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "fp64 %": "sm__inst_executed_pipe_fp64.avg.pct_of_peak_sustained_elapsed",
    "tensor %": "sm__pipe_tensor_op_dmma_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "issue %": "sm__inst_issued.avg.pct_of_peak_sustained_elapsed",
    "shared and L1 %": "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
}  # fmt: skip
FLOPS_OF_MMA = 8 * 8 * 4 * 2  # a warp's product of 8 x 4 and 4 x 8


def scene_of(p: int) -> tuple[np.ndarray, Endmembers]:
    """Return noisy mixtures of p spectra as 16-bit integers, and the spectra."""
    E = cliffs.library(p)
    Y = np.round(10_000 * cliffs.mixtures(E, PIXELS)).clip(-32768, 32767).astype(np.int16)
    return Y, Endmembers(tuple(map(str, range(p))), 10_000 * E, None, source="library")


def problem_of(library: Endmembers) -> Any:
    """Return the problem of a run with these spectra and nnls."""
    return plan_problem(library, *choose("nnls", "active-set"))


def peaks() -> list[float]:
    """Return FLOP/s of a product of matrices in float64 and bytes per second of a copy, both on one core."""
    A = np.random.default_rng(0).random((1536, 1536))
    source, target = np.ones((2, 2**27))
    flops = max(2 * 1536**3 / seconds_of(lambda: A @ A) for _ in range(5))
    return [flops, max(2 * source.nbytes / seconds_of(lambda: np.copyto(target, source)) for _ in range(5))]


def peaks_of_a_core() -> list[float]:
    """Return `peaks` from a process whose BLAS has one thread."""
    alone = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "peaks"]
    return json.loads(subprocess.run(command, env=alone, capture_output=True, text=True, check=True).stdout)


def seconds_of(call: Any) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def stages_on_cpu(p: int) -> list[dict[str, Any]]:
    """Return seconds, FLOPs and bytes of memory of each stage."""
    from unmix.certificate import certify_function
    from unmix.devices import Line
    from unmix.solvers.pixels.cpu import RUN, new_face, new_tile, new_work, path_of_solver
    from unmix.solvers.pixels.gather import Stored, gather_function, matrix_product_function
    from unmix.solvers.pixels.scalar import Plan
    from unmix.solvers.pixels.tile import Results, search_of, settle_tile, write_tile

    Y, library = scene_of(p)
    problem = problem_of(library)
    path = path_of_solver(problem)
    stored, plan = Stored(*problem.stored()), Plan(*problem.plan(path))
    gather, product, search, certify = (
        gather_function("bip", WIDE),
        matrix_product_function(WIDE),
        search_of(path, WIDE),
        certify_function(WIDE),
    )
    width, raw = WIDE.width, Y.reshape(1, PIXELS, BANDS)
    kinds = Line(PIXELS, Y.nbytes).results(1, problem)
    results = Results(**{name: np.empty(shape, kind) for name, (kind, shape) in kinds.items()})
    tile, work, face = new_tile(BANDS, p, path), new_work(plan, path), new_face(p)

    @compiled
    def until(stage, first, last, tile, work, face, raw, stored, plan, results):
        """Run all stages up to one over the pixels; return the steps."""
        steps = 0.0
        for at in range(first, last, width):
            gather(raw, 0, at, width, stored, tile.Y, tile.missing, tile.length, tile.size)
            if stage >= 1:
                product(plan.E, tile.Y, tile.F)
            if stage >= 2:
                tile.begins[0, 0] = 1.0 if at % RUN == 0 else 0.0
                for s in range(width):
                    tile.delta[0, s] = np.inf
                search(plan, tile, work, width)
                for s in range(width):
                    steps += tile.steps[0, s]
            if stage >= 3:
                certify(plan.E, plan.sizes, plan.slopes, plan.curvature, False, True, plan.penalty, tile.Y, tile.A, tile.W,
                        tile.rmse, tile.kappa, tile.delta, tile.terms)  # fmt: skip
            if stage >= 4:
                settle_tile(plan, tile, face, width)
            if stage >= 5:
                write_tile(tile, results, 0, at, width, BANDS)
        return steps

    def seconds(stage: int) -> float:
        until(stage, 0, width, tile, work, face, raw, stored, plan, results)
        return float(
            np.median(
                [
                    seconds_of(lambda: until(stage, 0, PIXELS, tile, work, face, raw, stored, plan, results))
                    for _ in range(5)
                ]
            )
        )

    ends = [seconds(stage) for stage in range(6)]
    steps = until(2, 0, PIXELS, tile, work, face, raw, stored, plan, results)
    searched = steps * p * (p + 1) if path == "active_set" else 0.0  # a working set changes its size
    flops = [4 * BANDS * PIXELS, 2 * BANDS * p * PIXELS, searched, 4 * BANDS * p * PIXELS, 0, 0]
    memory = [Y.nbytes, 0, 0, 0, 0, PIXELS * (4 * p + 29)]
    names = ("convert", "product", "search", "certificate", "faces", "write")
    spent = np.diff([0.0, *ends])
    return [
        {
            "p": p,
            "path": path,
            "stage": name,
            "ns a pixel": second / PIXELS * 1e9,
            "flops": flop,
            "bytes": size,
            "seconds": second,
        }
        for name, second, flop, size in zip(names, spent, flops, memory)
    ]


def on_cpu(spectra: tuple[int, ...]) -> None:
    """Print the table of one core."""
    most_flops, most_bytes = peaks_of_a_core()
    print(
        json.dumps({"GFLOP/s of a product": round(most_flops / 1e9, 1), "GB/s of a copy": round(most_bytes / 1e9, 1)}),
        flush=True,
    )
    for p in spectra:
        stages = stages_on_cpu(p)
        for stage in stages:
            second, flops, size = (stage.pop(key) for key in ("seconds", "flops", "bytes"))
            stage["ns a pixel"] = round(second / PIXELS * 1e9, 1)
            if second > 0:
                stage |= {"GFLOP/s": round(flops / second / 1e9, 1), "of peak": round(flops / second / most_flops, 3)}
                stage |= {"GB/s": round(size / second / 1e9, 1), "of copy": round(size / second / most_bytes, 3)}
            print(json.dumps(stage), flush=True)


def solve_on_gpu(p: int) -> None:
    """Solve a block, for ``ncu`` to count."""
    import kernels

    Y, library = scene_of(p)
    kernels.ready(Y, library, "nnls", "active-set", PIXELS_GPU, "")


def short_name(kernel: str) -> str:
    """Return the name of a kernel's function, without the hash of what it was made from."""
    function = kernel.partition("[")[0].rpartition("::")[2]
    return re.sub(r"_[0-9a-f]{32}", "", function)


def on_gpu(spectra: tuple[int, ...]) -> None:
    """Print the table of a GPU: kernels of the same name together."""
    for p in spectra:
        command = ["ncu", "--clock-control", "none", "--metrics", ",".join(METRICS.values()), "--csv", sys.executable]
        command += [__file__, "block", str(p)]
        out = subprocess.run(command, capture_output=True, text=True).stdout
        rows = list(csv.DictReader(line for line in out.splitlines() if line.startswith('"')))
        launches: dict[str, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
        for row in rows:
            value = row["Metric Value"].replace(",", "")
            counted_of_kernel = launches[short_name(row["Kernel Name"])][row["ID"]]
            counted_of_kernel[row["Metric Name"]] = 0.0 if value == "n/a" else float(value)
        for name, counted in launches.items():
            total = {key: sum(each.get(metric, 0.0) for each in counted.values()) for key, metric in METRICS.items()}
            shares = {key: round(total[key] / len(counted), 1) for key in METRICS if key.endswith("%")}
            flops = 2 * total["fma"] + total["add"] + total["mul"] + FLOPS_OF_MMA * total["mma"]
            print(json.dumps({
                "p": p, "kernel": name, "launches": len(counted), "ns a pixel": round(total["ns"] / PIXELS_GPU, 2),
                "TFLOP/s": round(flops / total["ns"] / 1e3, 2), "GB/s": round(total["bytes"] / total["ns"], 1), **shares,
            }), flush=True)  # fmt: skip


def main(what: str, spectra: str = "") -> None:
    chosen = tuple(cliffs.numbers(spectra)) or SPECTRA
    if what == "peaks":
        print(json.dumps(peaks()))
    elif what == "block":
        solve_on_gpu(chosen[0])
    else:
        {"cpu": on_cpu, "cuda": on_gpu}[what](chosen)


if __name__ == "__main__":
    main(*sys.argv[1:])
