"""Read and write ENVI header text: ``key = value`` lines, with values in braces that may span lines.

This is our own reader because `spectral` 0.25 splits a WKT at its commas, fails on a Latin-1 µ and requires a byte
order; the two are compared in the tests on every header that `spectral` can read.
"""

import logging
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import CubeError
from ..opening import read_small
from ..text import decoded

log = logging.getLogger("unmix")
# No spectrometer has more bands (IASI has 8461); where there are more, another axis was taken for the bands.
MOST_BANDS = 16384
BRACED = ("description", "map info", "projection info", "coordinate system string")
TO_NANOMETRES = {
    "nanometers": 1.0,
    "nanometer": 1.0,
    "nm": 1.0,
    "micrometers": 1000.0,
    "micrometer": 1000.0,
    "microns": 1000.0,
    "um": 1000.0,
    "micron": 1000.0,
    "micrometres": 1000.0,
    "micrometre": 1000.0,
    "nanometres": 1.0,
    "nanometre": 1.0,
    "angstrom": 0.1,
    "µm": 1000.0,
    "μm": 1000.0,
    "angstroms": 0.1,
    "millimeters": 1e6,
    "centimeters": 1e7,
    "meters": 1e9,
}
# Other units by short names, which mean something else in names of bands.
SHORT_UNITS = {
    "m": "meters",
    "metre": "meters",
    "meter": "meters",
    "cm": "centimeters",
    "mm": "millimeters",
    "å": "angstroms",
}
# Units of wavenumbers and frequencies: the wavelength in nm is this number over the value (1 cm is 1e7 nm; c is 299 792
# 458 m/s).
RECIPROCAL = {
    "wavenumber": 1e7,
    "wavenumbers": 1e7,
    "cm-1": 1e7,
    "cm^-1": 1e7,
    "cm**-1": 1e7,
    "cm -1": 1e7,
    "per centimeter": 1e7,
    "1/cm": 1e7,
    "ghz": 299792458.0,
    "mhz": 299792458e3,
    "thz": 299792.458,
    "ev": 1239.8419843320026,
    "kev": 1.2398419843320026,
    "electron volts": 1239.8419843320026,
}

# No spectrometer begins below this wavelength, in nm; where the unit is not known, a lesser number is one of µm.
SHORTEST = 100.0
# Above this, in µm, are no wavelengths of most spectrometers.
LONGEST_OF_UM = 25.0
# Below this, in µm, neither.
SHORTEST_OF_UM = 0.01
# Above this, in µm, are none at all: numbers of two units stand in one axis, or the unit is another.
LONGEST = 300.0
# Whole numbers in steps of one that begin below this count the bands, where they have no unit.
LONGEST_COUNT = 200
# Range of the wavelengths (nm) of imaging spectrometers: band names with numbers outside it mean something else.
PLAUSIBLE = (200.0, 20000.0)
# Least fraction of bands with distinct wavelengths; where spectrometers overlap two bands may share one (seen: EnMAP's
# 986 nm).
LEAST_DISTINCT = 0.9
# Names of bands that end in their wavelengths, as Wyvern's and ACOLITE's: at least so many, with one word before them,
# all within the range (nm) of sunlight.
BAND_OF_WAVELENGTH, FEWEST_NAMED = (
    re.compile(r"([a-z]+)(?:\d+[_ ]|[_ ]?)(\d{3,4}(?:\.\d+)?)(?: ?nm)?", re.IGNORECASE),
    5,
)
SOLAR = 350.0, 2600.0
WAVELENGTH_IN_NAME = re.compile(
    r"(?<![\w.])(\d+\.?\d*|\.\d+)\s*("
    + "|".join(map(re.escape, sorted(TO_NANOMETRES, key=len, reverse=True)))
    + r")(?!\w)",
    re.IGNORECASE,
)


def read_header(path: Path) -> dict[str, str]:
    """Return the raw values of an ENVI header by lower-case key, values in braces with their line breaks."""
    return parse(decoded(read_small(path)), path)


def parse(text: str, path: Path) -> dict[str, str]:
    """Parse header text; ``path`` is for messages. See `read_header`."""
    lines = text.splitlines()
    if not lines or lines[0].strip().upper() != "ENVI":
        keys = {line.split()[0].lower() for line in lines if line.split()}
        if keys & {"nrows", "nbits", "byteorder", "ulxmap"}:
            raise CubeError(f"{path}: is an ESRI header, not an ENVI header; convert it with gdal_translate -of ENVI")
        raise CubeError(f"{path}: is not an ENVI header: its first line is not ENVI")
    fields: dict[str, str] = {}
    numbered = iter(enumerate(lines[1:], 2))
    for number, line in numbered:
        if "=" not in line or line.lstrip().startswith(";"):
            continue
        key, value = line.split("=", 1)
        value = value.strip()
        if value.startswith("{"):
            parts = [value[1:]]
            while "}" not in parts[-1]:
                step = next(numbered, None)
                if step is None:
                    raise CubeError(f"{path}: the brace of '{key.strip()}' on line {number} is never closed")
                parts.append(step[1])
            value = "\n".join(parts)
            value = value[: value.rindex("}")]
        fields[" ".join(key.lower().split())] = value
    return fields


