"""Compute the least cost of each pixel over some spectra of a library from its correlations with them."""

from typing import Any, NamedTuple

import numpy as np

from ...compiled.jit import compiled
from ...solvers.pixels.inverse_update import add_column
from ...solvers.pixels.scalar import FREE, PASSIVE, descend, lawson_hanson, optimum

# Duals below this share of the lengths of pixel and spectrum are rounding.
DUAL_TOLERANCE = 1e-12
# A squared distance to the span of others below this share of the squared length is rounding: the spectrum depends on the others.
DEPENDENT_SHARE = 1e-14


class Shared(NamedTuple):
    """Constants of some spectra that all pixels share: fields of `unmix.solvers.pixels.scalar.Plan` that its search reads."""

    G: Any  # (k, k) float64
    norms: Any  # (k,)
    dual_tolerance: float
    sum_to_one: bool


class Scratch(NamedTuple):
    """Scratch of one pixel: fields of `unmix.solvers.pixels.scalar.Work` that its search uses."""

    f: Any  # (k,) float64, as all but the last two
    a: Any
    x: Any
    s: Any
    u: Any
    H: Any  # (k, k)
    support: Any  # (k,) int64
    state: Any  # (k,) int64


def scratch_of(p: int, k: int) -> Scratch:
    """Allocate scratch for p spectra, of which a pixel has at most k."""
    f, a, x, s, u = np.empty((5, p))
    return Scratch(f, a, x, s, u, np.empty((k, k)), np.empty(p, np.int64), np.empty(p, np.int64))


@compiled
def begin(shared, work, start):
    """Begin with the columns whose abundances ``start`` (k,) has; return the size of the support and the multiplier."""
    size, total = 0, 0.0
    for j in range(len(start)):
        work.state[j], work.a[j] = FREE, 0.0
        if start[j] > 0.0:
            grown = add_column(shared.G, work.H, work.support, size, j, work.u)
            if grown > size:
                work.state[j], work.a[j] = PASSIVE, start[j]
                size, total = grown, total + start[j]
    if size == 0 and shared.sum_to_one:
        best, least = 0, shared.G[0, 0] - 2.0 * work.f[0]
        for j in range(1, len(start)):
            if shared.G[j, j] - 2.0 * work.f[j] < least:
                best, least = j, shared.G[j, j] - 2.0 * work.f[j]
        size, total = add_column(shared.G, work.H, work.support, 0, best, work.u), 1.0
        work.state[best], work.a[best] = PASSIVE, 1.0
    if shared.sum_to_one:
        for j in range(len(start)):
            work.a[j] /= total
    return size, optimum(shared.G, work.f, work.H, work.support, size, shared.sum_to_one, work.x, work.s, work.u)


@compiled
def add_costs(F, squares, rows, start, shared, work, first, last, A):
    """Return the sum of the costs ``|y − E a|²`` of pixels from first to last, and how many abundances are above 0; A takes these.

    Parameters
    ----------
    F : array (n, p), float64
        Correlations with all spectra.
    squares : array (n,), float64
        |y|².
    rows : array (k,), int64
        The spectra that pixels may have.
    start : array (n, k), float64
        Abundances that are nearly optimal, of which the search begins with those above 0.
    shared : Shared
    work : Scratch
    first, last : int
    A : array (n, k), float64
    """
    cost, count = 0.0, 0
    for n in range(first, last):
        for i in range(len(rows)):
            work.f[i] = F[n, rows[i]]
        size, multiplier = begin(shared, work, start[n])
        size, multiplier, _, _ = descend(shared, work, size, -1)
        lawson_hanson(shared, work, size, multiplier, squares[n] ** 0.5)
        left = squares[n]
        for i in range(len(rows)):
            a = work.a[i]
            A[n, i] = a
            if a != 0.0:
                count += 1
                dual = 2.0 * work.f[i]
                for j in range(len(rows)):
                    dual -= shared.G[i, j] * work.a[j]
                left -= a * dual
        cost += max(left, 0.0)
    return cost, count


@compiled
def add_promises(F, squares, columns, A, G, norms, sum_to_one, work, first, last, every, slopes, gains, losses, counts):
    """Add up of pixels from first to last what further spectra promise, and what the loss of each of some would cost at least.

    Where no other abundance became 0 or left 0, the cost would fall by w² / d, w half the slope and d the squared distance to the span
    of the pixel's support, and rise by a² / H_jj, H the inverse of the support's Gram matrix.

    Parameters
    ----------
    F, squares, columns, A
        As of `add_costs`; the abundances are optimal.
    G, norms : arrays (p, p) and (p,), float64
        Gram matrix and lengths of all spectra.
    work : Scratch
        For all p spectra but H, of k.
    slopes, gains : arrays (p,), float64
        Σ w² and Σ w² / d.
    losses : array (k,), float64
    counts : array (p,), float64
        In how many pixels a spectrum has a gain.
    """
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
            work.x[j] = F[n, j]
        for i in range(len(columns)):
            if A[n, i] > 0.0:
                for j in range(p):
                    work.x[j] -= A[n, i] * G[columns[i], j]
        multiplier = 0.0
        if sum_to_one:
            for i in range(len(columns)):
                multiplier += A[n, i] * work.x[columns[i]]
        for i in range(size):
            losses[work.state[i]] += A[n, work.state[i]] ** 2 / work.H[i, i]
        length = squares[n] ** 0.5
        for j in range(p):
            slope = work.x[j] - multiplier
            if slope > 10.0 * DUAL_TOLERANCE * length * norms[j]:
                d = G[j, j]
                for i in range(size):
                    total = 0.0
                    for m in range(size):
                        total += work.H[i, m] * G[work.support[m], j]
                    d -= total * G[work.support[i], j]
                slopes[j] += slope * slope
                counts[j] += 1.0
                gains[j] += slope * slope / max(d, DEPENDENT_SHARE * G[j, j])
