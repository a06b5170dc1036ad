"""Areas of the pixels of a map."""

import math
from typing import Any

import numpy as np

from ..cube import Cube
from ..formats.header import geotransform
from .cf import system_of

# The ellipsoid of WGS 84: its larger half axis in metres, and its flattening.
HALF_AXIS, FLATTENING = 6378137.0, 1 / 298.257223563


def known_system(cube: Cube) -> Any:
    """Return a map's coordinate system as rasterio knows it; None where there is none, GDAL cannot read it, or rasterio is missing."""
    own = system_of(cube.fields)
    if not own:
        return None
    try:
        from rasterio.crs import CRS
        from rasterio.errors import CRSError
    except ImportError:
        return None
    try:
        return CRS.from_user_input(own)
    except CRSError:
        return None


def areas_of_lines(cube: Cube) -> np.ndarray | None:
    """Return the area of a pixel of each line (lines,), m²; None where the scene's coordinate system has no area.

    Of degrees on the ellipsoid of WGS 84, by the area between two parallels (Snyder 1987, eq. 3-12).
    """
    transform, system = geotransform(cube.fields.get("map info", "")), known_system(cube)
    if transform is None or system is None:
        return None
    _, across, turned, y, sheared, down = transform
    if system.is_projected:
        return np.full(cube.lines, abs(across * down - turned * sheared) * system.linear_units_factor[1] ** 2)
    if not system.is_geographic or turned or sheared:
        return None
    e = math.sqrt(FLATTENING * (2 - FLATTENING))
    sine = np.sin(np.radians(np.clip(y + down * np.arange(cube.lines + 1), -90, 90)))
    authalic = sine / (1 - (e * sine) ** 2) + np.arctanh(e * sine) / e
    return np.asarray(abs(math.radians(across)) * HALF_AXIS**2 * (1 - e**2) / 2 * np.abs(np.diff(authalic)))
