"""Split tables into rows and cells: decide in one place which separator they use, and whether commas are decimal."""

import contextlib
import csv
import io
import itertools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import UnmixError

# A number with a decimal comma, and one that may have it; a whole number.
DECIMAL = re.compile(r"[-+]?\d*,\d+([eE][-+]?\d+)?")
EITHER = re.compile(r"[-+]?(\d+|\d*,\d+)([eE][-+]?\d+)?")
WHOLE = re.compile(r"[-+]?\d+")
# The first line by which spreadsheets tell each other the separator.
SEPARATOR = re.compile(r'"?sep=([,;\t])"?', re.IGNORECASE)


class Row(NamedTuple):
    """A line of a table: its number, from 1, and its stripped cells, with points for decimal commas."""

    number: int
    cells: list[str]


def decoded(raw: bytes, strictly: bool = False) -> str:
    """Decode UTF-8, UTF-16 (spreadsheets) or else Latin-1; ``strictly`` raises UnicodeDecodeError in place of it."""
    with contextlib.suppress(UnicodeDecodeError):
        if raw[:2] in (b"\xff\xfe", b"\xfe\xff") and not (text := raw.decode("utf-16")).rstrip().isalpha():
            return text
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        if strictly:
            raise
        return raw.decode("latin-1")


def decimal_commas(path: str | os.PathLike[str], example: str, error: type[UnmixError], where: str = "") -> UnmixError:
    """Return the error about a table whose commas may separate columns or decimals."""
    return error(
        f"{path}: {where}'{example[:40]}' may be a number with a decimal comma; write points, or a heading that names "
        "every column"
    )


def with_point(cell: str) -> str:
    """Return a cell without blanks around it; a decimal comma becomes a point."""
    cell = cell.strip()
    return cell.replace(",", ".") if DECIMAL.fullmatch(cell) else cell


def table_rows(text: str, path: str | os.PathLike[str], error: type[UnmixError]) -> list[Row]:
    """Return the rows of a CSV table that are not empty; ``error`` is the class to raise."""
    lines = text.splitlines(keepends=True)  # a quoted cell may have several
    told = SEPARATOR.fullmatch(lines[0].strip()) if lines else None
    first = 1 if told else 0
    separator = told[1] if told else separator_of([line for line in lines if line.strip()])
    try:
        found = list(enumerate(csv.reader(lines[first:], delimiter=separator), first + 1))
    except csv.Error as fault:
        raise error(f"{path}: is not a CSV table: {fault}") from None
    rows = [
        Row(number, [with_point(cell) for cell in cells]) for number, cells in found
    ]  # quoted cells may hold commas
    rows = [row for row in rows if any(row.cells)]
    if separator == ",":
        refuse_longer(rows, path, error)
    return rows


def separator_of(lines: Sequence[str]) -> str:
    """Return the separator: tab or semicolon if all lines, or the first more often than commas, have it; else comma."""
    for one in "\t;":
        if lines and (all(one in line for line in lines) or lines[0].count(one) > lines[0].count(",")):
            return one
    return ","


def refuse_longer(rows: Sequence[Row], path: str | os.PathLike[str], error: type[UnmixError]) -> None:
    """Raise an error where a row has more cells than the first one, of which the last is no text."""
    width = len(rows[0].cells) if rows else 0
    for number, cells in rows:
        more = [cell for cell in cells[width:] if cell]
        if more:
            why = (
                "may be decimal commas (write points)"
                if WHOLE.fullmatch(more[-1])
                else "are in a text (put it in quotes)"
            )
            raise error(f"{path}: row {number} has {len(cells)} cells, the first row {width}: some of its commas {why}")


def list_rows(text: str, path: str | os.PathLike[str], error: type[UnmixError]) -> list[Row]:
    """Return lines of numbers, split at blanks, tabs, semicolons and commas, without empty lines and ``#`` comments."""
    lines = [(n, line.partition("#")[0].strip()) for n, line in enumerate(text.splitlines(), 1)]
    lines = [(n, line) for n, line in lines if line]
    if "," not in text:  # thousands of files of USGS
        return [Row(n, [cell.strip("\"'") for cell in line.replace(";", " ").split()]) for n, line in lines]
    parts = [[cell for cell in (one.strip("\"'") for one in re.split(r"[\s;]+", line)) if cell] for _, line in lines]
    # Each line but a heading is of columns that something else than commas separates, and none has a point.
    kinds = [has_other_separator(line, cells) for (_, line), cells in zip(lines, parts)]
    if (
        kinds
        and all(kinds[len(kinds) > 1 :])
        and any(map(DECIMAL.fullmatch, (cell for cells in parts for cell in cells)))
    ):
        return [Row(n, [with_point(cell) for cell in cells]) for (n, _), cells in zip(lines, parts)]
    rows = [Row(n, [cell.strip("\"'") for cell in re.split(r"[\s,;]+", line) if cell]) for n, line in lines]
    if any(re.search(r"\d,\d", line) for _, line in lines):  # a comma before a blank is no decimal one
        refuse_pairs(rows, path, error)
    return rows


def refuse_pairs(rows: Sequence[Row], path: str | os.PathLike[str], error: type[UnmixError]) -> None:
    """Raise an error where rows hold only whole numbers, and the commas between them may be decimal."""
    is_named = bool(rows) and not is_whole(rows[0].cells[-1])
    body = rows[is_named:]
    tails = [list(itertools.takewhile(is_whole, reversed(row.cells)))[::-1] for row in body]
    texts = {len(row.cells) - len(tail) for row, tail in zip(body, tails)}
    widest = max(map(len, tails), default=0)
    if len(body) < 2 or widest < 2 or len(texts) > 1 or (is_named and len(rows[0].cells) >= max(texts) + widest):
        return
    if any("." in cell for row in body for cell in row.cells[: max(texts)]):
        return
    # A first of two columns that counts the rows shows that commas separate.
    firsts = [int(tail[0]) for tail in tails]
    counts = firsts[0] in (0, 1) and firsts == list(range(firsts[0], firsts[0] + len(firsts)))
    if not (counts and set(map(len, tails)) == {2}):
        row, tail = next((row, tail) for row, tail in zip(body, tails) if len(tail) > 1)
        raise decimal_commas(path, ",".join(tail), error, f"line {row.number}: ")


def has_other_separator(line: str, cells: Sequence[str]) -> bool:
    """Return whether something else than commas separates the cells of a line, and none has a point."""
    if all(map(EITHER.fullmatch, cells)):
        return len(cells) > 1 or ";" in line or '"' in line
    return (";" in line or "\t" in line) and not any(re.fullmatch(r"[-+]?\d*\.\d*", cell) for cell in cells)


def csv_of(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a CSV table with a heading: numbers to nine digits, None as an empty cell."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: f"{value:.9g}" if isinstance(value, float) else value for key, value in row.items()})
    return text.getvalue()


def is_whole(cell: str) -> bool:
    """Return whether a cell is a whole number."""
    return WHOLE.fullmatch(cell) is not None
