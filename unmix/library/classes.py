"""Classes of a library's spectra: read from a table, used to sum abundances; libraries merged and renamed."""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CubeError, LibraryError
from ..io import NODATA, counted, located, read_small
from ..io.formats.header import clean
from ..later import later
from .fractions import Normalization
from .spectra import SHADE, Endmembers, colours_in_words, colours_of_all, each_once

is_number, read_rows = (later(__package__, f"table:{name}") for name in ("is_number", "read_rows"))

# The class of a spectrum for which a table of classes has no row, until it is refused; no table can hold it.
LACKS = "\0"
# The last map of fractions: the sum of all abundances except shade's.
BRIGHTNESS = "brightness"
# The name of the same band where abundances have weights (`unmix.library.fractions`).
SCALE = "scale"
# Bands of maps of fractions that are no share of the ground.
OF_LIGHT = BRIGHTNESS, SCALE


def classified(parts: Sequence[Endmembers], classes: str, path: Path) -> list[Endmembers]:
    """Return the parts of a library with classes from ``COLUMN`` of itself, a CSV file, or ``FILE:COLUMN``."""
    file, column = table_of_classes(classes)
    table = located(file) if file else path
    is_name = not file and column.strip().lower() == "name"
    if not file and not is_table(path):
        if is_name:
            return each_alone(parts)
        raise LibraryError(
            f"{path}: has no columns, so {column} is none of them; `classes` FILE:COLUMN names that of a table"
        )
    try:
        rows = [cells for _, cells in read_rows(table, read_small(table))]
    except CubeError as error:
        raise LibraryError(f"{error} (`classes`)") from None
    heading = rows[0] if rows else []
    column = column or column_of_classes(heading, rows[1:], [name for part in parts for name in part.names])
    place = next((i for i, cell in enumerate(heading) if cell.lower() == column.strip().lower()), None)
    if place is None and is_name:
        return each_alone(parts)
    if place is None:
        known = ", ".join(cell for cell in heading if cell and not cell[0].isdigit())[:200]
        fault = (
            f"has no column '{column}'"
            if column
            else f"which of its columns has the classes? Name it: `classes` {file}:COLUMN"
        )
        raise LibraryError(f"{table}: {fault} (`classes`); it has {known or 'no heading'}")
    if not file and is_number(heading[place]):
        raise LibraryError(
            f"{table}: its column '{heading[place]}' is a band, and has no classes; name another one (`classes`)"
        )
    body = [[*(clean(cell) for cell in row), *[""] * (len(heading) - len(row))] for row in rows[1:]]
    kinds = [row[place] or "none" for row in body]
    names = [name for part in parts for name in part.names]
    if file:
        which = rows_by_name(body, names, table)
        kinds = [kinds[i] if i >= 0 else LACKS for i in which]
        tint = next((i for i, cell in enumerate(heading) if cell.lower() == "color"), None)
        if tint is not None:
            tints = iter(colours_in_words([body[i][tint] if i >= 0 else "" for i in which], table) or [""] * len(names))
            parts = [replace(part, colors=tuple(next(tints) for _ in part.names)) for part in parts]
    if len(kinds) != len(names):
        raise LibraryError(f"{table}: {len(kinds)} classes for {len(names)} spectra")
    remaining = iter(kinds)
    return [replace(part, classes=tuple(next(remaining) for _ in part.names)) for part in parts]


def each_alone(parts: Sequence[Endmembers]) -> list[Endmembers]:
    """Return the parts of a library with a class for each spectrum, of its name."""
    return [replace(part, classes=part.names) for part in parts]


def table_of_classes(classes: str) -> tuple[str, str]:
    """Return file and column of ``FILE:COLUMN``, ``FILE`` (an existing CSV table) or ``COLUMN``; "" where not given."""
    file, _, column = classes.rpartition(":")
    return (column, "") if not file and is_table(located(column)) else (file, column)


def is_table(path: Path) -> bool:
    """Return whether a path leads to a CSV table."""
    return path.suffix.lower() in (".csv", ".txt") and path.is_file()


def column_of_classes(heading: Sequence[str], body: Sequence[Sequence[str]], names: Sequence[str]) -> str:
    """Return the column of classes: ``class``, or the only one beside the names; "" where there is none."""
    if "class" in [cell.lower() for cell in heading]:
        return "class"
    own = set(each_once(names))
    others = [cell for i, cell in enumerate(heading) if not own & {row[i] for row in body if i < len(row)}]
    return others[0] if len(others) == 1 and len(heading) > 1 else ""


