"""L-BFGS against scipy's."""

import numpy as np
from scipy.optimize import minimize, rosen, rosen_der

from unmix.endmembers.auto.descent import descended


def test_finds_the_minimum_of_a_curved_valley():
    for n, seed in ((2, 0), (8, 1), (30, 2)):
        x = np.random.default_rng(seed).uniform(-1.5, 1.5, n)
        theirs = minimize(rosen, x, jac=rosen_der, method="L-BFGS-B", options={"maxiter": 3000})
        found = descended(lambda x: (float(rosen(x)), rosen_der(x)), x, 3000)
        assert found.value <= max(2 * theirs.fun, 1e-6), (n, found.value, theirs.fun)
        assert found.value == rosen(found.x)


def test_goes_no_farther_than_its_steps_and_never_up():
    x = np.full(6, -1.2)
    values = [descended(lambda x: (float(rosen(x)), rosen_der(x)), x, steps).value for steps in range(12)]
    assert values[0] == rosen(x) and values == sorted(values, reverse=True)


def test_steps_back_from_where_a_function_has_no_value():
    def barrier(x):
        with np.errstate(invalid="ignore", divide="ignore"):
            return float(x @ x - np.log(x).sum()), 2 * x - 1 / x

    assert np.allclose(descended(barrier, np.array([5.0, 0.01, 3.0]), 200).x, np.sqrt(0.5), atol=1e-4)
