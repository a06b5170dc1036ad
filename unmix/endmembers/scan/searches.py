"""Compiled searches among projected pixels, rows of X (n, d), NaN where masked; `cuda_points` gives the same bits."""

import numpy as np

from ...compiled.jit import WIDE, compiled

WIDTH, load, store, broadcast = WIDE.width, WIDE.load, WIDE.store, WIDE.broadcast
select, any_lane = WIDE.select, WIDE.any_lane
# The histogram of coordinates: where it begins, and bins a unit; they reach to 3. 0 and 1, which corners have but for
# rounding, are in the middle of a bin.
LOW, PER_UNIT, BINS = -1.0005, 1000, 4000


@compiled
def largest_residual(X, constant, Q, rest):
    """Return the row of X whose ``(x, constant)`` is farthest from the span of Q's rows, and the squared distance."""
    best, most = -1, -1.0
    d = X.shape[1]
    for n in range(0, X.shape[0], WIDTH):
        count = WIDTH if X.shape[0] - n > WIDTH else X.shape[0] - n
        for j in range(d):
            for s in range(count):
                rest[j, s] = X[n + s, j]
        store(rest, d, broadcast(constant))
        for i in range(Q.shape[0]):
            share = broadcast(0.0)
            for j in range(d + 1):
                share = share + Q[i, j] * load(rest, j)
            for j in range(d + 1):
                store(rest, j, load(rest, j) - share * Q[i, j])
        # ``rest`` (d + 2, width) is scratch. A difference of squares would lose a small part beside a large pixel.
        square = broadcast(0.0)
        for j in range(d + 1):
            square = square + load(rest, j) * load(rest, j)
        store(rest, d + 1, square)
        for s in range(count):
            if rest[d + 1, s] > most:
                best, most = n + s, rest[d + 1, s]
    return best, most


@compiled
def farthest_each(X, F, best, most, rest):
    """Find the first row of X (n, d) with the largest ``|fᵀ(x, 1)|`` for each column f of F (d + 1, p)."""
    # ``best`` (p,) and ``most`` (p,; −1 at first) receive rows and values, none of NaN; ``rest`` (d + 1, width) is
    # scratch.
    d, p, last = F.shape[0] - 1, F.shape[1], X.shape[0] - 1
    for n in range(0, X.shape[0], WIDTH):
        for j in range(d):
            for s in range(WIDTH):
                rest[j, s] = X[n + s if n + s < last else last, j]
        for k in range(p):
            total = broadcast(F[d, k])
            for j in range(d):
                total = total + F[j, k] * load(rest, j)
            total = select(total < 0.0, 0.0 - total, total)
            if any_lane(total > most[k]):
                store(rest, d, total)
                for s in range(WIDTH):
                    if rest[d, s] > most[k]:
                        best[k], most[k] = n + s, rest[d, s]


@compiled
def along(X, f, constant, out):
    """Write ``fᵀx + constant`` for each row of X; NaN where it has NaN."""
    for n in range(X.shape[0]):
        total = constant
        for j in range(X.shape[1]):
            total += f[j] * X[n, j]
        out[n] = total


@compiled
def normalise(X, u):
    """Divide each row of X by its product with u; rows with a product of 0 or less become NaN."""
    for n in range(X.shape[0]):
        total = 0.0
        for j in range(u.shape[0]):
            total += u[j] * X[n, j]
        for j in range(u.shape[0]):
            X[n, j] = X[n, j] / total if total > 0.0 else np.nan


@compiled
def count_use(X, inverse, limits, bins, leads, beyond):
    """Count rows of X (n, p − 1) by barycentric coordinates M⁻¹h (`nfindr`); return how many are valid and outside."""
    # Counts are added to ``bins`` (p, BINS) of each coordinate, ``leads`` (p,) of the largest one, and ``beyond`` (p,)
    # of the coordinate that is the farthest below minus its limit.
    p, d, valid, outside = inverse.shape[0], X.shape[1], 0, 0
    for n in range(X.shape[0]):
        if np.isnan(X[n, 0]):
            continue
        leader, most, past, least = 0, -np.inf, 0, np.inf
        for k in range(p):
            b = inverse[k, 0]
            for j in range(d):
                b += inverse[k, j + 1] * X[n, j]
            bins[k, min(max(int((b - LOW) * PER_UNIT), 0), BINS - 1)] += 1
            if b > most:
                leader, most = k, b
            if b / limits[k] < least:
                past, least = k, b / limits[k]
        valid += 1
        leads[leader] += 1
        if least < -1.0:
            outside += 1
            beyond[past] += 1
    return valid, outside


def columns_of(inverse: np.ndarray) -> np.ndarray:
    """Return the inverse of M as columns f (p, p) whose ``fᵀ(z, 1)`` are the barycentric coordinates of a pixel z."""
    return np.ascontiguousarray(np.roll(inverse, -1, axis=1).T)
