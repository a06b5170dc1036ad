"""ENVI header text: ``key = value`` lines, values in braces over many lines, as they are in the wild.

Our own reader, because `spectral` 0.25 splits the commas of a WKT, fails on a Latin-1 µ and wants a byte order; tested
against it on every header that it can read.
"""

import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ...errors import CubeError

LONGEST_HEADER = 64 * 2**20
# No spectrometer has more (IASI has 8461); another axis was taken for theirs.
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
    "µm": 1000.0,
    "μm": 1000.0,
    "angstroms": 0.1,
    "millimeters": 1e6,
    "centimeters": 1e7,
    "meters": 1e9,
}
# Units of what is no length, but has one: the wavelength in nm is this over the value (1 cm is 1e7 nm; c is 299 792 458 m/s).
OVER = {
    "wavenumber": 1e7,
    "wavenumbers": 1e7,
    "cm-1": 1e7,
    "cm^-1": 1e7,
    "1/cm": 1e7,
    "ghz": 299792458.0,
    "mhz": 299792458e3,
}

# Where wavelengths (nm) of imaging spectrometers lie: names that say others speak of something else.
PLAUSIBLE = (200.0, 20000.0)
# So many of the bands have a wavelength of their own; where spectrometers overlap two may share one (seen: EnMAP's 986 nm).
DISTINCT = 0.9
IN_A_NAME = re.compile(
    r"(?<![\w.])(\d+\.?\d*|\.\d+)\s*(" + "|".join(map(re.escape, sorted(TO_NANOMETRES, key=len, reverse=True))) + r")(?!\w)",
    re.IGNORECASE,
)  # fmt: skip


def read_header(path: Path) -> dict[str, str]:
    """Read an ENVI header.

    Parameters
    ----------
    path : Path
        The .hdr file.

    Returns
    -------
    dict of str
        Raw values by lower-case key; a value in braces keeps its inner text, line breaks and all, without the braces.

    Raises
    ------
    CubeError
        Where the file cannot be read, is no ENVI header, or has a brace without an end.
    """
    raw = read_small(path)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")  # any byte; a lone 0xB5 is µ
    return parse(text, path)


def read_small(path: Path, longest: int = LONGEST_HEADER) -> bytes:
    """The bytes of a header or table; `CubeError` where it is no regular file, too large, or cannot be read."""
    try:
        if not path.is_file():  # a pipe would wait for ever, a device never end
            raise CubeError(f"{path}: {'is not a regular file' if path.exists() else 'no such file'}")
        with open(path, "rb") as file:
            raw = file.read(min(os.fstat(file.fileno()).st_size, longest) + 1)  # it is allocated at once
    except OSError as error:
        raise CubeError(f"{path}: cannot be read: {error.strerror}") from None
    if len(raw) > longest:
        raise CubeError(f"{path}: is larger than {longest >> 20} MiB; it cannot be a header or a table of spectra")
    return raw


def parse(text: str, path: Path) -> dict[str, str]:
    """Parse header text; ``path`` is for messages. See `read_header`."""
    lines = text.splitlines()
    if not lines or lines[0].strip().upper() != "ENVI":
        keys = {line.split()[0].lower() for line in lines if line.split()}
        if keys & {"nrows", "nbits", "byteorder", "ulxmap"}:
            raise CubeError(f"{path}: this is an ESRI header, not ENVI's; convert with gdal_translate -of ENVI")
        raise CubeError(f"{path}: not an ENVI header (its first line is not ENVI)")
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


def whole(fields: Mapping[str, str], key: str, path: Path, default: int | None = None) -> int:
    """An integer field; `CubeError` where it is missing without a default, or no integer."""
    if key not in fields:
        if default is None:
            raise CubeError(f"{path}: the header has no '{key}'")
        return default
    try:
        return int(fields[key].split()[0])
    except (ValueError, IndexError):
        raise CubeError(f"{path}: '{key} = {fields[key][:40]}' is not a whole number") from None


def words(fields: Mapping[str, str], key: str) -> list[str] | None:
    """A list of names, or None where the field is absent or empty."""
    if not fields.get(key, "").strip():
        return None
    return [" ".join(word.split()) for word in fields[key].strip().rstrip(",").split(",")]


def numbers(fields: Mapping[str, str], key: str, count: int, path: Path) -> np.ndarray | None:
    """A list of ``count`` numbers as float64, or None where absent; `CubeError` for other counts or no numbers."""
    texts = words(fields, key)
    if texts is None:
        return None
    try:
        values = np.array([float(text) for text in texts])
    except ValueError as error:
        raise CubeError(f"{path}: '{key}' holds something that is no number: {error}") from None
    if len(values) != count:
        raise CubeError(f"{path}: '{key}' has {len(values)} entries for {count} bands")
    return values


def number(fields: Mapping[str, str], key: str, path: Path) -> float | None:
    """One number, or None where absent or empty."""
    text = fields.get(key, "").strip()
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise CubeError(f"{path}: '{key} = {text[:40]}' is not a number") from None


def nanometres(values: np.ndarray | None, units: str) -> np.ndarray | None:
    """Wavelengths in nm; without a known unit, values that are all below 25 are taken for micrometres."""
    if values is None:
        return None
    factor = TO_NANOMETRES.get(units.strip().lower())
    if factor is None:
        factor = 1000.0 if np.all(values < 25.0) else 1.0
    return values * factor


