"""Change a support by one column, find a support in the table, and put new supports there.

The table of supports, and how many endmembers each compiled search of it serves.
"""

import functools
import itertools
from typing import Any, NamedTuple

import numpy as np

from ....compiled.jit import Width, aligned_zeros, compiled, inlined

# The most supports in a table; a full one begins anew. Scenes of 10 000 pixels and 25 endmembers have 300 to 800.
MOST_SUPPORTS = 1024
# The most bytes of a table's columns, unless some supports need more.
MOST_TABLE_BYTES = 2**22


class SupportPath(NamedTuple):
    """An entry of `BY_SUPPORT`."""

    most: int  # endmembers
    vectors: int  # c
    other: str  # the key in `unmix.solvers.pixels.tile.SEARCH` of the search for the runs that are left
    # The most that steps times |S| of a probed pixel may be on average, as a share of p²; above it the other search is
    # faster.
    most_pivoted: float


# By key in `unmix.solvers.pixels.tile.SEARCH`, from few endmembers to many. Runs whose pixels share no supports are
# faster by the other search from a share of 0.2 on at 12 to 33 endmembers, of 0.3 at 40 and 0.4 at 48 (a Zen 5).
BY_SUPPORT = {
    "supports_16": SupportPath(16, 1, "active_set", 0.25),
    "supports_32": SupportPath(32, 2, "active_set", 0.2),
    "supports_48": SupportPath(48, 3, "active_set", 0.3),
    "supports_64": SupportPath(64, 4, "working_set", np.inf),
}
# The pixels of a run after which the search that is faster is known (the first starts from nothing, and does not
# count); and the most endmembers with which supports are always searched, as the table soon holds all.
PROBED, MOST_UNPROBED = 4, 6
# In place of a lane whose answers follow a pivot. Of type int64, as lanes are: for a literal, which has a type of its
# own, Numba compiles all that is called with it once more.
NO_LANE = np.int64(-1)


class Table(NamedTuple):
    """The columns of n supports, and of one more, the last, that is pivoted; w is the width, c = ⌈p / w⌉."""

    places: Any  # (2 n,) int64: a support is found by its hash: 1 + its row in ``supports``; an empty place is 0
    supports: Any  # (n + 1, MEMBERS + p) int64: `HASH` to `MASK`, and the members of S in the order of their columns
    growth: Any  # (n + 1,) float64 Σ 1/d
    keys: Any  # (p,) int64: a support's hash is the exclusive or of its members' keys
    used: Any  # (3,) int64: `KEPT` to `LAST`
    block: Any  # (1, ·, w): ``vectors`` as a block of a cube; to add the axis in compiled code needs Numba 0.68
    vectors: Any  # (·, w) float64, which holds what follows, from these rows on
    outside: int  # (n + 1) c rows: 1 beside the support, 0 within
    gram: int  # p c rows: the Gram matrix at unit length
    ones: int  # c rows: the coefficients of Σa = 1
    indices: int  # c rows: 0, 1, …
    t: int  # c rows: the column that is pivoted on
    by_row: int  # c w rows: f, and later the answers; one endmember a row
    pixels: int  # c w rows: f; vector b of lane s in row b w + s
    answers: int  # c w rows: x, as ``pixels``
    columns: int  # c rows a column of B
    room: int  # the most columns
    p: int
    has_sum: int  # 1 under Σa = 1
    tolerance: float  # a dual up to this is zero
    most_pivoted: float  # the most that `SupportPath.most_pivoted` allows the probed pixels together


# Columns of ``supports``: a hash, the place of the first column (under Σa = 1 that is the constant), |S|, S as bits,
# and its members.
HASH, FIRST, COUNT, MASK, MEMBERS = range(5)
# Fields of ``used``: supports and columns in use, and the support of the pixel before (−1 for none).
KEPT, FILLED, LAST = range(3)


