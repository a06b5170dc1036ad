"""Average a map by area onto the larger pixels of another grid."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from ...io import Cube, apart, placed

# Shares of a pixel below this are rounding of coordinates.
LEAST_OVERLAP = 1e-6
# The share of a pixel's area that must have values, so that the pixel has one: half, but for that rounding.
LEAST_COVERED = 0.5 - LEAST_OVERLAP
# By which share of a pixel the corners of two grids may differ that are one grid: headers round coordinates.
SAME_CORNERS = 0.01
# The numbers of a geotransform that turn a grid.
TURNS = 2, 4


@dataclass(frozen=True)
class Averages:
    """How a map is averaged onto another grid.

    Attributes
    ----------
    rows : sparse array (lines of the grid, lines of the map)
        Which share of each line of the grid is each line of the map; float64.
    columns : sparse array (samples of the grid, samples of the map)
    least : float
        The share of a pixel that must have values.
    """

    rows: csr_array
    columns: csr_array
    least: float = LEAST_COVERED

    @property
    def crops(self) -> bool:
        """Return whether each pixel of the grid is one of the map or none: both are parts of one grid."""
        return all(
            bool((part.data > 1.0 - SAME_CORNERS).sum() == (part.sum(axis=1) > 0.5).sum())
            for part in (self.rows, self.columns)
        )

    def read(
        self, lines: slice, read: Callable[[slice], tuple[np.ndarray, np.ndarray]], bands: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return lines of the grid: values (n, samples, bands), float64, and which pixels have some (n, samples)."""
        # ``read`` returns the same of lines of the map. A pixel has the mean of the values in it, weighted by area,
        # where these cover ``least`` of it.
        part, across = self.rows[lines], self.columns.shape
        taken = part.indices
        if not taken.size:
            return np.zeros((part.shape[0], across[0], bands)), np.zeros((part.shape[0], across[0]), bool)
        source = slice(int(taken.min()), int(taken.max()) + 1)
        values, present = read(source)
        known = np.dstack([np.where(present[..., None], values, 0.0), present])
        down = part[:, source] @ known.reshape(len(known), -1)
        down = down.reshape(-1, across[1], bands + 1).transpose(1, 0, 2)
        sums = (self.columns @ down.reshape(across[1], -1)).reshape(across[0], -1, bands + 1).transpose(1, 0, 2)
        area = sums[..., -1]
        return sums[..., :-1] / np.maximum(area, LEAST_OVERLAP)[..., None], area >= self.least


def transform_of(cube: Cube) -> tuple[float, ...] | None:
    """Return GDAL's geotransform of a map; None where it has no place on the ground, or is turned."""
    found = placed(cube)
    return found if found is not None and not any(found[k] for k in TURNS) else None


def is_one_grid(one: Cube, other: Cube) -> bool:
    """Return whether two maps of one size have the same corners, as far as both are known."""
    return apart(one, other) <= SAME_CORNERS


def averages(source: Cube, target: Cube) -> Averages | None:
    """Return how a map is averaged onto the pixels of another; None where these have no part in common."""
    from_, to = transform_of(source), transform_of(target)
    if from_ is None or to is None:
        return None
    columns = overlaps(from_[0], from_[1], source.samples, to[0], to[1], target.samples)
    rows = overlaps(from_[3], from_[5], source.lines, to[3], to[5], target.lines)
    return Averages(rows, columns) if rows.nnz and columns.nnz else None


def pixel_area(cube: Cube) -> float:
    """Return the area of a pixel on the ground, in the unit of the map's coordinates; 0 where that is not known."""
    found = transform_of(cube)
    return 0.0 if found is None else abs(found[1] * found[5])


def overlaps(start: float, step: float, count: int, begin: float, stride: float, size: int) -> csr_array:
    """Return the share of each of ``size`` cells of the grid that each of ``count`` of the map covers, sparse."""
    # The grid's cells lie from ``begin`` on by ``stride``, the map's from ``start`` on by ``step``.
    cells = (begin - start) / step + np.arange(size + 1) * (stride / step)  # in cells of the source
    low, high = np.minimum(cells[:-1], cells[1:]), np.maximum(cells[:-1], cells[1:])
    first = np.clip(np.floor(low + LEAST_OVERLAP), 0, count).astype(int)
    last = np.clip(np.ceil(high - LEAST_OVERLAP), 0, count).astype(int)
    each = np.maximum(0, last - first)
    ends = np.concatenate([[0], np.cumsum(each)])
    which = np.repeat(np.arange(size), each)
    index = np.arange(ends[-1]) - ends[which] + first[which]
    shares = (np.minimum(high[which], index + 1) - np.maximum(low[which], index)) / (high - low)[which]
    return csr_array((shares, index, ends), shape=(size, count))
