"""What a Zarr store says of a cube: wavelengths, names and scale of its bands, and where it lies on a map."""

import base64
import contextlib
import struct
from types import SimpleNamespace
from typing import Any

import numpy as np
import zarr

from ....errors import CubeError
from ...cube import as_stored
from ...remote import RemotePath
from ..hdf5 import attribute, keep, map_info
from ..header import RECIPROCAL, TO_NANOMETRES, axis_in_names, axis_in_nanometres
from .cube import ZarrCube
from .store import child

# Names of arrays, or of attributes, with a number for each band.
WAVELENGTHS = ("wavelength", "wavelengths", "wave", "wl", "center_wavelength", "center_wavelengths", "band_wavelength")
WIDTHS, GOOD = ("fwhm", "FWHM"), ("good_wavelengths", "good_bands", "good", "bbl")
NAMES = ("band_name", "band_names", "name", "names")
# How far the steps between coordinates may differ, of a step: float32 has six digits of a northing.
UNEVEN = 0.01


def describe(cube: ZarrCube, root: Any, group: Any, wavelengths: str | None) -> None:
    """Add to a cube all that a store says of it.

    Parameters
    ----------
    cube : ZarrCube
    root : zarr.Group or zarr.Array
        Of the store.
    group : zarr.Group or None
        That the cube's arrays are in.
    wavelengths : str, optional
        The array of wavelengths, where it is named.

    Raises
    ------
    CubeError
        Where there is no such array, or a number is invalid.
    """
    beside = Beside(cube, root, group)
    fill_and_scale(cube)
    waves, fwhm, unit = beside.spectral(wavelengths)
    cube.wavelengths, cube.fwhm = axis_in_nanometres(waves, fwhm, unit, cube.path, cube.problems)
    good = next((one for name in GOOD if (one := beside.numbers(name)[0]) is not None), None)
    if good is not None and not (good != 0).all():
        cube.good_bands = good != 0
    names = [name for name in beside.names() if name]
    if len(names) == cube.bands:
        keep(cube, "band names", ", ".join(name.replace(",", ";") for name in names))
    if cube.wavelengths is None:
        cube.wavelengths = axis_in_names(cube.fields, cube.bands)
    for key, text in beside.place().items():
        keep(cube, key, text)
    warn_of_missing_chunks(cube)


def attributes_of(array: Any) -> dict[str, Any]:
    """Return the attributes of an array that say what is missing and how it is scaled, as NetCDF names them."""
    own = dict(array.attrs)
    eopf = own.get("_eopf_attrs")
    if isinstance(eopf, dict):
        own = {key: eopf[key] for key in ("scale_factor", "add_offset") if key in eopf} | own
        own.setdefault("_FillValue", eopf.get("fill_value"))
    if array.metadata.zarr_format == 2 and "_ARRAY_DIMENSIONS" in own:  # xarray's way to say it in v2
        own.setdefault("_FillValue", array.fill_value)
    blank = own.pop("_FillValue", None)
    if isinstance(blank, str) and array.dtype.kind == "f":  # xarray's way to say it in v3: base64 of a float64
        with contextlib.suppress(ValueError, struct.error):
            blank = struct.unpack("<d", base64.b64decode(blank, validate=True))[0]
    return own if blank is None else own | {"_FillValue": blank}


def fill_and_scale(cube: ZarrCube) -> None:
    """Set nodata, gain and offset; `CubeError` where a gain is 0, or one is not finite."""
    blanks, gains, offsets = set(), [], []
    for slab in cube.slabs:
        said = SimpleNamespace(attrs=attributes_of(slab.array))
        bands = slab.length("b")
        gain, offset = (attribute(said, name) for name in ("scale_factor", "add_offset"))
        blanks.add(attribute(said, "_FillValue"))
        gains += [1.0 if gain is None else gain] * bands
        offsets += [0.0 if offset is None else offset] * bands
    if not (np.isfinite(gains).all() and np.all(gains) and np.isfinite(offsets).all()):
        raise CubeError(f"{cube.path}: a scale is 0, or it or an offset is not finite; give `scale`")
    if np.any(np.array(gains) != 1.0) or np.any(offsets):
        cube.gain, cube.offset = np.array(gains), np.array(offsets)
    if len(blanks) > 1:
        cube.problems.append(f"{cube.path}: its bands have several values of no data; give one with `nodata`")
    cube.nodata = as_stored(next(iter(blanks)) if len(blanks) == 1 else None, cube.dtype, cube.path, cube.problems)


