"""Solve pixels by scipy, for comparison."""

from dataclasses import replace

import numpy as np
from scipy.optimize import nnls

from ...certificate import MOST_DELTA
from ...library import Endmembers
from ...methods import SOLVERS, Method, choose
from ...problem import plan_problem


def reference(
    Y: np.ndarray, E: np.ndarray, method: Method, solver: str, penalty: np.ndarray | None = None
) -> np.ndarray:
    """Return abundances (N, p) by scipy, not by our solvers; a solver that is not exact has no reference but itself."""
    if penalty is not None:
        return np.array([reference_sparse(E, y, penalty) for y in Y]).reshape(len(Y), E.shape[1])
    if not SOLVERS[solver].exact:
        from ...arrays.pixels import solve

        return solve(Y, E, method=method.name, solver=solver).abundances
    return np.array([REFERENCES[method.name](E, y) for y in Y]).reshape(len(Y), E.shape[1])


def has_others(
    Y: np.ndarray,
    E: np.ndarray,
    method: Method | None,
    solver: str,
    doubtful: np.ndarray,
    penalty: np.ndarray | None = None,
) -> np.ndarray:
    """Return which of the doubtful pixels have other abundances that fit as well, so that these cannot be compared; bool (n,)."""
    unclear = np.zeros(len(Y), bool)
    if doubtful.any() and method is not None and SOLVERS[solver].exact:
        from ...arrays.pixels import all_bands, solve_pixels

        names = tuple(map(str, range(E.shape[1])))
        own = choose("fcls" if method.has_shade else method.name)  # shade is one of the endmembers that the run wrote
        problem = plan_problem(Endmembers(names, E, None), *own, all_bands(len(E)), None, "bip", warns=False)
        problem = problem if penalty is None else replace(problem, penalty=penalty)
        unclear[doubtful] = ~(solve_pixels(Y[doubtful], problem, len(names), "cpu", None).delta <= MOST_DELTA)
    return unclear


def reference_scls(E: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Solve SCLS by elimination: the last abundance is 1 minus the sum of the others."""
    if E.shape[1] == 1:
        return np.ones(1)
    rest = np.linalg.lstsq(E[:, :-1] - E[:, -1:], y - E[:, -1], rcond=None)[0]
    return np.append(rest, 1 - rest.sum())


def reference_fcls(E: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Solve FCLS exactly by one NNLS: find the point of the hull of ``e_j − y`` nearest to 0.

    ``min |D u|² + c²(1 − Σu)²`` over u ≥ 0 with ``D = E − y1ᵀ`` has its minimum at a multiple of the FCLS solution,
    whatever c (Lawson and Hanson 1974, chapter 23); then SCLS on the support refines it.
    """
    if E.shape[1] == 1:
        return np.ones(1)
    D = E - y[:, None]
    c = np.abs(D).max()
    if c == 0:  # all endmembers are the pixel
        c = 1.0
    u = nnls(np.vstack([D, np.full(E.shape[1], c)]), np.append(np.zeros(len(y)), c), maxiter=100 * E.shape[1])[0]
    support = np.flatnonzero(u > 1e-12 * u.max())
    a = np.zeros(E.shape[1])
    a[support] = reference_scls(E[:, support], y) if len(support) > 1 else 1.0
    return a if a.min() >= 0 else u / u.sum()


def reference_sparse(E: np.ndarray, y: np.ndarray, penalty: np.ndarray) -> np.ndarray:
    """Minimise ``½ |y − E a|² + penaltyᵀa`` over a ≥ 0 exactly, by one NNLS and steps of an active set from its support.

    The residual is what y lacks to the nearest point with ``Eᵀθ ≤ penalty``; that point is found by NNLS of ``[−E; hᵀ]``, with
    ``h = Eᵀy − penalty``, and the last unit vector (Lawson and Hanson 1974, chapter 23, LDP), whose solution is a multiple of a. Pixel
    and endmembers are brought to length 1: scipy's tolerance is absolute.
    """
    sizes, length = np.linalg.norm(E, axis=0), float(np.linalg.norm(y))
    if length == 0:
        return np.zeros(E.shape[1])
    E, y, penalty = E / sizes, y / length, penalty / (sizes * length)
    h = E.T @ y - penalty
    u = nnls(np.vstack([-E, h]), np.append(np.zeros(len(y)), 1.0), maxiter=100 * E.shape[1])[0]
    a = u / (1.0 - h @ u) if h @ u < 1.0 else np.zeros(E.shape[1])
    a[a <= 1e-12 * a.max()] = 0.0
    return improved(E, y, penalty, a) * length / sizes


def improved(E: np.ndarray, y: np.ndarray, penalty: np.ndarray, a: np.ndarray) -> np.ndarray:
    """Return the optimum from abundances that are near it: least squares on the support, whose columns leave and enter as signs say."""
    # A dual of rounding is some 1e-16; where spectra depend on each other the penalty alone decides, however small it is.
    least = max(3e-15, min(1e-13, 1e-3 * float(penalty[penalty > 0].min(initial=1.0))))
    for _ in range(10 * len(a)):
        S = np.flatnonzero(a)
        x = np.zeros(len(a))
        if len(S):
            Q, R = np.linalg.qr(E[:, S])
            x[S] = np.linalg.lstsq(R, Q.T @ y - np.linalg.lstsq(R.T, penalty[S], rcond=None)[0], rcond=None)[0]
        below = np.flatnonzero((a > 0) & (x <= 0))
        if len(below):
            steps = a[below] / (a[below] - x[below])
            a = np.maximum(a + steps.min() * (x - a), 0.0)
            a[below[steps.argmin()]] = 0.0
            continue
        a, v = x, E.T @ (y - E @ x) - penalty
        v[S] = 0.0
        if v.max(initial=0.0) <= least:
            break
        a[v.argmax()] = 1e-300  # enters
    return a


REFERENCES = {
    "ucls": lambda E, y: np.linalg.lstsq(E, y, rcond=None)[0],
    "scls": reference_scls,
    "nnls": lambda E, y: nnls(E, y, maxiter=100 * E.shape[1])[0],
    "fcls": reference_fcls,
    "pcls": reference_fcls,  # shade is one of the endmembers that the run wrote
}
