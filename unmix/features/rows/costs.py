"""Compute the least cost of each pixel over some spectra of a library from its correlations with them."""

from typing import Any, NamedTuple

import numpy as np

from ...compiled.jit import compiled
from ...solvers.pixels.inverse_update import add_column
from ...solvers.pixels.scalar import FREE, PASSIVE, descend, lawson_hanson, start_cold

# Duals below this share of the lengths of pixel and spectrum are rounding.
DUAL_TOLERANCE = 1e-12
# A squared distance to the span of others below this share of the squared length is rounding: the spectrum depends on
# the others.
DEPENDENT_SHARE = 1e-14
# A residual below this share of the squared lengths that it is the difference of is computed band by band: no digits
# were left else.
LEAST_LEFT = 1e-7
# Most spectra whose supports are swept and kept (of more spectra pixels share few), and places for these.
MOST_SWEPT, SUPPORTS = 16, 512
# Supports that are tried before Lawson and Hanson's search, which always ends.
MOST_ROUNDS = 12


class Shared(NamedTuple):
    """Constants of some spectra, alike for all pixels: the fields of `unmix.solvers.pixels.scalar.Plan` in use."""

    G: Any  # (k, k) float64
    norms: Any  # (k,)
    dual_tolerance: float
    sum_to_one: bool
    lift: float  # in all of G: the squared height of the constant band
    E: Any  # (k, L)
    Y: Any  # (L, n) the pixels


class Scratch(NamedTuple):
    """Scratch of one pixel: the fields of `unmix.solvers.pixels.scalar.Work` in use, and the known supports."""

    f: Any  # (k,) float64, as all but the last two of them
    a: Any
    x: Any
    s: Any
    u: Any
    H: Any  # (k, k)
    support: Any  # (k,) int64
    state: Any  # (k,) int64
    keys: Any  # (m,) int64: the support that a place of the following is for, a bit a spectrum; −1 for none
    swept: Any  # (m, k, k) the transpose of G after sweeps of the support's columns (Goodnight 1979)
    sums: Any  # (m, k) its answer to correlations that are all 1


def scratch_of(p: int, k: int) -> Scratch:
    """Allocate scratch for pixels that have at most k of p spectra."""
    f, a, x, s, u = np.empty((5, p))
    m = SUPPORTS if p == k <= MOST_SWEPT else 0
    known = np.full(m, -1), np.empty((m, k, k)), np.empty((m, k))
    return Scratch(f, a, x, s, u, np.empty((k, k)), np.empty(p, np.int64), np.empty(p, np.int64), *known)


@compiled
def sweep(T, j, least):
    """Sweep a column of the transpose of a matrix (k, k); return False if it depends on swept columns."""
    d = T[j, j]
    if not d > least:
        return False
    for m in range(len(T)):
        if m != j:
            share = T[m, j] / d
            for i in range(len(T)):
                T[m, i] -= share * T[j, i]
            T[m, j] = share
    for i in range(len(T)):
        T[j, i] /= -d
    T[j, j] = 1.0 / d
    return True


@compiled
def place_of(shared, work, key):
    """Return a support's place in ``work``, swept in ascending order if not known; −1 if a column depends on others."""
    e = (key ^ key >> 9) % len(work.keys)
    if work.keys[e] != key:
        T, sums, work.keys[e] = work.swept[e], work.sums[e], -1
        for j in range(len(T)):
            sums[j] = 1.0 - (key >> j & 1)
            for m in range(len(T)):
                T[j, m] = shared.G[j, m]
        for j in range(len(T)):
            if key >> j & 1 and not sweep(T, j, DEPENDENT_SHARE * shared.G[j, j]):
                return -1
        for m in range(len(T)):
            if key >> m & 1:
                for j in range(len(T)):
                    sums[j] += T[m, j]
        work.keys[e] = key
    return e


@compiled
def answer(shared, work, key, e):
    """Compute the optimum on a support, and the duals beside it, into ``work.x``."""
    x, T, sums = work.x, work.swept[e], work.sums[e]
    for j in range(len(x)):
        x[j] = 0.0 if key >> j & 1 else work.f[j]
    for m in range(len(x)):
        if key >> m & 1:
            for j in range(len(x)):
                x[j] += work.f[m] * T[m, j]
    if shared.sum_to_one:
        total, spread = -1.0, 0.0
        for j in range(len(x)):
            if key >> j & 1:
                total, spread = total + x[j], spread + sums[j]
        for j in range(len(x)):
            x[j] -= total / spread * sums[j]


@compiled
def is_found(shared, work, length):
    """Search by block pivots from ``work.a`` (Portugal et al. 1994); return whether ``work.a`` is the optimum now."""
    k, key, fewest = len(work.a), 0, len(work.a) + 1
    for j in range(k):
        key |= int(work.a[j] > 0.0) << j
    for _ in range(MOST_ROUNDS if len(work.keys) else 0):
        e = place_of(shared, work, key) if key or not shared.sum_to_one else -1
        if e < 0:
            return False
        answer(shared, work, key, e)
        wrong, count, last = 0, 0, 0
        for j in range(k):
            is_in = key >> j & 1
            if work.x[j] <= 0.0 if is_in else work.x[j] > shared.dual_tolerance * shared.norms[j] * length:
                last = 1 << j
                wrong, count = wrong | last, count + 1
        if count == 0:
            for j in range(k):
                work.a[j] = work.x[j] if key >> j & 1 else 0.0
            return True
        # All columns on the wrong side change it while these become fewer, else the last.
        key ^= wrong if count < fewest else last
        fewest = min(fewest, count)
    return False


