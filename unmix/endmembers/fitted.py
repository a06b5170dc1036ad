"""How directions lie to a cone: the amounts of its edges that come nearest to each, and what these leave."""

from typing import Any, NamedTuple

import numpy as np

from ..compiled.jit import compiled
from ..compiled.simd import WIDE
from ..solvers.pixels.active_set import index_of_entries, row_of, search_function
from ..solvers.pixels.gather import product_function

# Added to a squared distance: the logarithm of a mean of zeros has no value.
LEAST_SQUARED_DISTANCE = 1e-13
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
