"""Describe a cube by attributes and neighbours, with its map by coordinates, ``grid_mapping`` or a transform."""

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import CubeError
from ..cube import Cube, as_stored
from ..ground import map_fields, system_named, text_of_cf
from .cf import GOOD, PER_PIXEL, Beside, Variable, names_of_no_data, numbers_in, set_values, text_of
from .header import axis_in_names, axis_in_nanometres, clean, geotransform

# How far the steps between coordinates may differ, of a step: float32 has six digits of a northing.
UNEVEN = 0.01
# Metres in a unit of coordinates.
METRES = {"km": 1000.0, "kilometer": 1000.0, "kilometers": 1000.0, "kilometre": 1000.0, "kilometres": 1000.0}
# Names of axes, and beginnings of their units, that are degrees of latitude and longitude.
DEGREES = {
    "y": ("lat", "latitude", "degrees_north", "degree_north"),
    "x": ("lon", "longitude", "degrees_east", "degree_east"),
}
GEOGRAPHIC = "EPSG:4326"


def describe(cube: Cube, beside: Beside, bands: Sequence[int], wavelengths: Variable | None = None) -> None:
    """Add to a cube what its attributes and the arrays beside it say; ``bands`` counts the bands of each array."""
    set_values(cube, beside.variables, bands)
    if cube.nodata is None:  # of the whole file or group
        given = (numbers_in(beside.all[name]) for name in names_of_no_data(beside.all))
        said = next((float(one[0]) for one in given if one is not None), None)
        cube.nodata = as_stored(said, cube.dtype, cube.path, cube.problems)
    names = beside.names()
    if len(names) == cube.bands and all(names):
        cube.fields["band names"] = ", ".join(map(clean, names))
    if wavelengths is None:
        waves, fwhm, unit = beside.spectral()
    else:
        waves, fwhm, unit = wavelengths.numbers(cube.bands), None, wavelengths.unit
        if waves is None:
            raise CubeError(
                f"{cube.path}: {wavelengths.name} has the shape {wavelengths.shape}, but there are {cube.bands} bands"
            )
    cube.wavelengths, cube.fwhm = axis_in_nanometres(waves, fwhm, unit, cube.path, cube.problems)
    if cube.wavelengths is None:
        cube.wavelengths = axis_in_names(cube.fields, cube.bands)
    good = next((one for name in GOOD if (one := beside.numbers(name)[0]) is not None), None)
    if good is not None and not (good != 0).all():
        cube.good_bands = good != 0
    cube.fields |= Place(cube, beside).fields()


