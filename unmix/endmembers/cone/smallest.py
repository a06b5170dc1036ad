"""The smallest cone around weighed directions: its edges minimise

    2 log mean(√w d) + c log √det(WᵀW + ε)    over all W with p columns of unit length,

d the distance of a direction to the cone, its part outside of the subspace included. The first term grows by as much as distances do in
relation to each other, whatever the unit or the noise; the second is the solid angle. A mean of distances, not of squares:
pixels that no mixture explains (clouds, a rare material) count less. Found by Newton-like steps from several sets of pixels; of
the minima, that is taken in which every edge has pixels near it.
"""

from typing import Any, NamedTuple

import numpy as np

from ...compiled.cooperative import ALONE
from ...compiled.jit import allocating
from ...solvers.nnls.lawson_hanson_qr import Matrix, Scratch, nnls_function

# c, the price of the solid angle, and ε. On 48 synthetic scenes (`tests/bench/accuracy.py chosen`) c from 0.15 to 0.3 gave fractions
# whose error was within 3 % of the best.
PRICE, THIN = 0.2, 0.003
# A minimum costs more by this for each edge without pixels near it: times one less the fraction that 5 % of the pixels exceed.
# On the same scenes 0.6 to 2 were alike; without this cost errors were 1.03 to 1.13 times as large.
LONELY, NEAREST = 0.6, 0.95
# Steps of a search, halvings of a step, and the decrease by which a step is the last.
MOST_STEPS, MOST_HALVINGS, ENOUGH = 60, 10, 1e-5
# A distance counts as in the mean of squares where it is below this share of the median one: a mean of distances has a kink at 0.
SOFT = 0.5
# The least squared distance: the logarithm of a mean of zeros has no value.
LEAST = 1e-13

_nnls = nnls_function(ALONE)


@allocating
def amounts_in(rows, columns, gram, norms, T, out):
    """Fill ``out`` (n, p) with the amounts of the p edges, columns of ``rows`` (p, p), that come nearest to each row of T, and
    are ≥ 0."""
    p = rows.shape[1]
    matrix = Matrix(rows, columns, gram, norms)
    scratch = Scratch(
        np.empty((p, p)), np.empty((p, p)), np.empty(p), np.empty(p), np.empty(p), np.empty(p), np.empty(p, np.int32), np.empty(p),
        np.empty(p), np.empty(p), np.empty(p), np.empty(p, np.int32),
    )  # fmt: skip
    reduction_buffer = np.empty(2)
    for n in range(T.shape[0]):
        _nnls(matrix, T[n], scratch, reduction_buffer, out[n])
    return 0


def amounts(W: np.ndarray, T: np.ndarray) -> np.ndarray:
    """Return the amounts (n, p), at least 0, of the edges W (p, p) whose sum is nearest to each row of T (n, p).

    Most rows of the interior need no search: there the amounts are ``W⁻¹t``.
    """
    found: np.ndarray = np.linalg.solve(W, T.T).T
    outside = np.flatnonzero((found < 0).any(axis=1))
    if len(outside):
        rows, columns = np.ascontiguousarray(W), np.ascontiguousarray(W.T)
        some = np.zeros((len(outside), W.shape[1]))
        amounts_in(rows, columns, columns @ rows, np.linalg.norm(W, axis=0), np.ascontiguousarray(T[outside]), some)
        found[outside] = some
    return found


class Weighed(NamedTuple):
    """Directions in the subspace."""

    T: np.ndarray  # (n, p)
    outside: np.ndarray  # (n,) squared length of what is outside of the subspace
    weights: np.ndarray  # (n,) of mean 1

    def some(self, every: int) -> "Weighed":
        """Return every so many of them."""
        weights = self.weights[::every]
        return Weighed(np.ascontiguousarray(self.T[::every]), self.outside[::every], weights / weights.mean())


class Fitted(NamedTuple):
    """A cone beside the directions it is to enclose."""

    W: np.ndarray  # (p, p) edges, columns of unit length
    A: np.ndarray  # (n, p) amounts
    R: np.ndarray  # (n, p) residuals
    squares: np.ndarray  # (n,) weighed squared distances


def fitted(data: Weighed, W: np.ndarray) -> Fitted:
    """Return how directions lie to the cone with these edges."""
    W = W / np.linalg.norm(W, axis=0)
    A = amounts(W, data.T)
    R = data.T - A @ W.T
    return Fitted(W, A, R, (np.square(R).sum(axis=1) + data.outside) * data.weights + LEAST)


def solid_angle(W: np.ndarray) -> float:
    """Return the logarithm of ``√det(WᵀW + ε)``."""
    return 0.5 * float(np.linalg.slogdet(W.T @ W + THIN * np.eye(W.shape[1]))[1])


def narrowed(data: Weighed, W: np.ndarray, most: int = MOST_STEPS) -> np.ndarray:
    """Return the edges (p, p) of a cone at which no step lowers the value any more, from the edges W."""
    now = fitted(data, W)
    soft = SOFT**2 * float(np.median(now.squares))

    def value(one: Fitted) -> float:
        return 2.0 * float(np.log(np.sqrt(one.squares + soft).mean())) + PRICE * solid_angle(one.W)

    reached = value(now)
    for _ in range(most):
        other = step_from(now, data, soft, reached, value)
        if other is None:
            break
        now, lower = other
        reached, before = lower, reached
        if before - lower < ENOUGH:
            break
    return now.W


def step_from(now: Fitted, data: Weighed, soft: float, reached: float, value: Any) -> tuple[Fitted, float] | None:
    """Return the cone after a Newton-like step, halved until it lowers the value, and that; None where no step does."""
    n, p = now.A.shape
    roots = np.sqrt(now.squares + soft)
    weighed = now.A * (data.weights / (roots * roots.mean()))[:, None]
    inverse = np.linalg.inv(now.W.T @ now.W + THIN * np.eye(p))
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
    fractions = one.A / np.maximum(one.A.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    lonely = float((1.0 - np.quantile(fractions, NEAREST, axis=0)).sum())
    return 2.0 * float(np.log(np.sqrt(one.squares).mean())) + PRICE * solid_angle(one.W) + LONELY * lonely
