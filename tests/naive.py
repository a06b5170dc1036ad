"""Slow and obviously right: every algorithm again, from its definition, in numpy alone."""

import itertools

import numpy as np


def least_squares(E, y, sum_to_one):
    """Least squares on all columns, the sum to one by its Lagrangian (a bordered system)."""
    p = E.shape[1]
    if not sum_to_one:
        return np.linalg.lstsq(E, y, rcond=None)[0]
    border = np.zeros((p + 1, p + 1))
    border[:p, :p] = E.T @ E
    border[:p, p] = border[p, :p] = 1
    return np.linalg.lstsq(border, np.append(E.T @ y, 1), rcond=None)[0][:p]


def constrained(E, y, sum_to_one):
    """NNLS or FCLS: the best of the non-negative optima of all supports."""
    p = E.shape[1]
    best, least = None, np.inf
    for size in range(1 if sum_to_one else 0, p + 1):
        for support in itertools.combinations(range(p), size):
            a = np.zeros(p)
            if size:
                a[list(support)] = least_squares(E[:, list(support)], y, sum_to_one)
            cost = np.sum((y - E @ a) ** 2)
            if a.min() >= -1e-12 and cost < least:
                best, least = np.maximum(a, 0), cost
    return best


def optimum(E, y, method):
    """The answer of a row of `METHODS`; with shade, NNLS if its sum is at most one, else FCLS: the objective is convex."""
    if method.has_shade:
        a = constrained(E, y, False)
        return a if a.sum() <= 1 else constrained(E, y, True)
    return (constrained if method.nonnegative else least_squares)(E, y, method.sum_to_one)


def models(E, y, kinds, choice, method):
    """MESMA: every model of one spectrum of each of some classes. Returns abundances, None if no model is within the limits.

    ``method`` is pcls's row, for the limits ``exact``.
    """
    names = sorted(set(kinds), key=lambda kind: (kind.lower(), kind))
    members = [[j for j, kind in enumerate(kinds) if kind == name] for name in names]
    chosen, least, kept, preceding = None, np.inf, np.inf, np.inf
    for size in range(choice.sizes[0], choice.sizes[1] + 1):
        best, error = None, np.inf
        for some in itertools.combinations(members, size):
            own = {kinds[part[0]] for part in some}
            given = [set(text.split("+")) for text in (choice.class_sets or "").split(",")]
            if (
                choice.class_sets
                and own not in given
                and not (choice.limits == "exact" and any(own < one for one in given))
            ):
                continue
            for model in itertools.product(*some):
                columns = list(model)
                if choice.limits == "exact":
                    a = optimum(E[:, columns], y, method)
                else:
                    a = np.linalg.lstsq(E[:, columns], y, rcond=None)[0]
                    shade = 1 - a.sum()
                    if a.min() < choice.min_fraction - 1e-9 or a.max() > choice.max_fraction + 1e-9:
                        continue
                    if not choice.min_shade - 1e-9 <= shade <= choice.max_shade + 1e-9:
                        continue
                    large = np.abs(y - E[:, columns] @ a) >= (choice.max_residual or np.inf)
                    if "1" * choice.residual_bands in "".join("1" if one else "0" for one in large):
                        continue
                rmse = np.sqrt(np.mean((y - E[:, columns] @ a) ** 2))
                if rmse <= choice.largest_rmse and rmse < error - 1e-13:
                    error, best = rmse, np.zeros(len(kinds))
                    best[columns] = a
        reference = kept if choice.fusion_rule == "kept" else preceding
        if error < np.inf and (reference == np.inf or reference - error >= choice.fusion):
            kept = error
            if error < least - 1e-13:
                chosen, least = best, error
        preceding = error
    return chosen


def delete_only(E, y, sum_to_one):
    """Li and Li, Algorithm 3, with an inverse at every step."""
    P = list(range(E.shape[1]))
    while P:
        H = np.linalg.inv(E[:, P].T @ E[:, P])
        z, s = H @ E[:, P].T @ y, H.sum(axis=1)
        if sum_to_one:
            z = z + (1 - z.sum()) / s.sum() * s
        if np.all(z >= 0):
            break
        ratio = np.where(z < 0, np.abs(z / s), -1)
        P.pop(int(np.argmax(ratio)))
    a = np.zeros(E.shape[1])
    a[P] = z if P else 0
    return a


