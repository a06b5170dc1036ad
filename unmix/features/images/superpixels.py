"""`superpixels`: a scene whose pixels are the means of small patches of alike neighbours."""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import ndimage

from ...blocks import BlockPlan, parse_size, workers_for
from ...endmembers import signal_of
from ...errors import MethodError
from ...io import NODATA, Scene, bytes_per_line, read_blocks
from ...io.formats.header import axis_fields
from ...maps.plain_map import new_maps, put_lines
from ...scene import ReadOptions, open_scene
from .mnf import clear_fractions

MEANS, LABELS, NOISE = "means", "superpixels", "_means_noise.txt"
# The sides of a tile, each of which is divided alone, in sides of a patch: 1 in 10 patches lies at the edge of a tile.
TILE = 20
# On scenes like DC1 and DC2 at 20 to 40 dB, patches of 4 to 7: with 1, patches follow noise, from 6 on they are nearer to squares.
COMPACTNESS = 3.0
# Minimum noise fractions that pixels are compared by, at most: later ones are mostly noise.
MOST_FRACTIONS = 10


def superpixels(
    cube: str | os.PathLike[str], *, size: int = 5, compactness: float = COMPACTNESS, out_dir: str | os.PathLike[str] | None = None,
    format: str = "envi", overwrite: bool = False, memory: str | int = "1G", threads: int | None = None, **reading: Any,
) -> dict[str, Any]:  # fmt: skip
    """Write a scene in which every pixel is the mean of its superpixel: a patch of alike neighbours.

    Patches are those of SLIC (Achanta et al. 2012, as scikit-image has it) on the minimum noise fractions of the scene. Unmixing the
    means is unmixing patches with that much less noise (MUA's first step, Borsoi et al. 2019).

    Parameters
    ----------
    cube : path-like
    size : int
        Mean side of a patch, in pixels.
    compactness : float
        A spectral difference of this many times the noise weighs as much as the distance of one side; larger ones make squarer patches.
    out_dir, format, overwrite, memory, threads, **reading
        See `unmix.mnf`.

    Returns
    -------
    dict
        ``files``: ``STEM_means``, the scene, float32; ``STEM_superpixels``, the number of the patch of each pixel, from 1, 0 where
        masked; ``STEM_means_noise.txt``, the standard deviation of the means' noise in each band, for `noise` of `unmix.run`: they
        cannot show it themselves. ``superpixels``: how many there are; ``fractions``: how many fractions they were told by.

    Raises
    ------
    MethodError
        Where a number is out of range, ``memory`` too small, or scikit-image is not installed.
    CubeError
        As of `unmix.mnf`.
    OutputError
        Where a file exists or cannot be written.
    """
    if not 2 <= size <= 100:
        raise MethodError(f"`size` {size}: must be from 2 to 100")
    if not 0 < compactness < 1e6:
        raise MethodError(f"`compactness` {compactness:g}: must be above 0, and below 1e6")
    try:
        import skimage.segmentation  # noqa: F401
    except ImportError:
        raise MethodError("superpixels need scikit-image: pip install 'unmix[superpixels]'") from None
    given = open_scene(cube, ReadOptions(**reading))
    scene, L, budget = given.cube, len(given.bands.index), parse_size(str(memory))
    needed = min(TILE * size, scene.lines) * (bytes_per_line(scene) + (8 * L + 4) * scene.samples)
    if needed > budget:
        raise MethodError(
            f"`memory` {budget} bytes is too small: {TILE * size} lines, which are divided together, need {needed}"
        )
    with new_maps(scene, out_dir, format, overwrite, [MEANS, LABELS], [NOISE]) as out:
        moments = signal_of(given, budget, workers_for(threads))
        _, W, count = clear_fractions(scene, moments)
        U, found = np.ascontiguousarray(W[:, : min(count, MOST_FRACTIONS)]), 0
        with out.open(MEANS) as means, out.open(LABELS) as labels:
            for Y, good in strips(given, TILE * size):
                of_strip = np.zeros(good.shape, np.int32)
                for first in range(0, scene.samples, TILE * size):
                    part = slice(first, first + TILE * size)
                    of_tile = patches(Y[:, part] @ U, good[:, part], size, compactness)
                    average(Y[:, part], of_tile)
                    of_strip[:, part] = np.where(of_tile > 0, of_tile + found, 0)
                    found += int(of_tile.max(initial=0))
                put_lines(scene, means, np.where(good[..., None], Y, np.nan).reshape(-1, L))
                labels.write(of_strip.astype("<i4").tobytes())
        fields = {"data ignore value": f"{NODATA:g}"} | axis_fields(given.wavelengths, given.fwhm)
        out.describe(MEANS, "means of superpixels", "f4", L, fields)
        noise = np.sqrt(np.diag(moments.differences) * found / moments.pixels)
        out.write(NOISE, "".join(f"{float(value)!r}\n" for value in noise))
        of_labels = {"band names": ["superpixel"], "data ignore value": "0"}
        out.describe(LABELS, "superpixels", "i4", 1, of_labels)
    return {"files": out.files, "superpixels": found, "fractions": U.shape[1]}


