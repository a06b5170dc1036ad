"""Choose the λ of sparse regression from pixels and their noise alone, without a truth."""

import functools
from collections.abc import Callable

import numpy as np

from ..problem import Problem
from .pixels import solve_pixels

# Smallest λ tried, as a share of the one that makes all pixels 0; number of λ tried, first, and then around the best.
SMALLEST_TRIED_SHARE, COARSE, FINE = 1e-7, 15, 7
# Largest residual without a penalty, in medians: a pixel with more is no mixture of the library and says nothing of λ.
LARGEST_RESIDUAL = 4.0


class Trials:
    """Residuals of some pixels for each λ.

    Parameters
    ----------
    problem : Problem
        The problem of pixels in memory, without a penalty.
    Y : array (N, L), float64
    weights : array (p,), float64, or None
        Weights of the endmembers; None is 1 for all.
    threads : int, optional
    """

    def __init__(self, problem: Problem, Y: np.ndarray, weights: np.ndarray | None, threads: int | None) -> None:
        self.problem, self.Y, self.weights, self.threads = problem, Y, weights, threads

    def at(self, l1: float) -> tuple[np.ndarray, np.ndarray]:
        """Return ``|y − E a|²`` of each pixel, (N,), and its abundances (N, p)."""
        problem = self.problem.penalised(l1, self.weights)
        found = solve_pixels(self.Y, problem, self.problem.E.shape[1], "cpu", self.threads)
        return np.square(found.rmse) * self.Y.shape[1], found.abundances

    def median_count(self, l1: float) -> float:
        """Return how many endmembers the median pixel has at one λ; 0 without pixels."""
        return float(np.median((self.at(l1)[1] > 0).sum(axis=1))) if len(self.Y) else 0.0

    def sparse_from(self, count: int, l1: float) -> float | None:
        """Return the λ above ``l1``, to 3 %, from which on the median pixel has at most ``count`` endmembers; None if no λ does."""
        low, high = max(l1, self.highest * SMALLEST_TRIED_SHARE), self.highest
        if not (0 < low < high and self.median_count(high) <= count):
            return None
        while high > low * 1.03:
            middle = float(np.sqrt(low * high))
            low, high = (low, middle) if self.median_count(middle) <= count else (middle, high)
        return high

    @functools.cached_property
    def enters_at(self) -> np.ndarray:
        """The λ below which each endmember alone is in each pixel, ``e_jᵀy / w_j``, (N, p), from 0 on; infinite without weight."""
        products = self.Y @ self.problem.E
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(products > 0, products / (1.0 if self.weights is None else self.weights), 0.0)

    def zero_from(self) -> np.ndarray:
        """Return the λ from which on each pixel is 0, (N,); infinite where it never is."""
        return np.asarray(self.enters_at.max(axis=1, initial=0.0))

    @property
    def highest(self) -> float:
        """The λ from which on no endmember with a weight is in any pixel."""
        return float(self.enters_at[np.isfinite(self.enters_at)].max(initial=0.0))


def by_risk(trials: Trials, noise: float) -> float:
    """Return the λ with the least expected error of the fit, by Stein's unbiased estimate (Zou, Hastie and Tibshirani 2007).

    The expectation of ``|E a − clean y|² / σ²`` is that of ``|y − E a|² / σ² + 2k``, less L: a pixel with k endmembers has k degrees of
    freedom. It takes neither a truth nor a limit, only the noise, which is taken to be the same in all bands.

    Parameters
    ----------
    trials : Trials
    noise : float
        The sum over the bands of the variance of noise.

    Returns
    -------
    float
        To four digits, and to a tenth of its own size or so: the error is flat there. 0 if the error is least without a penalty.
    """
    variance = noise / trials.Y.shape[1]
    left, A = trials.at(0.0)
    mixtures = left <= LARGEST_RESIDUAL * np.median(left) if len(left) else np.zeros(0, bool)
    if not mixtures.any() or trials.highest <= 0 or not variance > 0:
        return 0.0

    def risk(left: np.ndarray, A: np.ndarray) -> float:
        return float((left[mixtures] / variance + 2.0 * (A[mixtures] > 0).sum(axis=1)).mean())

    tried = np.geomspace(trials.highest * SMALLEST_TRIED_SHARE, trials.highest, COARSE)
    found = {float(l1): risk(*trials.at(float(l1))) for l1 in tried}
    best = int(np.argmin(list(found.values())))
    near = np.geomspace(tried[max(best - 1, 0)], tried[min(best + 1, COARSE - 1)], FINE + 2)
    found |= {float(l1): risk(*trials.at(float(l1))) for l1 in near[1:-1]} | {0.0: risk(left, A)}
    return float(f"{min(found, key=lambda l1: found[l1]):.4g}")


def by_discrepancy(trials: Trials, noise: float) -> float:
    """Return the λ, right to one in a thousand, at which the median of ``|y − E a|²`` is the noise; 0 if it is more for every λ.

    The arguments are those of `by_risk`.
    """

    def left(l1: float) -> float:
        return float(np.median(trials.at(l1)[0]))

    highest = trials.highest
    if len(trials.Y) == 0 or highest <= 0 or left(0.0) >= noise:
        return 0.0
    low, high = highest * SMALLEST_TRIED_SHARE, highest
    if left(high) <= noise:
        return float(f"{high:.4g}")
    while high > low * (1.0 + 1e-3):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if left(middle) < noise else (low, middle)
    return float(f"{np.sqrt(low * high):.4g}")


# The rules by which `l1` may be chosen, by name.
RULES: dict[str, Callable[[Trials, float], float]] = {"auto": by_risk, "discrepancy": by_discrepancy}
