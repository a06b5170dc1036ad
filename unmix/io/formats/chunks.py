"""Decode the chunks of an HDF5 dataset on all cores; the HDF5 library decodes them one by one, under one lock."""

import contextlib
import functools
import itertools
import math
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, TypeVar

import h5py
import numpy as np

from ...blocks import cores, once_a_process
from ..read import PIECE

# Chunks whose places in the file are kept, 200 bytes each; those of larger datasets are looked up as they are needed.
MOST_PLACES = 100_000


def of_each_axis(wanted: Sequence[slice], shape: Sequence[int]) -> list[slice]:
    """Return ``start:stop`` of each axis of a part of a dataset; of axes that ``wanted`` does not have, all."""
    slices = [*wanted, *(slice(None) for _ in shape[len(wanted) :])]
    return [slice(*part.indices(length)[:2]) for part, length in zip(slices, shape)]


def starts_of(wanted: Sequence[slice], steps: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Return where the chunks begin that hold a part of a dataset, ``start:stop`` of each axis."""
    return itertools.product(*(range(one.start // step * step, one.stop, step) for one, step in zip(wanted, steps)))


def slab(data: Any) -> tuple[int, ...]:
    """Return the shape to read at a time from a dataset without chunks: about `PIECE` bytes that lie together."""
    steps, size = list[int](), data.dtype.itemsize
    for length in reversed(data.shape):
        steps.insert(0, max(1, min(length, PIECE // size)))
        size *= steps[0]
    return tuple(steps)


deflate: Any = zlib
with contextlib.suppress(ImportError):
    from isal import isal_zlib as deflate  # 540 MB/s a core where zlib has 300 (float32, shuffled)
DEFLATE, SHUFFLE = h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE
# The filters that are decoded here, in the order of writing.
ORDERS = ((), (DEFLATE,), (SHUFFLE,), (SHUFFLE, DEFLATE))
# Bytes that all chunks being decoded at a time may take; a chunk that takes more is decoded alone.
IN_FLIGHT = 256 * 2**20
# A chunk is held three times: packed, inflated, in order.
TIMES = 3
# Chunks that one call of the library may touch: each costs it some hundred bytes, and a million chunks of 8 bytes took
# gigabytes.
MOST_CHUNKS = 20_000
# Bytes of a chunk from which our own calls, some 30 µs a chunk, are nothing beside inflating it.
WORTHWHILE = 64 * 2**10
Start = tuple[int, ...]
Item = TypeVar("Item")


@once_a_process
def threads() -> ThreadPoolExecutor:
    """Return the pool of threads that decode, one for the process."""
    return ThreadPoolExecutor(cores(), "inflate")


@dataclass(frozen=True)
class Decoder:
    """The chunks of a dataset: their places in the file, and their values.

    Attributes
    ----------
    data : h5py.Dataset
    shape : tuple of int
    steps : tuple of int
        The shape of a chunk; of a dataset without chunks, the part of it that is read at a time.
    dtype : dtype
        As stored.
    is_chunked : bool
    filters : tuple of int, or None
        The filters of chunks, in the order of writing; None where only the HDF5 library can decode them.
    """

    data: Any
    shape: tuple[int, ...]
    steps: tuple[int, ...]
    dtype: np.dtype
    is_chunked: bool
    filters: tuple[int, ...] | None

    @classmethod
    def of(cls, data: Any) -> "Decoder":
        """Ask HDF5 for all this once: its global lock is held while it reads."""
        chunks = data.chunks
        return cls(
            data, data.shape, chunks or slab(data), data.dtype, bool(chunks), filters_of(data) if chunks else None
        )

    @functools.cached_property
    def places(self) -> dict[Start, tuple[int, int]] | None:
        """Offset and bytes of each chunk, by where it begins; None where they are too many."""
        places: dict[Start, tuple[int, int]] = {}
        if self.data.id.get_num_chunks() > MOST_PLACES:
            return None
        self.data.id.chunk_iter(lambda chunk: places.update({chunk.chunk_offset: (chunk.byte_offset, chunk.size)}))
        return places

    @functools.cached_property
    def offset(self) -> int | None:
        """Where in the file a dataset without chunks begins; None where nothing of it was written."""
        return self.data.id.get_offset()

    def place_of(self, start: Start) -> tuple[int, int] | None:
        """Return offset and bytes of the chunk that begins there; None where it was never written."""
        if self.places is not None:
            return self.places.get(start)
        chunk = self.data.id.get_chunk_info_by_coord(start)
        return None if chunk.byte_offset is None else (chunk.byte_offset, chunk.size)

    def stretches(self, wanted: Sequence[slice]) -> list[tuple[int, int]]:
        """Return the byte ranges ``(offset, bytes)`` of a part of the dataset, with all of any further axes."""
        # A guess at worst: the library itself reads whatever is missing from these ranges.
        slices = of_each_axis(wanted, self.shape)
        if self.is_chunked:
            places = (self.place_of(start) for start in starts_of(slices, self.steps))
            return [place for place in places if place is not None]
        if self.offset is None:
            return []
        bounds = [(part.start, part.stop) for part in slices]
        last = max((axis for axis, (low, high) in enumerate(bounds) if high - low < self.shape[axis]), default=0)
        size = (
            math.prod(self.shape[last + 1 :]) * self.dtype.itemsize
        )  # of one step along the last axis that is not whole
        low, high = bounds[last]
        outer = itertools.product(*(range(*part) for part in bounds[:last]))
        firsts = (sum(at * math.prod(self.shape[i + 1 : last + 1]) for i, at in enumerate(place)) for place in outer)
        return [(self.offset + (first + low) * size, (high - low) * size) for first in firsts]

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a decoded chunk."""
        return math.prod(self.steps) * self.dtype.itemsize

    @property
    def is_worthwhile(self) -> bool:
        """Whether chunks are compressed, can be decoded here, and are large enough."""
        return self.filters is not None and DEFLATE in self.filters and self.chunk_bytes >= WORTHWHILE

    def fill(self, wanted: Sequence[slice], out: np.ndarray) -> None:
        """Fill ``out`` with a part of the dataset, with all of any further axes, on all cores."""
        part = of_each_axis(wanted, self.shape)
        if self.is_worthwhile:
            starts = starts_of(part, self.steps)
            return in_threads(lambda start: self.place(start, part, out), starts, TIMES * self.chunk_bytes)
        # Small chunks are left to the library, some at a time: our own calls for each took thirty times as long.
        counts = [-(-(one.stop - one.start) // step) for one, step in zip(part, self.steps)]
        axis = int(np.argmax(counts))
        step = max(1, MOST_CHUNKS * counts[axis] // max(1, math.prod(counts))) * self.steps[axis]
        for first in range(part[axis].start, part[axis].stop, step):
            here, last = slice(first, min(first + step, part[axis].stop)), part[axis].start
            source = (*part[:axis], here, *part[axis + 1 :])
            there = (*(slice(None) for _ in part[:axis]), slice(here.start - last, here.stop - last))
            if out.flags.c_contiguous:
                self.data.read_direct(out, source, there)
            else:
                out[there] = self.data[source]
        return None

    def place(self, start: Start, wanted: Sequence[slice], out: np.ndarray) -> None:
        """Copy the overlap of a chunk and a part of the dataset, ``start:stop`` of each axis, into ``out``."""
        values = self.values(start)
        lows = [max(at, one.start) for at, one in zip(start, wanted)]
        highs = [min(at + count, one.stop) for at, count, one in zip(start, values.shape, wanted)]
        here = tuple(slice(low - one.start, high - one.start) for low, high, one in zip(lows, highs, wanted))
        out[here] = values[tuple(slice(low - at, high - at) for low, high, at in zip(lows, highs, start))]

    def values(self, start: Start) -> np.ndarray:
        """Return the values of a chunk, cut to the dataset; raise ValueError or deflate.error where it is damaged."""
        within = tuple(slice(at, min(at + step, length)) for at, step, length in zip(start, self.steps, self.shape))
        stored, mask, packed = self.data.id, 1, b""
        # Of a chunk that was never written, h5py takes the size from memory that holds anything; see `size` first.
        with contextlib.suppress(OSError, RuntimeError, ValueError, MemoryError):
            if stored.get_chunk_info_by_coord(start).size:
                mask, packed = stored.read_direct_chunk(start)
        if mask:  # the library knows the fill value, and what is stored without filters
            return np.asarray(self.data[within])
        cut = tuple(slice(0, one.stop - one.start) for one in within)
        try:
            return self.decoded(packed)[cut]
        except (ValueError, deflate.error):
            if all(one.stop - one.start == step for one, step in zip(within, self.steps)):
                raise
            return np.asarray(self.data[within])  # a chunk at the edge may be stored without the filters

    def decoded(self, packed: bytes) -> np.ndarray:
        """Return the values of a whole chunk; zlib and NumPy release Python's lock meanwhile."""
        raw: Any = packed
        for kind in reversed(self.filters or ()):
            raw = inflated_chunk(raw, self.chunk_bytes) if kind == DEFLATE else unshuffled(raw, self.dtype.itemsize)
        if len(raw) != self.chunk_bytes:
            raise ValueError(f"a chunk inflates to {len(raw)} bytes, not {self.chunk_bytes}")
        return np.frombuffer(raw, self.dtype).reshape(self.steps)


def in_threads(work: Callable[[Item], None], items: Iterable[Item], size: int) -> None:
    """Call ``work(item)`` on all cores, within `IN_FLIGHT` at ``size`` bytes an item; errors wait for running calls."""
    most = max(1, min(2 * cores(), IN_FLIGHT // size))
    under_way: deque[Future[None]] = deque()
    try:
        for item in items:
            if len(under_way) >= most:
                under_way.popleft().result()
            under_way.append(threads().submit(work, item))
        while under_way:
            under_way.popleft().result()
    finally:
        wait([future for future in under_way if not future.cancel()])


def inflated_chunk(packed: Any, size: int) -> bytes:
    """Return the ``size`` bytes of a zlib stream."""
    inflater = deflate.decompressobj()
    raw = inflater.decompress(packed, size + 1)
    if len(raw) == size and not inflater.eof:  # the checksum at the end is still to be read
        raw += inflater.decompress(inflater.unconsumed_tail, 1)
    if not inflater.eof:
        raise ValueError("a chunk is cut short, or inflates to more than it holds")
    return raw


def unshuffled(raw: Any, size: int) -> np.ndarray:
    """Return the bytes of values of ``size`` bytes that are stored as all first bytes, then all second ones, …."""
    planes = np.frombuffer(raw, np.uint8).reshape(size, -1)
    values = np.empty((planes.shape[1], size), np.uint8)
    # Byte by byte this runs at 3.6 GB/s; transposing the whole array at 0.6.
    for k in range(size):
        values[:, k] = planes[k]
    return values.reshape(-1)


def filters_of(data: Any) -> tuple[int, ...] | None:
    """Return the filters of a dataset's chunks, in write order; None where only the HDF5 library can decode them."""
    properties = data.id.get_create_plist()
    found = [properties.get_filter(i) for i in range(properties.get_nfilters())]
    filters = tuple(each[0] for each in found)
    # Integers may use a part of their bits only (seen: 12 of 16).
    plain = data.id.get_type().equal(h5py.h5t.py_create(data.dtype))
    # Values are shuffled, not pieces of them.
    whole = all(each[2][:1] == (data.dtype.itemsize,) for each in found if each[0] == SHUFFLE)
    return filters if plain and whole and filters in ORDERS else None
