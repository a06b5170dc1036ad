"""The certificate against its definition, and that it fails what is wrong."""

import json

import definitions
import numpy as np
import pytest
from definitions import of_every_support

import unmix
from unmix.certificate import CERTIFIED, TERMS, certify_function
from unmix.compiled.jit import ONE, WIDE
from unmix.library import Endmembers
from unmix.methods import METHODS, choose
from unmix.problem import plan_problem
from unmix.summary import ADDED, ARRAYS, WORST, Summary, bin_of, edges

pytestmark = pytest.mark.sim


def certificates(E, Y, A, method, ops=WIDE, penalty=None):
    """(rmse, κ, δ) of each pixel by the code under test."""
    problem = plan(E, method)
    penalty = np.empty(0) if penalty is None else penalty
    p, w = E.shape[1], ops.width
    found, X = [], Y - problem.shift if len(problem.shift) else Y
    for first in range(0, len(Y), w):
        some = np.minimum(np.arange(first, first + w), len(Y) - 1)  # the last tile is filled up
        out = np.full((3, 1, w), np.inf)
        certify_function(ops)(
            problem.E,
            problem.sizes,
            problem.slopes,
            problem.curvature,
            problem.centre,
            *problem.constraint.flags,
            penalty,
            np.ascontiguousarray(X[some].T),
            np.ascontiguousarray(A[some].T),
            np.empty((p, w)),
            *out,
            np.empty((TERMS, w)),
        )
        found.append(out[:, 0].T)
    return np.concatenate(found)[: len(Y)]


def plan(E, method, solver=None):
    """The problem of endmembers E (L, p)."""
    library = Endmembers(tuple(map(str, range(E.shape[1]))), E, None, source="E")
    return plan_problem(library, *choose(method, solver))


@pytest.fixture
def problem():
    random = np.random.default_rng(4)
    E = random.random((15, 5)) + 0.2
    return E, random.dirichlet(np.full(5, 0.4), 12) @ E.T + 0.03 * random.standard_normal((12, 15))


@pytest.mark.parametrize(
    "method", [m.name for m in METHODS.values() if not m.constraint.has_shade]
)  # pcls is fcls with an endmember more
@pytest.mark.parametrize("ops", [pytest.param(ONE, id="one", marks=pytest.mark.slow), pytest.param(WIDE, id="wide")])
def test_against_the_definition(problem, method, ops):
    E, Y = problem
    row = METHODS[method]
    random = np.random.default_rng(1)
    A = random.random((12, 5)) * (random.random((12, 5)) < 0.7)
    for got, y, a in zip(certificates(E, Y, A, method, ops), Y, A):
        expected = definitions.of_pixel(E, y, a, *row.constraint.flags)
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize(
    "method", [m.name for m in METHODS.values() if not m.constraint.has_shade]
)  # pcls is fcls with an endmember more
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
            wrong[rest] = of_every_support(E[:, rest], y, method)
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


@pytest.mark.parametrize("L", [30, 200])
@pytest.mark.parametrize("condition", [1e2, 1e4, 1e6])
def test_delta_grows_with_the_square_of_the_condition(L, condition):
    random = np.random.default_rng(0)
    Q, V = (np.linalg.qr(random.standard_normal((n, 6)))[0] for n in (L, 6))
    E = Q * np.geomspace(1, 1 / condition, 6) @ V
    y = E @ random.random(6)
    y += 0.02 * np.linalg.norm(y) / np.sqrt(L) * random.standard_normal(L)
    delta = definitions.of_pixel(E, y, unmix.solve(y, E, method="nnls").abundances, False, True)[2]
    assert 1e-15 / 5 < delta / condition**2 < 5e-14


def test_curvature_is_less_than_an_svd_says():
    E = np.random.default_rng(0).random((15, 5))
    E[:, 4] = E[:, 0] + 1e-6 * E[:, 1] ** 2
    values = np.linalg.svd(E, compute_uv=False)
    expected = values[-1] - 8 * 15 * 2.0**-53 * values[0]
    assert np.sqrt(plan(E, "nnls").curvature) == pytest.approx(expected, rel=1e-10)
    assert expected < values[-1] * (1 - 1e-9)


def test_nothing_slips_through_as_nan():
    E = np.eye(3)
    A = np.array([[np.nan, 0, 0], [0, 0, 0]])
    assert np.all(certificates(E, np.ones((2, 3)), A, "nnls")[:, 1] > CERTIFIED)


