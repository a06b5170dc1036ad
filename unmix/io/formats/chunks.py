"""Chunks of an HDF5 dataset: where they lie in the file, as they are stored, and their values."""

import itertools
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np

from ..read import PIECE

# Chunks whose places in the file are kept, 200 bytes each; those of larger datasets are looked up as they are needed.
MOST_PLACES = 100_000
DEFLATE, SHUFFLE = h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE


@dataclass(frozen=True)
class Layout:
    """How a dataset lies in its file. The library is not asked again: it would let nobody in while it inflates for another block.

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

    def stretches_of_chunks(self, starts: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
        """Return the stretches ``(offset, bytes)`` of the file that hold the chunks, or slabs, that begin at ``starts``."""
        windows = ([slice(at, at + step) for at, step in zip(start, self.steps)] for start in starts)
        return [one for wanted in windows for one in self.stretches(wanted)]

    def stretches(self, wanted: Sequence[slice]) -> list[tuple[int, int]]:
        """Return the stretches ``(offset, bytes)`` of the file that hold a part of the dataset; of further axes, all is wanted.

        A guess at worst: what is missing from it the library reads for itself.
        """
        slices = [*wanted, *(slice(None) for _ in self.shape[len(wanted) :])]
        bounds = [part.indices(length)[:2] for part, length in zip(slices, self.shape)]
        if self.chunked:
            starts = (range(low // step * step, high, step) for (low, high), step in zip(bounds, self.steps))
            places = (self.place(start) for start in itertools.product(*starts))
            return [place for place in places if place is not None]
        if self.offset is None:
            return []
        last = max((axis for axis, (low, high) in enumerate(bounds) if high - low < self.shape[axis]), default=0)
        size = math.prod(self.shape[last + 1 :]) * self.itemsize  # of one step along the last axis that is not whole
        low, high = bounds[last]
        outer = itertools.product(*(range(*part) for part in bounds[:last]))
        firsts = (sum(at * math.prod(self.shape[i + 1 : last + 1]) for i, at in enumerate(place)) for place in outer)
        return [(self.offset + (first + low) * size, (high - low) * size) for first in firsts]


def filters_of(data: Any) -> list[int] | None:
    """Return the filters of a dataset's chunks, in the order of writing.

    None where only the HDF5 library can decode a chunk: other filters, checksums, integers that use a part of their bits (seen:
    12 of 16).
    """
    properties = data.id.get_create_plist()
    filters = [properties.get_filter(i)[0] for i in range(properties.get_nfilters())]
    plain = data.id.get_type().equal(h5py.h5t.py_create(data.dtype))
    return filters if plain and set(filters) <= {DEFLATE, SHUFFLE} else None


def slab(data: Any) -> tuple[int, ...]:
    """Return the shape to read at a time from a dataset without chunks: a part of its first axis, about `PIECE` bytes."""
    size = data.dtype.itemsize * math.prod(data.shape[1:])
    return (max(1, min(data.shape[0], PIECE // size)), *data.shape[1:])


def stored(data: Any, start: tuple[int, ...], steps: tuple[int, ...], filters: list[int] | None) -> bytes | np.ndarray:
    """Return the bytes of a chunk as stored, or its values where the HDF5 library must decode it."""
    whole_chunk = data.chunks is not None and all(at + n <= length for at, n, length in zip(start, steps, data.shape))
    if filters is not None and whole_chunk:  # a chunk at the edge may be stored without the filters
        try:
            mask, raw = data.id.read_direct_chunk(start)
            if mask == 0:
                return bytes(raw)
        except (OSError, RuntimeError, ValueError, MemoryError):  # MemoryError: the chunk was never written
            pass  # the library knows the fill value, and other ways of storing
    padded = np.empty(steps, data.dtype)
    within = tuple(slice(at, min(at + step, length)) for at, step, length in zip(start, steps, data.shape))
    values = data[within]
    padded[tuple(slice(0, length) for length in values.shape)] = values
    return padded


def decoded(raw: bytes, data: Any, filters: list[int] | None) -> np.ndarray:
    """Return the values of a chunk; zlib releases Python's lock while it inflates."""
    size = math.prod(data.chunks) * data.dtype.itemsize
    for kind in reversed(filters or []):
        if kind == DEFLATE:
            inflater = zlib.decompressobj()
            raw = inflater.decompress(raw, size + 1)
            if len(raw) == size and not inflater.eof:  # the checksum at the end is still to be read
                raw += inflater.decompress(inflater.unconsumed_tail, 1)
            if not inflater.eof:
                raise ValueError("a chunk is cut short, or inflates to more than it holds")
        else:
            raw = np.frombuffer(raw, np.uint8).reshape(data.dtype.itemsize, -1).T.tobytes()
    if len(raw) != size:
        raise ValueError(f"a chunk inflates to {len(raw)} bytes, not {size}")
    return np.frombuffer(raw, data.dtype).reshape(data.chunks)
