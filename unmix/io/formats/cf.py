"""Read what the attributes of arrays say about a cube by the CF conventions, for HDF5, NetCDF, Zarr and xarray."""

import contextlib
import re
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...errors import CubeError
from ..cube import Cube, Screen, as_stored
from .header import RECIPROCAL, SOLAR, TO_NANOMETRES, unit_in

# Names of axes along lines and samples; any other axis is along bands, but for times.
LINES = frozenset(
    {
        "y",
        "lat",
        "latitude",
        "northing",
        "line",
        "lines",
        "row",
        "rows",
        "downtrack",
        "along_track",
        "height",
        "number_of_lines",
    }
)
SAMPLES = frozenset(
    {
        "x",
        "lon",
        "longitude",
        "easting",
        "sample",
        "samples",
        "column",
        "columns",
        "crosstrack",
        "across_track",
        "width",
        "pixels_per_line",
    }
)
TIMES = frozenset({"t", "time", "date", "datetime"})
# Names of arrays, or of attributes, with a number for each band.
WAVELENGTHS = (
    "wavelength",
    "wavelengths",
    "wave",
    "wl",
    "center_wavelength",
    "center_wavelengths",
    "band_wavelength",
    "lambda",
    "radiation_wavelength",
)
WIDTHS, GOOD = ("fwhm", "FWHM", "full_width_half_max"), ("good_wavelengths", "good_bands", "good", "bbl")
NAMES = ("band_name", "band_names", "name", "names")
UNITS = ("units", "Units", "unit")
# Attributes that say which stored numbers are no values, by convention, and others by their names.
CONVENTIONAL = "_FillValue", "missing_value"
NO_DATA = re.compile(
    r"_*(data[\W_]*)?(no[\W_]*data([\W_]*(value|val)s?)?"
    r"|(fill|ignore|missing([\W_]*data)?)[\W_]*(value|val)s?|missing[\W_]*data)_*",
    re.IGNORECASE,
)
# Names of arrays of the coordinates of each pixel of a swath.
PER_PIXEL = "lat", "latitude", "Latitude", "lon", "longitude", "Longitude", "geolocation_lookup_table"
# How far limits of scaled values may miss a stored number by rounding, in units of it.
MOST_ROUNDING = 1e-6


class Variable(NamedTuple):
    """An array of a file, not read yet: its name, the names of its axes (empty where unnamed), its attributes."""

    name: str
    shape: tuple[int, ...]
    dtype: Any
    dimensions: Sequence[str]
    attributes: Mapping[str, Any]
    load: Callable[[], Any]

    @property
    def unit(self) -> str:
        """The unit of its values; empty where it has none."""
        return next((text_of(self.attributes[name]) for name in UNITS if name in self.attributes), "")

    def numbers(self, length: int) -> np.ndarray | None:
        """Return its values (length,), scaled, NaN where they are missing; None where it is of another size or kind."""
        if self.shape != (length,) or getattr(self.dtype, "kind", "") not in "fiub":
            return None
        how = packing_of(self.attributes, self.dtype, 1, self.name, [])
        values = np.asarray(self.load()).astype(how.dtype, copy=False)
        return np.where(how.misses(values), np.nan, values.astype(float) * how.gain + how.offset)


class Packing(NamedTuple):
    """The conversion from stored numbers to values: type, missing values and limits as stored, gain and offset."""

    dtype: np.dtype
    missing: tuple[float, ...]
    low: float
    high: float
    gain: np.ndarray
    offset: np.ndarray

    @property
    def has_limits(self) -> bool:
        """Whether its type has numbers beyond the limits."""
        if self.dtype.kind not in "iu":
            return self.low > -np.inf or self.high < np.inf
        return self.low > np.iinfo(self.dtype).min or self.high < np.iinfo(self.dtype).max

    def misses(self, values: np.ndarray) -> np.ndarray:
        """Return which of some stored numbers are no values, bool."""
        return np.isin(values, self.missing) | (values < self.low) | (values > self.high)

    def blank(self) -> float | None:
        """Return a stored number that means no value; None where NaN alone does."""
        if self.missing or self.dtype.kind not in "iu" or not self.has_limits:
            return self.missing[0] if self.missing else None
        least = float(np.iinfo(self.dtype).min)
        return least if least < self.low else self.high + 1.0


