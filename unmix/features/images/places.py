"""Places of a target: pixels above a threshold that touch, the best first."""

from typing import Any, NamedTuple

import numpy as np

from ...io import Cube
from ...io.formats.header import geotransform

# Pixels of a target, in file order, that are kept at most: above a threshold that so many exceed it is no rare target.
MOST_ABOVE = 100_000
# The columns of the table; x and y are the coordinates of the middle of the best pixel, where the scene has a place on a map.
COLUMNS = ("name", "score", "line", "sample", "x", "y", "pixels")


class Above(NamedTuple):
    """Pixels of a scene above a threshold: their numbers, ``line · samples + sample``, ascending, and their scores."""

    pixels: np.ndarray
    scores: np.ndarray


def joined(parts: list[Above]) -> Above:
    """Return pixels of blocks that follow each other as one."""
    return Above(*(np.concatenate(column) for column in zip(*parts))) if parts else Above(np.empty(0, int), np.empty(0))


def places_of(name: str, above: Above, scene: Cube) -> list[dict[str, Any]]:
    """Return a row of `COLUMNS` for each group of pixels that touch by sides or corners: of its best pixel, the best group first."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    pixels, scores = above
    if not len(pixels):
        return []
    rows, columns = np.divmod(pixels, scene.samples)
    pairs = []
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
        found.append(dict(zip(COLUMNS, (
            name, float(scores[n]), int(rows[n]) + scene.origin[0], int(columns[n]) + scene.origin[1],
            *(None if np.isnan(one) else one for one in at), int(sizes[group[n]]),
        ))))  # fmt: skip
    return found
