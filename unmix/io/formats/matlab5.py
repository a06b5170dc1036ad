"""Read MATLAB files of version 5 as a stream, with every count checked.

Our own, because scipy's reader (1.17) crashes at 56 of 3000 flips of one byte, cannot read a part of a variable, and
holds one whole in memory: 977 MB for a cube of 1.0 GB, where this one, which writes pieces to its scratch file, takes
42 MB and the same 17 s. (The format: MathWorks, MAT-File Format, "Level 5 MAT-Files".)
"""

import io
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from ...errors import CubeError

# Types of stored numbers, and classes of variables, by their numbers in the format.
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
TEXT = {1: 1, 2: 1, 4: 2, 16: 1, 17: 2, 18: 4}  # bytes of a character
MATRIX, COMPRESSED = 14, 15
CELL, CHAR = 1, 4
COMPLEX = 0x0800
MOST_VARIABLES, MOST_AXES, LONGEST_NAME, MOST_TEXT = 10_000, 32, 1000, 2**20
PIECE = 2**20
# Most numbers of a variable that is held in memory: (bands, pixels), or a library. 1 GiB of float64.
MOST_VALUES = 2**27
Shapes = dict[str, tuple[int, ...]]


def refuse_large(path: Path, name: str, shape: tuple[int, ...]) -> None:
    """Raise `CubeError` where a variable that must be held in memory has more than `MOST_VALUES` numbers."""
    if math.prod(shape) > MOST_VALUES:
        raise CubeError(f"{path}: '{name}' has the shape {shape}, too many numbers to hold in memory")


class Stream:
    """The bytes of a part of a file, inflated where compressed; a read returns all bytes asked for, or raises."""

    def __init__(self, path: Path, file: IO[bytes], size: int, packed: bool) -> None:
        self.path, self.file, self.left = path, file, size
        self.inflater = zlib.decompressobj() if packed else None

    def read(self, count: int) -> bytes:
        """Return the next ``count`` bytes; raise `CubeError` where there are fewer."""
        if self.inflater is None:
            raw = self.file.read(count) if count <= self.left else b""
            self.left -= len(raw)
        else:
            raw = self.inflate(count)
        if len(raw) != count:
            raise CubeError(f"{self.path}: a variable ends too early, or its bytes are damaged")
        return raw

    def inflate(self, count: int) -> bytes:
        """Return the next ``count`` inflated bytes, or fewer where the data ends; none where it is damaged."""
        assert self.inflater is not None
        out = bytearray()
        try:
            while len(out) < count:
                packed = self.inflater.unconsumed_tail
                if not packed:
                    packed = self.file.read(min(PIECE, self.left))
                    self.left -= len(packed)
                piece = self.inflater.decompress(packed, count - len(out))
                if not piece and not packed:
                    break
                out += piece
        except zlib.error:
            return b""
        return bytes(out)

    def end(self) -> None:
        """Read packed data to its checksum; raise `CubeError` where data are damaged or end too early."""
        if self.inflater is not None:
            self.inflate(8)  # what fills up the last element, and no more
            if not self.inflater.eof:
                raise CubeError(f"{self.path}: a variable ends too early, or its bytes are damaged")

    def tag(self, order: str) -> tuple[int, int, bytes | None]:
        """Return type and size of the next element, and its data if stored in the tag itself (at most 4 bytes)."""
        raw = self.read(8)
        first = int.from_bytes(raw[:4], "little" if order == "<" else "big")
        if first >> 16:
            kind, size = first & 0xFFFF, first >> 16
            return kind, size, raw[4 : 4 + min(size, 4)]
        return first, int.from_bytes(raw[4:], "little" if order == "<" else "big"), None

    def element(self, order: str, most: int) -> tuple[int, bytes]:
        """Return the type and data of an element of at most ``most`` bytes."""
        kind, size, data = self.tag(order)
        if size > (4 if data is not None else most):
            raise CubeError(f"{self.path}: an element of a variable claims {size} bytes; the file is damaged")
        if data is None:
            data = self.read(size)
            self.read(-size % 8)
        return kind, data


