"""Read other programs' libraries: text of USGS, ECOSTRESS and ENVI plots, ENVI spectral libraries.

A file of text has one spectrum, or is a plot exported by ENVI with several. USGS splib07 has files of values alone; the
wavelengths of each spectrometer are in a file of their own. An ENVI library is a header, and a data file with one
spectrum in each line.
"""

import itertools
import logging
import re
from pathlib import Path

import numpy as np

from ..errors import CubeError, LibraryError
from ..io import DTYPES, as_stored, decoded, files_named, header_beside, list_rows, open_plain, read_small, why_no_file
from ..io.fields import scaling
from ..io.formats.header import (
    TO_NANOMETRES,
    axis_in_nanometres,
    nanometres,
    number,
    numbers,
    read_header,
    unit_of_heading,
    whole,
    words,
)
from .spectra import DELETED, Endmembers, make, without_fill
from .table import axis_in_library, places_of

MOST_ROWS, LONGEST_LINE = 200_000, 100_000
# Bytes; 200 000 rows of a text file of spectra take no more.
LONGEST = 16 * 2**20


def columns_of(path: Path, lines: list[str], first: int) -> np.ndarray:
    """Return the numbers (rows, columns) from line ``first`` on; `LibraryError` if a line holds anything else."""
    rows = []
    if len(lines) > MOST_ROWS or max(map(len, lines[first:]), default=0) > LONGEST_LINE:
        raise LibraryError(
            f"{path}: is no text of spectra: it has {len(lines)} lines, or a line of more than {LONGEST_LINE} "
            "characters"
        )
    for row, cells in list_rows("\n".join(lines[first:]), path, LibraryError):
        try:
            rows.append([float(cell) for cell in cells])
        except ValueError:
            raise LibraryError(
                f"{path}: line {row + first}: '{' '.join(cells)[:40]}' is not a row of numbers"
            ) from None
    if not rows or len(rows[0]) < 2 or len({len(row) for row in rows}) != 1:
        raise LibraryError(f"{path}: no table of wavelengths and values after line {first}")
    return np.array(rows)


def load_usgs(path: Path, raw: bytes) -> Endmembers:
    """Load a USGS splib06 file: lines of text, one of them the title; then wavelength (µm), reflectance, deviation."""
    lines = decoded(raw).splitlines()
    dashes = next((i for i, line in enumerate(lines) if line.startswith("-----")), None)
    if dashes is None or len(lines) < dashes + 4:
        raise LibraryError(f"{path}: is not a complete file of the USGS library: its text ends before the data")
    title, title_words = lines[dashes + 1].strip(), lines[dashes + 1].split()
    table = columns_of(path, lines, dashes + 3)
    values = np.where(table[:, 1] < DELETED, np.nan, table[:, 1])
    return make([title], values[:, None], table[:, 0] * 1000, path, classes=[title_words[0] if title_words else ""])


def load_ecostress(path: Path, raw: bytes) -> Endmembers:
    """Load an ECOSTRESS or ASTER file: ``key: value`` lines, then wavelength and reflectance, often descending."""
    lines = decoded(raw).splitlines()
    fields: dict[str, str] = {}
    for line in lines:
        key, colon, value = line.partition(":")
        if colon:
            fields[key.strip().lower()] = value.strip()
    after = next((i for i, line in enumerate(lines) if line.lower().startswith("y units")), 0)
    first = next((i for i in range(after, len(lines)) if re.match(r"\s*[-+.\d]", lines[i])), len(lines))
    units, quantity = fields.get("x units", "").lower(), fields.get("y units", "").lower()
    unit = units.partition("(")[2].partition(")")[0].strip()
    if not (unit in TO_NANOMETRES or units in TO_NANOMETRES or (not unit and "wavelength" in units)):
        raise LibraryError(
            f"{path}: the unit of its axis is '{units[:60] or 'not given'}'; only wavelengths in nm or µm are read"
        )
    table = columns_of(path, lines, first)
    wavelengths = nanometres(table[:, 0], unit or units)
    assert wavelengths is not None
    values = np.where(table[:, 1] < DELETED, np.nan, table[:, 1]) / (100.0 if "percent" in quantity else 1.0)
    order = np.argsort(wavelengths, kind="stable")
    name = fields.get("name") or path.stem
    kind = fields.get("class") or fields.get("type") or ""
    return make([name], values[order, None], wavelengths[order], path, classes=[kind])


