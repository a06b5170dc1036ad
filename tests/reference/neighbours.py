"""Define the cost of abundances with a spatial prior, and what it cannot be below, in numpy and from pixels themselves."""

import numpy as np


def cost_of_field(Y: np.ndarray, E: np.ndarray, A: np.ndarray, l1: np.ndarray | float = 0.0) -> float:
    """Return ``Σ ½ |y − Ea|² + l1ᵀa`` of pixels (n, L) with abundances (n, p)."""
    return float(0.5 * np.square(Y - A @ E.T).sum() + (A * l1).sum())


def price(near: np.ndarray, far: np.ndarray, weights: np.ndarray, smooth: bool) -> float:
    """Return what differences between abundances of neighbours (n, q) cost, for weights (n,): their sizes or half their squares."""
    difference = far - near
    each = 0.5 * np.square(difference) if smooth else np.abs(difference)
    return float((weights[:, None] * each).sum())


def refund(duals: np.ndarray, weights: np.ndarray, smooth: bool) -> float:
    """Return the sum of the conjugates of `price` at duals (n, q); infinite where a dual is no possible one."""
    if smooth:
        free = weights > 0
        if duals[~free].any():
            return np.inf
        return float((0.5 * np.square(duals[free]) / weights[free, None]).sum())
    return np.inf if (np.abs(duals) > weights[:, None]).any() else 0.0


def least_cost(Y: np.ndarray, E: np.ndarray, X: np.ndarray, charges: np.ndarray, sum_to_one: bool) -> float:
    """Return a lower bound of ``Σ min ½ |y − Ea|² + cᵀa`` over a ≥ 0 (and Σa = 1), for charges c (n, p) and any X (n,
    p).

    Any r with ``Eᵀr ≤ c`` bounds a pixel's minimum by ``½ |y|² − ½ |y − r|²``; r is the residual of X, less some of a
    direction in which all ``Eᵀr`` fall. With the sum, ``min (c − Eᵀr)`` is added instead.
    """
    R = Y - X @ E.T
    slack = charges - R @ E
    if sum_to_one:
        return float((0.5 * np.square(Y).sum(axis=1) - 0.5 * np.square(Y - R).sum(axis=1) + slack.min(axis=1)).sum())
    direction = E.sum(axis=1)
    if (E.T @ direction).min() <= 0:
        direction = np.linalg.lstsq(E.T, np.ones(E.shape[1]), rcond=1e-10)[0]
    reach = np.maximum((-slack / (E.T @ direction)).max(axis=1), 0.0)
    R = R - reach[:, None] * direction
    return float((0.5 * np.square(Y).sum(axis=1) - 0.5 * np.square(Y - R).sum(axis=1)).sum())
