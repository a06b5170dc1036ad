"""Areas of the pixels of a map on the ground, by the ellipsoid of its coordinate system."""

import functools
import logging
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..cube import Cube
from ..formats.header import geotransform
from ..ground import system_of

log = logging.getLogger("unmix")
# Metres between places where areas are found: between them they are interpolated, to 1e-7 of an area.
STEP = 5000.0


def known_system(cube: Cube) -> Any:
    """Return a map's coordinate system for rasterio; None where there is none, or rasterio cannot read it."""
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


@functools.cache
def pyproj_here() -> Any:
    """Return pyproj; None, with a warning, where it is not installed."""
    try:
        import pyproj
    except ImportError:
        log.warning("areas need pyproj, so hectares are left out: pip install 'unmix[geo]'")
        return None
    return pyproj


class Ground(NamedTuple):
    """The conversion from map coordinates to longitude and latitude (rad), and the ellipsoid.

    ``is_in_degrees`` says whether the map's own coordinates are longitude and latitude; ``half_axis`` is the
    semi-major axis, m.
    """

    place: Callable[[np.ndarray, np.ndarray], np.ndarray]
    is_in_degrees: bool
    half_axis: float
    eccentricity: float

    def area_within(self, corners: np.ndarray) -> np.ndarray:
        """Return the areas (n,) of polygons, m², from their corners' longitudes and latitudes (2, k, n), rad."""
        longitude, latitude = corners
        south = np.where(latitude.mean(axis=0) < 0, -1.0, 1.0)
        sines = south * np.sin(np.clip(latitude, -np.pi / 2, np.pi / 2))
        cap = self.authalic(np.ones(1)) - self.authalic(sines)
        other, turned = np.roll(cap, -1, axis=0), np.roll(longitude, -1, axis=0) - longitude
        turned -= 2 * np.pi * np.round(turned / (2 * np.pi))
        # The area between a corner's parallel and its pole (Snyder 1987, eq. 3-12) times the turn to the next corner is
        # exact for meridians and parallels; other edges are straight on Lambert's equal-area map around the pole.
        edges = (cap + other) * turned if self.is_in_degrees else 2 * np.sqrt(cap * other) * np.sin(turned)
        return np.asarray(np.abs(edges.sum(axis=0)) * self.half_axis**2 / 4)

    def authalic(self, sine: np.ndarray) -> np.ndarray:
        """Return Snyder's q of sines of latitudes: q(pole) − q is the area poleward, in a² / 2 per radian."""
        e = self.eccentricity
        return (1 - e**2) * (sine / (1 - (e * sine) ** 2) + (np.arctanh(e * sine) / e if e else sine))


@functools.lru_cache(maxsize=8)
def ground_of(system: str) -> Ground | None:
    """Return how a coordinate system lies on the ground; None where it does not, or pyproj is not installed."""
    pyproj = pyproj_here()
    try:
        known = pyproj and pyproj.CRS.from_user_input(system)
        if not known or not (known.is_projected or known.is_geographic):
            return None
        degrees, ellipsoid = known.geodetic_crs.to_2d(), known.get_geod()
        unit = degrees.axis_info[0].unit_conversion_factor
        moved = pyproj.Transformer.from_crs(known.to_2d(), degrees, always_xy=True).transform
    except pyproj.exceptions.ProjError:
        return None
    place = lambda x, y: np.stack(moved(x, y)) * unit  # noqa: E731
    return Ground(place, bool(known.is_geographic), ellipsoid.a, math.sqrt(ellipsoid.es))


def areas_of_pixels(cube: Cube) -> Callable[[slice], np.ndarray] | None:
    """Return a function that returns pixel areas (n, samples) of lines, m²; None without a place on Earth."""
    transform, system = geotransform(cube.fields.get("map info", "")), system_of(cube.fields)
    ground = ground_of(system) if transform is not None and system else None
    if transform is None or ground is None:
        return None
    x, across, turned, y, sheared, down = transform

    def found(line: np.ndarray, sample: np.ndarray, side: int) -> np.ndarray:
        """Return the mean area of the pixels in squares around pixels, which are ``side`` of them wide."""
        lines, samples = (
            place + 0.5 + side * np.array(corner).reshape(4, *[1] * place.ndim)
            for place, corner in ((line, (-0.5, -0.5, 0.5, 0.5)), (sample, (-0.5, 0.5, 0.5, -0.5)))
        )
        with np.errstate(invalid="ignore"):  # where there is no place on Earth
            corners = ground.place(x + across * samples + turned * lines, y + sheared * samples + down * lines)
            return ground.area_within(corners) / side**2

    middle = found(np.array([cube.lines // 2]), np.array([cube.samples // 2]), 1)[0]
    step = max(1, int(STEP / math.sqrt(middle))) if middle > 0 else 1

    def areas_of(lines: slice) -> np.ndarray:
        i, t = np.divmod(np.arange(lines.start, lines.stop), step)
        j, u = np.divmod(np.arange(cube.samples), step)
        rows, columns = np.meshgrid(step * np.arange(i[0], i[-1] + 2), step * np.arange(j[-1] + 2), indexing="ij")
        areas = found(rows, columns, step)
        areas = areas[i - i[0]] + np.diff(areas, axis=0)[i - i[0]] * (t / step)[:, None]
        areas = areas[:, j] + np.diff(areas, axis=1)[:, j] * (u / step)
        line, sample = np.nonzero(~np.isfinite(areas))  # beside the rim of a projection
        areas[line, sample] = found(line + lines.start, sample, 1)
        return np.where(np.isfinite(areas), areas, 0.0)

    return areas_of
