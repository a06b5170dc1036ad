"""Exponentials and logarithms of vectors, against numpy's."""

import numpy as np

from unmix.compiled.exponentials import exp_of_minus, log
from unmix.compiled.jit import compiled
from unmix.compiled.simd import WIDE

load, store = WIDE.load, WIDE.store


@compiled
def both(values, exponentials, logarithms):
    """Write exp (−y) and log y of each row."""
    for row in range(values.shape[0]):
        store(exponentials, row, exp_of_minus(load(values, row)))
        store(logarithms, row, log(load(values, row)))


def test_they_are_those_of_numpy():
    values = np.concatenate([np.linspace(0, 3, 1000), np.geomspace(1e-300, 699, 3000), [700.0, 1e9, np.inf, 0.0]])
    rows = np.resize(values, (-(-len(values) // WIDE.width), WIDE.width))
    exponentials, logarithms = np.empty_like(rows), np.empty_like(rows)
    with np.errstate(divide="ignore"):
        both(rows, exponentials, logarithms)
        np.testing.assert_allclose(exponentials, np.exp(-np.minimum(rows, 700.0)), rtol=4e-16)
        np.testing.assert_allclose(logarithms, np.log(rows), rtol=4e-16)
