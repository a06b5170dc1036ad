"""Kernel times on a GPU, block resident: ``python tests/bench/kernels.py [DATA]``.

Salinas-A pixels (tiled to 111104 and to 4 million) with the endmembers of Li and Li, int16, fcls; CUDA events around
all kernels that project, solve and certify. Prints a line of JSON each: ``ms`` is the GPU's own time (something else
runs before, which also empties its cache, so that it never waits for Python to launch), ``ms_idle`` the time from an idle GPU.
"""

import json
import sys
from pathlib import Path

import numpy as np

from unmix.blocks import BlockPlan
from unmix.devices import Cuda, Line
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
            for pixels in (111104, 4_000_000):
                time_kernel(block, library, "fcls", "active-set", pixels, order)
        for method, solver in (("nnls", "active-set"), ("fcls", "inverse"), ("fcls", "delete-only")):
            time_kernel(scene, library, method, solver, 111104, "in order")


def orders(scene, E):
    """Pixels in scene order, shuffled, and dense mixtures that have no neighbourhood."""
    random = np.random.default_rng(0)
    dense = random.dirichlet(np.ones(E.shape[1]), len(scene)) @ E.T + 10 * random.standard_normal(scene.shape)
    return {"in order": scene, "shuffled": random.permutation(scene), "dense": dense.astype(np.int16)}


def time_kernel(scene, library, method, solver, pixels, order):
    """Median of ten, one JSON line."""
    p = library.matrix.shape[1]
    samples = 1024
    lines = -(-pixels // samples)
    method_spec, solver_spec = choose(method, solver)
    problem = plan_problem(
        library, method_spec, solver_spec, Bands(np.arange(224), np.ones(224), np.zeros(224)), None, "bip"
    )
    machine = Cuda(0)
    line = Line(samples, samples * 448)
    slot = machine.open(problem, line, BlockPlan(lines, lines, 1))[0]
    raw = slot.buffer.view(np.int16).reshape(lines, samples, 224)
    raw.reshape(-1, 224)[:] = scene[np.arange(lines * samples) % len(scene)]
    slot.hold(slice(0, lines), raw)
    machine.submit(slot)
    machine.wait(slot)
    machine.device_slots[id(slot)].record(slot, machine)
    _, solve, _ = machine.device_slots[id(slot)].stages(slot, machine)
    cuda = machine.cuda
    before, after = (cuda.device_array(2**27) for _ in range(2))  # 1 GiB each
    start, stop = cuda.event(), cuda.event()
    times = {True: [], False: []}
    for busy in [True, False] * 10:
        if busy:
            after.copy_to_device(before, stream=machine.compute)
        start.record(machine.compute)
        solve()
        stop.record(machine.compute)
        stop.synchronize()
        times[busy].append(cuda.event_elapsed_time(start, stop))
    median = float(np.median(times[True]))
    print(json.dumps({
        "p": p, "method": method, "solver": solver, "order": order, "pixels": lines * samples, "ms": round(median, 3),
        "ms_idle": round(float(np.median(times[False])), 3),
        "Mpixel_per_s": round(lines * samples / median / 1e3, 1),
        "device": "GPU", "fit": float((slot.results["kappa"] <= 1e-10).mean()), "certified": float(((slot.results["kappa"] <= 1e-10) &
        (slot.results["delta"] <= 1e-4)).mean()),
    }), flush=True)  # fmt: skip
    machine.close()


if __name__ == "__main__":
    main()
