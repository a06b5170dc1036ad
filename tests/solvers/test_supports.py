"""The search from the support of the pixel before: right, and the same for any order of the pixels."""

import numpy as np
import pytest
from conftest import rest_slow
from scipy.optimize import nnls

import unmix
from unmix.certificate import CERTIFIED, FARTHEST
from unmix.library import Endmembers
from unmix.methods import choose
from unmix.problem import plan_problem
from unmix.solvers.pixels.cpu import RUN, Plan, Results, Stored, TileSearch, path_of_solver, range_solver
from unmix.solvers.pixels.gather import block_maker
from unmix.solvers.pixels.supports.pivots import BY_SUPPORT, MOST_SUPPORTS


def spectra(random, bands, p):
    """Return positive spectra (bands, p)."""
    return random.uniform(0.1, 1, (bands, p))


def mixtures(random, E, n, alpha=0.2, noise=0.02):
    """Return n noisy mixtures (n, bands)."""
    return random.dirichlet(np.full(E.shape[1], alpha), n) @ E.T + noise * random.standard_normal((n, len(E)))


def least(E, y, sum_to_one):
    """Return the optimum by scipy; the sum to one by a heavy row of ones."""
    if not sum_to_one:
        return nnls(E, y)[0]
    weight = 1e4
    return nnls(np.vstack([E, np.full(E.shape[1], weight)]), np.append(y, weight))[0]


@pytest.mark.parametrize("method", ["nnls", "fcls"])
@pytest.mark.parametrize("p", rest_slow([1, 2, 16, 17, 48, 64], 1, 2, 16, 17))
def test_answers_are_those_of_scipy_and_do_not_depend_on_the_order(p, method):
    random = np.random.default_rng(p)
    E = spectra(random, 90, p)
    Y = mixtures(random, E, 150)
    found = unmix.solve(Y, E, method=method)
    assert np.all(found.kappa <= CERTIFIED)
    expected = np.array([least(E, y, method == "fcls") for y in Y])
    np.testing.assert_allclose(found.abundances, expected, atol=1e-10 if method == "nnls" else 1e-6)
    order = random.permutation(len(Y))
    np.testing.assert_array_equal(unmix.solve(Y[order], E, method=method).abundances, found.abundances[order])


def test_more_supports_than_a_table_holds():
    random = np.random.default_rng(1)
    E = spectra(random, 60, 24)
    Y = mixtures(random, E, 4 * MOST_SUPPORTS, alpha=0.5, noise=0.1)
    found = unmix.solve(Y, E, method="nnls").abundances
    assert len(np.unique(found > 0, axis=0)) > MOST_SUPPORTS
    for first in range(0, len(Y), 1000):
        part = slice(first, first + 70)
        np.testing.assert_array_equal(unmix.solve(Y[part], E, method="nnls").abundances, found[part])


@pytest.mark.parametrize("apart", [0.0, 1e-9, 1e-7, 1e-6, 1e-4])
@pytest.mark.parametrize("method", ["nnls", "fcls"])
def test_spectra_that_are_alike_leave_no_pixel_at_a_wrong_answer(apart, method):
    random = np.random.default_rng(2)
    E = spectra(random, 60, 12)
    E[:, 7] = E[:, 2] + apart * random.standard_normal(60)
    Y = mixtures(random, E, 300)
    found = unmix.solve(Y, E, method=method)
    assert np.all(found.kappa <= CERTIFIED)
    if apart >= 1e-6:
        assert np.mean(found.delta <= FARTHEST) > 0.99
    for y, a in zip(Y[:60], found.abundances):
        other = least(E, y, method == "fcls")
        assert np.linalg.norm(y - E @ a) <= np.linalg.norm(y - E @ other) + 1e-7


@pytest.mark.parametrize("method", ["nnls", "fcls"])
@pytest.mark.slow
def test_runs_whose_pixels_share_no_supports_are_left_to_another_search(method):
    """Which runs these are depends on their own pixels alone: not on threads, nor on what a thread has solved before."""
    random = np.random.default_rng(4)
    E = spectra(random, 60, 25)
    few, many = random.permutation(25)[:3], mixtures(random, E, 4 * RUN, alpha=0.3)
    alike = random.dirichlet(np.ones(3), 4 * RUN) @ E[:, few].T + 1e-3 * random.standard_normal((4 * RUN, 60))
    Y = np.concatenate([alike[: 2 * RUN], many, alike[2 * RUN :]])
    problem = plan_problem(Endmembers(tuple(map(str, range(25))), E, None, source="E"), *choose(method, "active-set"))
    path = path_of_solver(problem)
    plan, stored = Plan(*problem.plan(path)), Stored(*problem.stored())
    block = Y.reshape(1, *Y.shape)

    def results(pixels):
        maps = {
            "abundance": np.empty((1, 25, pixels)),
            **{name: np.empty((1, pixels)) for name in Results._fields[1:-1]},
        }
        return Results(**maps, residual=np.empty((0, 60, 0)))

    block_of = block_maker("bip", stored)
    left = TileSearch(path, plan).solve(0, 8, block_of(block), stored, results(len(Y)))
    assert left.tolist() == [False] * 2 + [True] * 4 + [False] * 2
    short = Y[2 * RUN : 2 * RUN + 5].reshape(1, 5, 60)  # solving these twice would take longer than any search
    assert not TileSearch(path, plan).solve(0, 1, block_of(short), stored, results(5)).any()
    solve, whole, apart = range_solver("bip", path, stored, plan), results(len(Y)), results(len(Y))
    solve(0, 8, block, whole)
    for r in random.permutation(8):
        solve(r, r + 1, block, apart)
    np.testing.assert_array_equal(whole.abundance, apart.abundance)
    expected = np.array([least(E, y, method == "fcls") for y in Y[::7]])
    np.testing.assert_allclose(whole.abundance[0].T[::7], expected, atol=1e-10 if method == "nnls" else 1e-6)
    order = random.permutation(len(Y))  # pixels in memory are not left for speed
    found = [unmix.solve(pixels, E, method=method).abundances for pixels in (Y, Y[order])]
    np.testing.assert_array_equal(found[0][order], found[1])


def test_dark_masked_and_negative_pixels_among_others():
    random = np.random.default_rng(3)
    E = spectra(random, 30, 8)
    Y = mixtures(random, E, 100)
    Y[10], Y[20:40], Y[50], Y[60] = 0, np.nan, -Y[50], E[:, 3]
    for method in ("nnls", "fcls"):
        found = unmix.solve(Y, E, method=method)
        solved = np.isfinite(Y).all(axis=1)
        expected = np.array([least(E, y, method == "fcls") for y in Y[solved]])
        np.testing.assert_allclose(found.abundances[solved], expected, atol=1e-6)


def test_every_size_has_one_path():
    sizes = [path.most for path in BY_SUPPORT.values()]
    assert sizes == sorted(sizes) and all(path.most == 16 * path.vectors for path in BY_SUPPORT.values())
