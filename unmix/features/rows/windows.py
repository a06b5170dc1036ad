"""The pixels on which rows are chosen, and the means of their neighbours: the same mixtures, with less noise."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ...scene import Scene
from ...scene.sample import read_ahead, sample_blocks, sampled_spectra, spaced

# Pixels, or windows, on which a choice is made.
SAMPLE_PIXELS = 6000
# Side of a window, in pixels.
SIDE = 3


class PixelSample(NamedTuple):
    """Spectra of some pixels (N, L), and the means of some windows (m, L), evenly spread."""

    pixels: np.ndarray
    means: np.ndarray


def of_scene(scene: Scene, most: int = SAMPLE_PIXELS) -> PixelSample:
    """Return the sample of a scene, of at most so many pixels, and windows without a masked one."""
    cube, L, found = scene.cube, len(scene.bands.index), []
    blocks, across = sample_blocks(cube, SIDE**2 * most, SIDE), cube.samples // SIDE
    tops = [range(0, block.stop - block.start - SIDE + 1, SIDE) for block in blocks]
    every = max(1, -(-sum(map(len, tops)) * across // most))
    columns = np.flatnonzero(np.arange(across * SIDE) // SIDE % every == 0)
    for top, raw in zip(tops, read_ahead(cube, blocks)):
        for first in top:
            lines = slice(first, first + SIDE)
            part = raw[:, lines] if cube.interleave == "bsq" else raw[lines]
            part = part[:, columns] if cube.interleave == "bip" else part[..., columns]
            with np.errstate(invalid="ignore"):  # NaN that signals
                Y = scene.spectra(part)
            Y[scene.missing(part)] = np.nan
            found.append(window_means(Y.reshape(SIDE, -1, L)))
    return PixelSample(sampled_spectra(scene, most)[0], np.concatenate([np.empty((0, L)), *found]))


def of_array(Y: np.ndarray) -> PixelSample:
    """Return the sample of pixels (..., L): windows are those of an image (lines, samples, L), else none."""
    good = Y.reshape(-1, Y.shape[-1])
    good = good[np.isfinite(good).all(axis=1)]
    return PixelSample(spaced(good, SAMPLE_PIXELS), spaced(window_means(Y), SAMPLE_PIXELS) if Y.ndim == 3 else good[:0])


def joined_samples(samples: Iterable[PixelSample]) -> PixelSample:
    """Return the samples of some scenes as one."""
    return PixelSample(*map(np.concatenate, zip(*samples)))


def window_means(Y: np.ndarray) -> np.ndarray:
    """Return the means (m, L) of the windows of an image (lines, samples, L) whose values are all finite."""
    (m, n), L = (length // SIDE for length in Y.shape[:2]), Y.shape[2]
    found = Y[: m * SIDE, : n * SIDE].reshape(m, SIDE, n, SIDE, L).mean(axis=(1, 3)).reshape(-1, L)
    return found[np.isfinite(found).all(axis=1)]
