"""Hold the projections of all pixels, in memory or in a scratch file, and search them by threads."""

import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

Result = TypeVar("Result")


class Points:
    """The projected pixels, (pixels, d): an array if it fits the budget (bytes), else a scratch file; threads share their searches."""

    # Rows of the scratch file that are read at a time; fewest rows that are worth a thread's while.
    ROWS, FEWEST = 2**17, 2**13

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
        if self.held is not None:
            yield 0, self.held
            return
        for first in range(0, self.pixels, self.ROWS):
            yield first, self.read(first, min(self.ROWS, self.pixels - first))

    def read(self, first: int, count: int) -> np.ndarray:
        """Read some rows of the scratch file."""
        return np.frombuffer(os.pread(self.scratch.fileno(), 8 * self.d * count, 8 * self.d * first)).reshape(
            -1, self.d
        )

    def mapped(self, function: Callable[[int, np.ndarray], Result]) -> Iterator[Result]:
        """Yield what ``function`` makes of parts of the rows, in order; it is given the number of the first row, and the rows.

        Parts depend on threads and memory, so what is made of them together must not depend on where they end.
        """
        for begun, rows in self.pieces():
            size = max(self.FEWEST, -(-len(rows) // self.threads))
            if len(rows) <= size:
                yield function(begun, rows)
                continue
            firsts = range(0, len(rows), size)
            yield from self.pool.map(lambda n, rows=rows, begun=begun: function(begun + n, rows[n : n + size]), firsts)  # noqa: B023

    def best(self, find: Callable[[np.ndarray], tuple[int, float]]) -> tuple[int, float]:
        """Return the row to which ``find`` gives the largest value of all parts, and that value; −1 where it finds none."""
        best, most = 0, -1.0
        for first, (n, value) in self.mapped(lambda first, rows: (first, find(rows))):
            if value > most:
                best, most = first + int(n), float(value)
        return best, most

    def row(self, n: int) -> np.ndarray:
        """Return row n."""
        return self.held[n] if self.held is not None else self.read(n, 1)[0]

    def close(self) -> None:
        """Close the scratch file, which deletes it."""
        self.pool.shutdown()
        if self.scratch is not None:
            self.scratch.close()
