"""Read the wavelengths, names and scale of a cube's bands, and its place on a map, from all that a Zarr store says of it."""

import base64
import contextlib
import json
import math
import re
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import zarr

from ....errors import CubeError
from ...cube import as_stored
from ...remote import RemotePath
from ..hdf5 import keep, map_info
from ..header import RECIPROCAL, TO_NANOMETRES, axis_in_names, axis_in_nanometres, geotransform
from .cube import ZarrCube
from .store import Store, dimensions_of

# Names of arrays, or of attributes, with a number for each band.
WAVELENGTHS = ("wavelength", "wavelengths", "wave", "wl", "center_wavelength", "center_wavelengths", "band_wavelength")
WIDTHS, GOOD = ("fwhm", "FWHM", "full_width_half_max"), ("good_wavelengths", "good_bands", "good", "bbl")
NAMES = ("band_name", "band_names", "name", "names")
# How far the steps between coordinates may differ, of a step: float32 has six digits of a northing.
UNEVEN = 0.01
# Metres in a unit of coordinates.
METRES = {"km": 1000.0, "kilometer": 1000.0, "kilometers": 1000.0, "kilometre": 1000.0, "kilometres": 1000.0}
# Most chunks of an array of which those that are missing are counted.
MOST_COUNTED = 100_000


def describe(cube: ZarrCube, store: Store, wavelengths: str | None) -> None:
    """Add to a cube all that a store says of it.

    Parameters
    ----------
    cube : ZarrCube
    store : Store
    wavelengths : str, optional
        The array of wavelengths, where it is named.

    Raises
    ------
    CubeError
        Where there is no such array, or a number is invalid.
    """
    beside = Beside(cube, store)
    fill_and_scale(cube)
    names = beside.names()
    if len(names) == cube.bands and all(names):
        keep(cube, "band names", ", ".join(name.replace(",", ";") for name in names))
    waves, fwhm, unit = beside.spectral(wavelengths)
    cube.wavelengths, cube.fwhm = axis_in_nanometres(waves, fwhm, unit, cube.path, cube.problems)
    if cube.wavelengths is None:
        cube.wavelengths = axis_in_names(cube.fields, cube.bands)
    good = next((one for name in GOOD if (one := beside.numbers(name)[0]) is not None), None)
    if good is not None and not (good != 0).all():
        cube.good_bands = good != 0
    for key, text in Place(cube, beside).fields().items():
        keep(cube, key, text)
    warn_of_missing_chunks(cube, store)
    if isinstance(store.root, zarr.Array) and beside.axes:
        cube.problems.append(
            f"{cube.path}: is an array by its own path, so that nothing beside it is read, such as wavelengths; name the store, and "
            "the array with `dataset`"
        )


def numbers_in(value: Any) -> np.ndarray | None:
    """Return the numbers of an attribute: a number, a list of them, or a text with commas or spaces; None where it is no such."""
    with contextlib.suppress(TypeError, ValueError):
        if value is None:
            return None
        values = np.asarray(value.replace(",", " ").split() if isinstance(value, str) else value, float).ravel()
        return values if len(values) else None
    return None


def attributes_of(array: Any) -> dict[str, Any]:
    """Return the attributes of an array that say what is missing and how it is scaled, as NetCDF names them, as numbers."""
    own = dict(array.attrs)
    eopf = own.get("_eopf_attrs")
    if isinstance(eopf, Mapping):
        of_eopf = {"scale_factor": "scale_factor", "add_offset": "add_offset", "fill_value": "_FillValue"}
        own = {to: eopf[key] for key, to in of_eopf.items() if key in eopf} | own
    blank = next((own[name] for name in ("_FillValue", "missing_value") if own.get(name) is not None), None)
    if blank is None and array.metadata.zarr_format == 2 and "_ARRAY_DIMENSIONS" in own:  # xarray's way to say it in v2
        blank = array.fill_value
    if isinstance(blank, str) and numbers_in(blank) is None:  # xarray's way to say it in v3: base64 of a float64
        with contextlib.suppress(ValueError, struct.error):
            raw = base64.b64decode(blank, validate=True)
            blank = struct.unpack("<d" if len(raw) == 8 else "<f", raw)[0]
    return {name: own.get(name) for name in ("scale_factor", "add_offset", "_Unsigned", "units", "unit")} | {
        "_FillValue": blank
    }