class Place:
    """Where a cube lies on a map: coordinates, transform and grid mapping, as any may be missing, stale or turned."""

    def __init__(self, cube: Cube, beside: Beside) -> None:
        self.cube, self.beside = cube, beside
        names = (text_of(beside.near.get("grid_mapping", "")).split(":")[0].strip(), "spatial_ref")
        mapping = next((one for name in names if (one := beside.array(name)) is not None), None)
        self.mapping: Mapping[str, Any] = {} if mapping is None else mapping.attributes

    def fields(self) -> dict[str, str]:
        """Return the map information as ENVI header fields; empty where there is none, or the map is rotated."""
        near, path = self.beside.near, self.cube.path
        if geotransform(text_of(near.get("map_info", ""))) is not None or "geo_points" in near:  # our own maps
            names = {key: key.replace(" ", "_") for key in ("map info", "coordinate system string", "geo points")}
            return {key: plain_value(near[name]) for key, name in names.items() if name in near}
        given, axes = self.transform(), self.axes()
        if given is not None and (given[1] or given[3]):
            return placed_by(self.system(), given.tolist(), path, self.cube.problems)
        by_transform = None if given is None else (given[2], given[5], given[0], given[4])
        chosen = by_transform if axes is None else axes
        if by_transform is not None and axes is not None:
            apart = np.abs(np.subtract(by_transform, axes))
            size = np.array([abs(axes[2]), abs(axes[3])])
            ends = apart[:2] + apart[2:] * [self.cube.samples, self.cube.lines]
            if (ends <= 0.5 * size).all():
                chosen = by_transform  # of more digits than coordinates of float32
            else:
                self.cube.problems.append(
                    f"{path}: its x and y are elsewhere than its transform says; x and y are used"
                )
        system = self.system()
        if chosen is None or (by_transform is None and not system):
            self.tell_lost(system, axes is not None)
            return {}
        west, north, across, down = map(float, chosen)
        return placed_by(system, (across, 0.0, west, 0.0, down, north), path, self.cube.problems)

    def tell_lost(self, system: str, has_axes: bool) -> None:
        """Say what gives the cube a place that outputs do not keep: coordinates without a system, or of each pixel."""
        lines, samples = self.cube.lines, self.cube.samples
        arrays = (self.beside.array(name) for name in PER_PIXEL)
        two = next(
            (one.name for one in arrays if one is not None and one.shape in ((lines, samples), (samples, lines))), ""
        )
        if two:
            why = f"has coordinates of each pixel ({two}), which outputs do not keep: resample it to a grid"
        elif self.mapping and not system:
            why = "has a grid mapping that is not understood (`unmix[geo]` has pyproj for it): outputs have no place"
        elif system and any(self.beside.array(self.beside.axes.get(role, "")) is not None for role in "yx"):
            why = "has x or y that are not evenly spaced: outputs have no place"
        elif has_axes:
            why = "has x and y, but names no coordinate system: outputs have no place"
        else:
            return
        self.cube.problems.append(f"{self.cube.path}: {why}")

    def transform(self) -> np.ndarray | None:
        """Return (x by sample, x by line, west, y by sample, y by line, north); None without a transform."""
        near = self.beside.near
        for name in ("spatial:transform", "proj:transform"):
            values = numbers_in(near.get(name))
            if values is not None and len(values) in (6, 9):
                half = 0.5 if name.startswith("spatial") and near.get("spatial:registration") == "node" else 0.0
                values = values[:6].copy()
                values[2] -= half * (values[0] + values[1])
                values[5] -= half * (values[3] + values[4])
                return values
        values = numbers_in(self.mapping.get("GeoTransform"))
        return values[[1, 2, 0, 4, 5, 3]] if values is not None and len(values) == 6 else None

    def axes(self) -> tuple[float, float, float, float] | None:
        """Return west, north and the steps of evenly spaced coordinates; None where there are none."""
        x, y = (self.steps(role, length) for role, length in (("x", self.cube.samples), ("y", self.cube.lines)))
        return None if x is None or y is None else (x[0], y[0], x[1], y[1])

    def steps(self, role: str, length: int) -> tuple[float, float] | None:
        """Return an axis's start (outer edge) and step, in metres or degrees; None where the step is uneven."""
        array, centres = self.beside.array(self.beside.axes.get(role, "")), None
        with contextlib.suppress(Exception):  # a damaged neighbour is no fault of the cube's
            centres = None if array is None else array.numbers(length)
        if array is None or centres is None or length < 2:
            return None
        centres = centres * METRES.get(array.unit.strip().lower(), 1.0)
        step = (centres[-1] - centres[0]) / (length - 1)
        if not np.isfinite(centres).all() or step == 0 or np.any(np.abs(np.diff(centres) - step) > UNEVEN * abs(step)):
            return None
        return float(centres[0] - step / 2), float(step)

    def system(self) -> str:
        """Return the coordinate system, as WKT, JSON or a code; empty where nothing says it."""
        said = self.beside.all
        for value in (
            said.get("proj:wkt2"),
            self.mapping.get("crs_wkt"),
            self.mapping.get("spatial_ref"),
            said.get("proj:projjson"),
            said.get("proj:code"),
        ):
            if value is not None and (isinstance(value, Mapping) or text_of(value)):
                return json.dumps(value) if isinstance(value, Mapping) else text_of(value)
        if said.get("proj:epsg"):
            return f"EPSG:{said['proj:epsg']}"
        if by_parameters := text_of_cf(self.mapping):
            return by_parameters
        for name in ("epsg_code", "EPSG_code", "epsg", "proj4", "proj4_params", "proj4text"):
            if name in self.mapping:
                text = text_of(self.mapping[name]).strip()
                return f"EPSG:{int(float(text))}" if re.fullmatch(r"\d+(\.0*)?", text) else text
        others = (
            text_of(said.get(name, "")) for name in ("crs", "crs_wkt", "spatial_ref")
        )  # of a group, by no convention
        if known := next((one for one in others if re.match(r"EPSG:\d+$|PROJ|GEOG", one)), ""):
            return known
        return GEOGRAPHIC if all(map(self.is_in_degrees, "yx")) else ""

    def is_in_degrees(self, role: str) -> bool:
        """Return whether an axis is one of latitudes or longitudes, by its name or its unit."""
        name = self.beside.axes.get(role, "")
        array = self.beside.array(name)
        return name.lower() in DEGREES[role] or (array is not None and array.unit.strip().lower() in DEGREES[role])


def placed_by(system: str, transform: Sequence[float], path: Path, problems: list[str]) -> dict[str, str]:
    """Return a map as ENVI header fields, by a system's text and a transform as rasterio's; see `map_fields`."""
    a, b, c, d, e, f = map(float, transform[:6])
    if not np.isfinite([a, b, c, d, e, f]).all() or a * e - b * d == 0:
        problems.append(f"{path}: its transform is not finite, or of no size; outputs have no place")
        return {}
    crs = system_named(system)
    if crs is not None:
        return map_fields(crs, (a, b, c, d, e, f), path, problems)
    if b or d or a < 0 or e > 0:
        problems.append(
            f"{path}: its map is turned, or its lines do not run south, which needs rasterio (pip install "
            "'unmix[geo]'); outputs have no place"
        )
        return {}
    own = {"coordinate system string": plain_value(system)} if re.match("PROJCS|GEOGCS", system.strip()) else {}
    return {"map info": map_info(system, c, f, a, -e)} | own


def plain_value(value: Any) -> str:
    """Return a text on one line, without the braces that an ENVI header cannot hold."""
    return " ".join(text_of(value).translate(str.maketrans("{}", "()")).split())


def map_info(system: str, west: float, north: float, across: float, down: float) -> str:
    """Return ENVI's map info for the upper left corner (west, north) and pixels of ``across`` by ``down``."""
    zone = re.search(r"UTM zone (\d+)([NS])|EPSG:32([67])(\d\d)\b", system)
    name = "Arbitrary"
    ending = "units=Meters"
    if system == GEOGRAPHIC or system.lstrip().upper().startswith(("GEOGCS", "GEOGCRS")):
        name, ending = "Geographic Lat/Lon", "WGS-84, units=Degrees"
    elif zone:
        number = zone[1] or str(int(zone[4]))
        south = zone[2] == "S" or zone[3] == "7"
        name, ending = "UTM", f"{number}, {'South' if south else 'North'}, WGS-84, units=Meters"
    return f"{name}, 1, 1, {west!r}, {north!r}, {across!r}, {down!r}, {ending}"
