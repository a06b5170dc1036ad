"""Prove, by weak duality, a bound of a linear quantity over all mixtures with a misfit of at most a limit.

Rounding is included.
"""

import functools
from typing import Any, NamedTuple

import numpy as np

from ...certificate import UNIT_ROUNDOFF
from ...compiled.jit import WIDE, Width, aligned_zeros, compiled
from ...solvers.pixels.gather import matrix_product_function

_store, _width = WIDE.store, WIDE.width
# Cushion for the rounding of the few operations on bounds themselves.
MORE = 1.0 + 1e-12


class MixturesOnLines(NamedTuple):
    """The p spectra of L bands that all pixels share, and numbers made of them, float64."""

    E: Any  # (L, p)
    columns: Any  # (p, L) its transpose, in C order
    norms: Any  # (p,)
    has_sum: int  # 1 where abundances sum to one, with the abundance of shade, a column of zeros
    along: Any  # (p,) products with a vector of length one, above 0; (0,) where there is a sum
    along_error: Any  # (p,) by which these may be off


class ProofScratch(NamedTuple):
    """Scratch of w pixels, float64."""

    Y: Any  # (L, w)
    X: Any  # (p, w) abundances
    R: Any  # (L, w) residuals
    W: Any  # (p, w) their duals
    given: Any  # (n, w) μ, ρ and t, and rows of the caller's own
    found: Any  # (2, w) the bound and the misfit


def new_scratch(L: int, p: int, given: int = 3) -> ProofScratch:
    """Allocate the scratch, with ``given`` numbers for each pixel."""
    return ProofScratch(*(aligned_zeros(n, _width) for n in (L, p, L, p, given, 2)))


@compiled
def load_tile(Y, A, first, count, scratch):
    """Load the pixels from ``first`` on, and their abundances; lanes without a pixel hold the last."""
    for s in range(_width):
        n = first + min(s, count - 1)
        for b in range(Y.shape[1]):
            scratch.Y[b, s] = Y[n, b]
        for j in range(A.shape[1]):
            scratch.X[j, s] = A[n, j]


@functools.cache
def residuals_function(ops: Width) -> Any:
    """Return ``find_residuals(mixtures, scratch)``: it computes a tile's residuals, and returns |r|² and |y|²."""
    product, load, store, fma, broadcast = matrix_product_function(ops), ops.load, ops.store, ops.fma, ops.broadcast

    @ops.compile
    def find_residuals(mixtures, scratch):
        product(mixtures.columns, scratch.X, scratch.R)
        square, bright = broadcast(0.0), broadcast(0.0)
        for b in range(mixtures.E.shape[0]):
            y = load(scratch.Y, b)
            r = y - load(scratch.R, b)
            store(scratch.R, b, r)
            square, bright = fma(r, r, square), fma(y, y, bright)
        return square, bright

    return find_residuals


_find_residuals = residuals_function(WIDE)


@compiled
def find_misfits(mixtures, Y, A, scratch, misfits):
    """Write ``½|y − E a|²`` of pixels (n, L) with abundances (n, p) to ``misfits`` (n,), float64."""
    for first in range(0, len(Y), _width):
        count = min(_width, len(Y) - first)
        load_tile(Y, A, first, count, scratch)
        square, _ = _find_residuals(mixtures, scratch)
        _store(scratch.found, 1, square * 0.5)
        for s in range(count):
            misfits[first + s] = scratch.found[1, s]


@functools.cache
def prove_end_function(ops: Width) -> Any:
    """Return ``prove_tile``: it bounds ``dᵀa`` over mixtures with a misfit up to ρ, for each pixel of a tile."""
    product, find_residuals, root = matrix_product_function(ops), residuals_function(ops), ops.root
    load, store, fma, select, broadcast = ops.load, ops.store, ops.fma, ops.select, ops.broadcast

    @ops.compile
    def prove_tile(mixtures, quantity, weights, scratch):
        # Abundances are nearly optimal for ½|y − E a|² − μ dᵀa, d = quantity − t · weights, each number rounded twice.
        # The dual point is the residual. Where the multiplier Eᵀr + μ d of an abundance is positive, it is moved or,
        # under a constraint on the sum, the largest is that constraint's. Errors of rounding are as in
        # `unmix.certificate`.
        (L, p), u, zero = mixtures.E.shape, UNIT_ROUNDOFF, broadcast(0.0)
        square, bright = find_residuals(mixtures, scratch)
        product(mixtures.E, scratch.R, scratch.W)
        mu, rho, share = load(scratch.given, 0), load(scratch.given, 1), load(scratch.given, 2)
        terms, count = zero, zero
        for j in range(p):
            a = load(scratch.X, j)
            terms, count = fma(a, broadcast(mixtures.norms[j]), terms), count + select(a > 0.0, broadcast(1.0), zero)
        length = root(square)
        # A bound of the error of |r|: the products with an abundance of 0 are exact, and so are sums with them.
        off = (root(bright) + terms) * ((count + 2.0) * u)
        each = length * ((L + 2.0) * u)
        explained, value, moved, reach = zero, zero, zero, zero
        if mixtures.has_sum == 1:
            moved = broadcast(-np.inf)
        for j in range(p):
            c = broadcast(quantity[j]) - share * weights[j]
            a, w = load(scratch.X, j), fma(mu, c, load(scratch.W, j))
            error = fma(mu * (2.0 * u), select(c < 0.0, zero - c, c), each * mixtures.norms[j])
            size = select(w < 0.0, zero - w, w)
            explained = explained + a * (w - fma(size, count * u, error))
            value = fma(a, c, value)
            w = w + error
            if mixtures.has_sum == 0:
                w = w * broadcast(1.0 / (mixtures.along[j] - mixtures.along_error[j]))
                reach = fma(a, broadcast(mixtures.along[j] + mixtures.along_error[j]), reach)
            moved = select(w > moved, w, moved)
        if mixtures.has_sum == 0:
            moved = moved * MORE
            loss = (moved * reach + moved * moved * 0.5) * MORE - explained
        else:
            loss = moved - explained
        spare = rho - square * 0.5 + square * ((L + 4.0) * u) + length * off * 2.0
        loss_size, spare_size = select(loss < 0.0, zero - loss, loss), select(spare < 0.0, zero - spare, spare)
        value_size = select(value < 0.0, zero - value, value)
        bound = value + (spare + loss) / mu
        store(scratch.found, 0, bound + (value_size + (spare_size + loss_size) / mu) * ((count + 1.0) * (8.0 * u)))
        store(scratch.found, 1, square * 0.5)

    return prove_tile


_prove_tile = prove_end_function(WIDE)


@compiled
def prove_end(mixtures, Y, A, mu, rho, c, scratch, bounds, misfits):
    """Write the bounds and misfits (n,) of `prove_tile` for pixels (n, L), abundances (n, p), μ > 0 and ρ (n,)."""
    for first in range(0, len(Y), _width):
        count = min(_width, len(Y) - first)
        load_tile(Y, A, first, count, scratch)
        for s in range(_width):
            n = first + min(s, count - 1)
            scratch.given[0, s], scratch.given[1, s], scratch.given[2, s] = mu[n], rho[n], 0.0
        _prove_tile(mixtures, c, c, scratch)
        for s in range(count):
            bounds[first + s], misfits[first + s] = scratch.found[0, s], scratch.found[1, s]