def load_plot(path: Path, raw: bytes) -> Endmembers:
    """Load a plot exported by ENVI: a line naming each column, wavelength first, then the table."""
    lines = decoded(raw).splitlines()
    heads = itertools.takewhile(lambda line: re.match(r"Column \d+:", line), lines[1:])
    names = [re.sub(r"~~\d+$", "", line.partition(":")[2].strip()) for line in heads]
    table = columns_of(path, lines, 1 + len(names))
    if len(names) != table.shape[1]:
        raise LibraryError(f"{path}: names {len(names)} columns, but its table has {table.shape[1]}")
    axis, _ = axis_in_library(table[:, 0], None, unit_of_heading(names[0]), path)
    return make(names[1:], table[:, 1:], axis, path)


# The first line of every file, from which the title is taken.
FIRST_LINE = re.compile(r"\s*s(?:plib)?07\w*\s+Record=\s*\d+:\s*(.*)")
# Names of files with wavelengths, whose first word is the spectrometer:
# splib07a_Wavelengths_ASD_0.35-2.5_microns_2151_ch.txt.
AXIS = re.compile(r"s(?:plib)?07\w*?_Wavelengths_([A-Za-z0-9]+).*\.txt", re.IGNORECASE)
# Files in the same folders that hold no spectra: wavelengths, widths of bands, errors.
NO_SPECTRUM = re.compile(r"wavelength|bandpass|bandwidth|errorbar|resolution", re.IGNORECASE)
# Bytes of the longest file, of some 4280 values; values of a file at most.
LONGEST_AXIS, MOST_VALUES = 2**20, 2**16


def is_splib07(path: Path, head: bytes) -> bool:
    """Return whether a file is text of splib07, by its first line."""
    return FIRST_LINE.match(head[:200].decode("latin-1")) is not None


def holds_spectrum(path: Path, head: bytes) -> bool:
    """Return whether a file of splib07 holds a spectrum, by its name and title."""
    found = FIRST_LINE.match(head[:200].decode("latin-1").splitlines()[0])
    return NO_SPECTRUM.search(path.name) is None and found is not None and NO_SPECTRUM.search(found[1]) is None


def values_of(path: Path, raw: bytes) -> tuple[str, np.ndarray]:
    """Return title and values of a file, NaN where they are deleted."""
    first, *lines = decoded(raw).splitlines()
    found = FIRST_LINE.match(first)
    try:
        if found is None or len(lines) > MOST_VALUES:
            raise ValueError
        values = np.array([float(line) for line in lines if line.strip()])
    except ValueError:
        raise LibraryError(
            f"{path}: is no complete file of USGS splib07: a title, and a value a line below it"
        ) from None
    return " ".join(found[1].split()), np.where(values < DELETED, np.nan, values)


def load_splib07(path: Path, raw: bytes) -> Endmembers:
    """Load a USGS splib07 spectrum; its wavelengths (µm) are in a file beside it or in the folder above."""
    title, values = values_of(path, raw)
    axis = axis_for(path, title, len(values))
    known = np.isfinite(axis)
    words = title.split()
    return make([title or path.stem], values[known, None], axis[known] * 1000, path, classes=words[:1] or [""])


def axis_for(path: Path, title: str, count: int) -> np.ndarray:
    """Return the wavelengths (count,) of a spectrum, µm; `LibraryError` where no file, or more than one, has them."""
    found: dict[bytes, np.ndarray] = {}
    words = [word.lower() for word in re.split(r"[\s_]+", f"{title} {path.stem}")]
    for file, spectrometer in axes_near(path):
        try:
            axis = values_of(file, read_small(file, LONGEST_AXIS))[1]
        except CubeError as error:
            raise LibraryError(str(error)) from None
        if len(axis) == count:
            is_named = any(word.startswith(spectrometer) for word in words)
            if is_named:
                return axis
            found[axis.tobytes()] = axis
    if len(found) == 1:
        return next(iter(found.values()))
    fault = "several files" if found else "no file"
    raise LibraryError(
        f"{path}: {fault} splib07…_Wavelengths_….txt beside it or in the folder above {'have' if found else 'has'} "
        f"{count} wavelengths"
    )


def axes_near(path: Path) -> list[tuple[Path, str]]:
    """Return the files of wavelengths in a file's folder and the one above, with their spectrometers in lower case."""
    folder = path.absolute().parent
    files = [file for place in (folder, folder.parent) for file in sorted(place.iterdir())]
    named = ((file, AXIS.fullmatch(file.name)) for file in files)
    return [(file, found[1].lower()) for file, found in named if found is not None and file.is_file()]


