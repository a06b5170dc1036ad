"""The certificate against its definition, and that it fails what is wrong."""

import naive
import numpy as np
import pytest

import unmix
from unmix.certificate import CERTIFIED, Summary, certify_function
from unmix.methods import METHODS
from unmix.solvers.lanes import ONE, WIDE

pytestmark = pytest.mark.sim


def certificates(E, Y, A, method, ops=WIDE):
    """(rmse, κ, δ) of each pixel by the code under test."""
    row, p, w = METHODS[method], E.shape[1], ops.width
    smallest = np.linalg.svd(E, compute_uv=False)[-1]
    found = []
    for first in range(0, len(Y), w):
        some = np.minimum(np.arange(first, first + w), len(Y) - 1)  # the last tile is filled up
        out = np.empty((3, 1, w))
        certify_function(ops)(
            E, np.linalg.norm(E, axis=0), smallest**2, row.sum_to_one, row.nonnegative,
            np.ascontiguousarray(Y[some].T), np.ascontiguousarray(A[some].T), np.empty((p, w)), *out,
        )  # fmt: skip
        found.append(out[:, 0].T)
    return np.concatenate(found)[: len(Y)]


@pytest.fixture
def problem():
    random = np.random.default_rng(4)
    E = random.random((15, 5)) + 0.2
    return E, random.dirichlet(np.full(5, 0.4), 12) @ E.T + 0.03 * random.standard_normal((12, 15))


@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize("ops", [ONE, WIDE], ids=["one", "wide"])
def test_against_the_definition(problem, method, ops):
    E, Y = problem
    row = METHODS[method]
    random = np.random.default_rng(1)
    A = random.random((12, 5)) * (random.random((12, 5)) < 0.7)
    for got, y, a in zip(certificates(E, Y, A, method, ops), Y, A):
        expected = naive.certificate(E, y, a, row.sum_to_one, row.nonnegative)
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("method", list(METHODS))
def test_an_abundance_off_by_1e_4_fails(problem, method):
    E, Y = problem
    A = unmix.solve(Y, E, method=method).abundances
    assert certificates(E, Y, A, method)[:, 1].max() <= CERTIFIED
    for j in range(5):
        for sign in (1, -1):
            wrong = A.copy()
            wrong[:, j] += sign * 1e-4
            assert certificates(E, Y, wrong, method)[:, 1].min() > CERTIFIED


@pytest.mark.parametrize("method", ["nnls", "fcls"])
def test_a_wrong_support_fails(problem, method):
    """The optimum on another support is feasible and smooth, and still no optimum."""
    E, Y = problem
    A = unmix.solve(Y, E, method=method).abundances
    tried = 0
    for y, a in zip(Y, A):
        for j in np.flatnonzero(a > 1e-6):
            rest = np.delete(np.arange(5), j)
            wrong = np.zeros(5)
            wrong[rest] = naive.constrained(E[:, rest], y, METHODS[method].sum_to_one)
            assert certificates(E, y[None], wrong[None], method)[0, 1] > CERTIFIED
            tried += 1
    assert tried > 12


def test_delta_bounds_the_error(problem):
    E, Y = problem
    best = unmix.solve(Y, E, method="fcls").abundances
    random = np.random.default_rng(0)
    for _ in range(20):
        A = random.dirichlet(np.full(5, 0.5), len(Y))
        delta = certificates(E, Y, A, "fcls")[:, 2]
        assert np.all(np.linalg.norm(A - best, axis=1) <= delta * (1 + 1e-9))


def test_nothing_slips_through_as_nan():
    E = np.eye(3)
    A = np.array([[np.nan, 0, 0], [0, 0, 0]])
    got = certificates(E, np.ones((2, 3)), A, "nnls")
    assert np.all(got[:, 1] > CERTIFIED)


def test_the_summary_counts():
    state = np.array([[0, 0, 1], [2, 0, 0]], np.uint8)
    kappa = np.array([[1e-15, 1e-3, 9], [9, 1e-14, np.nan]])
    summary = Summary()
    summary.add(10, state, kappa, kappa, np.array([[1, 2, -9999], [-9999, 2, 4]]), np.ones((2, 2, 3), np.float32))
    assert (summary.solved, summary.masked, summary.partly_nodata) == (4, 1, 1)
    assert (summary.certified, summary.failed) == (2, 2)
    assert summary.failures == [(10, 1), (11, 2)]
    assert summary.steps == [0, 1, 2, 0, 1]
    assert summary.sums.tolist() == [4, 4]


def test_a_summary_in_parts_is_the_summary_of_the_whole():
    random = np.random.default_rng(5)
    state = random.choice([0, 0, 0, 1, 2], (12, 9)).astype(np.uint8)
    kappa, delta = 10.0 ** random.uniform(-16, -8, (2, 12, 9))
    steps, abundance = random.integers(0, 7, (12, 9)), random.random((12, 3, 9)).astype(np.float32)
    whole, merged = Summary(), Summary()
    whole.add(0, state, kappa, delta, steps, abundance)
    for lines in (slice(0, 5), slice(5, 6), slice(6, 12)):
        part = Summary()
        part.add(lines.start, state[lines], kappa[lines], delta[lines], steps[lines], abundance[lines])
        merged.merge(part)
    for name in (
        "solved",
        "masked",
        "partly_nodata",
        "certified",
        "failed",
        "worst_kappa",
        "worst_delta",
        "failures",
        "steps",
    ):
        assert getattr(merged, name) == getattr(whole, name), name
    assert merged.sums.tolist() == whole.sums.tolist()
    assert whole.steps == np.bincount(steps[state == 0]).tolist()
    assert np.allclose(whole.sums, np.where(state[:, None] == 0, abundance, 0).sum(axis=(0, 2)))
