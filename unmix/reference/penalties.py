"""Define abundances with a penalty on their sum (`l1`), for one λ and for all."""

import itertools

import numpy as np

from .abundances import nnls


def l1(E: np.ndarray, y: np.ndarray, penalty: np.ndarray) -> np.ndarray:
    """Minimise ``½ |y − E a|² + penaltyᵀa`` over a ≥ 0 exactly, by one NNLS and steps of an active set from its support.

    The residual is what y lacks to the nearest point with ``Eᵀθ ≤ penalty``; that point is found by NNLS of ``[−E; hᵀ]``, with
    ``h = Eᵀy − penalty``, and the last unit vector (Lawson and Hanson 1974, chapter 23, LDP), whose solution is a multiple of a. Pixel
    and endmembers are brought to length 1: scipy's tolerance is absolute.

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


def l1_cost(Y: np.ndarray, E: np.ndarray, A: np.ndarray, penalty: np.ndarray) -> np.ndarray:
    """Return the cost that `l1` minimises, for pixels (N, L) and abundances (N, p), (N,)."""
    return 0.5 * np.square(Y - A @ E.T).sum(axis=1) + A @ penalty


def l1_path(E: np.ndarray, y: np.ndarray, w: np.ndarray | None = None) -> list[tuple[float, np.ndarray]]:
    """Return every breakpoint ``(λ, a)`` of ``min ½ |y − E a|² + λ wᵀa`` over a ≥ 0, from the λ where a becomes 0 down to 0.

    Homotopy: on a support S, ``a_S = u − λ v`` with ``u = (E_SᵀE_S)⁻¹ E_Sᵀy`` and ``v = (E_SᵀE_S)⁻¹ w_S``, until an abundance or the
    dual of another column reaches 0; between two breakpoints a is linear in λ.
    """
    p = E.shape[1]
    w = np.ones(p) if w is None else w
    start = (E.T @ y) / w
    lam, S = float(start.max()), [int(start.argmax())]
    if lam <= 0:
        return [(0.0, np.zeros(p))]
    path, last = [(lam, np.zeros(p))], -1
    for _ in range(20 * p):
        Q, R = np.linalg.qr(E[:, S])
        u = np.linalg.solve(R, Q.T @ y)
        v = np.linalg.solve(R, np.linalg.solve(R.T, w[S]))
        r, d = y - E[:, S] @ u, E[:, S] @ v
        events = [(0.0, -1)]
        # Duals along λ: e_jᵀ(r + λ d) − λ w_j, which is 0 at the next column's λ.
        slopes, duals = w - E.T @ d, E.T @ r
        events += [(float(duals[j] / slopes[j]), j) for j in range(p) if j not in S and abs(slopes[j]) > 1e-12]
        events += [(float(u[i] / v[i]), j) for i, j in enumerate(S) if v[i] != 0]
        best, changed = max((at, j) for at, j in events if j == -1 or (0 < at < lam * (1 - 1e-12) and j != last))
        a = np.zeros(p)
        a[S] = u - best * v
        if changed in S:
            a[changed] = 0.0
        path.append((best, a))
        if changed == -1:
            break
        lam, last = best, changed
        S = [j for j in S if j != changed] if changed in S else [*S, changed]
    return path


def on_path(path: list[tuple[float, np.ndarray]], lam: float) -> np.ndarray:
    """Return the abundances (p,) at one λ of a path of `l1_path`, between its breakpoints."""
    if lam >= path[0][0]:
        return np.zeros(len(path[0][1]))
    for (high, a), (low, b) in itertools.pairwise(path):
        if low <= lam <= high:
            return a + (high - lam) / (high - low) * (b - a)
    raise AssertionError(lam)
