"""The smallest cone around weighed directions: its edges minimise

    2 log mean(√w d) + c log √det(WᵀW + ε)    over all W with p columns of unit length,

d the distance of a direction to the cone, its part outside of the subspace included. The first term grows by as much as distances do in
relation to each other, whatever the unit or the noise; the second is the solid angle. A mean of distances, not of squares:
pixels that no mixture explains (clouds, a rare material) count less. Found by Newton-like steps from several sets of pixels; of
the minima, that is taken in which every edge has pixels near it.
"""

from typing import Any

import numpy as np

from ..fitted import Fitted, Weighed, fitted

# c, the price of the solid angle, and ε. On 48 synthetic scenes (`tests/bench/accuracy.py chosen`) c from 0.15 to 0.3 gave fractions
# whose error was within 3 % of the best.
PRICE, RIDGE = 0.2, 0.003
# A minimum costs more by this for each edge without pixels near it: times one less the fraction that 5 % of the pixels exceed.
# On the same scenes 0.6 to 2 were alike; without this cost errors were 1.03 to 1.13 times as large.
PRICE_OF_LONELY_EDGE, NEAREST = 0.6, 0.95
# Most halvings of a step; a step that lowers the value by less than the second is the last.
MOST_HALVINGS, LEAST_DECREASE = 10, 1e-5
# A distance counts as in the mean of squares where it is below this share of the median one: a mean of distances has a kink at 0.
LARGEST_SQUARED_PART = 0.5


def solid_angle(W: np.ndarray) -> float:
    """Return the logarithm of ``√det(WᵀW + ε)``."""
    return 0.5 * float(np.linalg.slogdet(W.T @ W + RIDGE * np.eye(W.shape[1]))[1])


def narrowed(data: Weighed, W: np.ndarray, most: int) -> np.ndarray:
    """Return the edges (p, p) of a cone at which no step lowers the value any more, from the edges W."""
    now = fitted(data, W)
    soft = LARGEST_SQUARED_PART**2 * float(np.median(now.squares))

    def value(one: Fitted) -> float:
        return 2.0 * float(np.log(np.sqrt(one.squares + soft).mean())) + PRICE * solid_angle(one.W)

    reached = value(now)
    for _ in range(most):
        other = step_from(now, data, soft, reached, value)
        if other is None:
            break
        now, lower = other
        reached, before = lower, reached
        if before - lower < LEAST_DECREASE:
            break
    return now.W


def step_from(now: Fitted, data: Weighed, soft: float, reached: float, value: Any) -> tuple[Fitted, float] | None:
    """Return the cone after a Newton-like step, halved until it lowers the value, and that; None where no step does."""
    n, p = now.A.shape
    roots = np.sqrt(now.squares + soft)
    weighed = now.A * (data.weights / (roots * roots.mean()))[:, None]
    inverse = np.linalg.inv(now.W.T @ now.W + RIDGE * np.eye(p))
    slope = -2.0 * now.R.T @ weighed / n + PRICE * now.W @ inverse
    step = -np.linalg.solve(2.0 * weighed.T @ now.A / n + PRICE * inverse, slope.T).T
    for halving in range(MOST_HALVINGS):
        W = now.W + 0.5**halving * step
        if np.linalg.cond(W) > 1e12:
            continue
        other = fitted(data, W)
        lower = value(other)
        if lower < reached:
            return other, lower
    return None


def cost_of(data: Weighed, W: np.ndarray) -> float:
    """Return the value of a cone by which minima are compared: also edges without pixels near them cost."""
    one = fitted(data, W)
    distance = 2.0 * float(np.log(np.sqrt(one.squares).mean()))
    return distance + PRICE_OF_LONELY_EDGE * lonely_edges(one) + PRICE * solid_angle(one.W)


def lonely_edges(one: Fitted) -> float:
    """Return the sum over the edges of one less the fraction that 5 % of the pixels exceed."""
    return float((1.0 - np.quantile(one.fractions, NEAREST, axis=0)).sum())