def axis_in_nanometres(
    waves: np.ndarray | None, fwhm: np.ndarray | None, units: str, source: Path, problems: list[str]
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Wavelengths and FWHM in nm, checked; what is left out is added to ``problems``.

    Wavenumbers and frequencies become wavelengths, which descend then; an index is no wavelength. Without a known unit FWHM go with
    the wavelengths: they are always below 25.

    Raises
    ------
    CubeError
        Where a wavelength is not finite.
    """
    if waves is not None and not np.all(np.isfinite(waves)):
        raise CubeError(f"{source}: a wavelength is not finite")
    said, units = units.strip(), units.strip().lower()
    if waves is not None and is_no_axis(waves, units):
        problems.append(f"{source}: its wavelengths are in '{said}', which is no unit; they are left out of account")
        return None, None
    if units in OVER:
        return from_reciprocals(waves, fwhm, units, source, problems)
    if units not in TO_NANOMETRES:
        if units not in ("", "unknown") and waves is not None:
            problems.append(
                f"{source}: the unit of its wavelengths, '{said[:40]}', is not known; nm or µm is guessed by their size"
            )
        units = "nm" if waves is None or np.any(waves >= 25.0) else "um"
    if fwhm is not None and not np.all(np.isfinite(fwhm) & (fwhm > 0)):
        problems.append(f"{source}: an fwhm is not above 0; all are left out of account")
        fwhm = None
    return nanometres(waves, units), nanometres(fwhm, units)


def is_no_axis(values: np.ndarray, units: str) -> bool:
    """Whether ENVI calls an axis none of wavelengths: an index, or a unit that is unknown.

    Of the latter real scenes have wavelengths in µm (HySU): values below 25 that do not just count are taken for these, no others.
    """
    counts = np.array_equal(values, np.arange(1, len(values) + 1)) or np.array_equal(values, np.arange(len(values)))
    return units == "index" or (units == "unknown" and (counts or bool(np.any(values >= 25.0))))


def from_reciprocals(
    values: np.ndarray | None, widths: np.ndarray | None, units: str, source: Path, problems: list[str]
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Wavelengths and FWHM in nm of wavenumbers or frequencies: ``λ = k / x``, and a small width of x is ``k / x²`` times it of λ."""
    if values is None:
        return None, None
    if not np.all(values > 0):
        problems.append(f"{source}: a {units} is not above 0; wavelengths are left out of account")
        return None, None
    waves = OVER[units] / values
    if widths is not None and not np.all(np.isfinite(widths) & (widths > 0)):
        problems.append(f"{source}: an fwhm is not above 0; all are left out of account")
        widths = None
    return waves, None if widths is None else widths * waves / values


def axis_in_names(fields: Mapping[str, str], bands: int) -> np.ndarray | None:
    """Return the wavelengths (nm) that a header's band names hold, ``Band 12 (0.4567 Micrometers)`` or ``450.3 nm``.

    None unless every band has just one, all are plausible, and hardly any two are the same.
    """
    names = words(fields, "band names")
    if names is None or len(names) != bands:
        return None
    found = [IN_A_NAME.findall(name) for name in names]
    if any(len(each) != 1 for each in found):
        return None
    waves = np.array([float(value) * TO_NANOMETRES[unit.lower()] for ((value, unit),) in found])
    plausible = (
        np.all((waves >= PLAUSIBLE[0]) & (waves <= PLAUSIBLE[1])) and len(set(waves.tolist())) >= DISTINCT * bands
    )
    return waves if plausible else None


def format_header(fields: Mapping[str, str | int | Sequence[str]]) -> str:
    """Header text; sequences, and strings that have always had braces or need them, go in braces."""
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
    """A name that survives an ENVI list, and every other format: no commas, braces, line breaks or control characters."""
    words = " ".join(name.translate(str.maketrans(",{}", ";()")).split())
    return "".join(char for char in words if char.isprintable())


def geotransform(map_info: str) -> tuple[float, float, float, float, float, float] | None:
    """GDAL's six numbers of an ENVI map info: ``x = [0] + [1] sample + [2] line``, ``y = [3] + [4] sample + [5] line``.

    None where it is no map info. A rotation is in degrees; the tie point's pixel is counted along the map's axes, which is how GDAL
    reads it.
    """
    entries = map_info.split(",")
    numbers = [leading_number(word) for word in entries[1:7]]
    if len(numbers) < 6 or None in numbers:
        return None
    sample, line, east, north, across, down = (number for number in numbers if number is not None)
    turned = [leading_number(word.partition("=")[2]) for word in entries if word.strip().lower().startswith("rotation")]
    angle = math.radians((turned[0] if turned else 0.0) or 0.0)
    cos, sin = (math.cos(angle), math.sin(angle)) if angle else (1.0, 0.0)
    west, top = east - across * (sample - 1), north + down * (line - 1)
    return west, across * cos, across * sin + 0.0, top, down * sin + 0.0, -down * cos


def leading_number(text: str) -> float | None:
    """The number that a text begins with, as C's ``atof`` finds it; None where there is none."""
    match = re.match(r"\s*([-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?)", text, re.ASCII)
    return float(match[1]) if match else None
