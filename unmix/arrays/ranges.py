"""Between which values an abundance, or the sum of a class, lies over all mixtures of a library that fit a pixel: proved."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..certificate import UNIT_ROUNDOFF
from ..errors import LibraryError, MethodError
from ..methods import choose
from ..problem import Problem, plan_problem
from .pixels import checked, numbered, solve_pixels

# The methods whose mixtures have ranges.
METHODS_WITH_RANGES = ("nnls", "fcls", "pcls")
# Most solutions for one bound of a pixel; nearly all take 6 to 15.
MOST_ROUNDS = 40
# The search for a bound ends where what is proved is this close to what a mixture reaches, as a share of their distance to the best
# mixture's value.
CLOSE = 1e-7
# By how much s = μ² may grow from one solution to the next while no mixture is too far from the pixel.
MOST_GROWTH = 1e4
# Every how many solutions the interval of s is halved, should secants approach its end from one side alone.
HALVED_EVERY = 3
# The smallest share of the interval by which a secant moves.
LEAST_STEP = 1e-3
# Pixels that are solved together.
TOGETHER = 16384
# The largest residual of ``Eᵀu = c``, of quantities that are 0 and 1, above which the spectra count as dependent.
LARGEST_REMAINDER = 1e-6


@dataclass(frozen=True)
class Ranges:
    """The least and the largest value of each quantity over all mixtures that fit; NaN where a pixel has no value in a band.

    Attributes
    ----------
    names : tuple
        The quantities: the classes in the order of their first spectra, or the numbers of the endmembers.
    lower, upper : arrays (..., quantities), float64
        Proved: no mixture that fits has less, or more; rounding is included.
    lower_reached, upper_reached : arrays (..., quantities), float64
        The ends that some mixture reaches: the true ends lie between these and the proved ones.
    limit : array (...), float64
        The largest RMSE of a mixture that fits; of the bands divided by their noise, where that is given.
    """

    names: tuple[Any, ...]
    lower: np.ndarray
    upper: np.ndarray
    lower_reached: np.ndarray
    upper_reached: np.ndarray
    limit: np.ndarray


def ranges(
    Y: np.ndarray, E: np.ndarray, classes: Sequence[str] | None = None, *, method: str = "nnls", within: float | None = None,
    confidence: float | None = None, noise: Any = None, threads: int | None = None,
) -> Ranges:  # fmt: skip
    """Find the least and the largest value of abundances, or of their sums by class, over all mixtures that fit a pixel.

    A mixture fits if its misfit ``½ |y − E a|²`` is at most ρ, by one of two measures: ``within`` is a statement about the library
    alone, ``confidence`` one about noise.

    Parameters
    ----------
    Y : array-like of shape (..., L)
        Pixels, in any real type and unit.
    E : array-like of shape (L, p)
        A library, one spectrum per column, in the unit of Y; for nnls there may be more spectra than bands.
    classes : sequence of str, optional
        The class of each spectrum; the quantities are then sums by class, else every abundance.
    method : {"nnls", "fcls", "pcls"}
        The constraint on mixtures: a ≥ 0; also a sum of one; or a sum of at most one.
    within : float, optional
        A mixture fits if its RMSE is at most that of the best one plus this, above 0, in the unit of Y.
    confidence : float, optional
        A mixture fits if ``|r|²`` is at most that of the best one plus z², z the two-sided quantile of the normal distribution and r in
        units of the noise: intervals of this confidence, one at a time, where noise is normal and the library is right.
    noise : float or array-like of shape (L,), optional
        Standard deviation of each band's noise, in the unit of Y; ``confidence`` needs it, and ``within`` is then in its unit.
    threads : int, optional
        CPU threads; default is all.

    Returns
    -------
    Ranges

    Raises
    ------
    CubeError, LibraryError
        As for `unmix.solve`. Also if fcls or pcls has dependent spectra, or the spectra lie on no side of a plane, as e and −e do.
    MethodError
        If the method has no ranges, not one of ``within`` and ``confidence`` is given, or a number is out of range.

    Notes
    -----
    With c the quantity and ``q(μ)`` the least of ``½ |y − E a|² − μ cᵀa`` over all mixtures, ``cᵀa ≤ (ρ − q(μ)) / μ`` for every mixture
    that fits and every μ > 0 (weak duality; O'Leary and Rust 1986). The best μ is where the misfit reaches ρ: one root a bound. q is
    bounded from below by a dual point made of the residual, rounding included.

    Examples
    --------
    >>> import numpy as np, unmix
    >>> E = np.array([[0.2, 0.5, 0.45], [0.3, 0.5, 0.45], [0.6, 0.3, 0.32]])
    >>> found = unmix.ranges(np.array([0.35, 0.4, 0.45]), E, ["soil", "plant", "plant"], within=0.01)
    >>> found.names, found.lower.round(2), found.upper.round(2)
    (('soil', 'plant'), array([0.39, 0.46]), array([0.54, 0.63]))
    """
    limit_of = limit_function(method, within, confidence, noise)
    Y, E = checked(Y, E)
    if classes is not None and len(classes) != E.shape[1]:
        raise MethodError(f"`classes` names {len(classes)} classes; there is one for each of {E.shape[1]} spectra")
    kinds = list(range(E.shape[1])) if classes is None else list(classes)
    names = tuple(dict.fromkeys(kinds))
    pixels = np.asarray(Y, np.float64).reshape(-1, E.shape[0])
    if noise is not None:
        deviations = np.broadcast_to(np.asarray(noise, np.float64), E.shape[:1])
        pixels, E = pixels / deviations, np.ascontiguousarray(E / deviations[:, None])
    mixtures = Mixtures(E, method, threads)
    quantities = np.array([[kind == name for kind in kinds] for name in names], np.float64)
    found, limits = np.full((4, len(pixels), len(names)), np.nan), np.full(len(pixels), np.nan)
    good = np.flatnonzero(np.isfinite(pixels).all(axis=1))
    for first in range(0, len(good), TOGETHER):
        some = good[first : first + TOGETHER]
        y = pixels[some]
        best = mixtures.solve(y)
        square = np.square(mixtures.residuals(y, best)).sum(axis=1)
        most = limit_of(square, len(E))
        limits[some] = np.sqrt(most / len(E))
        for number, c in enumerate(quantities):
            found[:, some, number] = bounds(mixtures, y, best, 0.5 * most, c)
    shape = Y.shape[:-1]
    lower, upper, lower_reached, upper_reached = found.reshape(4, *shape, len(names))
    return Ranges(names, lower, upper, lower_reached, upper_reached, limits.reshape(shape))


def limit_function(method: str, within: float | None, confidence: float | None, noise: Any) -> Any:
    """Return the function from |r|² of the best mixtures, (n,), and the number of bands to the largest |r|² of a mixture that fits."""
    from scipy.special import ndtri  # slow to import

    if method not in METHODS_WITH_RANGES:
        raise MethodError(f"ranges of `method` {method}: there are those of {', '.join(METHODS_WITH_RANGES)}")
    if (within is None) == (confidence is None):
        raise MethodError("ranges need one of `within`, an RMSE, and confidence, with `noise`")
    if noise is not None and not np.all((np.asarray(noise) > 0) & np.isfinite(np.asarray(noise, np.float64))):
        raise MethodError("`noise` must be above 0 and finite: the standard deviation of each band")
    if within is not None:
        if not 0 < within < np.inf:
            raise MethodError(f"`within` {within:g}: must be above 0, and finite")
        return lambda square, L: np.square(np.sqrt(square) + within * np.sqrt(L))
    assert confidence is not None
    if not 0 < confidence < 1:
        raise MethodError(f"confidence {confidence:g}: must be between 0 and 1")
    if noise is None:
        raise MethodError("confidence needs `noise`, the standard deviation of each band")
    return lambda square, L: square + ndtri(0.5 + 0.5 * confidence) ** 2


def problem_of(E: np.ndarray, method: str) -> Problem:
    """Return the problem of spectra (L, p) that have numbers for names."""
    return plan_problem(numbered(np.ascontiguousarray(E)), *choose(method), warns=False)


class Mixtures:
    """All mixtures of a library under a constraint, and the programme ``½ |y − E a|² − μ cᵀa`` over them.

    Parameters
    ----------
    E : array (L, p), float64
    method : str
        Of `METHODS_WITH_RANGES`.
    threads : int, optional
    """

    def __init__(self, E: np.ndarray, method: str, threads: int | None) -> None:
        self.E, self.method, self.threads = E, method, threads
        self.problem = problem_of(E, method)
        self.norms = np.sqrt(np.square(E).sum(axis=0))
        if method == "nnls":
            # The direction with the largest least product with the spectra at unit length: the shortest vector of their hull.
            units = E / self.norms
            direction = units @ self.optimum(problem_of(units, "fcls"), np.zeros((1, len(E))), E.shape[1])[0]
            self.along = E.T @ (direction / max(float(np.linalg.norm(direction)), 1e-300))
            self.along_off = 2 * len(E) * UNIT_ROUNDOFF * self.norms  # by which it may be off
            if not np.all(self.along > 1e3 * self.along_off):
                raise LibraryError("no direction has a positive product with all spectra: abundances may have no bound")

    def solve(self, Y: np.ndarray) -> np.ndarray:
        """Return the abundances (n, p) of the best mixtures of pixels (n, L)."""
        return self.optimum(self.problem, Y, self.E.shape[1])

    def optimum(self, problem: Problem, Y: np.ndarray, count: int) -> np.ndarray:
        """Return the first ``count`` abundances of pixels (n, L) at the optimum of a problem; that of shade comes after them."""
        return solve_pixels(Y, problem, count, "cpu", self.threads).abundances

    def solve_without(self, Y: np.ndarray, c: np.ndarray) -> np.ndarray:
        """Return the abundances (n, p) of the best mixtures without the spectra of a quantity."""
        rest = np.flatnonzero(c == 0)
        a = np.zeros((len(Y), len(c)))
        a[:, rest] = self.optimum(problem_of(self.E[:, rest], self.method), Y, len(rest))
        return a

    def solver_of(self, c: np.ndarray) -> Any:
        """Return ``solve(Y, mu)``: the abundances (n, p) at the optimum of the programme, μ (n,).

        With a ≥ 0 alone, ``a / μ`` is the optimum for ``y / μ`` with the penalty −c; else a is that for ``y + μ u``, ``Eᵀu = c``.
        """
        if self.method == "nnls":
            problem = replace(self.problem, penalty=-c)
            return lambda Y, mu: self.optimum(problem, Y / mu[:, None], len(c)) * mu[:, None]
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

    def most(
        self, Y: np.ndarray, a: np.ndarray, r: np.ndarray, mu: np.ndarray, c: np.ndarray, rho: np.ndarray
    ) -> np.ndarray:
        """Return what ``cᵀa`` of no mixture with a misfit up to ρ exceeds, (n,), from nearly optimal abundances at μ, and r = y − E a.

        The dual point is the residual; where the multiplier ``w = Eᵀr + μ c`` of an abundance is positive it is moved, or, under a
        limit on the sum, the largest w is that limit's. Errors of rounding are as in `unmix.certificate`.
        """
        (L, p), u = self.E.shape, UNIT_ROUNDOFF
        square, w = np.square(r).sum(axis=1), r @ self.E + mu[:, None] * c
        length, terms = np.sqrt(square), a @ self.norms
        off = (p + 2) * u * (np.sqrt(np.square(Y).sum(axis=1)) + terms)  # |r| may be off by
        off_w = ((L + 2) * u * length + off)[:, None] * self.norms + 2 * u * mu[:, None] * np.abs(c)
        explained = (a * w).sum(axis=1) - (a * (off_w + p * u * np.abs(w))).sum(axis=1)
        if self.method == "nnls":
            moved = np.maximum((w + off_w) / (self.along - self.along_off), 0.0).max(axis=1) * (1 + 1e-12)
            loss = moved * (a @ (self.along + self.along_off)) * (1 + 1e-12) + 0.5 * np.square(moved) * (1 + 1e-12)
            loss -= explained
        else:
            multiplier = (w + off_w).max(axis=1, initial=-np.inf if self.method == "fcls" else 0.0)
            loss = multiplier - explained
        spare = rho - 0.5 * square + (L + 4) * u * square + 2 * length * off
        value = a @ c
        return np.asarray(
            value + (spare + loss) / mu + 8 * p * u * (np.abs(value) + (np.abs(spare) + np.abs(loss)) / mu)
        )


def misfits_of(r: np.ndarray) -> np.ndarray:
    """Return ``½ |r|²`` of residuals (n, L)."""
    return np.asarray(0.5 * np.square(r).sum(axis=1))


def bounds(mixtures: Mixtures, Y: np.ndarray, best: np.ndarray, rho: np.ndarray, c: np.ndarray) -> tuple[Any, ...]:
    """Return ``lower`` to ``upper_reached`` of `Ranges` for one quantity of n pixels, given their best mixtures (n, p)."""
    upper, upper_reached = largest(mixtures, Y, best, rho, c)
    if mixtures.method != "nnls":
        upper, upper_reached = np.minimum(upper, 1.0), np.minimum(upper_reached, 1.0)
    lower, lower_reached = np.zeros(len(Y)), np.zeros(len(Y))
    needed = np.ones(len(Y), bool)  # where no mixture without these spectra fits
    if not c.all():
        rest = mixtures.residuals(Y, mixtures.solve_without(Y, c))
        needed = misfits_of(rest) > rho
    if needed.any():
        below, reached = largest(mixtures, Y[needed], best[needed], rho[needed], -c)
        lower[needed], lower_reached[needed] = np.maximum(-below, 0.0), np.maximum(-reached, 0.0)
    return lower, upper, lower_reached, upper_reached


def largest(
    mixtures: Mixtures, Y: np.ndarray, best: np.ndarray, rho: np.ndarray, c: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return what ``cᵀa`` of no mixture with a misfit up to ρ exceeds, and what one reaches, for n pixels."""
    solve, state = mixtures.solver_of(c), Search(mixtures, Y, best, rho, c)
    for rounds in range(1, MOST_ROUNDS + 1):
        k = state.open()
        if not len(k):
            break
        state.take(k, solve(Y[k], np.sqrt(state.s[k])))
        state.move(k, rounds % HALVED_EVERY == 0)
    return state.proved, state.reached


class Search:
    """The search for the root of one bound, for n pixels: s = μ² at which the misfit is ρ.

    Between two supports the misfit is linear in s. ``near`` is the largest s so far at which the misfit is below ρ, ``far`` the least
    at which it is above, infinite at first.
    """

    def __init__(self, mixtures: Mixtures, Y: np.ndarray, best: np.ndarray, rho: np.ndarray, c: np.ndarray) -> None:
        self.mixtures, self.Y, self.best, self.rho, self.c = mixtures, Y, best, rho, c
        n = len(Y)
        self.first = misfits_of(mixtures.residuals(Y, best))
        self.proved, self.reached = np.full(n, np.inf), best @ c
        self.near, self.near_misfit, self.near_a = np.zeros(n), self.first.copy(), best.copy()
        self.far, self.far_misfit, self.far_a = np.full(n, np.inf), np.full(n, np.inf), best.copy()
        # With all spectra free the misfit grows by half of cᵀG⁻¹c for each unit of s.
        growth = float(np.square(np.linalg.lstsq(mixtures.E.T, c, rcond=None)[0]).sum())
        self.s = 2.0 * (rho - self.first) / max(growth, 1e-300)

    def open(self) -> np.ndarray:
        """Return the pixels whose bound is not close to what is reached."""
        known = np.where(np.isfinite(self.proved), self.proved, 0.0)
        close = CLOSE * np.abs(known - self.best @ self.c) + UNIT_ROUNDOFF * np.abs(known)
        is_open = ~np.isfinite(self.proved) | (known - self.reached > close)
        return np.flatnonzero(is_open & (self.s > 0))

    def take(self, k: np.ndarray, a: np.ndarray) -> None:
        """Take the optima (n, p) of pixels k at their s."""
        r, mu = self.mixtures.residuals(self.Y[k], a), np.sqrt(self.s[k])
        misfit = misfits_of(r)
        self.proved[k] = np.minimum(self.proved[k], self.mixtures.most(self.Y[k], a, r, mu, self.c, self.rho[k]))
        fits = misfit <= self.rho[k]
        for which, place, misfits, points in (
            (fits, self.near, self.near_misfit, self.near_a), (~fits, self.far, self.far_misfit, self.far_a),
        ):  # fmt: skip
            at = k[which]
            place[at], misfits[at], points[at] = self.s[at], misfit[which], a[which]
        at = k[fits]
        self.reached[at] = np.maximum(self.reached[at], a[fits] @ self.c)
        self.reach(k[np.isfinite(self.far[k])])

    def reach(self, k: np.ndarray) -> None:
        """Find the mixture between ``near`` and ``far`` whose misfit is ρ."""
        near = self.mixtures.residuals(self.Y[k], self.near_a[k])
        way = self.mixtures.residuals(self.Y[k], self.far_a[k]) - near
        square, along = np.square(way).sum(axis=1), (near * way).sum(axis=1)
        room = np.maximum(2.0 * self.rho[k] - np.square(near).sum(axis=1), 0.0)
        # The root of square t² + 2 along t = room, without cancellation.
        root = np.sqrt(np.square(along) + square * room)
        t = np.where(along > 0, room / np.maximum(along + root, 1e-300), (root - along) / np.maximum(square, 1e-300))
        t = np.clip(t * (1.0 - 1e-9), 0.0, 1.0)
        point = self.near_a[k] + t[:, None] * (self.far_a[k] - self.near_a[k])
        fits = misfits_of(self.mixtures.residuals(self.Y[k], point)) <= self.rho[k]
        at = k[fits]
        self.reached[at] = np.maximum(self.reached[at], point[fits] @ self.c)

    def move(self, k: np.ndarray, halves: bool) -> None:
        """Choose the next s of pixels k: by a secant, or half-way; without a far end by the slope so far."""
        near, far, misfit = self.near[k], self.far[k], self.near_misfit[k]
        with np.errstate(invalid="ignore", divide="ignore"):
            slope = (misfit - self.first[k]) / near
            beyond = np.where(slope > 0, 1.0001 * (self.rho[k] - self.first[k]) / slope, np.inf)
            width = far - near
            share = np.full(len(k), 0.5) if halves else (self.rho[k] - misfit) / (self.far_misfit[k] - misfit)
            between = near + np.clip(share, LEAST_STEP, 1.0 - LEAST_STEP) * width
        lowest = np.where(near > 0, near, self.s[k])
        self.s[k] = np.where(np.isfinite(far), between, np.clip(beyond, 2.0 * lowest, MOST_GROWTH * lowest))
