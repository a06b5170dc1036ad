"""Multiplicative updates: cost and iterates of Sha et al. 2007, and quadratic programmes against scipy, quadprog and every support."""

import json

import numpy as np
import pytest
import quadprog
import scipy.sparse
from click.testing import CliRunner
from conftest import refused
from definitions import of_every_support
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls as scipy_nnls
from unmix_cli.main import cli

import unmix
from unmix.arrays.groups import groups_on
from unmix.devices import one_device, simulated
from unmix.errors import InputError
from unmix.features.systems.nnqp import certify, nnqp
from unmix.solvers.nnqp.programmes import StepEngine


def engine(device, Q, H):
    """What makes the steps there."""
    with one_device(device) as machine:
        return StepEngine(groups_on(machine, 2, 64, 2), Q, H)


def paper(Q, h, x, count):
    """The loop of Sha et al. 2007 as it stands; the costs before each step, too."""
    costs = []
    for _ in range(count):
        costs.append(0.5 * x @ Q @ x + h @ x)
        up = np.maximum(-h, 0) + np.maximum(-Q, 0) @ x
        x = x * up / (np.maximum(h, 0) + np.maximum(Q, 0) @ x)
    return x, costs


@pytest.mark.sim
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_steps_are_the_papers_and_the_cost_never_rises(device, kind):
    random = np.random.default_rng(0)
    A = random.standard_normal((30, 12))
    Q, H = A.T @ A, random.standard_normal((3, 12)) * 5
    own = scipy.sparse.csr_matrix(Q) if kind == "sparse" else Q
    X, costs = np.full((3, 12), 0.1), []
    steps = engine(device, own, H)
    for _ in range(8):
        costs.append(steps.advance(X, np.array([0, 2]), 3))
    for row, i in enumerate((0, 2)):
        expected, every = paper(Q, H[i], np.full(12, 0.1), 24)
        expected[expected < 1e-7 * expected.max()] = 0
        np.testing.assert_allclose(X[i], expected, rtol=1e-6, atol=1e-12)
        np.testing.assert_allclose([cost[row] for cost in costs], every[2::3], rtol=1e-7)
        assert np.all(np.diff(every) <= 1e-12)
    assert np.all(X[1] == 0.1)
    steps.close()


@pytest.mark.sim
def test_what_has_vanished_is_left_out(device):
    """A place that is zero stays so and is in no product: NaN in its row and column of Q are never met."""
    Q = np.array([[2.0, 1, np.nan], [1, 2, np.nan], [np.nan, np.nan, 1]])
    X = np.array([[0.3, 0.3, 0.0]])
    steps = engine(device, Q, np.array([[-2.0, -2, 1]]))
    steps.advance(X, np.array([0]), 40)
    np.testing.assert_allclose(X, [[2 / 3, 2 / 3, 0]], rtol=1e-6)
    steps.close()


@pytest.mark.sim
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_against_quadprog_and_scipy(device, kind):
    random = np.random.default_rng(1)
    m, n = (12, 6) if simulated() else (80, 30)
    A, B = random.standard_normal((m, n)), random.standard_normal((4, m))
    Q, H = A.T @ A, -B @ A
    found = nnqp(scipy.sparse.coo_matrix(Q) if kind == "sparse" else Q, H, device=device)
    assert found.failed.size == 0 and found.x.min() >= 0 and np.all(found.kappa <= 1e-11)
    for h, b, x, cost in zip(H, B, found.x, found.cost):
        np.testing.assert_allclose(x, quadprog.solve_qp(Q, -h, np.eye(n), np.zeros(n))[0], atol=1e-9)
        np.testing.assert_allclose(x, scipy_nnls(A, b)[0], atol=1e-9)
        assert cost == pytest.approx(0.5 * x @ Q @ x + h @ x)
    assert found.convex


