"""Shares of pixels that polygons cover, by area, and the areas of pixels."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import CubeError, MethodError
from ...io import Cube
from ...io.export import system_of
from ...io.formats.geotiff import gdal
from ...io.formats.header import geotransform
from ...io.polygons import placed
from ...io.read import brief

# The ellipsoid of WGS 84: its larger half axis in metres, and its flattening.
HALF_AXIS, FLATTENING = 6378137.0, 1 / 298.257223563


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
    """

    pixel: np.ndarray
    zone: np.ndarray
    share: np.ndarray
    total: np.ndarray

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

    def within(self, lines: slice, samples: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the pixels of some lines, all of zone 0 and whole; see `Shares.within`."""
        count = (lines.stop - lines.start) * samples
        return np.arange(count), np.zeros(count, np.int64), np.ones(count)


def shares_of(shapes: Sequence[tuple[dict[str, Any], int]], zones: int, system: str, cube: Cube) -> Shares:
    """Return the shares of a scene's pixels that polygons with the numbers of their zones, from 0, cover.

    Raises
    ------
    MethodError
        Where exactextract is not installed.
    CubeError
        Where the scene has no place on a map, or polygons have none in it or are damaged.
    """
    try:
        from exactextract import exact_extract
        from exactextract.raster import NumPyRasterSource
    except ImportError:
        raise MethodError("zonal tables need exactextract: pip install 'unmix[zonal]'") from None
    moved = placed([shape for shape, _ in shapes], system, cube)
    back = ~gdal("polygons need").Affine.from_gdal(*geotransform(cube.fields["map info"]) or ())
    total, found = np.zeros(zones), list[tuple[np.ndarray, np.ndarray, np.ndarray]]()
    for shape, (_, zone) in zip(moved, shapes):
        try:
            inner = in_pixels(shape, back)
            total[zone] += area_of(inner)
            corners = np.array([point for part in parts_of(inner) for ring in part for point in ring])
            # Lines count downwards: −y. The grid is the part of the scene around the polygon.
            low = np.maximum(np.floor(corners.min(axis=0)), (0, -cube.lines)).astype(int)
            high = np.minimum(np.ceil(corners.max(axis=0)), (cube.samples, 0)).astype(int)
            if (low >= high).any():
                continue
            columns, rows = high - low
            grid = NumPyRasterSource(np.zeros((rows, columns), np.uint8), *low, *high)
            (answer,) = exact_extract(
                grid, [{"type": "Feature", "geometry": inner, "properties": {}}], ["cell_id", "coverage"]
            )
        except CubeError:
            raise
        except Exception as error:  # whatever GEOS raises for damaged shapes
            raise CubeError(f"polygon {zone + 1}: cannot be placed on {cube.path}: {brief(error)}") from None
        cell, share = (np.asarray(answer["properties"][name]) for name in ("cell_id", "coverage"))
        line, sample = -high[1] + cell // columns, low[0] + cell % columns
        found.append((line.astype(np.int64) * cube.samples + sample, np.full(len(cell), zone), share))
    if not found:
        raise CubeError(f"{cube.path}: no polygon is in it; a GeoJSON that names no system (crs) is in degrees")
    pixel, of_zone, share = (np.concatenate(column) for column in zip(*found))
    # Polygons of one zone that overlap cover a pixel once.
    pairs, place = np.unique(np.stack([pixel, of_zone]), axis=1, return_inverse=True)
    share = np.minimum(np.bincount(place.ravel(), share, pairs.shape[1]), 1.0)
    keep = share > 0
    return Shares(pairs[0, keep], pairs[1, keep], share[keep], total)


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


def areas_of_lines(cube: Cube) -> np.ndarray | None:
    """Return the area of a pixel of each line (lines,), m²; None where the scene's coordinate system has no area.

    Of degrees on the ellipsoid of WGS 84, by the area between two parallels (Snyder 1987, eq. 3-12).
    """
    transform, own = geotransform(cube.fields.get("map info", "")), system_of(cube.fields)
    if transform is None or not own:
        return None
    try:
        from rasterio.crs import CRS
    except ImportError:
        return None
    system = CRS.from_user_input(own)
    _, across, turned, y, sheared, down = transform
    if system.is_projected:
        return np.full(cube.lines, abs(across * down - turned * sheared) * system.linear_units_factor[1] ** 2)
    if not system.is_geographic or turned or sheared:
        return None
    e = math.sqrt(FLATTENING * (2 - FLATTENING))
    sine = np.sin(np.radians(np.clip(y + down * np.arange(cube.lines + 1), -90, 90)))
    authalic = sine / (1 - (e * sine) ** 2) + np.arctanh(e * sine) / e
    return np.asarray(abs(math.radians(across)) * HALF_AXIS**2 * (1 - e**2) / 2 * np.abs(np.diff(authalic)))
