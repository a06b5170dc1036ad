"""Add to a scene what a STAC item says of it and the file does not: wavelengths, nodata, scale, place, time.

Before STAC 1.1 an asset has ``eo:bands`` and ``raster:bands``, since then ``bands``, or the same keys where all bands
share them.
"""

import contextlib
import itertools
from typing import Any

import numpy as np

from ...io.cube import Cube, as_stored
from ...io.formats.cf_place import placed_by
from ...io.formats.header import axis_in_nanometres, clean

# Properties of an item that a header has, too.
FIELDS = {
    "acquisition time": ("datetime", "start_datetime"),
    "sensor type": ("platform", "constellation"),
    "sun azimuth": ("view:sun_azimuth",),
    "sun elevation": ("view:sun_elevation",),
    "cloud cover": ("eo:cloud_cover",),
}
# From the first on a wavelength is taken for nm, which some catalogues write though STAC has µm; the second is the
# longest taken.
FROM_NM, LONGEST = 100.0, 1e5
# Earth Search's word that the offset which its items name has been taken off the values already.
IS_APPLIED = "earthsearch:boa_offset_applied"


def bands_described(asset: dict[str, Any], item: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what an item says of the bands of an asset, a mapping for each; empty where it counts none."""
    lists = [asset.get(key) for key in ("eo:bands", "raster:bands", "bands")]
    each = itertools.zip_longest(*(one for one in lists if isinstance(one, list)), fillvalue={})
    found = [{key: word for one in some if isinstance(one, dict) for key, word in one.items()} for some in each]
    return [asset | one for one in found] or ([asset] if "eo:center_wavelength" in asset else [])


def wavelength_of(band: dict[str, Any]) -> float | None:
    """Return the wavelength of a band, in µm; None where the item has none."""
    return length_in_item(band, "center_wavelength")


def length_in_item(band: dict[str, Any], key: str) -> float | None:
    """Return a wavelength or a width as the item has it; None where it is missing, not positive or too long."""
    length = number_of(band, key, f"eo:{key}")
    return length if length is not None and 0.0 < length < LONGEST else None


def number_of(band: dict[str, Any], *keys: str) -> float | None:
    """Return the first number that one of some keys holds; None where no key holds one."""
    for value in (band[key] for key in keys if band.get(key) is not None):
        with contextlib.suppress(
            TypeError, ValueError, OverflowError
        ):  # nan and inf are words in JSON; whole numbers have no end
            return float(value)
    return None


def describe(cube: Cube, asset: dict[str, Any], item: dict[str, Any], name: str) -> None:
    """Add what the item says of an asset to its cube, where the file itself does not."""
    properties = item.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    bands = bands_described(asset, item) or [asset] * cube.bands
    if len(bands) != cube.bands:
        if cube.wavelengths is None:
            cube.problems.append(
                f"{name}: describes {len(bands)} bands, the file has {cube.bands}; its wavelengths are not used"
            )
        bands = [asset] * cube.bands
    set_band_values(cube, bands, properties.get(IS_APPLIED) is True, name)
    names = [clean(str(one["name"])) for one in bands if one.get("name") not in (None, "")]
    if len(names) == cube.bands:
        cube.fields.setdefault("band names", ", ".join(names))
    cube.fields = said_by_item(item) | cube.fields
    if "map info" not in cube.fields and cube.placement is None:
        cube.fields |= place_in(properties | asset, cube, name)


def said_by_item(item: dict[str, Any]) -> dict[str, str]:
    """Return what an item says of `FIELDS`."""
    properties = item.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    found = {
        field: next((properties[key] for key in keys if properties.get(key) not in (None, "")), None)
        for field, keys in FIELDS.items()
    }
    return {field: clean(str(value)) for field, value in found.items() if value is not None}


def set_band_values(cube: Cube, bands: list[dict[str, Any]], is_applied: bool, name: str) -> None:
    """Set wavelengths, nodata, gain and offset of a cube, where it has none."""
    waves = [wavelength_of(one) for one in bands]
    if cube.wavelengths is None and None not in waves:
        widths = [length_in_item(one, "full_width_half_max") for one in bands]
        unit = "um" if max(map(float, filter(None, waves))) < FROM_NM else "nm"
        if unit == "nm":
            cube.problems.append(f"{name}: its wavelengths are taken for nm by their size; STAC's are in µm")
        fwhm = None if set(widths) == {None} else np.array(widths, float)
        cube.wavelengths, cube.fwhm = axis_in_nanometres(np.array(waves, float), fwhm, unit, cube.path, cube.problems)
    fills = {number_of(one, "nodata") for one in bands}
    if cube.nodata is None and cube.screen is None and fills != {None}:
        if len(fills) > 1:
            cube.problems.append(f"{name}: names {len(fills)} nodata values for the bands of one file; give `nodata`")
        else:
            cube.nodata = as_stored(fills.pop(), cube.dtype, name, cube.problems)
    if cube.gain is not None or cube.offset is not None:
        return
    scales = [number_of(one, "scale", "raster:scale") for one in bands]
    offsets = [number_of(one, "offset", "raster:offset") for one in bands]
    gain = np.array([1.0 if one is None else one for one in scales])
    offset = np.array([0.0 if one is None else one for one in offsets])
    if is_applied and offset.any():
        offset = np.zeros(cube.bands)
        cube.problems.append(
            f"{name}: says that its offset is applied already ({IS_APPLIED}), which is believed; else give `offset`"
        )
    if not (np.isfinite(gain).all() and np.isfinite(offset).all() and (gain != 0).all()):
        cube.problems.append(f"{name}: names a scale or offset that is not finite, or a scale of 0; they are not used")
    elif (gain != 1).any() or offset.any():
        cube.gain, cube.offset = gain, offset


def place_in(said: dict[str, Any], cube: Cube, name: str) -> dict[str, str]:
    """Return the map information of the projection extension, where its shape is the file's; else an empty dict."""
    given, shape = said.get("proj:transform"), said.get("proj:shape")
    if not isinstance(given, list) or len(given) not in (6, 9) or shape != [cube.lines, cube.samples]:
        return {}
    try:
        across, turned, west, also, down, north = map(float, given[:6])
    except (TypeError, ValueError):
        return {}
    code = said.get("proj:code") or (f"EPSG:{said['proj:epsg']}" if said.get("proj:epsg") else "")
    system = clean(str(code)) or str(said.get("proj:wkt2") or "")
    return placed_by(system, (across, turned, west, also, down, north), cube.path, cube.problems)
