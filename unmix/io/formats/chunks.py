"""Find the places of an HDF5 dataset's values in its file."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..read import PIECE

# Chunks whose places in the file are kept, 200 bytes each; those of larger datasets are looked up as they are needed.
MOST_PLACES = 100_000


@dataclass(frozen=True)
class Layout:
    """How a dataset lies in its file. HDF5 is not asked again: its global lock is held while it inflates another block.

    Attributes
    ----------
    shape : tuple of int
    steps : tuple of int
        The shape of a chunk; of a dataset without chunks, the part of it that is read at a time.
    chunked : bool
    itemsize : int
        Bytes of a value.
    offset : int or None
        Where in the file a dataset without chunks begins.
    places : mapping of tuple to (int, int), or None
        Offset and bytes of each chunk, by where it begins; None where they are too many.
    data : h5py.Dataset
    """

    shape: tuple[int, ...]
    steps: tuple[int, ...]
    chunked: bool
    itemsize: int
    offset: int | None
    places: Mapping[tuple[int, ...], tuple[int, int]] | None
    data: Any

    @classmethod
    def of(cls, data: Any) -> "Layout":
        """Look up how a dataset lies in its file."""
        places: dict[tuple[int, ...], tuple[int, int]] | None = None
        if data.chunks and data.id.get_num_chunks() <= MOST_PLACES:
            places = {}
            data.id.chunk_iter(lambda chunk: places.update({chunk.chunk_offset: (chunk.byte_offset, chunk.size)}))
        offset = None if data.chunks else data.id.get_offset()
        steps = data.chunks or slab(data)
        return cls(data.shape, steps, bool(data.chunks), data.dtype.itemsize, offset, places, data)

    def place(self, start: tuple[int, ...]) -> tuple[int, int] | None:
        """Return offset and bytes of the chunk that begins there; None where it was never written."""
        if self.places is not None:
            return self.places.get(start)
        chunk = self.data.id.get_chunk_info_by_coord(start)
        return None if chunk.byte_offset is None else (chunk.byte_offset, chunk.size)

    def stretches(self, wanted: Sequence[slice]) -> list[tuple[int, int]]:
        """Return the stretches ``(offset, bytes)`` of the file that hold a part of the dataset; of further axes, all is wanted.

        A guess at worst: what is missing from it the library reads for itself.
        """
        slices = of_each_axis(wanted, self.shape)
        bounds = [(part.start, part.stop) for part in slices]
        if self.chunked:
            places = (self.place(start) for start in starts_of(slices, self.steps))
            return [place for place in places if place is not None]
        if self.offset is None:
            return []
        last = max((axis for axis, (low, high) in enumerate(bounds) if high - low < self.shape[axis]), default=0)
        size = math.prod(self.shape[last + 1 :]) * self.itemsize  # of one step along the last axis that is not whole
        low, high = bounds[last]
        outer = itertools.product(*(range(*part) for part in bounds[:last]))
        firsts = (sum(at * math.prod(self.shape[i + 1 : last + 1]) for i, at in enumerate(place)) for place in outer)
        return [(self.offset + (first + low) * size, (high - low) * size) for first in firsts]


def of_each_axis(wanted: Sequence[slice], shape: Sequence[int]) -> list[slice]:
    """Return ``start:stop`` of each axis of a part of a dataset; of axes that ``wanted`` does not have, all."""
    slices = [*wanted, *(slice(None) for _ in shape[len(wanted) :])]
    return [slice(*part.indices(length)[:2]) for part, length in zip(slices, shape)]


def starts_of(wanted: Sequence[slice], steps: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Return where the chunks begin that hold a part of a dataset, ``start:stop`` of each axis."""
    return itertools.product(*(range(one.start // step * step, one.stop, step) for one, step in zip(wanted, steps)))


def slab(data: Any) -> tuple[int, ...]:
    """Return the shape to read at a time from a dataset without chunks: a part of its first axis, about `PIECE` bytes."""
    size = data.dtype.itemsize * math.prod(data.shape[1:])
    return (max(1, min(data.shape[0], PIECE // size)), *data.shape[1:])
