"""Define the abundances of a pixel: under each constraint, with a penalty, and by the likelihood of counts; by numpy
and scipy, and as the best of all supports.
"""

from collections.abc import Callable

import numpy as np
from scipy.optimize import nnls as lawson_hanson


def ucls(E: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Minimise ``|y − E a|``; of several optima the shortest.

    Parameters
    ----------
    E : array (L, p), float64
        Endmembers.
    y : array (L,), float64
        A pixel, in the unit of the endmembers.

    Returns
    -------
    array (p,), float64
    """
    return np.linalg.lstsq(E, y, rcond=None)[0]


def scls(E: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Minimise ``|y − E a|`` with Σa = 1, by elimination: the last abundance is 1 minus the sum of the others; see `ucls`."""
    if E.shape[1] == 1:
        return np.ones(1)
    rest = np.linalg.lstsq(E[:, :-1] - E[:, -1:], y - E[:, -1], rcond=None)[0]
    return np.append(rest, 1 - rest.sum())


def nnls(E: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Minimise ``|y − E a|`` over a ≥ 0, by scipy; see `ucls`."""
    return lawson_hanson(E, y, maxiter=100 * E.shape[1])[0]


def fcls(E: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Minimise ``|y − E a|`` over a ≥ 0 with Σa = 1, by one NNLS: find the point of the hull of ``e_j − y`` nearest to
    0; see `ucls`.

    ``min |D u|² + c²(1 − Σu)²`` over u ≥ 0 with ``D = E − y1ᵀ`` has its minimum at a multiple of the FCLS solution,
    whatever c (Lawson and Hanson 1974, chapter 23); then SCLS on the support refines it.
    """
    if E.shape[1] == 1:
        return np.ones(1)
    D = E - y[:, None]
    c = np.abs(D).max()
    if c == 0:  # all endmembers are the pixel
        c = 1.0
    u = nnls(np.vstack([D, np.full(E.shape[1], c)]), np.append(np.zeros(len(y)), c))
    support = np.flatnonzero(u > 1e-12 * u.max())
    a = np.zeros(E.shape[1])
    a[support] = scls(E[:, support], y)
    return a if a.min() >= 0 else u / u.sum()


def pcls(E: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Minimise ``|y − E a|`` over a ≥ 0 with Σa ≤ 1: NNLS if that sums to at most one, else FCLS, as the cost is convex; see `ucls`."""
    a = nnls(E, y)
    return a if a.sum() <= 1 else fcls(E, y)


# The optimum of a pixel by the name of each method.
METHODS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "ucls": ucls,
    "scls": scls,
    "nnls": nnls,
    "fcls": fcls,
    "pcls": pcls,
}


def of_pixels(method: Callable[..., np.ndarray], Y: np.ndarray, E: np.ndarray, *more: np.ndarray) -> np.ndarray:
    """Return the abundances (N, p) of pixels (N, L), one after the other, by a function of endmembers and pixel."""
    return np.array([method(E, y, *more) for y in Y]).reshape(len(Y), E.shape[1])


def largest(A: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the ``count`` largest abundances of each pixel (N, p), and their numbers from 1; 0 and 0 where fewer are
    not zero.

    Returns
    -------
    values, index : arrays (N, count), float64 and int
        Values fall; of equal ones the first endmember comes first.
    """
    order = np.argsort(-A, axis=1, kind="stable")[:, :count]
    values = np.take_along_axis(A, order, axis=1)
    return values, np.where(values != 0, order + 1, 0)


def with_zeros(values: np.ndarray, index: np.ndarray, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Return abundances (N, p) from those of `largest`, and which pixels are complete: they have no others that are not
    zero.

    A pixel is NaN where values do not fall, or a number is none.
    """
    full = np.zeros((len(values), p + 1), values.dtype)
    np.put_along_axis(full, np.clip(index, 0, p), values, axis=1)
    in_order = (np.diff(values, axis=1) <= 0).all(axis=1) & ((index >= 0) & (index <= p)).all(axis=1)
    full[~in_order] = np.nan
    return full[:, 1:], values[:, -1] == 0


def rmse(Y: np.ndarray, E: np.ndarray, A: np.ndarray, factors: np.ndarray | None = None) -> np.ndarray:
    """Return the root mean square over the bands of what abundances (N, p) leave of pixels (N, L), times factors (N, L), (N,)."""
    return np.sqrt(np.square((Y - A @ E.T) * (1.0 if factors is None else factors)).mean(axis=1))


def l1(E: np.ndarray, y: np.ndarray, penalty: np.ndarray) -> np.ndarray:
    """Minimise ``½ |y − E a|² + penaltyᵀa`` over a ≥ 0 exactly, by one NNLS and steps of an active set from its
    support.

    The residual is what y lacks to the nearest point with ``Eᵀθ ≤ penalty``; that point is found by NNLS of ``[−E;
    hᵀ]``, with ``h = Eᵀy − penalty``, and the last unit vector (Lawson and Hanson 1974, chapter 23, LDP), whose
    solution is a multiple of a. Pixel and endmembers are brought to length 1: scipy's tolerance is absolute.

    Parameters
    ----------
    E, y : arrays (L, p) and (L,), float64
    penalty : array (p,), float64
        λ times the weight of each abundance, in the unit of |y|².

    Returns
    -------
    array (p,), float64
    """
    sizes, length = np.linalg.norm(E, axis=0), float(np.linalg.norm(y))
    if length == 0:
        return np.zeros(E.shape[1])
    E, y, penalty = E / sizes, y / length, penalty / (sizes * length)
    h = E.T @ y - penalty
    u = nnls(np.vstack([-E, h]), np.append(np.zeros(len(y)), 1.0))
    a = u / (1.0 - h @ u) if h @ u < 1.0 else np.zeros(E.shape[1])
    a[a <= 1e-12 * a.max()] = 0.0
    return improved(E, y, penalty, a) * length / sizes


def improved(E: np.ndarray, y: np.ndarray, penalty: np.ndarray, a: np.ndarray) -> np.ndarray:
    """Return the optimum from abundances that are near it: least squares on the support, whose columns leave and enter as signs say."""
    # A dual of rounding is some 1e-16; where spectra depend on each other the penalty alone decides, however small it
    # is.
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


# Steps, and halvings of one that does not lower the cost.
MOST_STEPS, MOST_HALVINGS = 500, 40
# Steps after the violation is small.
MOST_SETTLED = 6
# A mean, as a share of that of all bands, below which its weight is held.
LEAST_MEAN = 1e-9
# A violation of an optimality condition, of the counts of its spectrum, at which the search ends.
DONE = 1e-11


def cost(E: np.ndarray, y: np.ndarray, b: np.ndarray, a: np.ndarray) -> float:
    """Return ``Σ (μ − y log μ)``, ``μ = E a + b``: infinite where counts are in a band of which the mean is 0."""
    mean = E @ a + b
    has = y > 0
    return float(mean.sum() - (y[has] * np.log(mean[has])).sum()) if (mean[has] > 0).all() else np.inf


def poisson_of_pixel(E: np.ndarray, y: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Minimise `cost` over a ≥ 0.

    Parameters
    ----------
    E : array (L, p), float64
        Spectra at least 0, none of zeros.
    y, b : arrays (L,), float64
        Counts, and those that are there in any case.

    Returns
    -------
    array (p,), float64
    """
    sums, p = E.sum(axis=0), E.shape[1]
    a = np.full(p, y.sum() / p) / sums
    if y.sum() == 0:
        return np.zeros(p)
    settled = 0
    for step in range(MOST_STEPS):
        mean = np.maximum(E @ a + b, LEAST_MEAN * (E @ a + b).mean())
        slope = sums - E.T @ (y / mean)
        if (np.where(a > 0, np.abs(slope), np.maximum(-slope, 0)) / sums).max() <= DONE:
            settled += 1  # then some Newton's steps more: beside a large background a small violation is a large step
            if settled > MOST_SETTLED:
                break
        # By turns the curvature that is expected, 1/μ, which finds the support, and on that Newton's step.
        if step % 2 == 0:
            root = 1 / np.sqrt(mean)
            wanted = lawson_hanson(E * root[:, None], (y - b) * root, maxiter=100 * p)[0]
        else:
            on = a > 0
            H = (E[:, on].T * (y / mean**2)) @ E[:, on]
            wanted = a.copy()
            wanted[on] = np.maximum(a[on] - np.linalg.lstsq(H, slope[on], rcond=None)[0], 0)
        size, before = 1.0, cost(E, y, b, a)
        for _ in range(MOST_HALVINGS):
            if cost(E, y, b, a + size * (wanted - a)) <= before + 1e-14 * (abs(before) + y.sum()):
                break
            size *= 0.5
        a = a + size * (wanted - a)
    return np.asarray(a)
