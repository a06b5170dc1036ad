"""`detect`: how much of each target spectrum a pixel shows beyond the background of its scene: matched filter and ACE.

Places of a target: pixels above a threshold that touch, the best first.
"""

import logging
import os
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...blocks import parse_size, workers_for
from ...endmembers.statistics import moments, projections
from ...errors import CubeError, MethodError
from ...io import NODATA, Cube, Scene
from ...io.formats.header import geotransform
from ...library import Endmembers, load_for
from ...maps.plain_map import new_maps, put_lines, refuse_masked, table_text
from ...outputs.names import inputs_of
from ...scene import SCALE_PIXELS, ReadOptions, open_scene, said_of_scales, sampled_spectra, unit_of_library
from ...scene.sample import warn_of_sample
from ...scene.signal import usual_deviation

# Pixels of a target, in file order, that are kept at most: above a threshold that so many exceed it is no rare target.
MOST_ABOVE = 100_000
# The columns of the table; x and y are the coordinates of the middle of the best pixel, where the scene has a place on
# a map.
COLUMNS = ("name", "score", "line", "sample", "x", "y", "pixels")


class Above(NamedTuple):
    """Pixels of a scene above a threshold: their numbers, ``line · samples + sample``, ascending, and their scores."""

    pixels: np.ndarray
    scores: np.ndarray


def joined(parts: list[Above]) -> Above:
    """Return pixels of blocks that follow each other as one."""
    return Above(*(np.concatenate(column) for column in zip(*parts))) if parts else Above(np.empty(0, int), np.empty(0))


