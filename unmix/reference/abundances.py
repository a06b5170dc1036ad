"""Define the abundances of a pixel under each constraint: the optimum by numpy and scipy, and the best of all supports."""

import itertools
from collections.abc import Callable

import numpy as np
from scipy.optimize import nnls as lawson_hanson

# An abundance of a support's optimum may be so far below zero by rounding.
LEAST_ABUNDANCE = -1e-12


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
    """Minimise ``|y − E a|`` over a ≥ 0 with Σa = 1, by one NNLS: find the point of the hull of ``e_j − y`` nearest to 0; see `ucls`.

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
    "ucls": ucls, "scls": scls, "nnls": nnls, "fcls": fcls, "pcls": pcls,
}  # fmt: skip


def of_pixels(method: Callable[..., np.ndarray], Y: np.ndarray, E: np.ndarray, *more: np.ndarray) -> np.ndarray:
    """Return the abundances (N, p) of pixels (N, L), one after the other, by a function of endmembers and pixel."""
    return np.array([method(E, y, *more) for y in Y]).reshape(len(Y), E.shape[1])


def of_every_support(E: np.ndarray, y: np.ndarray, method: str = "nnls", most: int | None = None) -> np.ndarray:
    """Return the optimum of a method by trying all supports of at most ``most`` endmembers: the definition of NNLS and FCLS.

    Parameters
    ----------
    E, y : arrays (L, p) and (L,), float64
    method : str
        One of `METHODS`; those without a bound on abundances have one support.
    most : int, optional
        The most endmembers of a support; default is p.

    Returns
    -------
    array (p,), float64
    """
    if method in ("ucls", "scls"):
        return METHODS[method](E, y)
    if method == "pcls":
        a = of_every_support(E, y, "nnls", most)
        return a if a.sum() <= 1 else of_every_support(E, y, "fcls", most)
    p, sum_to_one = E.shape[1], method == "fcls"
    best, least = np.zeros(p), np.inf if sum_to_one else float(y @ y)
    for size in range(1, (p if most is None else most) + 1):
        for support in map(list, itertools.combinations(range(p), size)):
            a = np.zeros(p)
            a[support] = (scls if sum_to_one else ucls)(E[:, support], y)
            cost = float(np.square(y - E @ a).sum())
            if a.min() >= LEAST_ABUNDANCE and cost < least:
                best, least = np.maximum(a, 0), cost
    return best


def largest(A: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the ``count`` largest abundances of each pixel (N, p), and their numbers from 1; 0 and 0 where fewer are not zero.

    Returns
    -------
    values, index : arrays (N, count), float64 and int
        Values fall; of equal ones the first endmember comes first.
    """
    order = np.argsort(-A, axis=1, kind="stable")[:, :count]
    values = np.take_along_axis(A, order, axis=1)
    return values, np.where(values != 0, order + 1, 0)


def with_zeros(values: np.ndarray, index: np.ndarray, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Return abundances (N, p) from those of `largest`, and which pixels are complete: they have no others that are not zero.

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