def certificate(E, y, a, sum_to_one, nonnegative, gaps=True):
    """(rmse, κ, δ) of one pixel, as defined: δ with the rounding of float64 that it allows for, κ with the duality gap."""
    L, p = E.shape
    sizes = np.linalg.norm(E, axis=0)
    smallest = np.linalg.svd(E, compute_uv=False)[-1]
    if sum_to_one:
        mean = E.mean(axis=1)
        E, y = E - mean[:, None], y - mean
        sizes = np.linalg.norm(E, axis=0)
        # On vectors that sum to 0: differences to the last, whose Gram matrix is that of an orthonormal basis times a triangle.
        basis = np.linalg.svd(np.ones((1, p)))[2][1:].T
        smallest = np.linalg.svd(E @ basis, compute_uv=False)[-1] if p > 1 else np.inf
    r = y - E @ a
    w = E.T @ r
    multiplier = (a @ w / a.sum() if nonnegative else w.mean()) if sum_to_one else 0.0
    v = w - multiplier
    unit = 1.01 * 2.0**-53
    lengths = np.linalg.norm(y) + np.sum(np.abs(a) * sizes)
    over = abs(a.sum() - 1) if sum_to_one else 0.0
    apart = over + p * unit * np.abs(a).sum() if sum_to_one else 0.0
    rho = (unit * ((L + 2) * np.linalg.norm(r) + (np.count_nonzero(a) + 2) * lengths) + apart * sizes.max()) * sizes
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
    gap = gap if gaps else 0.0
    kappa = (
        max(np.max(np.abs(v) / (sizes.max() if sum_to_one else sizes)) / scale, 200 * gap / scale**2)
        if scale > 0
        else 0.0
    )
    if nonnegative:
        kappa = max(kappa, np.max(-a))
    return np.sqrt(np.mean(r**2)), max(kappa, over / max(1, np.abs(a).sum())), delta


def vca(Y, p, seed):
    """Vertex component analysis, a plain reading of Nascimento and Dias 2005, Algorithm 1.

    Y is (N, L). Returns the places of the pixels, and the endmembers (L, p) as the algorithm gives them: projected.
    """
    random = np.random.Generator(np.random.PCG64(seed))
    R = Y.T
    L, N = R.shape
    mean = R.mean(axis=1, keepdims=True)
    centred = R - mean
    U = np.linalg.svd(centred @ centred.T / N)[0][:, :p]
    inside = U.T @ centred
    power = np.sum(R**2) / N
    signal = np.sum(inside**2) / N + (mean.T @ mean).item()
    snr = 10 * np.log10((signal - p / L * power) / (power - signal)) if power > signal else np.inf
    if snr < 15 + 10 * np.log10(p):
        X = inside[: p - 1]
        constant = np.sqrt(np.max(np.sum(X**2, axis=0)))
        points = np.vstack([X, np.full(N, constant)])
        back = U[:, : p - 1] @ X + mean
    else:
        U = np.linalg.svd(R @ R.T / N)[0][:, :p]
        X = U.T @ R
        points = X / (X.mean(axis=1) @ X)
        back = U @ X
    A = np.zeros((p, p))
    A[-1, 0] = 1
    places = []
    for i in range(p):
        w = random.random(p)
        f = w - A @ np.linalg.pinv(A) @ w
        f /= np.linalg.norm(f)
        places.append(int(np.argmax(np.abs(f @ points))))
        A[:, i] = points[:, places[-1]]
    return places, back[:, places]


def sisal_value(Q, H, tau):
    """What SISAL minimises."""
    return -np.linalg.slogdet(Q)[1] + tau * np.maximum(-Q @ H, 0).sum()


def sisal(H, Q, tau, rounds=80, inner=100):
    """SISAL, a plain reading of Bioucas-Dias 2009: quadratic steps, each by an augmented Lagrangian; from Q (p, p) on h (p, N)."""
    p, N = H.shape
    damping, mu = 1e-6, p * 1000 / N
    sums = np.kron(np.eye(p), np.ones((1, p)))  # of the columns of Q, column by column
    quadratic = damping * np.eye(p * p) + mu * np.kron(H @ H.T, np.eye(p))
    inverse = np.linalg.inv(quadratic)
    back = inverse @ sums.T @ np.linalg.inv(sums @ inverse @ sums.T)
    fixed, free = back @ np.eye(p)[0], inverse - back @ sums @ inverse
    for _ in range(rounds):
        gradient = -np.linalg.inv(Q).T.ravel("F")
        linear, before = damping * Q.ravel("F") - gradient, Q
        Z, D = Q @ H, np.zeros((p, N))
        for _ in range(inner):
            Q = (free @ (linear + mu * ((Z + D) @ H.T).ravel("F")) + fixed).reshape(p, p, order="F")
            B = Q @ H - D
            Z = np.where(B > 0, B, np.minimum(B + tau / mu, 0))
            D = D - (Q @ H - Z)
        share = 1.0
        while sisal_value(before + share * (Q - before), H, tau) > sisal_value(before, H, tau) and share > 1e-6:
            share /= 2
        Q = before + share * (Q - before)
    return Q


def spa(Y, p):
    """Successive projections (Gillis and Vavasis 2014) of centred pixels with a constant: places; Y is (N, L)."""
    Z = Y - Y.mean(axis=0)
    H = np.column_stack([Z, np.full(len(Z), np.sqrt(np.square(Z).sum(axis=1).max()))])
    places = []
    for _ in range(p):
        places.append(int(np.argmax(np.square(H).sum(axis=1))))
        u = H[places[-1]] / np.linalg.norm(H[places[-1]])
        H = H - np.outer(H @ u, u)
    return places