def places_of(name: str, above: Above, scene: Cube) -> list[dict[str, Any]]:
    """Return a row of `COLUMNS` for the best pixel of each group of touching pixels, the best group first."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    pixels, scores = above
    if not len(pixels):
        return []
    rows, columns = np.divmod(pixels, scene.samples)
    pairs = []
    # Neighbours touch by sides or corners.
    for down, across in ((0, 1), (1, -1), (1, 0), (1, 1)):
        inside = (columns + across >= 0) & (columns + across < scene.samples)
        other = np.searchsorted(pixels, wanted := pixels + down * scene.samples + across)
        known = inside & (other < len(pixels)) & (pixels[np.minimum(other, len(pixels) - 1)] == wanted)
        pairs.append(np.stack([np.flatnonzero(known), other[known]]))
    left, right = np.concatenate(pairs, axis=1)
    _, group = connected_components(
        coo_array((np.ones(len(left)), (left, right)), shape=(len(pixels),) * 2), directed=False
    )
    best = np.lexsort((pixels, -scores))
    first = best[
        np.sort(np.unique(group[best], return_index=True)[1])
    ]  # of each group its best pixel, in order of the scores
    sizes = np.bincount(group)
    x, a, b, y, c, d = geotransform(scene.fields.get("map info", "")) or (np.nan,) * 6
    found = []
    for n in first.tolist():
        line, sample = float(rows[n]) + 0.5, float(columns[n]) + 0.5
        at = x + a * sample + b * line, y + c * sample + d * line
        found.append(
            dict(
                zip(
                    COLUMNS,
                    (
                        name,
                        float(scores[n]),
                        int(rows[n]) + scene.origin[0],
                        int(columns[n]) + scene.origin[1],
                        *(None if np.isnan(one) else one for one in at),
                        int(sizes[group[n]]),
                    ),
                )
            )
        )
    return found


log = logging.getLogger("unmix")

IMAGE, TABLE, PLACES = "detect", "_detect.csv", "_detect_places.csv"
# The share of all variance below which a direction of the background counts as none.
LEAST_VARIANCE = 1e-13
DETECTORS = ("mf", "ace")
# Standard deviations of the background, along the target, above which a pixel is of a place unless a threshold is
# given: backgrounds have longer tails than noise, where one pixel in 500 million is as far.
DEVIATIONS = 6.0
# The share of pixels that are so far, above which that deviation is of a part of the scene alone.
MOST_BEYOND = 0.01
# Targets are in the unit of the scene where the pixels most like them, at most `MOST_LIKE` of a sample, are as large
# within this factor: shade and other light make less of it, units (per cent, DN) more.
LARGEST_FACTOR, MOST_LIKE = 5.0, 100


def detect(
    cube: str | os.PathLike[str],
    endmembers: str | os.PathLike[str],
    *,
    detector: str = "mf",
    select: str | None = None,
    library_scale: float | None = None,
    across_gaps: bool = False,
    threshold: float | None = None,
    out_dir: str | os.PathLike[str] | None = None,
    format: str = "envi",
    overwrite: bool = False,
    memory: str | int = "1G",
    threads: int | None = None,
    **reading: Any,
) -> dict[str, Any]:
    """Write for every pixel how much of each target it shows beyond the background, which is all of its scene.

    Parameters
    ----------
    cube : path-like
    endmembers : path-like
        The library of targets, which is resampled to the bands in use.
    detector : {"mf", "ace"}
        The matched filter, 1 for a pixel of the target alone and 0 on average over the scene; or the adaptive cosine
        estimator, the square of the cosine between pixel and target after the background is whitened, from −1 to 1 with
        the sign of the cosine.
    select, library_scale, across_gaps
        See `unmix.run`.
    threshold : float, optional
        The score above which a pixel is of a place; default: the score of 6 deviations of the background along the
        target, by the median distance from the median: of the matched filter as many of its own, of the cosine of a
        pixel that is so far and else as the background.
    out_dir, format, overwrite, memory, threads, **reading
        See `unmix.mnf`.

    Returns
    -------
    dict
        ``files``; ``places``, groups of pixels above the threshold that touch, the best first: ``name`` of the target,
        ``score``, ``line``, ``sample``, ``x`` and ``y`` of the best pixel, and ``pixels``, how many there are;
        ``thresholds``, of each target; ``rank``, the number of directions in which the background varies; and
        ``targets``: of each ``name``, ``largest``, and its ``line`` and ``sample`` in the whole scene.

    Raises
    ------
    MethodError
        For an unknown detector, or a target that is the mean of the scene.
    CubeError
        Where the scene cannot be read, or has no two pixels that differ; or where targets are in another unit.
    LibraryError
        Where the library cannot be read, or does not cover the bands.
    OutputError
        Where a file exists or cannot be written.

    Notes
    -----
    With μ and C the mean and the covariance of the pixels, ``x = y − μ`` and ``s = t − μ``: MF is ``sᵀC⁻¹x / sᵀC⁻¹s``,
    ACE ``(sᵀC⁻¹x)² / (sᵀC⁻¹s · xᵀC⁻¹x)`` (Kraut, Scharf and Butler 2005). Where C is singular, its pseudoinverse takes
    part.
    """
    if detector not in DETECTORS:
        raise MethodError(f"`detector` '{detector}': must be {' or '.join(DETECTORS)}")
    given = open_scene(cube, ReadOptions(**reading))
    scene, budget, workers = given.cube, parse_size(str(memory)), workers_for(threads)
    library = load_for(endmembers, given, None, library_scale, select, False, across_gaps)
    unit = unit_of_library(given, library, (library_scale, reading.get("scale")))
    library = library if unit is None else replace(library, matrix=library.matrix / unit)
    warn_of_sample(given)
    Y = sampled_spectra(given, SCALE_PIXELS)[0]
    check_unit(given, Y, library, reading.get("scale") is not None)
    with new_maps(scene, out_dir, format, overwrite, [IMAGE], [TABLE, PLACES], inputs_of(library=endmembers)) as out:
        mean, whiten = background(given, budget, workers)
        targets = whiten.T @ (library.matrix - mean[:, None])
        lengths = np.linalg.norm(targets, axis=0)
        if not (lengths > 0).all():
            raise MethodError(
                f"{library.names[int(lengths.argmin())]}: is the mean of the scene, from which nothing tells it"
            )
        rank = len(whiten.T)
        # By medians of a sample: what a plume adds to the deviation of all pixels would hide weaker ones.
        some = (Y - mean) @ (whiten @ (targets / lengths))
        some = some if len(some) else np.zeros((1, len(lengths)))
        usual = np.array([usual_deviation(column) for column in some.T])
        # Of two kinds of ground the deviation of one says nothing of the other; 0 where most pixels are equal.
        is_one = (np.abs(some - np.median(some, axis=0)) > DEVIATIONS * usual).sum(axis=0) <= MOST_BEYOND * len(some)
        far = DEVIATIONS * np.where((usual > 0) & is_one, usual, 1.0)
        scores = far / lengths if detector == "mf" else far**2 / (far**2 + rank - 1)
        limits = scores if threshold is None else np.full(len(lengths), threshold)
        # Pixels of the target alone have a score of 1.
        for name, limit in zip(library.names, limits):
            if limit >= 1:
                log.warning(
                    f"{scene.stem}: {name} is too near the background: its threshold, {limit:.3g}, is above 1, which "
                    "pixels of it alone have, or much of the scene holds it, so that its scores are too low; give `threshold`"
                )
        above: list[list[Above]] = [[] for _ in limits]
        best = [(-np.inf, 0)] * len(library.names)  # the largest score of each, and the first pixel that has it

        def write(first: int, rows: np.ndarray) -> None:
            """Turn whitened pixels (n, rank) into scores, write them, and note the largest."""
            scores = rows @ (targets / lengths**2) if detector == "mf" else cosines(rows, targets / lengths)
            put_lines(scene, file, scores)
            for j, column in enumerate(scores.T):
                if not np.isnan(column).all():
                    at = int(np.nanargmax(column))
                    best[j] = max(best[j], (float(column[at]), -(first + at)))
                if sum(len(one.pixels) for one in above[j]) <= MOST_ABOVE:
                    far = np.flatnonzero(column > limits[j])  # NaN is not
                    above[j].append(Above(first + far, column[far]))

        with out.open(IMAGE) as file:
            projections(given.less(mean), budget, workers, whiten, np.zeros(rank), write)
        fields = {"band names": list(library.names), "data ignore value": f"{NODATA:g}"}
        what = {"mf": "matched filter scores", "ace": "adaptive cosine estimates"}[detector]
        out.describe(IMAGE, what, "f4", len(library.names), fields)
        head = ("name", "largest", "line", "sample")
        places = (np.add(divmod(-at, scene.samples), scene.origin).tolist() for _, at in best)
        rows = [(name, score, *place) for name, (score, _), place in zip(library.names, best, places)]
        out.write(TABLE, table_text(head, [(name, repr(score), *place) for name, score, *place in rows]))
        found = [place for name, parts in zip(library.names, above) for place in places_in(name, parts, scene)]
        out.write(PLACES, table_text(COLUMNS, [tuple(place.values()) for place in found]))
    return {
        "files": out.files,
        "rank": rank,
        "targets": [dict(zip(head, row)) for row in rows],
        "places": found,
        "thresholds": limits.tolist(),
    }


def places_in(name: str, parts: list[Above], scene: Cube) -> list[dict[str, Any]]:
    """Return a target's places; warn and return none where more than `MOST_ABOVE` pixels exceed its threshold."""
    whole = joined(parts)
    if len(whole.pixels) > MOST_ABOVE:
        log.warning(
            f"{scene.stem}: more than {MOST_ABOVE} pixels of {name} are above the threshold: no places; raise "
            "`threshold`"
        )
        return []
    return places_of(name, whole, scene)


