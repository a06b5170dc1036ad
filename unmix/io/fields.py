"""Interpret the fields of an ENVI header, which a GeoTIFF may have too: types, map information, spectral axis."""

import difflib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CubeError
from .cube import as_stored
from .formats.header import axis_in_names, axis_in_nanometres, number, numbers
from .remote import files_named

log = logging.getLogger("unmix")
# ENVI's code of each data type that is read; 6 and 9 are complex.
DTYPES: dict[int, np.dtype] = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.int16),
    3: np.dtype(np.int32),
    4: np.dtype(np.float32),
    5: np.dtype(np.float64),
    12: np.dtype(np.uint16),
    13: np.dtype(np.uint32),
    14: np.dtype(np.int64),
    15: np.dtype(np.uint64),
}

# No data, in every map of real numbers that we write.
NODATA = -9999.0
# Fields that place the scene on a map; outputs copy them verbatim.
MAP_FIELDS = (
    "map info",
    "projection info",
    "coordinate system string",
    "pixel size",
    "geo points",
    "rpc info",
    "x start",
    "y start",
)


# Header fields of the acquisition; outputs copy them verbatim.
ACQUISITION = ("acquisition time", "sensor type", "sun azimuth", "sun elevation", "cloud cover", "security tag")
# All other fields that we write have a meaning in ENVI; the rest say where a map comes from, and go into every format.
OF_ENVI = (
    *MAP_FIELDS,
    "description",
    "samples",
    "lines",
    "bands",
    "header offset",
    "file type",
    "data type",
    "interleave",
    "byte order",
    "band names",
    "default bands",
    "data ignore value",
    "wavelength",
    "wavelength units",
    "fwhm",
    "bbl",
    "classes",
    "class names",
    "class lookup",
    "data gain values",
    "data offset values",
)


# Keys that change what is read, and how alike a key must be to be one of them, mistyped: a letter too many, or an
# underscore.
MEANT = (
    "wavelength",
    "wavelength units",
    "fwhm",
    "bbl",
    "data ignore value",
    "reflectance scale factor",
    "data gain values",
    "data offset values",
    "map info",
)
ALIKE = 0.85


def code_of(dtype: np.dtype) -> int:
    """Return ENVI's code of a data type."""
    return next(code for code, one in DTYPES.items() if one == dtype)


def origin_fields(fields: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of a map's header that say where it comes from, each on one line."""
    return {key: " ".join(value.split()) for key, value in fields.items() if key not in OF_ENVI}


def acquisition_of(fields: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of a header that say how the scene was acquired."""
    return {key: fields[key] for key in ACQUISITION if key in fields}


def header_beside(path: Path) -> Path | None:
    """Return the header beside a data file: its name or its stem with ``.hdr``, in any case; None without one."""
    names = path.name + ".hdr", path.stem + ".hdr"
    there = files_named(path.parent, [name[:-4] + ending for name in names for ending in (".hdr", ".HDR")])
    found = (entry for name in names for entry in there if entry.name.lower() == name.lower() and entry.is_file())
    return next(found, None)


def spectral_fields(
    fields: dict[str, str], bands: int, dtype: np.dtype, header: Path, problems: list[str]
) -> dict[str, Any]:
    """Return what a header says about the bands and their values, by attribute of `unmix.io.cube.Cube`."""
    waves, fwhm = (numbers(fields, key, bands, header) for key in ("wavelength", "fwhm"))
    waves, fwhm = axis_in_nanometres(waves, fwhm, fields.get("wavelength units", ""), header, problems)
    waves = axis_of_names(fields, bands, header) if waves is None else waves
    problems += mistyped(fields, header)
    gain, offset = scaling(fields, bands, header)
    good = numbers(fields, "bbl", bands, header)
    return {
        "wavelengths": waves,
        "fwhm": fwhm,
        "good_bands": None if good is None else good != 0,
        "gain": gain,
        "offset": offset,
        "nodata": as_stored(number(fields, "data ignore value", header), dtype, header, problems),
    }


def axis_of_names(fields: Mapping[str, str], bands: int, source: Path) -> np.ndarray | None:
    """Return the wavelengths (nm) that the names of bands say, and log that; None where they do not."""
    waves = axis_in_names(fields, bands)
    if waves is not None:
        log.info(f"{source}: wavelengths are taken from the band names: {waves.min():g} to {waves.max():g} nm")
    return waves


def mistyped(fields: Mapping[str, str], header: Path) -> list[str]:
    """Return a warning for each key of a header that is nearly one of `MEANT`, which it lacks."""
    lacking = [key for key in MEANT if key not in fields]
    meant = {key: difflib.get_close_matches(key, lacking, 1, ALIKE) for key in fields if key not in OF_ENVI}
    return [f"{header}: '{key}' is not read; the key is '{one[0]}'" for key, one in meant.items() if one]


def scaling(fields: dict[str, str], bands: int, header: Path) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the gain and offset of each band: ``(stored * data gain + data offset) / reflectance scale factor``."""
    gain = numbers(fields, "data gain values", bands, header)
    offset = numbers(fields, "data offset values", bands, header)
    factor = number(fields, "reflectance scale factor", header)
    if factor is not None and not (np.isfinite(factor) and factor > 0):
        raise CubeError(f"{header}: reflectance scale factor {factor} must be finite and above 0")
    for name, values in (("gain", gain), ("offset", offset)):
        if values is not None and not np.all(np.isfinite(values)):
            raise CubeError(f"{header}: a data {name} value is not finite")
    if factor is not None and factor != 1.0:
        gain = (np.ones(bands) if gain is None else gain) / factor
        offset = None if offset is None else offset / factor
    return gain, offset
