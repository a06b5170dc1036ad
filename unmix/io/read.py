"""Positioned reads: the pieces of a block, several in flight, each straight to its place in memory."""

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np

from ..blocks import cores
from ..errors import CubeError

# Few threads and large pieces, because each piece ends in a wait for Python's lock: 10 million pixels through an H200
# host of 16 cores took 0.66 s with 16 readers of 4 MiB and 8 writers, 0.38 s with 8 of 16 MiB and 4. A cold disk wants two to four.
PIECE = 16 * 2**20
# Lines that share chunks or tiles and take more than this are not read together, but inflated once (`unmix.io.scratch`).
MOST_TOGETHER = 64 * 2**20
# H5L_TYPE_EXTERNAL; this module does without h5py, which not every cube needs.
EXTERNAL_LINK = 64
FEWEST_READERS, MOST_READERS = 4, 8
Part = tuple[np.ndarray, int]


@functools.cache
def readers() -> ThreadPoolExecutor:
    """The threads that read, one pool a process."""
    return ThreadPoolExecutor(min(MOST_READERS, max(FEWEST_READERS, cores())), "piece")


class Scratch:
    """A scratch file of a whole cube, BSQ, that the first to read it makes, by ``make``; any number of threads may."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make, self.lock = make, threading.Lock()
        self.file: Any = None

    def fileno(self) -> int:
        """Its descriptor."""
        with self.lock:
            if self.file is None:
                self.file = self.make()
        return int(self.file.fileno())

    def read_bsq(self, path: Path, height: int, lines: slice, filled: np.ndarray) -> None:
        """Lines of every band, (bands, n, samples), where bands are ``height`` lines; ``path`` is for messages."""
        flat, size = filled.reshape(-1).view(np.uint8), filled[0].nbytes
        line = filled[0, :1].nbytes
        descriptor = self.fileno()
        for b in range(len(filled)):
            fill(path, descriptor, flat[b * size : (b + 1) * size], (b * height + lines.start) * line)


def brief(error: BaseException | str) -> str:
    """What an error or a name says, in a few words of one line."""
    words = " ".join(str(error).split()) or type(error).__name__
    return words if len(words) <= 160 else words[:160] + " …"


def refuse_links(path: Path, data: Any) -> None:
    """Raise where the values lie in other files: such links may lead anywhere, and in circles (seen: a crash in HDF5)."""
    if data.is_virtual or data.external:
        raise CubeError(f"{path}: {brief(data.name)} has its values in other files; name the file that holds them")


def refuse_links_out(path: Path, file: Any) -> None:
    """Raise where a name in an HDF5 file leads into another file: what is there may change, and nobody would know."""
    found: list[str] = []

    def visit(name: bytes, link: Any) -> int | None:
        if link.type == EXTERNAL_LINK:
            found.append(name.decode("utf-8", "replace"))
        return len(found) or None  # anything but None ends the visit

    file.id.links.visit(visit, info=True)
    if found:
        raise CubeError(
            f"{path}: '{brief(found[0])}' is a link into another file; name the file that holds the data, or copy it in"
        )


def announce(path: Path, stretches: Sequence[tuple[int, int]]) -> None:
    """Let the system fetch ``(place, bytes)`` of a file while something else is done; nothing is lost where it cannot."""
    if not hasattr(os, "posix_fadvise"):
        return
    with contextlib.suppress(OSError), open(path, "rb", buffering=0) as file:
        for place, size in stretches:
            os.posix_fadvise(file.fileno(), place, size, os.POSIX_FADV_WILLNEED)


def read_parts(path: Path, parts: Sequence[Part]) -> None:
    """Fill every array of ``(bytes, place in the file)``.

    Raises
    ------
    CubeError
        Where the file cannot be read any more, or ends too early. No thread writes to the arrays by then.
    """
    try:
        file = open(path, "rb", buffering=0)  # noqa: SIM115 - closed below
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
    """Large parts cut, small ones together: about `PIECE` bytes for a thread at a time."""
    shares: list[list[Part]] = [[]]
    size = 0
    for part, where in parts:
        for first in range(0, len(part), PIECE):
            piece = part[first : first + PIECE]
            if size + len(piece) > PIECE and shares[-1]:
                shares.append([])
                size = 0
            shares[-1].append((piece, where + first))
            size += len(piece)
    return shares


def fill_all(path: Path, descriptor: int, share: Sequence[Part]) -> None:
    """Fill one thread's parts; errors as `read_parts`."""
    for part, where in share:
        fill(path, descriptor, part, where)


def fill(path: Path, descriptor: int, part: np.ndarray, where: int) -> None:
    """Read bytes until an array is full; errors as `read_parts`."""
    done = 0
    while done < len(part):
        try:
            got = os.preadv(descriptor, [part[done:].data], where + done)
        except OSError as error:
            raise CubeError(f"{path}: reading failed at byte {where + done}: {error.strerror}") from None
        if got == 0:
            raise CubeError(f"{path}: ends at byte {where + done}; it was longer when it was opened")
        done += got