def says_tiff(fields: Mapping[str, str]) -> bool:
    """Return whether a header says that its data is a TIFF."""
    return "tif" in fields.get("file type", "").lower() + fields.get("interleave", "").lower()


def whole(fields: Mapping[str, str], key: str, path: Path, default: int | None = None) -> int:
    """Return an integer field; raise `CubeError` where it is missing without a default, or no integer."""
    if key not in fields:
        if default is None:
            raise CubeError(f"{path}: the header has no '{key}'")
        return default
    try:
        return int(fields[key].split()[0])
    except (ValueError, IndexError):
        raise CubeError(f"{path}: '{key} = {fields[key][:40]}' is not a whole number") from None


def sizes_in(fields: Mapping[str, str], header: Path) -> list[int]:
    """Return lines, samples and bands of a header."""
    return [whole(fields, key, header) for key in ("lines", "samples", "bands")]


def words(fields: Mapping[str, str], key: str) -> list[str] | None:
    """Return a field as a list of names, or None where it is absent or empty."""
    if not fields.get(key, "").strip():
        return None
    return [" ".join(word.split()) for word in fields[key].strip().rstrip(",").split(",")]


def numbers(fields: Mapping[str, str], key: str, count: int, path: Path) -> np.ndarray | None:
    """Return a field as ``count`` float64 numbers, None where it is absent; raise `CubeError` for another count."""
    texts = words(fields, key)
    if texts is None:
        return None
    try:
        values = np.array([float(text) for text in texts])
    except ValueError as error:
        why = "numbers with decimal commas: write points" if ";" in fields[key] else f"what is no number: {error}"
        raise CubeError(f"{path}: '{key}' holds {why}") from None
    if len(values) != count:
        raise CubeError(f"{path}: '{key}' has {len(values)} entries for {count} bands")
    return values


def number(fields: Mapping[str, str], key: str, path: Path) -> float | None:
    """Return a field as one number, or None where it is absent or empty; raise `CubeError` where it is no number."""
    text = fields.get(key, "").strip()
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise CubeError(f"{path}: '{key} = {text[:40]}' is not a number") from None


def nanometres(values: np.ndarray | None, units: str) -> np.ndarray | None:
    """Return wavelengths in nm; without a known unit they are micrometres if the least is below `SHORTEST`."""
    if values is None:
        return None
    factor = TO_NANOMETRES.get(unit_in(units))
    with np.errstate(over="ignore"):  # refused where the values are used, as not finite
        return values * (TO_NANOMETRES[guessed(values)] if factor is None else factor)


def guessed(values: np.ndarray) -> str:
    """Return the unit of wavelengths, nm or um, by the least that is above 0."""
    return "um" if 0 < np.min(values, where=values > 0, initial=np.inf) < SHORTEST else "nm"


def unit_in(text: str) -> str:
    """Return the unit in a text, alone or in brackets as in ``Wavelength (nm)``; else the text in lower case."""
    plain = " ".join(
        text.lower().replace("\N{SUPERSCRIPT MINUS}\N{SUPERSCRIPT ONE}", "-1").replace("\N{MINUS SIGN}", "-").split()
    )
    parts = [plain, *re.findall(r"[(\[]\s*([^)\]]*?)\s*[)\]]", plain), re.sub(r"\s*[(\[].*", "", plain)]
    parts = [SHORT_UNITS.get(one, one) for one in parts]
    # A Raman shift is no wavelength: it counts from the wavelength of a laser, which is not given.
    is_shift = "raman" in plain or "shift" in plain
    return next((one for one in parts if one in TO_NANOMETRES or one in RECIPROCAL), plain) if not is_shift else plain


def unit_of_heading(text: str) -> str:
    """Return the unit that the heading of a column of wavelengths names, "index" for a count, "" for neither."""
    unit = unit_in(text)
    if unit in TO_NANOMETRES or unit in RECIPROCAL or "raman" in unit or "shift" in unit:
        return unit
    words = [word for word in re.split(r"[\s_()\[\],;:.]+|(?<!1)/", unit) if word]
    starts = {"nanom": "nm", "microm": "um", "micron": "um", "angstr": "angstrom", "wavenum": "wavenumber"}
    found = [next((full for start, full in starts.items() if word.startswith(start)), word) for word in words]
    known = next((word for word in found if word in TO_NANOMETRES or word in RECIPROCAL), "")
    is_count = {"band", "bands", "index", "channel", "channels"} & set(words) and not any("wave" in w for w in words)
    return known or ("index" if is_count else "")


