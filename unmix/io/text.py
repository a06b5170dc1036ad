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
# A number by its decimal sign, and one whose thousands are grouped by that sign: 1,234 may be either.
BY_DECIMAL = {sign: re.compile(rf"[-+]?\d*[{sign}]\d*([eE][-+]?\d+)?") for sign in ".,"}
GROUPED = {sign: re.compile(rf"[-+]?[1-9]\d{{0,2}}([{sign}]\d{{3}})+") for sign in ".,"}
# Thousands grouped by a blank or an apostrophe, which are never decimal signs.
BLANKS = " \u00a0\u2009\u202f'\u2019"
BY_BLANKS = re.compile(rf"[-+]?[1-9]\d{{0,2}}([{BLANKS}]\d{{3}})+([.,]\d+)?")
# By the signs in doubt: a pattern that a row, its cells joined by NUL, holds if one of these signs has to be settled.
UNSETTLED = {
    ",": re.compile(rf",|\d[{BLANKS}]\d"),
    ",.": re.compile(rf",|\d[{BLANKS}]\d|(?:^|\0)[-+]?[1-9]\d{{0,2}}(?:\.\d{{3}})+(?:\0|$)"),
}
# A cell of a column of numbers, whichever their signs; words for no value.
NUMERIC = re.compile(rf"[-+]?[.,]?\d(?:[\d.,{BLANKS}]*[\d.,])?(?:[eE][-+]?\d+)?")
# A heading with a number in letters: X1,050 or 420 nm; or after the number of a band: b1_1,050.
IN_LETTERS = re.compile(rf"((?:[A-Za-z]+[\s_]*\d+\s*[_(\[]\s*)|[^\d.,]*?)({NUMERIC.pattern})([^\d.,]*)")
NO_VALUE = frozenset({"", "nan", "na", "n/a", "null", "-", "--", "#n/a"})
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
        return raw.removeprefix(b"\xef\xbb\xbf").decode("latin-1")


def decimal_commas(path: str | os.PathLike[str], example: str, error: type[UnmixError], where: str = "") -> UnmixError:
    """Return the error about a table whose commas may separate columns or decimals."""
    return error(
        f"{path}: {where}'{example[:40]}' may be a number with a decimal comma; write points, or a heading that names "
        "every column"
    )


def with_points(
    rows: Sequence[Row],
    path: str | os.PathLike[str],
    error: type[UnmixError],
    is_headed: bool = True,
    separator: str = ",",
) -> list[Row]:
    """Return rows whose numbers have points for decimal signs, and no sign between thousands; see `sign_of`."""
    rows = [Row(number, [cell.strip() for cell in cells]) for number, cells in rows]
    # Where commas are decimal, semicolons or tabs separate, and points may group thousands.
    doubtful = "," if separator == "," else ",."
    # One search a row: cell by cell a table of a million took six seconds.
    if not any(UNSETTLED[doubtful].search("\0".join(cells)) for _, cells in rows):
        return rows
    body = rows[is_headed:]
    width = max((len(cells) for _, cells in body), default=0)
    columns = [[cells[i] if i < len(cells) else "" for _, cells in body] for i in range(width)]
    # Names may hold commas: a column is of numbers where every cell is one.
    numeric = [all(cell.lower() in NO_VALUE or NUMERIC.fullmatch(cell) for cell in column) for column in columns]
    heads = [IN_LETTERS.fullmatch(cell) for _, cells in rows[:is_headed] for cell in cells]
    heading = [head[2] for head in heads if head]
    values = [cell for column, is_one in zip(columns, numeric) if is_one for cell in column]
    axis = [head[2] for head in heads if head and head[1].strip() in ("", "X")]  # names hold points, too
    signs = [sign_of(cells, path, error) for cells in (heading, values, axis)]
    # One program wrote both, but pandas writes points in headings whatever the values have.
    has_commas = any(GROUPED[","].fullmatch(cell) for cell in values)
    signs = [signs[0] or signs[1], signs[1] or ("" if has_commas and signs[2] == "." else signs[2])]
    for cells, sign in zip((heading, values), signs):
        unclear = next((cell for cell in cells for one in doubtful if GROUPED[one].fullmatch(cell)), None)
        if unclear is not None and not sign:
            whole, real = re.sub("[,.]", "", unclear), unclear.replace(",", ".")
            raise error(
                f"{path}: '{unclear[:40]}' may be {whole[:40]} or {real[:40]}, and no other number tells, nor would a point for "
                "the comma: write it without a sign between thousands, or with two or four decimals"
            )
    told = [
        Row(
            n,
            [head[1] + plain_number(head[2], signs[0]) + head[3] if head else cell for head, cell in zip(heads, cells)],
        )
        for n, cells in rows[:is_headed]
    ]
    for n, cells in body:
        told.append(Row(n, [plain_number(cell, signs[1]) if numeric[i] else cell for i, cell in enumerate(cells)]))
    return told


