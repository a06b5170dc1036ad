"""Count, mean and covariance of a scene in one pass, and projections; blocks and threads do not change their bits."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import CubeError
from ..io import Scene
from ..scene.odd import OddPixels
from ..scene.sample import sampled_spectra
from ..scene.undeclared import ConstantPixels
from .scan import Gpu, projections, stored_of, totals_of, walk

# Pairs of neighbours for each band that suffice for their covariance: lines are left out where a scene has more.
PAIRS_A_BAND = 200
FEWEST_LINES = 64
# Lines, in eighths of a scene, whose median spectrum is near enough to the mean for sums of squares about it.
NEAR_LINES = 1, 4, 7
# Pixels of each of these lines that the median is taken of: more would move it by less than the scene's own spread.
NEAR_PIXELS = 64
# The share of the second moment that is rounding of its pixels, whose values have 53 bits.
ROUNDING_SHARE = 2.0**-100
# Bytes up to which a matrix (bands, bands) is allowed whatever the budget: 5792 bands.
LARGEST_MATRIX = 2**28


@dataclass(frozen=True)
class Moments:
    """Count and moments of all valid pixels of a scene.

    Attributes
    ----------
    pixels : int
        Number of valid pixels.
    mean : array (L,), float64
    covariance : array (L, L), float64
    pairs : int
        Pairs of valid neighbours in a line that differ in some band.
    differences : array (L, L), float64
        Mean of ``d dᵀ / 2`` over their differences d: the covariance of noise that pixels do not share, and of texture
        (Green et al. 1988).
    odd : tuple of arrays (n,), int64
        The places of odd pixels of each scene; see `unmix.scene.odd`.
    """

    pixels: int
    mean: np.ndarray
    covariance: np.ndarray
    pairs: int
    differences: np.ndarray
    odd: tuple[np.ndarray, ...] = ()

    @functools.cached_property
    def second(self) -> np.ndarray:
        """The mean of ``y yᵀ``, (L, L)."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(self.covariance + np.outer(self.mean, self.mean))

    @functools.cached_property
    def powers(self) -> np.ndarray:
        """Eigenvalues of the second moment, ascending, (L,)."""
        return np.linalg.eigvalsh(self.second)

    @functools.cached_property
    def axes(self) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues of the covariance, ascending, (L,), and eigenvectors (L, L): all algorithms begin with them."""
        values, vectors = np.linalg.eigh(self.covariance)
        return values, vectors

    def left_by(self, d: int) -> float:
        """Return the variance that the d strongest components leave."""
        return float(self.axes[0][: len(self.mean) - d].sum())

    def floor(self, share: float) -> float:
        """Return the variance of a direction that counts as none: a ``share`` of all variance, plus rounding."""
        return share * float(np.trace(self.covariance)) + ROUNDING_SHARE * float(np.trace(self.second))


def moments(scene: Scene, budget: int, threads: int, gpu: Gpu | None = None) -> Moments:
    """Return the moments of valid pixels, in one pass, zeros if there are none; warn of undeclared fill values."""
    cube, L = scene.cube, len(scene.bands.index)
    size = 8 * L * L
    if size > max(budget, LARGEST_MATRIX):
        raise CubeError(
            f"{cube.path}: {L} bands: their second moment takes {size} bytes; use fewer `bands`, or give `endmembers`"
        )
    # Neighbours of every ``each``-th line are enough; the choice depends on the scene alone. Masks may leave some of
    # them empty.
    each = max(1, min(cube.lines * max(0, cube.samples - 1) // (PAIRS_A_BAND * L), cube.lines // FEWEST_LINES))
    constants, odd = ConstantPixels(scene), OddPixels(scene)
    about = middle_of(scene)

    def look(raw: np.ndarray, lines: slice) -> None:
        constants.look(raw, lines)
        odd.look(raw, lines)

    sums = totals_of(scene.less(about), budget, threads, each, look, gpu)
    constants.warn()
    n, pairs = max(1, sums.pixels), max(1, sums.pairs)
    offset = sums.total / n
    covariance = sums.products / n - np.outer(offset, offset)
    mean = (about if sums.pixels else 0.0) + offset
    return Moments(sums.pixels, mean, covariance, sums.pairs, sums.differences / (2 * pairs), (odd.found(sums.pixels),))


def middle_of(scene: Scene) -> np.ndarray:
    """Return the median spectrum (L,) of pixels of a few lines, or of a sample if these are masked; 0 if all are."""
    some = slice(None, None, -(-scene.cube.samples // NEAR_PIXELS))
    read = [scene.read(line, some) for line in sorted({scene.cube.lines * k // 8 for k in NEAR_LINES})]
    Y = np.concatenate([Y[~masked] for Y, masked in read])
    Y = Y if len(Y) else sampled_spectra(scene, PAIRS_A_BAND)[0]
    return np.median(Y, axis=0) if len(Y) else np.zeros(Y.shape[1])


def merged(parts: Sequence[Moments]) -> Moments:
    """Return the moments of several scenes together; those of one are as they are, to the bit."""
    if len(parts) == 1:
        return parts[0]
    pixels, pairs = sum(part.pixels for part in parts), sum(part.pairs for part in parts)
    shares = [part.pixels / max(1, pixels) for part in parts]
    mean = np.asarray(sum(part.mean * share for part, share in zip(parts, shares)))
    covariance = sum(
        (part.covariance + np.outer(part.mean - mean, part.mean - mean)) * share for part, share in zip(parts, shares)
    )
    differences = sum(part.differences * (part.pairs / max(1, pairs)) for part in parts)
    odd = tuple(one for part in parts for one in part.odd)
    return Moments(pixels, mean, np.asarray(covariance), pairs, np.asarray(differences), odd)


__all__ = ["PAIRS_A_BAND", "Moments", "merged", "moments", "projections", "stored_of", "walk"]
