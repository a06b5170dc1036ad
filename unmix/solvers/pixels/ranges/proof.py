"""Prove, by weak duality, what a linear quantity of no mixture exceeds whose misfit is at most a limit; rounding is included."""

from typing import Any, NamedTuple

import numpy as np

from ....compiled.jit import compiled
from ....compiled.simd import WIDE, aligned_zeros
from ..gather import product_function
from ..rows import UNIT_ROUNDOFF

_product, _load, _store, _fma, _select = product_function(WIDE), WIDE.load, WIDE.store, WIDE.fma, WIDE.select
_broadcast, _root, _width = WIDE.broadcast, WIDE.root, WIDE.width
# Cushion for the rounding of the few operations on bounds themselves.
MORE = 1.0 + 1e-12


class Mixtures(NamedTuple):
    """What the pixels share, p spectra of L bands, float64."""

    E: Any  # (L, p)
    columns: Any  # (p, L) its transpose, in C order
    norms: Any  # (p,)
    has_sum: int  # 1 where abundances sum to one, among them that of shade, a column of zeros
    along: Any  # (p,) products with a vector of length one, above 0; (0,) where there is a sum
    along_error: Any  # (p,) by which these may be off


class Scratch(NamedTuple):
    """Scratch of w pixels, float64."""

    Y: Any  # (L, w)
    X: Any  # (p, w) abundances
    R: Any  # (L, w) residuals
    W: Any  # (p, w) their duals
    given: Any  # (3, w) μ, ρ and t
    found: Any  # (2, w) the bound and the misfit


def new_scratch(L: int, p: int) -> Scratch:
    """Allocate the scratch."""
    return Scratch(*(aligned_zeros(n, _width) for n in (L, p, L, p, 3, 2)))


@compiled
def load_tile(Y, A, first, count, scratch):
    """Load the pixels from ``first`` on, and their abundances; lanes without a pixel hold the last."""
    for s in range(_width):
        n = first + min(s, count - 1)
        for b in range(Y.shape[1]):
            scratch.Y[b, s] = Y[n, b]
        for j in range(A.shape[1]):
            scratch.X[j, s] = A[n, j]


@compiled
def find_residuals(mixtures, scratch):
    """Compute the residuals of a tile; return |r|² and |y|²."""
    _product(mixtures.columns, scratch.X, scratch.R)
    square, bright = _broadcast(0.0), _broadcast(0.0)
    for b in range(mixtures.E.shape[0]):
        y = _load(scratch.Y, b)
        r = y - _load(scratch.R, b)
        _store(scratch.R, b, r)
        square, bright = _fma(r, r, square), _fma(y, y, bright)
    return square, bright


@compiled
def find_misfits(mixtures, Y, A, scratch, misfits):
    """Compute ``½|y − E a|²`` of pixels (n, L) with abundances (n, p), (n,) float64; ``scratch`` is a `Scratch`."""
    for first in range(0, len(Y), _width):
        count = min(_width, len(Y) - first)
        load_tile(Y, A, first, count, scratch)
        square, _ = find_residuals(mixtures, scratch)
        _store(scratch.found, 1, square * 0.5)
        for s in range(count):
            misfits[first + s] = scratch.found[1, s]


@compiled
def prove_tile(mixtures, quantity, weights, scratch):
    """Compute what ``dᵀa`` of no mixture with a misfit up to ρ exceeds, and the misfit of a tile.

    Its abundances are nearly optimal for ``½|y − E a|² − μ dᵀa``, with d = quantity − t · weights, each number rounded twice. The dual
    point is the residual; where the multiplier ``Eᵀr + μ d`` of an abundance is positive it is moved, or, under a constraint on the
    sum, the largest is that constraint's. Errors of rounding are as in `unmix.certificate`.
    """
    (L, p), u, zero = mixtures.E.shape, UNIT_ROUNDOFF, _broadcast(0.0)
    square, bright = find_residuals(mixtures, scratch)
    _product(mixtures.E, scratch.R, scratch.W)
    mu, rho, share = _load(scratch.given, 0), _load(scratch.given, 1), _load(scratch.given, 2)
    terms, count = zero, zero
    for j in range(p):
        a = _load(scratch.X, j)
        terms, count = _fma(a, _broadcast(mixtures.norms[j]), terms), count + _select(a > 0.0, _broadcast(1.0), zero)
    length = _root(square)
    # By which |r| may be off: the products with an abundance of 0 are exact, and so are sums with them.
    off = (_root(bright) + terms) * ((count + 2.0) * u)
    each = length * ((L + 2.0) * u) + off
    explained, value, moved, reach = zero, zero, zero, zero
    if mixtures.has_sum == 1:
        moved = _broadcast(-np.inf)
    for j in range(p):
        c = _broadcast(quantity[j]) - share * weights[j]
        a, w = _load(scratch.X, j), _fma(mu, c, _load(scratch.W, j))
        error = _fma(mu * (2.0 * u), _select(c < 0.0, zero - c, c), each * mixtures.norms[j])
        size = _select(w < 0.0, zero - w, w)
        explained = explained + a * (w - _fma(size, count * u, error))
        value = _fma(a, c, value)
        w = w + error
        if mixtures.has_sum == 0:
            w = w * _broadcast(1.0 / (mixtures.along[j] - mixtures.along_error[j]))
            reach = _fma(a, _broadcast(mixtures.along[j] + mixtures.along_error[j]), reach)
        moved = _select(w > moved, w, moved)
    if mixtures.has_sum == 0:
        moved = moved * MORE
        loss = (moved * reach + moved * moved * 0.5) * MORE - explained
    else:
        loss = moved - explained
    spare = rho - square * 0.5 + square * ((L + 4.0) * u) + length * off * 2.0
    loss_size, spare_size = _select(loss < 0.0, zero - loss, loss), _select(spare < 0.0, zero - spare, spare)
    value_size = _select(value < 0.0, zero - value, value)
    bound = value + (spare + loss) / mu
    _store(scratch.found, 0, bound + (value_size + (spare_size + loss_size) / mu) * ((count + 1.0) * (8.0 * u)))
    _store(scratch.found, 1, square * 0.5)


@compiled
def prove(mixtures, Y, A, mu, rho, c, scratch, bounds, misfits):
    """Compute `prove_tile` of n pixels.

    Parameters
    ----------
    mixtures : Mixtures
    Y, A : arrays (n, L) and (n, p), float64
        Pixels, and abundances ≥ 0.
    mu, rho : arrays (n,), float64
        μ, above 0, and ρ.
    c : array (p,), float64
    scratch : Scratch
    bounds, misfits : arrays (n,), float64
        The bounds, and ``½|y − E a|²``.
    """
    for first in range(0, len(Y), _width):
        count = min(_width, len(Y) - first)
        load_tile(Y, A, first, count, scratch)
        for s in range(_width):
            n = first + min(s, count - 1)
            scratch.given[0, s], scratch.given[1, s], scratch.given[2, s] = mu[n], rho[n], 0.0
        prove_tile(mixtures, c, c, scratch)
        for s in range(count):
            bounds[first + s], misfits[first + s] = scratch.found[0, s], scratch.found[1, s]
