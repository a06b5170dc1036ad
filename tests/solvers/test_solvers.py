"""Every method and solver on every device, against naive readings and against scipy and quadprog."""

import subprocess
import sys

import naive
import numpy as np
import pytest
import quadprog
from conftest import mix, rest_slow
from definitions import of_every_support
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import nnls
from test_certificate import plan

import unmix
from unmix.certificate import CERTIFIED
from unmix.devices import count_gpus, simulated
from unmix.methods import METHODS
from unmix.problem import PLANNED_UP_TO, WORST_CONDITION

DEVICES = [name for name in ("cpu", "cuda") if (name == "cpu") != simulated() and (name == "cpu" or count_gpus())]
FCLS = np.array([[3.0, 3, 4], [0, 5, 7], [0, 2, 2], [4, 2, 0]]), np.array([4.0, 8, 8, 2])
NNLS = np.array([[1.0, 2, 0], [1, 0, 1], [2, 0, 6], [3, 0, 9]]), np.array([5.0, 8, 4, 7])
QUICK = ("active-set", "direct")  # each of the others is compiled for 3 to 12 s


def slow_unless_quick(*values):
    """A case of a test, whose last value is a solver."""
    return pytest.param(*values, marks=[] if values[-1] in QUICK else [pytest.mark.slow])


PAIRS = [slow_unless_quick(m.name, s) for m in METHODS.values() for s in m.solvers]


@pytest.mark.sim
@pytest.mark.parametrize(
    ("method", "solver"), [slow_unless_quick(m, s) for m in ("fcls", "nnls") for s in METHODS[m].solvers]
)
def test_counter_examples(device, method, solver):
    """Where the paper's Algorithm 3 is not the optimum, it is reproduced; the exact solvers are exact."""
    (E, y), paper, best, paper_norm, best_norm = {
        "fcls": (FCLS, (0, 1, 0), (0, 2 / 9, 7 / 9), 6.782, 6.368),
        "nnls": (NNLS, (2.8, 0, 0), (2.642857142857143, 1.1785714285714286, 0), 6.033, 5.587),
    }[method]
    found = unmix.solve(y, E, method=method, solver=solver, device=device)
    answer, norm = (paper, paper_norm) if solver == "delete-only" else (best, best_norm)
    np.testing.assert_allclose(found.abundances, answer, atol=1e-12)
    assert np.linalg.norm(y - E @ found.abundances) == pytest.approx(norm, abs=5e-4)
    assert (found.kappa <= CERTIFIED) == (solver != "delete-only")


