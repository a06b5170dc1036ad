"""Spectral libraries as CSV tables: wavelengths in the header row, names and classes in the first columns."""

import itertools
import logging
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import LibraryError, say_once
from ..io.formats.header import (
    SOLAR,
    TO_NANOMETRES,
    axis_in_nanometres,
    fault_of_unit,
    guessed,
    is_no_axis,
    unit_of_heading,
)
from ..io.text import NO_VALUE, Row, decimal_commas, decoded, table_rows
from .spectra import Endmembers, make

log = logging.getLogger("unmix")

# Headings of columns of wavelengths, wherever they stand.
AXIS_IN_WORDS = r"wave\s*_?(length|number)s?\b|wavelength|wavenumber|wvl\b|wl\b|lambda\b"
# How the heading of a first column of wavelengths begins.
WAVELENGTH = r"wave|lambda|wl\b|nm\b|[uµμ]m\b|nanomet|micromet|micron|angstr|channel|cm-1|energy"
# Letters before the number of a band.
OF_BANDS = ("b", "band", "bands")
# A number with the same letters before and after it in each heading, as R and many instruments write them.
LETTERED = re.compile(r"(\D*?)[\s_.]*(\d+(?:\.\d+)?)[\s_.]*(\D*)")
# The same after the number of a band: b1_420, Band 1 (420 nm).
COUNTED = re.compile(r"[a-z]+[\s_]*\d+\s*[_(\[]\s*(\d+(?:\.\d+)?)\s*(\D*?)[)\]]?", re.IGNORECASE)


# Headings of columns of texts that are read, beside names.
KEPT = ("class", "color", "scene", "line", "sample")


