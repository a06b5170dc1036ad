"""An object of a store as a file that can be read anywhere, for the libraries of HDF5 and TIFF."""

import contextlib
import io
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ...errors import CubeError
from .path import RemotePath
from .store import PIECE, fill

# Bytes of a page, the unit that is fetched and kept, and of all pages that are kept for a next reading.
PAGE, KEPT = 128 * 2**10, 32 * 2**20


class Pages:
    """The pages of an object of one version; `holding` fetches many at once, since libraries read one at a time.

    Raises `OSError` where there is no such file, or the server does not answer.
    """

    def __init__(self, path: RemotePath) -> None:
        self.path, self.size = path, path.version.size
        self.lock = threading.Lock()
        self.kept: OrderedDict[int, np.ndarray] = OrderedDict()
        self.held: dict[int, tuple[np.ndarray, int]] = {}  # a page, and the number of blocks that hold it

    def read(self, first: int, view: memoryview) -> int:
        """Fill a buffer from an offset; return the number of bytes. See `unmix.io.remote.store.fill` for errors."""
        last = min(first + len(view), self.size)
        if last <= first:
            return 0
        for number, page in self.get(range(first // PAGE, -(-last // PAGE))).items():
            begin, end = max(first, number * PAGE), min(last, number * PAGE + len(page))
            view[begin - first : end - first] = page[begin - number * PAGE : end - number * PAGE].data
        return last - first

    def fill(self, parts: Sequence[tuple[np.ndarray, int]]) -> None:
        """Fill byte arrays from offsets, via pages where many short ones lie close together, as lines of BSQ do."""
        numbers = {n for part, offset in parts for n in range(offset // PAGE, -(-(offset + len(part)) // PAGE))}
        few = len(numbers) * PAGE <= KEPT // 2
        if not few or max((len(part) for part, _ in parts), default=0) >= PAGE:
            return fill(self.path, parts)
        with self.holding([(offset, len(part)) for part, offset in parts]):
            for part, offset in parts:
                if self.read(offset, memoryview(part.data)) != len(part):
                    raise CubeError(f"{self.path}: ends at byte {self.size}; it was longer when it was opened")

    def get(self, numbers: Iterable[int]) -> dict[int, np.ndarray]:
        """Return pages by their numbers; fetch pages that are neither held nor kept."""
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
        pages = self.get(numbers)
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


class RemoteFile(io.RawIOBase):
    """An object as a file, read from its pages; errors as of `Pages`."""

    def __init__(self, pages: Pages) -> None:
        self.pages, self.place = pages, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.place, io.SEEK_END: self.pages.size}[whence]
        return self.place

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer from the present place; see `Pages.read`."""
        size = self.pages.read(self.place, memoryview(buffer).cast("B"))
        self.place += size
        return size
