"""Inflate a cube that cannot be read by lines into a temporary file, once; the file has no name and ends with the process.

Such are a gzip-compressed ENVI cube, and a dataset whose chunks hold far more lines than a block: some products store a
whole band in a chunk. Read by lines, each chunk would be decompressed once for every block; read by bands, pixels could be
projected, but the certificate needs the pixels themselves. So each chunk is read and decompressed once, by all cores, and
the scratch file (BSQ) is then read like any cube.
"""

import contextlib
import functools
import gzip
import itertools
import logging
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import CubeError
from .formats.chunks import TIMES, Decoder, Layout, in_threads, starts_of
from .remote import fetched
from .write import write_all

log = logging.getLogger("unmix")
PIECE = 16 * 2**20
LARGEST_CHUNK = 2**30
# Bytes up to which a row of chunks is put together before it is written: in pieces of one chunk's samples, 500 bytes each, a cube in
# tiles took 9.0 s to unmix where it now takes 3.
MOST_OF_A_STRIP = 96 * 2**20


@functools.cache
def warn_once(said: str) -> None:
    """Log a warning, once a process."""
    log.warning(said)


@contextlib.contextmanager
def new_scratch(path: Path, size: int) -> Iterator[Any]:
    """Yield an empty scratch file for ``size`` bytes of a cube, closed on an error; raise `CubeError` where there is no room."""
    folder = tempfile.gettempdir()
    if (asked := os.environ.get("TMPDIR")) and os.path.abspath(asked) != os.path.abspath(folder):
        warn_once(f"TMPDIR {asked}: is no folder that can be written; {folder} is used")
    log.info(f"{path}: cannot be read by lines; inflating {size / 1e6:.3g} MB once, into {folder}")
    if shutil.disk_usage(folder).free < size:
        raise CubeError(
            f"{path}: must be inflated to {size} bytes before it is read, but {folder} has no room for them; set TMPDIR "
            "to a folder that has"
        )
    file = tempfile.TemporaryFile(prefix="unmix-", buffering=0)  # noqa: SIM115 - open after the block
    try:
        yield file
    except BaseException:
        file.close()
        raise


def gunzip(path: Path, size: int) -> Any:
    """Inflate a gzip-compressed file of at least ``size`` bytes into a scratch file, and return that.

    Raises
    ------
    CubeError
        Where it is damaged or holds less, or there is no room.
    """
    done = 0
    with new_scratch(path, size) as file:
        try:
            with path.open("rb") as raw, gzip.open(raw, "rb") as packed:
                while done < size and (piece := packed.read(min(PIECE, size - done))):
                    write_all(file.fileno(), np.frombuffer(piece, np.uint8), done)
                    done += len(piece)
                while packed.read(PIECE):  # to its end, where the checksum is
                    pass
        except (OSError, EOFError, zlib.error) as error:
            raise CubeError(f"{path}: cannot be inflated after {done} bytes: {error}") from None
        if done < size:
            raise CubeError(f"{path}: is truncated: it inflates to {done} bytes, but its header promises {size}")
    return file


def from_pieces(path: Path, size: int, pieces: Iterable[tuple[list[int], np.ndarray]], shape: list[int]) -> Any:
    """Write the pieces of a cube into a scratch file and return it.

    Each piece is its place (band, line, sample) and its values (bands, lines, samples); ``shape`` is that of the whole cube. Errors
    of ``pieces`` pass through; `CubeError` where a write fails.
    """
    with new_scratch(path, size) as file:
        try:
            for start, values in pieces:
                write_part(file.fileno(), values, start, shape)
        except OSError as error:
            raise CubeError(f"{path}: cannot be inflated: {error.strerror}; set TMPDIR to a folder with room") from None
    return file


