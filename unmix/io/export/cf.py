"""Describe maps by the CF conventions, for every format that has named variables with attributes."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...settings.maps import row_of
from ..fields import origin_fields, scaling
from ..formats.header import centres_of, geotransform, words
from ..ground import system_of

# Most bytes of a text in an attribute: HDF5 allows none above 64 KiB.
LONGEST_ATTRIBUTE = 2**15
# Units of length in ENVI's map info, and their UDUNITS names.
UNITS = {"feet": "ft", "us survey feet": "US_survey_foot", "yards": "yd", "km": "km", "kilometers": "km", "miles": "mi"}
AXES = ("band", "y", "x")


class MapVariable(NamedTuple):
    """A variable beside a map: the names of its dimensions, its values, numbers or texts, and its attributes."""

    dimensions: tuple[str, ...]
    values: Any
    attributes: dict[str, str]


class Described(NamedTuple):
    """The description of a map, for the file that holds it.

    Attributes
    ----------
    of_file, of_map : dict
        Attributes, texts of at most `LONGEST_ATTRIBUTE` bytes, numbers, or arrays or lists of them.
    variables : dict of Variable
        Coordinates and the coordinate system; where the map is turned, or has none, x and y are missing.
    """

    of_file: dict[str, Any]
    of_map: dict[str, Any]
    variables: dict[str, MapVariable]


def described(values: np.ndarray, fields: dict[str, str], name: str, header: Path) -> Described:
    """Describe the map ``name`` with these values (lines, bands, samples), by the fields of its header."""
    lines, bands, samples = values.shape
    about = fields.get("description", "").strip()
    of_file = {"Conventions": "CF-1.8", "title": about}
    of_file |= {key.replace(" ", "_"): shortened(value) for key, value in origin_fields(fields).items()}
    blank = values.dtype.type(float(fields["data ignore value"]))
    of_map: dict[str, Any] = {"_FillValue": np.array([blank]), "long_name": shortened(about)}
    gain, offset = scaling(fields, bands, header)
    if gain is not None and offset is not None:  # of a map in steps, which all its bands share
        of_map |= {"scale_factor": float(gain[0]), "add_offset": float(offset[0])}
    if not row_of(name).has_unit:
        of_map["units"] = "1"
    classes = words(fields, "class names")
    if classes:
        of_map["flag_values"] = np.arange(len(classes), dtype=values.dtype)
        of_map["flag_meanings"] = shortened(" ".join("_".join(one.split()) for one in classes))
    names = words(fields, "band names") or [str(b + 1) for b in range(bands)]
    if sum(map(len, names)) < LONGEST_ATTRIBUTE:
        of_map["band_names"] = names  # GDAL shows these; `band_name` has them however long they are
    of_map["coordinates"] = "band_name"
    variables = {
        "band": MapVariable(("band",), np.arange(1, bands + 1, dtype=np.int32), {}),
        "band_name": MapVariable(("band",), names, {}),
    }
    for key in ("map info", "coordinate system string", "geo points"):
        if key in fields and len(fields[key]) < LONGEST_ATTRIBUTE:
            of_map[key.replace(" ", "_")] = " ".join(fields[key].split())
    placed = map_by_name(fields, lines, samples)
    if placed:
        of_map["grid_mapping"] = "spatial_ref"
    variables |= placed
    for key in ("wavelength", "fwhm"):
        if key in fields:
            variables[key] = MapVariable(("band",), np.array(words(fields, key), float), {"units": "nm"})
    return Described(of_file, of_map, variables)


def shortened(text: str) -> str:
    """Return the beginning of a text, of at most `LONGEST_ATTRIBUTE` bytes."""
    return text.encode()[:LONGEST_ATTRIBUTE].decode(errors="ignore")


def map_by_name(fields: dict[str, str], lines: int, samples: int) -> dict[str, MapVariable]:
    """Return the coordinate system and, for a map that is not rotated, the axes y and x; empty without a map."""
    transform = geotransform(fields.get("map info", ""))
    if transform is None:
        return {}
    system = {"GeoTransform": " ".join(f"{number:.17g}" for number in transform)}
    wkt = system_of(fields)
    if wkt and len(wkt.encode()) < LONGEST_ATTRIBUTE:
        system |= {"spatial_ref": wkt, "crs_wkt": wkt}
    variables = {"spatial_ref": MapVariable((), np.int32(0), system)}
    centres = centres_of(transform, lines, samples)
    if centres is None:
        return variables
    if fields["map info"].strip().lower().startswith("geographic"):
        names, units = ("latitude", "longitude"), ("degrees_north", "degrees_east")
    else:
        names, units = ("projection_y_coordinate", "projection_x_coordinate"), (length_unit(fields["map info"]),) * 2
    axes = zip(("y", "x"), centres, names, units)
    return variables | {
        axis: MapVariable((axis,), values, {"standard_name": one, "units": unit}) for axis, values, one, unit in axes
    }


def length_unit(map_info: str) -> str:
    """Return the UDUNITS unit of a map's axes; metres where the map info has none."""
    units = [word.partition("=")[2] for word in map_info.split(",") if word.strip().lower().startswith("units")]
    return UNITS.get(units[0].strip().lower(), "m") if units else "m"