def noise_of_band(Y, i):
    """Residual power of band i regressed on all others: HySime's noise estimate, by least squares on the pixels."""
    others = np.delete(Y, i, axis=1)
    fit = np.linalg.lstsq(others, Y[:, i], rcond=None)[0]
    return np.mean((Y[:, i] - others @ fit) ** 2)


def hysime(Y):
    """HySime by its definition, on the pixels (N, L): noise by regression, then the directions with more signal."""
    N, L = Y.shape
    noise = np.empty_like(Y)
    for i in range(L):
        others = np.delete(Y, i, axis=1)
        noise[:, i] = Y[:, i] - others @ np.linalg.lstsq(others, Y[:, i], rcond=1e-12)[0]
    signal = Y - noise
    Rn = np.diag(np.mean(noise**2, axis=0))
    Rx = signal.T @ signal / N
    Rn += np.trace(Rx) / L / 1e5 * np.eye(L)
    V = np.linalg.svd(Rx)[0]
    return sum(v @ (Y.T @ Y / N) @ v > 2 * v @ Rn @ v for v in V.T)


def read_envi(raw, lines, samples, bands, dtype, interleave, order, offset=0):
    """The cube (lines, samples, bands) from the bytes of its file."""
    values = np.frombuffer(raw, np.dtype(dtype).newbyteorder(order), lines * samples * bands, offset)
    if interleave == "bip":
        return values.reshape(lines, samples, bands)
    if interleave == "bil":
        return values.reshape(lines, bands, samples).transpose(0, 2, 1)
    return values.reshape(bands, lines, samples).transpose(1, 2, 0)


def angle(u, v):
    """The angle between two spectra in radians, exact for small ones."""
    u, v = u / np.linalg.norm(u), v / np.linalg.norm(v)
    return 2 * np.arcsin(min(1.0, np.linalg.norm(u - v) / 2))


def lasso_path(E, y, w=None):
    """Every breakpoint ``(λ, a)`` of ``min ½ |y − E a|² + λ wᵀa`` over a ≥ 0, from the λ where a becomes 0 down to 0.

    Homotopy: on a support S, ``a_S = u − λ v`` with ``u = (E_SᵀE_S)⁻¹ E_Sᵀy`` and ``v = (E_SᵀE_S)⁻¹ w_S``, until an abundance or the
    dual of another column reaches 0; between two breakpoints a is linear in λ.
    """
    p = E.shape[1]
    w = np.ones(p) if w is None else w
    start = (E.T @ y) / w
    lam, S = start.max(), [int(start.argmax())]
    if lam <= 0:
        return [(0.0, np.zeros(p))]
    path, last = [(lam, np.zeros(p))], None
    for _ in range(20 * p):
        Q, R = np.linalg.qr(E[:, S])
        u = np.linalg.solve(R, Q.T @ y)
        v = np.linalg.solve(R, np.linalg.solve(R.T, w[S]))
        r, d = y - E[:, S] @ u, E[:, S] @ v
        # Duals along λ: e_jᵀ(r + λ d) − λ w_j, which is 0 at the next column's λ.
        best, event = 0.0, None
        for j in range(p):
            if j not in S and j != last:
                slope = w[j] - E[:, j] @ d
                at = (E[:, j] @ r) / slope if abs(slope) > 1e-12 else -1.0
                if 0 < at < lam * (1 - 1e-12) and at > best:
                    best, event = at, ("in", j)
        for i, j in enumerate(S):
            at = u[i] / v[i] if v[i] != 0 else -1.0
            if 0 < at < lam * (1 - 1e-12) and at > best and j != last:
                best, event = at, ("out", j)
        a = np.zeros(p)
        a[S] = u - best * v
        if event is not None and event[0] == "out":
            a[event[1]] = 0.0
        path.append((best, a))
        if event is None:
            break
        kind, last = event
        lam = best
        if kind == "in":
            S.append(last)
        else:
            S.remove(last)
    return path


def on_path(path, lam):
    """The abundances at one λ of a path, between its breakpoints."""
    if lam >= path[0][0]:
        return np.zeros(len(path[0][1]))
    for (high, a), (low, b) in itertools.pairwise(path):
        if low <= lam <= high:
            share = (high - lam) / (high - low)
            return a + share * (b - a)
    raise AssertionError(lam)


def best_subset(E, y, most):
    """Of all supports of at most so many endmembers the one whose non-negative optimum leaves least: abundances and misfit squared."""
    best, least = np.zeros(E.shape[1]), y @ y
    for size in range(1, most + 1):
        for support in itertools.combinations(range(E.shape[1]), size):
            a = np.zeros(E.shape[1])
            a[list(support)] = least_squares(E[:, list(support)], y, False)
            cost = np.sum((y - E @ a) ** 2)
            if a.min() >= -1e-12 and cost < least:
                best, least = np.maximum(a, 0), cost
    return best, least


def neighbours(support, p, most):
    """All supports after one addition, or one exchange, of an endmember."""
    others = [j for j in range(p) if j not in support]
    if len(support) < most:
        yield from ((*support, j) for j in others)
    yield from ((*(m for m in support if m != i), j) for i in support for j in others)