log = logging.getLogger("unmix")
MOST_LIBRARY_VALUES = 2**25
ENDINGS = ("", ".sli", ".lib", ".img", ".dat")


def data_of(path: Path, header: Path) -> Path:
    """Return the data file of a library, given its header and ``path``, which is either of the two files."""
    stem = header.name[:-4]
    names = {(stem + ending).lower() for ending in ENDINGS}
    if path != header:
        if path.name.lower() not in names:
            raise LibraryError(f"{path}: {header.name} beside it is the header of another file")
        return path
    spelt = [stem + ending for plain in ENDINGS for ending in (plain, plain.upper())]
    beside = [p for p in files_named(header.parent, spelt) if p.is_file() and p != header]
    if len(beside) != 1:
        raise LibraryError(f"{header}: no single data file {stem}, {stem}.sli or {stem}.lib beside it")
    return beside[0]


def header_of(path: Path) -> Path:
    """Return the header of a library from the path of either file; `LibraryError` without a header beside it."""
    if not path.is_file():
        raise LibraryError(f"{path}: {why_no_file(path)}")
    header = path if path.suffix.lower() == ".hdr" else header_beside(path)
    if header is None:
        raise LibraryError(
            f"{path}: is no library that is known, and no ENVI header is beside it; save its spectra as CSV or ENVI "
            "library, as EnMAP-Box and SPy do"
        )
    return header


def load_sli(path: Path) -> Endmembers:
    """Load an ENVI spectral library."""
    header = header_of(path)
    fields = read_header(header)
    if "library" not in fields.get("file type", "").lower():
        raise LibraryError(
            f"{header}: is not a spectral library (file type = {fields.get('file type', 'missing')[:40]})"
        )
    data = data_of(path, header)
    samples, lines = whole(fields, "samples", header), whole(fields, "lines", header)
    code = whole(fields, "data type", header)
    skip = whole(fields, "header offset", header, 0)
    if code not in DTYPES or min(samples, lines) < 1 or skip < 0:
        raise LibraryError(
            f"{header}: cannot be right: data type {code}, {lines} spectra of {samples} bands, offset {skip}"
        )
    if samples * lines > MOST_LIBRARY_VALUES:
        raise LibraryError(
            f"{header}: {lines} spectra of {samples} bands are more than a library can hold ({MOST_LIBRARY_VALUES} "
            "values)"
        )
    dtype = DTYPES[code].newbyteorder(">" if whole(fields, "byte order", header, 0) == 1 else "<")
    expected = skip + samples * lines * DTYPES[code].itemsize
    if data.stat().st_size < expected:
        raise LibraryError(f"{data}: is truncated: {data.stat().st_size} bytes, but {header.name} promises {expected}")
    with open_plain(data) as file:
        file.seek(skip)
        values = np.frombuffer(file.read(samples * lines * dtype.itemsize), dtype)
    names = words(fields, "spectra names") or [f"endmember {j + 1}" for j in range(lines)]
    if len(names) != lines:
        raise LibraryError(f"{header}: {len(names)} spectra names for {lines} spectra")
    places = words(fields, "spectra pixels")
    pixels = None if places is None else places_of(places, lines)
    classes = words(fields, "spectra classes")
    classes = classes if classes is not None and len(classes) == lines else None
    wavelengths, fwhm = (numbers(fields, key, samples, header) for key in ("wavelength", "fwhm"))
    problems: list[str] = []
    wavelengths, fwhm = axis_in_nanometres(wavelengths, fwhm, fields.get("wavelength units", ""), header, problems)
    for problem in problems:
        log.warning(problem)
    gain, offset = (one if one is None else one[:, None] for one in scaling(fields, samples, header))
    stored = without_fill(values.reshape(lines, samples).T.astype(float), header)
    matrix = stored * (1.0 if gain is None else gain) + (0.0 if offset is None else offset)
    nodata = as_stored(number(fields, "data ignore value", header), DTYPES[code], header, [])
    if nodata is not None:
        matrix[(values == nodata).reshape(lines, samples).T] = np.nan
    good = numbers(fields, "bbl", samples, header)
    if good is not None:
        matrix[good == 0] = np.nan
    of_each = (words(fields, key) for key in ("spectra scenes", "spectra colors"))
    scenes, colors = (found if found and len(found) == lines else None for found in of_each)
    return make(names, matrix, wavelengths, data, pixels, classes, fwhm, scenes, colors)