def rows_by_name(body: list[list[str]], names: Sequence[str], table: Path) -> list[int]:
    """Return each name's row, −1 without one, by the column with most names; case, blanks and signs may differ."""
    columns = [each_once([row[i] for row in body]) for i in range(len(body[0]))] if body else []
    keys = {plain(name) for name in names}
    best = max(columns, key=lambda column: len(keys & {plain(cell) for cell in column}), default=())
    # A name without an equal row has the only row that is equal but for case, blanks and signs.
    rows = {name: i for i, name in enumerate(best)}
    # A row that equals a name to the letter is meant by no other name.
    counts = Counter(map(plain, {*best} ^ {*names}))
    like = {plain(name): i for i, name in enumerate(best) if name not in names and counts[plain(name)] == 2}
    which = [rows.get(name, like.get(plain(name), -1)) for name in names]
    alike = sum(name not in rows for name, row in zip(names, which) if row >= 0)
    if alike:
        log.info(f"{table}: {counted(alike, 'name')} matched but for case, blanks and signs")
    others = [name for i, name in enumerate(best) if i not in which]
    if others and max(which) >= 0:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        log.info(f"{table}: no spectrum is for the row '{others[0]}'{more}")
    return which


def plain(name: str) -> str:
    """Return a name without case, blanks and signs."""
    return "".join(filter(str.isalnum, name.casefold()))


def refuse_lacking(parts: Sequence[Endmembers], classes: str) -> None:
    """Raise `LibraryError` where a table had no row for one of the spectra."""
    lacking = [name for part in parts for name, kind in zip(part.names, part.classes or ()) if kind == LACKS]
    if lacking:
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        none = len(lacking) == sum(len(part.names) for part in parts)
        hint = (
            "one column of `classes` needs their names"
            if none
            else f"add it, or leave it out with `select` '!{lacking[0]}'"
        )
        raise LibraryError(f"{classes}: no row is for the spectrum '{lacking[0]}'{more}; {hint}")


# The message about a library without classes, for commands that need them.
NO_CLASSES = (
    "its spectra have no classes; name a column of them with `classes`, or `classes` name for a class each (`unmix "
    "library convert` to .csv has a row for each, to fill in)"
)


@dataclass(frozen=True)
class ClassSums:
    """How abundances are summed by class.

    Attributes
    ----------
    names : tuple of str
        The classes, in the order of their first spectra.
    members : tuple of tuples of int
        The numbers of the spectra of each, from 0.
    has_shade : bool
        Whether the last endmember is shade, which belongs to no class.
    normalized : bool
        Whether sums are divided by the sum of all of them, so that shade is taken out.
    rest_is_shade : bool
        Whether shade is no endmember, but what the sum lacks to one.
    weights : tuple of floats, optional
        Factor of each abundance in sums of fractions: the last of the bands is the scale then, no
        band is shade, and a pixel without any light has sums 0.
    """

    names: tuple[str, ...]
    members: tuple[tuple[int, ...], ...]
    has_shade: bool
    normalized: bool
    rest_is_shade: bool = False
    weights: tuple[float, ...] | None = None

    @classmethod
    def of(cls, endmembers: Endmembers, normalized: bool, rest_is_shade: bool = False) -> "ClassSums":
        """Return the sums for a set of endmembers; `LibraryError` where they have no classes."""
        kinds = endmembers.classes
        if kinds is None:
            raise LibraryError(f"{endmembers.source}: {NO_CLASSES}")
        kinds = kinds[: len(kinds) - endmembers.has_shade]
        names = tuple(dict.fromkeys(kinds))
        members = tuple(tuple(j for j, kind in enumerate(kinds) if kind == name) for name in names)
        return cls(names, members, endmembers.has_shade, normalized, rest_is_shade)

    @property
    def bands(self) -> tuple[str, ...]:
        """The names of the bands of `fractions`."""
        last = BRIGHTNESS if self.weights is None else SCALE
        return each_once([*self.names, *[SHADE] * (self.has_shade or self.rest_is_shade), last])

    def weighted(self, normalization: Normalization | None) -> "ClassSums":
        """Return the sums of fractions; of abundances without a normalization."""
        if normalization is None:
            return self
        return replace(self, normalized=True, has_shade=False, weights=tuple(normalization.weights.tolist()))

    @classmethod
    def of_each(cls, names: tuple[str, ...], normalization: Normalization, has_shade: bool) -> "ClassSums":
        """Return the "sums" of each endmember alone, but shade: its fraction."""
        own = names[: len(names) - has_shade]
        return cls(own, tuple((j,) for j in range(len(own))), False, True).weighted(normalization)

    def models(self, abundance: np.ndarray, masked: np.ndarray) -> np.ndarray:
        """Return each class's spectrum in the model, from 1, 0 for none: (n, classes, samples) float32."""
        n, _, samples = abundance.shape
        numbers = np.zeros((n, len(self.names), samples), np.float32)
        for c, members in enumerate(self.members):
            for j in members:
                numbers[:, c] += np.float32(j + 1) * (abundance[:, j] != 0)
        return np.where(masked[:, None], np.float32(NODATA), numbers)

    def largest(self, abundance: np.ndarray, masked: np.ndarray) -> np.ndarray:
        """Return the first class (from 1) of largest sum, 0 without a sum above 0: (n, 1, samples) uint8."""
        sums = replace(self, normalized=False).values(abundance)[:, : len(self.names)]
        none = masked | ~(sums.max(axis=1) > 0)
        return np.where(none, 0, sums.argmax(axis=1) + 1).astype(np.uint8)[:, None]

    def to_list(self) -> list[Any]:
        """Return the names of the classes, and the numbers of their spectra, as JSON has them."""
        return [list(self.names), [list(members) for members in self.members]]

    def means(self, abundances: np.ndarray) -> list[dict[str, Any]]:
        """Return name, number of spectra and mean abundance of each class, from the mean of each endmember (p,)."""
        return [
            {"name": name, "spectra": len(members), "mean": float(abundances[list(members)].sum())}
            for name, members in zip(self.names, self.members)
        ]

    def fractions(self, abundance: np.ndarray, masked: np.ndarray) -> np.ndarray:
        """Return float32 sums (n, bands, samples) of abundances (n, p, samples): classes, shade, brightness."""
        with np.errstate(over="ignore"):
            bands = np.nan_to_num(
                self.values(abundance), nan=NODATA if self.weights is None else 0.0, posinf=np.inf, neginf=-np.inf
            ).astype(np.float32)
        return np.where(masked[:, None], np.float32(NODATA), bands)

    def values(self, abundance: np.ndarray) -> np.ndarray:
        """Return the bands of `fractions` in float64, NaN where normalized and the brightness is not above 0."""
        n, _, samples = abundance.shape
        sums = np.zeros((n, len(self.names), samples))
        for c, members in enumerate(self.members):
            for j in members:
                sums[:, c] += abundance[:, j] if self.weights is None else self.weights[j] * abundance[:, j]
        brightness = np.zeros((n, samples))
        for c in range(len(self.names)):
            brightness += sums[:, c]
        if self.normalized:
            lit = brightness[:, None] > 0
            sums = np.divide(sums, brightness[:, None], out=np.full(sums.shape, np.nan), where=lit)
        shade = [abundance[:, -1:]] if self.has_shade else []
        shade = [1.0 - brightness[:, None]] if self.rest_is_shade else shade
        return np.concatenate([sums, *shade, brightness[:, None]], axis=1)