def of_each_band(value: Any, bands: int, usual: float) -> np.ndarray:
    """Return an attribute as a number for each of the bands; NaN where it is no number, or too few or too many."""
    values = np.array([usual]) if value is None else numbers_in(value)
    return np.full(bands, np.nan) if values is None or len(values) not in (1, bands) else np.broadcast_to(values, bands)


def fill_and_scale(cube: ZarrCube) -> None:
    """Set nodata, gain and offset; `CubeError` where a gain is 0, or one is not finite."""
    blanks, gains, offsets = set(), [], []
    for slab, name in zip(cube.slabs, cube.names):
        said, bands = attributes_of(slab.array), slab.length("b")
        if str(said["_Unsigned"]).lower() == "true" and cube.dtype.kind == "i":
            raise CubeError(f"{cube.path}: /{name} says that its integers are unsigned (_Unsigned); store them so")
        blank = numbers_in(said["_FillValue"])
        blanks.add(None if blank is None or np.isnan(blank[0]) else float(blank[0]))
        gains.append(of_each_band(said["scale_factor"], bands, 1.0))
        offsets.append(of_each_band(said["add_offset"], bands, 0.0))
    gain, offset = np.concatenate(gains), np.concatenate(offsets)
    if not (np.isfinite(gain).all() and gain.all() and np.isfinite(offset).all()):
        raise CubeError(f"{cube.path}: the scale_factor of a band is 0, or it or add_offset is no finite number")
    if np.any(gain != 1.0) or np.any(offset):
        cube.gain, cube.offset = gain, offset
    if len(blanks) > 1:
        cube.problems.append(
            f"{cube.path}: its bands have several values of no data, and none is used; give one with `nodata`"
        )
    cube.nodata = as_stored(next(iter(blanks)) if len(blanks) == 1 else None, cube.dtype, cube.path, cube.problems)


def warn_of_missing_chunks(cube: ZarrCube, store: Store) -> None:
    """Warn where a store on this machine lacks chunks, and the value that they are read as is not that of no data."""
    if isinstance(cube.path, RemotePath):
        return
    for slab, name in zip(cube.slabs, cube.names):
        blank, every = slab.array.fill_value, math.prod(slab.grid)
        is_missing = blank is not None and (blank != blank or blank == cube.nodata)
        if is_missing or every > MOST_COUNTED or (there := store.count(name)) >= every:
            continue
        cube.problems.append(
            f"{cube.path}: {every - there} of {every} chunks of /{name} are not there, and count as {blank or 0}; if that is no data, "
            f"say so with `nodata` {blank or 0}"
        )


