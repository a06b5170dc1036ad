"""Systems and pixels with weights, allowed columns, a start or a matrix of their own: against scipy, one by one."""

import numpy as np
import pytest
from conftest import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.abundances import fcls
from scipy.optimize import nnls as scipy_nnls

import unmix

pytestmark = pytest.mark.slow


def case(random, m, n, N, K=1):
    """Matrices, right-hand sides near their cones, and what each system has of its own."""
    A = random.random((K, m, n))
    if random.random() < 0.2:
        A[..., -1] = A[..., 0]
    which = random.integers(0, K, N)
    X = random.random((N, n)) * (random.random((N, n)) < 0.4)
    B = np.einsum("kmn,kn->km", A[which], X) + 0.02 * random.standard_normal((N, m))
    weights = 10.0 ** random.uniform(-3, 3, (N, m)) * (random.random((N, m)) < 0.9)
    own = {"weights": weights, "allowed": random.random((N, n)) < 0.7, "start": random.random((N, n)) < 0.4}
    return A, B, which, {name: own[name] for name in own if random.random() < 0.7}


def check_one(E, y, own, i, x, found, reference):
    """No worse than the reference, nothing of what is not allowed, certified, and the reference no further than δ."""
    if "weights" in own and not own["weights"][i].any():  # no band says anything
        assert np.isnan(x).all() and np.isnan(found.kappa[i])
        return
    root = np.sqrt(own["weights"][i]) if "weights" in own else np.ones(len(y))
    allowed = own["allowed"][i] if "allowed" in own else np.ones(E.shape[1], bool)
    M, b = (E * root[:, None])[:, allowed], y * root
    expected = reference(M, b) if M.shape[1] else np.zeros(0)
    left, least = np.linalg.norm(b - M @ x[allowed]), np.linalg.norm(b - M @ expected)
    assert (x >= 0).all() and not x[~allowed].any()
    assert left <= least * (1 + 1e-9) + 1e-9 * np.linalg.norm(b)
    assert found.rmse[i] == pytest.approx(left / np.sqrt(len(y)), rel=1e-7, abs=1e-12)
    assert found.kappa[i] <= 1e-10
    if found.delta[i] < np.inf:
        assert np.linalg.norm(x[allowed] - expected) <= found.delta[i] + 1e-7 * (1 + np.linalg.norm(expected))
    elif len(M) >= M.shape[1] > 0:
        assert not np.linalg.cond(M) < 1e5
    return found.delta[i] < np.inf


@pytest.mark.sim
@pytest.mark.parametrize("shape", [(12, 5, 3, 1), (6, 9, 2, 2)])
def test_systems_on_any_device(device, shape):
    random = np.random.default_rng(sum(shape))
    A, B, which, _ = case(random, *shape)
    own = {
        "weights": random.uniform(0.2, 2.0, B.shape),
        "allowed": random.random((len(B), A.shape[2])) < 0.8,
        "start": random.random((len(B), A.shape[2])) < 0.4,
    }
    found = unmix.nnls(A, B, dictionary=which, device=device, threads=1, **own)
    for i, k in enumerate(which):
        check_one(A[k], B[i], own, i, found.x[i], found, lambda M, b: scipy_nnls(M, b, maxiter=10000)[0])


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_systems_against_scipy(seed):
    random = np.random.default_rng(seed)
    m, n, N, K = (int(random.integers(1, most)) for most in (25, 15, 8, 4))
    A, B, which, own = case(random, m, n, N, K)
    found = unmix.nnls(A, B, dictionary=which, **own)
    for i, k in enumerate(which):
        check_one(A[k], B[i], own, i, found.x[i], found, lambda M, b: scipy_nnls(M, b, maxiter=10000)[0])


def with_shade(M, b):
    return fcls(np.column_stack([M, np.zeros(len(M))]), b)[:-1]


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=40)
@pytest.mark.parametrize(
    ("method", "reference"), [("nnls", lambda M, b: scipy_nnls(M, b)[0]), ("fcls", fcls), ("pcls", with_shade)]
)
def test_pixels_against_scipy(method, reference, seed):
    random = np.random.default_rng(seed)
    L, p, N = int(random.integers(2, 40)), int(random.integers(1, 12)), int(random.integers(1, 8))
    E = random.random((L, p))
    Y = random.dirichlet(np.ones(p) * 0.4, N) * random.uniform(0.5, 1.2, (N, 1)) @ E.T
    Y += 0.02 * random.standard_normal((N, L))
    own = {
        "weights": 10.0 ** random.uniform(-2, 2, (N, L)),
        "allowed": random.random((N, p)) < 0.7,
        "start": random.random((N, p)),
    }
    own["allowed"][:, 0] = True
    own = {name: own[name] for name in own if random.random() < 0.7} or {"weights": own["weights"]}
    found = unmix.solve(Y, E, method=method, **own)
    for i in range(N):
        check_one(E, Y[i], own, i, found.abundances[i], found, reference)


