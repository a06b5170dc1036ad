"""A cube's spectral axis from a file of wavelengths, where its own has none or others are wanted."""

import re
from pathlib import Path

import numpy as np

from ..errors import CubeError
from .fields import header_beside
from .formats.header import MOST_BANDS, axis_in_nanometres, numbers, read_header, read_small

# Data files of ENVI, which have a header beside them.
DATA = ("", ".img", ".dat", ".raw", ".bin", ".bsq", ".bil", ".bip", ".sli", ".lib", ".hyspex")
LONGEST = 2**22


def axis_from_file(path: Path, bands: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Read wavelengths, and FWHM where they are there.

    Parameters
    ----------
    path : Path
        Text or CSV: a line for each band with its wavelength and perhaps its FWHM (nm; all below 25 are µm), behind the band's
        number or not, below a heading or not; or all wavelengths in one row. Or an ENVI header, or what has one beside it: a
        library, another cube.
    bands : int
        How many there must be.

    Returns
    -------
    wavelengths : array (bands,), float64
        In nm.
    fwhm : array (bands,), float64, or None
        In nm.

    Raises
    ------
    CubeError
        Where it cannot be read, or does not have a wavelength for each band.
    """
    header = header_of(path)
    if header is not None:
        fields = read_header(header)
        waves, fwhm = (numbers(fields, key, bands, header) for key in ("wavelength", "fwhm"))
        units = fields.get("wavelength units", "")
    else:
        waves, fwhm = columns_of(path, bands)
        units = ""
    if waves is None:
        raise CubeError(f"{header}: the header has no wavelengths")
    problems: list[str] = []
    waves, fwhm = axis_in_nanometres(waves, fwhm, units, path, problems)
    assert waves is not None
    if problems or not np.all(waves > 0):
        raise CubeError(f"{path}: a wavelength or FWHM is not above 0")
    return waves, fwhm


def header_of(path: Path) -> Path | None:
    """Return the ENVI header that a file is, or that stands beside it; None for text."""
    if path.suffix.lower() == ".hdr":
        return path
    return header_beside(path) if path.suffix.lower() in DATA and path.is_file() else None


def columns_of(path: Path, bands: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Return wavelengths and FWHM of a text, in its units; see `axis_from_file`."""
    raw = read_small(path, LONGEST)
    try:
        lines = raw.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise CubeError(f"{path}: is no text; write a wavelength a line, or name an ENVI header") from None
    rows: list[list[float]] = []
    for number, line in enumerate(lines, 1):
        cells = [cell.strip("\"'") for cell in re.split(r"[\s,;]+", line.partition("#")[0].strip()) if cell]
        if not cells:
            continue
        try:
            rows.append([float(cell) for cell in cells])
        except ValueError:
            if rows or number > 1:  # a heading stands above all
                raise CubeError(f"{path}: line {number}: '{line.strip()[:40]}' is no wavelength") from None
    if len(rows) == 1 and len(rows[0]) == bands:
        return np.array(rows[0]), None
    widths = {len(row) for row in rows}
    if len(rows) != bands or len(rows) > MOST_BANDS or len(widths) != 1 or max(widths) > 3:
        columns = "" if len(widths) == 1 else " of different lengths"
        raise CubeError(
            f"{path}: has {len(rows)} rows{columns}, but the cube has {bands} bands; write a wavelength a line, and its FWHM behind it"
        )
    table = np.array(rows)
    if table.shape[1] == 3:
        if not np.array_equal(np.diff(table[:, 0]), np.ones(bands - 1)):
            raise CubeError(f"{path}: has three columns, of which the first does not count the bands")
        table = table[:, 1:]
    return table[:, 0], table[:, 1] if table.shape[1] == 2 else None