def load_csv(path: Path, raw: bytes) -> Endmembers:
    """Load a CSV library: numeric headings are bands, the first other column has names, ``class`` has classes."""
    numbered = read_rows(path, raw)
    rows = [cells for _, cells in numbered]
    if len(rows) < 2:
        raise LibraryError(f"{path}: no spectra; expected a header row with wavelengths and a row for each endmember")
    heading = [cell.strip() for cell in rows[0]]
    heading, rows = with_axis_first(path, heading, rows)
    if (turned := in_columns(path, heading, rows[1:])) is not None:
        return spectra_in_columns(path, heading, turned)
    columns, axis, units = axis_of_heading(path, heading)
    if not columns:
        raise LibraryError(
            f"{path}: its first row has no wavelengths; expected name, wavelength, … there, or wavelength, name, … above columns"
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
            cell = row[i].strip() if i < len(row) else "no cell"
            value = number_or_nan(cell)
            if value is None:
                raise LibraryError(f"{path}: row {numbered[r + 1][0]}, column {i + 1}: '{cell[:20]}' is not a number")
            matrix[b, r] = value
    texts = {
        heading[i].lower(): [row[i].strip() if i < len(row) else "" for row in rows[1:]] for i in range(len(heading))
    }
    others = [heading[i].lower() for i in range(len(heading)) if i not in columns]
    classes = texts.get("class")
    named = [key for key in others if key not in KEPT] or others[:1]
    # A table of pandas begins with a column that counts its rows.
    is_text = (key for key in named if not all(map(is_number, texts[key])))
    name_column = next((key for key in named if key in ("name", "names", "spectrum", "label")), next(is_text, named[0]))
    refuse_halves(path, axis, [heading[i] for i in columns])
    tell_others(path, heading, columns, rows[1:])
    lost = [heading[i] for i in range(len(heading)) if heading[i].lower() in others and heading[i].lower() not in KEPT]
    lost = [
        name for name in lost if name and name.lower() != name_column and not all(map(is_number, texts[name.lower()]))
    ]
    if lost:
        say_once(f"{path}: the texts of column '{lost[0]}' are read by `classes` {lost[0]} alone, as classes")
    pixels = None
    if {"line", "sample"} <= set(others):
        pixels = places_of([f"{a} {b}" for a, b in zip(texts["line"], texts["sample"])], len(rows) - 1)
    return make(
        texts[name_column],
        matrix,
        axis_in_library(axis, None, units, path)[0],
        path,
        pixels,
        classes,
        scenes=texts.get("scene"),
        colors=texts.get("color"),
    )


def with_axis_first(path: Path, heading: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """Return a table of spectra in columns, wavelengths first, without columns that count or say them again."""
    numbered = re.compile(r"\d[\d.]")  # of rows: Wavelength_420
    named = [
        i
        for i, cell in enumerate(heading)
        if re.match(AXIS_IN_WORDS, cell, re.IGNORECASE) and not numbered.search(cell)
    ]
    if not named or any(map(is_number, heading)) or any(len(row) != len(heading) for row in rows):
        return heading, rows
    counts = [i for i, cell in enumerate(heading[: named[0]]) if cell.lower() in ("", "index", "band", "channel", "no")]
    others = [i for i in range(len(heading)) if i not in (*named, *counts)]
    if len(named) > 1:
        log.warning(f"{path}: '{heading[named[0]]}' has its wavelengths; '{heading[named[1]]}' is not read")
    order = [named[0], *others]
    return [heading[i] for i in order], [[row[i] for i in order] for row in rows]


def axis_of_heading(path: Path, heading: Sequence[str]) -> tuple[list[int], np.ndarray, str]:
    """Return the columns of channels, their wavelengths (n,) and unit: headings are numbers, or as X420 and 420nm."""
    plain = [i for i, cell in enumerate(heading) if is_number(cell) and np.isfinite(float(cell))]
    lettered: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for i, cell in enumerate(heading):
        found = LETTERED.fullmatch(cell)
        if counted := COUNTED.fullmatch(cell):
            lettered.setdefault(("", counted[2].lower()), []).append((i, float(counted[1])))
        elif found and found[1].lower() in OF_BANDS and found[3].lower() == "a":  # B8A, between B8 and B9
            lettered.setdefault((found[1].lower(), ""), []).append((i, float(found[2]) + 0.5))
        elif found and (found[1] or found[3]) and i not in plain:
            lettered.setdefault((found[1].lower(), found[3].lower()), []).append((i, float(found[2])))
    form, longest = max(lettered.items(), key=lambda one: len(one[1]), default=(("", ""), []))
    steps = np.diff([value for _, value in longest])
    if len(longest) < 2 or len(longest) <= len(plain) or not (np.all(steps > 0) or np.all(steps < 0)):
        first = (unit_of_heading(cell) for cell in heading[: plain[0] if plain else 0])
        unit = next((one for one in first if one and one != "index"), "")
        return plain, np.array([float(heading[i]) for i in plain]), unit
    unit, values = unit_of_heading(" ".join(form)), np.array([value for _, value in longest])
    if form[0] in OF_BANDS and not form[1] and values.max() < SOLAR[0]:  # B2, B3, …: numbers of bands
        longest.sort(key=lambda one: one[1])
        values = np.arange(1.0, len(values) + 1)
    return [i for i, _ in longest], values, unit if unit != "index" else ""


def tell_others(path: Path, heading: Sequence[str], columns: Sequence[int], rows: Sequence[Sequence[str]]) -> None:
    """Warn of columns of numbers whose headings are no channels; `LibraryError` where only one column is a channel."""
    others = [i for i in range(len(heading)) if i not in columns and heading[i].lower() not in ("line", "sample", "")]
    numeric = [i for i in others if all(i < len(row) and is_number(row[i]) for row in rows)]
    doubtful = [heading[i] for i in numeric if re.search(r"\d", heading[i])]
    if doubtful:
        log.warning(
            f"{path}: column '{doubtful[0]}' holds numbers, but is no channel: the channels are such as "
            f"'{heading[columns[0]]}'"
        )
    if len(columns) == 1 and len(numeric) > 1:
        raise LibraryError(
            f"{path}: only the heading '{heading[columns[0]]}' is a wavelength, but column '{heading[numeric[0]]}' "
            "holds numbers, too; write a wavelength above each channel"
        )


def axis_in_library(
    waves: np.ndarray, fwhm: np.ndarray | None, units: str, path: Path
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return wavelengths and FWHM (L,) in nm; None where they only count, `LibraryError` where they mix two units."""
    if is_no_axis(waves, units):
        if "raman" in units or "shift" in units:
            log.warning(
                f"{path}: a Raman shift is no wavelength, and left out; call it a wavenumber here and in the cube"
            )
        return None, None
    if (fault := fault_of_unit(waves, units)) is not None:
        raise LibraryError(f"{path}: its wavelengths {fault}")
    problems: list[str] = []
    found = axis_in_nanometres(waves, fwhm, units, path, problems)
    for problem in problems:
        log.warning(problem)
    return found


def in_columns(path: Path, heading: Sequence[str], rows: Sequence[Sequence[str]]) -> np.ndarray | None:
    """Return the numbers (rows, columns) of a table of spectra in columns, wavelengths first; None for any other."""
    is_named = re.match(WAVELENGTH, heading[0], re.IGNORECASE) is not None
    if len(heading) < 2 or len(rows) < 2 or not (is_named or not any(map(is_number, heading))):
        return None
    if any(len(row) != len(heading) for row in rows):
        return None
    values = [[number_or_nan(cell) for cell in row] for row in rows]
    if any(None in row[: 1 if is_named else None] for row in values):
        return None
    for r, row in enumerate(values):
        if None in row:
            c = row.index(None)
            raise LibraryError(
                f"{path}: row {r + 2}, column {c + 1}: '{rows[r][c][:20]}' is not a number; write nan where "
                "there is no value"
            )
    # The first column has wavelengths: its heading says so, in any order, as where detectors overlap; or they ascend or
    # descend, and no heading is a number.
    table = np.array(values, float)
    steps = np.diff(table[:, 0])
    return table if is_named or np.all(steps > 0) or np.all(steps < 0) else None


def spectra_in_columns(path: Path, heading: Sequence[str], table: np.ndarray) -> Endmembers:
    """Return the spectra of a table (channels, columns), whose first column has wavelengths, or counts the channels."""
    units = unit_of_heading(heading[0])
    widths = [i for i, cell in enumerate(heading) if cell.lower().startswith("fwhm")]
    kept = [i for i in range(1, len(heading)) if i not in widths]
    if not kept:
        raise LibraryError(f"{path}: has wavelengths and their widths, but no spectra")
    wide = table[:, widths[0]] if widths else None
    own = unit_of_heading(heading[widths[0]]) if widths else ""
    if wide is not None and own in TO_NANOMETRES and (here := nanometre_of(table[:, 0], units)) is not None:
        wide = wide * (TO_NANOMETRES[own] / here)
    axis, fwhm = axis_in_library(table[:, 0], wide, units, path)
    return make([heading[i] for i in kept], table[:, kept], axis, path, fwhm=fwhm)


def nanometre_of(axis: np.ndarray, units: str) -> float | None:
    """Return the factor to nm of a unit, or of the one guessed; None where that is the reciprocal of a length."""
    return TO_NANOMETRES.get(units or guessed(axis))


def refuse_halves(path: Path, axis: np.ndarray, cells: Sequence[str]) -> None:
    """Raise `LibraryError` where whole numbers ascend only as pairs with decimal commas (``420,58,490,58``)."""
    halves, steps = np.diff(axis[::2]), np.diff(axis)
    ascend = [bool(np.all(some > 0) or np.all(some < 0)) for some in (halves, steps)]
    if len(axis) > 3 and len(axis) % 2 == 0 and all(cell.isdigit() for cell in cells) and ascend == [True, False]:
        raise decimal_commas(path, ",".join(cells[:2]), LibraryError, "row 1: ")


def read_rows(path: Path, raw: bytes) -> list[Row]:
    """Return the rows of a CSV table that are not empty; `LibraryError` where it is none."""
    text = decoded(raw)
    if "\0" in text:
        raise LibraryError(
            f"{path}: is not a CSV table, but binary (of points: ogr2ogr -f CSV t.csv {path.name} -lco GEOMETRY=AS_XY)"
        )
    return table_rows(without_comments(text), path, LibraryError)


def without_comments(text: str) -> str:
    """Return a table whose lines of ``#`` comment before the header are empty, so that line numbers stay."""
    lines = text.split("\n")
    for n, (line, after) in enumerate(itertools.pairwise(lines)):
        # A header may begin with #, too: numbers follow it.
        if not line.lstrip().startswith("#") or re.match(r"\s*[-+.\d]", after):
            break
        lines[n] = ""
    return "\n".join(lines)


def cells_of(path: Path, raw: bytes, columns: Sequence[str], what: str) -> list[tuple[int, list[str]]]:
    """Return each row's number and its cells in columns of a table, "" where it has none."""
    rows = read_rows(path, raw)
    heading = [cell.lower() for cell in rows[0].cells] if rows else []
    lacking = [name for name in columns if name.lower() not in heading]
    if lacking:
        raise LibraryError(f"{path}: has no column '{lacking[0]}'; {what} has the columns {', '.join(columns)}")
    places = [heading.index(name.lower()) for name in columns]
    return [(r, [row[i] if i < len(row) else "" for i in places]) for r, row in rows[1:]]


def places_of(texts: list[str], count: int) -> tuple[tuple[int, int], ...] | None:
    """Return pixels written as ``line sample``; None if the texts are not ``count`` pairs of whole numbers."""
    pairs = [tuple(int(word) for word in text.split() if word.isascii() and word.isdigit()) for text in texts]
    if len(pairs) != count or any(len(pair) != 2 for pair in pairs):
        return None
    return tuple((pair[0], pair[1]) for pair in pairs)


def number_or_nan(text: str) -> float | None:
    """Return a cell as a number, NaN for a word of `NO_VALUE`, None for any other text."""
    try:
        return float(text)
    except ValueError:
        return math.nan if text.strip().lower() in NO_VALUE else None


def is_number(text: str) -> bool:
    """Return whether ``float`` accepts a text."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def of_frame(library: Any) -> Any:
    """Return the endmembers of a pandas DataFrame, a spectrum a column, with wavelengths as its index; others unchanged."""
    if not (hasattr(library, "columns") and hasattr(library, "index")):
        return library
    path, index = Path("DataFrame"), np.asarray(library.index)
    unit = unit_of_heading(str(library.index.name or ""))
    waves = axis_in_library(index.astype(float), None, unit, path)[0] if index.dtype.kind in "iuf" else None
    return make([str(name) for name in library.columns], np.asarray(library, float), waves, path)
