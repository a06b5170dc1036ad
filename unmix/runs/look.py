"""Look at a sample of a scene without a constraint: how noisy it is, how its abundances sum, and which are negative."""

from dataclasses import dataclass, field

import numpy as np

from ..io import Cube, Scene
from ..problem import Problem
from ..scene.odd import is_odd
from ..scene.sample import sampled_spectra
from ..scene.signal import MOST_READ
from ..summary import Summary
from .record.judgement import LEAST_LEVEL, MISFIT_OF_LEVEL
from .record.misfit import Misfit, misfit_beside_noise

# The noise is taken from the pixels with the smallest residuals: this percentile.
NOISE_PERCENTILE = 5.0
# Fewest pixels of a sample, and most endmembers, that are judged: more endmembers explain any spectrum.
FEWEST_PIXELS, MOST_ENDMEMBERS = 64, 48
# Most bands in which a pixel may hold one value by chance.
MOST_ALIKE = 8
# Sums of abundances are reported if noise explains no more than this part of their variation.
MOST_NOISE_PART = 0.1
# Sums of which nine in ten are within this many deviations by noise vary by noise alone: 3.3 of normal noise.
WIDEST_BY_NOISE = 3.8
# Sums of which nine in ten are this near each other are one, whatever the method takes them for.
LEAST_BY_NOISE = 0.02
# The least part of a band's noise that residuals are taken to keep.
LEAST_LEFT = 0.05
# Values are not those of light if values below 0 have more than this share of the sum of squares: of
# minimum noise fractions it is a half, of reflectance with noise some per cent.
BOTH_SIGNS = 0.2


@dataclass(frozen=True)
class Sample:
    """Some pixels of a scene: their spectra (N, L), float64, and their lines and samples (N,)."""

    Y: np.ndarray
    lines: np.ndarray
    samples: np.ndarray

    @classmethod
    def read(cls, scene: Scene) -> "Sample":
        """Read pixels that have values in all bands, evenly spread over the scene, in pairs of neighbours."""
        found = cls(*sampled_spectra(scene, MOST_READ, in_pairs=True))
        return found.take(np.lexsort((found.samples, found.lines)))

    def take(self, which: np.ndarray) -> "Sample":
        """Return some of the pixels: their numbers, or a bool for each."""
        return Sample(self.Y[which], self.lines[which], self.samples[which])


def has_look(problem: Problem) -> bool:
    """Return whether a run can say what is missing: its pixels are mixtures of few endmembers, without a penalty."""
    return not problem.method.is_by_models and fits_look(problem.endmembers.matrix) and not problem.penalty.any()


def fits_look(E: np.ndarray) -> bool:
    """Return whether mixtures of endmembers (L, p) leave directions in which something could be missing."""
    return E.shape[1] <= min(MOST_ENDMEMBERS, len(E) - 2)


def sample_of(cube: Cube, problem: Problem, summary: Summary) -> Sample:
    """Return the pixels that a run kept; pixels that are read anew where it has not seen all lines."""
    kept = [Sample(*part) for part in summary.kept]
    if sum(map(len, (one.lines for one in kept))) < summary.sampled or not kept:
        return Sample.read(problem.scene(cube))
    together = Sample(*(np.concatenate([getattr(one, name) for one in kept]) for name in ("Y", "lines", "samples")))
    return together.take(np.lexsort((together.samples, together.lines)))


