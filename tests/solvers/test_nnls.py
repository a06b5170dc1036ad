"""Batches of non-negative systems by an updated QR: against scipy, and against their own optimality conditions."""

import definitions
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import toeplitz as scipy_toeplitz
from scipy.optimize import nnls as scipy_nnls

import unmix
from unmix.arrays.nnls import nnls, toeplitz


def gaussians(m, sigma=4.32):
    """Luo and Duraiswami's pulses (2011), each shifted by one: numerically of rank m/1.7."""
    places = np.arange(m)
    return np.exp(-0.5 * ((places[:, None] - places) / sigma) ** 2)


def shifted_pulses(random):
    A = toeplitz(np.exp(-0.5 * ((np.arange(15) - 7) / 2.5) ** 2), 64)
    return A, (random.random((6, 64)) < 0.1) @ A.T + 0.01 * random.random((6, 64))


# Matrices and right-hand sides.
FAMILIES = {
    "gaussian": lambda random: (gaussians(60), random.random((6, 60))),
    "random": lambda random: (random.random((40, 40)), random.random((6, 40))),
    "signed": lambda random: (random.standard_normal((50, 20)), random.standard_normal((6, 50))),
    "toeplitz": shifted_pulses,
    "low rank": lambda random: (random.random((50, 8)) @ random.random((8, 30)), random.random((6, 50))),
    "wide": lambda random: (random.random((20, 90)), random.random((6, 20))),
    "twice": lambda random: (np.pad(np.tile(random.random((30, 10)), 2), ((0, 0), (0, 1))), random.random((6, 30))),
}


def check(A, B, found):
    """Certified, and as close as scipy (at least 1.16) comes."""
    assert found.kappa.max() <= 1e-10 and found.x.min() >= 0 and found.failed.size == 0
    for i, b in enumerate(B):
        own = A[i] if A.ndim == 3 else A
        left = np.linalg.norm(b - own @ found.x[i])
        assert left <= scipy_nnls(own, b, maxiter=10000)[1] + 1e-8 * np.linalg.norm(b)
        assert found.rmse[i] == pytest.approx(left / np.sqrt(len(b)), rel=1e-9, abs=1e-12)
        if own.any(axis=0).all():
            assert definitions.of_pixel(own, b, found.x[i], False, True, gaps=False)[1] <= 1e-10


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.parametrize("name", ["gaussian", "signed", "wide"])
def test_small_systems_on_every_device(device, name):
    A, B = FAMILIES[name](np.random.default_rng(1))
    A, B = A[:6, :8], B[:2, :6]
    check(A, B, nnls(A, B, device=device))
    each = np.stack([A, A[::-1]])
    check(each, B, nnls(each, B, device=device))


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("count", [1, 6])
def test_every_family_is_certified(name, count):
    """With the Gram matrix and without: few systems do not make it."""
    A, B = FAMILIES[name](np.random.default_rng(0))
    check(A, B[:count], nnls(A, B[:count]))


@pytest.mark.gpu
@pytest.mark.parametrize("name", FAMILIES)
def test_the_gpu_agrees(name):
    A, B = FAMILIES[name](np.random.default_rng(0))
    here, there = nnls(A, B), nnls(A, B, device="cuda")
    check(A, B, there)
    np.testing.assert_allclose(here.rmse, there.rmse, atol=1e-10)
    if name in ("random", "signed"):  # one optimum
        np.testing.assert_allclose(here.x, there.x, atol=1e-8)
    each = np.stack([A * (1 + k) for k in range(len(B))])
    check(each, B, nnls(each, B, device="cuda"))


