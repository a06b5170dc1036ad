"""Inflate a cube that cannot be read by lines once, into a nameless temporary file that ends with the process.

Such are a gzip-compressed ENVI cube, and a dataset whose chunks hold far more lines than a block: some products store a
whole band in a chunk. Read by lines, each chunk would be decompressed once for every block; read by bands, pixels could
be projected, but the certificate needs the pixels themselves. So each chunk is read and decompressed once, by all
cores, and the scratch file (BSQ) is then read like any cube.
"""

import contextlib
import gzip
import itertools
import logging
import math
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CubeError, say_once
from .formats.chunks import Decoder
from .remote import fetched
from .write import write_all

log = logging.getLogger("unmix")
PIECE = 16 * 2**20
LARGEST_CHUNK = 2**30
# Bytes up to which a row of chunks is put together before it is written: in pieces of one chunk's samples, 500 bytes
# each, a cube in tiles took 9.0 s to unmix where it now takes 3.
MOST_OF_A_STRIP = 96 * 2**20


@contextlib.contextmanager
def new_scratch(path: Path, size: int) -> Iterator[Any]:
    """Yield an empty scratch file for ``size`` bytes, closed on an error; `CubeError` where there is no room."""
    folder = tempfile.gettempdir()
    if (asked := os.environ.get("TMPDIR")) and os.path.abspath(asked) != os.path.abspath(folder):
        say_once(f"TMPDIR {asked}: is no folder that can be written; {folder} is used", logging.WARNING)
    said = f"{path}: cannot be read by lines; inflating {size / 1e6:.3g} MB once, into {folder}"
    log.log(logging.INFO if size > PIECE else logging.DEBUG, said)
    if shutil.disk_usage(folder).free < size:
        raise CubeError(
            f"{path}: must be inflated to {size} bytes before it is read, but {folder} has no room for them; set "
            "TMPDIR "
            "to a folder that has"
        )
    file = tempfile.TemporaryFile(prefix="unmix-", buffering=0)  # noqa: SIM115 - open after the block
    try:
        yield file
    except BaseException:
        file.close()
        raise


def gunzip(path: Path, size: int) -> Any:
    """Inflate a gzip-compressed file of at least ``size`` bytes into a scratch file, and return that."""
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


def from_pieces(path: Path, shape: list[int], dtype: np.dtype, pieces: Iterable[tuple[list[int], np.ndarray]]) -> Any:
    """Write pieces, [band, line, sample] and values, of a cube (bands, lines, samples) to a scratch file; return it."""
    size = math.prod(shape) * dtype.itemsize
    with new_scratch(path, size) as file, ThreadPoolExecutor(1, "write") as writer:
        try:
            writing = writer.submit(lambda: None)
            for start, values in pieces:
                writing.result()
                writing = writer.submit(write_part, file.fileno(), values, start, shape)
            writing.result()
        except OSError as error:
            raise CubeError(f"{path}: cannot be inflated: {error.strerror}; set TMPDIR to a folder with room") from None
    return file


def joined_chunks(lengths: list[int], steps: list[int], itemsize: int) -> Iterator[tuple[slice, ...]]:
    """Yield parts (bands, lines, samples) of a cube: chunks of ``steps``, joined up to `MOST_OF_A_STRIP` bytes."""
    steps = list(steps)
    # More samples first, so that whole lines are written; larger parts of many bands are slower to put together.
    for axis, most in ((2, MOST_OF_A_STRIP), (0, MOST_OF_A_STRIP // 3), (1, MOST_OF_A_STRIP // 3)):
        size = math.prod(map(min, steps, lengths)) * itemsize
        steps[axis] *= max(1, min(most // size, -(-lengths[axis] // steps[axis])))
    for start in itertools.product(*(range(0, n, step) for n, step in zip(lengths, steps))):
        yield tuple(slice(at, min(at + step, n)) for at, step, n in zip(start, steps, lengths))


def inflate(path: Path, data: Any, axes: str, dtype: np.dtype, index: int = 0) -> Any:
    """Write a dataset to a scratch file (bands, lines, samples); ``index`` is the place along axes called 1."""
    decoder = Decoder.of(data)
    if decoder.chunk_bytes > LARGEST_CHUNK:
        raise CubeError(
            f"{path}: {data.name} has chunks of {decoder.steps}, each larger than {LARGEST_CHUNK >> 20} MiB; repack it"
        )
    order, others = [axes.index(axis) for axis in "byx"], [k for k, axis in enumerate(axes) if axis == "1"]
    shape, steps = ([each[axis] for axis in order] for each in (decoder.shape, decoder.steps))

    def pieces() -> Iterator[tuple[list[int], np.ndarray]]:
        for part in joined_chunks(shape, steps, dtype.itemsize):
            of_axis = dict(zip("byx", part)) | {"1": slice(index, index + 1)}
            wanted = [of_axis[axis] for axis in axes]
            cube = np.empty([one.stop - one.start for one in part], dtype)
            try:
                with fetched(path, lambda wanted=wanted: decoder.stretches(wanted)):  # type: ignore[misc]
                    decoder.fill(wanted, np.expand_dims(cube.transpose(np.argsort(order)), others))
            except Exception as error:  # h5py raises many kinds of errors for a damaged file
                raise CubeError(f"{path}: {data.name} cannot be inflated: {error}") from None
            yield [one.start for one in part], cube

    return from_pieces(path, shape, dtype, pieces())


def write_part(descriptor: int, cube: np.ndarray, start: list[int], shape: list[int]) -> None:
    """Write a part (bands, lines, samples) to its place in a file, each band at once where its lines are whole."""
    band, line, sample = start
    for b, plane in enumerate(cube):
        first = ((band + b) * shape[1] + line) * shape[2] + sample
        if plane.shape[1] == shape[2]:
            write_all(descriptor, plane, first * cube.itemsize)
            continue
        for y, row in enumerate(plane):
            write_all(descriptor, row, (first + y * shape[2]) * cube.itemsize)
