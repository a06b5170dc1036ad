"""Ties: problems of whole numbers and of orthogonal spectra through every solver, against rational arithmetic (tests/lattices.py)."""

import lattices
import numpy as np
import pytest
from conftest import rest_slow

PROBLEMS = 150


@pytest.mark.parametrize("name", rest_slow(lattices.SOLVERS, "nnls", "nnqp"))
def test_ties(name):
    random = np.random.default_rng(0)
    assert [fault for _ in range(PROBLEMS) if (fault := lattices.SOLVERS[name](random))] == []
