"""Inflate a cube that cannot be read by lines into a temporary file, once; the file has no name and ends with the process.

Such are a gzip-compressed ENVI cube, and a dataset whose chunks hold far more lines than a block: some products store a
whole band in a chunk. Read by lines, each chunk would be decompressed once for every block; read by bands, pixels could be
projected, but the certificate needs the pixels themselves. So each chunk is read and decompressed once, by all cores, and
the scratch file (BSQ) is then read like any cube.
"""

import functools
import gzip
import itertools
import logging
import math
import shutil
import tempfile
import zlib
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ..blocks import cores
from ..errors import CubeError
from .remote import fetched
from .write import write_all

log = logging.getLogger("unmix")
PIECE = 16 * 2**20
# Bytes that all chunks being inflated at a time may take; a chunk that takes more is inflated alone.
IN_FLIGHT = 256 * 2**20
LARGEST_CHUNK = 2**30
DEFLATE, SHUFFLE = h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE


def new_scratch(path: Path, size: int) -> Any:
    """Return an empty scratch file for ``size`` bytes of a cube; raise `CubeError` where there is no room."""
    folder = tempfile.gettempdir()
    if shutil.disk_usage(folder).free < size:
        raise CubeError(
            f"{path}: must be inflated to {size} bytes before it is read, but {folder} has no room for them; set TMPDIR "
            "to a folder that has"
        )
    return tempfile.TemporaryFile(prefix="unmix-", buffering=0)


def gunzip(path: Path, size: int) -> Any:
    """Inflate a gzip-compressed file of at least ``size`` bytes into a scratch file, and return that.

    Raises
    ------
    CubeError
        Where it is damaged or holds less, or there is no room.
    """
    file = new_scratch(path, size)
    done = 0
    try:
        with path.open("rb") as raw, gzip.open(raw, "rb") as packed:
            while done < size and (piece := packed.read(min(PIECE, size - done))):
                write_all(file.fileno(), np.frombuffer(piece, np.uint8), done)
                done += len(piece)
            while packed.read(PIECE):  # to its end, where the checksum is
                pass
    except (OSError, EOFError, zlib.error) as error:
        file.close()
        raise CubeError(f"{path}: cannot be inflated after {done} bytes: {error}") from None
    if done < size:
        file.close()
        raise CubeError(f"{path}: is truncated: it inflates to {done} bytes, but its header promises {size}")
    return file


def from_pieces(path: Path, size: int, pieces: Iterable[tuple[list[int], np.ndarray]], shape: list[int]) -> Any:
    """Write the pieces of a cube into a scratch file and return it.

    Each piece is its place (band, line, sample) and its values (bands, lines, samples); ``shape`` is that of the whole cube. Errors
    of ``pieces`` pass through; `CubeError` where a write fails.
    """
    log.info(f"{path}: cannot be read by lines; inflating it once")
    file = new_scratch(path, size)
    try:
        for start, values in pieces:
            write_chunk(file.fileno(), values, start, shape)
    except OSError as error:
        file.close()
        raise CubeError(f"{path}: cannot be inflated: {error.strerror}; set TMPDIR to a folder with room") from None
    except BaseException:
        file.close()
        raise
    return file


