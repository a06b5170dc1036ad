"""The smallest cone around weighed directions: its edges minimise

    2 log mean(√w d) + c log √det(WᵀW + ε)    over all W with p columns of unit length,

d the distance of a direction to the cone, its part outside of the subspace included. The first term grows by as much as distances do in
relation to each other, whatever the unit or the noise; the second is the solid angle. A mean of distances, not of squares:
pixels that no mixture explains (clouds, a rare material) count less. Found by Newton-like steps from several sets of pixels; of
the minima, that is taken in which every edge has pixels near it.
"""

from typing import Any, NamedTuple

import numpy as np

from ...compiled.jit import compiled
from ...compiled.simd import WIDE
from ...solvers.pixels.active_set import index_of_entries, row_of, search_function
from ...solvers.pixels.gather import product_function

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
LEAST_SQUARED_DISTANCE = 1e-13  # the logarithm of a mean of zeros has no value

# A dual below this, relative to the pixel, is zero, as in `unmix.problem.Problem.dual_tolerance` for well-conditioned E.
DUAL_TOLERANCE = 1e-12


class Edges(NamedTuple):
    """The fields of `unmix.solvers.pixels.scalar.Plan` that its search reads, for the edges as endmembers."""

    E: Any  # (p, p)
    U: Any  # (p, p)
    norms: Any  # (p,)
    weights: Any  # (p,)
    packed_index: Any  # (p, p + 1)
    dual_tolerance: float
    sum_to_one: bool
    penalty: Any  # (0,)


class Lanes(NamedTuple):
    """The fields of `unmix.solvers.pixels.tile.Tile` that its search uses, of `WIDE` directions."""

    Y: Any
    F: Any
    A: Any
    T: Any
    pivot: Any
    state: Any
    chosen: Any
    exchanged: Any
    size: Any
    steps: Any


_product, _search = product_function(WIDE), search_function(WIDE)


@compiled
def amounts_in(edges, lanes, T, out):
    """Fill ``out`` (n, p) with the amounts, at least 0, of the edges that come nearest to each row of T, (n, p)."""
    n, p = T.shape
    width = lanes.Y.shape[1]
    for first in range(0, n, width):
        for s in range(width):
            size = 0.0
            for j in range(p):
                value = T[min(first + s, n - 1), j]
                lanes.Y[j, s] = value
                size += value * value
            lanes.size[0, s] = size**0.5
        _product(edges.E, lanes.Y, lanes.F)
        _search(edges, lanes)
        for s in range(min(width, n - first)):
            for j in range(p):
                out[first + s, j] = lanes.A[j, s]


def amounts(W: np.ndarray, T: np.ndarray) -> np.ndarray:
    """Return the amounts (n, p), at least 0, of the edges W (p, p) whose sum is nearest to each row of T (n, p).

    Most rows of the interior need no search: there the amounts are ``W⁻¹t``.
    """
    found: np.ndarray = T @ np.linalg.inv(W).T
    outside = np.flatnonzero((found < 0).any(axis=1))
    if len(outside):
        p = len(W)
        norms = np.linalg.norm(W, axis=0)
        units = W / norms
        gram, index, penalty = units.T @ units, index_of_entries(p), np.empty(0)
        edges = Edges(np.ascontiguousarray(W), gram, norms, 1.0 / norms, index, DUAL_TOLERANCE, False, penalty)
        rows = Lanes(p, p, p, row_of(p + 1), p + 1, p, 3, 1, 1, 1)
        some = np.empty((len(outside), p))
        amounts_in(edges, Lanes(*(np.empty((k, WIDE.width)) for k in rows)), T[outside], some)
        found[outside] = some
    return found


class Weighed(NamedTuple):
    """Directions in the subspace."""

    T: np.ndarray  # (n, p)
    outside: np.ndarray  # (n,) squared length of what is outside of the subspace
    weights: np.ndarray  # (n,) of mean 1

    def some(self, every: int) -> "Weighed":
        """Return one of ``every`` of them."""
        weights = self.weights[::every]
        return Weighed(np.ascontiguousarray(self.T[::every]), self.outside[::every], weights / weights.mean())


class Fitted(NamedTuple):
    """A cone beside the directions it is to enclose."""

    W: np.ndarray  # (p, p) edges, columns of unit length
    A: np.ndarray  # (n, p) amounts
    R: np.ndarray  # (n, p) residuals
    squares: np.ndarray  # (n,) weighed squared distances

    @property
    def fractions(self) -> np.ndarray:
        """The amounts over their sum, (n, p)."""
        found: np.ndarray = self.A / np.maximum(self.A.sum(axis=1, keepdims=True), np.finfo(float).tiny)
        return found


def fitted(data: Weighed, W: np.ndarray) -> Fitted:
    """Return how directions lie to the cone with these edges."""
    W = W / np.linalg.norm(W, axis=0)
    A = amounts(W, data.T)
    R = data.T - A @ W.T
    return Fitted(W, A, R, (np.square(R).sum(axis=1) + data.outside) * data.weights + LEAST_SQUARED_DISTANCE)


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
    return distance_and_lonely_edges(one) + PRICE * solid_angle(one.W)


def distance_and_lonely_edges(one: Fitted) -> float:
    """Return the value by which cones of different numbers of edges are compared: without the solid angle, which shrinks with each."""
    lonely = float((1.0 - np.quantile(one.fractions, NEAREST, axis=0)).sum())
    return 2.0 * float(np.log(np.sqrt(one.squares).mean())) + PRICE_OF_LONELY_EDGE * lonely
