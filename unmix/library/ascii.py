"""Libraries as text: USGS splib06, ECOSTRESS and ASTER with one spectrum in each file, and plots exported by ENVI."""

import itertools
import re
from pathlib import Path

import numpy as np

from ..errors import LibraryError
from ..io.formats.header import TO_NANOMETRES, nanometres
from ..io.text import decoded, list_rows
from .spectra import DELETED, Endmembers, make

MOST_ROWS, LONGEST_LINE = 200_000, 100_000
# Bytes; 200 000 rows of a text file of spectra take no more.
LONGEST = 16 * 2**20


def columns_of(path: Path, lines: list[str], first: int) -> np.ndarray:
    """Return the numbers in all lines from line ``first`` on, (rows, columns); `LibraryError` if a line holds anything else."""
    rows = []
    if len(lines) > MOST_ROWS or max(map(len, lines[first:]), default=0) > LONGEST_LINE:
        raise LibraryError(
            f"{path}: is no text of spectra: it has {len(lines)} lines, or a line of more than {LONGEST_LINE} characters"
        )
    for number, cells in list_rows("\n".join(lines[first:]), path, LibraryError):
        try:
            rows.append([float(cell) for cell in cells])
        except ValueError:
            raise LibraryError(
                f"{path}: line {number + first}: '{' '.join(cells)[:40]}' is not a row of numbers"
            ) from None
    if not rows or len(rows[0]) < 2 or len({len(row) for row in rows}) != 1:
        raise LibraryError(f"{path}: no table of wavelengths and values after line {first}")
    return np.array(rows)


def load_usgs(path: Path, raw: bytes) -> Endmembers:
    """Load a USGS splib06 file: 16 lines of text, one of them the title; then wavelength (µm), reflectance, deviation."""
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
    return make(names[1:], table[:, 1:], nanometres(table[:, 0], ""), path)