def warn_of_missing_chunks(cube: ZarrCube) -> None:
    """Warn where a store on this machine lacks chunks, and the value that they are read as is not that of no data."""
    if isinstance(cube.path, RemotePath):
        return
    for slab in cube.slabs:
        array = slab.array
        there, every = array.nchunks_initialized, array.nchunks
        blank = array.fill_value
        is_missing = blank is not None and (blank != blank or blank == cube.nodata)
        if there < every and not is_missing:
            cube.problems.append(
                f"{cube.path}: {every - there} of {every} chunks of /{array.path} are not there, and count as {blank}; if that is "
                f"no data, say so with `nodata` {blank}"
            )


class Beside:
    """What lies beside the arrays of a cube: other arrays of their group, and attributes of all that they are in."""

    def __init__(self, cube: ZarrCube, root: Any, group: Any) -> None:
        self.cube, self.root, self.group = cube, root, group
        self.first = cube.slabs[0].array
        names = getattr(self.first.metadata, "dimension_names", None) or self.first.attrs.get("_ARRAY_DIMENSIONS") or ()
        self.axes = {role: str(name) for role, name in zip(cube.slabs[0].axes, names)}
        self.attributes = {
            **dict(root.attrs), **(dict(group.attrs) if group is not None else {}), **dict(self.first.attrs)
        }  # fmt: skip

    def array(self, name: str) -> Any:
        """Return an array of the group, or None."""
        found = None if self.group is None or not name else child(self.group, name)
        return found if isinstance(found, zarr.Array) else None

    def numbers(self, name: str) -> tuple[np.ndarray | None, str]:
        """Return the numbers (bands,) of an array or an attribute, and its unit; None where it is of another size or kind."""
        array = self.array(name)
        if array is not None and array.shape == (self.cube.bands,) and array.dtype.kind in "fiub":
            return np.asarray(array[...], float), str(array.attrs.get("units", array.attrs.get("unit", "")))
        with contextlib.suppress(TypeError, ValueError):
            values = np.asarray(self.attributes.get(name), float).ravel()
            if array is None and len(values) == self.cube.bands and np.isfinite(values).all():
                return values, ""
        return None, ""

    def spectral(self, named: str | None) -> tuple[np.ndarray | None, np.ndarray | None, str]:
        """Return wavelengths and FWHM as stored, and their unit; None where there are none."""
        if named is not None:
            array = child(self.root, named)
            if not isinstance(array, zarr.Array) or array.size != self.cube.bands:
                raise CubeError(f"{self.cube.path}: has no array '{named}' of {self.cube.bands} wavelengths")
            return np.asarray(array[...], float).ravel(), None, str(array.attrs.get("units", ""))
        fwhm = next((one for name in WIDTHS if (one := self.numbers(name)[0]) is not None), None)
        for name in (self.axes.get("b", ""), *WAVELENGTHS):
            values, unit = self.numbers(name)
            if values is not None and (name in WAVELENGTHS or unit.strip().lower() in {*TO_NANOMETRES, *RECIPROCAL}):
                return values, fwhm, unit
        return self.of_stac()

    def of_stac(self) -> tuple[np.ndarray | None, np.ndarray | None, str]:
        """Return the wavelengths and FWHM of bands by their names in a STAC item, in µm, which EOPF's products hold."""
        about: dict[str, tuple[float, float]] = {}
        with contextlib.suppress(TypeError, KeyError, ValueError):
            item = self.attributes["stac_discovery"]
            properties = item.get("properties", item)
            for band in properties.get("bands") or properties["eo:bands"]:
                known = {key.removeprefix("eo:"): value for key, value in band.items()}
                width = float(known.get("full_width_half_max", np.nan))
                about[str(known["name"]).lower()] = float(known["center_wavelength"]), width
        found = [about.get(name.lower()) for name in self.names()]
        if not found or any(one is None for one in found):
            return None, None, ""
        waves, widths = np.array(found, float).T
        return waves, widths if np.isfinite(widths).all() else None, "um"

    def names(self) -> list[str]:
        """Return the names of the bands: texts of an array, of an attribute, or the names of the arrays that are bands."""
        if len(self.cube.slabs) > 1:
            return [slab.array.path.rpartition("/")[2] for slab in self.cube.slabs]
        for name in (self.axes.get("b", ""), *NAMES):
            array = self.array(name)
            if array is not None and array.shape == (self.cube.bands,) and array.dtype.kind not in "fiubc":
                return [str(one) for one in array[...].tolist()]
        said = self.attributes.get("band_names")
        if isinstance(said, list) and len(said) == self.cube.bands:
            return list(map(str, said))
        with contextlib.suppress(TypeError, KeyError):  # OME-Zarr's channels
            shown: Any = self.attributes.get("omero", dict(self.attributes.get("ome") or {}).get("omero"))
            return [str(channel["label"]) for channel in shown["channels"]]
        return []

    def place(self) -> dict[str, str]:
        """Return the map information, as fields of an ENVI header; nothing where there is none, or the map is turned."""
        said = self.attributes
        if isinstance(said.get("map_info"), str):  # our own maps
            return {key: str(said[key.replace(" ", "_")]) for key in ("map info", "coordinate system string")
                    if key.replace(" ", "_") in said}  # fmt: skip
        mapping = self.array(str(said.get("grid_mapping", "spatial_ref")))
        of_mapping: dict[str, Any] = {} if mapping is None else dict(mapping.attrs)
        code = said.get("proj:code") or (f"EPSG:{said['proj:epsg']}" if said.get("proj:epsg") else "")
        system = str(said.get("proj:wkt2") or of_mapping.get("crs_wkt") or of_mapping.get("spatial_ref") or code or "")
        with contextlib.suppress(TypeError, ValueError):
            for name in ("spatial:transform", "proj:transform"):
                if name in said:
                    across, turn, west, other, down, north = (float(one) for one in said[name][:6])
                    half = 0.5 if said.get("spatial:registration") == "node" else 0.0
                    if not (turn or other):
                        return fields_of(system, west - half * across, north - half * down, across, down)
            if "GeoTransform" in of_mapping:
                west, across, turn, north, other, down = (float(one) for one in str(of_mapping["GeoTransform"]).split())
                if not (turn or other):
                    return fields_of(system, west, north, across, down)
        x, y = (self.steps(role, length) for role, length in (("x", self.cube.samples), ("y", self.cube.lines)))
        return {} if x is None or y is None or not system else fields_of(system, x[0], y[0], x[1], y[1])

    def steps(self, role: str, length: int) -> tuple[float, float] | None:
        """Return where an axis begins, at the edge of its first pixel, and its step; None where it is not evenly spaced."""
        array = self.array(self.axes.get(role, ""))
        if array is None or array.shape != (length,) or length < 2 or array.dtype.kind not in "fiu":
            return None
        centres = np.asarray(array[...], float)
        step = (centres[-1] - centres[0]) / (length - 1)
        if not np.isfinite(centres).all() or step == 0 or np.any(np.abs(np.diff(centres) - step) > UNEVEN * abs(step)):
            return None
        return float(centres[0] - step / 2), float(step)


def fields_of(system: str, west: float, north: float, across: float, down: float) -> dict[str, str]:
    """Return the fields of a header for a map that is not turned; of one whose lines go north, or samples west, nothing."""
    if not (np.isfinite([west, north, across, down]).all() and across > 0 and down < 0):
        return {}
    wkt = wkt_of(system) if system.upper().startswith("EPSG:") else system
    place = {"map info": map_info(wkt or system, west, north, across, -down)}
    return place | ({"coordinate system string": wkt} if wkt else {})


def wkt_of(code: str) -> str | None:
    """Return the WKT of a code such as EPSG:32632, by GDAL; None where that is missing, or does not know it."""
    with contextlib.suppress(Exception):
        from rasterio.crs import CRS

        return str(CRS.from_user_input(code).to_wkt())
    return None
