"""Find bands in use without a signal: with one value alone, or with noise that the other bands do not explain."""

import logging
from typing import NamedTuple

import numpy as np

from ..io import Scene, counted, in_ranges
from .bands import WATER, windows_of

log = logging.getLogger("unmix")
# A band is noisy with so many times the noise of the median band, and this part of its values; it has no signal where
# noise is this part of them. Of so many bands or more, and pixels a band, below which noise is not told from signal.
NOISY, LEAST_NOISE, NO_SIGNAL, FEWEST_BANDS, FEWEST_A_BAND = 5.0, 0.02, 0.3, 10, 4
# Counts scatter by their roots: a band of counts is noisy beyond this many times that.
BEYOND_COUNTS = 1.5
# Most pixels of a scene that are read for a look at them alone.
MOST_READ = 2048
# The largest deviation, beside the mean, that is rounding of one value.
MOST_ROUNDING = 1e-13
# Of so many bands or more, whose spectra are smooth, a band below this part of the bands on both sides of it, of so many
# on each side by their medians, is dead: what it holds is noise of its reading.
SPECTROMETER, DIM, BESIDE, FAR_BELOW = 20, 0.05, 5, "far below the bands on both sides"
# The part of such bands within the windows of water vapour from which on these are advised.
MOSTLY = 0.8


class Noisy(NamedTuple):
    """Noisy bands in use, from 0, and whether they have no signal."""

    bands: list[int]
    is_without_signal: bool

    def said(self, scene: Scene) -> str:
        """Return which bands they are, and how to leave them out."""
        waves, have = scene.cube.wavelengths, "has" if len(self.bands) == 1 else "have"
        what = (
            "values that no other band explains, noise as a rule"
            if self.is_without_signal
            else f"over {NOISY:g} times the noise of the median"
        )
        inside = [
            any(a <= waves[b] <= z for a, z in windows_of("`ignore_nm`", WATER))
            for b in self.bands
            if waves is not None
        ]
        rest = np.setdiff1d(scene.bands.index, self.bands).tolist()
        how = "`ignore_nm` water" if np.sum(inside) > MOSTLY * len(self.bands) else f"`bands` {in_ranges(rest)}"
        return (
            f"{counted(len(self.bands), 'band')} in use {have} {what}: {in_ranges(self.bands)}; {how} leaves them out"
        )


def noisy_bands(scene: Scene, pixels: int, mean: np.ndarray, covariance: np.ndarray) -> Noisy | None:
    """Return the bands in use (L,) that are noisy by moments of pixels: those without a signal, else all, or None."""
    variance = np.diag(covariance)
    varies = np.isfinite(variance) & (variance > 0)
    L = int(varies.sum())
    if pixels < FEWEST_A_BAND * L or L < FEWEST_BANDS:
        return None
    mean, spread, index = mean[varies], np.sqrt(variance[varies]), scene.bands.index[varies]
    D = covariance[np.ix_(varies, varies)] / spread / spread[:, None]
    explained = np.diag(np.linalg.inv(D + 1e-12 * np.eye(L)))
    noise, rms = spread / np.sqrt(np.maximum(explained, 1.0)), np.hypot(mean, spread)
    noisy = (noise > NOISY * np.median(noise)) & (noise > LEAST_NOISE * rms)
    if scene.cube.dtype.kind in "iu" and not (scene.bands.gain != 1).any():
        noisy &= noise > BEYOND_COUNTS * np.sqrt(np.maximum(mean, 0.0))
    without = noisy & (noise > NO_SIGNAL * rms)
    found = without if without.any() else noisy
    return Noisy(index[found].tolist(), bool(without.any())) if found.any() else None


def usual_deviation(values: np.ndarray) -> float:
    """Return the standard deviation of values (n,) by their median distance from the median: no outlier decides it."""
    return float(np.median(np.abs(values - np.median(values)))) / 0.6745  # that of normal numbers


def moments_of(Y: np.ndarray) -> tuple[int, np.ndarray, np.ndarray]:
    """Return the number of some pixels (n, L), their mean and their covariance."""
    if len(Y) < 2:
        return 0, np.full(Y.shape[1], np.nan), np.full((Y.shape[1],) * 2, np.nan)
    with np.errstate(over="ignore", invalid="ignore"):
        # About the first pixel, so that one value has a variance of exactly 0.
        return len(Y), Y.mean(axis=0), np.atleast_2d(np.cov(Y - Y[0], rowvar=False, bias=True))


def dim_bands(rms: np.ndarray) -> np.ndarray:
    """Return which bands lie far below the bands on both sides, bool (L,), by the root mean squares of all (L,)."""
    dim = np.zeros(len(rms), bool)
    for b in range(1, len(rms) - 1 if len(rms) >= SPECTROMETER else 0):
        sides = rms[max(0, b - BESIDE) : b], rms[b + 1 : b + 1 + BESIDE]
        dim[b] = rms[b] < DIM * min(map(np.median, sides))
    return dim


def warn_of_bands(scene: Scene, pixels: int, mean: np.ndarray, covariance: np.ndarray) -> None:
    """Warn of bands in use without a signal: they decide angles, depths and extracted spectra."""
    spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    constant = np.isfinite(mean) & (spread <= MOST_ROUNDING * np.abs(mean))
    for what, found in (("with one value", constant), (FAR_BELOW, dim_bands(np.hypot(mean, spread)) & ~constant)):
        if found.any():
            log.warning(
                f"{scene.cube.path}: {counted(int(found.sum()), 'band')} in use {what}: "
                f"{in_ranges(scene.bands.index[found].tolist())}; `bands` auto leaves such bands out"
            )
    if (noisy := noisy_bands(scene, pixels, mean, covariance)) is not None and noisy.is_without_signal:
        log.warning(f"{scene.cube.path}: {noisy.said(scene)}")