log = logging.getLogger("unmix")
# Libraries whose largest values differ more are likely in two units.
OTHER_UNIT = 50.0
# The class of a spectrum that has none, as libraries are read.
NO_CLASS = "none"


def merged_libraries(libraries: Sequence[Endmembers]) -> Endmembers:
    """Return the spectra of libraries on one axis, in order; repeated names get a number."""
    first = libraries[0]
    for other in libraries[1:]:
        for what, a, b in (
            ("channels", first.wavelengths, other.wavelengths),
            ("widths of channels", first.fwhm, other.fwhm),
        ):
            same = a is b is None or (
                a is not None and b is not None and a.shape == b.shape and np.allclose(a, b, rtol=1e-6)
            )
            if not same or len(first.matrix) != len(other.matrix):
                raise LibraryError(
                    f"{other.source}: has other {what} than {first.source}; bring both to the bands of a cube with "
                    "unmix library "
                    "resample"
                )
    sizes = [float(np.abs(one.matrix[one.valid]).max(initial=0.0)) for one in libraries]
    if min(sizes) > 0 and max(sizes) > OTHER_UNIT * min(sizes):
        large, small = libraries[int(np.argmax(sizes))], libraries[int(np.argmin(sizes))]
        log.warning(
            f"{large.source}: its values are up to {max(sizes) / min(sizes):.3g} times those of {small.source}; are "
            "they in "
            "one unit?"
        )
    names = each_once([name for one in libraries for name in one.names])
    kinds = [kind for one in libraries for kind in one.classes or (NO_CLASS,) * len(one.names)]
    classes = tuple(kinds) if any(one.classes for one in libraries) else None
    matrix = np.column_stack([one.matrix for one in libraries])
    own: dict[str, Any] = {"names": names, "classes": classes, "colors": colours_of_all(libraries)}
    return replace(first, matrix=matrix, pixels=None, scenes=None, has_shade=False, **own)


def of_channels(library: Endmembers, keep: np.ndarray) -> Endmembers:
    """Return a library with some of its channels, by a mask (L,)."""
    axes: dict[str, Any] = {
        name: None if axis is None else axis[keep]
        for name, axis in (("wavelengths", library.wavelengths), ("fwhm", library.fwhm))
    }
    return replace(library, matrix=np.ascontiguousarray(library.matrix[keep]), **axes)
