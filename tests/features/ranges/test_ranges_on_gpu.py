"""Bounds by the code for a GPU, in the simulator, beside those of a CPU."""

import numpy as np
import pytest

from unmix.devices import count_gpus
from unmix.features.ranges.mixtures import Mixtures


@pytest.mark.sim
@pytest.mark.parametrize("has_sum", [False, True])
@pytest.mark.parametrize("is_fraction", [False, True])
def test_a_warp_finds_the_same_ends(has_sum, is_fraction):
    if not count_gpus():
        pytest.skip("no CUDA GPU here; `make test-sim` runs this in the simulator")
    random = np.random.default_rng(3)
    L, P, n = 14, 35, 1
    E = random.uniform(0.05, 1, (L, 6)) @ random.dirichlet(np.full(6, 0.3), P).T + 0.05 * random.random((L, P))
    if has_sum:
        E[:, -1] = 0.0  # shade
    A = random.dirichlet(np.full(P, 0.1), n)
    Y = A @ E.T + 0.05 * random.standard_normal((n, L))
    mixtures = Mixtures(E, has_sum, 1)
    best = mixtures.solve(Y)
    misfits = mixtures.misfits(Y, best)
    rho = misfits + 2e-3
    quantities = np.array([[j % 3 == k and j < P - 1 for j in range(P)] for k in range(1)], float)
    weights = np.append(random.uniform(0.5, 1, P - 1), 0.0 if has_sum else 0.7) if is_fraction else np.empty(0)
    most = np.array([1.0 if has_sum else np.inf])
    given = Y, best, misfits, rho, quantities, weights, most
    found, there = mixtures.bounded(*given), on_gpu(mixtures).bound(*given)
    np.testing.assert_allclose(there, found, rtol=1e-6, atol=1e-9)
    proved, reached = there
    assert np.all(proved >= reached) and np.all(proved - reached <= 1e-6)


def on_gpu(mixtures):
    """Return the bounds on the present GPU, or the simulated one."""
    from unmix.features.ranges.solver.on_gpu import BoundsOnGpu

    return BoundsOnGpu(mixtures.E, mixtures.shared)
