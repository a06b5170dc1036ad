"""Put libraries together, and rename and classify their spectra by a table."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import LibraryError
from .spectra import Endmembers, colours_of_all, each_once
from .table import cells_of

log = logging.getLogger("unmix")
# Columns of a table of names: a spectrum, its new name and its class; cells that are empty change nothing.
COLUMNS = "name", "new name", "class"
# Libraries whose largest values differ more are likely in two units.
OTHER_UNIT = 50.0
# The class of a spectrum that has none, as libraries are read.
NO_CLASS = "none"


def merged(libraries: Sequence[Endmembers]) -> Endmembers:
    """Return the spectra of libraries on one axis, in order; names that occur again get a number.

    Spectra have classes where any library has some: the others have none.

    Raises
    ------
    LibraryError
        Where two libraries are on different axes, or only one has widths of channels.
    """
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
                    f"{other.source}: has other {what} than {first.source}; bring both to the bands of a cube with unmix library "
                    "resample"
                )
    sizes = [float(np.abs(one.matrix[one.valid]).max(initial=0.0)) for one in libraries]
    if min(sizes) > 0 and max(sizes) > OTHER_UNIT * min(sizes):
        large, small = libraries[int(np.argmax(sizes))], libraries[int(np.argmin(sizes))]
        log.warning(
            f"{large.source}: its values are up to {max(sizes) / min(sizes):.3g} times those of {small.source}; are they in "
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


def table_of(library: Endmembers) -> list[tuple[str, str, str]]:
    """Return a row for each spectrum, for `renamed`: its name, an empty cell for a new one, and its class."""
    return [
        (name, "", "" if kind == NO_CLASS else kind)
        for name, kind in zip(library.names, library.classes or (NO_CLASS,) * len(library.names))
    ]


def renamed(library: Endmembers, path: Path, raw: bytes) -> Endmembers:
    """Return a library with the new names and classes of a table; ``raw`` is the content of that file.

    Raises
    ------
    LibraryError
        Where it has no such column, a spectrum that the library lacks or one twice, or two spectra get one name.
    """
    rows = cells_of(path, raw, COLUMNS[:1], "a table of names (unmix library table writes one)", COLUMNS[1:])
    names, kinds, seen = list(library.names), list(library.classes or (NO_CLASS,) * len(library.names)), set[str]()
    for r, (name, new_name, kind) in rows:
        if name not in library.names or name in seen:
            fault = "is named twice" if name in seen else "is no spectrum of the library"
            raise LibraryError(f"{path}: row {r}: '{name}' {fault}")
        seen.add(name)
        at = library.names.index(name)
        names[at] = new_name or names[at]
        kinds[at] = kind or kinds[at]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise LibraryError(f"{path}: two spectra get the name '{twice}'")
    return replace(library, names=tuple(names), classes=tuple(kinds) if set(kinds) != {NO_CLASS} else None)
