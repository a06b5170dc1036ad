"""Find the pixels of a cube that are inside polygons, or hold points, by GDAL."""

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CubeError, brief
from .cube import Cube
from .export import system_of
from .formats.geotiff import gdal, settings
from .formats.header import geotransform

log = logging.getLogger("unmix")
# The coordinate system of GeoJSON (RFC 7946), unless a file says otherwise.
LONGITUDE_LATITUDE = "OGC:CRS84"


def as_geojson(path: Path, layer: str = "") -> tuple[bytes, str]:
    """Return the features of a shapefile, a GeoPackage or another file of GDAL as GeoJSON, and their coordinate system.

    Those of one layer, by its name, where there are several.

    Raises
    ------
    CubeError
        Where pyogrio is not installed, or cannot read it, or its coordinate system is not known.
    """
    try:
        from pyogrio import list_layers, raw
    except ImportError:
        raise CubeError(
            f"{path}: needs pyogrio, pip install 'unmix[geo]', or conversion: ogr2ogr -f GeoJSON polygons.geojson {path}"
        ) from None
    with tempfile.TemporaryDirectory(prefix="unmix-") as folder:
        out = Path(folder) / "polygons.geojson"
        try:
            layers = [str(name) for name in list_layers(path)[:, 0]]
            if layer not in layers and (layer or len(layers) > 1):
                fault = f"has no layer '{layer}'" if layer else f"has {len(layers)} layers"
                raise CubeError(f"{path}: {fault}; name one as {path}:LAYER: {', '.join(layers[:12])}")
            about, _, shapes, values = raw.read(path, layer=layer or None, force_2d=True)
            if not about["crs"]:
                raise CubeError(
                    f"{path}: does not say its coordinate system (a shapefile's is in a .prj file beside it)"
                )
            raw.write(
                out, shapes, values, about["fields"], geometry_type=about["geometry_type"], crs=about["crs"], driver="GeoJSON",
                layer_options={"RFC7946": "NO"},
            )  # fmt: skip
            return out.read_bytes(), str(about["crs"])
        except CubeError:
            raise
        except Exception as error:  # whatever GDAL and pyogrio raise for damaged files
            raise CubeError(f"{path}: cannot be read: {brief(error)}") from None


def placed(shapes: Sequence[dict[str, Any]], system: str, cube: Cube) -> list[dict[str, Any]]:
    """Return GeoJSON geometries of a coordinate system in that of a cube; errors as of `pixels_inside`."""
    if geotransform(cube.fields.get("map info", "")) is None:
        raise CubeError(f"{cube.path}: has no map info, so polygons have no place in it; name its pixels in a table")
    gdal("polygons need")  # which brings them to the cube's coordinate system
    own = system_of(cube.fields)
    if not own:
        log.warning(f"{cube.path}: its coordinate system is not known; polygons are taken to be in its coordinates")
        return list(shapes)
    with settings():
        try:
            from rasterio.warp import transform_geom

            return [transform_geom(system, own, shape) for shape in shapes]
        except Exception as error:  # whatever GDAL and rasterio raise for damaged shapes and unknown systems
            hint = "; a GeoJSON that names no system (crs) is in degrees" if "itude" in str(error) else ""
            raise CubeError(f"{cube.path}: polygons cannot be placed on it: {brief(error)}{hint}") from None


def pixels_inside(numbered: Sequence[tuple[dict[str, Any], int]], system: str, cube: Cube) -> np.ndarray:
    """Return the number of the last polygon that holds each pixel's centre, or point in the pixel, 0 for none; int32 (lines, samples).

    Parameters
    ----------
    numbered : sequence of (dict, int)
        GeoJSON geometries, and a number from 1 for each.
    system : str
        Their coordinate system, as GDAL reads it.
    cube : Cube

    Raises
    ------
    CubeError
        Where the cube has no place on a map, rasterio is not installed, or GDAL cannot place the polygons.
    """
    moved = placed([shape for shape, _ in numbered], system, cube)
    transform, rasterio = geotransform(cube.fields["map info"]), gdal("polygons need")
    assert transform is not None
    with settings():
        try:
            from rasterio.features import rasterize

            pairs, affine = zip(moved, (number for _, number in numbered)), rasterio.Affine.from_gdal(*transform)
            return np.asarray(rasterize(pairs, (cube.lines, cube.samples), transform=affine, dtype="int32"))
        except Exception as error:  # whatever GDAL raises for damaged shapes
            raise CubeError(f"{cube.path}: polygons cannot be placed on it: {brief(error)}") from None


def cells_by_centre(shape: dict[str, Any], low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the cells whose centres are in a geometry, and the share of each, 1: of a grid of unit cells between two corners (x, y).

    They are counted by row, from the uppermost.
    """
    rasterio = gdal("polygons need")
    from rasterio.features import rasterize

    corner = rasterio.Affine(1.0, 0.0, float(low[0]), 0.0, -1.0, float(high[1]))
    cell = np.flatnonzero(rasterize([shape], tuple((high - low)[::-1]), transform=corner, dtype="uint8"))
    return cell, np.ones(len(cell))
