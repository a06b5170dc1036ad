"""Bring polygons and points onto the pixels of a cube, by GDAL, and find the pixels that are inside."""

import logging
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import CubeError, brief
from .cube import Cube, counted
from .formats.geotiff import gdal, settings
from .formats.header import geotransform
from .ground import system_of

log = logging.getLogger("unmix")
# The coordinate system of GeoJSON (RFC 7946), unless a file says otherwise.
LONGITUDE_LATITUDE = "OGC:CRS84"
# The largest coordinate of a system of lengths, m: twice around the Earth, and a zone's number in front; and of pixels.
# exactextract ends the process at 1e20.
LARGEST_LENGTH, LARGEST_PLACE = 1e8, 1e12
# By which share degrees may be beyond a pole or a turn: rounding.
SLACK = 1 + 1e-9
# The most polygons that a warning names.
MOST_SAID = 5
# A question that ends an error where no polygon lies in a scene.
ASKED = "are they in the system that their file names? (a GeoJSON without one is in degrees)"


def bounds_of(system: str) -> tuple[float, float]:
    """Return the largest valid coordinates, across and up, in a system's unit."""
    from rasterio.crs import CRS

    known = CRS.from_user_input(system)
    unit = known.units_factor[1]
    if known.is_geographic:
        return SLACK * 2 * math.pi / unit, SLACK * math.pi / 2 / unit
    return LARGEST_LENGTH / unit, LARGEST_LENGTH / unit


def refuse_beyond(shapes: np.ndarray, bounds: tuple[float, float], cube: Cube, what: str) -> None:
    """Raise `CubeError` where a coordinate of a geometry is not finite, or beyond ``bounds``, those of ``what``."""
    import shapely

    points, which = shapely.get_coordinates(shapes, return_index=True)
    is_inside = (np.abs(points) <= bounds).all(axis=1)  # NaN is not
    if not is_inside.all():
        k = int(np.argmin(is_inside))
        x, y = points[k]
        hint = f"; {ASKED}" if bounds[0] < LARGEST_LENGTH else ""
        raise CubeError(
            f"{cube.path}: polygon {which[k] + 1} cannot be placed on it: ({x:.6g}, {y:.6g}) is no place in "
            f"{what}{hint}"
        )


def placed(shapes: Sequence[Any], groups: Sequence[int], count: int, system: str, cube: Cube) -> np.ndarray:
    """Return the union of each group's shapes (count,) in a cube's coordinates: x = samples, y = −lines."""
    transform, moved = geotransform(cube.fields.get("map info", "")), np.array(shapes, object)
    if transform is None:
        raise CubeError(
            f"{cube.path}: has no map info that gives it a place, so polygons have none in it: run its parts with "
            "`lines` and `samples`, or take the maps of `ortho` of a swath to a GIS"
        )
    rasterio, own = gdal("polygons need"), system_of(cube.fields)
    try:
        import shapely
    except ImportError:
        raise CubeError("polygons need shapely: pip install 'unmix[geo]'") from None
    try:
        back = ~rasterio.Affine.from_gdal(*transform)
        if own:
            from rasterio.warp import transform as warp

            with settings():
                refuse_beyond(moved, bounds_of(system), cube, system[:40])
                moved = shapely.transform(moved, lambda points: np.stack(warp(system, own, *points.T), axis=1))
                refuse_beyond(moved, bounds_of(own), cube, "its system")
        else:
            log.warning(f"{cube.path}: its coordinate system is not known; polygons are taken to be in its coordinates")
            refuse_beyond(moved, (LARGEST_LENGTH,) * 2, cube, "its system")
        a, b, c, d, e, f = back[:6]
        moved = shapely.transform(moved, lambda points: points @ [[a, -d], [b, -e]] + [c, -f])
        refuse_beyond(moved, (LARGEST_PLACE,) * 2, cube, "its pixels")
        return united(moved, np.asarray(groups, int), count, cube)
    except CubeError:
        raise
    except Exception as error:  # whatever GDAL, GEOS and rasterio raise for damaged shapes and unknown systems
        raise CubeError(f"{cube.path}: polygons cannot be placed on it: {brief(error)}") from None


def united(shapes: np.ndarray, groups: np.ndarray, count: int, cube: Cube) -> np.ndarray:
    """Return the union of each group's shapes (count,); self-crossing polygons are filled by the even-odd rule."""
    import shapely

    parts, which = shapely.get_parts(shapes, return_index=True)
    crossing = ~shapely.is_valid(parts)
    if crossing.any():
        names = [str(n + 1) for n in np.unique(which[crossing])]
        log.warning(
            f"{cube.path}: {counted(len(names), 'polygon')} whose lines cross themselves count as what these enclose, "
            "by even and odd: "
            f"{', '.join(names[:MOST_SAID])}{', …' * (len(names) > MOST_SAID)}"
        )
        made, of = shapely.get_parts(shapely.make_valid(parts[crossing]), return_index=True)
        made, again = shapely.get_parts(made, return_index=True)
        has_area = shapely.get_dimensions(made) == 2
        parts = np.concatenate([parts[~crossing], made[has_area]])
        which = np.concatenate([which[~crossing], which[crossing][of[again]][has_area]])
    order = np.argsort(groups[which], kind="stable")
    ends = np.cumsum(np.bincount(groups[which], minlength=count))[:-1]
    some = np.split(parts[order], ends)
    return np.array([one[0] if len(one) == 1 else shapely.union_all(one) for one in some], object)


def cells_by_centre(shape: Any, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return numbers, by row from the top, of cells between corners (x, y) whose centres are in a shape, and ones."""
    rasterio = gdal("polygons need")
    from rasterio.features import rasterize

    corner = rasterio.Affine(1.0, 0.0, float(low[0]), 0.0, -1.0, float(high[1]))
    cell = np.flatnonzero(rasterize([shape], tuple((high - low)[::-1]), transform=corner, dtype="uint8"))
    return cell, np.ones(len(cell))


def pixels_inside(shapes: Sequence[Any], numbers: Sequence[int], system: str, cube: Cube) -> np.ndarray:
    """Return the number of the last shape over each pixel's centre, 0 for none: int32 (lines, samples)."""
    moved = placed(shapes, range(len(shapes)), len(shapes), system, cube)
    with settings():
        from rasterio import Affine
        from rasterio.features import rasterize

        pairs = [(shape, number) for shape, number in zip(moved, numbers) if not shape.is_empty]
        size = cube.lines, cube.samples
        upwards = Affine.scale(1.0, -1.0)
        return np.asarray(
            rasterize(pairs, size, transform=upwards, dtype="int32") if pairs else np.zeros(size, "int32")
        )
