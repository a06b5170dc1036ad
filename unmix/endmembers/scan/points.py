"""Hold the projections of all pixels, in memory or in a scratch file, and search them by threads."""

import functools
import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

Result = TypeVar("Result")


class Points:
    """The projected pixels, (pixels, d): an array if it fits the budget (bytes), else a scratch file; threads share their searches."""

    # Rows of the scratch file that are read at a time, and by one thread of several; fewest rows in memory that are worth a thread's
    # while; parts that a thread takes before results are asked for.
    ROWS, PART, FEWEST, TURNS = 2**17, 2**14, 2**13, 8

    def __init__(self, pixels: int, d: int, budget: int, threads: int = 1) -> None:
        self.pixels, self.d = pixels, d
        self.held = np.empty((pixels, d)) if 8 * pixels * d <= budget else None
        self.scratch: Any = None if self.held is not None else tempfile.TemporaryFile(prefix="unmix-")  # noqa: SIM115
        self.threads, self.pool = threads, ThreadPoolExecutor(threads, "points")

    def room(self, first: int, count: int) -> np.ndarray:
        """Return an array for some rows: their place if they are in memory, else one to `put`."""
        return np.empty((count, self.d)) if self.held is None else self.held[first : first + count]

    def put(self, first: int, rows: np.ndarray) -> None:
        """Store some rows; any thread may call it, in any order."""
        if self.held is not None:
            self.held[first : first + len(rows)] = rows
            return
        left, place = np.ascontiguousarray(rows).reshape(-1).view(np.uint8), 8 * self.d * first
        while len(left):  # a call writes 2 GB at most
            written = os.pwritev(self.scratch.fileno(), [left.data], place)
            left, place = left[written:], place + written

    def pieces(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield all rows in order, in pieces, each with the number of its first row."""
        size = self.ROWS if self.held is None else self.pixels
        for first in range(0, self.pixels, size):
            yield first, self.part(first, min(size, self.pixels - first))

    def parts(self) -> Iterator[tuple[int, Callable[[], np.ndarray]]]:
        """Yield the number of the first row of each part of the rows, in order, and what returns the part; a thread takes one."""
        size = self.PART if self.held is None else max(self.FEWEST, -(-self.pixels // self.threads))
        for first in range(0, self.pixels, size):
            yield first, functools.partial(self.part, first, min(size, self.pixels - first))

    def part(self, first: int, count: int) -> np.ndarray:
        """Return some rows."""
        if self.held is not None:
            return self.held[first : first + count]
        raw = os.pread(self.scratch.fileno(), 8 * self.d * count, 8 * self.d * first)
        return np.frombuffer(raw).reshape(-1, self.d)

    def mapped(self, function: Callable[[int, np.ndarray], Result]) -> Iterator[Result]:
        """Yield what ``function`` makes of parts of the rows, in order; it is given the number of the first row, and the rows.

        Parts depend on threads and memory, so what is made of them together must not depend on where they end.
        """

        def of_part(part: tuple[int, Callable[[], np.ndarray]]) -> Result:
            return function(part[0], part[1]())

        parts = list(self.parts())
        if len(parts) == 1:
            yield of_part(parts[0])
            return
        together = self.TURNS * self.threads  # not all at once, since what is made of a part may be large
        for k in range(0, len(parts), together):
            yield from self.pool.map(of_part, parts[k : k + together])

    def best(self, find: Callable[[np.ndarray], tuple[int, float]]) -> tuple[int, float]:
        """Return the row to which ``find`` gives the largest value of all parts, and that value; −1 where it finds none."""
        best, most = 0, -1.0
        for first, (n, value) in self.mapped(lambda first, rows: (first, find(rows))):
            if value > most:
                best, most = first + int(n), float(value)
        return best, most

    def row(self, n: int) -> np.ndarray:
        """Return row n."""
        return self.part(n, 1)[0]

    def close(self) -> None:
        """Close the scratch file, which deletes it."""
        self.pool.shutdown()
        if self.scratch is not None:
            self.scratch.close()