def test_delta_bounds_the_distance():
    random = np.random.default_rng(2)
    Q = np.diag(random.random(9) + 3) + 0.1
    h = random.standard_normal((1, 9))
    best = nnqp(Q, h).x
    off = np.maximum(best + 0.01 * random.standard_normal((1, 9)), 0)
    _, delta, _ = certify(Q, h, off, float(np.linalg.eigvalsh(Q)[0]))
    assert np.linalg.norm(off - best) <= delta[0] < 100 * np.linalg.norm(off - best)
    v = -(Q @ off[0] + h[0])
    size = (np.abs(h[0]) / np.sqrt(np.diag(Q))).max()
    expected = (np.where(off[0] > 0, np.abs(v), np.maximum(v, 0)) / np.sqrt(np.diag(Q)) / size).max()
    assert certify(Q, h, off, 0.0)[0][0] == pytest.approx(expected, rel=1e-9)
    assert certify(Q, h, off, 0.0)[0][0] > 1e-4 and np.isinf(certify(Q, h, off, 0.0)[1][0])
    assert certify(Q, h, -best, 0.0)[0][0] > 1e-3


@settings(max_examples=150)
@given(st.integers(1, 7), st.integers(0, 2**32 - 1), st.sampled_from(["random", "integers", "low rank", "huge"]))
def test_wild_programmes(n, seed, family):
    """Certified ones have the optimum's cost, whatever the support; what is not certified is said to be so."""
    random = np.random.default_rng(seed)
    A = random.integers(-3, 4, (8, n)) * 1.0 if family == "integers" else random.standard_normal((8, n))
    A = A[:, :1] @ random.random((1, n)) + 1e-3 * A if family == "low rank" else A
    A = A * (1e6 if family == "huge" else 1.0)
    A[0, ~A.any(axis=0)] = 1
    b = random.standard_normal(8)
    found = nnqp(A.T @ A, -A.T @ b)
    best = of_every_support(A, b) if np.linalg.matrix_rank(A) == n else scipy_nnls(A, b)[0]
    if found.kappa[0] <= 1e-10 and family != "low rank":
        assert np.linalg.norm(A @ found.x[0] - b) <= np.linalg.norm(A @ best - b) + 1e-8 * np.linalg.norm(b)
    assert found.x.min() >= 0 and np.isfinite(found.x).all()


def test_a_sparse_problem_that_no_dense_solver_holds():
    """n = 20 000: Q in full would take 3.2 GB; checked by its optimality conditions, made here."""
    n, random = 20_000, np.random.default_rng(0)
    places = (
        random.integers(2 * n, size=8 * n),
        random.integers(n, size=8 * n),
    )  # (scipy.sparse.random takes a minute to draw them)
    A = scipy.sparse.coo_matrix((random.random(8 * n), places), (2 * n, n)).tocsr() + scipy.sparse.eye(2 * n, n) * 0.5
    b = random.standard_normal(2 * n)
    Q, h = (A.T @ A).tocsr(), -(A.T @ b)
    found = nnqp(Q, h)
    x, gradient = found.x[0], Q @ found.x[0] + h
    assert found.convex is None and found.kappa[0] <= 1e-10 and found.steps[0] <= 64 and 3000 < (x > 0).sum() < 8000
    assert np.abs(gradient[x > 0]).max() < 1e-8 and gradient.min() > -1e-8


def test_a_step_cap_is_kept_and_what_is_open_is_flagged():
    places = np.arange(120)
    A = np.exp(-0.5 * ((places[:, None] - places) / 4.32) ** 2)
    Q = A.T @ A + 1e-13 * np.eye(120)
    found = nnqp(Q, -A.T @ np.random.default_rng(0).random(120), steps=50)
    assert found.steps[0] == 50 and found.failed.tolist() == [0]


@pytest.mark.parametrize(
    ("Q", "h", "words"),
    [
        (np.eye(2)[:1], [1.0, 1], "square"),
        (np.array([[1.0, 2], [0, 1]]), [1.0, 1], "not symmetric"),
        (np.array([[1.0, 2], [2, 1]]), [1.0, 1], "not convex"),
        (np.array([[1.0, 0], [0, 0]]), [1.0, 1], r"Q\[1, 1\] is 0"),
        (np.eye(2), [1.0], "h has shape"),
        (np.eye(2), [1.0, np.nan], "h holds values that are not finite"),
        (np.full((2, 2), np.inf), [1.0, 1], "Q holds values that are not finite"),
    ],
)
def test_what_is_wrong_is_said(Q, h, words):
    refused(unmix.InputError, words, nnqp, Q, h)