def sign_of(cells: Sequence[str], path: str | os.PathLike[str], error: type[UnmixError]) -> str:
    """Return the decimal sign of numbers, "." or ","; "" where nothing tells, `error` where both are decimal."""
    found: dict[str, str] = {}
    for cell in cells:
        cell = re.sub(f"[{BLANKS}]", "", cell) if BY_BLANKS.fullmatch(cell) else cell
        for sign, other in (".,", ",."):
            is_decimal = BY_DECIMAL[sign].fullmatch(cell) and not GROUPED[sign].fullmatch(cell)
            whole = cell.rpartition(sign)[0] or cell
            is_grouped = GROUPED[other].fullmatch(whole) and (sign in cell or whole.count(other) > 1)
            if is_decimal or is_grouped:
                found.setdefault(sign, cell)
    if len(found) > 1:
        raise error(
            f"{path}: '{found['.'][:40]}' has a decimal point, '{found[','][:40]}' a decimal comma; write points"
        )
    return next(iter(found), "")


def plain_number(cell: str, sign: str) -> str:
    """Return a number with a point, without signs of thousands, by its table's decimal sign; other cells unchanged."""
    if not NUMERIC.fullmatch(cell):
        return cell
    cell = re.sub(f"[{BLANKS}]", "", cell) if BY_BLANKS.fullmatch(cell) else cell
    other = "." if sign == "," else ","
    whole, mark, rest = cell.rpartition(sign) if sign else (cell, "", "")
    whole, rest = (whole, rest) if mark else (cell, "")
    whole = whole.replace(other, "") if GROUPED[other].fullmatch(whole) else whole
    return f"{whole}.{rest}" if mark else whole


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
    rows = [Row(number, cells) for number, cells in found if any(cell.strip() for cell in cells)]
    rows = with_names_of_rows(rows)
    refuse_longer(rows, path, error, separator)
    return with_points(rows, path, error, separator=separator)


def with_names_of_rows(rows: list[Row]) -> list[Row]:
    """Return a table of R, whose heading has no cell above the names of rows, with an empty one."""
    if {len(cells) for _, cells in rows[1:]} != {len(rows[0].cells) + 1 if rows else 0} or not rows[0].cells[
        -1
    ].strip():
        return rows
    firsts = [cells[0].strip() for _, cells in rows[1:]]
    counts = firsts == [str(n) for n in range(1, len(firsts) + 1)]
    has_names = re.search(r"\d", rows[0].cells[0]) is not None and not any(map(EITHER.fullmatch, firsts))
    if not (counts or has_names):
        return rows
    return [Row(rows[0].number, ["", *rows[0].cells]), *rows[1:]]


def separator_of(lines: Sequence[str]) -> str:
    """Return the separator: tab or semicolon if all lines, or the first more often than commas, have it; else comma."""
    for one in "\t;":
        if lines and (all(one in line for line in lines) or lines[0].count(one) > lines[0].count(",")):
            return one
    return ","


def refuse_longer(
    rows: Sequence[Row], path: str | os.PathLike[str], error: type[UnmixError], separator: str = ","
) -> None:
    """Raise an error where a row has more cells than the first one."""
    width = len(rows[0].cells) if rows else 0
    for number, cells in rows:
        more = [cell for cell in cells[width:] if cell.strip()]
        if more:
            before = [one.cells[0].strip() for one in rows if one.number < number]
            if width == 1 and number > rows[0].number + 1 and not any(map(NUMERIC.fullmatch, before)):
                raise error(f"{path}: its first {number - 1} lines are no table: delete them")
            if separator != ",":
                raise error(f"{path}: row {number} has {len(cells)} cells, the first row {width}")
            why = (
                "may be decimal commas (write points)"
                if WHOLE.fullmatch(more[-1].strip())
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
        told = [Row(n, cells) for (n, _), cells in zip(lines, parts)]
        return with_points(told, path, error, not all(map(NUMERIC.fullmatch, parts[0])))
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
