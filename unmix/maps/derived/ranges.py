"""Derive the least and the largest value of sums by class, or of abundances, over all mixtures that fit a pixel, proved."""

import numpy as np

from ...arrays.ranges.mixtures import Mixtures
from ...io import spectra
from ...io.export import NODATA
from ...library import ClassSums
from ...methods.fit_limit import FitLimit
from ...problem import Problem
from .uncertainty import map_of_solved

# Pixels that are bounded together.
TOGETHER = 16384


class RangeMap:
    """Lower and upper bounds; a map of `unmix.maps.derived`.

    Parameters
    ----------
    problem : Problem
        Of nnls, fcls or pcls, with the noise of its bands, or None to take it, white, from each pixel's residual.
    sums : ClassSums
        The sums whose ranges are wanted, each of one endmember for those of abundances.
    limit : FitLimit
    threads : int
        CPU threads for a block's lines.
    """

    def __init__(self, problem: Problem, sums: ClassSums, limit: FitLimit, threads: int = 1) -> None:
        self.problem, self.sums, self.limit = problem, sums, limit
        E, self.deviations = problem.endmembers.matrix, np.ones(len(problem.endmembers.matrix))
        self.has_noise = limit.confidence is not None and problem.noise is not None
        if self.has_noise:
            self.deviations = np.asarray(problem.noise)
        constraint = problem.constraint
        self.mixtures = Mixtures(E / self.deviations[:, None], constraint.sum_to_one or constraint.has_shade, threads)
        self.quantities = np.zeros((len(sums.members), E.shape[1]))
        for c, members in enumerate(sums.members):
            self.quantities[c, list(members)] = 1.0
        self.weights = None
        if sums.normalized:
            materials = np.append(np.ones(E.shape[1] - 1), 0.0) if sums.has_shade else np.ones(E.shape[1])
            self.weights = materials if sums.weights is None else np.array(sums.weights)

    @property
    def bands(self) -> tuple[str, ...]:
        """The names of the bands."""
        return tuple(f"{name} {end}" for name in self.sums.names for end in ("lower", "upper"))

    @property
    def description(self) -> str:
        """Description of the map."""
        return f"proved ranges: {self.limit.words},"

    def of(self, first: int, raw: np.ndarray, abundance: np.ndarray, masked: np.ndarray) -> np.ndarray:
        """See `unmix.maps.derived.table.DerivedMap`."""
        Y = spectra(raw, self.problem.interleave, self.problem.bands)

        def values(places: np.ndarray, A: np.ndarray) -> np.ndarray:
            out = np.empty((len(A), len(self.bands)), np.float32)
            for begin in range(0, len(A), TOGETHER):
                part = slice(begin, begin + TOGETHER)
                out[part] = self.of_pixels(Y[places[part]], A[part])
            return out

        return map_of_solved(len(self.bands), abundance, masked, values)

    def of_pixels(self, Y: np.ndarray, A: np.ndarray) -> np.ndarray:
        """Return the bands of pixels (n, L) with optimal abundances (n, p): rounded outwards, −9999 where there is no range."""
        L = len(self.deviations)
        if self.has_noise:
            Y = Y / self.deviations
            if np.ptp(self.deviations) > 0:  # another measure has another best mixture
                A = self.mixtures.solve(Y)
        misfits = self.mixtures.misfits(Y, A)
        if self.limit.within is not None or self.has_noise:
            rho = 0.5 * self.limit.most(2.0 * misfits, L)
        else:  # noise from the residual
            free = np.maximum(1, L - np.count_nonzero(A, axis=1) + self.problem.constraint.equations)
            variances = 2.0 * misfits / free
            with np.errstate(divide="ignore", invalid="ignore"):
                squares = np.where(variances > 0, 2.0 * misfits / variances, 0.0)
            rho = 0.5 * variances * self.limit.most(squares, L)
        lower, upper, _, _ = self.mixtures.ends(Y, A, misfits, rho, self.quantities, self.weights)
        out = np.empty((len(Y), len(self.bands)), np.float32)
        out[:, 0::2], out[:, 1::2] = rounded(lower, -np.inf), rounded(upper, np.inf)
        return out


def rounded(values: np.ndarray, towards: float) -> np.ndarray:
    """Return values as float32 that are not on the other side of them than ``towards``; −9999 for NaN."""
    with np.errstate(over="ignore"):
        nearest = values.astype(np.float32)
    is_short = nearest > values if towards < 0 else nearest < values
    moved = np.where(is_short, np.nextafter(nearest, np.float32(towards)), nearest)
    return np.where(np.isnan(values), np.float32(NODATA), moved)
