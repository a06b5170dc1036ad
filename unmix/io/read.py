"""Read the pieces of a block by their offsets in a file, in parallel, each straight into its place in memory."""

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np

from ..blocks import cores, once_a_process
from ..errors import CubeError, brief
from .opening import open_plain
from .remote import RemotePath

# Few threads and large pieces, because each piece ends in a wait for Python's lock: 10 million pixels through an H200
# host of 16 cores took 0.66 s with 16 readers of 4 MiB and 8 writers, 0.38 s with 8 of 16 MiB and 4. A cold disk wants
# two to four.
PIECE = 16 * 2**20
# Most bytes of lines that share a chunk or tile: above, the cube is inflated once instead (`unmix.io.scratch`).
MOST_TOGETHER = 64 * 2**20
# H5L_TYPE_EXTERNAL; written out because this module does not import h5py, which not every cube needs.
EXTERNAL_LINK = 64
FEWEST_READERS, MOST_READERS = 4, 8
# An array of bytes to fill, and its offset in the file.
Part = tuple[np.ndarray, int]


@once_a_process
def readers() -> ThreadPoolExecutor:
    """Return the pool of threads that read, one for the process."""
    return ThreadPoolExecutor(min(MOST_READERS, max(FEWEST_READERS, cores())), "piece")


class ScratchFile:
    """A scratch file of a whole cube (BSQ), made by ``make`` at the first read; any number of threads may read it."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make, self.lock = make, threading.Lock()
        self.file: Any = None

    def fileno(self) -> int:
        """Return the descriptor of the file; make the file if this is the first call."""
        with self.lock:
            if self.file is None:
                self.file = self.make()
        return int(self.file.fileno())

    def read_bsq(self, path: Path, height: int, lines: slice, filled: np.ndarray) -> None:
        """Fill an array (bands, n, samples) with lines of a cube of ``height`` lines; ``path`` is for messages."""
        flat, size = filled.reshape(-1).view(np.uint8), filled[0].nbytes
        line = filled[0, :1].nbytes
        descriptor = self.fileno()
        for b in range(len(filled)):
            fill(path, descriptor, flat[b * size : (b + 1) * size], (b * height + lines.start) * line)


def refuse_links(path: Path, data: Any) -> None:
    """Raise `CubeError` where the values lie in other files, which may form a loop (seen: a crash in HDF5)."""
    if data.is_virtual or data.external:
        raise CubeError(f"{path}: {brief(data.name)} has its values in other files; name the file that holds them")


def refuse_links_out(path: Path, file: Any) -> None:
    """Raise `CubeError` where an HDF5 file links to another file, whose changes nothing would detect."""
    links: list[str] = []

    def visit(name: bytes, link: Any) -> int | None:
        if link.type == EXTERNAL_LINK:
            links.append(name.decode("utf-8", "replace"))
        return len(links) or None  # anything but None ends the visit

    file.id.links.visit(visit, info=True)
    if links:
        raise CubeError(
            f"{path}: '{brief(links[0])}' is a link into another file; name the file that holds the data, or copy it in"
        )


def announce(path: Path, stretches: Sequence[tuple[int, int]]) -> None:
    """Ask the system to prefetch stretches ``(offset, bytes)`` of a file; do nothing where it cannot."""
    if not hasattr(os, "posix_fadvise") or isinstance(path, RemotePath):
        return
    with contextlib.suppress(OSError), open_plain(path, 0) as file:
        for offset, size in stretches:
            os.posix_fadvise(file.fileno(), offset, size, os.POSIX_FADV_WILLNEED)


def read_parts(path: Path, parts: Sequence[Part]) -> None:
    """Fill every part from the file, in parallel; no thread writes any more when an error is raised."""
    if isinstance(path, RemotePath):
        return path.pages.fill(parts)
    try:
        file = open_plain(path, 0)
    except OSError as error:
        raise CubeError(f"{path}: cannot be read any more: {error.strerror}") from None
    with file:
        shares = shared_out(parts)
        if len(shares) == 1:
            fill_all(path, file.fileno(), shares[0])
            return
        under_way = [readers().submit(fill_all, path, file.fileno(), share) for share in shares]
        try:
            wait(under_way)
        finally:
            for future in under_way:
                future.cancel()
            wait(under_way)
        for future in under_way:
            future.result()


def shared_out(parts: Sequence[Part]) -> list[list[Part]]:
    """Split large parts and group small ones into shares of about `PIECE` bytes, one for a thread at a time."""
    shares: list[list[Part]] = [[]]
    size = 0
    for part, offset in parts:
        for first in range(0, len(part), PIECE):
            piece = part[first : first + PIECE]
            if size + len(piece) > PIECE and shares[-1]:
                shares.append([])
                size = 0
            shares[-1].append((piece, offset + first))
            size += len(piece)
    return shares


def fill_all(path: Path, descriptor: int, share: Sequence[Part]) -> None:
    """Fill one thread's parts; errors as of `read_parts`."""
    for part, offset in share:
        fill(path, descriptor, part, offset)


def fill(path: Path, descriptor: int, part: np.ndarray, where: int) -> None:
    """Read bytes from an offset of the file until an array is full; errors as of `read_parts`."""
    done = 0
    while done < len(part):
        try:
            count = os.preadv(descriptor, [part[done:].data], where + done)
        except OSError as error:
            raise CubeError(f"{path}: reading failed at byte {where + done}: {error.strerror}") from None
        if count == 0:
            raise CubeError(f"{path}: ends at byte {where + done}; it was longer when it was opened")
        done += count