def is_axis_of_light(values: np.ndarray) -> bool:
    """Return whether numbers (bands,) without unit can only be wavelengths in nm: ascending, of sunlight, no count."""
    steps = np.diff(values)
    return len(values) > 2 and bool(np.all(steps > 1)) and bool(SOLAR[0] <= values[0] and values[-1] <= SOLAR[1])


def text_of(value: Any) -> str:
    """Return an attribute as text; the first of an array."""
    if isinstance(value, np.ndarray | list | tuple):
        value = np.ravel(value)[0] if np.size(value) else ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def numbers_in(value: Any) -> np.ndarray | None:
    """Return the numbers of an attribute: a number, a list, or text with commas or spaces; None for anything else."""
    with contextlib.suppress(TypeError, ValueError):
        if value is None:
            return None
        if isinstance(value, bytes):
            value = value.decode()
        values = np.asarray(value.replace(",", " ").split() if isinstance(value, str) else value, float).ravel()
        return values if len(values) else None
    return None


def type_of_attribute(stored: np.dtype, attributes: Mapping[str, Any]) -> np.dtype:
    """Return the type that stored numbers are read as, in native byte order; ``_Unsigned`` changes whole numbers."""
    kind = {"true": "u", "false": "i"}.get(text_of(attributes.get("_Unsigned", "")).strip().lower())
    native = np.dtype(np.uint8) if stored.kind == "b" else np.dtype(stored).newbyteorder("=")
    return np.dtype(f"{kind}{native.itemsize}") if kind and native.kind in "iu" else native


def packing_of(
    attributes: Mapping[str, Any], stored: np.dtype, bands: int, source: Path | str, problems: list[str]
) -> Packing:
    """Return the conversion from an array's stored numbers to values; ``problems`` gets what is ignored."""
    dtype = type_of_attribute(stored, attributes)
    gain, offset = (
        of_each_band(attributes.get(name), bands, usual) for name, usual in (("scale_factor", 1.0), ("add_offset", 0.0))
    )
    if not (np.isfinite(gain).all() and gain.all() and np.isfinite(offset).all()):
        raise CubeError(
            f"{source}: the scale_factor of a band is 0, or it or add_offset is no finite number; give `scale`"
        )
    is_turned = dtype != np.dtype(stored).newbyteorder("=")
    missing: list[float] = []
    for name in [*CONVENTIONAL, *names_of_no_data(attributes)]:
        given = numbers_in(attributes.get(name))
        for number in () if given is None else given:
            own = as_stored(wrapped(number, dtype) if is_turned else float(number), dtype, source, problems)
            missing += [own] if own is not None and own not in missing else []
    low, high = limits_of(attributes, dtype, is_turned, gain, offset)
    if low > high:
        problems.append(f"{source}: its valid range is empty, and ignored")
        low, high = -np.inf, np.inf
    return Packing(dtype, tuple(missing), low, high, gain, offset)


def names_of_no_data(attributes: Mapping[str, Any]) -> list[str]:
    """Return the attributes that name a nodata value outside the conventions, in any spelling: NoData, FillValue."""
    return [name for name in attributes if name not in CONVENTIONAL and NO_DATA.fullmatch(str(name))]


def of_each_band(value: Any, bands: int, usual: float) -> np.ndarray:
    """Return an attribute as a number for each of the bands; NaN where it is no number, or too few or too many."""
    values = np.array([usual]) if value is None else numbers_in(value)
    return np.full(bands, np.nan) if values is None or len(values) not in (1, bands) else np.broadcast_to(values, bands)


def wrapped(number: float, dtype: np.dtype) -> float:
    """Return a number of a type of the other sign as one of ``dtype``: −1 is 65535 in uint16."""
    span, info = 2.0 ** (8 * dtype.itemsize), np.iinfo(dtype)
    for turned in (number, number + span, number - span):
        if info.min <= turned <= info.max:
            return float(turned)
    return float(number)


