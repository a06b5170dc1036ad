"""The whole path of sparse regression for one pixel: abundances for every λ, by homotopy."""

from dataclasses import dataclass

import numpy as np

from ..errors import CubeError, LibraryError, MethodError
from .pixels import checked

# Two breakpoints are one where their λ differ by less than this share.
SAME = 1e-12
# A column whose distance from the span of the support is below this share of its length depends on it.
DEPENDENT = 1e-7
# Breakpoints for each endmember; paths of 498 minerals have up to 110 in all.
MOST_FOR_EACH = 50


@dataclass(frozen=True)
class Path:
    """The path of one pixel; between two breakpoints abundances are linear in λ.

    Attributes
    ----------
    lambdas : array (K,), float64
        The breakpoints, descending: from the λ from which on all abundances are 0, to 0.
    abundances : array (K, p), float64
        Abundances at each.
    kappa : array (K,), float64
        By how much the optimality conditions are violated there, relative to the lengths of endmember and pixel (`unmix.certificate`,
        without the duality gap).
    """

    lambdas: np.ndarray
    abundances: np.ndarray
    kappa: np.ndarray

    def at(self, l1: float) -> np.ndarray:
        """Return the abundances for one λ, array (p,)."""
        high = int(np.searchsorted(-self.lambdas, -l1, side="left"))
        if high == 0:
            return np.zeros(self.abundances.shape[1])
        if high == len(self.lambdas):
            raise MethodError(f"`l1` {l1:g}: must not be negative")
        above, below = self.lambdas[high - 1], self.lambdas[high]
        share = (above - l1) / (above - below)
        return np.asarray((1.0 - share) * self.abundances[high - 1] + share * self.abundances[high])

    def last(self, count: int) -> np.ndarray:
        """Return the numbers of the ``count`` endmembers that stay longest as λ grows, the longest first."""
        present = self.abundances > 0
        used = np.flatnonzero(present.any(axis=0))
        return used[np.argsort(present[:, used].argmax(axis=0), kind="stable")][:count]


def path(y: np.ndarray, E: np.ndarray, weights: np.ndarray | None = None) -> Path:
    """Find abundances for every λ of ``min ½ |y − E a|² + λ wᵀa`` over a ≥ 0.

    On a support S the optimum is ``a_S = u − λ v`` with ``u = (E_SᵀE_S)⁻¹E_Sᵀy`` and ``v = (E_SᵀE_S)⁻¹w_S``, down to the λ where an
    abundance, or the dual of another endmember, becomes 0 (Osborne, Presnell and Turlach 2000; Efron et al. 2004).

    Parameters
    ----------
    y : array-like of shape (L,)
        The pixel.
    E : array-like of shape (L, p)
        Endmembers, one per column, in the unit of y.
    weights : array-like of shape (p,), optional
        The weights w, above 0; default is 1.

    Returns
    -------
    Path

    Raises
    ------
    CubeError, LibraryError
        If shapes do not match, or numbers are not finite.
    MethodError
        If a weight is not above 0, or the path does not end: endmembers depend on each other.

    Examples
    --------
    >>> import numpy as np, unmix
    >>> E = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.5], [0.0, 0.0, 0.5]])
    >>> found = unmix.path(np.array([1.0, 0.5, 0.0]), E)
    >>> found.lambdas.round(3), found.abundances.round(3)
    (array([1. , 0.5, 0. ]), array([[0. , 0. , 0. ],
           [0.5, 0. , 0. ],
           [1. , 0.5, 0. ]]))
    """
    y, E = checked(np.atleast_1d(np.asarray(y)), E)
    y, p = np.asarray(y, float), E.shape[1]
    w = np.ones(p) if weights is None else np.asarray(weights, float)
    if y.ndim != 1 or not np.all(np.isfinite(y)):
        raise CubeError(f"y must be (L,) of finite numbers, but has shape {y.shape}")
    if w.shape != (p,) or not np.all((w > 0) & np.isfinite(w)):
        raise MethodError(f"`weights`: {w.size} numbers; there must be one above 0 for each of {p} endmembers")
    if not E.any(axis=0).all():
        raise LibraryError(f"endmember {int(np.flatnonzero(~E.any(axis=0))[0]) + 1} is zero in all bands")
    lambdas, abundances = [max(0.0, float((E.T @ y / w).max()))], [np.zeros(p)]
    support = [int((E.T @ y / w).argmax())]
    changed = -1
    while lambdas[-1] > 0.0:
        l1, a, event = next_breakpoint(E, y, w, support, lambdas[-1], changed)
        lambdas.append(l1)
        abundances.append(a)
        if event < 0:
            break
        if len(lambdas) > MOST_FOR_EACH * p:
            raise MethodError("the path does not end: endmembers depend on each other; leave some out")
        if event in support:
            support.remove(event)
        else:
            support.append(event)
        changed = event
    A = np.array(abundances)
    return Path(np.array(lambdas), A, violations(E, y, w, np.array(lambdas), A))


def next_breakpoint(
    E: np.ndarray, y: np.ndarray, w: np.ndarray, support: list[int], l1: float, changed: int
) -> tuple[float, np.ndarray, int]:
    """Return the next λ below ``l1`` where the support changes, the abundances there, and the endmember that leaves or enters.

    ``changed`` is the one that did so at ``l1``. At λ = 0 none changes, which is −1.
    """
    S = np.array(support)
    Q, R = np.linalg.qr(E[:, S])
    t = np.linalg.solve(R.T, w[S])
    u, v = np.linalg.solve(R, Q.T @ y), np.linalg.solve(R, t)
    free = np.ones(len(w), bool)
    free[S] = False
    if changed >= 0:
        free[changed] = False
    beyond = E - Q @ (Q.T @ E)  # what of each endmember the support does not span
    free &= np.linalg.norm(beyond, axis=0) > DEPENDENT * np.linalg.norm(E, axis=0)
    best, event = 0.0, -1
    with np.errstate(divide="ignore", invalid="ignore"):
        # The dual of another endmember is e_jᵀ(y − E_S u) + λ (e_jᵀE_S v − w_j): it is 0 here.
        entering = np.where(free, (beyond.T @ y) / (w - E.T @ (Q @ t)), -1.0)
        leaving = np.where(changed != S, u / v, -1.0)
    for found, which in ((entering, np.arange(len(w))), (leaving, S)):
        found = np.where((found > 0) & (found < l1 * (1.0 - SAME)), found, -1.0)
        if found.max(initial=-1.0) > best:
            best, event = float(found.max()), int(which[found.argmax()])
    a = np.zeros(len(w))
    a[S] = np.maximum(u - best * v, 0.0)
    if event in support:
        a[event] = 0.0
    return best, a, event


def violations(E: np.ndarray, y: np.ndarray, w: np.ndarray, lambdas: np.ndarray, A: np.ndarray) -> np.ndarray:
    """Return κ of the abundances A (K, p) at each λ, (K,)."""
    V = (y - A @ E.T) @ E - lambdas[:, None] * w
    V = np.where(A > 0, np.abs(V), np.maximum(V, 0.0))
    return np.asarray(
        (V / (np.linalg.norm(E, axis=0) * max(float(np.linalg.norm(y)), np.finfo(float).tiny))).max(axis=1)
    )
