"""Spectral libraries as CSV tables: wavelengths in the header row, names and classes in the first columns."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..errors import LibraryError
from ..io.formats.header import nanometres
from .spectra import Endmembers, make


def load_csv(path: Path, raw: bytes) -> Endmembers:
    """Load a CSV library: columns whose heading is a number are bands, the first other one has the names, ``class`` the classes."""
    rows = read_rows(path, raw)
    if len(rows) < 2:
        raise LibraryError(f"{path}: no spectra; expected a header row with wavelengths and a row for each endmember")
    heading = [cell.strip() for cell in rows[0]]
    columns = [i for i, cell in enumerate(heading) if is_number(cell)]
    if not columns:
        hint = "; are its columns separated by ';' or tabs? Use commas" if set(rows[0][0]) & set(";\t") else ""
        raise LibraryError(
            f"{path}: its first row has no wavelengths; expected name, wavelength, wavelength, … in a row{hint}"
        )
    if len(columns) == len(heading):
        raise LibraryError(
            f"{path}: its first row is all numbers; expected a header row: name, wavelength, wavelength, …"
        )
    if len(columns) * (len(rows) - 1) > len(raw):
        raise LibraryError(
            f"{path}: {len(rows) - 1} rows of {len(columns)} wavelengths, but fewer values; a row is too short"
        )
    matrix = np.empty((len(columns), len(rows) - 1))
    for r, row in enumerate(rows[1:]):
        for b, i in enumerate(columns):
            cell = row[i].strip() if i < len(row) else ""
            if not is_number(cell):
                raise LibraryError(f"{path}: row {r + 2}, column {i + 1}: '{cell[:20]}' is not a number")
            matrix[b, r] = float(cell)
    texts = {
        heading[i].lower(): [row[i].strip() if i < len(row) else "" for row in rows[1:]] for i in range(len(heading))
    }
    others = [heading[i].lower() for i in range(len(heading)) if i not in columns]
    classes = texts.get("class")
    name_column = next((key for key in others if key not in ("class", "scene", "line", "sample")), others[0])
    axis = np.array([float(heading[i]) for i in columns])
    counted = np.array_equal(axis, np.arange(1, len(axis) + 1))
    pixels = None
    if {"line", "sample"} <= set(others):
        pixels = places_of([f"{a} {b}" for a, b in zip(texts["line"], texts["sample"])], len(rows) - 1)
    return make(
        texts[name_column],
        matrix,
        None if counted else nanometres(axis, ""),
        path,
        pixels,
        classes,
        scenes=texts.get("scene"),
    )


def read_rows(path: Path, raw: bytes) -> list[list[str]]:
    """Return the rows of a CSV table that are not empty; `LibraryError` where it is none."""
    if b"\0" in raw[:4096]:
        raise LibraryError(f"{path}: is not a CSV table, but binary")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    try:
        return [row for row in csv.reader(text.splitlines()) if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise LibraryError(f"{path}: is not a CSV table: {error}") from None


def cells_of(
    path: Path, raw: bytes, columns: Sequence[str], what: str, optional: Sequence[str] = ()
) -> list[tuple[int, list[str]]]:
    """Return the number of each row of a CSV table with a heading, and its cells in some columns, "" where it has none.

    Names of columns are compared in small letters.

    Parameters
    ----------
    path : Path
        For messages.
    raw : bytes
        Content of the table.
    columns : sequence of str
    what : str
        The kind of table, for messages.
    optional : sequence of str
        Further columns; at least one of them has to be there.

    Raises
    ------
    LibraryError
        Where it is no table, or lacks a column.
    """
    rows = read_rows(path, raw)
    heading = [cell.strip().lower() for cell in rows[0]] if rows else []
    lacking = [name for name in columns if name.lower() not in heading]
    if optional and not lacking and not set(optional) & set(heading):
        lacking = ["' or '".join(optional)]
    if lacking:
        wanted = ", ".join(columns) + (f", and {' or '.join(optional)}" if optional else "")
        hint = "; are its columns separated by ';'? Use commas" if rows and ";" in ",".join(rows[0]) else ""
        raise LibraryError(f"{path}: has no column '{lacking[0]}'; {what} has the columns {wanted}{hint}")
    names = [*columns, *optional]
    places = [heading.index(name.lower()) if name.lower() in heading else len(heading) for name in names]
    return [
        (r, [row[i].strip() if i < min(len(row), len(heading)) else "" for i in places])
        for r, row in enumerate(rows[1:], 2)
    ]


def places_of(texts: list[str], count: int) -> tuple[tuple[int, int], ...] | None:
    """Return pixels written as ``line sample``; None if the texts are not ``count`` pairs of whole numbers, but a comment."""
    pairs = [tuple(int(word) for word in text.split() if word.isascii() and word.isdigit()) for text in texts]
    if len(pairs) != count or any(len(pair) != 2 for pair in pairs):
        return None
    return tuple((pair[0], pair[1]) for pair in pairs)


def is_number(text: str) -> bool:
    """Return whether ``float`` accepts a text."""
    try:
        float(text)
    except ValueError:
        return False
    return True
