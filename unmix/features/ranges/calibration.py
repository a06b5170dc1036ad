"""Calibrate which mixtures fit at a confidence: how far above the best misfit, for what a pixel surely holds.

Where all abundances are free, the misfit of the truth is above the best mixture's by χ² of one degree of freedom,
one range at a time. Where some are 0 it is not (the "Burrus conjecture" is false: Batlle, Patil, Stanley, Kuusela
2023): the best mixture gains from each spectrum that is not there, and with 25 alike a limit for 95 % holds 70 %. So
the quantile is simulated, near a truth that has the spectra whose abundances are clearly above 0, and 0 of all others;
of a sum also near one that has all of its spectra, for no data tell a class that is spread over its spectra, each below
its noise, from one that is not there.
"""

import itertools
import math
import threading
from typing import Any

import numpy as np

from ...arrays.mixtures import solve_pixels
from .limit import FitLimit
from .mixtures import problem_of

# An abundance of this many of its standard deviations is clearly above 0.
SURE = 3.0
# Abundances below this share of the largest do not count as a pixel's support.
SMALLEST_SHARE = 1e-6
# Quantiles that a library may need, at most: a truth has just the clearest spectra of a pixel, as many as that allows,
# which makes the limit wider where it has more. 390 of nine spectra take 3 s.
MOST_QUANTILES = 400
# Directions of noise that are drawn for a truth: up to so many, and fewer where solving takes longer, but so many at
# least.
MOST_DIRECTIONS, DIRECTIONS_BY_SPECTRA, FEWEST_DIRECTIONS = 1000, 64_000, 250
# Standard errors of the simulated share that are added to it: with 1000 directions of 25 spectra one is half a per
# cent.
STANDARD_ERRORS = 2.0
# The remainder of a spectrum, as a share of its length, below which it is a mixture of the spectra of any sign.
LARGEST_DEPENDENT_REMAINDER = 1e-7
# Limits are rounded up to multiples of this, so that they do not depend on the rounding of a processor's products.
STEP = 1e-4