@dataclass(frozen=True)
class Look:
    """A first look at a sample, without a constraint.

    Attributes
    ----------
    negative, far_below : arrays (p,), float64
        Shares of pixels whose unconstrained abundance of an endmember is below 0, and below −0.05, pixels and spectra
        at unit length; NaN for a spectrum that is zero.
    unit : array (L, k), float64
        The endmembers that are not zero, at unit length.
    Y : array (N, L), float64
        The pixels at unit length.
    left : array (N, L), float64
        Their residuals at the unconstrained answer.
    noise : array (N,), float64
        The standard deviation of a band's noise in the scene, over the length of each pixel.
    sums : (float, float), optional
        The 5th and the 95th percentile of the sum of a pixel's unconstrained abundances; None where noise alone could
        vary it.
    level : float, optional
        The median of the sums, where three in four are on its side of one, and neither noise nor misfits are the cause.
        Else None.
    misfit : Misfit, optional
        The run's misfit beside its noise; None where the sample does not tell.
    sum_noise : float, optional
        The standard deviation of the sums by noise, where that is all by which they differ from one. Else None.
    given, amounts : arrays (L, p) and (p,), float64
        The endmembers, and the means of their unconstrained abundances; 0 of those that are zero.
    """

    negative: np.ndarray
    far_below: np.ndarray
    unit: np.ndarray
    Y: np.ndarray
    left: np.ndarray
    noise: np.ndarray
    sums: tuple[float, float] | None = None
    level: float | None = None
    misfit: Misfit | None = None
    sum_noise: float | None = None
    given: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    amounts: np.ndarray = field(default_factory=lambda: np.empty(0))

    @classmethod
    def at(cls, sample: Sample, E: np.ndarray, rmse: np.ndarray | None = None, lost: int = 0) -> "Look":
        """Look at pixels, none of them zero, with endmembers (L, p); ``rmse`` (N,) are those of a run, if any."""
        # ``lost``: the dimensions of the bands that hold no noise; see `unmix.problem.Problem`.
        Y = sample.Y
        sizes = np.linalg.norm(E, axis=0)
        there = sizes > 0
        unit, lengths = E[:, there] / sizes[there], np.linalg.norm(Y, axis=1)
        pixels = Y / lengths[:, None]
        inverse = np.linalg.pinv(unit)
        A = pixels @ inverse.T
        left = pixels - A @ unit.T
        shares = [np.full(len(sizes), np.nan) for _ in range(2)]
        for share, limit in zip(shares, (0.0, -0.05)):
            share[there] = (limit > A).mean(axis=0)
        L, p, residuals = Y.shape[1], unit.shape[1] + lost, left * lengths[:, None]
        squares = np.square(residuals).sum(axis=1) / max(1, L - p)
        noise = np.sqrt(np.percentile(squares, NOISE_PERCENTILE)) / lengths
        ordinary = squares <= np.percentile(squares, 90)  # some pixels miss an endmember
        of_bands = np.square(residuals[ordinary]).mean(axis=0)
        misfit = misfit_beside_noise(residuals, p, (sample.lines, sample.samples), rmse, lengths)
        if misfit is not None:
            weights = np.square(inverse)
            white = weights.sum(axis=1) * max(float(of_bands.mean()), 1e-300)
            misfit = misfit._replace(uneven=float(np.sqrt((weights @ of_bands / white).max())))
        adds = inverse.T @ (1.0 / sizes[there])  # a spectrum of the pixel times this is the sum of its abundances
        low, early, median, late, high = np.percentile((pixels @ adds) * lengths, (5, 25, 50, 75, 95)).tolist()
        # Of few bands beyond the endmembers, the least residuals are far below the noise (Wilson and Hilferty 1931).
        spread = 2 / 9 / max(1, L - p)
        least = max(1 - spread - 1.645 * spread**0.5, 0.16) ** 3  # of squares, the 5th percentile; 0.16: of one band
        by_noise = float(np.median(noise * lengths) * np.linalg.norm(adds) / least**0.5)
        sums = (low, high) if by_noise < MOST_NOISE_PART * (high - low) else None
        more = np.maximum(squares - (0.0 if misfit is None else misfit.noise**2), 0.0)  # than noise leaves
        missed = float(np.median(np.sqrt(more * max(1, L - p)) / lengths))
        off = abs(median - 1.0)
        kept = np.maximum(1 - np.einsum("ij,ji->i", unit, inverse), LEAST_LEFT)  # of a band's noise, by residuals
        sum_noise = max(by_noise, float(np.sqrt(np.square(adds) @ (of_bands / kept))))
        is_one = LEAST_BY_NOISE < high - low < WIDEST_BY_NOISE * sum_noise and off < (high - low) / len(Y) ** 0.5
        is_beside = early > 1.0 + LEAST_LEVEL / 2 if median > 1 else late < 1.0 - LEAST_LEVEL / 2
        clear = off > LEAST_LEVEL and missed < MISFIT_OF_LEVEL * off and 4.0 * by_noise < off * np.sqrt(len(Y))
        amounts = np.zeros(len(sizes))
        amounts[there] = (A * lengths[:, None]).mean(axis=0) / sizes[there]
        return cls(
            shares[0],
            shares[1],
            unit,
            pixels,
            left,
            noise,
            sums,
            median if is_beside and clear else None,
            None if rmse is None else misfit,
            sum_noise if is_one else None,
            E,
            amounts,
        )


def has_both_signs(Y: np.ndarray) -> bool:
    """Return whether values (N, L) lie on both sides of 0, as those of minimum noise fractions do."""
    Y = Y[~is_odd(Y) & (np.ptp(Y, axis=1) > 0)]  # one value in all bands is fill
    with np.errstate(over="ignore", invalid="ignore"):
        squares, below = np.square(Y).sum(axis=0), np.square(np.minimum(Y, 0.0)).sum(axis=0)
        of_bands = np.mean(below > BOTH_SIGNS * squares)  # not of a few bands without light, whose noise is large
        return bool(below.sum() > BOTH_SIGNS * squares.sum() and of_bands > 0.5)


def usable(sample: Sample, E: np.ndarray) -> Sample | None:
    """Return the pixels of a sample that have a length; None if they are too few, or E is out of range."""
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(sample.Y, axis=1)
    good = (lengths > 1e-100) & (lengths < 1e100)
    if sample.Y.shape[1] > MOST_ALIKE:
        good &= np.ptp(sample.Y, axis=1) > 0  # one value in all bands is fill
    ordinary = np.isfinite(E).all() and E.any() and 1e-100 < np.abs(E).max() < 1e100
    if good.sum() < FEWEST_PIXELS or not ordinary:
        return None
    return sample if good.all() else sample.take(good)
