"""Estimate by how much one map is shifted against another: edges of what did not change pass for changes then."""

from collections.abc import Sequence

import numpy as np

from ...scene.signal import usual_deviation
from .blocks import both_of
from .sides import Side

# Least side of a map that shows a shift, and the longest that is looked at; the least shift that is said, in pixels and
# in its standard errors; and the largest that is searched.
LEAST_SIDE, LONGEST_SIDE = 16, 512
LEAST_SHIFT, ERRORS, LARGEST_SHIFT = 0.1, 5.0, 16
# The part of the median difference, at most, that is left where a shift explains it.
LEAST_GAIN = 0.9
# Steps of the search within a pixel.
STEPS = 6
# Condition above which edges run in one direction alone.
WORST_CONDITION = 1e4
# Deviations of differences beyond which a pixel changed.
MOST_DEVIATIONS = 3.0


def shift_of(a: np.ndarray, b: np.ndarray) -> tuple[float, float] | None:
    """Return by how many lines and samples a map (n, m) is shifted against another, None where that is not clear."""
    # By the phase of their spectra to a pixel (Kuglin and Hines 1975), then by least squares on the gradient of both
    # (Lucas and Kanade 1981). NaN stands for no value.
    if min(a.shape) < LEAST_SIDE:
        return None
    from scipy.ndimage import uniform_filter

    a, b = (uniform_filter(np.where(np.isfinite(one), one, np.nanmedian(one)), 3, mode="nearest") for one in (a, b))
    found = (shift_from(whole, a, b) for whole in (whole_shift(a, b), (0, 0)))
    return next(filter(None, found), None)


def shift_from(whole: tuple[int, int], a: np.ndarray, b: np.ndarray) -> tuple[float, float] | None:
    """Return the shift near one of whole pixels; None unless it is clear."""
    from scipy.ndimage import fourier_shift

    shift, error, spectrum = np.array(whole, float), np.inf, np.fft.rfft2(b)
    for _ in range(STEPS):
        moved: np.ndarray = np.fft.irfft2(fourier_shift(spectrum, shift, b.shape[1]), b.shape)
        edge = int(np.ceil(np.abs(shift).max())) + 2
        inner = (slice(edge, -edge),) * 2
        if edge > LARGEST_SHIFT + 2 or min(a[inner].shape) < LEAST_SIDE // 2:
            return None
        slopes = np.stack([one[inner].ravel() for one in np.gradient((a + moved) / 2)])
        off = (a - moved)[inner].ravel()
        off -= np.median(off)
        # Leave out changes on the ground: most of them are beyond the noise.
        same = np.abs(off) <= MOST_DEVIATIONS * usual_deviation(off)
        slopes, off = slopes[:, same], off[same]
        matrix = slopes @ slopes.T
        if not 0 < np.linalg.cond(matrix) < WORST_CONDITION:
            return None
        step = -np.linalg.solve(matrix, slopes @ off)
        shift += step
        # Smoothed pixels are not independent: nine of them count as one.
        left = np.square(off + slopes.T @ step).mean() * 9
        error = float(np.sqrt(left * np.linalg.inv(matrix).diagonal().max()))
    size = float(np.hypot(*shift))
    left_of = [np.abs(one - np.median(one)) for one in ((a - b)[inner], (a - moved)[inner])]
    is_better = np.median(left_of[1]) < LEAST_GAIN * np.median(left_of[0])  # which a change on the ground is not
    is_clear = size > max(LEAST_SHIFT, ERRORS * error) and np.abs(shift - whole).max() < 2 and is_better
    return (float(shift[0]), float(shift[1])) if is_clear else None


def middle_of(one: Side, other: Side, pairs: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the middle of two compared maps, both (n, m, pairs), NaN where either has no value."""
    lines, samples = (
        slice(max(0, (size - LONGEST_SIDE) // 2), min(size, (size + LONGEST_SIDE) // 2)) for size in one.size
    )
    A, B, in_a, in_b = both_of(one, other, lines)
    there = (in_a & in_b)[:, samples, None]
    A, B = A[:, samples, [i for i, _ in pairs]], B[:, samples, [j for _, j in pairs]]
    return np.where(there, A, np.nan), np.where(there, B, np.nan)


def shift_between(A: np.ndarray, B: np.ndarray) -> tuple[float, float] | None:
    """Return the `shift_of` two maps (n, m, pairs) by the pair that varies most."""
    if not np.isfinite(B).any():
        return None
    k = int(np.nanvar(B, axis=(0, 1)).argmax())
    return shift_of(A[..., k], B[..., k])


def whole_shift(a: np.ndarray, b: np.ndarray) -> tuple[int, int]:
    """Return the shift in whole pixels."""
    window = np.outer(*(np.hanning(size) for size in a.shape))
    spectra = [np.fft.rfft2((one - one.mean()) * window) for one in (a, b)]
    product = spectra[0] * spectra[1].conj()
    peaks = np.fft.irfft2(product / np.maximum(np.abs(product), np.finfo(float).tiny), a.shape)
    rows, columns = (np.fft.fftfreq(size, 1 / size).astype(int) for size in a.shape)
    near = (np.abs(rows) <= LARGEST_SHIFT)[:, None] & (np.abs(columns) <= LARGEST_SHIFT)
    line, sample = np.unravel_index(np.where(near, peaks, -np.inf).argmax(), a.shape)
    return int(rows[line]), int(columns[sample])