class Calibration:
    """By how much ``|r|²`` of a mixture that fits may be above the least, in units of the noise.

    Parameters
    ----------
    confidence : float
    E : array (L, P), float64
        The spectra, shade's included, bands divided by their noise.
    has_sum : bool
        Whether abundances sum to one.
    quantities : array (k, P), float64
        The sums whose ranges are wanted, 0 or 1 for each spectrum.
    weights : array (P,) or None
        Of fractions: see `unmix.features.ranges.mixtures.Mixtures.ends`.
    """

    def __init__(
        self,
        confidence: float,
        E: np.ndarray,
        has_sum: bool,
        quantities: np.ndarray,
        weights: np.ndarray | None = None,
    ) -> None:
        from scipy.special import ndtri  # slow to import

        P = E.shape[1]
        centre = E.mean(axis=1, keepdims=True) if has_sum else 0.0
        self.R, self.has_sum = np.asarray(np.linalg.qr(E - centre, mode="r")), has_sum
        self.quantities, self.weights = quantities, weights
        self.missed = 1.0 - confidence
        self.of_free = float(ndtri(0.5 + 0.5 * confidence)) ** 2
        sums = int((np.count_nonzero(quantities, axis=1) > 1).sum())
        sets = itertools.accumulate(math.comb(P, k) for k in range(P + 1))
        needed = [count * (2 * sums + (k if sums < len(quantities) else 0)) for k, count in enumerate(sets)]
        self.most_kept = max(int(sums == 0), sum(one <= MOST_QUANTILES for one in needed) - 1)
        self.known, self.lock = dict[bytes, float](), threading.Lock()
        directions = min(MOST_DIRECTIONS, max(FEWEST_DIRECTIONS, DIRECTIONS_BY_SPECTRA // P))
        X = np.random.default_rng(0).standard_normal((directions, len(self.R)))
        self.X = X / np.sqrt(np.square(X).sum(axis=1, keepdims=True))

    @classmethod
    def of(cls, limit: FitLimit, *how: Any) -> "Calibration | None":
        """Return the calibration of a limit, or None where it needs none; other parameters are the class's own."""
        is_calibrated = limit.confidence is not None and not limit.simultaneous
        return cls(limit.confidence, *how) if is_calibrated and limit.confidence is not None else None

    def limits(self, A: np.ndarray, sigma: np.ndarray | float = 1.0, sure: float = SURE) -> np.ndarray:
        """Return the limits (n,) of pixels with best mixtures A (n, P) and noise ``sigma`` (n,) times the bands'."""
        with np.errstate(divide="ignore", invalid="ignore"):  # a pixel without noise is sure of what it has
            ratios = np.nan_to_num(self.ratios(A) / np.broadcast_to(sigma, len(A))[:, None], posinf=1e300)
        clear = ratios > sure
        wanted = self.quantities.any(axis=0)
        clearest = np.argsort(-np.where(wanted, ratios, np.minimum(ratios, 0.0)), axis=1, kind="stable")
        if self.most_kept:
            clear[np.arange(len(A)), clearest[:, 0]] = True  # of the quantities at least one
        kept = np.zeros_like(clear)
        np.put_along_axis(kept, clearest[:, : self.most_kept], True, axis=1)
        kept = np.where(clear.all(axis=1, keepdims=True), clear, clear & kept)
        truths, which = np.unique(kept, axis=0, return_inverse=True)
        return np.array([self.of_free if truth.all() else self.limit_near(truth) for truth in truths])[which.ravel()]

    @np.errstate(divide="ignore", invalid="ignore", over="ignore")
    def ratios(self, A: np.ndarray) -> np.ndarray:
        """Return abundances (n, P) by their standard deviations for noise of one, given which are above 0."""
        found = np.zeros(A.shape)
        least = SMALLEST_SHARE * A.max(axis=1, keepdims=True)
        supports, which = np.unique(least < A, axis=0, return_inverse=True)
        order = np.argsort(which.ravel(), kind="stable")
        ends = np.cumsum(np.bincount(which.ravel(), minlength=len(supports)))
        for support, pixels in zip(supports, np.split(order, ends[:-1])):
            S = np.flatnonzero(support)
            if len(S):
                found[np.ix_(pixels, S)] = A[np.ix_(pixels, S)] / self.deviations(S)
        return np.nan_to_num(found, posinf=1e300)

    def deviations(self, S: np.ndarray) -> np.ndarray:
        """Return standard deviations (s,) of a support's abundances for noise of 1; infinite for dependent spectra."""
        M = self.R[:, S[1:]] - self.R[:, S[:1]] if self.has_sum else self.R[:, S]
        R = np.asarray(np.linalg.qr(M, mode="r"))
        if len(R) < M.shape[1] or np.any(
            np.abs(np.diag(R)) <= LARGEST_DEPENDENT_REMAINDER * np.sqrt(np.square(M).sum(axis=0))
        ):
            return np.full(len(S), np.inf)
        inverse = np.linalg.inv(R) if R.size else R
        own = np.sqrt(np.square(inverse).sum(axis=1))
        return np.append(np.sqrt(np.square(inverse.sum(axis=0)).sum()), own) if self.has_sum else own

    def limit_near(self, truth: np.ndarray) -> float:
        """Return the limit near a truth, whose spectra (P,) bool are above 0; simulated once."""
        key = truth.tobytes()
        with self.lock:
            if key not in self.known:
                self.known[key] = max(self.of_free, math.ceil(self.simulated(truth) / STEP) * STEP)
            return self.known[key]

    def simulated(self, truth: np.ndarray) -> float:
        """Return the largest quantile of a truth's misfit above the best, over the quantities that may gain most."""
        sums, best, found = [np.ones(len(truth))] * self.has_sum, dict[bytes, np.ndarray](), 0.0
        for c in self.quantities:
            is_sum, has_none = bool(np.count_nonzero(c) > 1), not truth.any()
            # The gain of one spectrum that is not there is half of a square.
            nears = [truth] if not has_none and (is_sum or (c * truth).any()) else []
            for near in [*nears, truth | (c > 0)] if is_sum or has_none else nears:
                key = near.tobytes()
                best[key] = best[key] if key in best else self.least_squares(sums, near)
                gains = self.least_squares([*sums, self.held(c, near)], near) - best[key]
                found = max(found, self.quantile(np.maximum(gains, 0.0)))
        return found

    def held(self, c: np.ndarray, truth: np.ndarray) -> np.ndarray:
        """Return the row (P,) that is 0 for changes of a truth that keep a quantity; fractions are of equal parts."""
        if self.weights is None:
            return c
        cw, w = c * self.weights, self.weights
        total = float((w * truth).sum())
        return cw - (float((cw * truth).sum()) / total if total > 0 else 0.0) * w

    def least_squares(self, rows: list[np.ndarray], truth: np.ndarray) -> np.ndarray:
        """Return the least ``|x − R u|²`` of all directions (n,) over changes u of a truth that are 0 in all rows."""
        M, is_free = changes_of_spectrum(self.R, rows, truth)
        X, Z = self.X, M[:, ~is_free]
        if is_free.any():
            U, s, _ = np.linalg.svd(M[:, is_free], full_matrices=False)
            U = U[:, s > LARGEST_DEPENDENT_REMAINDER * max(float(s.max()), 1e-300)]
            X, Z = X - (X @ U) @ U.T, Z - U @ (U.T @ Z)
        lengths = np.sqrt(np.square(Z).sum(axis=0))
        kept = lengths > LARGEST_DEPENDENT_REMAINDER * np.sqrt(np.square(self.R).sum(axis=0)).max()
        if kept.any():
            Z = Z[:, kept] / lengths[kept]
            X = X - solve_pixels(X, problem_of(Z, False), Z.shape[1], "cpu", 1).abundances @ Z.T
        return np.asarray(np.square(X).sum(axis=1))

    def quantile(self, gains: np.ndarray) -> float:
        """Return the limit that gains of noise exceed with the share ``missed``, from gains of directions (n,)."""
        from scipy.special import chdtrc, chdtri

        d, n = self.X.shape[1], len(gains)
        gains = gains[gains > 0]

        # A gain grows with the square of the noise's length, which is of χ² and independent of its direction.
        def is_missed(limit: float) -> bool:
            beyond = chdtrc(d, limit / gains)
            share = beyond.sum() / n
            spread = math.sqrt(max(0.0, np.square(beyond).sum() / n - share**2))
            return bool(share + STANDARD_ERRORS * spread / math.sqrt(n) > self.missed)

        if not len(gains) or not is_missed(self.of_free):
            return self.of_free
        low, high = self.of_free, float(gains.max() * chdtri(d, 1e-3 * self.missed)) + STEP
        while high - low > STEP:
            middle = 0.5 * (low + high)
            low, high = (middle, high) if is_missed(middle) else (low, middle)
        return high


def changes_of_spectrum(R: np.ndarray, rows: list[np.ndarray], truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the spectra (d, k) of a truth's changes that are 0 in all rows, and which (k,) may have any sign."""
    M, rows, left = R, [row.astype(float) for row in rows], np.ones(R.shape[1], bool)
    for r, row in enumerate(rows):
        row = np.where(np.abs(row) > 1e-12, row, 0.0)
        pivots = np.abs(row) * (left & truth)
        # A row expresses a change of any sign by the others. A row without one holds all its changes at 0: where its
        # signs differ this is more than it says, and makes the limit wider.
        if pivots.any():
            f = int(pivots.argmax())
            by = row / row[f]
            M = M - np.outer(M[:, f], by)
            rows[r + 1 :] = [other - other[f] * by for other in rows[r + 1 :]]
            left[f] = False
        else:
            left &= row == 0.0
    return M[:, left], truth[left]