def inflate(path: Path, data: Any, axes: str, dtype: np.dtype) -> Any:
    """Write a dataset into a scratch file as (bands, lines, samples), in ``dtype``, and return that.

    Parameters
    ----------
    path : Path
        The file, for messages.
    data : h5py.Dataset
        Of three axes, and others of length 1; chunked or not.
    axes : str
        Order of its axes, such as yxb; 1 is one of length 1 that is none of them.
    dtype : dtype
        Type of the cube, in native byte order.

    Raises
    ------
    CubeError
        Where the temporary folder has no room, or a chunk cannot be read.
    """
    decoder, layout = Decoder.of(data), functools.cache(lambda: Layout.of(data))
    if decoder.chunk_bytes > LARGEST_CHUNK:
        raise CubeError(
            f"{path}: {data.name} has chunks of {decoder.steps}, each larger than {LARGEST_CHUNK >> 20} MiB; repack it"
        )
    order, ones = [axes.index(axis) for axis in "byx"], [k for k, axis in enumerate(axes) if axis == "1"]
    shape = [decoder.shape[axis] for axis in order]
    row = decoder.chunk_bytes * -(-shape[2] // decoder.steps[order[2]])
    size, across = (row, order[2]) if row <= MOST_OF_A_STRIP else (decoder.chunk_bytes, None)
    parts = strips_of(decoder, across)

    def write(strips: list[JoinedPart]) -> None:
        for strip in strips:
            write_part(file.fileno(), strip.cube, [strip.wanted[axis].start for axis in order], shape)

    def decode(task: tuple[JoinedPart, tuple[int, ...]]) -> None:
        strip, start = task
        decoder.place(start, strip.wanted, strip.values)

    with new_scratch(path, data.size * dtype.itemsize) as file:
        try:
            with ThreadPoolExecutor(1, "write") as writer:
                writing = writer.submit(write, [])
                while together := list(itertools.islice(parts, max(1, MOST_OF_A_STRIP // size))):
                    strips = [JoinedPart.of(wanted, order, ones, dtype) for wanted in together]
                    tasks = ((strip, start) for strip in strips for start in starts_of(strip.wanted, decoder.steps))
                    with fetched(path, functools.partial(stretches_of, layout, together)):
                        in_threads(decode, tasks, TIMES * decoder.chunk_bytes)
                    writing.result()
                    writing = writer.submit(write, strips)  # while the next strips are decoded
                writing.result()
        except Exception as error:  # h5py raises many kinds of errors for a damaged file
            raise CubeError(f"{path}: {data.name} cannot be inflated: {error}") from None
    return file


class JoinedPart(NamedTuple):
    """A part of a dataset that is put together before it is written."""

    wanted: list[slice]  # of each axis of the dataset
    cube: np.ndarray  # (bands, lines, samples)
    values: np.ndarray  # the same memory, with the axes of the dataset

    @classmethod
    def of(cls, wanted: list[slice], order: list[int], ones: list[int], dtype: np.dtype) -> "JoinedPart":
        """Return a strip to fill; ``order`` has the dataset's axes of bands, lines and samples, ``ones`` those of length 1."""
        cube = np.empty([wanted[axis].stop - wanted[axis].start for axis in order], dtype)
        return cls(wanted, cube, np.expand_dims(cube.transpose(np.argsort(order)), ones))


def stretches_of(layout: Callable[[], Layout], parts: Iterable[list[slice]]) -> list[tuple[int, int]]:
    """Return the stretches of a file that hold some parts of a dataset."""
    return [one for wanted in parts for one in layout().stretches(wanted)]


def strips_of(decoder: Decoder, across: int | None) -> Iterator[list[slice]]:
    """Return parts of a dataset, a slice of each axis: its chunks, or rows of chunks that are whole along the axis ``across``."""
    steps = [
        length if axis == across else step for axis, (length, step) in enumerate(zip(decoder.shape, decoder.steps))
    ]
    for start in itertools.product(*(range(0, length, step) for length, step in zip(decoder.shape, steps))):
        yield [slice(at, min(at + step, length)) for at, step, length in zip(start, steps, decoder.shape)]


def write_part(descriptor: int, cube: np.ndarray, start: list[int], shape: list[int]) -> None:
    """Write a part (bands, lines, samples) to its place in a file; in one write for a band where its lines are whole."""
    band, line, sample = start
    for b, plane in enumerate(cube):
        first = ((band + b) * shape[1] + line) * shape[2] + sample
        if plane.shape[1] == shape[2]:
            write_all(descriptor, plane, first * cube.itemsize)
            continue
        for y, row in enumerate(plane):
            write_all(descriptor, row, (first + y * shape[2]) * cube.itemsize)
