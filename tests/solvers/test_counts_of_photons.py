"""Mixtures of photon counts: against scipy, random mixtures, and the optimality conditions in exact arithmetic."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import abundances as reference
from scipy.optimize import minimize

import unmix

pytestmark = pytest.mark.slow


def case(random, L, p, N, size, has_background=False):
    """Spectra, backgrounds and counts."""
    E = random.random((L, p)) ** 2 * (random.random((L, p)) < 0.8)
    E[random.integers(0, L, p), np.arange(p)] += 0.2
    X = random.random((N, p)) * (random.random((N, p)) < 0.5) * size
    b = random.random(L) * size if has_background else np.zeros(L)
    Y = random.poisson(X @ E.T + b)
    return E, b, np.where(E.any(axis=1) | (b > 0), Y, 0)


def cost_of(E, b, y, x):
    mean = E @ x + b
    with np.errstate(divide="ignore", invalid="ignore"):
        return float((mean - np.where(y > 0, y * np.log(mean), 0.0)).sum())


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=40)
def test_no_mixture_costs_less_than_the_gap_allows(seed):
    random = np.random.default_rng(seed)
    L, p = int(random.integers(2, 30)), int(random.integers(1, 10))
    E, b, Y = case(random, L, p, 5, 10.0 ** random.uniform(-1, 4), random.random() < 0.5)
    found = unmix.poisson(Y, E, background=b)
    assert (found.x >= 0).all() and (found.gap <= 1e-8 * np.maximum(1, Y.sum(axis=1))).all()
    for i, y in enumerate(Y):
        own = cost_of(E, b, y, found.x[i])
        assert own == pytest.approx(found.cost[i], rel=1e-9, abs=1e-9)
        rounding = 1e-12 * (abs(own) + y.sum() + 1)
        near = np.abs(found.x[i] * (1 + random.normal(0, 0.1, (50, p))) + random.exponential(0.01, (50, p)))
        scipy = minimize(
            lambda x, y=y: cost_of(E, b, y, x),
            found.x[i] + 1e-3 * (1 + y.sum()),
            jac=lambda x, y=y: E.T @ (1 - y / np.maximum(E @ x + b, 1e-300)),
            bounds=[(0, None)] * p,
            method="L-BFGS-B",
        ).x
        for x in [*near, scipy, np.zeros(p)]:
            assert not cost_of(E, b, y, x) < own - found.gap[i] - rounding


def test_many_are_solved_in_few_steps():
    random = np.random.default_rng(1)
    for size in (0.3, 30.0, 1e4):
        E, _, Y = case(random, 60, 8, 300, size)
        found = unmix.poisson(Y, E)
        assert (found.gap <= 1e-11 * np.maximum(1, Y.sum(axis=1))).all() and found.steps.max() <= 12
        assert np.median(found.steps) <= 2


def refined(E, b, y, x):
    """The optimum on the support of x by Newton's steps in long doubles, and the slopes there."""
    E, b, y, x = (np.asarray(one, np.longdouble) for one in (E, b, y, x))
    on = x > 0
    for _ in range(6):
        mean = E @ x + b
        ratio = np.divide(y, mean, out=np.zeros_like(y), where=y > 0)
        weights = np.divide(ratio, mean, out=np.zeros_like(y), where=y > 0)
        H = ((E[:, on].T * weights) @ E[:, on]).astype(float)
        step = np.linalg.solve(H, (E[:, on].T @ (1 - ratio)).astype(float)) if on.any() else 0
        x[on] -= step
    mean = E @ x + b
    return x, E.T @ (1 - np.divide(y, mean, out=np.zeros_like(y), where=y > 0))


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_the_optimum_is_within_delta(seed):
    """Where it is proved: against Newton in long doubles, and scipy's least squares again and again (`reference`)."""
    random = np.random.default_rng(seed)
    L, p = int(random.integers(4, 40)), int(random.integers(1, 10))
    E, b, Y = case(random, L, p, 6, 10.0 ** random.uniform(-1, 6), random.random() < 0.5)
    if random.random() < 0.2:
        E = np.column_stack([E, E[:, :1] + 1e-5 * E[:, -1:]])
    found = unmix.poisson(Y, E, background=b)
    proved = np.isfinite(found.delta) & (found.delta < 1e-2 * np.maximum(1e-9, found.x.sum(axis=1)))
    for i in np.flatnonzero(proved):
        best, slope = refined(E, b, Y[i], found.x[i])
        if (best >= 0).all() and (slope[found.x[i] == 0] >= -1e-12 * E.sum(axis=0)[found.x[i] == 0]).all():
            assert np.linalg.norm(np.asarray(best - found.x[i], float)) <= found.delta[i]
        again = reference.poisson_of_pixel(E, Y[i].astype(float), b)
        assert np.linalg.norm(again - found.x[i]) <= 1e-5 * np.linalg.norm(again) + 100 * found.delta[i] + 1e-9
    assert (found.kappa >= 0).all() and (found.kappa[Y.sum(axis=1) == 0] == 0).all()
    if 2 * p < L and Y.min() > 0:
        assert (found.kappa <= 1e-10).all()