@pytest.mark.parametrize("form", ["npy", "npz"])
def test_from_files_to_files(tmp_path, form):
    random = np.random.default_rng(3)
    A, B = random.standard_normal((30, 8)), random.standard_normal((5, 30))
    if form == "npz":
        scipy.sparse.save_npz(tmp_path / "q.npz", scipy.sparse.csc_matrix(A.T @ A))
    else:
        np.save(tmp_path / "q.npy", A.T @ A)
    np.save(tmp_path / "h.npy", -B @ A)
    words = ["solve", str(tmp_path / f"q.{form}"), str(tmp_path / "h.npy"), "--quadratic", "--device", "cpu", "--json"]
    result = CliRunner().invoke(cli, [*words, "-o", str(tmp_path / "x.npy"), "--memory", "1000"], standalone_mode=False)
    assert result.return_value == 0 and json.loads(result.stdout)["certified"] == 5
    np.testing.assert_allclose(np.load(tmp_path / "x.npy"), [scipy_nnls(A, b)[0] for b in B], atol=1e-9)
    assert np.load(tmp_path / "x_cost.npy").max() < 0
    for wrong, said in (("--toeplitz", "contradict"), ("--steps=0", "range")):
        assert said in str(CliRunner().invoke(cli, [*words, "-o", "y.npy", wrong]).output)
    assert "is for --quadratic" in CliRunner().invoke(cli, ["solve", "a", "b", "-o", "x.npy", "--steps", "5"]).output
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04")
    broken = CliRunner().invoke(cli, ["solve", str(tmp_path / "broken.npz"), *words[2:], "-o", str(tmp_path / "y.npy")])
    assert isinstance(broken.exception, unmix.InputError) and not list(tmp_path.glob("y*"))


@pytest.mark.parametrize("n", [1000, 10_000])
@pytest.mark.parametrize("form", ["sparse", "permuted"])
def test_a_laplacian_is_solved_at_once(n, form):
    """tridiag(-½, 1, -½), h = -1: x_i = i (n + 1 - i), up to 1e7 times h; steps alone need as many as it takes to cross it."""
    ones = np.ones(n)
    Q = scipy.sparse.diags([-0.5 * ones[1:], ones, -0.5 * ones[1:]], [-1, 0, 1]).tocsr()
    place = np.arange(1.0, n + 1)
    expected = place * (n + 1 - place)
    if form == "permuted":
        order = np.random.default_rng(0).permutation(n)
        Q, expected = Q[order][:, order], expected[order]
    found = nnqp(Q, -ones)
    np.testing.assert_allclose(found.x[0], expected, rtol=1e-9)
    assert found.steps[0] == 0 and found.unbounded.size == 0 and found.kappa[0] < 1e-8


def test_an_obstacle_on_a_grid():
    """A Laplacian of two dimensions, pushed up here and down there: the optimality conditions hold."""
    m = 40
    T = scipy.sparse.diags([-np.ones(m - 1), 2 * np.ones(m), -np.ones(m - 1)], [-1, 0, 1])
    Q = (scipy.sparse.kron(T, scipy.sparse.eye(m)) + scipy.sparse.kron(scipy.sparse.eye(m), T)).tocsr()
    h = np.sin(np.arange(m * m) / 37.0) * 0.1
    found = nnqp(Q, h)
    x, gradient = found.x[0], Q @ found.x[0] + h
    assert found.failed.size == 0 and found.steps[0] <= 16 and 0 < (x > 0).sum() < m * m
    assert np.abs(gradient[x > 0]).max() < 1e-9 and gradient.min() > -1e-9


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix])
def test_a_programme_without_a_bottom_is_told_with_the_way_down(kind):
    random = np.random.default_rng(0)
    A = random.standard_normal((3, 8))
    flat = random.random(8)
    A -= np.outer(A @ flat, flat) / (flat @ flat)
    wide = random.standard_normal((8, 8))
    for Q, H in ((np.array([[1.0, -1], [-1, 1]]), np.array([[-1.0, -1], [-1, 1], [2, -3]])), (A.T @ A, wide)):
        found = nnqp(kind(Q), H)
        assert found.unbounded.size > 0 and set(found.unbounded) <= set(found.failed)
        for i, h in enumerate(H):
            if i in found.ways_down:
                d = found.ways_down[i]
                assert d.min() >= 0 and np.abs(Q @ d).max() < 1e-10 and h @ d < -1e-3
                assert np.linalg.norm(d) == pytest.approx(1)
                assert found.cost[i] == -np.inf and found.kappa[i] == np.inf and found.steps[i] < 10_000
            else:
                assert found.kappa[i] <= 1e-10 and (len(h) == 2 or h @ flat > 0)  # certified: it has a bottom


