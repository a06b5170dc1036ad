"""Kernel times on a GPU, block resident: ``python tests/bench/kernels.py [DATA]``.

Salinas-A pixels (tiled to 111104 and to 4 million) with the endmembers of Li and Li, int16, fcls; CUDA events around
all kernels that project, solve and certify. Prints a line of JSON each: ``ms`` is the GPU's own time (something else
runs before, which also empties its cache, so that it never waits for Python to launch), ``ms_idle`` the time from an
idle GPU.
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from common import say

from unmix.blocks import BlockPlan
from unmix.devices import Line
from unmix.devices.cuda import Cuda
from unmix.io.cube import Bands
from unmix.library import load
from unmix.methods import choose
from unmix.problem import plan_problem

DATA = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[3] / "shared/data")


def main() -> None:
    scene = np.fromfile(DATA / "salinas_a/salinas_a.img", np.int16).reshape(-1, 224)
    for p in (3, 9, 15, 25):
        library = load(DATA / f"paper_endmembers/salinas_{p:02d}.csv")
        for order, block in orders(scene, library.matrix).items():
            for method, pixels in (("fcls", 111104), ("fcls", 4_000_000), ("nnls", 4_000_000)):
                time_kernel(block, library, method, "active-set", pixels, order)
        for method, solver in (("nnls", "active-set"), ("fcls", "inverse"), ("fcls", "delete-only")):
            time_kernel(scene, library, method, solver, 111104, "in order")


def orders(scene, E):
    """Pixels in scene order, shuffled, and dense mixtures that have no neighbourhood."""
    random = np.random.default_rng(0)
    dense = random.dirichlet(np.ones(E.shape[1]), len(scene)) @ E.T + 10 * random.standard_normal(scene.shape)
    return {"in order": scene, "shuffled": random.permutation(scene), "dense": dense.astype(np.int16)}


def time_kernel(scene, library, method, solver, pixels, order):
    """Print the median of ten, one JSON line."""
    say(ready(scene, library, method, solver, pixels, order)())


def ready(scene, library, method, solver, pixels, order, choice=None, gain=1.0, l1=0.0):
    """Bring a block of ``pixels`` onto the GPU, solve it once and record its kernels; return what times them."""
    L, p = library.matrix.shape
    samples = min(1024, pixels)
    lines = -(-pixels // samples)
    bands = Bands(np.arange(L), np.full(L, gain), np.zeros(L))
    problem = replace(plan_problem(library, *choose(method, solver), mesma=choice), bands=bands)
    problem = problem.penalised(l1) if l1 else problem
    machine = Cuda(0)
    slot = machine.open(problem, Line(samples, samples * 2 * L), BlockPlan(lines, lines, 1))[0]
    raw = slot.buffer.view(np.int16).reshape(lines, samples, L)
    raw.reshape(-1, L)[:] = scene[np.arange(lines * samples) % len(scene)]
    slot.hold(slice(0, lines), raw)
    machine.submit(slot)
    machine.wait(slot)
    machine.device_slots[id(slot)].record(slot, machine)
    fit = slot.results["kappa"] <= 1e-10
    found = {
        "p": p,
        "L": L,
        "method": method,
        "solver": solver,
        "order": order,
        "pixels": lines * samples,
        "path": machine.path(problem, samples),
        "fit": float(fit.mean()),
        "certified": float((fit & (slot.results["delta"] <= 1e-4)).mean()),
    }

    def measure():
        median, idle = times(machine, slot)
        return found | {
            "ms": round(median, 3),
            "ms_idle": round(idle, 3),
            "Mpixel_per_s": round(lines * samples / median / 1e3, 1),
        }

    return measure


def times(machine, slot, repeats=10):
    """Return the median milliseconds of a recorded block's kernels, behind other work and from an idle GPU."""
    _, solve, _ = machine.device_slots[id(slot)].stages(slot, machine)
    cuda = machine.cuda
    before, after = (cuda.device_array(2**27) for _ in range(2))  # 1 GiB each
    start, stop = cuda.event(), cuda.event()
    spent = {True: [], False: []}
    for busy in [True, False] * repeats:
        if busy:
            after.copy_to_device(before, stream=machine.compute)
        start.record(machine.compute)
        solve()
        stop.record(machine.compute)
        stop.synchronize()
        spent[busy].append(cuda.event_elapsed_time(start, stop))
    return float(np.median(spent[True])), float(np.median(spent[False]))


if __name__ == "__main__":
    main()
