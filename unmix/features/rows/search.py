"""Search for the rows of a library that a scene needs: backward elimination, then exchanges until none is better."""

import logging
from collections.abc import Iterable, Set

import numpy as np

from .subsets import MOST_WORK, Rows, Subsets, with_row, without

log = logging.getLogger("unmix")

# Rows that an elimination begins with, beside the number that is asked for: those of most energy in the mixtures of
# all.
POOL = 40
# Rows whose addition or loss is computed at each step of a selection: the most promising ones.
TRIED = 6
# Additions and exchanges that are computed at once: the most promising ones.
BATCH = 12
# One of so many pixels tells what a row promises while nothing is to be proved.
SOME = 4
# Losses, in σ² a pixel, up to which a way without the row is tried, the most such ways, and exchanges on each.
ESCAPED, ESCAPES, MOST_WITHOUT = 7.0, 6, 4
# A row is worth it if it lowers the net cost by more than so many standard deviations of noise.
DEVIATIONS = 6.0
# A row that explains more than this share of what errors of the other spectra would is no error of theirs.
SHARE = 0.7
# An exchange may raise the errors of spectra that it needs by so many standard deviations of the errors by noise.
SIZE_DEVIATIONS = 3.0
# Net gain of a row, in σ² a pixel, above which it is not compared with simulated noise's gain, which was 0.1 at most.
CLEAR_GAIN = 0.5
# Share of its steps after which a search says how far it is.
SAID_EVERY = 0.1


