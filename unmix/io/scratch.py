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
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from ..blocks import cores
from ..errors import CubeError
from .formats.chunks import Layout, decoded, filters_of, slab, stored
from .remote import fetched
from .write import write_all

log = logging.getLogger("unmix")
PIECE = 16 * 2**20
# Bytes that all chunks being inflated at a time may take; a chunk that takes more is inflated alone.
IN_FLIGHT = 256 * 2**20
LARGEST_CHUNK = 2**30


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
    layout = functools.cache(lambda: Layout.of(data))  # of use only where the file is on a server
    steps = data.chunks or slab(data)
    starts = itertools.product(*(range(0, length, step) for length, step in zip(data.shape, steps)))

    def place(start: tuple[int, ...], raw: bytes | np.ndarray) -> None:
        values = decoded(raw, data, filters) if isinstance(raw, bytes) else raw
        within = tuple(slice(0, min(step, length - at)) for at, step, length in zip(start, steps, data.shape))
        cube = np.ascontiguousarray(values[within].transpose(order), dtype)
        write_chunk(file.fileno(), cube, [start[axis] for axis in order], [data.shape[axis] for axis in order])

    def stretches_of(group: list[tuple[int, ...]]) -> list[tuple[int, int]]:
        return layout().stretches_of_chunks(group)

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
                with fetched(path, functools.partial(stretches_of, group)):
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