@pytest.mark.sim
@pytest.mark.parametrize(("method", "solver"), PAIRS)
@pytest.mark.parametrize("p", [1, 2, 5])
def test_against_every_support(device, method, solver, p):
    row = METHODS[method]
    for seed in range(3 if simulated() else min(settings.default.max_examples, 60) // 2):
        random = np.random.default_rng([p, seed])
        E = random.standard_normal((7, p)) + random.choice([0.0, 2.0])
        Y = random.standard_normal((3, 7)) * random.choice([0.1, 1.0, 30.0]) + random.choice([0.0, 2.0])
        for y, a in zip(Y, unmix.solve(Y, E, method=method, solver=solver, device=device).abundances):
            if solver == "delete-only":
                expected = naive.delete_only(E, y, row.constraint.sum_to_one)
            else:
                expected = of_every_support(E, y, method)
            np.testing.assert_allclose(a, expected, atol=1e-7 * max(1, np.abs(expected).max()))


@st.composite
def problems(draw):
    """Endmembers and pixels of odd sizes and values: zeros, ties, repeats, huge and tiny scales."""
    L, p = draw(st.integers(1, 8)), draw(st.integers(1, 6))
    p = min(p, L)
    values = st.one_of(st.integers(-4, 4).map(float), st.floats(-3, 3, width=32))
    E = draw(arrays(np.float64, (L, p), elements=values))
    Y = draw(arrays(np.float64, (draw(st.integers(1, 70)), L), elements=values))
    return E * draw(st.sampled_from([1e-3, 1.0, 1e4])), Y * draw(st.sampled_from([0.0, 1e-3, 1.0, 1e4]))


def opposed(E):
    """Whether some mixture of endmembers that lack full rank is zero: any answer has neighbours without end, and none is certified."""
    unit = E / np.linalg.norm(E, axis=0)
    left = nnls(np.vstack([unit, np.ones(E.shape[1])]), np.append(np.zeros(len(E)), 1.0))[1]
    rank = np.linalg.matrix_rank(E, tol=np.linalg.norm(E, 2) / WORST_CONDITION)
    return left < 1e9 * 2.0**-53 and rank < E.shape[1]


# Of the wild problems, the share that may be refused, for a column of zeros or two that are alike: 25 of 300 are.
MOST_REFUSED = 0.2


@pytest.mark.skipif(simulated(), reason="the simulator has its own cases")
@pytest.mark.parametrize("solver", [slow_unless_quick(solver) for solver in ("active-set", "inverse")])
@pytest.mark.slow
def test_wild_problems_are_certified(solver):
    refused = []

    @settings(max_examples=300, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
    @given(problems(), st.sampled_from(["nnls", "fcls"]))
    def is_certified(problem, method):
        E, Y = problem
        for name in DEVICES:
            try:
                found = unmix.solve(Y, E, method=method, solver=solver, device=name)
            except unmix.LibraryError as error:
                assert any(words in str(error) for words in ("collinear", "is zero", "rescale it"))
                refused.append(True)
                return
            assert found.valid.all()
            assert np.all(found.abundances >= 0)
            # Nor are pixels of which the rounding of abundances to float64 leaves more: of 3e6 times the pixel's size.
            left = found.abundances @ np.linalg.norm(E, axis=0) * 2.0**-53 > CERTIFIED * np.linalg.norm(Y, axis=1)
            assert np.all(left | (found.kappa <= CERTIFIED)) or (method == "nnls" and opposed(E)), (
                found.kappa.max(),
                E.tolist(),
            )
            if method == "fcls":
                np.testing.assert_allclose(found.abundances.sum(axis=1), 1, atol=1e-9)
        refused.append(False)

    is_certified()
    assert len(refused) >= 300 and np.mean(refused) <= MOST_REFUSED


@pytest.mark.sim
def test_against_scipy_and_quadprog(device):
    random = np.random.default_rng(5)
    N, L, p = (4, 12, 7) if simulated() else (300, 60, 16)
    E = random.random((L, p)) + 0.1
    Y = random.dirichlet(np.full(p, 0.3), N) @ E.T + 0.02 * random.standard_normal((N, L))
    expected = np.array([nnls(E, y)[0] for y in Y])
    np.testing.assert_allclose(unmix.solve(Y, E, method="nnls", device=device).abundances, expected, atol=1e-9)
    constraints = np.hstack([np.ones((p, 1)), np.eye(p)])
    expected = [quadprog.solve_qp(E.T @ E, E.T @ y, constraints, np.append(1.0, np.zeros(p)), 1)[0] for y in Y]
    np.testing.assert_allclose(unmix.solve(Y, E, method="fcls", device=device).abundances, expected, atol=1e-9)


@pytest.mark.sim
@pytest.mark.parametrize("method", ["nnls", "fcls"])
def test_a_pixel_starts_from_its_neighbour_without_a_trace(device, method):
    """Noise-free mixtures with a spare column pass with several supports; the abundances are one all the same."""
    random = np.random.default_rng(2)
    E = random.random((9, 6))
    A = np.zeros((5 if simulated() else 50, 6))
    for row in A:
        row[random.choice(5, 2, replace=False)] = 0.3, 0.7
    Y = A @ E.T
    together = unmix.solve(Y, E, method=method, device=device).abundances
    np.testing.assert_allclose(together, A, atol=1e-12)
    apart = np.array([unmix.solve(y, E, method=method, device=device).abundances for y in Y])
    np.testing.assert_allclose(together, apart, atol=1e-12)


@pytest.mark.sim
@pytest.mark.parametrize("p", rest_slow([3, 33, 64, 80], 3, 80))
def test_many_endmembers(device, p):
    _, E, Y = mix(p, 2 if simulated() else 50, p + 5, p, (0, 1), alpha=0.1)
    if simulated() and p > 33:
        pytest.skip("minutes in the simulator")
    assert unmix.solve(Y, E, device=device).kappa.max() <= CERTIFIED


@pytest.mark.sim
def test_dark_and_missing_pixels(device):
    E, _ = NNLS
    Y = np.array([[0.0, 0, 0, 0], [np.nan, 1, 1, 1], [1, np.inf, 1, 1], [5, 8, 4, 7]])
    found = unmix.solve(Y, E, method="nnls", device=device)
    assert found.valid.tolist() == [True, False, False, True]
    np.testing.assert_array_equal(found.abundances[0], 0)
    assert found.kappa[0] == 0
    assert np.isnan(found.abundances[1:3]).all()
    np.testing.assert_allclose(found.abundances[3], [2.642857142857143, 1.1785714285714286, 0])
    assert unmix.solve(Y, E, method="fcls", device=device).kappa[0] <= CERTIFIED


COUNTING = """
import sys
import numpy as np
from unmix.solvers.pixels import active_set, active_set_extended, scalar
counts = dict(solves=0, adds=0)
def counted(name, function):
    def call(*arguments, **options):
        counts[name] += 1
        return function(*arguments, **options)
    return call
scalar.solve_on_support = counted("solves", scalar.solve_on_support)
active_set_extended.factor = counted("solves", active_set_extended.factor)
scalar.add_column = counted("adds", scalar.add_column)
make = active_set.sweep_function
active_set.sweep_function = lambda ops: counted("adds", make(ops))
for name in ("inv", "qr", "cholesky", "solve", "lstsq", "svd"):
    setattr(np.linalg, name, counted("solves", getattr(np.linalg, name)))
import unmix
random = np.random.default_rng(0)
E = random.random((10, 6))
Y = random.dirichlet(np.full(6, 0.3), 40) @ E.T + 0.05 * random.standard_normal((40, 10))
for pair in sys.argv[1:]:
    method, solver = pair.split()
    before = dict(counts)
    unmix.solve(Y[:1], E, method=method, solver=solver)
    once = counts["solves"] - before["solves"]
    unmix.solve(np.vstack([Y[:1], Y]), E, method=method, solver=solver)
    print(counts["solves"] - before["solves"] - 2 * once, counts["adds"] - before["adds"])
"""


def test_at_most_one_factorisation_a_pixel():
    """Counted in plain Python: QRs on a support and calls to numpy's factorisations, beyond those of planning."""
    pairs = [(m.name, s) for m in METHODS.values() for s in m.solvers if m.name != "pcls"]
    environment = {"NUMBA_DISABLE_JIT": "1", "PATH": "/usr/bin:/bin"}
    words = [sys.executable, "-c", COUNTING, *map(" ".join, pairs)]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=True)
    for (_, solver), line in zip(pairs, done.stdout.splitlines(), strict=True):
        factorisations, adds = map(int, line.split())
        assert factorisations == 0, solver  # beyond a plan, and another with one pixel
        assert adds > 0 or solver in ("delete-only", "direct"), solver


@pytest.mark.parametrize("method", ["nnls", "fcls"])
@pytest.mark.parametrize("solver", [slow_unless_quick(solver) for solver in ("active-set", "inverse")])
@pytest.mark.parametrize("spread", [1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6])
def test_nearly_collinear_endmembers(method, solver, spread):
    """Up to cond(E) 1e8 the abundances of exact mixtures come back: a small κ alone would not see to that."""
    random = np.random.default_rng(1)
    E = random.random((60, 1)) + 0.2 + spread * random.standard_normal((60, 6))
    A = np.zeros((150, 6))
    for row in A:
        row[random.choice(6, random.integers(1, 4), replace=False)] = 1
    A *= random.random(A.shape)
    A /= A.sum(axis=1, keepdims=True)
    found = unmix.solve(A @ E.T, E, method=method, solver=solver)
    np.testing.assert_allclose(found.abundances, A, atol=2e-6)
    assert found.kappa.max() <= CERTIFIED


@pytest.mark.parametrize("size", [1e-170, 1e155, 1e200, 1e300])
def test_what_float64_cannot_square_is_never_certified_wrongly(size):
    E, y = NNLS
    found = unmix.solve(np.array([y * size]), E, method="nnls")
    right = np.allclose(found.abundances / size, [[2.642857142857143, 1.1785714285714286, 0]])
    assert right or found.kappa[0] > CERTIFIED


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"method": "magic"}, unmix.MethodError, "ucls, scls, nnls, fcls"),
        ({"solver": "magic"}, unmix.MethodError, "active-set"),
        ({"method": "ucls", "solver": "inverse"}, unmix.MethodError, "direct"),
        ({"device": "cuda:99"}, unmix.DeviceError, "`device` cpu"),
        ({"device": "tpu"}, unmix.MethodError, "cuda:K"),
    ],
)
def test_what_does_not_go_together_is_named(arguments, error, text):
    with pytest.raises(error, match=text.replace("(", r"\(")):
        unmix.solve(np.ones(4), FCLS[0], **arguments)