def limits_of(
    attributes: Mapping[str, Any], dtype: np.dtype, is_turned: bool, gain: np.ndarray, offset: np.ndarray
) -> tuple[float, float]:
    """Return the least and the largest valid stored number, by ``valid_range``, or ``valid_min`` and ``valid_max``."""
    said = [attributes.get("valid_min"), attributes.get("valid_max")]
    pair = numbers_in(attributes.get("valid_range"))
    if pair is not None and len(pair) == 2:
        is_real = holds_real(attributes["valid_range"])
        ends = [float(pair[0]), float(pair[1])]
    else:
        is_real = any(holds_real(one) for one in said)
        found = [numbers_in(one) for one in said]
        ends = [-np.inf if found[0] is None else float(found[0][0]), np.inf if found[1] is None else float(found[1][0])]
    ends = [usual if np.isnan(end) else end for end, usual in zip(ends, (-np.inf, np.inf))]
    is_scaled = bool(np.any(gain != 1.0) or np.any(offset != 0.0))
    # By NetCDF's rules, real limits of whole stored numbers are in the unit of scaled values.
    if is_real and is_scaled and dtype.kind in "iu":
        if np.ptp(gain) or np.ptp(offset):  # each band would have limits of its own
            return -np.inf, np.inf
        low, high = sorted((end - offset[0]) / gain[0] for end in ends)
        return float(np.ceil(low - MOST_ROUNDING)), float(np.floor(high + MOST_ROUNDING))
    if is_turned:
        ends = [wrapped(end, dtype) if np.isfinite(end) else end for end in ends]
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            ends = [float(dtype.type(end)) for end in ends]
    return ends[0], ends[1]


def holds_real(value: Any) -> bool:
    """Return whether an attribute has numbers of a real type."""
    return value is not None and not isinstance(value, str | bytes) and np.asarray(value).dtype.kind == "f"


def set_values(cube: Cube, variables: Sequence[Variable], bands: Sequence[int]) -> None:
    """Set nodata, gain, offset and screen of a cube from its arrays' attributes; ``bands`` counts bands by array."""
    every = []
    for variable, count in zip(variables, bands):
        every.append(packing_of(variable.attributes, variable.dtype, count, cube.path, cube.problems))
        if every[-1].dtype != cube.dtype:
            raise CubeError(f"{cube.path}: some of its bands are unsigned (_Unsigned), others not; store them alike")
    gain, offset = (np.concatenate([getattr(one, name) for one in every]) for name in ("gain", "offset"))
    if np.any(gain != 1.0) or np.any(offset):
        cube.gain, cube.offset = gain, offset
    how = every[0]
    if len({(one.missing, one.low, one.high) for one in every}) > 1:
        cube.problems.append(
            f"{cube.path}: its bands have several values of no data, and none is used; give one with `nodata`"
        )
        return
    cube.nodata = how.blank()
    if how.has_limits:
        cube.problems.append(
            f"{cube.path}: values beyond its valid range, {how.low:g} to {how.high:g} as stored, count as missing "
            "without `nodata`"
        )
    if how.has_limits or len(how.missing) > 1:
        cube.screen = Screen(how.misses, float("nan") if cube.nodata is None else cube.nodata)


def roles(shape: Sequence[int], names: Sequence[str], attributes: Mapping[str, Any]) -> str:
    """Return the role of each axis by its name: y, x, b, or 1 for length 1; empty where these are not clear."""
    if len(names) != len(shape):
        return ""
    # GeoZarr's `spatial:dimensions` goes first. An axis of several times is never the axis of bands.
    spatial = attributes.get("spatial:dimensions")
    is_pair = isinstance(spatial, list) and len(spatial) == 2
    named = {str(name): axis for axis, name in zip("yx", spatial)} if is_pair and spatial is not None else {}
    known = [
        named.get(name) or ("y" if name.lower() in LINES else "x" if name.lower() in SAMPLES else "") for name in names
    ]
    free = [k for k, axis in enumerate(known) if not axis]
    long = [k for k in free if shape[k] > 1] or [k for k in free if names[k].lower() not in TIMES][:1]
    if known.count("y") != 1 or known.count("x") != 1 or len(long) > 1 or any(names[k].lower() in TIMES for k in long):
        return ""
    return "".join(axis or ("b" if k in long else "1") for k, axis in enumerate(known))