def axis_in_nanometres(
    waves: np.ndarray | None, fwhm: np.ndarray | None, units: str, source: Path, problems: list[str]
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return checked wavelengths and FWHM in nm; ``problems`` gets what is ignored."""
    if waves is not None and not np.all(np.isfinite(waves)):
        raise CubeError(f"{source}: a wavelength is not finite")
    written, units = units.strip(), unit_in(units)
    if waves is not None and is_no_axis(waves, units):
        what = f"are in '{written[:40]}', which is no unit of wavelengths" if written else "only count its bands"
        problems.append(f"{source}: its wavelengths {what}; they are ignored")
        return None, None
    if waves is not None and (fault := fault_of_unit(waves, units)):
        problems.append(f"{source}: its wavelengths {fault}; they are ignored")
        return None, None
    is_reciprocal = units in RECIPROCAL
    if is_reciprocal and (waves is None or not np.all(waves > 0)):
        if waves is not None:
            problems.append(f"{source}: a {units} is not above 0; its wavelengths are ignored")
        return None, None
    if units not in TO_NANOMETRES and not is_reciprocal:
        # FWHM take the unit of the wavelengths too, because their own values are always small.
        unit = "nm" if waves is None else guessed(waves)
        if waves is not None and units not in ("", "unknown"):
            problems.append(
                f"{source}: the unit of its wavelengths, '{written[:40]}', is not known; by their size they are taken "
                f"for {unit}"
            )
        elif waves is not None and (units or np.any(waves >= LONGEST_OF_UM) == (unit == "um")):
            log.info(f"{source}: its wavelengths have no unit; by the least of them they are taken for {unit}")
        units = unit
    if fwhm is not None and not np.all(np.isfinite(fwhm) & (fwhm > 0)):
        problems.append(
            f"{source}: an fwhm is missing, or not above 0; all are ignored, and the spacing of bands is taken"
        )
        fwhm = None
    if waves is None or not is_reciprocal:
        return nanometres(waves, units), nanometres(fwhm, units)
    waves, x = RECIPROCAL[units] / waves, waves  # λ = k / x: a small width is multiplied by k / x²
    return waves, None if fwhm is None else fwhm * waves / x


def is_no_axis(values: np.ndarray, units: str) -> bool:
    """Return whether values are no wavelengths: the unit is "index" or a Raman shift, or unitless values only count."""
    # Real scenes with the unit "unknown" have wavelengths all the same, in µm (HySU) or nm.
    steps, whole = np.diff(values), bool(np.all(np.mod(values, 1) == 0)) and np.min(values, initial=0) >= 0
    counts = whole and bool(np.all(np.abs(steps) == 1)) and np.min(values, initial=np.inf) < LONGEST_COUNT
    # Every tenth band, say, or from 0 on: no wavelengths of µm are whole and evenly spaced.
    counts |= (
        whole
        and len(steps) > 2
        and bool(np.all(steps == steps[0]) and steps[0] != 0)
        and np.min(values) < LONGEST_OF_UM
    )
    is_shift = "raman" in units or "shift" in units
    return units == "index" or is_shift or (units in ("", "unknown") and counts and len(values) > 1)


def fault_of_unit(values: np.ndarray, units: str) -> str | None:
    """Return why numbers cannot all be wavelengths in a unit ("" or "unknown": nm or µm by size), or None."""
    low, high = np.min(values, where=values > 0, initial=np.inf), np.max(values, initial=0.0)
    if units in ("", "unknown") and guessed(values) == "um" and high > LONGEST:
        return f"reach from {low:g} to {high:g}, as if some were in µm and others in nm: write all in one unit"
    if units in ("", "unknown") and 0 < high < SHORTEST_OF_UM:
        return f"have no unit and reach to {high:g}, too little for µm: write their unit, such as m"
    if units in ("", "unknown") and high > LONGEST_OF_UM * 1000:
        return f"have no unit and reach to {high:g}, too much for nm: write their unit, such as cm-1"
    return None


def axis_in_names(fields: Mapping[str, str], bands: int) -> np.ndarray | None:
    """Return the wavelengths (nm) in names like ``Band 12 (0.4567 Micrometers)`` or ``Band_503``; None if unclear."""
    names = words(fields, "band names")
    if names is None or len(names) != bands:
        return None
    plain = [BAND_OF_WAVELENGTH.fullmatch(name) for name in names]
    if bands >= FEWEST_NAMED and all(plain) and len({one[1] for one in plain if one}) == 1:
        waves = np.array([float(one[2]) for one in plain if one])
        is_spread = bool(np.all(np.diff(waves) > 1)) and SOLAR[0] <= waves.min() and waves.max() <= SOLAR[1]
        return waves if is_spread else None
    matches = [WAVELENGTH_IN_NAME.findall(name) for name in names]
    if any(len(each) != 1 for each in matches):
        return None
    waves = np.array([float(value) * TO_NANOMETRES[unit.lower()] for ((value, unit),) in matches])
    plausible = (
        np.all((waves >= PLAUSIBLE[0]) & (waves <= PLAUSIBLE[1])) and len(set(waves.tolist())) >= LEAST_DISTINCT * bands
    )
    return waves if plausible else None


def axis_fields(waves: np.ndarray | None, fwhm: np.ndarray | None = None) -> dict[str, Any]:
    """Return the header fields of wavelengths and FWHM in nm, as far as they are known, without loss of digits."""
    units = {} if waves is None else {"wavelength units": "Nanometers"}
    axes = {"wavelength": waves, "fwhm": fwhm}
    return units | {key: [repr(float(value)) for value in axis] for key, axis in axes.items() if axis is not None}


def image_header(
    lines: int,
    samples: int,
    bands: int,
    code: int,
    description: str,
    fields: Mapping[str, Any],
    interleave: str = "bil",
    big_endian: bool = False,
) -> str:
    """Return the header of an image of ENVI data type ``code`` without offset; ``fields`` add to it or replace."""
    return format_header(
        {
            "description": description,
            "samples": samples,
            "lines": lines,
            "bands": bands,
            "header offset": 0,
            "file type": "ENVI Standard",
            "data type": code,
            "interleave": interleave,
            "byte order": int(big_endian),
            **fields,
        }
    )


# In names, signs that an ENVI list gives a meaning become others.
IN_NAMES = str.maketrans(",{}", ";()")


def format_header(fields: Mapping[str, str | int | Sequence[str]]) -> str:
    """Return header text; sequences, the keys in BRACED, and strings with commas or line breaks are put in braces."""
    lines = ["ENVI"]
    for key, value in fields.items():
        if isinstance(value, int):
            lines.append(f"{key} = {value}")
        elif not isinstance(value, str):
            lines.append(f"{key} = {{{', '.join(clean(item) for item in value)}}}")
        elif key in BRACED or set(value) & set(",\n"):
            lines.append(f"{key} = {{{value}}}")
        else:
            lines.append(f"{key} = {value}")
    return "\n".join(lines) + "\n"


def clean(name: str) -> str:
    """Return a name that is safe in all formats: no commas, braces, line breaks or control characters."""
    words = " ".join(name.translate(IN_NAMES).split())
    return words if words.isprintable() else "".join(char for char in words if char.isprintable())


def geotransform(map_info: str) -> tuple[float, float, float, float, float, float] | None:
    """Return (a … f) of an ENVI map info, x = a + b sample + c line, y = d + e sample + f line; None if unclear."""
    entries = map_info.split(",")
    numbers = [leading_number(word) for word in entries[1:7]]
    if len(numbers) < 6 or None in numbers:
        return None
    sample, line, east, north, across, down = (number for number in numbers if number is not None)
    turns = [leading_number(word.partition("=")[2]) for word in entries if word.strip().lower().startswith("rotation")]
    # A rotation is in degrees; as in GDAL, the tie point's pixel is counted along the map's axes.
    angle = math.radians((turns[0] if turns else 0.0) or 0.0)
    cos, sin = (math.cos(angle), math.sin(angle)) if angle else (1.0, 0.0)
    west, top = east - across * (sample - 1), north + down * (line - 1)
    if abs(angle) == math.pi:  # so GDAL writes lines that go north, and reads it: samples go east all the same
        return west, across, 0.0, top, 0.0, down
    return west, across * cos, across * sin + 0.0, top, down * sin + 0.0, -down * cos


def centres_of(
    transform: tuple[float, float, float, float, float, float], lines: int, samples: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the coordinates of pixel centres down (lines,) and across (samples,); None for a rotated map."""
    west, across, row_turn, north, column_turn, down = transform
    if row_turn != 0 or column_turn != 0:
        return None
    return north + down * (np.arange(lines) + 0.5), west + across * (np.arange(samples) + 0.5)


def leading_number(text: str) -> float | None:
    """Return the number at the start of a text, as C's ``atof`` reads it; None where there is none."""
    match = re.match(r"\s*([-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?)", text, re.ASCII)
    return float(match[1]) if match else None
