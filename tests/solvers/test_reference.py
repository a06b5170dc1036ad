"""The definitions themselves: scipy's optima against all supports, and the way along a path against one λ."""

import numpy as np
import pytest
from definitions import l1_path, of_every_support, on_path
from reference.abundances import METHODS, l1, largest, with_zeros
from reference.fractions import fractions, from_fractions, weights_of


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("p", [1, 2, 5])
def test_the_optimum_is_that_of_all_supports(method, p):
    random = np.random.default_rng(p)
    for _ in range(30):
        E, y = random.standard_normal((7, p)) + random.choice([0.0, 2.0]), random.standard_normal(7)
        np.testing.assert_allclose(METHODS[method](E, y), of_every_support(E, y, method), atol=1e-8)


def test_one_penalty_is_a_point_of_the_path():
    random = np.random.default_rng(0)
    E, w = random.random((30, 12)) + 0.1, random.uniform(0.2, 2, 12)
    for y in random.random((10, 30)):
        for lam in (0.0, 0.01, 0.3, 2.0):
            np.testing.assert_allclose(l1(E, y, lam * w), on_path(l1_path(E, y, w), lam), atol=1e-9)


def test_ways_there_and_back():
    A = np.array([[0.2, 0.0, 0.5, 0.3], [0.0, 0.0, 0.0, 1.0]])
    w = weights_of(np.diag([1.0, 2, 3, 4]), "length", has_shade=True)
    np.testing.assert_allclose(from_fractions(*fractions(A, w), w, has_shade=True), A, atol=1e-15)
    values, index = largest(A, 3)
    full, complete = with_zeros(values, index, 4)
    np.testing.assert_array_equal(full, A)
    assert complete.tolist() == [False, True]
    assert np.isnan(with_zeros(values[:, ::-1], index, 4)[0][0]).all()
