"""Hold the projections of all pixels, in memory or in a scratch file, and search them by threads."""

import functools
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from ...compiled.jit import aligned_zeros
from .searches import BINS, WIDTH, along, count_use, farthest_each, largest_residual

Result = TypeVar("Result")
# Pixels whose coordinates are looked at together: they stay in the cache, where 16 threads that fill new memory wait
# for each other.
IN_CACHE = 2**14


class Points:
    """The projected pixels (pixels, d), in memory if that takes at most ``budget`` bytes, else in a scratch file."""

    # Rows of the scratch file that are read at a time, and by one thread of several; fewest rows in memory that are
    # worth a thread's while; parts that a thread takes before results are asked for.
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
        """Yield the first row of each part of the rows, in order, and a function that returns the part, for threads."""
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
        """Yield the results of ``function(first, rows)`` for parts of the rows, in order."""

        def of_part(part: tuple[int, Callable[[], np.ndarray]]) -> Result:
            return function(part[0], part[1]())

        # Parts depend on threads and memory: results of them together must not depend on where they end.
        parts = list(self.parts())
        if len(parts) == 1:
            yield of_part(parts[0])
            return
        together = self.TURNS * self.threads  # not all at once, since what is made of a part may be large
        for k in range(0, len(parts), together):
            yield from self.pool.map(of_part, parts[k : k + together])

    def farthest_each(self, F: np.ndarray) -> tuple[list[int], list[float]]:
        """Return the first row of the largest ``|fᵀ(x, 1)|`` for each column f of F (d + 1, p), and the value or −1."""
        p = F.shape[1]

        def find(first: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            best, most = np.zeros(p, np.int64), np.full(p, -1.0)
            farthest_each(rows, F, best, most, aligned_zeros(len(F), WIDTH))
            return best + first, most

        places, values = np.zeros(p, np.int64), np.full(p, -1.0)
        for best, most in self.mapped(find):
            is_larger = most > values
            places[is_larger], values[is_larger] = best[is_larger], most[is_larger]
        return places.tolist(), values.tolist()

    def largest_residual(self, constant: float, Q: np.ndarray) -> tuple[int, float]:
        """Return the first row whose ``(x, constant)`` is farthest from the span of Q (n, d + 1), and the square."""
        best, most = 0, -1.0
        for first, (n, value) in self.mapped(
            lambda first, rows: (first, largest_residual(rows, constant, Q, aligned_zeros(self.d + 2, WIDTH)))
        ):
            if value > most:
                best, most = first + int(n), float(value)
        return best, most

    def count_use(self, inverse: np.ndarray, limits: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return ``bins``, ``leads``, ``beyond`` and the pair (valid, outside), as `searches.count_use` counts them."""
        p = len(inverse)

        def count(_: int, rows: np.ndarray) -> tuple[np.ndarray, ...]:
            bins, leads, beyond = np.zeros((p, BINS), np.int64), np.zeros(p, np.int64), np.zeros(p, np.int64)
            return bins, leads, beyond, np.array(count_use(rows, inverse, limits, bins, leads, beyond))

        return functools.reduce(lambda one, other: tuple(map(np.add, one, other)), self.mapped(count))

    def largest_along(self, F: np.ndarray, count: int) -> list[list[int]]:
        """Return for each column f of F (d + 1, p) the ``count`` rows with the largest ``fᵀ(x, 1)``, largest first."""
        columns, d = np.ascontiguousarray(F.T), self.d

        def of_part(first: int, rows: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
            found: list[tuple[np.ndarray, np.ndarray]] = [(np.empty(0, np.int64), np.empty(0))] * len(columns)
            for begin in range(0, len(rows), IN_CACHE):
                some = rows[begin : begin + IN_CACHE]
                values = np.empty(len(some))
                for k, f in enumerate(columns):
                    along(some, f[:d], f[d], values)
                    places = largest_of(values, count)
                    found[k] = first_of([found[k], (places + first + begin, values[places])], count)
            return found

        return [first_of(parts, count)[0].tolist() for parts in zip(*self.mapped(of_part))]

    def thinned(self, step: int) -> np.ndarray:
        """Return every ``step``-th row, without masked rows; array (n, d)."""
        some = [rows[-first % step :: step].copy() for first, rows in self.pieces()]  # a view would keep its piece
        rows = np.concatenate(some)
        return rows[~np.isnan(rows[:, 0])]

    def row(self, n: int) -> np.ndarray:
        """Return row n."""
        return self.part(n, 1)[0]

    def rows(self, places: Sequence[int]) -> np.ndarray:
        """Return some rows, (n, d)."""
        return np.stack([self.part(n, 1)[0] for n in places])

    def close(self) -> None:
        """Close the scratch file, which deletes it."""
        self.pool.shutdown()
        if self.scratch is not None:
            self.scratch.close()


def largest_of(values: np.ndarray, count: int) -> np.ndarray:
    """Return the places of the ``count`` largest of ``values`` (n,), largest first, the first of equal ones; no NaN."""
    valid = np.flatnonzero(~np.isnan(values))
    if len(valid) > count:
        least = np.partition(values[valid], len(valid) - count)[len(valid) - count]
        valid = valid[values[valid] >= least]
    found: np.ndarray = valid[np.argsort(-values[valid], kind="stable")[:count]]
    return found


def first_of(parts: Sequence[tuple[np.ndarray, np.ndarray]], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of the largest values of some parts, and these."""
    places, values = (np.concatenate(some) for some in zip(*parts))
    kept = largest_of(values, count)
    return places[kept], values[kept]