@compiled
def begin(shared, work):
    """Begin with the columns whose abundances are above 0; return the size of the support."""
    size, total = 0, 0.0
    for j in range(len(work.a)):
        start, work.a[j], work.state[j] = work.a[j], 0.0, FREE
        if start > 0.0:
            grown = add_column(shared.G, work.H, work.support, size, j, work.u)
            if grown > size:
                work.state[j], work.a[j] = PASSIVE, start
                size, total = grown, total + start
    if size == 0 and shared.sum_to_one:
        return start_cold(shared, work)[0]
    if shared.sum_to_one:
        for j in range(len(work.a)):
            work.a[j] /= total
    return size


@compiled
def residual(shared, a, n):
    """Compute ``|y − E a|²`` of a pixel band by band."""
    total = 0.0
    for band in range(len(shared.Y)):
        left = shared.Y[band, n]
        for i in range(len(a)):
            left -= a[i] * shared.E[i, band]
        total += left * left
    return total


@compiled
def add_costs(F, squares, known, before, gone, shared, work, first, last, A):
    """Write A (n, k) of pixels first to last; return ``Σ|y − E a|²`` and the number of abundances above 0."""
    # F (k, n): correlations; squares (n,): |y|²; known (n, m): optimal abundances of other spectra, to begin with;
    # before (k,): their places in known, −1 for new spectra; gone (g,): places in known of spectra that are gone.
    cost, count, k = 0.0, 0, len(F)
    for n in range(first, last):
        length, is_known = (squares[n] + shared.lift) ** 0.5, k + len(gone) == known.shape[1]
        for i in gone:
            is_known &= known[n, i] == 0.0
        for i in range(k):
            work.f[i] = F[i, n]
            work.a[i] = known[n, before[i]] if before[i] >= 0 else 0.0
        if not is_known and not is_found(shared, work, length):
            size, multiplier, _, _ = descend(shared, work, begin(shared, work), -1)
            lawson_hanson(shared, work, size, multiplier, length)
        for i in range(k):
            work.x[i] = 2.0 * work.f[i] + shared.lift
        for i in range(k):
            if work.a[i] != 0.0:
                for j in range(k):
                    work.x[j] -= work.a[i] * shared.G[i, j]
        left = squares[n]
        for i in range(k):
            A[n, i] = work.a[i]
            left -= work.a[i] * work.x[i]
            length += work.a[i] * shared.norms[i]
            count += work.a[i] != 0.0
        cost += left if left > LEAST_LEFT * length * length else residual(shared, work.a, n)
    return cost, count


@compiled
def add_promises(
    F, squares, columns, A, G, norms, sum_to_one, lift, work, first, last, every, slopes, gains, losses, counts
):
    """Add the gains that further spectra promise, and least costs of losses, of every ``every``-th pixel of a range."""
    # If no other abundance became 0 or left 0, the cost would fall by w² / d, w half the slope and d the squared
    # distance to the span of the support, and rise by a² / H_jj, H the inverse of its Gram matrix. F is (n, p),
    # columns (k,); slopes, gains and counts (p,) are Σ w², Σ w² / d and the number of pixels with a gain.
    p = G.shape[0]
    for n in range(first, last, every):
        size = 0
        for i in range(len(columns)):
            if A[n, i] > 0.0:
                grown = add_column(G, work.H, work.support, size, columns[i], work.u)
                if grown > size:
                    work.state[size] = i
                    size = grown
        for j in range(p):
            work.x[j], work.s[j] = F[n, j], G[j, j]
        for i in range(len(columns)):
            a = A[n, i]
            if a > 0.0:
                for j in range(p):
                    work.x[j] -= a * G[columns[i], j]
        for i in range(size):
            for m in range(i + 1):
                h, one, other = (1.0 + (m < i)) * work.H[i, m], work.support[i], work.support[m]
                for j in range(p):
                    work.s[j] -= h * G[one, j] * G[other, j]
        multiplier = 0.0
        if sum_to_one:
            for i in range(len(columns)):
                multiplier += A[n, i] * work.x[columns[i]]
        for i in range(size):
            losses[work.state[i]] += A[n, work.state[i]] ** 2 / work.H[i, i]
        length = (squares[n] + lift) ** 0.5
        for j in range(p):
            slope = work.x[j] - multiplier
            if slope > 10.0 * DUAL_TOLERANCE * length * norms[j]:
                slopes[j] += slope * slope
                counts[j] += 1.0
                gains[j] += slope * slope / max(work.s[j], DEPENDENT_SHARE * G[j, j])
