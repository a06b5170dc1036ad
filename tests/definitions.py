"""Definitions for tests alone: κ and δ of a pixel, duality gaps, the best of all supports, and the path of sparse regression."""

import itertools

import numpy as np
from reference.abundances import METHODS, scls, ucls

# The rounding of one operation of float64, and a little more.
UNIT = 1.01 * 2.0**-53
# An abundance of a support's optimum counts as zero down to this value, by rounding.
LEAST_ABUNDANCE = -1e-12


def of_pixel(
    E: np.ndarray, y: np.ndarray, a: np.ndarray, sum_to_one: bool, nonnegative: bool, gaps: bool = True
) -> tuple[float, float, float]:
    """Return RMSE, κ with the duality gap, and δ with the rounding of float64 that it allows for (docs/methods.md).

    Under Σa = 1 all three are of spectra less their mean, which changes nothing where the sum is one.

    Parameters
    ----------
    E, y, a : arrays (L, p), (L,) and (p,), float64
        Endmembers, a pixel, and the abundances that are judged.
    sum_to_one, nonnegative : bool
        The constraints.
    gaps : bool
        Whether κ is at least the duality gap, as it is of runs.
    """
    L, p = E.shape
    sizes = np.linalg.norm(E, axis=0)
    smallest = np.linalg.svd(E, compute_uv=False)[-1]
    if sum_to_one:
        mean = E.mean(axis=1)
        E, y = E - mean[:, None], y - mean
        sizes = np.linalg.norm(E, axis=0)
        # On vectors that sum to 0, by an orthonormal basis of these.
        basis = np.linalg.svd(np.ones((1, p)))[2][1:].T
        smallest = np.linalg.svd(E @ basis, compute_uv=False)[-1] if p > 1 else np.inf
    r = y - E @ a
    w = E.T @ r
    multiplier = (a @ w / a.sum() if nonnegative else w.mean()) if sum_to_one else 0.0
    v = w - multiplier
    lengths = np.linalg.norm(y) + np.sum(np.abs(a) * sizes)
    over = abs(a.sum() - 1) if sum_to_one else 0.0
    apart = over + p * UNIT * np.abs(a).sum() if sum_to_one else 0.0
    rho = (UNIT * ((L + 2) * np.linalg.norm(r) + (np.count_nonzero(a) + 2) * lengths) + apart * sizes.max()) * sizes
    most = np.abs(v) + rho
    if nonnegative:
        most = np.where(a > 0, most, np.maximum(v + rho, 0))
        v = np.where(a > 0, v, np.maximum(v, 0))
    delta = np.linalg.norm(most) / smallest**2 + apart if not nonnegative or a.min() >= 0 else np.inf
    gap = np.linalg.norm(most) * min(delta, np.linalg.norm(most) / smallest**2)
    if sum_to_one and nonnegative:
        gap = min(gap, max(0, (w - multiplier + rho).max()) + a @ most)
    elif nonnegative and np.all(E.T @ r + rho <= 0):  # r is a point of the dual problem
        gap = min(gap, a @ most)
    scale = max(np.linalg.norm(y), sizes.max()) if sum_to_one else np.linalg.norm(y)
    scale = scale if nonnegative else max(scale, np.abs(a) @ sizes)
    if sum_to_one and nonnegative:  # what the fit may win or lose when abundances are divided by their sum
        outer = np.linalg.norm(mean) * max(over - 2 * p * UNIT * np.abs(a).sum(), 0)
        gap += abs(multiplier) * apart + np.linalg.norm(r) * outer + 0.5 * (sizes.max() * apart + outer) ** 2
    kappa = 0.0
    if scale > 0:
        kappa = np.max(np.abs(v) / (sizes.max() if sum_to_one else sizes)) / scale
        kappa = max(kappa, 200 * gap / scale**2 if gaps else 0.0)
    kappa = max(kappa, np.max(-a)) if nonnegative else kappa
    return np.sqrt(np.mean(r**2)), max(kappa, over / max(1, np.abs(a).sum())), delta


def gap(
    E: np.ndarray, y: np.ndarray, a: np.ndarray, sum_to_one: bool = False, penalty: np.ndarray | float = 0.0
) -> float:
    """Return the duality gap of abundances a ≥ 0 over ½|y|², in extended precision: no others cost less by more than
    this.

    Parameters
    ----------
    E : array (L, p), float64
        Without a constraint on the sum, positive: the dual point is the residual less a constant in every band.
    y, a : arrays (L,) and (p,), float64
    sum_to_one : bool
    penalty : array (p,) or float
        Costs of the abundances (`l1`).
    """
    E, y, a = (values.astype(np.longdouble) for values in (E, y, a))
    v = E.T @ (y - E @ a) - penalty
    if sum_to_one:
        return float((v.max() - a @ v) / (0.5 * (y @ y)))
    u = np.full(len(y), max((v / E.sum(axis=0)).max(), 0))
    return float((-a @ v + u @ (E @ a) + 0.5 * u @ u) / (0.5 * (y @ y)))


def of_every_support(E: np.ndarray, y: np.ndarray, method: str = "nnls", most: int | None = None) -> np.ndarray:
    """Return the optimum of a method by trying all supports of at most ``most`` endmembers: the definition of NNLS and
    FCLS.

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


def l1_path(E: np.ndarray, y: np.ndarray, w: np.ndarray | None = None) -> list[tuple[float, np.ndarray]]:
    """Return every breakpoint ``(λ, a)`` of ``min ½ |y − E a|² + λ wᵀa`` over a ≥ 0, from the λ where a becomes 0 down
    to 0.

    Homotopy: on a support S, ``a_S = u − λ v`` with ``u = (E_SᵀE_S)⁻¹ E_Sᵀy`` and ``v = (E_SᵀE_S)⁻¹ w_S``, until an
    abundance or the dual of another column reaches 0; between two breakpoints a is linear in λ.
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
