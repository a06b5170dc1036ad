"""The shares of pixels that polygons cover, by area or by the centres of pixels."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import CubeError, MethodError, brief
from ...io import Cube
from ...io.formats.geotiff import settings
from ...io.polygons import ASKED, cells_by_centre, placed

# By how much of a pixel a polygon may reach beyond a scene: the rounding of coordinates.
LARGEST_ROUNDING = 0.01
# Decimals of a pixel's share and of their sums, which exactextract has in float32, and the least share that is rounded.
DIGITS, DIGITS_OF_SUM, LEAST_SHARE = 6, 5, 1e-4


@dataclass(frozen=True)
class ZoneShares:
    """The pixels that zones cover.

    Attributes
    ----------
    pixel : array (k,), int64
        ``line · samples + sample`` of each pair of a pixel and a zone, ascending.
    zone : array (k,), int64
    share : array (k,), float64
        The share of the pixel's area that the zone covers, above 0 and at most 1.
    total : array (zones,), float64
        The area of each zone in pixels, parts outside of the scene included.
    is_cut : array (zones,), bool
        Whether a part of the zone lies outside of the scene.
    is_near : array (zones,), bool
        Of zones by centres, whether the zone reaches into the bounds of the scene.
    """

    pixel: np.ndarray
    zone: np.ndarray
    share: np.ndarray
    total: np.ndarray
    is_cut: np.ndarray
    is_near: np.ndarray

    @property
    def inside(self) -> np.ndarray:
        """The area of each zone within the scene, in pixels, (zones,)."""
        return np.bincount(self.zone, self.share, len(self.total))

    def within(self, lines: slice, samples: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the pixels of some lines, counted from the first, with their zones and shares, (k,) each."""
        some = slice(*np.searchsorted(self.pixel, (lines.start * samples, lines.stop * samples)))
        return self.pixel[some] - lines.start * samples, self.zone[some], self.share[some]


class WholeScene:
    """All pixels of a scene as one zone; see `ZoneShares`."""

    def __init__(self, cube: Cube) -> None:
        self.total = self.inside = np.array([float(cube.lines * cube.samples)])
        self.is_cut = self.is_near = np.zeros(1, bool)

    def within(self, lines: slice, samples: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the pixels of some lines, all of zone 0 and whole; see `ZoneShares.within`."""
        count = (lines.stop - lines.start) * samples
        return np.arange(count), np.zeros(count, np.int64), np.ones(count)


def shares_of(zones: Any, cube: Cube, centres: bool = False) -> ZoneShares:
    """Return the shares of a scene's pixels that `tables.Zones` cover; by ``centres``, pixels count whole or not at all."""
    cells_of = cells_of_each if centres else cells_by_area()
    shapes, numbers = zip(*zones.shapes)
    unions = placed(shapes, numbers, len(zones.names), zones.system, cube)
    # Lines count downwards: −y.
    low, high = np.split(np.nan_to_num([shape.bounds for shape in unions]), 2, axis=1)
    corners = np.array([0, -cube.lines]), np.array([cube.samples, 0])
    is_cut = np.maximum(corners[0] - low, high - corners[1]).max(axis=1) > LARGEST_ROUNDING
    low = np.maximum(np.floor(low), corners[0]).astype(int)
    high = np.minimum(np.ceil(high), corners[1]).astype(int)
    is_in = (low < high).all(axis=1)
    if not is_in.any():
        raise CubeError(f"{cube.path}: no polygon is in it; {ASKED}")
    some = np.flatnonzero(is_in)
    try:
        with settings():  # which GDAL would begin anew for each zone
            found = cells_of(unions[some], low[some], high[some], cube)
    except Exception as error:  # whatever GEOS raises for damaged shapes
        raise CubeError(f"{cube.path}: polygons cannot be placed on it: {brief(error)}") from None
    zone = np.repeat(some, [len(pixel) for pixel, _ in found])
    pixel, share = (np.concatenate(column) for column in zip(*found))
    order = np.argsort(pixel, kind="stable")
    order = order[share[order] > 0]
    area = np.array([shape.area for shape in unions])
    return ZoneShares(pixel[order], zone[order], share[order], area, is_cut, is_in & centres)


Cells = list[tuple[np.ndarray, np.ndarray]]


def cells_of_each(shapes: np.ndarray, low: np.ndarray, high: np.ndarray, cube: Cube) -> Cells:
    """Return the pixels with centres in each geometry, between two corners of a scene, and their shares, 1."""
    found = []
    for shape, one, other in zip(shapes, low, high):
        cell, share = cells_by_centre(shape, one, other)
        line, sample = np.divmod(cell, other[0] - one[0])
        found.append(((line - other[1]) * cube.samples + sample + one[0], share))
    return found


def cells_by_area() -> Callable[[np.ndarray, np.ndarray, np.ndarray, Cube], Cells]:
    """Return a function that finds pixels and shares in geometries; `MethodError` without exactextract."""
    try:
        from exactextract import exact_extract
        from exactextract.raster import NumPyRasterSource
        from shapely.geometry import mapping
    except ImportError:
        raise MethodError("zones by area need exactextract: pip install 'unmix[zonal]'; or give `centres`") from None

    def cells_of(shapes: np.ndarray, low: np.ndarray, high: np.ndarray, cube: Cube) -> Cells:
        none = np.broadcast_to(np.uint8(0), (cube.lines, cube.samples))
        grid = NumPyRasterSource(none, 0, -cube.lines, cube.samples, 0)
        features = [{"type": "Feature", "geometry": mapping(shape), "properties": {}} for shape in shapes]
        # One call for all: each takes 0.4 ms beside its polygons.
        found = [one["properties"] for one in exact_extract(grid, features, ["cell_id", "coverage"])]
        shares = (np.asarray(one["coverage"], float) for one in found)
        return [
            (np.asarray(one["cell_id"], np.int64), np.where(share > LEAST_SHARE, share.round(DIGITS), share))
            for one, share in zip(found, shares)
        ]

    return cells_of