def test_most_are_proved():
    """δ is finite for systems with matrices of their own, where it was infinite, and with more columns than rows."""
    random = np.random.default_rng(2)
    A = random.random((200, 30, 12))
    X = random.random((200, 12)) * (random.random((200, 12)) < 0.4)
    found = unmix.nnls(A, np.einsum("kmn,kn->km", A, X) + 0.01 * random.standard_normal((200, 30)))
    assert np.median(found.delta) < 1e-10 and np.isfinite(found.delta).all()
    wide = random.random((20, 60))
    found = unmix.nnls(wide, 0.5 * wide[:, :20] @ np.diag(np.ones(20)) + 0.3)
    assert np.isfinite(found.delta).mean() > 0.3


def test_a_start_changes_steps_and_no_answer():
    random = np.random.default_rng(3)
    A = random.random((40, 20))
    B = random.random((50, 20)) @ A.T + 0.3 * random.standard_normal((50, 40))
    cold, weights = unmix.nnls(A, B), np.ones_like(B)
    warm = unmix.nnls(A, B, start=cold.x)
    far = unmix.nnls(A, B, start=cold.x == 0, weights=weights)
    assert (warm.steps <= cold.steps).all() and warm.steps.sum() < cold.steps.sum()
    for other in (warm, far, unmix.nnls(A, B, weights=weights)):
        np.testing.assert_allclose(other.x, cold.x, atol=1e-10)


def test_one_row_is_that_of_all():
    random = np.random.default_rng(4)
    E = random.random((15, 4))
    Y = random.random((2, 3, 4)) @ E.T
    weights, allowed = random.random(15), np.array([True, False, True, True])
    of_all = unmix.solve(Y, E, method="fcls", weights=weights, allowed=allowed)
    each = unmix.solve(
        Y, E, method="fcls", weights=np.broadcast_to(weights, Y.shape), allowed=np.broadcast_to(allowed, (2, 3, 4))
    )
    assert of_all.abundances.shape == (2, 3, 4) and (of_all.abundances[..., 1] == 0).all()
    np.testing.assert_array_equal(of_all.abundances, each.abundances)
    scaled = unmix.solve(Y, E, method="nnls", weights=weights)
    root = np.sqrt(weights)
    np.testing.assert_allclose(
        scaled.abundances, unmix.solve(Y * root, E * root[:, None], method="nnls").abundances, atol=1e-9
    )


@pytest.mark.parametrize("method", ["nnls", "fcls", "pcls"])
def test_one_pixel_and_weights_of_any_size(method):
    random = np.random.default_rng(7)
    E, y, weights = random.random((15, 4)), random.random(15), random.random(15)
    one = unmix.solve(y, E, method=method, weights=weights, allowed=[True] * 4, start=np.ones(4))
    assert one.abundances.shape == (4,) and one.kappa <= 1e-10 and one.delta < 1e-10
    for size in (1e-280, 1e280):
        other = unmix.solve(y, E, method=method, weights=weights * size)
        np.testing.assert_allclose(other.abundances, one.abundances, rtol=1e-9, atol=1e-12)
        assert other.kappa <= 1e-10 and other.delta < 1e-10
        assert other.rmse == pytest.approx(one.rmse * np.sqrt(size), rel=1e-9)
    refused(unmix.CubeError, "weights must have a row for each pixel", unmix.solve, y, E, method=method, weights=2.0)


def test_a_row_of_weights_that_is_not_finite_is_named():
    Y, weights = np.ones((5, 3)), np.ones((5, 3))
    Y[0], weights[0], weights[3, 1] = np.nan, np.nan, np.nan
    refused(unmix.InputError, "first in row 3", unmix.solve, Y, np.eye(3), method="nnls", weights=weights)


