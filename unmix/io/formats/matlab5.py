"""Read MATLAB files of version 5 by scipy, in a child process: damaged ones crash its reader (18 of 12 000 flips)."""

import contextlib
import io
import math
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import CubeError
from ..opening import open_plain
from ..probe import MOST_CHILD_SECONDS, survives

# Types of numbers by the name of their class.
CLASSES = {"double": "f8", "single": "f4", "logical": "u1"}
CLASSES |= {f"{sign}int{bits}": f"{sign or 'i'}{bits // 8}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
TEXTS = ("cell", "char")
# Numbers of elements that are variables, as they are and compressed; bytes in which a variable's head lies.
VARIABLES, HEAD = (14, 15), 2**16
# Types of stored numbers by their numbers; of others scipy reads whatever lies in memory.
STORED = {1, 2, 3, 4, 5, 6, 7, 9, 12, 13}
# Bytes that the slowest machine reads in a second.
BYTES_A_SECOND = 4e6
# Most bytes of a variable that is held in memory: version 5 holds no more.
MOST_BYTES = 2**31
Shapes = dict[str, tuple[int, ...]]


def refuse_large(path: Path, name: str, shape: tuple[int, ...], itemsize: int) -> int:
    """Return the bytes of a variable that must be held in memory; `CubeError` where they exceed `MOST_BYTES`."""
    size = math.prod(shape) * itemsize
    if size > MOST_BYTES:
        raise CubeError(f"{path}: '{name}' has the shape {shape}, too many numbers to hold in memory")
    return size


def heads_of(path: Path) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """Yield name, shape and class of each variable but opaque objects; `CubeError` where the file is damaged."""
    from scipy.io import whosmat  # 0.1 s, which not every library and cube needs

    with open_plain(path) as file:
        start, end, place = file.read(128), file.seek(0, 2), 128
        order = "<u4" if start.endswith(b"IM") else ">u4"
        if start[126:] not in (b"IM", b"MI"):
            raise CubeError(f"{path}: is no MATLAB file of version 5: its first 128 bytes are damaged")
        while place + 8 <= end:
            file.seek(place)
            tag = file.read(8)
            kind, size = np.frombuffer(tag, order).tolist()
            if kind not in VARIABLES or place + 8 + size > end:
                raise CubeError(
                    f"{path}: byte {place}: no variable begins here, or it is cut short; the file is damaged"
                )
            raw = file.read(min(size, HEAD))
            with contextlib.suppress(TypeError):  # of an opaque object, whose shape scipy does not know
                for head in whosmat(io.BytesIO(start + tag + raw)):
                    # A compressed variable has a checksum.
                    if head[2] in CLASSES and kind == VARIABLES[0] and type_of_numbers(raw, order) not in STORED:
                        raise CubeError(f"{path}: '{head[0]}' holds numbers of no type that is known; it is damaged")
                    yield head
            place += 8 + size


def type_of_numbers(raw: bytes, order: str) -> int:
    """Return the number of the type of a variable's numbers, from its first bytes after its own tag."""
    at = 16  # after its class
    for _ in range(2):  # its shape and its name, in the tag itself where they are short
        first, size = np.frombuffer(raw, order, 2, at).tolist()
        at += 8 if first >> 16 else 8 + -(-size // 8) * 8
    return int(np.frombuffer(raw, order, 1, at)[0]) & 0xFFFF


class Version5:
    """A file of version 5.

    Raises
    ------
    CubeError
        Where the file is damaged, or a name occurs twice.
    """

    format = "MATLAB v5"

    def __init__(self, path: Path) -> None:
        self.path = path
        survives(path, lambda: list(heads_of(path)), what="MATLAB")
        found = [one for one in heads_of(path) if not one[0].startswith("__")]  # a workspace of functions, unnamed
        names = [name for name, _, _ in found]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise CubeError(f"{path}: the variable '{twice}' is in it twice")
        self.types = {name: np.dtype(CLASSES[kind]) for name, _, kind in found if kind in CLASSES}
        self.shapes: Shapes = {name: shape for name, shape, kind in found if kind in CLASSES}
        self.texts_of = [name for name, _, kind in found if kind in TEXTS]

    def dtype(self, name: str) -> np.dtype:
        """Return the type of a variable of numbers."""
        return self.types[name]

    def loaded(self, name: str) -> Any:
        """Return a variable as scipy reads it, in this process."""
        from scipy.io import loadmat

        return loadmat(self.path, variable_names=[name])[name]

    def value(self, name: str) -> np.ndarray:
        """Return a variable with its axes as in MATLAB; a child reads it into memory that both processes share."""
        shape, dtype = self.shapes[name], self.types[name]
        size = refuse_large(self.path, name, shape, dtype.itemsize)
        memory = mmap.mmap(-1, size + 1)
        values = np.frombuffer(memory, dtype, math.prod(shape)).reshape(shape, order="F")

        def read() -> None:
            found = self.loaded(name)
            if found.dtype.kind == "c":
                raise CubeError(f"{self.path}: '{name}' is complex; cubes and spectra are of real numbers")
            values[...] = found
            memory[size] = 1  # all of it has arrived

        survives(self.path, read, MOST_CHILD_SECONDS + size / BYTES_A_SECOND, "MATLAB")
        if not memory[size]:
            read()  # and raise what is wrong
        return values

    def texts(self, name: str) -> list[str]:
        """Return the strings of a cell array, or the rows of a character array; `CubeError` for other cells."""
        survives(self.path, lambda: self.loaded(name), what="MATLAB")
        cells = [np.atleast_1d(cell) for cell in np.ravel(self.loaded(name), order="F")]
        if any(cell.dtype.kind != "U" for cell in cells):
            raise CubeError(f"{self.path}: '{name}' holds something that is not text")
        return [" ".join("".join(map(character, map(ord, row))).strip() for row in cell) for cell in cells]

    def close(self) -> None:
        """Do nothing: no file stays open."""


def character(code: Any) -> str:
    """Return the character of a code point; a blank for control characters, surrogates and numbers beyond Unicode."""
    return chr(int(code)) if 32 <= code < 0x110000 and not 0xD800 <= code < 0xE000 else " "
