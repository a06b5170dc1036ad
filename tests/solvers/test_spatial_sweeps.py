"""Passes of the spatial search: the same on CPU and GPU."""

import numpy as np
import pytest

from unmix.arrays.spatial.passes import Field, Prior, System, programme_of
from unmix.devices import count_gpus, simulated
from unmix.solvers.spatial.lines import CpuSweeps


@pytest.mark.sim
@pytest.mark.parametrize(
    ("sum_to_one", "smooth", "edges", "bands"),
    [(False, False, 3, 6), (True, True, 3, 6), (True, False, 2, 6), (False, False, 3, 2)],
)
def test_gpu_does_what_the_cpu_does(sum_to_one, smooth, edges, bands):
    """After a pass, all arrays and sums agree; the last endmember may be shade, without edges, or depend on the others."""
    if not (simulated() or count_gpus()):
        pytest.skip("no CUDA GPU here; `make test-sim` runs this in the simulator")
    from unmix.solvers.spatial.cuda import CudaSweeps

    rng = np.random.default_rng(5)
    E = rng.uniform(0.1, 1, (bands, 3))
    if edges < 3:
        E[:, 2] = 0
    Y = rng.dirichlet(np.ones(3), (4, 5)) @ E.T + 0.1 * rng.standard_normal((4, 5, bands))
    valid = np.ones((4, 5), bool)
    valid[1, 2] = False
    plan, results = programme_of(E, sum_to_one), []
    steps = System(plan.gram, sum_to_one).steps(0.7, smooth)
    steps = [*steps[:2], steps[-1]]
    for sweeps in (CpuSweeps(2), CudaSweeps()):
        field = Field.in_memory(4, 5, 3, edges)
        field.fill(0, Y, valid, E, 0.01)
        field.connect(Prior("tv", 0.05).weight)
        strip = sweeps.hold(field.arrays)
        sweeps.measure(strip, plan, smooth)
        sweeps.iterate(strip, steps)
        moved, measured = sweeps.moved(strip), sweeps.measure(strip, plan, smooth)
        sweeps.release(strip, field.arrays)
        sweeps.close()
        results.append([*field.arrays.values(), moved, *measured])
    for cpu, gpu in zip(*results):
        np.testing.assert_allclose(cpu, gpu, rtol=1e-9, atol=1e-10)
    assert np.abs(results[0][4]).max() > 0.1
