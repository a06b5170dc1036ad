"""The table of supports, and how many endmembers each compiled search of it serves."""

import itertools
from typing import Any, NamedTuple

import numpy as np

from ....compiled.simd import aligned_zeros

# The most supports in a table; a full one begins anew. Scenes of 10 000 pixels and 25 endmembers have 300 to 800.
MOST_SUPPORTS = 1024
# The most bytes of a table's columns, unless some supports need more.
MOST_TABLE_BYTES = 2**22


class Path(NamedTuple):
    """An entry of `BY_SUPPORT`."""

    most: int  # endmembers
    vectors: int  # c
    other: str  # the key in `unmix.solvers.pixels.tile.SEARCH` of the search for the runs that are left
    # The most that steps times |S| of a probed pixel may be on average, as a share of p²; above it the other search is faster.
    most_pivoted: float


# By key in `unmix.solvers.pixels.tile.SEARCH`, from few endmembers to many. Runs whose pixels share no supports are faster by the other
# search from a share of 0.2 on at 12 to 33 endmembers, of 0.3 at 40 and 0.4 at 48 (a Zen 5).
BY_SUPPORT = {
    "supports_16": Path(16, 1, "active_set", 0.25),
    "supports_32": Path(32, 2, "active_set", 0.2),
    "supports_48": Path(48, 3, "active_set", 0.3),
    "supports_64": Path(64, 4, "working_set", np.inf),
}
# The pixels of a run after which the search that is faster is known (the first starts from nothing, and does not count); and the most
# endmembers with which it is always this one, as a table soon holds all of their supports.
PROBED, MOST_UNPROBED = 4, 6


class Table(NamedTuple):
    """The columns of n supports, and of one more, the last, that is pivoted; w is the width, c = ⌈p / w⌉."""

    places: Any  # (2 n,) int64: a support is found by its hash: 1 + its row in ``supports``; an empty place is 0
    supports: Any  # (n + 1, MEMBERS + p) int64: `HASH` to `MASK`, and the members of S in the order of their columns
    growth: Any  # (n + 1,) float64 Σ 1/d
    keys: Any  # (p,) int64: a support's hash is the exclusive or of its members' keys
    used: Any  # (3,) int64: `KEPT` to `LAST`
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
    most_pivoted: float  # the most that `Path.most_pivoted` allows the probed pixels together


# Columns of ``supports``: a hash, the place of the first column (under Σa = 1 that is the constant), |S|, S as bits, and its members.
HASH, FIRST, COUNT, MASK, MEMBERS = range(5)
# Fields of ``used``: supports and columns in use, and the support of the pixel before (−1 for none).
KEPT, FILLED, LAST = range(3)


def new_table(
    most_pivoted: float, U: np.ndarray, weights: np.ndarray, tolerance: float, sum_to_one: bool, width: int
) -> Table:
    """Allocate a table for endmembers with the Gram matrix U (p, p) at unit length and the lengths 1 / weights (p,).

    ``most_pivoted`` is that of `Path`, or infinite.
    """
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
        vectors,
        *starts[:-1],
        room,
        p,
        int(sum_to_one),
        tolerance,
        most_pivoted * p * p * (PROBED - 1) if p > MOST_UNPROBED else np.inf,
    )