def test_every_small_programme_without_a_bottom():
    """Of rank 1 to n - 1 with small whole numbers: by a direction, or certified; no other answer."""
    found = nnqp(np.outer([-4.0, -2, 3], [-4.0, -2, 3]), np.array([2.0, -1, -3]))
    np.testing.assert_allclose(found.ways_down[0], np.array([0, 3, 2]) / np.sqrt(13), atol=1e-12)
    random = np.random.default_rng(0)
    bounded = 0
    for _ in range(150):
        n = int(random.integers(2, 8))
        M = random.integers(-4, 5, (int(random.integers(1, n)), n)).astype(float)
        M[0, ~M.any(axis=0)] = 1.0
        h = random.integers(-3, 4, n).astype(float)
        found = nnqp(M.T @ M, h)
        if found.ways_down:
            d = found.ways_down[0]
            assert d.min() >= 0 and np.abs(M @ d).max() < 1e-12 and h @ d < -1e-6
        else:
            bounded += 1
            assert found.kappa[0] <= 1e-10
    assert 20 < bounded < 130


@pytest.mark.parametrize("of_h", [1e-300, 1e-160, 1.0, 1e160, 1e300])
@pytest.mark.parametrize("of_q", [1e-300, 1e-160, 1.0, 1e160, 1e300])
def test_any_size_of_a_programme(of_q, of_h):
    Q, h = np.array([[2.0, 1], [1, 3]]) * of_q, np.array([-2.0, 1]) * of_h
    found = nnqp(Q, h)
    size = np.log10(of_h) - np.log10(of_q)
    if size < 308:
        np.testing.assert_allclose(found.x, [[of_h / of_q, 0]], rtol=1e-12, atol=1e-322)
        assert found.failed.size == 0 and found.delta[0] <= 1e-14 * found.x.max() + 1e-322
    else:
        assert found.failed.tolist() == [0] and np.isinf(found.delta[0])


def test_what_is_solved_stops():
    """Singular, and solved: by the first trial, or by the first steps."""
    for h in ([-1.0, -1.0], [-1.0, -2.0], [-2.0, -2.0]):
        found = nnqp(np.ones((2, 2)), np.array(h))
        assert found.kappa[0] <= 1e-11 and found.steps[0] <= 16


def test_no_bottom_on_the_command_line(tmp_path):
    np.save(tmp_path / "q.npy", np.array([[1.0, -1], [-1, 1]]))
    np.save(tmp_path / "h.npy", np.array([[-1.0, 1], [-1, -1]]))
    words = ["solve", str(tmp_path / "q.npy"), str(tmp_path / "h.npy"), "--quadratic", "--device", "cpu", "--json"]
    words += ["-o", str(tmp_path / "x.npy"), "--memory", "100"]  # one at a time
    result = CliRunner().invoke(cli, words, standalone_mode=False)
    assert result.return_value == 1 and json.loads(result.stdout)["unbounded"] == [1]
    assert "system 1 is unbounded" in result.output and "d[0] = 0.707" in result.output


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_entries_that_float64_cannot_hold_together(sign):
    """They are refused; what has its optimum near float64's end has a κ or δ that certifies nothing, or is right."""
    refused(InputError, "differ by more than float64", unmix.nnqp, np.diag([5e-324, 1e300]), np.array([sign, -1.0]))
    found = unmix.nnqp(np.diag([1e-300, 1.0]), np.array([[sign * 1e300, -1.0], [sign, -1.0]]))
    assert found.delta.min() >= 1e280  # of x up to 1e300
    if sign < 0:
        assert found.kappa[0] == np.inf and found.x[1, 0] == pytest.approx(1e300)
