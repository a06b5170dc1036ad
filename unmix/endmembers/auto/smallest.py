"""The smallest cone around weighed directions: its edges minimise

    2 log mean(√w d) + c log √det(WᵀW + ε)    over all W with p columns of unit length,

d the distance of a direction to the cone, its part outside of the subspace included. The first term grows by as much as
distances do in relation to each other, whatever the unit or the noise; the second is the solid angle. A mean of
distances, not of squares: pixels that no mixture explains (clouds, a rare material) count less. Found by Newton-like
steps from several sets of pixels; of the minima, that is taken in which every edge has pixels near it.
"""

from typing import Any, NamedTuple

import numpy as np

from ...compiled.jit import WIDE, address_of, aligned_zeros, call_at, compiled
from ..fitted import Fitted, Weighed, by_edges, fit_in, fitted, inverted, room_for, room_of_results, tiled

# c, the price of the solid angle, and ε. On 48 synthetic scenes (`tests/bench/accuracy.py chosen`) c from 0.15 to 0.3
# gave fractions whose error was within 3 % of the best.
PRICE, RIDGE = 0.2, 0.003
# A minimum costs more by this for each edge without pixels near it: times one less the fraction that 5 % of the pixels
# exceed. On the same scenes 0.6 to 2 were alike; without this cost errors were 1.03 to 1.13 times as large.
PRICE_OF_LONELY_EDGE, NEAREST = 0.6, 0.95
# Most halvings of a step; a step that lowers the value by less than the second is the last.
MOST_HALVINGS, LEAST_DECREASE = 10, 1e-5
# Edges are dependent where the product of the norms of W and its inverse is above this.
MOST_CONDITION = 1e12
# A distance counts as in the mean of squares where it is below this share of the median one: a mean of distances has a
# kink at 0.
LARGEST_SQUARED_PART = 0.5
fma, load, store, select, broadcast = WIDE.fma, WIDE.load, WIDE.store, WIDE.select, WIDE.broadcast
root, total_of = WIDE.root, WIDE.total


class Steps(NamedTuple):
    """Scratch of the search, each (p, p)."""

    slope: Any
    bend: Any
    square: Any
    inverse: Any
    edges: Any
    sums: Any  # (2 p p, width) sums of ``slope`` and ``bend``, lane by lane


@compiled
def value_in(one, data, room, steps, soft):
    """Return what a cone's edges minimise; distances are softened to ``√(d² + soft)``."""
    angle, total, count = solid_angle_in(one.W, room, steps), broadcast(0.0), broadcast(0.0)
    for tile in range(one.squares.shape[0]):
        counts = load(data.weights, tile) > 0.0
        total = total + select(counts, root(load(one.squares, tile) + soft), broadcast(0.0))
        count = count + select(counts, broadcast(1.0), broadcast(0.0))
    return 2.0 * np.log(total_of(total) / total_of(count)) + PRICE * angle


@compiled
def solid_angle_in(W, room, steps):
    """Return the logarithm of ``√det(WᵀW + ε)``, and leave the inverse of that matrix in ``steps.inverse``."""
    p = W.shape[0]
    for i in range(p):
        for j in range(p):
            total = RIDGE if i == j else 0.0
            for k in range(p):
                total += W[k, i] * W[k, j]
            steps.square[i, j] = total
    return 0.5 * inverted(steps.square, room.work, steps.inverse)


@compiled
def slopes_in(one, data, room, steps, soft):
    """Fill ``steps.slope`` (p, p) with the gradient in W, and ``steps.bend`` (p, p) with about each row's curvature."""
    A, R, sums, p = one.A, one.R, steps.sums, one.W.shape[0]
    solid_angle_in(one.W, room, steps)
    all_roots = broadcast(0.0)
    for row in range(sums.shape[0]):
        store(sums, row, broadcast(0.0))
    for tile in range(one.squares.shape[0]):
        weights, roots = load(data.weights, tile), root(load(one.squares, tile) + soft)
        all_roots = all_roots + select(weights > 0.0, roots, broadcast(0.0))
        for k in range(p):
            part = weights / roots * load(A, tile * p + k)
            for j in range(p):
                at = 2 * (j * p + k)
                store(sums, at, fma(broadcast(0.0) - part, load(R, tile * p + j), load(sums, at)))
                store(sums, at + 1, fma(part, load(A, tile * p + j), load(sums, at + 1)))
    total = total_of(all_roots)
    for i in range(p):
        for j in range(p):
            of_angle, at = 0.0, 2 * (i * p + j)
            for k in range(p):
                of_angle += one.W[i, k] * steps.inverse[k, j]
            steps.slope[i, j] = 2.0 * total_of(load(sums, at)) / total + PRICE * of_angle
            steps.bend[i, j] = 2.0 * total_of(load(sums, at + 1)) / total + PRICE * steps.inverse[i, j]


