"""Minimise a smooth function by L-BFGS (Liu and Nocedal 1989).

To import scipy.optimize takes as long as a whole small run.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

# Steps that the inverse of the Hessian is estimated from; shares of the expected decrease that a step has to reach, and
# of the slope that it may leave; the search ends where a step lowers the value by less than the next, relative to it,
# or no derivative is larger than the last.
MEMORY, SHARE_OF_DECREASE, SHARE_OF_SLOPE, LEAST_DECREASE, LEAST_SLOPE = 10, 1e-4, 0.9, 2e-9, 1e-5
# Most points that are tried along a direction; the least and the largest part of a step to which one that was too long
# is shortened.
MOST_TRIALS, SHORTEST, LONGEST = 40, 0.1, 0.5
Function = Callable[[np.ndarray], tuple[float, np.ndarray]]


class Point(NamedTuple):
    """A point x (n,), with the value and the slope (n,) of a function there."""

    x: np.ndarray
    value: float
    slope: np.ndarray


def descended(function: Function, x: np.ndarray, steps: int, least: float = 0.0) -> Point:
    """Return the lowest point within ``steps`` steps of x (n,); a step that gains less than ``least`` is the last."""
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
        if decrease <= max(least, LEAST_DECREASE * abs(at.value)):
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
    """Return a lower point along a direction, by bisection (Lewis and Overton 2013); None where no point is lower."""
    expected, share, lower, upper = float(at.slope @ direction), 1.0, 0.0, np.inf
    best = None
    for _ in range(MOST_TRIALS):
        x = at.x + share * direction
        found = Point(x, *function(x))
        if not found.value <= at.value + SHARE_OF_DECREASE * share * expected:
            upper = share
        elif found.slope @ direction < SHARE_OF_SLOPE * expected:
            lower, best = share, found
        else:
            return found
        # Bisection is not led astray by the kinks of a function.
        beyond = found.value - at.value - share * expected
        if lower == 0.0 and 0.0 < beyond < np.inf:  # to the minimum of the parabola through both values
            share *= min(max(-0.5 * share * expected / beyond, SHORTEST), LONGEST)
        else:
            share = 0.5 * (lower + upper) if np.isfinite(upper) else 2.0 * lower
    return best