def new_table(
    most_pivoted: float, U: np.ndarray, weights: np.ndarray, tolerance: float, sum_to_one: bool, width: int
) -> Table:
    """Allocate a table for endmembers with the unit Gram matrix U (p, p) and the lengths 1 / weights (p,)."""
    n, p = MOST_SUPPORTS, len(U)
    c = -(-p // width)
    room = max(MOST_TABLE_BYTES // (8 * c * width), 8 * (p + 1))
    sizes = ((n + 1) * c, p * c, c, c, c, c * width, c * width, c * width, room * c)
    starts = [int(start) for start in np.cumsum((0, *sizes))]
    vectors = aligned_zeros(starts[-1], width)
    _, gram, ones, indices, *_ = (vectors[i:j].reshape(-1, c * width) for i, j in itertools.pairwise(starts))
    gram[:, :p], ones[0, :p], indices[0] = U, weights, np.arange(c * width)
    keys = np.random.default_rng(0).integers(1, 2**62, p)
    supports, used = np.zeros((n + 1, MEMBERS + p), np.int64), np.array([0, 0, -1])
    return Table(
        np.zeros(2 * n, np.int64),
        supports,
        np.zeros(n + 1),
        keys,
        used,
        vectors[None],
        vectors,
        *starts[:-1],
        room,
        p,
        int(sum_to_one),
        tolerance,
        most_pivoted * p * p * (PROBED - 1) if p > MOST_UNPROBED else np.inf,
    )


# Σ 1/d over the pivots d of a support above which another search finds the answers.
MOST_GROWTH = 1e13


@functools.cache
def combine_function(ops: Width, c: int) -> Any:
    """Return ``combine``, the product that all numbers of a support come from; a column has c vectors."""
    load, fma, broadcast, w = ops.load, ops.fma, ops.broadcast, np.uint64(ops.width)

    @inlined
    def combine(table, entry, b, value, constant, row, stride):
        """Return ``value`` plus vector b of a support's columns times their numbers, and ``constant`` times the constant."""
        # The number of column j is in lane j % w of row `row + j // w * stride`.
        vectors, supports, own, start = table.vectors, table.supports, np.uint64(entry), np.uint64(row)
        column = table.columns + supports[own, np.uint64(FIRST)] * c + b
        if table.has_sum == 1:
            value = fma(broadcast(constant), load(vectors, column), value)
            column += c
        i = np.uint64(MEMBERS)
        end = i + np.uint64(supports[own, np.uint64(COUNT)])
        while i < end:
            j = np.uint64(supports[own, i])
            value = fma(broadcast(vectors[start + j // w * np.uint64(stride), j % w]), load(vectors, column), value)
            column += c
            i += np.uint64(1)
        return value

    return combine


@functools.cache
def pivot_functions(ops: Width, c: int) -> tuple[Any, Any, Any, Any]:
    """Return ``entry_of``, ``unit_of``, ``pivot`` and ``flip``, which together change a support."""
    # Row Table.t is the pivot column, less 1 in its own place: then one multiplication and addition serves all places.
    load, store, fma, select, broadcast, width = ops.load, ops.store, ops.fma, ops.select, ops.broadcast, ops.width
    w = np.uint64(width)

    @compiled
    def entry_of(table, row, k):
        """Return entry k of the columns or vectors that begin at a row."""
        k = np.uint64(k)
        return table.vectors[np.uint64(row) + k // w, k % w]

    @inlined
    def unit_of(table, k, b):
        """Return vector b of the unit vector of column k."""
        return select(load(table.vectors, table.indices + b) == float(k), broadcast(1.0), broadcast(0.0))

    @inlined
    def pivot(table, entry, k, d, stored, s):
        """Pivot the first ``stored`` columns, and the answers of lane s, on column k with the pivot d."""
        vectors, t, factor = table.vectors, table.t, -1.0 / d
        for b in range(c):
            store(vectors, t + b, load(vectors, t + b) - unit_of(table, k, b))
        first = table.columns + table.supports[entry, FIRST] * c
        for row in range(first, first + stored * c, c):
            share = broadcast(entry_of(table, row, k) * factor)
            for b in range(c):
                store(vectors, row + b, fma(share, load(vectors, t + b), load(vectors, row + b)))
        if s >= 0:
            share = broadcast(vectors[table.answers + k // width * width + s, k % width] * factor)
            for b in range(c):
                row = table.answers + b * width + s
                store(vectors, row, fma(share, load(vectors, t + b), load(vectors, row)))

    @inlined
    def flip(table, entry, k, sign):
        """Add ``sign`` to the mark of column k, and change its bit."""
        table.supports[entry, HASH] ^= table.keys[k]
        table.supports[entry, MASK] ^= np.int64(1) << np.int64(k)
        for b in range(c):
            row = table.outside + entry * c + b
            store(table.vectors, row, fma(unit_of(table, k, b), broadcast(sign), load(table.vectors, row)))

    return entry_of, unit_of, pivot, flip


@functools.cache
def enter_function(ops: Width, c: int) -> Any:
    """Return ``enter``, which adds a column to a support, and follows the answers of lane s from s = 0 on."""
    load, store, fma, select, broadcast = ops.load, ops.store, ops.fma, ops.select, ops.broadcast
    entry_of, unit_of, pivot, flip = pivot_functions(ops, c)
    combine = combine_function(ops, c)

    @compiled
    def enter_first(table, entry, k):
        """Make column k the only one of an empty support under Σa = 1, whose columns have a closed form."""
        vectors, first = table.vectors, table.columns + table.supports[entry, FIRST] * c
        n, square = entry_of(table, table.ones, k), entry_of(table, table.gram + k * c, k)
        for b in range(c):
            ones, unit = load(vectors, table.ones + b) * broadcast(1.0 / n), unit_of(table, k, b)
            constant = (ones * square - load(vectors, table.gram + k * c + b)) * broadcast(1.0 / n)
            store(vectors, first + b, select(unit > 0.0, broadcast(1.0 / n), constant))
            store(vectors, first + c + b, select(unit > 0.0, broadcast(0.0), broadcast(0.0) - ones))

    @inlined
    def respond(table, entry, k):
        """Write column k of the Gram matrix, swept on the support, into row ``t``."""
        vectors, own = table.vectors, table.gram + k * c
        for b in range(c):
            value = load(vectors, own + b) * load(vectors, table.outside + entry * c + b)
            store(vectors, table.t + b, combine(table, entry, b, value, entry_of(table, table.ones, k), own, 1))

    @compiled
    def enter(table, entry, k, s):
        """Let column k enter the support; return whether it could."""
        supports, vectors = table.supports, table.vectors
        count = supports[entry, COUNT]
        if table.has_sum == 1 and count == 0:
            enter_first(table, entry, k)
        else:
            respond(table, entry, k)
            d = entry_of(table, table.t, k)
            growth = table.growth[entry] + 1.0 / d
            if not (d > 0.0 and growth < MOST_GROWTH):
                return False
            stored = count + table.has_sum
            pivot(table, entry, k, d, stored, s)
            row, inverse = table.columns + (supports[entry, FIRST] + stored) * c, broadcast(-1.0 / d)
            for b in range(c):
                store(vectors, row + b, fma(load(vectors, table.t + b), inverse, unit_of(table, k, b)))
            table.growth[entry] = growth
        supports[entry, MEMBERS + count] = k
        supports[entry, COUNT] = count + 1
        flip(table, entry, k, -1.0)
        return True

    return enter


@functools.cache
def leave_function(ops: Width, c: int) -> Any:
    """Return ``leave``, which removes a column from a support, and follows the answers of lane s."""
    load, store = ops.load, ops.store
    entry_of, _, pivot, flip = pivot_functions(ops, c)

    @compiled
    def leave(table, entry, k, s):
        """Let column k leave the support; its place is taken by the last."""
        supports, vectors = table.supports, table.vectors
        last = supports[entry, COUNT] - 1
        place = last
        for i in range(last):
            if supports[entry, MEMBERS + i] == k:
                place = i
        first = supports[entry, FIRST] + table.has_sum
        row, end = table.columns + (first + place) * c, table.columns + (first + last) * c
        for b in range(c):
            store(vectors, table.t + b, load(vectors, row + b))
            store(vectors, row + b, load(vectors, end + b))
        supports[entry, MEMBERS + place] = supports[entry, MEMBERS + last]
        supports[entry, COUNT] = last
        pivot(table, entry, k, entry_of(table, table.t, k), last + table.has_sum, s)
        flip(table, entry, k, 1.0)

    return leave


@functools.cache
def table_functions(ops: Width, c: int) -> tuple[Any, Any, Any]:
    """Return ``begin``, ``find`` and ``copy``."""
    load, store, broadcast, width = ops.load, ops.store, ops.broadcast, ops.width
    enter = enter_function(ops, c)

    @compiled
    def clear(table, entry, first):
        """Make a support empty, with its columns from ``first`` on."""
        table.supports[entry, :] = 0
        table.supports[entry, FIRST], table.growth[entry] = first, 0.0
        for b in range(c):
            store(table.vectors, table.outside + entry * c + b, broadcast(1.0))

    @compiled
    def make(table):
        """Put the support that is pivoted into the table, and return its entry; −1 if its columns can't be made."""
        supports, n = table.supports, table.supports.shape[0] - 1
        if table.used[KEPT] == n or table.used[FILLED] + 2 * (table.p + 1) > table.room:
            table.used[KEPT], table.used[FILLED] = 0, 0
            table.places[:] = 0
        entry = table.used[KEPT]
        clear(table, entry, table.used[FILLED])
        for k in range(table.p):
            if (supports[n, MASK] >> np.int64(k)) & 1 and not enter(table, entry, k, NO_LANE):
                return -1
        place = supports[entry, HASH] & (2 * n - 1)
        while table.places[place] > 0:
            place = (place + 1) & (2 * n - 1)
        table.places[place] = entry + 1
        table.used[KEPT] += 1
        table.used[FILLED] += supports[entry, COUNT] + 1
        return entry

    @compiled
    def find(table):
        """Return the entry of the support that is pivoted; −1 if its columns can't be made."""
        supports, n = table.supports, table.supports.shape[0] - 1
        place = supports[n, HASH] & (2 * n - 1)
        while table.places[place] > 0:
            entry = table.places[place] - 1
            if supports[entry, MASK] == supports[n, MASK]:
                return entry
            place = (place + 1) & (2 * n - 1)
        return make(table)

    @compiled
    def begin(table, s, unit):
        """Pivot on nothing, or under Σa = 1 on the endmember nearest to the pixel; return that support's entry."""
        n = table.supports.shape[0] - 1
        clear(table, n, table.room - table.p - 1)
        if table.has_sum == 1:
            best, gain = n - n, -np.inf  # 0 as a variable, for the reason of `NO_LANE`
            for j in range(table.p):
                length = unit / table.vectors[table.ones + j // width, j % width]
                value = (2.0 * table.vectors[table.by_row + j, s] - length) * length
                if value > gain:
                    best, gain = j, value
            enter(table, n, best, NO_LANE)
        return find(table)

    @compiled
    def copy(table, entry):
        """Copy a support, to pivot it."""
        supports, vectors, n = table.supports, table.vectors, table.supports.shape[0] - 1
        first = supports[n, FIRST]
        for i in range(MEMBERS + supports[entry, COUNT]):
            supports[n, i] = supports[entry, i]
        supports[n, FIRST], table.growth[n] = first, table.growth[entry]
        for b in range(c):
            store(vectors, table.outside + n * c + b, load(vectors, table.outside + entry * c + b))
        to, start = table.columns + first * c, table.columns + supports[entry, FIRST] * c
        for row in range((supports[entry, COUNT] + table.has_sum) * c):
            store(vectors, to + row, load(vectors, start + row))

    return begin, find, copy
