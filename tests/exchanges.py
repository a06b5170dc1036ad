"""Whether an exchange of one of some rows fits a sample better, by the solver of pixels and plain bounds."""

import numpy as np

from unmix.arrays.pixels import numbered, solve_pixels
from unmix.features.rows.search import SIZE_DEVIATIONS
from unmix.methods import choose
from unmix.problem import plan_problem

# Exchanges that are solved, of those that no bound excludes, unless all are asked for: the most promising.
MOST_SOLVED = 300
# By which share of the cost an exchange must be better to be a fault: rounding, and that of stored spectra.
LEAST_FAULT = 1e-7
# Degrees of freedom that rounding may change: abundances that are nearly 0.
UNSURE = 10


def exchanges(
    Y: np.ndarray, E: np.ndarray, rows: list[int], method: str, variance: float, everything: bool
) -> tuple[tuple[int, int, float] | None, int, int]:
    """Return an exchange that costs less, net of noise of a variance too and for no larger errors, how many were
    solved, how many not.

    With it is by which share it costs less.
    """
    is_flat = method == "fcls"

    def answer(columns: list[int]) -> tuple[float, np.ndarray, float, np.ndarray]:
        """Return cost, residuals, net cost and abundances of some columns."""
        if not columns:
            cost = np.inf if is_flat else float(np.square(Y).sum())
            return cost, Y, cost, np.zeros((len(Y), 0))
        problem = plan_problem(numbered(E[:, columns]), *choose(method), warns=False)
        A = solve_pixels(Y, problem, len(columns), "cpu", None).abundances[:, : len(columns)]
        R = Y - A @ E[:, columns].T
        cost, bound = float(np.square(R).sum()), (method != "nnls") & np.isclose(A.sum(axis=1), 1.0)
        return cost, R, cost + variance * (np.count_nonzero(A) - np.count_nonzero(bound)), A

    def is_likely(columns: list[int], R: np.ndarray, A: np.ndarray) -> bool:
        """Return whether the errors of spectra that residuals need are no larger than now, beyond noise."""
        size, deviation = wrongness(E[:, columns], R, A, variance)
        return size <= most + SIZE_DEVIATIONS * deviation - LEAST_FAULT * abs(most)

    now, left, net, A = answer(rows)
    most = wrongness(E[:, rows], left, A, variance)[0]
    trials: list[tuple[float, int, int]] = []
    for j in rows:
        rest = [i for i in rows if i != j]
        cost, R, *_ = answer(rest)
        for k in sorted(set(range(E.shape[1])) - set(rows)):
            low = -np.inf if cost == np.inf else cost - gain(Y, E, rest, R, k, method)
            if low < now * (1 - LEAST_FAULT):
                trials.append((low, j, k))
    trials.sort()
    tried = trials if everything else trials[:MOST_SOLVED]
    for _, j, k in tried:
        columns = [i for i in rows if i != j] + [k]
        cost, R, other, A = answer(columns)
        is_better = cost < now * (1 - LEAST_FAULT) and other < net - now * LEAST_FAULT - UNSURE * variance
        if is_better and (variance == 0 or is_likely(columns, R, A)):
            return (j, k, 1 - cost / now), len(tried), len(trials) - len(tried)
    return None, len(tried), len(trials) - len(tried)


def wrongness(E: np.ndarray, R: np.ndarray, A: np.ndarray, variance: float) -> tuple[float, float]:
    """Return Σ|d|²/|e|² of the errors d (L, k) that make ``R − A dᵀ`` least, less that of noise, and the deviation of the latter."""
    errors = np.linalg.lstsq(A, R, rcond=None)[0]
    share = 1 / np.maximum(np.square(E).sum(axis=0), np.finfo(float).tiny)
    noise = variance * float((np.diag(np.linalg.pinv(A.T @ A)) * share).sum())
    return float((np.square(errors).sum(axis=1) * share).sum()) - len(E) * noise, float((2 * len(E)) ** 0.5 * noise)


def gain(Y: np.ndarray, E: np.ndarray, rest: list[int], R: np.ndarray, k: int, method: str) -> float:
    """Return an upper bound of what column k lowers the cost beside others, whose residuals are R: Σ w² / d."""
    e, F, base = E[:, k], E[:, rest], np.zeros(len(E))
    if method == "fcls":
        base, F = F[:, 0], F[:, 1:] - F[:, [0]]
    apart = e - base - (F @ np.linalg.lstsq(F, e - base, rcond=None)[0] if F.size else 0.0)
    fitted = Y - R
    w = R @ e - (0.0 if method == "nnls" else (R * fitted).sum(axis=1))
    return float(np.square(np.maximum(w, 0.0)).sum() / max(float(apart @ apart), 1e-14 * float(e @ e)))