# Those that refuse what the other solvers take, and whether cond(E) is that of spectra less their mean.
PICKY = [
    ("ucls", "direct", False),
    ("nnls", "inverse", False),
    ("nnls", "delete-only", False),
    ("scls", "direct", True),
    ("fcls", "inverse", True),
    ("fcls", "delete-only", False),
]


@pytest.mark.parametrize(("method", "solver", "from_mean"), PICKY)
def test_spectra_that_some_solvers_refuse(method, solver, from_mean):
    """More than bands, and cond(E) above 1e8."""
    random = np.random.default_rng(0)
    with pytest.raises(unmix.LibraryError, match="4 endmembers for 3 bands"):
        plan(random.random((3, 4)), method, solver)
    Q, V = (np.linalg.qr(random.standard_normal((n, 4)))[0] for n in (30, 4))
    for condition, fits in ((9e7, True), (1.2e8, False)):
        E = Q * np.geomspace(1, 1 / condition, 4) @ V
        if from_mean:  # of 3 differences; a large mean does not count
            D = Q[:, :3] * np.geomspace(1, 1 / condition, 3) @ np.linalg.svd(np.ones((1, 4)))[2][1:]
            E = D + 100.0 * Q[:, [3]]
        if fits:
            plan(E, method, solver)
            continue
        with pytest.raises(unmix.LibraryError, match=r"cond\(E\) = 1.2e\+08: .* above the limit of 1e\+08"):
            plan(E, method, solver)


