"""Libraries of many spectra, also more than bands: the working set against scipy, quadprog and the optimality conditions."""

import numpy as np
import pytest
import quadprog
from conftest import rest_slow, write_cube
from definitions import gap
from scipy.optimize import nnls
from test_certificate import plan

import unmix
from unmix.certificate import CERTIFIED
from unmix.compiled.jit import WIDE
from unmix.library import Endmembers
from unmix.solvers.pixels.cpu import path_of_solver
from unmix.solvers.pixels.cuda_many.search import stages_for
from unmix.solvers.pixels.working_set import MOST_MEMBERS


def library(random, L, p):
    """Smooth spectra, many of them alike."""
    knots = np.linspace(0, L - 1, 12)
    return np.stack([np.interp(np.arange(L), knots, random.uniform(0.1, 1, 12)) for _ in range(p)], axis=1)


def scene(random, E, N, noise=0.01):
    """Noisy mixtures of two to five spectra."""
    A = np.zeros((N, E.shape[1]))
    for row in A:
        k = random.integers(2, 6)
        row[random.choice(E.shape[1], k, replace=False)] = random.dirichlet(np.ones(k))
    return A @ E.T + noise * random.standard_normal((N, len(E)))


@pytest.mark.parametrize("p", rest_slow([64, 65, 75, 150], 65, 75, 150))
def test_against_scipy_and_quadprog(p):
    random = np.random.default_rng(p)
    E = random.random((200, p)) + 0.1
    Y = scene(random, E, 40)
    free = unmix.solve(Y, E, method="nnls")
    np.testing.assert_allclose(free.abundances, [nnls(E, y)[0] for y in Y], atol=1e-9)
    constraints = np.hstack([np.ones((p, 1)), np.eye(p)])
    expected = [quadprog.solve_qp(E.T @ E, E.T @ y, constraints, np.append(1.0, np.zeros(p)), 1)[0] for y in Y]
    summed = unmix.solve(Y, E, method="fcls")
    np.testing.assert_allclose(summed.abundances, expected, atol=1e-9)
    for found in (free, summed):
        assert found.kappa.max() <= CERTIFIED and found.delta.max() <= 1e-6


@pytest.mark.parametrize("method", ["nnls", "fcls"])
@pytest.mark.parametrize(
    ("L", "p"), rest_slow([(60, 30), (40, 40), (40, 90), (60, 300), (2, 80)], (40, 90), (60, 300), (2, 80))
)
def test_any_number_of_spectra_and_bands(L, p, method):
    """Duplicates, scaled duplicates, pixels of the scene and more spectra than bands: nothing fits better."""
    random = np.random.default_rng([L, p])
    E = library(random, L, p)
    E[:, 1], E[:, 2] = E[:, 0], 2 * E[:, 0]
    Y = scene(random, E, 50)
    E[:, -1] = np.abs(Y[0])
    Y[1] = 0
    found = unmix.solve(Y, E, method=method)
    assert found.kappa.max() <= CERTIFIED and found.abundances.min() >= 0
    assert max(gap(E, y, a, method == "fcls") for y, a in zip(Y[2:], found.abundances[2:])) <= 1e-12
    if method == "fcls":
        np.testing.assert_allclose(found.abundances.sum(axis=1), 1, atol=1e-12)


def test_the_answer_does_not_depend_on_the_neighbours():
    random = np.random.default_rng(0)
    E = library(random, 50, 120)
    Y = scene(random, E, 70)
    whole = unmix.solve(Y, E, method="fcls")
    alone = unmix.solve(Y[33], E, method="fcls")
    np.testing.assert_array_equal(whole.abundances[33], alone.abundances)
    assert whole.delta[33] == alone.delta and whole.steps[33] == alone.steps


@pytest.mark.parametrize("method", ["nnls", "fcls"])
def test_libraries_that_need_no_working_set(method):
    paths = [path_of_solver(plan(np.random.default_rng(p).random((80, p)), method)) for p in (64, 65)]
    assert paths[1] == "working_set" and (paths[0] == "supports_64" or WIDE.width == 1)
    assert [stages_for(columns)[1] for columns in (48, 49)] == [True, False]


@pytest.mark.slow
def test_a_support_larger_than_the_working_set_is_not_certified():
    """A pixel that needs all of 300 spectra: the certificate says that the answer is not the optimum, or it is."""
    random = np.random.default_rng(1)
    E = random.random((320, MOST_MEMBERS + 44)) + 0.1
    Y = random.uniform(1, 2, (1, E.shape[1])) @ E.T
    found = unmix.solve(Y, E, method="nnls")
    assert (found.kappa[0] <= CERTIFIED) == (gap(E, Y[0], found.abundances[0]) <= 1e-12)


@pytest.mark.parametrize(
    ("p", "method", "path"),
    rest_slow(
        [(6, "fcls", "supports_16"), (6, "ucls", "planned"), (65, "nnls", "working_set"), (33, "nnls", "supports_48")],
        (6, "fcls", "supports_16"),
        (6, "ucls", "planned"),
        (65, "nnls", "working_set"),
    ),
)
def test_the_record_says_how_pixels_were_searched(tmp_path, p, method, path):
    random = np.random.default_rng(p)
    E = library(random, 60, p)
    cube = write_cube(tmp_path / "cube.hdr", scene(random, E, 20).astype(np.float32).reshape(4, 5, 60))
    endmembers = Endmembers(tuple(map(str, range(p))), E, None, source="library")
    assert unmix.run(cube, endmembers=endmembers, method=method, device="cpu", scale=1)["path"] == path