def test_it_is_nearer_than_least_squares():
    """Where bands differ much in counts; and the deviance says that the model is right."""
    random = np.random.default_rng(2)
    E = 10.0 ** random.uniform(-2, 2, (80, 4))
    X = random.uniform(0.5, 2.0, (400, 4))
    Y = random.poisson(X @ E.T)
    counts, squares = unmix.poisson(Y, E), unmix.nnls(E, Y)
    assert np.sqrt(np.square(counts.x - X).mean()) < 0.9 * np.sqrt(np.square(squares.x - X).mean())
    assert counts.deviance.mean() == pytest.approx(76, rel=0.1)


def test_odd_counts():
    E = np.array([[4.0, 0], [2, 1], [0, 3]])
    nothing = unmix.poisson(np.zeros(3), E)
    assert nothing.x.tolist() == [0, 0] and nothing.cost == nothing.gap == nothing.deviance == 0
    assert (
        np.isinf(unmix.poisson(np.array([3.0, 0.0, 0.0]), E).delta)
        and unmix.poisson(np.array([3.0, 2.0, 0.0]), E).delta < 1
    )
    exact = unmix.poisson(E @ [0.5, 2.0], E)  # not whole, without noise
    np.testing.assert_allclose(exact.x, [0.5, 2.0], rtol=1e-9)
    assert unmix.poisson(np.ones((2, 5, 3)), E).x.shape == (2, 5, 2)
    assert unmix.poisson(np.array([3, 2, 4]), E, background=[3.0, 2.0, 4.0]).x.tolist() == pytest.approx(
        [0, 0], abs=1e-6
    )
    same = unmix.poisson(np.array([9, 5, 3]), np.column_stack([E, E[:, 0]]))  # not unique, but the mean is
    assert same.x[0] + same.x[2] == pytest.approx(unmix.poisson(np.array([9, 5, 3]), E).x[0], rel=1e-6)


@pytest.mark.parametrize(
    ("Y", "E", "more", "text"),
    [
        (np.ones(3), np.ones((2, 2)), {}, r"E must be \(L, p\)"),
        (-np.ones(2), np.ones((2, 2)), {}, "Y is negative, first in row 0"),
        (np.array([1.0, np.nan]), np.ones((2, 2)), {}, "Y holds values that are not finite"),
        (np.ones(2), np.array([[1.0, 0], [1, 0]]), {}, "spectrum 2 of E is 0 in all bands"),
        (np.ones(2), np.array([[1.0, 1], [0, 0]]), {}, "counts in row 0, band 2, where neither"),
        (np.ones(2), np.ones((2, 2)), {"background": np.ones(3)}, "background must be"),
    ],
)
def test_wrong_counts(Y, E, more, text):
    with pytest.raises(unmix.InputError, match=text):
        unmix.poisson(Y, E, **more)


def test_one_singular_matrix_costs_no_other_its_step():
    from unmix.arrays.counts.search import solutions

    random = np.random.default_rng(4)
    H, right = random.random((7, 3, 3)), random.random((7, 3))
    H[4] = 0.0
    found = solutions(H, right)
    assert not found[4].any()
    others = np.arange(7) != 4
    np.testing.assert_allclose(np.einsum("nij,nj->ni", H, found)[others], right[others], atol=1e-10)


def test_no_deviance_is_below_zero():
    random = np.random.default_rng(5)
    E = random.integers(1, 9, (40, 3)).astype(float)
    Y = random.integers(0, 9, (500, 3)) @ E.T
    assert (unmix.poisson(Y, E).deviance >= 0).all()
