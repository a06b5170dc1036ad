"""ENVI spectral libraries: a header, and a data file with one spectrum in each line."""

import logging
from pathlib import Path

import numpy as np

from ..errors import LibraryError
from ..io.cube import as_stored
from ..io.fields import DTYPES, header_beside
from ..io.formats.header import axis_in_nanometres, number, numbers, read_header, whole, words
from ..io.opening import open_plain
from ..io.read import why_no_file
from ..io.remote import files_named
from .spectra import Endmembers, make
from .table import places_of

log = logging.getLogger("unmix")
MOST_VALUES = 2**25
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
    """Return the header of a library, of which ``path`` is the header or the data file; `LibraryError` if there is none."""
    if not path.is_file():
        raise LibraryError(f"{path}: {why_no_file(path)}")
    header = path if path.suffix.lower() == ".hdr" else header_beside(path)
    if header is None:
        raise LibraryError(
            f"{path}: is no library that is known: its format is not recognised, and no ENVI header is beside it"
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
    factor = number(fields, "reflectance scale factor", header)
    factor = 1.0 if factor is None else factor
    if code not in DTYPES or min(samples, lines) < 1 or skip < 0 or not 0 < factor < np.inf:
        raise LibraryError(
            f"{header}: cannot be right: data type {code}, {lines} spectra of {samples} bands, offset {skip}, scale {factor}"
        )
    if samples * lines > MOST_VALUES:
        raise LibraryError(
            f"{header}: {lines} spectra of {samples} bands are more than a library can hold ({MOST_VALUES} values)"
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
    matrix = values.reshape(lines, samples).T.astype(np.float64) / factor
    nodata = as_stored(number(fields, "data ignore value", header), DTYPES[code], header, [])
    if nodata is not None:
        matrix[(values == nodata).reshape(lines, samples).T] = np.nan
    of_each = (words(fields, key) for key in ("spectra scenes", "spectra colors"))
    scenes, colors = (found if found and len(found) == lines else None for found in of_each)
    return make(names, matrix, wavelengths, data, pixels, classes, fwhm, scenes, colors)