@settings(max_examples=60)
@given(st.integers(1, 14), st.integers(1, 20), st.integers(0, 2**32 - 1), st.integers(0, 3))
def test_any_shape(m, n, seed, kind):
    """Columns that are zero, equal, or of very different sizes."""
    random = np.random.default_rng(seed)
    A = random.standard_normal((m, n))
    if kind == 1:
        A[:, random.integers(n, size=n // 2)] = 0
    if kind == 2:
        A = A[:, random.integers(n, size=n)]
    if kind == 3:
        A *= 10.0 ** random.integers(-8, 8, n)
    B = random.standard_normal((5, m))
    check(A, B, nnls(A, B))


@pytest.mark.slow
@pytest.mark.parametrize("of_b", [1e-300, 1e-170, 1e160, 1e300])
@pytest.mark.parametrize("of_a", [1e-300, 1e-170, 1e160, 1e300])
def test_systems_of_any_size(of_a, of_b):
    """Also where each system has its own matrix, and columns of any size beside each other."""
    random = np.random.default_rng(0)
    A, B = random.random((9, 4)), random.random((6, 9))
    plain = nnls(A, B)
    found, each = nnls(A * of_a, B * of_b), nnls(np.stack([A * of_a] * 6), B * of_b)
    if np.log10(of_b) - np.log10(of_a) > 307:
        assert len(found.failed) == 6 and np.isinf(found.delta).all()
        return
    for batch in (found, each):
        np.testing.assert_allclose(batch.x, plain.x * (of_b / of_a), rtol=1e-9, atol=1e-322)
        np.testing.assert_allclose(batch.rmse, plain.rmse * of_b, rtol=1e-6)
        assert len(batch.failed) == 0
    assert np.all(found.delta <= 1e-12 * found.x.max() + 1e-321)
    columns = np.array([of_a, 1.0, of_b, 1e-5])
    np.testing.assert_allclose(nnls(A * columns, B).x * columns, plain.x, rtol=1e-9)


def test_delta_bounds_the_distance():
    random = np.random.default_rng(0)
    A, B = random.standard_normal((30, 10)), random.standard_normal((8, 30))
    found = nnls(A, B)
    assert np.isfinite(found.delta).all() and found.delta.max() < 1e-12
    np.testing.assert_allclose(found.x, np.array([scipy_nnls(A, b)[0] for b in B]), atol=1e-10)
    wide = random.random((5, 9))
    inside, outside = random.random((2, 9)) @ wide.T, random.random((2, 5))
    assert np.isinf(nnls(wide, inside).delta).all()  # no one answer
    assert np.isfinite(nnls(wide, outside).delta).all()


def test_right_hand_sides_of_nothing():
    found = nnls(np.ones((3, 2)), np.zeros((4, 3)))
    assert not found.x.any() and not found.kappa.any() and not found.steps.any()
    assert nnls(np.eye(3), np.empty((0, 3))).x.shape == (0, 3)
    assert nnls(np.eye(3), -np.ones(3)).x.tolist() == [[0, 0, 0]]


def test_shifted_pulses():
    pulse = np.array([1.0, 3, 2])
    np.testing.assert_array_equal(toeplitz(pulse, 5), scipy_toeplitz([1, 3, 2, 0, 0], np.zeros(5)) + np.eye(5) * 0)
    np.testing.assert_array_equal(toeplitz(np.stack([pulse, 2 * pulse]), 5)[1], 2 * toeplitz(pulse, 5))
    assert toeplitz(np.ones(9), 4).shape == (4, 4)


@pytest.mark.parametrize(
    ("A", "B", "text"),
    [
        (np.ones((3, 2)), np.ones((2, 4)), "a right-hand side is a row of 3"),
        (np.ones((2, 3, 2)), np.ones((3, 3)), "A has 2 matrices, but B 3 rows"),
        (np.full((3, 2), np.nan), np.ones(3), "A holds values that are not finite"),
        (np.ones(3), np.ones(3), "must be"),
    ],
)
def test_shapes_that_do_not_go_together(A, B, text):
    with pytest.raises(unmix.InputError, match=text):
        nnls(A, B)


def test_the_papers_pulses_need_no_new_factorisation():
    """512 pulses: some 250 steps a system, columns that leave as well; all by updates."""
    found = nnls(gaussians(256), np.random.default_rng(0).random((4, 256)))
    assert found.kappa.max() <= 1e-14 and found.steps.min() > 60
    assert (found.steps > (found.x > 0).sum(axis=1)).all()


@pytest.mark.slow
def test_the_columns_stay_orthonormal():
    """Pulses that are nearly dependent: one projection alone loses half the digits of Q."""
    from unmix.compiled.jit import ALONE
    from unmix.solvers.nnls.lawson_hanson_qr import Matrix, SystemScratch, nnls_function, scratch_shapes

    A = gaussians(120)
    b = A @ (np.arange(120) % 3 == 0) + 0.01 * np.random.default_rng(0).random(120)
    work, x = SystemScratch(*(np.empty(*each) for each in scratch_shapes(120, 120))), np.empty(120)
    matrix = Matrix(A, np.ascontiguousarray(A.T), A.T @ A, np.linalg.norm(A, axis=0), np.empty(0))
    nnls_function(ALONE)(matrix, b, np.empty(0), work, np.empty(2), x)
    k = int((x > 0).sum())
    assert k > 30
    np.testing.assert_allclose(work.Q[:k] @ work.Q[:k].T, np.eye(k), atol=1e-13)
    np.testing.assert_allclose(np.tril(work.R[:k, :k]) @ work.Q[:k], A.T[work.order[:k]], atol=1e-12)


@pytest.mark.parametrize("kind", ["near", "hilbert", "offset", "powers", "own"])
def test_exact_mixtures_of_nearly_dependent_columns(kind):
    """No column is left out whose dual is rounding, but whose part beside the others holds 1e-8 of b."""
    for seed in range(12):
        random = np.random.default_rng(seed)
        m, n = int(random.integers(20, 80)), int(random.integers(4, 12))
        A = random.uniform(0.1, 1, (m, n))
        if kind in ("near", "own"):
            A[:, -1] = A[:, 0] + 10.0 ** -random.uniform(5, 10) * random.standard_normal(m)
        elif kind == "hilbert":
            A = 1 / (np.arange(m)[:, None] + np.arange(n) + 1)
        elif kind == "offset":
            A = A + 10.0 ** random.uniform(4, 8)
        else:
            A = np.linspace(0, 1, m)[:, None] ** np.arange(n)
        B = random.uniform(0.1, 1, (10, n)) @ A.T
        x = unmix.nnls(np.repeat(A[None], 10, axis=0) if kind == "own" else A, B).x
        left = B.astype(np.longdouble) - x.astype(np.longdouble) @ A.T.astype(np.longdouble)
        assert (np.linalg.norm(left.astype(float), axis=1) <= 2e-14 * np.linalg.norm(B, axis=1)).all(), seed
