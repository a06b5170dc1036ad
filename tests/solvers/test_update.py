"""The two verbs against numpy's inverse."""

import numpy as np
import pytest

from unmix.solvers.pixels.inverse_update import add_column, remove_column

pytestmark = pytest.mark.sim


def walk(p, steps, seed, condition=100.0):
    """Random adds and removes; returns the Gram matrix, the support and the inverse that was kept up."""
    random = np.random.default_rng(seed)
    E = np.linalg.qr(random.standard_normal((3 * p, p)))[0] * np.geomspace(1, 1 / condition, p)
    E = E @ np.linalg.qr(random.standard_normal((p, p)))[0]
    G = E.T @ E
    H, support, u = np.full((p, p), np.nan), np.zeros(p, np.int64), np.zeros(p)
    k = 0
    for _ in range(steps):
        free = np.setdiff1d(np.arange(p), support[:k])
        if k == 0 or (len(free) and random.random() < 0.55):
            k = add_column(G, H, support, k, int(random.choice(free)), u)
        else:
            k = remove_column(H, support, k, int(random.integers(k)), u)
    return G, support[:k], H[:k, :k]


@pytest.mark.parametrize("p", [1, 2, 3, 9])
def test_the_inverse_is_kept_up(p):
    for seed in range(5):
        G, support, H = walk(p, 40, seed)
        assert len(set(support)) == len(support)
        np.testing.assert_allclose(H, np.linalg.inv(G[np.ix_(support, support)]), rtol=1e-8, atol=1e-8)


def test_drift_over_many_steps():
    G, support, H = walk(9, 2001, 1, condition=10)
    exact = np.linalg.inv(G[np.ix_(support, support)])
    assert np.abs(H - exact).max() < 1e-9 * np.abs(exact).max()


def test_a_dependent_column_may_not_enter():
    E = np.array([[1.0, 0, 1], [0, 1, 1], [0, 0, 0]])
    G, H, support, u = E.T @ E, np.zeros((3, 3)), np.zeros(3, np.int64), np.zeros(3)
    k = add_column(G, H, support, 0, 0, u)
    k = add_column(G, H, support, k, 1, u)
    assert k == 2
    assert add_column(G, H, support, k, 2, u) == 2