class Beside:
    """What lies beside the arrays of a cube: other arrays of their group, and attributes of all that they are in.

    Attributes
    ----------
    axes : dict
        The names of the cube's axes y, x and b.
    near, all : dict
        The attributes of the array and its group, and those of all groups that they are in, too.
    """

    def __init__(self, cube: ZarrCube, store: Store) -> None:
        self.cube, self.store = cube, store
        self.first = cube.slabs[0].array
        above = store.above(self.first)
        self.group = above[-1] if above else None
        self.axes = {role: name for role, name in zip(cube.slabs[0].axes, dimensions_of(self.first)) if role != "1"}
        self.near = {**(dict(self.group.attrs) if self.group is not None else {}), **dict(self.first.attrs)}
        self.all = {key: value for group in above for key, value in dict(group.attrs).items()} | self.near

    def array(self, name: str) -> Any:
        """Return an array of the group, or None."""
        found = None
        with contextlib.suppress(Exception):  # a damaged neighbour is no fault of the cube's
            found = None if self.group is None or not name else self.store.child(self.group, name)
        return found if isinstance(found, zarr.Array) else None

    def values(self, array: Any, length: int) -> np.ndarray | None:
        """Return the numbers (length,) of an array, scaled, NaN where they are missing; None where it is of another size or kind."""
        if array is None or array.shape != (length,) or array.dtype.kind not in "fiub":
            return None
        said, values = attributes_of(array), np.asarray(array[...], float)
        blank = numbers_in(said["_FillValue"]) if "_FillValue" in dict(array.attrs) else None
        if blank is not None:
            values = np.where(values == blank[0], np.nan, values)
        return np.asarray(
            values * of_each_band(said["scale_factor"], 1, 1.0) + of_each_band(said["add_offset"], 1, 0.0)
        )

    def numbers(self, name: str) -> tuple[np.ndarray | None, str]:
        """Return the numbers (bands,) of an array or an attribute, and its unit; None where it is of another size or kind.

        Bands that are arrays have no order but that of their names, so that only what each of them says is theirs.
        """
        bands = self.cube.bands
        if len(self.cube.slabs) > 1:
            each = [numbers_in(slab.array.attrs.get(name)) for slab in self.cube.slabs]
            is_known = all(one is not None and len(one) == 1 for one in each)
            return (np.array([one[0] for one in each if one is not None]) if is_known else None), ""
        array = self.array(name)
        values = self.values(array, bands) if array is not None else numbers_in(self.near.get(name))
        if values is None or len(values) != bands or not np.isfinite(values).all():
            return None, ""
        return values, "" if array is None else self.unit(array)

    def unit(self, array: Any) -> str:
        """Return the unit of an array; empty where it has none."""
        return str(array.attrs.get("units", array.attrs.get("unit", "")))

    def spectral(self, named: str | None) -> tuple[np.ndarray | None, np.ndarray | None, str]:
        """Return wavelengths and FWHM as stored, and their unit; None where there are none."""
        if named is not None:
            array = self.store.child(self.store.root, named)
            values = self.values(array if isinstance(array, zarr.Array) else None, self.cube.bands)
            if values is None:
                raise CubeError(f"{self.cube.path}: has no array '{named}' of {self.cube.bands} wavelengths")
            return values, None, self.unit(array)
        fwhm = next((one for name in WIDTHS if (one := self.numbers(name)[0]) is not None), None)
        for name in (self.axes.get("b", ""), *WAVELENGTHS):
            values, unit = self.numbers(name)
            is_known = unit.strip().lower() in {*TO_NANOMETRES, *RECIPROCAL}
            counts = (
                values is not None and np.array_equal(np.diff(values), np.ones(len(values) - 1)) and values[0] in (0, 1)
            )
            if values is not None and (is_known or (name in WAVELENGTHS and not counts)):
                return values, fwhm, unit
        return self.of_stac()

    def of_stac(self) -> tuple[np.ndarray | None, np.ndarray | None, str]:
        """Return the wavelengths and FWHM of bands by their names in a STAC item, in µm, which EOPF's products hold."""
        about: dict[str, tuple[float, float]] = {}
        with contextlib.suppress(TypeError, KeyError, ValueError, AttributeError):
            item = self.all["stac_discovery"]
            properties = item.get("properties", item)
            for band in properties.get("bands") or properties["eo:bands"]:
                known = {key.removeprefix("eo:"): value for key, value in band.items()}
                width = float(known.get("full_width_half_max", np.nan))
                about[str(known["name"]).lower()] = float(known["center_wavelength"]), width
        found = [about[name.lower()] for name in self.names() if name.lower() in about]
        if len(found) != self.cube.bands:
            return None, None, ""
        waves, widths = np.array(found, float).T
        return waves, widths if np.isfinite(widths).all() else None, "um"

    def names(self) -> list[str]:
        """Return the names of the bands: texts of an array, of an attribute, or the names of the arrays that are bands."""
        if len(self.cube.slabs) > 1:
            return [name.rpartition("/")[2] for name in self.cube.names]
        for name in (self.axes.get("b", ""), *NAMES):
            array = self.array(name)
            if array is not None and array.shape == (self.cube.bands,) and getattr(array.dtype, "kind", "T") in "TUSO":
                values = array[...].tolist()
                return [one.decode(errors="replace") if isinstance(one, bytes) else str(one) for one in values]
        said = self.near.get("band_names")
        if isinstance(said, list) and len(said) == self.cube.bands:
            return list(map(str, said))
        with contextlib.suppress(TypeError, KeyError, AttributeError):  # OME-Zarr's channels
            shown = self.near.get("omero") or self.near["ome"]["omero"]
            return [str(channel["label"]) for channel in shown["channels"]]
        return []


