"""Shares of pixels that polygons cover, by area, and the areas of pixels."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import CubeError, MethodError
from ...io import Cube
from ...io.formats.geotiff import gdal
from ...io.formats.header import geotransform
from ...io.polygons import cells_by_centre, placed
from ...io.read import brief

# By how much of a pixel a polygon may reach beyond a scene: the rounding of coordinates.
LARGEST_ROUNDING = 0.01


@dataclass(frozen=True)
class Shares:
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
    """

    pixel: np.ndarray
    zone: np.ndarray
    share: np.ndarray
    total: np.ndarray
    is_cut: np.ndarray

    @property
    def inside(self) -> np.ndarray:
        """The area of each zone within the scene, in pixels, (zones,)."""
        return np.bincount(self.zone, self.share, len(self.total))

    def within(self, lines: slice, samples: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the pixels of some lines, counted from the first, with their zones and shares, (k,) each."""
        some = slice(*np.searchsorted(self.pixel, (lines.start * samples, lines.stop * samples)))
        return self.pixel[some] - lines.start * samples, self.zone[some], self.share[some]


class Whole:
    """All pixels of a scene as one zone; see `Shares`."""

    def __init__(self, cube: Cube) -> None:
        self.total = self.inside = np.array([float(cube.lines * cube.samples)])
        self.is_cut = np.zeros(1, bool)

    def within(self, lines: slice, samples: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the pixels of some lines, all of zone 0 and whole; see `Shares.within`."""
        count = (lines.stop - lines.start) * samples
        return np.arange(count), np.zeros(count, np.int64), np.ones(count)


def shares_of(
    shapes: Sequence[tuple[dict[str, Any], int]], zones: int, system: str, cube: Cube, centres: bool = False
) -> Shares:
    """Return the shares of a scene's pixels that polygons with the numbers of their zones, from 0, cover; all or none by ``centres``.

    Raises
    ------
    MethodError
        Where exactextract is not installed.
    CubeError
        Where the scene has no place on a map, or polygons have none in it or are damaged.
    """
    cells_of = cells_by_centre if centres else by_area()
    moved = placed([shape for shape, _ in shapes], system, cube)
    back = ~gdal("polygons need").Affine.from_gdal(*geotransform(cube.fields["map info"]) or ())
    total, is_cut, found = np.zeros(zones), np.zeros(zones, bool), list[tuple[np.ndarray, np.ndarray, np.ndarray]]()
    for shape, (_, zone) in zip(moved, shapes):
        try:
            inner = in_pixels(shape, back)
            total[zone] += area_of(inner)
            corners = np.array([point for part in parts_of(inner) for ring in part for point in ring])
            # Lines count downwards: −y. The grid is the part of the scene around the polygon.
            beyond = np.maximum((0, -cube.lines) - corners.min(axis=0), corners.max(axis=0) - (cube.samples, 0))
            is_cut[zone] |= bool(beyond.max() > LARGEST_ROUNDING)
            low = np.maximum(np.floor(corners.min(axis=0)), (0, -cube.lines)).astype(int)
            high = np.minimum(np.ceil(corners.max(axis=0)), (cube.samples, 0)).astype(int)
            if (low >= high).any():
                continue
            columns = high[0] - low[0]
            cell, share = cells_of(inner, low, high)
        except CubeError:
            raise
        except Exception as error:  # whatever GEOS raises for damaged shapes
            raise CubeError(f"polygon {zone + 1}: cannot be placed on {cube.path}: {brief(error)}") from None
        line, sample = -high[1] + cell // columns, low[0] + cell % columns
        found.append((line.astype(np.int64) * cube.samples + sample, np.full(len(cell), zone), share))
    if not found:
        raise CubeError(f"{cube.path}: no polygon is in it; a GeoJSON that names no system (crs) is in degrees")
    pixel, of_zone, share = (np.concatenate(column) for column in zip(*found))
    # Polygons of one zone that overlap cover a pixel once.
    pairs, place = np.unique(np.stack([pixel, of_zone]), axis=1, return_inverse=True)
    share = np.minimum(np.bincount(place.ravel(), share, pairs.shape[1]), 1.0)
    keep = share > 0
    return Shares(pairs[0, keep], pairs[1, keep], share[keep], total, is_cut)


def by_area() -> Callable[[dict[str, Any], np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Return a function that returns the cells of a grid, from ``low`` to ``high``, in a geometry, by row, and the share of each.

    `MethodError` where exactextract is not installed.
    """
    try:
        from exactextract import exact_extract
        from exactextract.raster import NumPyRasterSource
    except ImportError:
        raise MethodError("zones by area need exactextract: pip install 'unmix[zonal]'; or give `centres`") from None

    def cells_of(inner: dict[str, Any], low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        grid = NumPyRasterSource(np.zeros((high - low)[::-1], np.uint8), *low, *high)
        feature = {"type": "Feature", "geometry": inner, "properties": {}}
        found = exact_extract(grid, [feature], ["cell_id", "coverage"])[0]["properties"]
        return np.asarray(found["cell_id"]), np.asarray(found["coverage"])

    return cells_of


def parts_of(shape: dict[str, Any]) -> list[list[list[Sequence[float]]]]:
    """Return the polygons of a Polygon or MultiPolygon: lists of rings, the first of each around the others."""
    return [shape["coordinates"]] if shape["type"] == "Polygon" else list(shape["coordinates"])


def in_pixels(shape: dict[str, Any], back: Any) -> dict[str, Any]:
    """Return a geometry of the map in samples and, counted upwards, lines of the scene."""
    a, b, c, d, e, f = back[:6]

    def placed_ring(ring: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
        return [(a * x + b * y + c, -(d * x + e * y + f)) for x, y, *_ in ring]

    return {"type": "MultiPolygon", "coordinates": [[placed_ring(ring) for ring in part] for part in parts_of(shape)]}


def area_of(shape: dict[str, Any]) -> float:
    """Return the area of a MultiPolygon, holes left out."""
    total = 0.0
    for part in parts_of(shape):
        for number, ring in enumerate(part):
            x, y = np.array(ring, float).T
            area = abs(float(np.sum(x[:-1] * y[1:] - x[1:] * y[:-1]))) / 2
            total += area if number == 0 else -area
    return total