class Search:
    """A search for the subset of a given size with the least cost, else of least net cost with rows worth theirs.

    The *net cost* is ``C + σ² d``, d the degrees of freedom: the expected cost of noise alone is ``σ² (N L − d)``
    (Stein), whichever rows there are, so that a row that fits noise alone changes the net cost by nothing but its
    deviation, σ² √N.

    Parameters
    ----------
    subsets : Subsets
    variance : float
        σ², in the unit of costs.
    count : int or None
        The number of rows, where it is given.

    Attributes
    ----------
    least : int
        Fewest rows with which pixels have an answer.
    noise : float
        What a row must lower the net cost by at least.
    far : float
        The cost of a loss above which no way without the row is tried.
    """

    def __init__(self, subsets: Subsets, variance: float, count: int | None = None) -> None:
        self.subsets, self.variance, self.count = subsets, variance, count
        self.least = int(subsets.sum_to_one and not subsets.has_shade)
        self.noise = max(DEVIATIONS * variance * subsets.pixels**0.5, 10 * subsets.rounding)
        self.far = ESCAPED * max(variance * subsets.pixels, 10 * subsets.rounding)
        self.simulated: dict[Rows, Search] = {}
        self.mended: dict[Rows, Search] = {}
        self.worths: dict[tuple[Rows, Rows], bool] = {}
        self.left: set[Rows] = set()
        self.said = 0.0

    def say(self, rows: Rows) -> None:
        """Say how far the search is, where it takes long."""
        share = self.subsets.work[0] / MOST_WORK
        if share > self.said + SAID_EVERY:
            self.said = share
            log.info(f"rows: {len(rows)} so far, after {min(share, 1):.0%} of the steps that the search may take")

    def net(self, rows: Rows, like: Rows | None = None) -> float:
        """Return the net cost."""
        return self.subsets.cost(rows, like) + self.variance * self.subsets.freedoms[rows]

    def value(self, rows: Rows) -> float:
        """Return what is minimised."""
        return self.subsets.cost(rows) if self.count is not None else self.net(rows)

    def excess(self, one: Rows, other: Rows) -> float:
        """Return by how much rows are worse than others, in what a row must gain at least."""
        return (self.value(one) - self.value(other)) / max(self.noise, np.finfo(float).tiny)

    def is_worth(self, more: Rows, less: Rows) -> bool:
        """Return whether some rows are worth more than fewer ones."""
        if (more, less) not in self.worths:
            self.worths[more, less] = self.is_gain(more, less)
        return self.worths[more, less]

    def is_gain(self, more: Rows, less: Rows) -> bool:
        """Return whether rows ``more`` gain beyond noise and errors of spectra, if ``less`` are all that there are."""
        number, unit = len(more) - len(less), self.variance * self.subsets.pixels
        gain = self.net(less) - self.net(more, less)
        if gain <= self.noise * number:
            return False
        # Unless the others explain most of what errors of the spectra of the fewer would, these are made up for first:
        # each mixture has them in proportion to its abundances.
        if less not in self.mended:
            self.mended = {less: Search(self.subsets.corrected(less), self.variance)}
        judge, price = self.mended[less], self.noise * number
        errors = max(0.0, self.net(less) - judge.net(less) - self.variance * self.subsets.L * len(less))
        if gain > SHARE * errors * number:
            judge = self
        else:
            price *= (1.0 + errors / max(unit, self.subsets.rounding)) ** 0.5
            gain = judge.net(less) - judge.net(more, less)
        # Noise lowers the net cost by its own where true abundances are small, but not 0: pixels are simulated with
        # those of the fit.
        return gain > price and (gain > price + CLEAR_GAIN * unit or gain - judge.gain_of_noise(more, less) > price)

    def gain_of_noise(self, more: Rows, less: Rows) -> float:
        """Return by how much rows more lower the net cost of simulated pixels, which have the fewer ones only."""
        if less not in self.simulated:
            self.simulated = {less: Search(self.subsets.simulated(less, self.variance), self.variance)}
        noise = self.simulated[less]
        return noise.net(less) - noise.net(more, less)

    def is_better(self, one: Rows, other: Rows) -> bool:
        """Return whether rows are better than others."""
        if self.count is not None or len(one) == len(other):
            better = bool(self.subsets.is_less(self.value(one), self.value(other))) and self.is_likely(one, other)
        elif one in self.left:
            return False
        else:
            better = self.is_worth(one, other) if len(one) > len(other) else not self.is_worth(other, one)
        self.left |= {other} if better else set()
        return better

    def is_likely(self, one: Rows, other: Rows) -> bool:
        """Return whether rows need no larger errors of spectra than others, beyond noise, or their number is given."""
        if self.count is not None:
            return True
        (size, deviation), (most, _) = (self.subsets.wrongness(rows, self.variance) for rows in (one, other))
        return size <= most + SIZE_DEVIATIONS * deviation

    def run(self, energies: np.ndarray) -> Rows:
        """Return good rows, not proved; ``energies`` (p,) are those of the abundances of a fit by all spectra."""
        stop = self.count or 1
        pool = np.argsort(-energies, kind="stable")[: POOL + stop].tolist()
        path = self.backward(pool, stop)
        if self.count is not None:
            return self.improved(path[-1])
        return self.improved(self.enough(path[::-1]))

    def enough(self, path: list[Rows]) -> Rows:
        """Return the first of subsets of growing number from which no more rows are worth their price."""
        return next(less for i, less in enumerate(path) if not any(self.is_worth(more, less) for more in path[i + 1 :]))

    def improved(self, rows: Rows) -> Rows:
        """Return rows that none of the changes tried improves."""
        better: Rows | None = rows
        while better:
            rows = self.settled(better)
            better = None if self.subsets.is_over else self.escaped(rows)
        return rows

    def proved(self, rows: Rows) -> Rows:
        """Return rows from which no exchange lowers the cost and, where the number is open, the net cost as well."""
        return self.settled(self.improved(rows) if self.count is None else rows, thorough=True)

    def grown(self, rows: Rows, tried: int, barred: Set[int] = frozenset()) -> Rows:
        """Return rows and one more, the best of the most promising ones; the same where there is none."""
        trials = [with_row(rows, k) for _, k in self.additions(rows, SOME, barred)[:tried]]
        return self.best_of(trials, rows) if trials else rows

    def additions(
        self, rows: Rows, every: int, barred: Iterable[int] = (), limit: float = np.inf
    ) -> list[tuple[float, int]]:
        """Return the promised cost and row of additions that may bring the cost below ``limit``, the best first."""
        base, found = self.subsets.fit(rows).cost, self.subsets.promises(rows, every)
        may = np.ones(self.subsets.p, bool)
        if limit < np.inf:
            may = self.subsets.is_less(base - self.subsets.bounds(rows, every), limit)
        noise = 0.0 if self.count is not None else self.variance
        costs = base + noise * self.subsets.freedoms[rows] - found.gains + noise * found.counts
        may[[*rows, *barred]] = False
        order = np.argsort(costs, kind="stable")
        order = order[may[order]]
        return list(zip(costs[order].tolist(), order.tolist()))

    def best_of(self, trials: list[Rows], like: Rows) -> Rows:
        """Return the subset of the least value, and keep its abundances."""
        self.subsets.each_cost(trials, like)
        best = min(trials, key=self.value)
        self.subsets.fit(best, like)
        return best

    def backward(self, pool: Iterable[int], stop: int) -> list[Rows]:
        """Return ever smaller subsets of a pool, each without the row whose loss costs least among promising ones."""
        path = [tuple(sorted(pool))]
        while len(path[-1]) > stop:
            rows = path[-1]
            order = np.argsort(self.subsets.promises(rows, SOME).losses, kind="stable")
            path.append(self.best_of([without(rows, rows[i]) for i in order[:TRIED]], rows))
        return path

    def settled(self, rows: Rows, thorough: bool = False) -> Rows:
        """Return rows that no change of one improves: of the most promising changes or, if ``thorough``, of all."""
        better: Rows | None = rows
        while better:
            rows = better
            self.say(rows)
            if self.subsets.is_over:
                break
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
        for i in np.argsort(excess, kind="stable")[:ESCAPES]:
            rest = without(rows, rows[i])
            if self.subsets.is_over or len(rest) < self.least or excess[i] > self.far:
                break
            self.subsets.fit(rest, rows)
            other: Rows | None = self.grown(rest, BATCH, {rows[i]})
            for _ in range(MOST_WITHOUT):
                last, other = other, other and self.exchanged(other, False, {rows[i]})
                if not other:
                    break
            found = self.settled(other or last or rest)
            if self.is_better(found, rows):
                return found
        return None

    def exchanged(self, rows: Rows, thorough: bool, barred: Set[int] = frozenset()) -> Rows | None:
        """Return rows with an exchange that is better, the best of a batch; None if there is none."""
        limit = self.subsets.cost(rows) if thorough or self.count is not None else np.inf
        most = None if thorough else BATCH
        found = ((cost, k, j) for j in rows for cost, k in self.exchanges(rows, j, thorough, limit, barred)[:most])
        return self.better_of([with_row(without(rows, j), k) for _, k, j in sorted(found)[:most]], rows)

    def exchanges(
        self, rows: Rows, j: int, thorough: bool, limit: float, barred: Set[int] = frozenset()
    ) -> list[tuple[float, int]]:
        """Return the promised cost and row of rows that, in place of row j, may bring the cost below ``limit``."""
        rest = without(rows, j)
        if len(rest) < self.least:
            return [(0.0, k) for k in range(self.subsets.p) if k not in (j, *barred)]
        self.subsets.fit(rest, rows)
        return self.additions(rest, 1 if thorough else SOME, {j, *barred}, limit)

    def best_exchange(self, rows: Rows, j: int) -> tuple[int, float]:
        """Return the promising row of the least net cost in place of row j, −1 if there is none, and that cost."""
        others = [k for _, k in self.exchanges(rows, j, True, np.inf)[:BATCH]]
        self.subsets.each_cost([with_row(without(rows, j), k) for k in others], rows)
        cost, best = min(((self.net(with_row(without(rows, j), k)), k) for k in others), default=(np.inf, -1))
        return best, cost

    def better_of(self, trials: list[Rows], rows: Rows) -> Rows | None:
        """Return the first batch's best that is better than rows."""
        for first in range(0, len(trials), BATCH):
            if self.subsets.is_over:
                break
            batch = trials[first : first + BATCH]
            self.subsets.each_cost(batch, rows)
            for one in sorted(batch, key=self.value):
                if not self.subsets.is_less(self.value(one), self.value(rows)):
                    break
                self.subsets.fit(one, rows)
                if self.is_better(one, rows):
                    return one
        return None

    def shorter(self, rows: Rows) -> Rows | None:
        """Return rows less one that is not worth its price, None if all are, or it is the last."""
        trials = [without(rows, j) for j in rows] if len(rows) > 1 else []
        self.subsets.each_cost(trials, rows)
        for rest in sorted(trials, key=self.value)[:TRIED]:
            self.subsets.fit(rest, rows)
            if self.is_better(rest, rows):
                return rest
        return None

    def longer(self, rows: Rows, thorough: bool) -> Rows | None:
        """Return rows and one more that is worth its price, None if none of the most promising is."""
        trials = [with_row(rows, k) for _, k in self.additions(rows, 1 if thorough else SOME)[:BATCH]]
        self.subsets.each_cost(trials, rows)
        return next((one for one in sorted(trials, key=self.value) if self.is_better(one, rows)), None)

    def path_of(self, rows: Rows, further: int) -> list[Rows]:
        """Return subsets of falling number: some with more rows, one at a time, these rows, and those with fewer."""
        longer = [rows]
        for _ in range(min(further, self.subsets.p - len(rows))):
            longer.append(self.grown(longer[-1], BATCH))
        return longer[:0:-1] + self.backward(rows, 1)
