"""Plain readings of published algorithms, slow and obvious, in numpy alone; `reference` defines the results of runs."""

import numpy as np


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


def moments(Y, valid, each=1):
    """Count, sum and second moment of the valid pixels (lines, samples, L), and of their neighbours' differences in every n-th line."""
    L = Y.shape[2]
    flat = Y[valid]
    pairs, differences = 0, np.zeros((L, L))
    for line in range(0, len(Y), each):
        for sample in range(1, Y.shape[1]):
            d = Y[line, sample] - Y[line, sample - 1]
            if valid[line, sample] and valid[line, sample - 1] and d.any():
                pairs, differences = pairs + 1, differences + np.outer(d, d)
    return len(flat), flat.sum(axis=0), flat.T @ flat, pairs, differences


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


def noise_of_bands(Y):
    """What each band has that no regression on all others explains, (N, L): HySime's noise estimate, on the pixels (N, L)."""
    noise = np.empty_like(Y)
    for i in range(Y.shape[1]):
        others = np.delete(Y, i, axis=1)
        noise[:, i] = Y[:, i] - others @ np.linalg.lstsq(others, Y[:, i], rcond=1e-12)[0]
    return noise


def hysime(Y):
    """HySime by its definition, on the pixels (N, L): noise by regression, then the directions with more signal."""
    N, L = Y.shape
    noise = noise_of_bands(Y)
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