def check_unit(given: Scene, Y: np.ndarray, library: Endmembers, meant: bool) -> None:
    """Raise `CubeError` where targets and the pixels (N, L) most like them differ in size by more than `LARGEST_FACTOR`."""
    Y = Y[np.ptp(Y, axis=1) > 0]  # one value in all bands is fill
    lengths, sizes = (np.sqrt(np.square(some).sum(axis=axis)) for some, axis in ((Y, 1), (library.matrix, 0)))
    Y, lengths = Y[lengths > 0], lengths[lengths > 0]
    if not len(Y) or not (sizes > 0).all() or not (np.isfinite(lengths).all() and np.isfinite(sizes).all()):
        return
    angles = (Y / lengths[:, None]) @ (library.matrix / sizes)
    like = np.argsort(-angles, axis=0, kind="stable")[: max(1, min(MOST_LIKE, len(Y) // 50))]
    ratio = float(np.median(np.median(lengths[like], axis=0) / sizes))
    if 1.0 / LARGEST_FACTOR <= ratio <= LARGEST_FACTOR:
        return
    gain = float(np.median(np.abs(given.bands.gain)))
    brings = said_of_scales(
        ratio, (gain, library.divisor), float(np.median(lengths)), float(sizes.max()), len(library.matrix)
    )
    fault = (
        f"{given.cube.path}: the pixels most like the targets of {library.source} are {ratio:.3g} times as large; "
        f"{brings}"
    )
    # A scale that the user gave is only warned of.
    if not meant:
        raise CubeError(fault)
    log.warning(fault)


def background(given: Any, budget: int, threads: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean (L,) of a scene's pixels, and the directions (L, rank) in which they have variance 1."""
    found = moments(given, budget, threads)
    variances, V = found.axes
    kept = variances > found.floor(LEAST_VARIANCE)
    refuse_masked(given.cube, found.pixels)
    if not np.isfinite(found.covariance).all():
        raise CubeError(f"{given.cube.path}: its values are too large for float64; divide them with `scale`")
    if found.pixels < 2 or not kept.any():
        raise CubeError(
            f"{given.cube.path}: its pixels do not differ, so that it has no background to detect anything against"
        )
    return found.mean, np.ascontiguousarray(V[:, kept] / np.sqrt(variances[kept]))


def cosines(rows: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Return the squared cosines (n, k) of pixels (n, rank) and unit vectors (rank, k), with the cosine's sign."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    cosine = np.divide(
        rows @ units,
        lengths,
        out=np.where(np.isnan(lengths), np.nan, np.zeros((len(rows), units.shape[1]))),
        where=lengths > 0,
    )
    return np.asarray(np.sign(cosine) * np.square(cosine))
