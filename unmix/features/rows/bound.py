"""Bound the least cost of all subsets of a number of rows, by branch and bound.

No subset costs less than all the rows that it is drawn from.
"""

import heapq
import time

from .search import Search
from .subsets import Rows, with_row, without


class Bound:
    """A tree of subsets, whose nodes have rows that all of their subsets have, and rows that these may have.

    Parameters
    ----------
    search : Search
    rows : tuple of int
        The best subset that is known, of the number of rows.

    Attributes
    ----------
    rows : tuple of int
        The best subset that is known, in the end.
    low : float
        No subset of that number costs less than this.
    """

    def __init__(self, search: Search, rows: Rows) -> None:
        self.subsets, self.rows, self.count, self.least = search.subsets, rows, len(rows), search.least
        self.value = self.subsets.cost(rows)
        every = tuple(range(self.subsets.p))
        self.low = self.subsets.cost(every)
        self.open: list[tuple[float, int, Rows, Rows]] = [(self.low, 0, every, ())]
        self.nodes = 0

    def run(self, seconds: float) -> None:
        """Search until the bound reaches the value, or the time is over."""
        end = time.monotonic() + seconds
        while self.open and self.subsets.is_less(self.open[0][0], self.value) and time.monotonic() < end:
            self.branch(*heapq.heappop(self.open))
        self.low = min([self.value, *(low for low, *_ in self.open[:1])])
        if not self.subsets.is_less(self.low, self.value):
            self.low = self.value

    @property
    def gap(self) -> float:
        """The relative gap between the cost of the best subset and the bound."""
        return (self.value - self.low) / self.value if self.value > self.low else 0.0

    def push(self, low: float, allowed: Rows, chosen: Rows) -> None:
        """Put a node on the heap, unless no subset of it is better than the best that is known."""
        if self.subsets.is_less(low, self.value):
            self.nodes += 1
            heapq.heappush(self.open, (low, self.nodes, allowed, chosen))

    def try_out(self, rows: Rows) -> None:
        """Take a subset if it is better than the best that is known."""
        value = self.subsets.cost(rows)
        if self.subsets.is_less(value, self.value):
            self.rows, self.value = rows, value

    def branch(self, low: float, _: int, allowed: Rows, chosen: Rows) -> None:
        """Split a node by the row whose loss costs most, or look at all of its subsets."""
        subsets, count, free = self.subsets, self.count, [j for j in allowed if j not in chosen]
        if len(allowed) <= count:
            self.try_out(allowed)
        elif len(chosen) == count:
            self.try_out(chosen)
        elif len(chosen) == count - 1 and len(chosen) >= self.least:
            base = subsets.fit(chosen).cost
            bounds = subsets.bounds(chosen)
            trials = [with_row(chosen, k) for k in free if subsets.is_less(base - bounds[k], self.value)]
            for rows, cost in zip(trials, subsets.each_cost(trials, chosen)):
                if subsets.is_less(cost, self.value):
                    self.rows, self.value = rows, cost
        else:
            losses = dict(zip(allowed, subsets.promises(allowed).losses))
            j = max(free, key=lambda k: (losses[k], -k))
            self.push(max(low, subsets.cost(allowed)), allowed, with_row(chosen, j))
            rest = without(allowed, j)
            self.push(max(low, subsets.cost(rest, allowed)), rest, chosen)