class Place:
    """Where a cube lies on a map, by all that says so: each alone, since any may be missing, stale or turned."""

    def __init__(self, cube: ZarrCube, beside: Beside) -> None:
        self.cube, self.beside = cube, beside
        names = (str(beside.near.get("grid_mapping", "")).split(":")[0].strip(), "spatial_ref")
        mapping = next((one for name in names if (one := beside.array(name)) is not None), None)
        self.mapping: dict[str, Any] = {} if mapping is None else dict(mapping.attrs)

    def fields(self) -> dict[str, str]:
        """Return the map information, as fields of an ENVI header; nothing where there is none, or the map is turned."""
        near, path = self.beside.near, self.cube.path
        if geotransform(str(near.get("map_info", ""))) is not None:  # our own maps
            names = {"map info": "map_info", "coordinate system string": "coordinate_system_string"}
            return {key: str(near[name]) for key, name in names.items() if name in near}
        given, axes = self.transform(), self.axes()
        if given is not None and (given[1] or given[3]):
            self.cube.problems.append(f"{path}: its map is turned, which maps here cannot be; outputs have no place")
            return {}
        by_transform = None if given is None else (given[2], given[5], given[0], given[4])
        chosen = by_transform if axes is None else axes
        if by_transform is not None and axes is not None:
            apart = np.abs(np.subtract(by_transform, axes))
            size = np.array([abs(axes[2]), abs(axes[3])])
            ends = apart[:2] + apart[2:] * [self.cube.samples, self.cube.lines]
            if (ends <= 0.5 * size).all():
                chosen = by_transform  # of more digits than coordinates of float32
            else:
                self.cube.problems.append(f"{path}: its x and y are elsewhere than its transform says; they are used")
        system = self.system()
        if chosen is None or (by_transform is None and not system):
            return {}
        west, north, across, down = map(float, chosen)
        if not np.isfinite(chosen).all() or across <= 0 or down >= 0:
            self.cube.problems.append(
                f"{path}: its lines do not run south, or its samples not east, so that outputs have no place"
            )
            return {}
        wkt = wkt_of(system)
        place = {"map info": map_info(wkt or system, west, north, across, -down)}
        return place | ({"coordinate system string": wkt} if wkt else {})

    def transform(self) -> np.ndarray | None:
        """Return the transform (x by sample, x by line, west, y by sample, y by line, north); None where there is none."""
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
        """Return where an axis begins, at the edge of its first pixel, and its step, in metres or degrees; None where it is uneven."""
        array = self.beside.array(self.beside.axes.get(role, ""))
        centres = self.beside.values(array, length)
        if centres is None or length < 2:
            return None
        centres = centres * METRES.get(self.beside.unit(array).strip().lower(), 1.0)
        step = (centres[-1] - centres[0]) / (length - 1)
        if not np.isfinite(centres).all() or step == 0 or np.any(np.abs(np.diff(centres) - step) > UNEVEN * abs(step)):
            return None
        return float(centres[0] - step / 2), float(step)

    def system(self) -> str:
        """Return the coordinate system, as WKT, JSON or a code; empty where nothing says it."""
        said = self.beside.all
        for value in (said.get("proj:wkt2"), self.mapping.get("crs_wkt"), self.mapping.get("spatial_ref"), said.get("proj:projjson"),
                      said.get("proj:code")):  # fmt: skip
            if value:
                return json.dumps(value) if isinstance(value, Mapping) else str(value)
        return f"EPSG:{said['proj:epsg']}" if said.get("proj:epsg") else ""


def wkt_of(system: str) -> str | None:
    """Return the WKT of a coordinate system; of a code such as EPSG:32632, or of PROJJSON, by GDAL, or None where that is missing."""
    if not (re.fullmatch(r"[A-Za-z]+:\w+", system) or system.startswith("{")):
        return system or None
    with contextlib.suppress(Exception):
        from rasterio.crs import CRS

        return str(CRS.from_user_input(system).to_wkt())
    return None
