"""What cannot be read from anywhere within is inflated once, into a scratch file without a name, gone with the process.

A gzip-compressed ENVI cube is one such; a dataset whose chunks hold far more lines than a block is another. Some products
store a whole band a chunk. Read by lines they would be decompressed once a block; read by bands they could be projected,
but the certificate needs the pixels themselves. So each chunk is read and decompressed once, by all cores, and what lies
in the scratch file (BSQ) is read like any cube.
"""

import gzip
import itertools
import logging
import math
import shutil
import tempfile
import zlib
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ..blocks import cores
from ..errors import CubeError
from .write import write_all

log = logging.getLogger("unmix")
PIECE = 16 * 2**20
# Chunks that are being inflated at a time hold no more than this together, or there is one.
IN_FLIGHT = 256 * 2**20
LARGEST_CHUNK = 2**30
DEFLATE, SHUFFLE = h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE


def new_scratch(path: Path, size: int) -> Any:
    """An empty scratch file for ``size`` bytes of a cube; `CubeError` where there is no room."""
    folder = tempfile.gettempdir()
    if shutil.disk_usage(folder).free < size:
        raise CubeError(
            f"{path}: is inflated once before it is read, to {size} bytes, for which {folder} has no room; set TMPDIR to a "
            "folder that has"
        )
    return tempfile.TemporaryFile(prefix="unmix-", buffering=0)


def gunzip(path: Path, size: int) -> Any:
    """The scratch file of a gzip-compressed file that holds at least ``size`` bytes.

    Raises
    ------
    CubeError
        Where it is damaged or holds less, or there is no room.
    """
    file = new_scratch(path, size)
    done = 0
    try:
        with gzip.open(path, "rb") as packed:
            while done < size and (piece := packed.read(min(PIECE, size - done))):
                write_all(file.fileno(), np.frombuffer(piece, np.uint8), done)
                done += len(piece)
            while packed.read(PIECE):  # its checksum comes last
                pass
    except (OSError, EOFError, zlib.error) as error:
        file.close()
        raise CubeError(f"{path}: cannot be inflated after {done} bytes: {error}") from None
    if done < size:
        file.close()
        raise CubeError(f"{path}: is truncated: it inflates to {done} bytes, but its header promises {size}")
    return file


def from_pieces(path: Path, size: int, pieces: Iterable[tuple[list[int], np.ndarray]], shape: list[int]) -> Any:
    """The scratch file of a cube (bands, lines, samples) that comes in pieces, each with its place; errors as they come."""
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
    """The scratch file of a dataset: bands, lines and samples in this order, in ``dtype``.

    Parameters
    ----------
    path : Path
        Named in messages.
    data : h5py.Dataset
        Of three axes, chunked or not.
    axes : str
        Their order, such as yxb.
    dtype : dtype
        Of the cube, in native byte order.

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
    )  # packed, inflated, turned
    under_way: deque[Future[None]] = deque()
    try:
        with ThreadPoolExecutor(threads, "inflate") as pool:
            for start in starts:
                under_way.append(pool.submit(place, start, stored(data, start, steps, filters)))
                if len(under_way) >= most:  # bounded memory
                    under_way.popleft().result()
            for future in under_way:
                future.result()
    except Exception as error:  # h5py has many words for a damaged file
        file.close()
        raise CubeError(f"{path}: {data.name} cannot be inflated: {error}") from None
    return file


def filters_of(data: Any) -> list[int] | None:
    """The filters of its chunks in the order of writing.

    None where chunks are left to the library: other filters and checksums, and integers with bits to spare (seen: 12 of 16).
    """
    properties = data.id.get_create_plist()
    found = [properties.get_filter(i)[0] for i in range(properties.get_nfilters())]
    plain = data.id.get_type().equal(h5py.h5t.py_create(data.dtype))
    return found if plain and set(found) <= {DEFLATE, SHUFFLE} else None


def slab(data: Any) -> tuple[int, ...]:
    """What to read at a time of a dataset without chunks: some of its first axis, about `PIECE` bytes."""
    size = data.dtype.itemsize * math.prod(data.shape[1:])
    return (max(1, min(data.shape[0], PIECE // size)), *data.shape[1:])


def stored(data: Any, start: tuple[int, ...], steps: tuple[int, ...], filters: list[int] | None) -> bytes | np.ndarray:
    """A chunk as it lies in the file, or, where only the library can tell, its values."""
    whole_chunk = data.chunks is not None and all(at + n <= length for at, n, length in zip(start, steps, data.shape))
    if filters is not None and whole_chunk:  # those at the edge may be stored without the filters
        try:
            mask, raw = data.id.read_direct_chunk(start)
            if mask == 0:
                return bytes(raw)
        except (OSError, RuntimeError, ValueError, MemoryError):  # the last where it was never written
            pass  # the library knows the fill value, and other ways of storing
    whole = np.empty(steps, data.dtype)
    within = tuple(slice(at, min(at + step, length)) for at, step, length in zip(start, steps, data.shape))
    values = data[within]
    whole[tuple(slice(0, length) for length in values.shape)] = values
    return whole


def decoded(raw: bytes, data: Any, filters: list[int] | None) -> np.ndarray:
    """A chunk's values; holds no lock while it inflates."""
    size = math.prod(data.chunks) * data.dtype.itemsize
    for kind in reversed(filters or []):
        if kind == DEFLATE:
            inflater = zlib.decompressobj()
            raw = inflater.decompress(raw, size + 1)
            if len(raw) == size and not inflater.eof:  # its checksum comes last
                raw += inflater.decompress(inflater.unconsumed_tail, 1)
            if not inflater.eof:
                raise ValueError("a chunk is cut short, or inflates to more than it holds")
        else:
            raw = np.frombuffer(raw, np.uint8).reshape(data.dtype.itemsize, -1).T.tobytes()
    if len(raw) != size:
        raise ValueError(f"a chunk inflates to {len(raw)} bytes, not {size}")
    return np.frombuffer(raw, data.dtype).reshape(data.chunks)


def write_chunk(descriptor: int, cube: np.ndarray, start: list[int], shape: list[int]) -> None:
    """Put a chunk (bands, lines, samples) to its place; whole lines of a band at once where it has them."""
    band, line, sample = start
    for b, plane in enumerate(cube):
        at = ((band + b) * shape[1] + line) * shape[2] + sample
        if plane.shape[1] == shape[2]:
            write_all(descriptor, plane, at * cube.itemsize)
            continue
        for y, row in enumerate(plane):
            write_all(descriptor, row, (at + y * shape[2]) * cube.itemsize)