@compiled
def is_too_flat(one, room):
    """Return whether edges (p, p) that have been fitted are dependent: above `MOST_CONDITION`, or without inverse."""
    p, W, inverse = one.W.shape[0], 0.0, 0.0
    for i in range(p):
        for j in range(p):
            W += one.W[i, j] * one.W[i, j]
            inverse += room.inverse[i, j] * room.inverse[i, j]
    return not W * inverse <= MOST_CONDITION * MOST_CONDITION


@compiled
def narrow(now, other, data, room, steps, soft, most, fit):
    """Move the edges of the fitted cone ``now`` by Newton-like steps while the value falls; ``other`` is scratch."""
    # ``fit`` is the address of `fit_in`, which Python calls as well: so it is compiled once.
    p = now.W.shape[0]
    reached = value_in(now, data, room, steps, soft)
    for _ in range(most):
        slopes_in(now, data, room, steps, soft)
        inverted(steps.bend, room.work, steps.inverse)
        share, lower = 1.0, reached
        for i in range(p):
            for j in range(p):
                total = 0.0
                for k in range(p):
                    total += steps.slope[i, k] * steps.inverse[k, j]
                steps.edges[i, j] = total
        for _halving in range(MOST_HALVINGS):
            for i in range(p):
                for j in range(p):
                    other.W[i, j] = now.W[i, j] - share * steps.edges[i, j]
            call_at(fit, (room, data, True, other))
            if not is_too_flat(other, room):
                lower = value_in(other, data, room, steps, soft)
                if lower < reached:
                    break
            share *= 0.5
        if not lower < reached:
            return
        for i in range(p):
            for j in range(p):
                now.W[i, j] = other.W[i, j]
        for k in range(now.squares.shape[0]):
            store(now.squares, k, load(other.squares, k))
        for k in range(now.A.shape[0]):
            store(now.A, k, load(other.A, k))
            store(now.R, k, load(other.R, k))
        if reached - lower < LEAST_DECREASE:
            return
        reached = lower


def solid_angle(W: np.ndarray) -> float:
    """Return the logarithm of ``√det(WᵀW + ε)``."""
    return 0.5 * float(np.linalg.slogdet(W.T @ W + RIDGE * np.eye(W.shape[1]))[1])


def narrowed(data: Weighed, W: np.ndarray, most: int) -> Fitted:
    """Return the fitted cone to which at most ``most`` Newton-like steps from the edges W (p, p) lead."""
    first, p = fitted(data, W), len(W)
    # Few of the edges that a direction uses change in a step.
    order = by_edges(first.A)
    tiles, room = data.ordered(order).tiles, room_for(p)
    now, other = room_of_results(tiles, W), room_of_results(tiles, W)
    now.A[:] = tiled(first.A[order])
    fit_in(room, tiles, True, now)
    other.A[:] = now.A
    soft = LARGEST_SQUARED_PART**2 * float(np.median(now.squares.ravel()[: len(order)]))
    steps = Steps(*(np.empty((p, p)) for _ in Steps._fields[:-1]), aligned_zeros(2 * p * p, WIDE.width))
    narrow(now, other, tiles, room, steps, soft, most, address_of(fit_in, (room, tiles, True, other), bare=False))
    return Fitted(now, len(order))


def cost_of(one: Fitted) -> float:
    """Return the value of a cone by which minima are compared: also edges without pixels near them cost."""
    distance = 2.0 * float(np.log(np.sqrt(one.squares).mean()))
    return distance + PRICE_OF_LONELY_EDGE * lonely_edges(one) + PRICE * solid_angle(one.W)


def lonely_edges(one: Fitted) -> float:
    """Return the sum over the edges of one less the fraction that 5 % of the pixels exceed."""
    return float((1.0 - quantile(one.fractions, NEAREST)).sum())


def quantile(X: np.ndarray, share: float) -> np.ndarray:
    """Return a quantile of each column of X (n, p), equal to NumPy's, in a third of the time."""
    at = share * (len(X) - 1)
    first, last = int(at), min(int(at) + 1, len(X) - 1)
    ordered = np.partition(X.T, (first, last))
    found: np.ndarray = ordered[:, first] + (at - first) * (ordered[:, last] - ordered[:, first])
    return found
