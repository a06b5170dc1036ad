"""A cube in a Zarr store: one array, or an array for each band."""

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from zarr.buffer.cpu import NDBuffer

from ....errors import CubeError
from ...cube import FileCube
from ...read import MOST_TOGETHER, Scratch, brief
from ...scratch import LARGEST_CHUNK, MOST_OF_A_STRIP, from_pieces
from ..header import MOST_BANDS
from .store import Store, codecs_of, type_read

# Most chunks that one line may lie in: each is a file of its own, or a part of one.
MOST_CHUNKS = 20_000


@dataclass
class Slab:
    """An array that holds bands of a cube, all or one.

    Attributes
    ----------
    array : zarr.Array
    axes : str
        What each of its axes is: y, x, b, or 1 for one of length 1 that is none of them.
    """

    array: Any
    axes: str

    def read(self, lines: slice, samples: slice = slice(None), bands: slice = slice(None)) -> np.ndarray:
        """Return a part of it as (bands, lines, samples), a view with the axes turned."""
        wanted = {"y": lines, "x": samples, "b": bands, "1": 0}
        values = np.asarray(self.array[tuple(wanted[axis] for axis in self.axes)])
        left = [axis for axis in self.axes if axis != "1"]
        if "b" not in left:
            values, left = values[None], ["b", *left]
        return values.transpose([left.index(axis) for axis in "byx"])

    @property
    def grid(self) -> list[int]:
        """The numbers of shards, or else of chunks, along its axes: each is a file, or a member of an archive."""
        return [-(-n // step) for n, step in zip(self.array.shape, self.array.shards or self.array.chunks)]

    def length(self, axis: str) -> int:
        """Return its length along y, x or b."""
        return int(self.array.shape[self.axes.index(axis)]) if axis in self.axes else 1

    def chunk(self, axis: str) -> int:
        """Return the length of a chunk along y, x or b: of the inner chunks of shards."""
        return int(self.array.chunks[self.axes.index(axis)]) if axis in self.axes else 1


@dataclass(eq=False)
class ZarrCube(FileCube):
    """A cube in a Zarr store; see `unmix.io.cube.Cube` for the attributes.

    ``slabs`` are the arrays that hold its bands, in order, and ``names`` those of the arrays within the store.
    """

    slabs: list[Slab]
    names: list[str]

    def fill(self, lines: slice, filled: np.ndarray) -> None:
        """Fill an array with whole lines as stored."""
        (one, *others), order = self.slabs, {"bip": "yxb", "bil": "ybx", "bsq": "byx"}[self.interleave]
        if not others and one.axes == order and one.array.dtype == filled.dtype:
            wanted = tuple(lines if axis == "y" else slice(None) for axis in order)
            one.array.get_basic_selection(wanted, out=NDBuffer.from_numpy_array(filled))  # straight into its place
            return
        place = {"bip": (2, 0, 1), "bil": (1, 0, 2), "bsq": (0, 1, 2)}[self.interleave]
        out = filled.transpose(place)
        first = 0
        for slab in self.slabs:
            out[first : first + slab.length("b")] = slab.read(lines)
            first += slab.length("b")

    def storage(self) -> dict[str, Any]:
        """Return how the store holds the cube; see `unmix.io.cube.Cube.storage`."""
        arrays = [slab.array for slab in self.slabs]
        return {
            "datasets": [f"/{name}" for name in self.names],
            "zarr": arrays[0].metadata.zarr_format,
            "chunks": [list(array.chunks) for array in arrays],
            "shards": [None if array.shards is None else list(array.shards) for array in arrays],
            "codecs": [codecs_of(array) for array in arrays],
        }

    def keys(self) -> list[str]:
        """Return the names of some chunks within the store, spread evenly over each array."""
        names = []
        for slab, name in zip(self.slabs, self.names):
            array = slab.array
            prefix = f"{name}/" if name else ""
            grid, count = slab.grid, math.prod(slab.grid)
            for k in range(min(count, 64)):
                place = np.unravel_index(k * (count - 1) // max(1, min(count, 64) - 1), grid)
                names.append(prefix + array.metadata.encode_chunk_key(tuple(map(int, place))))
        return names


def cube_of(store: Store, slabs: list[Slab]) -> ZarrCube:
    """Return the cube of some arrays, all of one size and type; read as it is stored, or inflated once where chunks hold many lines.

    Raises
    ------
    CubeError
        Where it is empty, has too many bands, is of a type that is not read, or has chunks that are too large or too small.
    """
    path, first, bands = store.path, slabs[0], sum(slab.length("b") for slab in slabs)
    lines, samples, dtype = first.length("y"), first.length("x"), type_read(first.array)
    names = [store.name_of(slab.array) for slab in slabs]
    name = f"/{brief(names[0]) if names[0] else ''}"
    assert dtype is not None
    if 0 in (lines, samples, bands):
        raise CubeError(f"{path}: {name} has the shape {first.array.shape}; a cube has three axes, none empty")
    if bands > MOST_BANDS:
        raise CubeError(f"{path}: {name} has {bands} bands as {first.axes}; is the order of its axes another?")
    chunk = max(math.prod(slab.array.chunks) * dtype.itemsize for slab in slabs)
    if chunk > LARGEST_CHUNK:
        raise CubeError(
            f"{path}: {name} has chunks of {chunk} bytes, more than {LARGEST_CHUNK >> 20} MiB; chunk it anew"
        )
    across = sum(-(-slab.length("b") // slab.chunk("b")) * -(-samples // slab.chunk("x")) for slab in slabs)
    if across > MOST_CHUNKS:
        raise CubeError(f"{path}: {name} has {across} chunks for a line; too many to be read: chunk it anew")
    order = "".join(axis for axis in first.axes if axis != "1")
    interleave = {"yxb": "bip", "ybx": "bil"}.get(order, "bsq")
    together = max(slab.chunk("y") for slab in slabs)
    cube = ZarrCube(
        path, "", "Zarr", lines, samples, bands, dtype, interleave, slabs, names, lines_together=min(together, lines)
    )
    if cube.lines_together * samples * bands * dtype.itemsize > MOST_TOGETHER and cube.lines_together > 1:
        shape = [bands, lines, samples]
        cube.scratch = Scratch(functools.partial(scratch_of, path, slabs, shape, dtype))
        cube.interleave, cube.lines_together = "bsq", 1
    return cube


def scratch_of(path: Path, slabs: list[Slab], shape: list[int], dtype: np.dtype) -> Any:
    """Write all arrays into a scratch file as (bands, lines, samples); each chunk is decoded once."""
    size = math.prod(shape) * dtype.itemsize
    return from_pieces(path, size, pieces_of(path, slabs, dtype), shape)


def pieces_of(path: Path, slabs: list[Slab], dtype: np.dtype) -> Iterator[tuple[list[int], np.ndarray]]:
    """Yield the values of whole chunks, in parts of about `MOST_OF_A_STRIP` bytes, each with its band, line and sample."""
    first = 0
    for slab in slabs:
        lengths, steps = ([part(axis) for axis in "byx"] for part in (slab.length, slab.chunk))
        for axis in (2, 0, 1):  # more samples first, so that whole lines are written
            size = math.prod(map(min, steps, lengths)) * dtype.itemsize
            steps[axis] *= max(1, min(MOST_OF_A_STRIP // size, -(-lengths[axis] // steps[axis])))
        for start in itertools.product(*(range(0, n, step) for n, step in zip(lengths, steps))):
            b, y, x = (slice(at, min(at + step, n)) for at, step, n in zip(start, steps, lengths))
            try:
                values = slab.read(y, x, b)
            except CubeError:
                raise
            except Exception as error:  # zarr raises many kinds of errors for a damaged chunk
                raise CubeError(f"{path}: /{brief(slab.array.path)} cannot be inflated: {brief(error)}") from None
            yield [first + start[0], start[1], start[2]], np.ascontiguousarray(values, dtype)
        first += slab.length("b")
