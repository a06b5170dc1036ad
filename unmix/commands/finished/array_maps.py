"""Maps in arrays of other programs, `FILE.npy` or `FILE.h5:/NAME`, whose axes the size of the other map tells."""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import InputError
from ...io import Cube, by_pixel, read_lines
from ...io.formats.array_files import open_array
from ...io.formats.matlab import open_variables

# A table has at least this many times as many pixels as endmembers; an image of one band has not.
FEWEST_TIMES = 4
# Orders of axes that are tried, the commonest first.
ORDERS = ("yxb", "byx", "ybx")


@dataclass(eq=False)
class ArrayMap(Cube):
    """An array (lines, samples, bands) as a cube; see `unmix.io.cube.Cube` for the attributes."""

    values: Any

    def fill(self, lines: slice, filled: np.ndarray) -> None:
        """Fill an array with whole lines."""
        filled[...] = self.values[lines]


def is_array(path: Path) -> bool:
    """Return whether a name is that of an array: a file of NumPy, or a dataset after the name of a file."""
    return path.suffix.lower() == ".npy" or (":" in str(path) and not path.exists())


def open_array_map(spec: Path, size: tuple[int, int] | None) -> ArrayMap:
    """Open a map of ``size`` (lines, samples); without one, an array of three axes whose shortest are the bands."""
    array = open_array(spec)
    path = spec if spec.exists() else Path(str(spec).rpartition(":")[0])
    values: Any = None
    if array.ndim == 3:
        short = ORDERS[1 if array.shape[0] < min(array.shape[1:]) else 0]
        fits = [one for one in ORDERS if size in (None, (array.shape[one.index("y")], array.shape[one.index("x")]))]
        order = short if size is None else next(iter(fits), None)
        values = None if order is None else np.moveaxis(array, [order.index(axis) for axis in "yxb"], [0, 1, 2])
    elif size is not None and array.ndim == 2:
        count = size[0] * size[1]
        if array.shape == size or count in array.shape:  # pixels line by line, as NumPy flattens an image
            flat = array if array.shape == size or array.shape[0] == count else np.asarray(array).T
            values = np.asarray(flat).reshape(*size, -1)
    if values is None:
        of = "" if size is None else f" of {size[0]} lines of {size[1]} samples"
        raise InputError(f"{spec}: its shape {array.shape} is no map{of}: (lines, samples, p), (p, lines, samples)")
    lines, samples, bands = values.shape
    return ArrayMap(path, path.stem, "array", lines, samples, bands, np.dtype(np.float64), "bip", values)


def tables_in(path: Path) -> list[tuple[int, int]]:
    """Return the lengths of the tables of a file, the longer first; none for any other file."""
    shapes: Any = [open_array(path).shape] if is_array(path) else []
    if path.suffix.lower() == ".mat":
        with contextlib.closing(open_variables(path)) as file:
            shapes = [*file.shapes.values()]
    return [(max(shape), min(shape)) for shape in shapes if len(shape) == 2 and min(shape) > 1]


def one_line(a: Path, b: Path) -> tuple[int, int] | None:
    """Return the size (1, pixels) of the one table that two files of one kind have; None where it is not clear."""
    both = [tables_in(path) for path in (a, b)]
    same = {one for one in both[0] if one in both[1] and one[0] >= FEWEST_TIMES * one[1]}
    alone = len(same) == 1 and all(sum(one[0] in shape for shape in some) == 1 for some in both for one in same)
    return (1, next(iter(same))[0]) if alone and is_array(a) == is_array(b) else None


def in_other_order(cube: Cube) -> ArrayMap | None:
    """Return a map read column by column in place of line by line, or the reverse; None of files that tell."""
    if not (isinstance(cube, ArrayMap) or cube.format.startswith("MATLAB")):
        return None
    values = by_pixel(read_lines(cube, slice(0, cube.lines)), cube.interleave)
    across = np.asarray(values).reshape(cube.samples, cube.lines, cube.bands).swapaxes(0, 1)
    return ArrayMap(cube.path, cube.stem, "array", *across.shape, np.dtype(np.float64), "bip", across)