@dataclass(frozen=True)
class MatlabVariable:
    """A variable: the contents of its head, and where in the file it lies.

    ``kind`` is the number of its class; ``dtype`` is the type of its numbers, None where it holds none.
    """

    name: str
    kind: int
    shape: tuple[int, ...]
    dtype: np.dtype | None
    complex: bool
    place: int
    size: int
    packed: bool


class Version5:
    """A file of version 5.

    Raises
    ------
    CubeError
        Where the file is damaged, or a name occurs twice.
    """

    format = "MATLAB v5"

    def __init__(self, path: Path) -> None:
        self.path, self.file = path, open(path, "rb")  # noqa: SIM115 - closed with it
        head = self.file.read(128)
        self.order = {b"IM": "<", b"MI": ">"}.get(head[126:128], "")
        if not self.order:
            raise CubeError(f"{path}: is no MATLAB file of version 5: its first 128 bytes are damaged")
        self.end = self.file.seek(0, 2)
        self.variables: dict[str, MatlabVariable] = {}
        place = 128
        while place + 8 <= self.end and len(self.variables) < MOST_VARIABLES:
            self.file.seek(place)
            kind, size, _ = Stream(path, self.file, 8, False).tag(self.order)
            if kind not in (MATRIX, COMPRESSED) or place + 8 + size > self.end:
                raise CubeError(
                    f"{path}: byte {place}: no variable begins here, or it is cut short; the file is damaged"
                )
            variable = self.head(place + 8, size, kind == COMPRESSED)
            if variable.name and variable.name in self.variables:
                raise CubeError(f"{path}: the variable '{variable.name}' is in it twice")
            if variable.name:
                self.variables[variable.name] = variable
            place += 8 + size + (0 if kind == COMPRESSED else -size % 8)
        self.shapes: Shapes = {name: each.shape for name, each in self.variables.items() if each.dtype is not None}
        self.texts_of = [name for name, each in self.variables.items() if each.dtype is None]

    def dtype(self, name: str) -> np.dtype:
        """Return the type of a variable of numbers."""
        dtype = self.variables[name].dtype
        assert dtype is not None
        return dtype

    def stream(self, place: int, size: int, packed: bool) -> Stream:
        """Return the bytes of a variable after its own tag."""
        self.file.seek(place)
        stream = Stream(self.path, self.file, size, packed)
        if packed and stream.tag(self.order)[0] != MATRIX:
            raise CubeError(f"{self.path}: byte {place}: the compressed data is no variable; the file is damaged")
        return stream

    def head(self, place: int, size: int, packed: bool) -> MatlabVariable:
        """Read the first elements of a variable: its class, shape and name."""
        kind, shape, name, is_complex = self.head_of(self.stream(place, size, packed))
        dtype = np.dtype(CLASSES[kind]) if kind in CLASSES else None
        return MatlabVariable(name, kind, shape, dtype, is_complex, place, size, packed)

    def head_of(self, stream: Stream) -> tuple[int, tuple[int, ...], str, bool]:
        """Return the class, shape and name of a variable, and whether it is complex."""
        little = "little" if self.order == "<" else "big"
        _, raw = stream.element(self.order, 8)
        flags = int.from_bytes(raw[:4], little)  # type: ignore[arg-type]
        if flags & 0xFF == 17:  # an opaque MATLAB object: no shape follows
            return 17, (), "", False
        _, raw = stream.element(self.order, 4 * MOST_AXES)
        shape = tuple(int(n) for n in np.frombuffer(raw[: len(raw) // 4 * 4], self.order + "i4"))
        if len(shape) < 2 or min(shape) < 0:
            raise CubeError(f"{self.path}: a variable has the shape {shape}; the file is damaged")
        _, raw = stream.element(self.order, LONGEST_NAME)
        return flags & 0xFF, shape, raw.decode("ascii", "replace"), bool(flags & COMPLEX)

    def numbers(self, name: str) -> tuple[Stream, np.dtype, int]:
        """Return the stream of a variable's numbers, their stored type and their count."""
        variable = self.variables[name]
        if variable.complex:
            raise CubeError(f"{self.path}: '{name}' is complex; cubes and spectra are of real numbers")
        assert variable.dtype is not None
        stream = self.stream(variable.place, variable.size, variable.packed)
        self.head_of(stream)
        kind, size, small = stream.tag(self.order)
        count = math.prod(variable.shape)
        stored = np.dtype(self.order + STORED[kind]) if kind in STORED else None
        if stored is None or size != count * stored.itemsize or (stored.kind == "f" and variable.dtype.kind != "f"):
            raise CubeError(
                f"{self.path}: '{name}' is {variable.shape}, but holds {size} bytes of type {kind}; it is damaged"
            )
        if small is not None:
            stream = Stream(self.path, io.BytesIO(small), len(small), False)
        return stream, stored, count

    def pieces(self, name: str, count: int) -> Iterator[np.ndarray]:
        """Yield a variable's numbers in the order of the file, the first axis fastest, ``count`` at a time."""
        stream, stored, left = self.numbers(name)
        dtype = self.variables[name].dtype
        while left > 0:
            size = min(count, left)
            yield np.frombuffer(stream.read(size * stored.itemsize), stored).astype(dtype)
            left -= size
        stream.end()

    def value(self, name: str) -> np.ndarray:
        """Return a variable with its axes as in MATLAB."""
        variable = self.variables[name]
        refuse_large(self.path, name, variable.shape)
        values = np.empty(math.prod(variable.shape), variable.dtype)
        done = 0
        for piece in self.pieces(name, PIECE):
            values[done : done + len(piece)] = piece
            done += len(piece)
        return values.reshape(variable.shape, order="F")

    def planes(self, name: str) -> Iterator[np.ndarray]:
        """Yield what a variable of three axes holds for each place along the last, with the other two."""
        first, second, _ = self.shapes[name]
        for plane in self.pieces(name, first * second):
            yield plane.reshape(second, first).T

    def texts(self, name: str) -> list[str]:
        """Return the strings of a cell array, or the rows of a character array; `CubeError` for other cells."""
        variable = self.variables[name]
        stream = self.stream(variable.place, variable.size, variable.packed)
        self.head_of(stream)
        if variable.kind == CHAR:
            return self.rows(stream, variable.shape)
        texts: list[str] = []
        for _ in range(math.prod(variable.shape) if variable.kind == CELL else 0):
            if stream.tag(self.order)[0] != MATRIX or len(texts) > MOST_TEXT:
                raise CubeError(f"{self.path}: '{name}' is damaged")
            kind, shape, _, _ = self.head_of(stream)
            if kind != CHAR:
                raise CubeError(f"{self.path}: '{name}' holds something that is not text")
            texts.append(" ".join(self.rows(stream, shape)))
        return texts

    def rows(self, stream: Stream, shape: tuple[int, ...]) -> list[str]:
        """Return the rows of a character array, which is stored with its first axis fastest."""
        kind, raw = stream.element(self.order, MOST_TEXT)
        count = math.prod(shape)
        if count == 0:
            return [""]
        if kind not in TEXT or (kind != 16 and len(raw) != count * TEXT[kind]):
            raise CubeError(f"{self.path}: a text is damaged")
        if kind == 16:
            codes = np.array([ord(char) for char in raw.decode("utf-8", "replace")], np.uint32)
        else:
            codes = np.frombuffer(raw, f"{self.order}u{TEXT[kind]}").astype(np.uint32)
        if len(codes) != count or len(shape) != 2:
            raise CubeError(f"{self.path}: a text is damaged")
        return ["".join(map(character, row)).strip() for row in codes.reshape(shape, order="F").tolist()]

    def close(self) -> None:
        """Close the file."""
        self.file.close()


def character(code: Any) -> str:
    """Return the character of a code point; a blank for control characters, surrogates and numbers beyond Unicode."""
    return chr(int(code)) if 32 <= code < 0x110000 and not 0xD800 <= code < 0xE000 else " "
