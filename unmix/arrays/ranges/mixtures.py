"""All mixtures of a library under a constraint, and the ends of what those are that fit a pixel."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from ...blocks import cores
from ...certificate import UNIT_ROUNDOFF
from ...compiled.simd import WIDE, aligned_zeros
from ...errors import LibraryError
from ...methods import choose
from ...problem import Problem, plan_problem
from ...solvers.pixels.ranges import follow, proof
from ...solvers.pixels.rows import correlate, new_tile, vectors_of
from ..pixels import numbered, solve_pixels
from .search import is_open, largest

# Pixels whose paths a thread follows at a time.
PART_PIXELS = 512
# The largest residual of ``Eᵀu = c``, of quantities that are 0 and 1, above which the spectra count as dependent.
LARGEST_REMAINDER = 1e-6


def problem_of(E: np.ndarray, method: str) -> Problem:
    """Return the problem of spectra (L, p) that have numbers for names."""
    return plan_problem(numbered(np.ascontiguousarray(E)), *choose(method), warns=False)


class Mixtures:
    """All mixtures of a library, and the programme ``½ |y − E a|² − μ cᵀa`` over them.

    Parameters
    ----------
    E : array (L, p), float64
    method : str
        "nnls", "fcls" or "pcls". For pcls shade is one more endmember, the last, a column of zeros: P = p + 1, else P = p.
    threads : int, optional

    Attributes
    ----------
    E : array (L, P), float64
    """

    def __init__(self, E: np.ndarray, method: str, threads: int | None) -> None:
        self.method, self.threads = method, threads or cores()
        self.problem = problem_of(E, method)
        self.E = np.ascontiguousarray(self.problem.endmembers.matrix)
        norms, along, error = np.sqrt(np.square(self.E).sum(axis=0)), np.empty(0), np.empty(0)
        if method == "nnls":
            # The direction with the largest least product with the spectra at unit length: the shortest vector of their hull.
            units = E / norms
            direction = units @ self.optimum(problem_of(units, "fcls"), np.zeros((1, len(E))))[0]
            along = E.T @ (direction / max(float(np.linalg.norm(direction)), 1e-300))
            error = 2 * len(E) * UNIT_ROUNDOFF * norms
            if not np.all(along > 1e3 * error):
                raise LibraryError("no direction has a positive product with all spectra: abundances may have no bound")
        has_sum = method != "nnls"
        self.shared = proof.Mixtures(self.E, np.ascontiguousarray(self.E.T), norms, int(has_sum), along, error)
        self.lines = follow.lines_of(self.E, has_sum)

    def solve(self, Y: np.ndarray) -> np.ndarray:
        """Return the abundances (n, P) of the best mixtures of pixels (n, L)."""
        return self.optimum(self.problem, Y)

    def optimum(self, problem: Problem, Y: np.ndarray) -> np.ndarray:
        """Return all abundances of pixels (n, L) at the optimum of a problem."""
        return solve_pixels(Y, problem, problem.E.shape[1], "cpu", self.threads).abundances

    def solve_without(self, Y: np.ndarray, c: np.ndarray) -> np.ndarray:
        """Return the abundances (n, P) of the best mixtures without the spectra of a quantity."""
        rest = np.flatnonzero(c[: self.p] == 0)
        a = np.zeros((len(Y), len(c)))
        a[:, rest] = self.optimum(problem_of(self.E[:, rest], self.method), Y)[:, : len(rest)]
        return a

    @property
    def p(self) -> int:
        """The number of spectra, less shade."""
        return self.E.shape[1] - self.problem.endmembers.has_shade

    def solver_of(self, c: np.ndarray) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """Return ``solve(Y, mu)``: the abundances (n, P) at the optimum of the programme, μ (n,).

        With a ≥ 0 alone, ``a / μ`` is the optimum for ``y / μ`` with the penalty −c; else a is that for ``y + μ u``, ``Eᵀu = c``.
        """
        if self.method == "nnls":
            problem = replace(self.problem, penalty=-c)
            return lambda Y, mu: self.optimum(problem, Y / mu[:, None]) * mu[:, None]
        M, d = self.E, c
        if self.method == "fcls":  # a constant adds nothing where the sum is one
            M, d = self.E - self.E.mean(axis=1, keepdims=True), c - c.mean()
        u = np.linalg.lstsq(M.T, d, rcond=None)[0]
        if not np.abs(M.T @ u - d).max() <= LARGEST_REMAINDER:
            raise LibraryError(
                f"ranges of {self.method} need spectra that do not depend on each other; leave some out, or use nnls"
            )
        return lambda Y, mu: self.solve(Y + mu[:, None] * u)

    def residuals(self, Y: np.ndarray, a: np.ndarray) -> np.ndarray:
        """Return ``y − E a``, (n, L)."""
        return np.asarray(Y - a @ self.E.T)

    def misfits(self, Y: np.ndarray, a: np.ndarray) -> np.ndarray:
        """Return ``½ |y − E a|²``, (n,)."""
        return np.asarray(0.5 * np.square(self.residuals(Y, a)).sum(axis=1))

    def prove(
        self, Y: np.ndarray, a: np.ndarray, mu: np.ndarray, rho: np.ndarray, c: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return what ``cᵀa`` of no mixture with a misfit up to ρ exceeds, and the misfits: see `proof.prove`."""
        bounds, misfits = np.empty(len(Y)), np.empty(len(Y))
        proof.prove(self.shared, Y, a, mu, rho, c, proof.new_scratch(*self.E.shape), bounds, misfits)
        return bounds, misfits

    def ends(
        self, Y: np.ndarray, best: np.ndarray, misfits: np.ndarray, rho: np.ndarray, quantities: np.ndarray
    ) -> np.ndarray:
        """Return the ends of quantities: proved lower and upper ones, then the lower and upper ones that mixtures reach.

        Parameters
        ----------
        Y : array (n, L), float64
        best : array (n, P), float64
            Best mixtures.
        misfits, rho : arrays (n,), float64
            Their misfits, and the largest misfit of a mixture that fits.
        quantities : array (k, p), float64
            0 or 1 for each spectrum.

        Returns
        -------
        array (4, n, k), float64
        """
        wide = np.pad(quantities, ((0, 0), (0, self.E.shape[1] - quantities.shape[1])))
        found = np.empty((2, 2, len(Y), len(wide)))  # proved or reached, upper or the negative of lower

        def follow_part(part: slice) -> None:
            found[:, :, part] = self.follow(Y[part], best[part], misfits[part], rho[part], wide)

        with ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(follow_part, (slice(first, first + PART_PIXELS) for first in range(0, len(Y), PART_PIXELS))))
        for q, c in enumerate(wide):
            for side, sign in enumerate((1.0, -1.0)):
                proved, reached = found[:, side, :, q]
                k = np.flatnonzero(is_open(proved, reached, sign * (best @ c)))
                if len(k):
                    bound, end = self.searched(Y[k], best[k], rho[k], sign * c)
                    proved[k], reached[k] = np.minimum(bound, proved[k]), np.maximum(end, reached[k])
        (upper, lower), (upper_reached, lower_reached) = found
        return np.stack([np.maximum(-lower, 0.0), upper, np.maximum(-lower_reached, 0.0), upper_reached])

    def most_of(self, c: np.ndarray) -> float:
        """Return what no ``cᵀa`` exceeds, fit or not."""
        return np.inf if self.method == "nnls" and c.max() > 0 else max(float(c.max()), 0.0)

    def follow(
        self, Y: np.ndarray, best: np.ndarray, misfits: np.ndarray, rho: np.ndarray, quantities: np.ndarray
    ) -> np.ndarray:
        """Return what `ends` has found, by paths: infinite, and the best mixture's, where a path is lost."""
        Y = np.ascontiguousarray(Y)
        (L, P), n, k = self.E.shape, len(Y), len(quantities)
        F = aligned_zeros(-(-n // WIDE.width) * vectors_of(P) * WIDE.width, WIDE.width)
        correlate(Y, self.lines.unit, new_tile(L, P), F, np.empty(n))
        paths, mu, how = np.empty((k, 2, n, P)), np.empty((k, 2, n)), np.empty((k, 2, n), np.int64)
        follow.follow_all(self.lines, Y, F, best, misfits, rho, quantities, follow.new_scratch(L, P), paths, mu, how)
        found = np.empty((2, 2, n, k))
        for q, side in np.ndindex(k, 2):
            c, a = (1.0 - 2.0 * side) * quantities[q], paths[q, side]
            is_end, most = how[q, side] == follow.REACHED, self.most_of(c)
            proved, misfit = self.prove(Y, a, np.where(is_end, mu[q, side], 1.0), rho, c)
            # Where the end is beyond the limit, by rounding, a mixture between the best one and it fits: misfits are convex.
            start, beyond = best @ c, misfit > rho
            share = np.where(beyond, (rho - misfits) / np.where(beyond, misfit - misfits, 1.0), 1.0)
            share[how[q, side] == follow.LOST] = 0.0
            found[0, side, :, q] = np.minimum(np.where(is_end, proved, np.inf), most)
            found[1, side, :, q] = np.minimum(start + np.maximum(share * (a @ c - start), 0.0), most)
        return found

    def searched(
        self, Y: np.ndarray, best: np.ndarray, rho: np.ndarray, c: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return what `follow` does, for one signed quantity, by a search."""
        most = self.most_of(c)
        proved, reached = np.full(len(Y), most), np.full(len(Y), most)
        needed = np.ones(len(Y), bool)  # where no mixture without these spectra fits
        if c.min() < 0 and not c[: self.p].all():
            needed = self.misfits(Y, self.solve_without(Y, c)) > rho
        if needed.any():
            bound, end = largest(self, Y[needed], best[needed], rho[needed], c)
            proved[needed], reached[needed] = np.minimum(bound, most), np.minimum(end, most)
        return proved, reached