def inflate(path: Path, data: Any, axes: str, dtype: np.dtype) -> Any:
    """Write a dataset into a scratch file as (bands, lines, samples), in ``dtype``, and return that.

    Parameters
    ----------
    path : Path
        The file, for messages.
    data : h5py.Dataset
        Of three axes, chunked or not.
    axes : str
        Order of its axes, such as yxb.
    dtype : dtype
        Type of the cube, in native byte order.

    Raises
    ------
    CubeError
        Where the temporary folder has no room, or a chunk cannot be read.
    """
    log.info(f"{path}: cannot be read by lines; inflating it once")
    file = new_scratch(path, data.size * dtype.itemsize)
    filters = filters_of(data)
    order = [axes.index(axis) for axis in "byx"]
    steps = data.chunks or slab(data)
    starts = itertools.product(*(range(0, length, step) for length, step in zip(data.shape, steps)))

    def place(start: tuple[int, ...], raw: bytes | np.ndarray) -> None:
        values = decoded(raw, data, filters) if isinstance(raw, bytes) else raw
        within = tuple(slice(0, min(step, length - at)) for at, step, length in zip(start, steps, data.shape))
        cube = np.ascontiguousarray(values[within].transpose(order), dtype)
        write_chunk(file.fileno(), cube, [start[axis] for axis in order], [data.shape[axis] for axis in order])

    threads = cores()
    if math.prod(steps) * data.dtype.itemsize > LARGEST_CHUNK:
        file.close()
        raise CubeError(
            f"{path}: {data.name} has chunks of {steps}, each larger than {LARGEST_CHUNK >> 20} MiB; repack it"
        )
    most = max(
        1, min(2 * threads, IN_FLIGHT // (3 * math.prod(steps) * data.dtype.itemsize))
    )  # a chunk is held three times: packed, inflated, transposed
    under_way: deque[Future[None]] = deque()
    try:
        with ThreadPoolExecutor(threads, "inflate") as pool:
            together = max(1, IN_FLIGHT // (4 * math.prod(steps) * data.dtype.itemsize))
            while group := list(itertools.islice(starts, together)):
                stretches = functools.partial(stretches_of_chunks, data, group)
                with fetched(path, stretches):
                    for start in group:
                        under_way.append(pool.submit(place, start, stored(data, start, steps, filters)))
                        if len(under_way) >= most:  # bounded memory
                            under_way.popleft().result()
            for future in under_way:
                future.result()
    except Exception as error:  # h5py raises many kinds of errors for a damaged file
        file.close()
        raise CubeError(f"{path}: {data.name} cannot be inflated: {error}") from None
    return file


def stretches_of_chunks(data: Any, starts: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Return the stretches ``(offset, bytes)`` of the file that hold the chunks, or slabs, that begin at ``starts``."""
    steps = data.chunks or slab(data)
    windows = ([slice(at, at + step) for at, step in zip(start, steps)] for start in starts)
    return [one for wanted in windows for one in stretches_of(data, wanted)]


def stretches_of(data: Any, wanted: Sequence[slice]) -> list[tuple[int, int]]:
    """Return the stretches ``(offset, bytes)`` of the file that hold a part of a dataset; of further axes, all is wanted.

    A guess at worst: what is missing from it the library reads for itself.
    """
    slices = [*wanted, *(slice(None) for _ in data.shape[len(wanted) :])]
    bounds = [part.indices(length)[:2] for part, length in zip(slices, data.shape)]
    if data.chunks:
        starts = (range(low // step * step, high, step) for (low, high), step in zip(bounds, data.chunks))
        chunks = (data.id.get_chunk_info_by_coord(start) for start in itertools.product(*starts))
        return [(chunk.byte_offset, chunk.size) for chunk in chunks if chunk.byte_offset is not None]
    if data.id.get_offset() is None:
        return []
    last = max((axis for axis, (low, high) in enumerate(bounds) if high - low < data.shape[axis]), default=0)
    size = math.prod(data.shape[last + 1 :]) * data.dtype.itemsize  # of one step along the last axis that is not whole
    low, high = bounds[last]
    outer = itertools.product(*(range(*part) for part in bounds[:last]))
    firsts = (sum(at * math.prod(data.shape[i + 1 : last + 1]) for i, at in enumerate(place)) for place in outer)
    return [(data.id.get_offset() + (first + low) * size, (high - low) * size) for first in firsts]


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


def write_chunk(descriptor: int, cube: np.ndarray, start: list[int], shape: list[int]) -> None:
    """Write a chunk (bands, lines, samples) to its place in a file; in one write for a band where its lines are whole."""
    band, line, sample = start
    for b, plane in enumerate(cube):
        first = ((band + b) * shape[1] + line) * shape[2] + sample
        if plane.shape[1] == shape[2]:
            write_all(descriptor, plane, first * cube.itemsize)
            continue
        for y, row in enumerate(plane):
            write_all(descriptor, row, (first + y * shape[2]) * cube.itemsize)
