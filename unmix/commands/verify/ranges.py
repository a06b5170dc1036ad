"""Verify proved ranges: the ends of some pixels again, by scipy."""

import numpy as np

from ...methods.fit_limit import ALWAYS_FITS, FitLimit
from ...reference.abundances import fcls, nnls
from ...reference.ranges import largest, largest_fraction
from .maps import MAP_TOLERANCE, NODATA
from .solved import SolvedScene

# Ends that are found again, some seconds' work, unless all pixels are asked for.
MOST_ENDS = 1000
# By how much an end may be off, as a share of its range, and absolutely: both are found to 1e-7 or better, from abundances as written.
SHARE_OF_RANGE, LEAST_DIFFERENCE = 1e-4, 5 * MAP_TOLERANCE


class RangeCheck:
    """The ranges of a run, found again.

    Parameters
    ----------
    solved : SolvedScene
    everything : bool
        Look at all pixels.
    pixels : int
        How many pixels will be asked for; if they have more than `MOST_ENDS` ends, some of them are looked at, evenly spread.
    """

    def __init__(self, solved: SolvedScene, everything: bool, pixels: int) -> None:
        asked, library = solved.asked, solved.library
        assert solved.method is not None
        within = asked.get("within")
        confidence, together = asked.get("confidence"), bool(asked.get("simultaneous"))
        self.limit = FitLimit(None if within is None else float(within), confidence, together)
        self.has_sum = solved.method.constraint.sum_to_one or solved.has_shade
        self.noise = solved.noise if confidence is not None else None
        self.has_each = confidence is not None and solved.noise_cube is not None
        self.step = float(asked.get("quantize") or 0.0)  # by which ends are rounded outwards at most, but for rounding
        self.E = library.matrix
        materials = len(library.names) - solved.has_shade
        own = (library.classes or ())[:materials] if asked["ranges"] == "class" else tuple(map(str, range(materials)))
        self.names = tuple(dict.fromkeys(own))
        shade = np.zeros((len(self.names), int(solved.has_shade)))
        self.quantities = np.hstack([[[float(kind == name) for kind in own] for name in self.names], shade])
        normalized = solved.w is not None or (asked["ranges"] == "class" and bool(asked.get("shade_normalize")))
        self.w = solved.weights_of_sums if normalized else None
        M = self.E - self.E.mean(axis=1, keepdims=True) if self.has_sum else self.E
        self.is_defined = bool(np.linalg.matrix_rank(M) == self.E.shape[1] - self.has_sum)
        most = 1.0 if everything else MOST_ENDS / (2 * len(self.names) * max(1, pixels))
        self.share, self.due = min(1.0, most) if self.is_defined else 0.0, 0.5

    def wrong(self, written: np.ndarray, Y: np.ndarray, each: np.ndarray | None) -> np.ndarray:
        """Return which pixels (n, L) have other ranges (bands, n) than they should, of those that are looked at.

        ``each`` is the noise of each pixel (n, L), NaN where it is missing; None where all have the same.
        """
        wrong = np.zeros(len(Y), bool)
        self.due += self.share * len(Y)
        count = min(len(Y), int(self.due))
        self.due -= count
        for n in np.linspace(0, len(Y) - 1, count).round().astype(int):
            noise = each[n] if self.has_each and each is not None else self.noise
            wrong[n] = self.is_wrong(written[:, n].astype(float).reshape(-1, 2), Y[n], noise)
        return wrong

    def is_wrong(self, written: np.ndarray, y: np.ndarray, noise: np.ndarray | None) -> bool:
        """Return whether the ranges (k, 2) of a pixel (L,) are others than they should be, for noise of its bands."""
        if noise is not None and not np.isfinite(noise).all():
            return bool((written != NODATA).any())
        E, y = (self.E, y) if noise is None else (self.E / noise[:, None], y / noise)
        best = (fcls if self.has_sum else nnls)(E, y)
        square, L = float(np.square(y - E @ best).sum()), len(y)
        scale = 1.0
        if self.limit.confidence is not None and noise is None:
            free = L - int(np.count_nonzero(best)) + int(self.has_sum)
            if free <= 0:  # no residual shows the pixel's noise
                return bool((written != NODATA).any())
            scale = square / free
        most = scale * float(self.limit.most(np.array([square / scale if scale > 0 else 0.0]), L)[0])
        rho = 0.5 * max(most, (ALWAYS_FITS * float(np.linalg.norm(y))) ** 2)
        if rho <= 0.5 * square or (self.w is not None and not self.w @ best > 0):
            return bool((written != NODATA).any())
        for (lower, upper), c in zip(written, self.quantities):
            room = SHARE_OF_RANGE * (upper - lower) + LEAST_DIFFERENCE * max(1.0, upper) + 2.0 * self.step
            found = [self.end(E, y, sign * c, rho) for sign in (-1.0, 1.0)]
            if not np.isnan(found).any() and max(abs(lower + found[0]), abs(upper - found[1])) > room:
                return True
        return False

    def end(self, E: np.ndarray, y: np.ndarray, c: np.ndarray, rho: float) -> float:
        """Return the largest value of a quantity, or of its fraction; NaN where a mixture without light fits."""
        if self.w is None:
            return largest(E, y, c, rho, self.has_sum)
        return largest_fraction(E, y, c * self.w, self.w, rho, self.has_sum)
