"""Bounds of abundances over all mixtures of a library that fit a pixel."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ...arrays.mixtures import numbered, solve_pixels
from ...arrays.own import solve_each
from ...blocks import cores
from ...certificate import UNIT_ROUNDOFF
from ...errors import LibraryError
from ...methods import choose
from ...problem import Problem, plan_problem
from . import proof
from .ends import EndPixels, EndScratch, SearchedEndmembers, as_searched, bound, new_end_scratch
from .limit import ALWAYS_FITS
from .search import is_open, largest

# Pixels that a thread bounds at a time.
PART_PIXELS = 512
# Units of rounding of the few operations on a limit itself.
CUSHION = 32
# The gap between the proved and the reached end of a fraction, above which it is bounded by sums.
LOOSE = 1e-3
# The largest residual of ``Eᵀu = c``, of quantities that are 0 and 1, above which the spectra count as dependent: u is
# then so long that to round ``y + μ u`` moves an end. (With 1e-6 near-copies had ends 0.02 outside on some processors,
# and now 3e-6.)
LARGEST_REMAINDER = 1e-10
# Most solutions by which a sum is brought to one, and the least slope of the sum that is assumed.
MOST_TURNS, LEAST_SLOPE = 12, 1e-3


def problem_of(E: np.ndarray, has_sum: bool) -> Problem:
    """Return the problem of spectra (L, P) that have numbers for names."""
    return plan_problem(numbered(np.ascontiguousarray(E)), *choose("fcls" if has_sum else "nnls"), warns=False)


def sums_of_lines(a: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Return ``cᵀa`` (n,) of abundances (n, P), each added up in the same order."""
    # The rounding of a product of matrices depends on the number of lines.
    return np.asarray(np.einsum("nj,j->n", a, c))


class MixturePixels(NamedTuple):
    """Pixels (n, L), their best mixtures (n, P), the misfits (n,) of these, and the largest misfits (n,) that fit.

    Neither misfit is too small for rounding: see `Mixtures.pixels`.
    """

    Y: np.ndarray
    best: np.ndarray
    misfits: np.ndarray
    rho: np.ndarray