def test_missing_pixels_and_fractions():
    random = np.random.default_rng(5)
    E, Y = random.random((15, 4)), random.random((5, 15))
    Y[2, 3], weights = np.nan, random.random((5, 15))
    found = unmix.solve(Y, E, method="nnls", normalize="sum", weights=weights)
    assert found.valid.tolist() == [True, True, False, True, True]
    assert np.isnan([*found.abundances[2], found.rmse[2], found.scale[2]]).all() and found.steps[2] == -1
    np.testing.assert_allclose(found.abundances[found.valid].sum(axis=1), 1.0)


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_numbers_of_any_size(size):
    random = np.random.default_rng(6)
    A, B, weights = random.random((10, 4)), random.random((3, 10)), random.random((3, 10))
    plain = unmix.nnls(A, B, weights=weights)
    np.testing.assert_allclose(unmix.nnls(A * size, B, weights=weights).x * size, plain.x, rtol=1e-12)
    heavy = unmix.nnls(A, B, weights=weights * size)
    np.testing.assert_allclose(heavy.x, plain.x, rtol=1e-12)
    np.testing.assert_allclose(heavy.rmse, plain.rmse * np.sqrt(size), rtol=1e-9)


@pytest.mark.parametrize(
    ("words", "error", "text"),
    [
        ({"weights": -np.ones(10)}, unmix.InputError, "weights are negative, first in row 0"),
        ({"weights": np.full((3, 10), np.nan)}, unmix.InputError, "weights holds values that are not finite"),
        (
            {"weights": np.ones((2, 10))},
            unmix.InputError,
            r"weights must be \(3, 10\) or \(10,\), but has shape \(2, 10\)",
        ),
        ({"allowed": np.ones(4)}, unmix.InputError, "allowed must be bool, but is float64"),
        ({"start": np.ones((3, 5))}, unmix.InputError, "start must be"),
        ({"dictionary": np.array([0, 1, 0])}, unmix.InputError, "from 0 to 0, those of the matrices"),
        ({"dictionary": np.zeros(3)}, unmix.InputError, "must be 3 whole numbers, but is float64"),
    ],
)
def test_wrong_arrays(words, error, text):
    refused(error, text, unmix.nnls, np.ones((10, 4)), np.ones((3, 10)), **words)


@pytest.mark.parametrize(
    ("words", "error", "text"),
    [
        (
            {"method": "ucls", "weights": np.ones(10)},
            unmix.MethodError,
            "weights is for `method` nnls, fcls, pcls, not ucls",
        ),
        ({"method": "nnls", "l1": 0.1, "weights": np.ones(10)}, unmix.MethodError, "`l1` does not go with weights"),
        (
            {"method": "nnls", "at_most": 2, "start": np.ones(4)},
            unmix.MethodError,
            "`at_most` does not go with start",
        ),
        ({"method": "nnls", "weights": np.ones((2, 10))}, unmix.CubeError, "weights must have a row for each pixel"),
        ({"method": "fcls", "allowed": np.zeros(4, bool)}, unmix.MethodError, "allowed leaves a pixel no endmember"),
    ],
)
def test_wrong_options(words, error, text):
    refused(error, text, unmix.solve, np.ones((3, 10)), np.random.default_rng(0).random((10, 4)), **words)


@pytest.mark.parametrize("nearly", [0.0, 1e-7, 1e-5, 1e-4, 1e-2])
def test_few_columns_and_many_rows(nearly, monkeypatch):
    """The search by the Gram matrix, and what it declines: nearly dependent columns, and answers that are not well solved."""
    from unmix.solvers.nnls import gram

    random = np.random.default_rng(11)
    for n in (1, 2, 5, 16):
        A, N = random.random((160, n)), 40
        if n > 2:
            A[:, 1] = A[:, 0] * (1.0 + nearly * random.standard_normal(160))
            A[:, 2] = 0.0
        X = random.exponential(1.0, (N, n)) * (random.random((N, n)) < 0.6)
        B = X @ A.T + 10.0 ** random.uniform(-9, 0, (N, 1)) * random.standard_normal((N, 160))
        B[0] = 0.0
        weights = 10.0 ** random.uniform(-2, 2, (N, 160)) * (random.random((N, 160)) < 0.9)
        own = {"weights": weights, "allowed": random.random((N, n)) < 0.9, "start": X}
        assert gram.serves(*A.shape)
        found = unmix.nnls(A, B, **own)
        monkeypatch.setattr(gram, "serves", lambda m, n: False)
        expected = unmix.nnls(A, B, **own)
        monkeypatch.undo()
        assert len(found.failed) == 0 and not found.x[~own["allowed"]].any()
        finite = np.isfinite(expected.delta)
        assert np.array_equal(np.isfinite(found.delta), finite)
        off = np.linalg.norm(found.x - expected.x, axis=1)
        assert np.all(off[finite] <= (found.delta + expected.delta)[finite])
        scale = np.sqrt((weights * B**2).mean(axis=1))
        np.testing.assert_allclose(found.rmse, expected.rmse, rtol=1e-9, atol=1e-12 * scale.max())
