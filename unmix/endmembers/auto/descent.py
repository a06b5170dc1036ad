"""Minimise a smooth function by L-BFGS (Liu and Nocedal 1989). To import scipy.optimize takes as long as a whole small run."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

# Steps that the inverse of the Hessian is estimated from; share of the expected decrease that a step has to reach; the search ends
# where a step lowers the value by less than this, relative to it, or no derivative is larger than the last.
MEMORY, SHARE_OF_DECREASE, LEAST_DECREASE, LEAST_SLOPE = 10, 1e-4, 2e-9, 1e-5
# Most halvings of a step; a step's share by which one that is too long is shortened at least, and at most.
MOST_HALVINGS, SHORTEST, LONGEST = 40, 0.1, 0.5
Function = Callable[[np.ndarray], tuple[float, np.ndarray]]


class Point(NamedTuple):
    """A point x (n,), with the value and the slope (n,) of a function there."""

    x: np.ndarray
    value: float
    slope: np.ndarray


def descended(function: Function, x: np.ndarray, steps: int) -> Point:
    """Return the point of the least value that at most so many steps from x (n,) lead to."""
    at, pairs = Point(x, *function(x)), deque[tuple[np.ndarray, np.ndarray]](maxlen=MEMORY)
    for _ in range(steps):
        if np.abs(at.slope).max() <= LEAST_SLOPE:
            break
        direction = -curved(at.slope, pairs)
        if not pairs or at.slope @ direction >= 0:
            pairs.clear()
            direction = -at.slope / max(1.0, float(np.linalg.norm(at.slope)))
        found = searched(function, at, direction)
        if found is None:
            break
        moved, bent = found.x - at.x, found.slope - at.slope
        if moved @ bent > np.finfo(float).eps * float(bent @ bent):
            pairs.append((moved, bent))
        decrease, at = at.value - found.value, found
        if decrease <= LEAST_DECREASE * max(1.0, abs(at.value)):
            break
    return at


def curved(slope: np.ndarray, pairs: deque[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Return the product of the inverse Hessian, as some steps and changes of the slope tell it, and a slope (n,)."""
    found, shares = slope.copy(), []
    for moved, bent in reversed(pairs):
        shares.append(moved @ found / (moved @ bent))
        found -= shares[-1] * bent
    if pairs:
        moved, bent = pairs[-1]
        found *= moved @ bent / (bent @ bent)
    for (moved, bent), share in zip(pairs, reversed(shares)):
        found += (share - bent @ found / (moved @ bent)) * moved
    return found


def searched(function: Function, at: Point, direction: np.ndarray) -> Point | None:
    """Return a point along a direction whose value is enough below that ``at`` its beginning; None where there is none."""
    expected, share = float(at.slope @ direction), 1.0
    for _ in range(MOST_HALVINGS):
        x = at.x + share * direction
        found = Point(x, *function(x))
        beyond = found.value - at.value - share * expected
        if found.value <= at.value + SHARE_OF_DECREASE * share * expected:
            return found
        # To the minimum of the parabola through both values; a value that is not finite tells of none.
        lower = -0.5 * share * expected / beyond if np.isfinite(beyond) else LONGEST
        share *= min(max(lower, SHORTEST), LONGEST)
    return None