class Mixtures:
    """All mixtures of a library, and the programme ``½ |y − E a|² − μ cᵀa`` over them.

    Parameters
    ----------
    E : array (L, P), float64
        The spectra, for pcls with shade as one more.
    has_sum : bool
        Whether abundances sum to one; they are not negative in any case.
    threads : int, optional
        Default is all.
    direction : array (L,), float64, optional
        A vector with a positive product with all spectra, where there is no sum; default is the one with the largest
        least product with spectra of length one: the shortest vector of their hull.

    Raises
    ------
    LibraryError
        Where there is no sum and no such vector.
    """

    def __init__(self, E: np.ndarray, has_sum: bool, threads: int | None, direction: np.ndarray | None = None) -> None:
        self.has_sum, self.threads, self.kept = has_sum, threads or cores(), threading.local()
        self.E = np.ascontiguousarray(E)
        norms, along, error = np.sqrt(np.square(self.E).sum(axis=0)), np.empty(0), np.empty(0)
        if not has_sum:
            if not norms.all():
                number = int(np.flatnonzero(norms == 0)[0]) + 1
                raise LibraryError(f"spectrum {number} is 0 in every band: its abundance has no bound")
            if direction is None:
                units = E / norms
                direction = units @ self.optimum(problem_of(units, True), np.zeros((1, len(E))))[0]
            along = E.T @ (direction / max(float(np.linalg.norm(direction)), 1e-300))
            error = 2 * len(E) * UNIT_ROUNDOFF * norms
            if not np.all(along > 1e3 * error):
                raise LibraryError("no direction has a positive product with all spectra: abundances may have no bound")
        self.shared = proof.MixturesOnLines(self.E, np.ascontiguousarray(self.E.T), norms, int(has_sum), along, error)
        self.direction = direction

    @cached_property
    def problem(self) -> Problem:
        """The least-squares problem without a quantity to maximise."""
        return problem_of(self.E, self.has_sum)

    @cached_property
    def given(self) -> SearchedEndmembers:
        """The endmembers as the search takes them."""
        return as_searched(self.problem)

    def over(self, deviations: np.ndarray) -> "Mixtures":
        """Return the mixtures of bands that are divided by deviations (L,), for one pixel."""
        direction = None if self.direction is None else self.direction * deviations
        others = Mixtures(self.E / deviations[:, None], self.has_sum, 1, direction)
        others.kept = self.kept
        return others

    def solve_each(self, Y: np.ndarray, deviations: np.ndarray) -> np.ndarray:
        """Return best mixtures (n, P) of pixels (n, L) with bands weighted by ``1 / deviations²``, (n, L)."""
        return solve_each(Y, self.E, self.has_sum, {"weights": deviations**-2.0}, "cpu", self.threads)["abundances"]

    def solve(self, Y: np.ndarray) -> np.ndarray:
        """Return the abundances (n, P) of the best mixtures of pixels (n, L)."""
        return self.optimum(self.problem, Y)

    @np.errstate(over="ignore", invalid="ignore")  # a pixel whose square is no number has no ends
    def pixels(self, Y: np.ndarray, best: np.ndarray, limit: Callable[[np.ndarray], np.ndarray]) -> "MixturePixels":
        """Return pixels (n, L) with best mixtures (n, P) and largest misfits, from ``limit`` of the best |r|² (n,)."""
        if self.has_sum:  # of nearly equal spectra the sum is off by up to 1e-10
            best = best / best.sum(axis=1, keepdims=True)
        # The mixture at hand is not quite the best, and its sum and its misfit are rounded: each is
        # allowed for, since it matters with little noise or a narrow limit. Residuals of `ALWAYS_FITS` |y| always fit.
        found = self.misfits(Y, best)
        bright, reach = np.sqrt(np.square(Y).sum(axis=1)), best @ self.shared.norms
        # Each abundance that is not 0 rounds once in y − E a, once in the sum; the squares of L bands round as well.
        off = UNIT_ROUNDOFF * (2.0 * np.count_nonzero(best, axis=1) + 4.0) * (bright + reach)
        more = 1.0 + (len(self.E) + CUSHION) * UNIT_ROUNDOFF
        misfits = 0.5 * np.square(np.sqrt(2.0 * found) + off) * more
        # The roundings of values that are divided by their noise: of the pixel, and of a mixture that fits.
        most = np.maximum(limit(2.0 * misfits), np.square(ALWAYS_FITS * bright))
        most = np.square(np.sqrt(most) + 4.0 * UNIT_ROUNDOFF * (bright + self.most_reach(bright + np.sqrt(most))))
        rho = 0.5 * most * more
        k = np.flatnonzero(rho <= misfits)
        if len(k):  # the best mixture may fit where the one that is known does not
            least = -self.prove(Y[k], best[k], np.ones(len(k)), np.zeros(len(k)), np.zeros(self.E.shape[1]))[0]
            rho[k] = np.where(least <= rho[k], misfits[k] * more + np.finfo(float).tiny, rho[k])
        return MixturePixels(Y, best, misfits, rho)

    def most_reach(self, sizes: np.ndarray) -> np.ndarray:
        """Return an upper bound (n,) of ``Σ |e_j| a_j`` over mixtures with ``|E a|`` up to ``sizes`` (n,)."""
        norms, along = self.shared.norms, self.shared.along
        return (
            np.full(len(sizes), norms.max())
            if self.has_sum
            else sizes * float((norms / (along - self.shared.along_error)).max())
        )

    def optimum(self, problem: Problem, Y: np.ndarray) -> np.ndarray:
        """Return all abundances of pixels (n, L) at the optimum of a problem."""
        return solve_pixels(Y, problem, problem.E.shape[1], "cpu", self.threads).abundances

    def solve_without(self, Y: np.ndarray, c: np.ndarray) -> np.ndarray:
        """Return the abundances (n, P) of the best mixtures without the spectra of a quantity."""
        rest = np.flatnonzero(c == 0)
        a = np.zeros((len(Y), len(c)))
        a[:, rest] = self.optimum(problem_of(self.E[:, rest], self.has_sum), Y)
        return a

    def solver_of(self, c: np.ndarray) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """Return ``solve(Y, mu)``: the abundances (n, P) at the optimum of the programme with μ (n,)."""
        # With a ≥ 0 alone, a / μ is the optimum for y / μ with the penalty −c; else a is that for y + μ u, Eᵀu = c.
        # Spectra may depend on each other such that there is no u.
        if not self.has_sum:
            problem = replace(self.problem, penalty=-c)
            return lambda Y, mu: self.optimum(problem, Y / mu[:, None]) * mu[:, None]
        # A constant adds nothing where the sum is one.
        M, d = self.E - self.E.mean(axis=1, keepdims=True), c - c.mean()
        u = np.linalg.lstsq(M.T, d, rcond=None)[0]
        if not np.abs(M.T @ u - d).max() <= LARGEST_REMAINDER:
            return self.solver_by_sums(M, c)
        return lambda Y, mu: self.solve(Y + mu[:, None] * u)

    def solver_by_sums(self, M: np.ndarray, c: np.ndarray) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """Return the solver of `solver_of` for any spectra less their mean, M (L, P)."""
        # A band of constant height draws a sum under a ≥ 0 to its value in the pixel. Where the sum comes out as one,
        # the optimum is that under the sum: the band's dual is the same for all spectra.
        height = float(np.linalg.norm(M)) or 1.0
        problem = replace(problem_of(np.vstack([M, np.full(len(c), height)]), False), penalty=-c)
        mean = self.E.mean(axis=1)

        def solve(Y: np.ndarray, mu: np.ndarray) -> np.ndarray:
            drawn, slope, missing = np.ones(len(Y)), np.ones(len(Y)), np.zeros(len(Y))
            a, step = np.empty((len(Y), len(c))), np.zeros(len(Y))
            k = np.arange(len(Y))
            for _ in range(MOST_TURNS):
                pixels = np.column_stack([Y[k] - mean, height * drawn[k]])
                a[k] = self.optimum(problem, pixels / mu[k, None]) * mu[k, None]
                before, missing[k] = missing[k], 1.0 - a[k].sum(axis=1)
                with np.errstate(divide="ignore", invalid="ignore"):  # the sum grows with its draw, by parts of a line
                    slope[k] = np.where(step[k] != 0.0, np.clip((before - missing[k]) / step[k], LEAST_SLOPE, 1.0), 1.0)
                step[k] = missing[k] / slope[k]
                k = k[np.abs(missing[k]) > 4 * UNIT_ROUNDOFF]
                if not len(k):
                    break
                drawn[k] += step[k]
            return a / a.sum(axis=1, keepdims=True)

        return solve

    def residuals(self, Y: np.ndarray, a: np.ndarray) -> np.ndarray:
        """Return ``y − E a``, (n, L)."""
        return np.asarray(Y - a @ self.E.T)

    def misfits(self, Y: np.ndarray, a: np.ndarray) -> np.ndarray:
        """Return ``½ |y − E a|²``, (n,)."""
        found = np.empty(len(Y))

        def fill(part: slice) -> None:
            proof.find_misfits(self.shared, Y[part], a[part], self.scratch().tile, found[part])

        self.each_part(fill, len(Y))
        return found

    def each_part(self, call: Callable[[slice], None], n: int) -> None:
        """Call a function with the places of some of n pixels at a time, by all threads."""
        parts = [slice(first, min(first + PART_PIXELS, n)) for first in range(0, n, PART_PIXELS)]
        if len(parts) < 2 or self.threads < 2:
            for part in parts:
                call(part)
            return
        with ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(call, parts))

    def prove(
        self, Y: np.ndarray, a: np.ndarray, mu: np.ndarray, rho: np.ndarray, c: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return upper bounds of ``cᵀa`` over mixtures with a misfit up to ρ, and the misfits: see `proof.prove_end`."""
        bound, misfits = np.empty(len(Y)), np.empty(len(Y))
        proof.prove_end(self.shared, Y, a, mu, rho, c, self.scratch().tile, bound, misfits)
        return bound, misfits

    def ends(self, pixels: MixturePixels, quantities: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        """Return ends (4, n, k) of quantities c (k, P): proved lower, upper, reached lower, upper; NaN if none fits."""
        Y, best, misfits, rho = pixels
        fits = rho > misfits
        if not fits.all():
            found = np.full((4, len(Y), len(quantities)), np.nan)
            if fits.any():
                found[:, fits] = self.ends(MixturePixels(*(values[fits] for values in pixels)), quantities, weights)
            return found
        found = np.empty((2, 2, len(Y), len(quantities)))  # proved or reached, upper or the negative of lower
        # With weights w (P,), 0 for shade, quantities are fractions Σ c w a / Σ w a: NaN where the divisor of the best
        # mixture is 0.
        w, most = np.empty(0) if weights is None else weights, np.array([self.most_of(c) for c in quantities])

        given, best = self.given, np.ascontiguousarray(best)

        def fill(part: slice) -> None:
            some, out = EndPixels(Y[part], best[part], misfits[part], rho[part]), found[:, :, part]
            bound(given, self.shared, some, quantities, w, most, self.scratch(), out)

        self.each_part(fill, len(Y))
        if weights is not None:
            self.settle_fractions(found, Y, rho, quantities, weights)
            self.bound_by_sums(found, pixels, quantities * weights, weights)
        if weights is None:
            self.search_open(found, pixels, quantities)
        (upper, lower), (upper_reached, lower_reached) = found
        return np.stack([np.maximum(-lower, 0.0), upper, np.maximum(-lower_reached, 0.0), upper_reached])

    def scratch(self) -> EndScratch:
        """Return this thread's scratch, which is made once."""
        # Where each pixel has mixtures of its own, to make it takes longer than to use it.
        if not hasattr(self.kept, "scratch"):
            self.kept.scratch = new_end_scratch(*self.E.shape)
        found: EndScratch = self.kept.scratch
        return found

    def settle_fractions(
        self, found: np.ndarray, Y: np.ndarray, rho: np.ndarray, quantities: np.ndarray, weights: np.ndarray
    ) -> None:
        """Settle trivial cases: a class of all spectra is 1; where shade alone fits, a fraction may be anything."""
        rest = Y - self.E[:, weights == 0].sum(axis=1)  # with shade, if there is any
        is_dark = 0.5 * np.square(rest).sum(axis=1) < rho
        for q, c in enumerate(quantities):
            inside, whole = bool((c * weights).any()), bool((c[weights > 0] == 1).all())
            known = ~np.isnan(found[0, 0, :, q])
            found[1, 0, is_dark & known & inside, q] = 1.0
            found[1, 1, is_dark & known & (not whole), q] = 0.0
            if whole:
                found[:, 0, known, q], found[:, 1, known, q] = 1.0, -1.0

    def search_open(self, found: np.ndarray, pixels: MixturePixels, quantities: np.ndarray) -> None:
        """Search for the ends whose bound is not close to what is reached."""
        sums = np.stack([sums_of_lines(pixels.best, c) for c in quantities], axis=1)
        open_ends = is_open(found[0], found[1], np.stack([sums, -sums]))
        for side, q in np.argwhere(open_ends.any(axis=1)):
            k, (proved, reached) = np.flatnonzero(open_ends[side, :, q]), found[:, side, :, q]
            bound, end = self.searched(pixels.Y[k], pixels.best[k], pixels.rho[k], quantities[q] * (1.0, -1.0)[side])
            proved[k] = np.minimum(bound, proved[k])
            reached[k] = np.minimum(np.maximum(end, reached[k]), proved[k])

    def bound_by_sums(
        self, found: np.ndarray, pixels: MixturePixels, quantities: np.ndarray, weights: np.ndarray
    ) -> None:
        """Bound fractions with a wide gap, by the ranges of the divisor's parts: ``A / (A + B)`` grows with A, not B."""
        for q, c in enumerate(quantities):
            k = np.flatnonzero((found[0, :, :, q] - found[1, :, :, q] > LOOSE).any(axis=0))
            if not len(k) or np.array_equal(c, weights):
                continue
            some = MixturePixels(*(values[k] for values in pixels))
            parts = np.stack([c, weights - c])
            lower, upper, _, _ = self.ends(some, parts)
            with np.errstate(invalid="ignore", over="ignore"):
                most = upper[:, 0] / (upper[:, 0] + lower[:, 1]) * (1.0 + 8 * UNIT_ROUNDOFF)
                least = lower[:, 0] / (lower[:, 0] + upper[:, 1]) * (1.0 - 8 * UNIT_ROUNDOFF)
            found[0, 0, k, q] = np.fmax(np.fmin(found[0, 0, k, q], most), found[1, 0, k, q])
            found[0, 1, k, q] = np.fmax(np.fmin(found[0, 1, k, q], -least), found[1, 1, k, q])

    def most_of(self, c: np.ndarray) -> float:
        """Return the largest ``cᵀa`` of any mixture."""
        return np.inf if not self.has_sum and c.max() > 0 else max(float(c.max()), 0.0)

    def searched(
        self, Y: np.ndarray, best: np.ndarray, rho: np.ndarray, c: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Bound one signed quantity by a search of μ with certified solutions, for pixels whose own search was lost."""
        most = self.most_of(c)
        proved, reached = np.full(len(Y), most), np.full(len(Y), most)
        needed = np.ones(len(Y), bool)  # where no mixture without these spectra fits
        if c.min() < 0 and not c.all():
            needed = self.misfits(Y, self.solve_without(Y, c)) > rho
        if needed.any():
            bound, end = largest(self, self.solver_of(c), Y[needed], best[needed], rho[needed], c)
            proved[needed], reached[needed] = np.minimum(bound, most), np.minimum(end, most)
        return proved, reached
