"""Vectors of float64 with one lane per pixel, and the operations that a tile's arithmetic is written in.

The same source serves several widths. `WIDE` is for a CPU: `LANES` neighbouring pixels are one Numba value, an LLVM vector,
which stays in registers whatever the loops around it look like. (LLVM's own loop vectoriser must assume that scratch
arrays overlap: the same solver ran at half the speed.) `ONE` is a plain float64: for a thread of a GPU, and the simulator. Where a
vector holds the numbers of one pixel, a GPU's is a warp (`unmix.compiled.warp`).

Arithmetic and comparisons are Python's operators; a float combined with a vector stands for all its lanes. Sums of products
use `fma`, whose rounding does not depend on how a compiler transforms the code around it.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np

from .jit import compiled
from .vectors import (
    LANES,
    TALL,
    any_lane_wide,
    broadcast_wide,
    fetch_block_wide,
    fetch_wide,
    first_of_wide,
    fma_wide,
    lanes_of_wide,
    largest_of_wide,
    load_wide,
    select_wide,
    sqrt_wide,
    store_wide,
    total_wide,
)

# Bytes of a processor's cache line.
CACHE_LINE = 64


def aligned_zeros(rows: int, width: int) -> np.ndarray:
    """Return zeros (rows, width), float64, that begin at a cache line: a vector across two lines costs twice."""
    raw = np.zeros(8 * rows * width + CACHE_LINE, np.uint8)
    start = -raw.ctypes.data % CACHE_LINE
    return raw[start : start + 8 * rows * width].view(np.float64).reshape(rows, width)


class Width(NamedTuple):
    """The number of pixels of a tile, and the operations on their vectors; X is an array (n, width) of float64."""

    width: int
    tall: int  # pixels, and bands, of a transposed block
    fetch: Any  # (raw, i, j, k) -> width stored values from raw[i, j, k] on
    fetch_block: Any  # (raw, i, j, k, Y, row, lane): a block of raw, transposed, into Y
    load: Any  # (X, i) -> row i of X
    store: Any  # (X, i, value)
    fma: Any  # (a, b, c) -> a b + c
    select: Any  # (mask, a, b) -> a where mask, else b
    any_lane: Any  # (mask) -> bool
    lanes_of: Any  # (mask) -> the lanes in which it is true, as the bits of an integer
    first_of: Any  # (lanes) -> the first of them, of at least one
    largest_of: Any  # (a) -> the largest of all lanes
    broadcast: Any  # (number) -> the number in every lane
    root: Any  # (a) -> square root
    total: Any  # (a) -> the sum of all lanes
    compile: Callable[..., Any]  # compiles functions that use these


@compiled
def fetch_one(raw, i, j, k):
    """See `Width`."""
    return float(raw[i, j, k])


@compiled
def fetch_block_one(raw, i, j, k, Y, row, lane):
    """See `Width`."""
    Y[row, lane] = float(raw[i, j, k])


@compiled
def load_one(X, i):
    """See `Width`."""
    return X[i, 0]


@compiled
def store_one(X, i, value):
    """See `Width`."""
    X[i, 0] = value


@compiled
def fma_one(a, b, c):
    """See `Width`; the compiler for GPUs fuses it into one instruction."""
    return a * b + c


@compiled
def select_one(mask, a, b):
    """See `Width`."""
    return a if mask else b


@compiled
def any_lane_one(mask):
    """See `Width`."""
    return mask


@compiled
def lanes_of_one(mask):
    """See `Width`."""
    return 1 if mask else 0


@compiled
def first_of_one(lanes):
    """See `Width`."""
    return 0


@compiled
def largest_of_one(a):
    """See `Width`."""
    return a


@compiled
def total_one(a):
    """See `Width`."""
    return a


@compiled
def broadcast_one(value):
    """See `Width`."""
    return float(value)


@compiled
def root_one(a):
    """See `Width`."""
    return math.sqrt(a)


ONE = Width(
    1, 1, fetch_one, fetch_block_one, load_one, store_one, fma_one, select_one, any_lane_one, lanes_of_one, first_of_one,
    largest_of_one, broadcast_one, root_one, total_one, compiled,
)  # fmt: skip
# Vectors exist in compiled code only.
WIDE = (
    ONE
    if numba.config.DISABLE_JIT
    else Width(
        LANES,
        TALL,
        fetch_wide,
        fetch_block_wide,
        load_wide,
        store_wide,
        fma_wide,
        select_wide,
        any_lane_wide,
        lanes_of_wide,
        first_of_wide,
        largest_of_wide,
        broadcast_wide,
        sqrt_wide,
        total_wide,
        compiled,
    )
)
