"""`ppi`: the pixel purity index, how often each pixel is the extreme one along a random direction."""

import os
from typing import Any

import numpy as np

from ...blocks import parse_size, workers_for
from ...endmembers import signal_of
from ...endmembers.passes import Passes
from ...errors import MethodError
from ...io import Cube
from ...io.formats.header import geotransform
from ...maps.plain_map import new_maps, table_text
from ...scene import ReadOptions, open_scene

IMAGE, TABLE = "ppi", "_ppi.csv"
# Directions of one pass over the file; most pixels that the table lists; most directions: more fit no counter.
TOGETHER, LISTED, MOST_SKEWERS = 256, 10_000, 1_000_000
MASKED = -1


def ppi(
    cube: str | os.PathLike[str],
    *,
    skewers: int = 10_000,
    seed: int = 0,
    out_dir: str | os.PathLike[str] | None = None,
    format: str = "envi",
    overwrite: bool = False,
    memory: str | int = "1G",
    threads: int | None = None,
    **reading: Any,
) -> dict[str, Any]:
    """Count how often each pixel is the first or the last along a random direction (Boardman et al. 1995).

    The directions are Gaussian, in all bands in use, on pixels less their mean. Of equal pixels the first counts.

    Parameters
    ----------
    cube : path-like
    skewers : int
        The number of directions; each is two counts.
    seed : int
    out_dir, format, overwrite, memory, threads, **reading
        See `unmix.mnf`.

    Returns
    -------
    dict
        ``files``; ``skewers``; ``pixels``: ``[line, sample, count]``, in the whole scene, of the pixels with a count,
        the largest first, at most 10 000.

    Raises
    ------
    MethodError
        For no direction, or more than a million, or a seed below 0.
    CubeError, OutputError
        As there.
    """
    if not 1 <= skewers <= MOST_SKEWERS:
        raise MethodError(f"`skewers` {skewers}: must be from 1 to {MOST_SKEWERS}")
    if seed < 0:
        raise MethodError(f"`seed` {seed}: must be 0 or more")
    given = open_scene(cube, ReadOptions(**reading))
    scene = given.cube
    budget, workers = parse_size(str(memory)), workers_for(threads)
    with new_maps(scene, out_dir, format, overwrite, [IMAGE], [TABLE]) as out:
        mean = signal_of(given, budget, workers).mean
        counts = extremes(Passes([given], budget, workers), mean, skewers, seed)
        ordered = np.flatnonzero(counts > 0)
        ordered = ordered[np.argsort(-counts[ordered], kind="stable")][:LISTED]
        lines, samples = (at + begin for at, begin in zip(np.divmod(ordered, scene.samples), scene.origin))
        places = np.stack([lines, samples, counts[ordered]], axis=1).tolist()
        with out.open(IMAGE) as file:
            file.write(counts.astype("<i4").tobytes())
        fields = {"band names": ["pixel purity index"], "data ignore value": str(MASKED)}
        what = f"pixel purity index of {skewers} directions"
        out.describe(IMAGE, what, "i4", 1, fields)
        axes, where = on_the_map(scene, ordered)
        rows = [[*place, *map(repr, at)] for place, at in zip(places, where)]
        out.write(TABLE, table_text(("line", "sample", "count", *axes), rows))
    return {"files": out.files, "skewers": skewers, "pixels": places}


def on_the_map(scene: Cube, pixels: np.ndarray) -> tuple[tuple[str, ...], list[list[float]]]:
    """Return the names of the map's axes, and the map coordinates of pixels' centres; empty without a map."""
    transform = geotransform(scene.fields.get("map info", ""))
    if transform is None:
        return (), [[] for _ in pixels]
    line, sample = (at + 0.5 for at in np.divmod(pixels, scene.samples))
    x = transform[0] + transform[1] * sample + transform[2] * line
    y = transform[3] + transform[4] * sample + transform[5] * line
    return ("x", "y"), np.stack([x, y], axis=1).tolist()


def extremes(passes: Passes, mean: np.ndarray, skewers: int, seed: int) -> np.ndarray:
    """Return how often each pixel is an extreme, (N,) int32; `MASKED` where masked."""
    random = np.random.Generator(np.random.PCG64(seed))
    counts = np.zeros(passes.pixels, np.int32)
    for first in range(0, skewers, TOGETHER):
        U = random.standard_normal((min(TOGETHER, skewers - first), len(mean))).T
        U = np.ascontiguousarray(U / np.sqrt(np.square(U).sum(axis=0)))
        places, values = np.zeros((2, U.shape[1]), np.int64), np.full((2, U.shape[1]), -np.inf)

        def visit(begun: int, rows: np.ndarray, places: np.ndarray = places, values: np.ndarray = values) -> None:
            masked = np.isnan(rows[:, 0])
            counts[begun : begun + len(rows)][masked] = MASKED
            for which, sign in enumerate((1.0, -1.0)):
                signed = np.where(masked[:, None], -np.inf, sign * rows)
                best = signed.argmax(axis=0)
                larger = signed[best, np.arange(len(best))] > values[which]
                places[which, larger] = begun + best[larger]
                values[which, larger] = signed[best, np.arange(len(best))][larger]

        passes.project(U, mean, visit)
        np.add.at(counts, places.ravel(), 1)
    return counts