def strips(scene: Scene, lines: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the pixels of ``lines`` lines at a time, (n, samples, L) float64, 0 where masked, and which are not masked."""
    for _, raw in read_blocks(scene.cube, BlockPlan(scene.cube.lines, lines, 1)):
        good = ~scene.missing(raw).reshape(-1, scene.cube.samples)
        Y = scene.spectra(raw).reshape(*good.shape, -1)
        Y[~good] = 0.0
        yield Y, good


def patches(Z: np.ndarray, good: np.ndarray, size: int, compactness: float) -> np.ndarray:
    """Return the number of the patch of each pixel of a tile (n, m), from 1, 0 where it is not ``good`` (n, m).

    Z (n, m, d) are minimum noise fractions, whose noise has variance 1.
    """
    from skimage.segmentation import slic

    if not good.any():
        return np.zeros(good.shape, np.int32)
    wanted = max(1, round(good.sum() / size**2))
    Z = Z / noise_in(Z, good)
    # Two pixels of one patch differ by √(2d) in d fractions of noise. SLIC divides by the range of all values, and takes three of them
    # for red, green and blue, unless it is told not to.
    span = float(np.ptp(Z[good]))
    weight = compactness * np.sqrt(2.0 * Z.shape[2]) / (span if span > 0 else 1.0)
    mask = None if good.all() else good
    labels = np.asarray(slic(Z, wanted, weight, channel_axis=-1, mask=mask, start_label=1, convert2lab=False), np.int32)
    return with_leftovers(np.where(good, labels, 0), good)


def noise_in(Z: np.ndarray, good: np.ndarray) -> np.ndarray:
    """Return the noise of each fraction in a tile, (d,), from the median difference of neighbours; 1 where that is 0.

    Edges, which the noise of the whole scene includes, move a median little: in a scene of squares of 6 x 6 they made it ten times as
    large, and patches mere squares.
    """
    both = good[:, 1:] & good[:, :-1]
    differences = np.abs(Z[:, 1:] - Z[:, :-1])[both]
    noise = np.median(differences, axis=0) / (0.6745 * np.sqrt(2.0)) if len(differences) else np.ones(Z.shape[2])
    return np.where(noise > 0, noise, 1.0)


def with_leftovers(labels: np.ndarray, good: np.ndarray) -> np.ndarray:
    """Return labels from 1 on without gaps; what SLIC leaves of the good pixels, small islands in a mask, are patches of their own."""
    islands, _ = ndimage.label(good & (labels == 0))
    labels = np.where(islands > 0, labels.max() + islands, labels)
    _, places = np.unique(labels[good], return_inverse=True)
    result = np.zeros(labels.shape, np.int32)
    result[good] = places.ravel() + 1
    return result


def average(Y: np.ndarray, labels: np.ndarray) -> None:
    """Replace the pixels (n, m, L) of every patch by their mean; they are added in the order of the tile."""
    order = np.argsort(labels, axis=None, kind="stable")
    sorted_labels = labels.ravel()[order]
    starts = np.flatnonzero(np.diff(sorted_labels, prepend=-1))
    counts = np.diff(starts, append=len(order))
    pixels = Y.reshape(-1, Y.shape[2])
    means = np.add.reduceat(pixels[order], starts, axis=0) / counts[:, None]
    flat = np.empty_like(pixels)
    flat[order] = np.repeat(means, counts, axis=0)
    Y[...] = flat.reshape(Y.shape)
