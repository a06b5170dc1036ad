"""Search for the rows of a library that a scene needs: backward elimination, then exchanges until none lowers the cost."""

import itertools
from collections.abc import Iterable, Set

import numpy as np

from .subsets import Rows, Subsets, with_row, without

# Rows that an elimination begins with: those of most energy in the mixtures of all, and those that are added one by one; beside the
# number that is asked for.
POOL, FORWARD = 40, 24
# Rows of which an addition or a loss is computed at each step of a selection: those that promise most.
TRIED = 6
# Additions and exchanges that are computed at once: those that promise most.
BATCH = 12
# One of so many pixels tells what a row promises while nothing is to be proved.
SOME = 4
# Losses, in prices of a row, up to which a way without the row is tried, and exchanges on it.
ESCAPED, MOST_WITHOUT = 8.0, 4


class Search:
    """A search for the subset of the least ``cost + price |S|``, or of the least cost with a given number of rows.

    Parameters
    ----------
    subsets : Subsets
    price : float
        What a row costs, in the unit of costs.
    count : int or None
        The number of rows, where it is given.

    Attributes
    ----------
    least : int
        Fewest rows with which pixels have an answer.
    """

    def __init__(self, subsets: Subsets, price: float, count: int | None = None) -> None:
        self.subsets, self.price, self.count = subsets, price, count
        self.least = int(subsets.sum_to_one and not subsets.has_shade)

    def value(self, rows: Rows) -> float:
        """Return what is minimised."""
        return self.subsets.cost(rows) + (self.price * len(rows) if self.count is None else 0.0)

    def run(self, energies: np.ndarray) -> Rows:
        """Return good rows, of which nothing is proved; ``energies`` (p,) are those of the abundances of a fit by all."""
        stop = self.count or 1
        pool = np.argsort(-energies, kind="stable")[: POOL + stop].tolist()
        path = self.backward({*pool, *self.forward(FORWARD + stop)}, stop)
        better: Rows | None = path[-1] if self.count is not None else min(reversed(path), key=self.value)
        while better:
            rows = self.settled(better)
            better = self.escaped(rows) or self.merged(rows)
        return rows

    def proved(self, rows: Rows) -> Rows:
        """Return rows from which no exchange, and where the number is open no loss and no addition, lowers the value."""
        return self.settled(rows, thorough=True)

    def forward(self, count: int) -> Rows:
        """Return rows that are added one by one: the one that lowers the cost most of those that promise most."""
        rows: Rows = ()
        if self.least:
            rows = min(((j,) for j in range(self.subsets.p)), key=self.subsets.cost)
        while len(rows) < min(count, self.subsets.p):
            rows = self.grown(rows, TRIED)
        return rows

    def grown(self, rows: Rows, tried: int, barred: Set[int] = frozenset()) -> Rows:
        """Return rows and one more, the best of those that promise most; the same where there is none."""
        gains = self.subsets.promises(rows, SOME).gains
        order = [int(k) for k in np.argsort(-gains, kind="stable") if k not in rows and k not in barred]
        return self.best_of([with_row(rows, k) for k in order[:tried]], rows) if order else rows

    def best_of(self, trials: list[Rows], like: Rows) -> Rows:
        """Return the subset of the least cost, and keep its abundances."""
        best = trials[int(np.argmin(self.subsets.each_cost(trials, like)))]
        self.subsets.fit(best, like)
        return best

    def backward(self, pool: Iterable[int], stop: int) -> list[Rows]:
        """Return subsets of a pool, each with the row less whose loss costs least of those that promise to cost least."""
        path = [tuple(sorted(pool))]
        while len(path[-1]) > stop:
            rows = path[-1]
            order = np.argsort(self.subsets.promises(rows, SOME).losses, kind="stable")
            path.append(self.best_of([without(rows, rows[i]) for i in order[:TRIED]], rows))
        return path

    def settled(self, rows: Rows, thorough: bool = False) -> Rows:
        """Return rows that no change of one improves: none of those that promise most or, where it is to be ``thorough``, none."""
        better: Rows | None = rows
        while better:
            rows = better
            if self.count is None:
                better = self.longer(rows, thorough) or self.shorter(rows) or self.exchanged(rows, thorough)
            elif len(rows) < self.count:
                better = self.grown(rows, BATCH)
            else:
                better = self.exchanged(rows, thorough)
        return rows

    def escaped(self, rows: Rows) -> Rows | None:
        """Return better rows that are reached by a way without one of them, None if there are none."""
        costs = np.array(self.subsets.each_cost([without(rows, j) for j in rows], rows))
        excess = costs - self.subsets.cost(rows)
        for i in np.argsort(excess, kind="stable"):
            rest = without(rows, rows[i])
            if len(rest) < self.least or excess[i] > ESCAPED * self.price:
                break
            self.subsets.fit(rest, rows)
            other: Rows | None = self.grown(rest, BATCH, {rows[i]})
            for _ in range(MOST_WITHOUT):
                last, other = other, other and self.exchanged(other, False, {rows[i]})
                if not other:
                    break
            found = self.settled(other or last or rest)
            if self.subsets.is_less(self.value(found), self.value(rows)):
                return found
        return None

    def merged(self, rows: Rows) -> Rows | None:
        """Return better rows with one in place of two (or where their number is given, two), None if there are none."""
        losses = dict(zip(rows, self.subsets.promises(rows, SOME).losses))
        for pair in itertools.combinations(sorted(rows, key=lambda j: float(losses[j])), 2):
            rest = without(without(rows, pair[0]), pair[1])
            if len(rest) < self.least or losses[pair[0]] > ESCAPED * self.price:
                continue
            self.subsets.fit(rest, rows)
            other = self.grown(rest, BATCH, set(pair))
            other = other if self.count is None else self.grown(other, BATCH, set(pair))
            if self.subsets.is_less(self.value(other), self.value(rows)):
                return other
        return None

    def exchanged(self, rows: Rows, thorough: bool, barred: Set[int] = frozenset()) -> Rows | None:
        """Return rows with an exchange that lowers the cost, the best of a batch; None if there is none."""
        promising = [trial for j in rows for trial in self.exchanges(rows, j, thorough) if trial[1] not in barred]
        promising.sort()
        trials = [with_row(without(rows, j), k) for _, k, j in promising]
        return self.better_of(trials, rows, self.subsets.cost(rows), thorough)

    def exchanges(self, rows: Rows, j: int, thorough: bool, limit: float | None = None) -> list[tuple[float, int, int]]:
        """Return the exchanges of one row that may cost less than ``limit``, by default less than now: promised cost, other, row."""
        subsets, rest = self.subsets, without(rows, j)
        if len(rest) < self.least:
            return [(0.0, k, j) for k in range(subsets.p) if k != j]
        base, found = subsets.fit(rest, rows).cost, subsets.promises(rest, 1 if thorough else SOME)
        may = subsets.is_less(base - found.bounds, subsets.cost(rows) if limit is None else limit)
        return [(base - float(found.gains[k]), int(k), j) for k in np.flatnonzero(may) if k not in rows]

    def best_exchange(self, rows: Rows, j: int) -> tuple[int, float]:
        """Return the other row that costs least in place of one, of those that promise most, and the cost; −1 if there is none."""
        trials = sorted(self.exchanges(rows, j, True, np.inf))[:BATCH]
        if not trials:
            return -1, np.inf
        costs = self.subsets.each_cost([with_row(without(rows, j), k) for _, k, _ in trials], rows)
        best = int(np.argmin(costs))
        return trials[best][1], costs[best]

    def better_of(self, trials: list[Rows], rows: Rows, limit: float, thorough: bool) -> Rows | None:
        """Return the first batch's best that costs less than a limit; only one batch is tried unless it is to be ``thorough``."""
        for first in range(0, len(trials) if thorough else min(BATCH, len(trials)), BATCH):
            best = self.best_of(trials[first : first + BATCH], rows)
            if self.subsets.is_less(self.subsets.cost(best), limit):
                return best
        return None

    def shorter(self, rows: Rows) -> Rows | None:
        """Return rows less the one whose loss costs least, None if it is worth its price, or the last."""
        if len(rows) == 1:
            return None
        best = self.best_of([without(rows, j) for j in rows], rows)
        return best if self.subsets.is_less(self.subsets.cost(best) - self.price, self.subsets.cost(rows)) else None

    def longer(self, rows: Rows, thorough: bool) -> Rows | None:
        """Return rows and one more that is worth its price, None if there is none."""
        found, limit = self.subsets.promises(rows, 1 if thorough else SOME), self.subsets.cost(rows) - self.price
        may = self.subsets.is_less(self.subsets.cost(rows) - found.bounds, limit)
        order = [int(k) for k in np.argsort(-found.gains, kind="stable") if may[k] and k not in rows]
        return self.better_of([with_row(rows, k) for k in order], rows, limit, thorough)

    def path_of(self, rows: Rows, further: int) -> list[Rows]:
        """Return subsets of falling number: some with more rows, one at a time, these rows, and those with fewer."""
        longer = [rows]
        for _ in range(min(further, self.subsets.p - len(rows))):
            longer.append(self.grown(longer[-1], BATCH))
        return longer[:0:-1] + self.backward(rows, 1)
