"""Read a cube's spectral axis from a file of wavelengths, where the cube has none or the user wants to replace them."""

import logging
from pathlib import Path

import numpy as np

from ..errors import CubeError
from .fields import header_beside
from .formats.envi import EXTENSIONS
from .formats.header import MOST_BANDS, axis_in_nanometres, is_no_axis, numbers, read_header, unit_of_heading
from .opening import read_small
from .text import decoded, list_rows

log = logging.getLogger("unmix")
# Bytes of the longest text that is read.
LONGEST = 2**22
# Headings of a first column that names the bands.
COUNTS = ("band", "bands", "channel", "number", "no", "index", "#")


def axis_from_file(path: Path, bands: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Read wavelengths and, where the file has them, FWHM, both (bands,) float64 in nm."""
    header = header_of_axis(path)
    if header is not None:
        fields = read_header(header)
        waves, fwhm = (numbers(fields, key, bands, header) for key in ("wavelength", "fwhm"))
        units = fields.get("wavelength units", "")
    else:
        waves, fwhm, units = columns_of(path, bands)
    if waves is None:
        raise CubeError(f"{header}: the header has no wavelengths")
    problems: list[str] = []
    found, widths = axis_in_nanometres(waves, fwhm, units, path, problems)
    if found is None or not np.all(found > 0) or (fwhm is not None and widths is None):
        raise CubeError(problems[0] if found is None else f"{path}: a wavelength or FWHM is not above 0")
    for problem in problems:
        log.warning(problem)
    return found, widths


def files_of_axis(path: Path) -> list[Path]:
    """Return the files that wavelengths are read from: the file, and the header of a data file."""
    header = header_of_axis(path)
    return [path] if header is None or header == path else [path, header]


def header_of_axis(path: Path) -> Path | None:
    """Return the file itself where it is an ENVI header, or the header of a data file; None for text."""
    if path.suffix.lower() == ".hdr":
        return path
    return header_beside(path) if path.suffix.lower() in EXTENSIONS and path.is_file() else None


def columns_of(path: Path, bands: int) -> tuple[np.ndarray, np.ndarray | None, str]:
    """Return the wavelengths and FWHM of a text file, and the unit in its heading; see `axis_from_file`."""
    raw = read_small(path, LONGEST)
    try:
        text = decoded(raw, strictly=True)
    except UnicodeDecodeError:
        raise CubeError(f"{path}: is no text file; write one wavelength a line, or name an ENVI header") from None
    rows: list[list[float]] = []
    units, heading = "", list[str]()
    for number, cells in list_rows(text, path, CubeError):
        try:
            rows.append([float(cell) for cell in cells])
        except ValueError:
            if rows or number > 1:  # only the first line may be a heading
                raise CubeError(f"{path}: line {number}: '{' '.join(cells)[:40]}' is no wavelength") from None
            units, heading = unit_of_heading(" ".join(cells)), [cell.strip().lower() for cell in cells]
    if len(rows) == 1 and len(rows[0]) == bands:
        return np.array(rows[0]), None, units
    widths = sorted({len(row) for row in rows})
    wanted = "write one wavelength a line, and optionally its FWHM after it"
    if len(rows) == 1 and widths[0] > 3:
        raise CubeError(f"{path}: has {widths[0]} wavelengths in a row, but the cube has {bands} bands")
    if len(widths) > 1 or (widths and widths[0] > 3):
        raise CubeError(f"{path}: its lines have {' or '.join(map(str, widths[:3]))} columns; {wanted}")
    if len(rows) != bands or len(rows) > MOST_BANDS:
        raise CubeError(f"{path}: has {len(rows)} rows, but the cube has {bands} bands; {wanted}")
    table = np.array(rows)
    # A first column that counts the bands goes before wavelengths.
    is_count = (bands > 1 and is_no_axis(table[:, 0], "")) or (len(heading) > 1 and heading[0] in COUNTS)
    if table.shape[1] == 3 and not is_count:
        raise CubeError(f"{path}: has three columns, but the first does not count the bands")
    if table.shape[1] > 1 and is_count:
        table = table[:, 1:]
    return table[:, 0], table[:, 1] if table.shape[1] == 2 else None, units