def block(n, samples, p, seed=5):
    """Results of a block as a device leaves them, of random pixels."""
    random = np.random.default_rng(seed)
    kappa, delta = 10.0 ** random.uniform(-16, -8, (n, samples)), 10.0 ** random.uniform(-16, -2, (n, samples))
    results = {
        "state": random.choice([0, 0, 0, 1, 2], (n, samples)).astype(np.uint8),
        "kappa": kappa,
        "delta": delta,
        "steps": random.integers(0, 7, (n, samples)),
        "abundance": (random.random((n, p, samples)) * 1.2 - 0.1).astype(np.float32),
        "rmse": random.random((n, samples)).astype(np.float32),
        "relative": (10.0 ** random.uniform(-6, 2, (n, samples))).astype(np.float32),
    }
    return masked(results)


def masked(results):
    """As a device leaves pixels that it does not solve."""
    results["abundance"][np.broadcast_to(results["state"][:, None] > 0, results["abundance"].shape)] = -9999
    results["relative"][results["state"] > 0] = -1
    return results


def test_the_summary_counts():
    results = block(2, 3, 2)
    results["state"] = np.array([[0, 0, 1], [2, 0, 0]], np.uint8)
    results["kappa"] = np.array([[1e-15, 1e-3, 9], [9, 1e-14, np.nan]])
    results["delta"] = np.array([[1e-15, 1e-3, 9], [9, 1e-3, np.nan]])
    results["steps"] = np.array([[1, 2, -9999], [-9999, 2, 4]])
    results["abundance"][:], results["relative"][:] = 1, np.abs(results["relative"])
    masked(results)
    summary = Summary()
    summary.add(10, results)
    assert (summary.solved, summary.masked, summary.partly_nodata) == (4, 1, 1)
    assert (summary.certified, summary.fit_certified, summary.failed) == (1, 1, 2)
    assert summary.failures == [(10, 1), (11, 2)]
    assert summary.steps == [0, 1, 2, 0, 1]
    poor = (results["relative"][results["state"] == 0] > 0.1).sum()
    assert summary.sums.tolist() == [4, 4] and summary.outside.tolist() == [poor, poor]
    assert np.isinf(summary.worst_kappa) and np.isinf(summary.worst_delta)


def test_what_is_said_of_the_fit():
    """Percentiles to 2 %, shares and largest abundances, against numpy on the pixels."""
    results = block(40, 50, 3)
    summary = Summary()
    summary.add(0, results)
    good = results["state"] == 0
    relative = results["relative"][good]
    for share in (0.5, 0.95):
        inside = np.clip(np.quantile(relative, share), 2.0**-10, 62)
        assert summary.percentile(share) == pytest.approx(inside, rel=0.06)
    assert summary.worst_relative == relative.max() and summary.worst_rmse == results["rmse"][good].max()
    assert summary.misfit.sum() == good.sum()
    for j in range(3):
        a = results["abundance"][:, j][good]
        expected = (a.max(), (a > 0.01).sum(), ((a > 0.99) & (relative > 0.1)).sum())
        assert (summary.most[j], summary.there[j], summary.outside[j]) == expected


@pytest.mark.parametrize("value", [1e-9, 2.0**-10, 0.01, 0.1, 0.5, 1.0, 3.0, 61.9, 1e6])
def test_a_bin_holds_what_lies_between_its_edges(value):
    value = np.float32(value)
    place = bin_of(value.view(np.int32))
    below, above = edges()[place], edges()[place + 1]
    assert below <= np.clip(value, 2.0**-10, 63) < above


def test_a_summary_in_parts_is_the_summary_of_the_whole():
    results = block(12, 9, 3)
    state, abundance = results["state"], results["abundance"]
    whole, merged = Summary(), Summary()
    whole.add(0, results)
    for lines in (slice(0, 5), slice(5, 6), slice(6, 12)):
        part = Summary()
        part.add(lines.start, {name: values[lines] for name, values in results.items()})
        merged.merge(part)
    merged = Summary.from_dict(json.loads(json.dumps(merged.to_dict())))
    for name in (*ADDED, *WORST, *ARRAYS, "failures", "steps"):
        np.testing.assert_array_equal(getattr(merged, name), getattr(whole, name), name)
    assert whole.steps == np.bincount(results["steps"][state == 0]).tolist()
    assert np.allclose(whole.sums, np.where(state[:, None] == 0, abundance, 0).sum(axis=(0, 2)))
