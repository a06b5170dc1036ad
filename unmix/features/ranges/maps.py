"""Derive the proved least and largest sums by class, or abundances, over all mixtures that fit a pixel."""

import logging
from functools import partial
from typing import Any

import numpy as np

from ...io import NODATA, spectra
from ...library import ClassSums
from ...maps.derived.noise import NoiseCube
from ...maps.derived.solved import freedom, map_of_solved, rounded_up
from ...problem import Problem
from ...runs.pooled import Pooled
from .calibration import Calibration
from .limit import FitLimit
from .mixtures import Mixtures

log = logging.getLogger("unmix")
# Pixels that are bounded together, and those of these that have noise of their own each, and so a matrix each.
TOGETHER, TOGETHER_WITH_NOISE = 16384, 64


def stored_ranges(lower: np.ndarray, upper: np.ndarray, step: float | None) -> np.ndarray:
    """Return ends (n, k) as bands (n, 2 k), rounded outwards, to multiples of a ``step`` if given; −9999 for NaN."""
    out = np.empty((len(lower), 2 * lower.shape[1]), np.float32)
    out[:, 0::2], out[:, 1::2] = -rounded_up(-lower, step), rounded_up(upper, step)
    return np.where(np.isnan(out), np.float32(NODATA), out)


class RangeMap:
    """Lower and upper bounds; a map of `unmix.maps.derived`.

    Parameters
    ----------
    problem : Problem
        Of nnls, fcls or pcls, with the noise of its bands, or of each pixel's, or None to take it, white, from
        residuals.
    sums : ClassSums
        The sums whose ranges are wanted, each of one endmember for those of abundances.
    limit : FitLimit
    threads : int
        CPU threads for a block's lines.
    step : float, optional
        Of the integers that the map is stored as.
    shared : Pooled, optional
        The noise of the scene, where each pixel's own is not known.
    """

    def __init__(
        self,
        problem: Problem,
        sums: ClassSums,
        limit: FitLimit,
        threads: int = 1,
        step: float | None = None,
        shared: Pooled | None = None,
    ) -> None:
        self.shared = shared or Pooled()
        self.problem, self.sums, self.limit, self.step = problem, sums, limit, step
        E, self.deviations = problem.endmembers.matrix, np.ones(len(problem.endmembers.matrix))
        self.noise = problem.noise if limit.confidence is not None else None
        if isinstance(self.noise, np.ndarray):
            self.deviations = self.noise
        constraint = problem.constraint
        has_sum = constraint.sum_to_one or constraint.has_shade
        self.mixtures = Mixtures(E / self.deviations[:, None], has_sum, threads)
        self.quantities = np.zeros((len(sums.members), E.shape[1]))
        for c, members in enumerate(sums.members):
            self.quantities[c, list(members)] = 1.0
        self.weights: np.ndarray | None = None
        if sums.normalized:
            materials = np.append(np.ones(E.shape[1] - 1), 0.0) if sums.has_shade else np.ones(E.shape[1])
            self.weights = materials if sums.weights is None else np.array(sums.weights)
        self.calibration = Calibration.of(limit, self.mixtures.E, has_sum, self.quantities, self.weights)

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
        each = self.noise.read(first, len(abundance)) if isinstance(self.noise, NoiseCube) else None

        def values(places: np.ndarray, A: np.ndarray) -> np.ndarray:
            out = np.empty((len(A), len(self.bands)), np.float32)
            if each is not None and isinstance(self.noise, NoiseCube):
                known = np.isfinite(each[places]).all(axis=1)
                out[~known] = NODATA
                out[known] = self.with_noise(Y[places[known]], each[places[known]])
                self.noise.lost.append(int((~known).sum()))
                return out
            for begin in range(0, len(A), TOGETHER):
                part = slice(begin, begin + TOGETHER)
                out[part] = self.of_pixels(Y[places[part]], A[part])
            return out

        return map_of_solved(len(self.bands), abundance, masked, values)

    def of_pixels(self, Y: np.ndarray, A: np.ndarray) -> np.ndarray:
        """Return bands of pixels (n, L) with best abundances (n, p): rounded outwards, −9999 without range or noise."""
        L, has_noise = len(self.deviations), self.noise is not None
        if has_noise:
            Y = Y / self.deviations
            if np.ptp(self.deviations) > 0:  # another measure has another best mixture
                A = self.mixtures.solve(Y)
        by_residual = self.limit.within is None and not has_noise
        free = freedom(L - self.problem.lost, A, self.problem.constraint.equations)

        def most(squares: np.ndarray) -> np.ndarray:
            if not by_residual:
                return self.limit.most(squares, L, self.above(A))
            variances, known = self.shared.variances(squares, free.astype(float))
            above = self.above(A, np.sqrt(variances))
            assert above is not None  # by residuals one range holds at a time
            return np.asarray(squares + variances * above * self.limit.widened(known))

        lower, upper, *_ = self.mixtures.ends(self.mixtures.pixels(Y, A, most), self.quantities, self.weights)
        if by_residual:
            unknown = self.shared.free + free <= 0
            lower[unknown], upper[unknown] = np.nan, np.nan
        return stored_ranges(lower, upper, self.step)

    def above(self, A: np.ndarray, sigma: np.ndarray | float = 1.0) -> np.ndarray | None:
        """Return limits (n,) of pixels with best mixtures A (n, P) and noise sigma (n,); None if not calibrated."""
        return None if self.calibration is None else self.calibration.limits(A, sigma)

    def with_noise(self, Y: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Return the bands of pixels (n, L) that have noise (n, L) of their own."""
        found = np.empty((4, len(Y), len(self.quantities)))
        for begin in range(0, len(Y), TOGETHER_WITH_NOISE):
            part = slice(begin, begin + TOGETHER_WITH_NOISE)
            best = self.mixtures.solve_each(Y[part], noise[part])
            for n, (y, deviations, a) in enumerate(zip(Y[part], noise[part], best), begin):
                mixtures, y, a = self.mixtures.over(deviations), (y / deviations)[None], a[None]
                # Near the same truths limits hardly depend on how noise is spread over bands: sigma is the pixel's
                # mean.
                sigma = np.sqrt(np.square(deviations).mean())
                pixels = mixtures.pixels(y, a, partial(self.limit.most, L=Y.shape[1], above=self.above(a, sigma)))
                found[:, [n]] = mixtures.ends(pixels, self.quantities, self.weights)
        return stored_ranges(found[0], found[1], self.step)


def made(given: Any) -> RangeMap:
    """Return the map of a run."""
    problem, options = given.problem, given.options
    limit = FitLimit.of(options)
    endmembers, has_shade = problem.endmembers, problem.constraint.has_shade
    if options.ranges == "class":
        sums = ClassSums.of(endmembers, options.shade_normalize)
    else:
        names = endmembers.names[: len(endmembers.names) - has_shade]
        sums = ClassSums(names, tuple((j,) for j in range(len(names))), has_shade, False)
    by_residual = limit.confidence is not None
    shared = Pooled.of_run(given) if by_residual else None
    return RangeMap(problem, sums.weighted(problem.normalization), limit, given.threads, options.quantize, shared)