class Beside:
    """The surroundings of the arrays of a cube: other arrays of their group, and attributes of all that they are in.

    Parameters
    ----------
    cube : Cube
    variables : sequence of Variable
        The arrays that hold its bands: one, or an array for each band.
    axes : str
        The role of each axis of the first of them; see `roles`.
    groups : sequence of mapping
        The attributes of the groups that they are in, from the root down.
    find : callable
        Returns the array of a name in their group, or None.

    Attributes
    ----------
    axes : dict
        The names of the cube's axes y, x and b.
    near, all : mapping
        The attributes of the array and its group, and those of all groups that they are in, too.
    """

    def __init__(
        self,
        cube: Cube,
        variables: Sequence[Variable],
        axes: str,
        groups: Sequence[Any],
        find: Callable[[str], Variable | None],
    ) -> None:
        self.cube, self.variables, self.find = cube, variables, find
        own: list[Any] = [variables[0].attributes]
        self.axes = {role: name for role, name in zip(axes, variables[0].dimensions) if role != "1"}
        self.near: Mapping[str, Any] = ChainMap(*own, *groups[-1:])
        self.all: Mapping[str, Any] = ChainMap(*own, *reversed(groups))

    def array(self, name: str) -> Variable | None:
        """Return an array of the group, or None."""
        with contextlib.suppress(Exception):  # a damaged neighbour is no fault of the cube's
            return self.find(name) if name else None
        return None

    def numbers(self, name: str) -> tuple[np.ndarray | None, str]:
        """Return the numbers (bands,) of an array or attribute, and its unit; None for another size or kind."""
        bands = self.cube.bands
        if len(self.variables) > 1:
            # Bands that are arrays are ordered only by their names, so each array's own attribute counts alone.
            each = [numbers_in(one.attributes.get(name)) for one in self.variables]
            is_known = all(one is not None and len(one) == 1 for one in each)
            return (np.array([one[0] for one in each if one is not None]) if is_known else None), ""
        array = self.array(name)
        values = numbers_in(self.near.get(name))
        if array is not None:
            values = None
            with contextlib.suppress(Exception):  # a damaged neighbour
                values = array.numbers(bands)
        if values is None or len(values) != bands or not np.isfinite(values).all():
            return None, ""
        return values, "" if array is None else array.unit

    def spectral(self) -> tuple[np.ndarray | None, np.ndarray | None, str]:
        """Return wavelengths and FWHM as stored, and their unit; None where there are none."""
        fwhm, own = next((one for name in WIDTHS if (one := self.numbers(name))[0] is not None), (None, ""))
        for name in (self.axes.get("b", ""), *WAVELENGTHS):
            values, unit = self.numbers(name)
            is_known = unit_in(unit) in {*TO_NANOMETRES, *RECIPROCAL}
            counts = (
                values is not None and np.array_equal(np.diff(values), np.ones(len(values) - 1)) and values[0] in (0, 1)
            )
            # Coordinates of bands, as xarray writes them, within the range of sunlight.
            is_own = name == self.axes.get("b") and values is not None and is_axis_of_light(values)
            if values is not None and (is_known or is_own or (name in WAVELENGTHS and not counts)):
                factors = [TO_NANOMETRES.get(unit_in(one)) for one in (own, unit)]
                if fwhm is not None and factors[0] and factors[1]:  # each may have a unit of its own
                    fwhm = fwhm * (factors[0] / factors[1])
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
        """Return the names of the bands: from an array, an attribute, or the names of the arrays that are bands."""
        if len(self.variables) > 1:
            return [one.name.rpartition("/")[2] for one in self.variables]
        for name in (self.axes.get("b", ""), *NAMES):
            array = self.array(name)
            if array is not None and array.shape == (self.cube.bands,) and getattr(array.dtype, "kind", "T") in "TUSO":
                with contextlib.suppress(Exception):  # a damaged neighbour
                    return [text_of(one) for one in np.asarray(array.load()).tolist()]
        said = self.near.get("band_names")
        if isinstance(said, list | np.ndarray) and len(said) == self.cube.bands:
            return [text_of(one) for one in said]
        with contextlib.suppress(TypeError, KeyError, AttributeError):  # OME-Zarr's channels
            shown = self.near.get("omero") or self.near["ome"]["omero"]
            return [str(channel["label"]) for channel in shown["channels"]]
        return []
