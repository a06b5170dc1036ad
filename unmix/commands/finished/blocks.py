"""Read two maps block by block, with the pixels that both have."""

from collections.abc import Iterator

import numpy as np

from ...blocks import BlockPlan
from ...errors import InputError
from .sides import Side

# Bytes of each map that are read at a time.
BLOCK_BYTES = 2**24
# Values of maps are below this, so that the sum of the squares of all is a number.
LARGEST_VALUE = 1e140


def plan_of(*sides: Side) -> BlockPlan:
    """Return blocks of the compared lines, small enough for each of the maps."""
    return BlockPlan(sides[0].size[0], min(side.lines_of(BLOCK_BYTES) for side in sides), 1)


def blocks_of(one: Side, other: Side) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield first line, both maps' values (n, samples, bands), float64, and where each has any (n, samples), bool."""
    for lines in plan_of(one, other):
        yield lines.start, *both_of(one, other, lines)


def both_of(one: Side, other: Side, lines: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the values of both maps in some lines, and which pixels of each have values and are kept by both masks."""
    (A, in_a), (B, in_b) = one.read(lines), other.read(lines)
    keep = one.kept(lines) & other.kept(lines)
    for side, values, inside in ((one, A, in_a), (other, B, in_b)):
        if not np.abs(values).max(where=inside[..., None], initial=0.0) < LARGEST_VALUE:
            raise InputError(
                f"{side.path}: has a value beyond {LARGEST_VALUE:g}, too large to compare; divide it with `scale`"
            )
    return A, B, in_a & keep, in_b & keep