@pytest.mark.parametrize("method", ["ucls", "scls"])
def test_least_squares_is_one_product_up_to_a_condition(method):
    random = np.random.default_rng(0)
    Q, V = (np.linalg.qr(random.standard_normal((n, 4)))[0] for n in (30, 4))
    E = {condition: Q * np.geomspace(1, 1 / condition, 4) @ V for condition in (100.0, 1e7)}
    assert [plan(one, method).pixel for one in E.values()] == ["planned", "direct"]
    assert PLANNED_UP_TO == 1e4


def test_unfit_endmembers():
    with pytest.raises(unmix.LibraryError, match="4 endmembers for 3 bands"):
        unmix.solve(np.ones(3), np.random.default_rng(0).random((3, 4)), solver="inverse")
    E = np.random.default_rng(0).random((9, 3))
    for method, column in (("nnls", E[:, 0] + E[:, 2]), ("fcls", (E[:, 0] + E[:, 2]) / 2)):
        with pytest.raises(unmix.LibraryError, match=r"endmember 4, endmember [13], endmember [13]:"):
            unmix.solve(np.ones(9), np.column_stack([E, column]), method=method, solver="inverse")
    with pytest.raises(unmix.CubeError, match=r"\(\.\.\., 9\)"):
        unmix.solve(np.ones(8), E)


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.parametrize("kind", ["more than bands", "collinear", "zero pixel"])
def test_any_rank(device, kind):
    """Certified in the fit, with the residual of scipy; where δ is finite, the answer by QR is within it."""
    random = np.random.default_rng(0)
    E = random.random((6, 10 if kind == "more than bands" else 4))
    if kind == "collinear":
        E[:, 3] = E[:, 0] + E[:, 1]
    Y = random.random((3, 6))
    if kind == "zero pixel":
        Y[1] = 0
    found, other = unmix.solve(Y, E, method="nnls", device=device), unmix.nnls(E, Y)
    assert found.kappa.max() <= CERTIFIED and found.abundances.min() >= 0
    assert np.isfinite(found.delta).all() or kind != "zero pixel"
    assert np.all(np.linalg.norm(found.abundances - other.x, axis=1) <= found.delta + other.delta)
    for y, a in zip(Y, found.abundances):
        assert np.linalg.norm(y - E @ a) <= nnls(E, y)[1] + 1e-10


@pytest.mark.parametrize("method", ["nnls", "fcls"])
def test_stored_numbers_beside_reflectance_are_refused(method):
    """Whole numbers 10 000 times as large as spectra, as files store them; as float they are meant."""
    random = np.random.default_rng(0)
    E, A = random.random((12, 3)), random.dirichlet(np.ones(3), 50)
    Y = A @ E.T
    with pytest.raises(unmix.CubeError, match=r"whole numbers, .* times as large as the endmembers"):
        unmix.solve((10_000 * Y).astype(np.int16), E, method=method)
    found = unmix.solve((10_000 * Y).astype(np.int16) / 10_000, E, method=method)
    np.testing.assert_allclose(found.abundances, A, atol=2e-3)
    unmix.solve((10_000 * Y).astype(np.int16).astype(float), E, method="nnls")
    masked = np.ma.array((10_000 * Y).astype(np.int16), mask=np.arange(50)[:, None] < 5 + np.zeros(12))
    for solve in (unmix.solve, unmix.mesma):
        words = {"classes": ["a", "b", "c"]} if solve is unmix.mesma else {"method": method}
        with pytest.raises(unmix.CubeError, match=r"whole numbers, .* times as large"):
            solve(masked if solve is unmix.solve else masked.data, E, **words)
