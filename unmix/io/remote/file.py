"""An object of a store as a file that can be read anywhere, for the libraries of HDF5 and TIFF."""

import contextlib
import io
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from .path import RemotePath
from .store import PIECE, fill

# Bytes of a page, the unit that is fetched and kept, and of all pages that are kept for a next reading.
PAGE, KEPT = 128 * 2**10, 32 * 2**20


class RemoteFile(io.RawIOBase):
    """An object as a file. Pages that were read are kept a while; `holding` fetches many at once, before a library reads them singly.

    Parameters
    ----------
    path : RemotePath
        Its version is pinned: what is read later is of this version, or a `CubeError`.

    Raises
    ------
    OSError
        Where there is no such object, or the server does not answer.
    """

    def __init__(self, path: RemotePath) -> None:
        self.path, self.size, self.place = path, path.version.size, 0
        self.lock = threading.Lock()
        self.kept: OrderedDict[int, np.ndarray] = OrderedDict()
        self.held: dict[int, tuple[np.ndarray, int]] = {}  # pages, and by how many blocks they are held

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.place, io.SEEK_END: self.size}[whence]
        return self.place

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer from the present place; see `unmix.io.remote.store.fill` for errors."""
        view = memoryview(buffer).cast("B")
        first, last = self.place, min(self.place + len(view), self.size)
        if last <= first:
            return 0
        pages = self.pages(range(first // PAGE, -(-last // PAGE)))
        for number, page in pages.items():
            begin, end = max(first, number * PAGE), min(last, number * PAGE + len(page))
            view[begin - first : end - first] = page[begin - number * PAGE : end - number * PAGE].data
        self.place = last
        return last - first

    def pages(self, numbers: Iterable[int]) -> dict[int, np.ndarray]:
        """Return pages by their numbers; fetch those that are neither held nor kept."""
        found: dict[int, np.ndarray] = {}
        wanted = sorted(set(numbers))
        with self.lock:
            for number in wanted:
                page = self.held[number][0] if number in self.held else self.kept.get(number)
                if page is not None:
                    found[number] = page
        fetched = self.fetch([number for number in wanted if number not in found])
        with self.lock:
            self.kept.update(fetched)
            for number in wanted:
                if number in self.kept:
                    self.kept.move_to_end(number)
            while len(self.kept) > KEPT // PAGE:
                self.kept.popitem(last=False)
        return found | fetched

    def fetch(self, numbers: Sequence[int]) -> dict[int, np.ndarray]:
        """Fetch pages, neighbours with one request."""
        runs: list[list[int]] = []
        for number in numbers:
            if runs and number == runs[-1][-1] + 1 and len(runs[-1]) < PIECE // PAGE:
                runs[-1].append(number)
            else:
                runs.append([number])
        parts = [
            (np.empty(min((run[-1] + 1) * PAGE, self.size) - run[0] * PAGE, np.uint8), run[0] * PAGE) for run in runs
        ]
        if parts:
            fill(self.path, parts)
        return {
            number: part[k * PAGE : (k + 1) * PAGE]
            for run, (part, _) in zip(runs, parts)
            for k, number in enumerate(run)
        }

    @contextlib.contextmanager
    def holding(self, stretches: Iterable[tuple[int, int]]) -> Iterator[None]:
        """Fetch stretches ``(offset, bytes)`` at once, and hold them until the block ends; several threads may."""
        numbers = {
            number
            for offset, size in stretches
            for number in range(offset // PAGE, -(-min(offset + size, self.size) // PAGE))
        }
        pages = self.pages(numbers)
        with self.lock:
            for number, page in pages.items():
                self.held[number] = (page, self.held.get(number, (page, 0))[1] + 1)
        try:
            yield
        finally:
            with self.lock:
                for number in pages:
                    page, holders = self.held.pop(number)
                    if holders > 1:
                        self.held[number] = (page, holders - 1)
