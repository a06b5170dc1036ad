"""Compute from the correlations ``Eᵀy`` of pixels what collaborative sparse regression adds up (`unmix.arrays.collaborative`).

Correlations lie as the search by pixels reads them: pixels in tiles of w, the width of vectors; row ``(t c + b) w + s`` of an array
(·, w) holds endmembers ``b w`` to ``b w + w − 1`` of pixel s of tile t, with c = ⌈p / w⌉, filled up with zeros.
"""

from typing import Any, NamedTuple

import numpy as np

from ...certificate import UNIT_ROUNDOFF
from ...compiled.jit import compiled
from ...compiled.simd import WIDE, aligned_zeros
from .gather import product_function

_product, _load, _store, _fma, _select = product_function(WIDE), WIDE.load, WIDE.store, WIDE.fma, WIDE.select
_width, _tall, _broadcast, _fetch_block = WIDE.width, WIDE.tall, WIDE.broadcast, WIDE.fetch_block

# Bands that are added up in turn before their sum joins that of the others: so few operations follow each other that rounding stays
# small where a pixel is fitted to its last digits.
BANDS_IN_TURN = 16


def vectors_of(p: int, width: int = _width) -> int:
    """Return the number of vectors that hold a number for each of p endmembers."""
    return -(-p // width)


def sum_length(L: int) -> int:
    """Return how many roundings follow each other in a correlation over L bands."""
    return BANDS_IN_TURN + -(-L // BANDS_IN_TURN) + 2


def by_vectors(M: np.ndarray, width: int = _width) -> np.ndarray:
    """Return the rows of a matrix (n, p) as vectors, (n c, w), filled up with zeros."""
    n, p = M.shape
    wide = aligned_zeros(n * vectors_of(p, width), width)
    from_vectors(wide, n, p)[:] = M
    return wide


def from_vectors(wide: np.ndarray, n: int, p: int) -> np.ndarray:
    """Return the matrix (n, p) that vectors (n c, w) hold, a view."""
    return wide.reshape(n, vectors_of(p, wide.shape[1]) * wide.shape[1])[:, :p]


class Tile(NamedTuple):
    """Scratch for the correlations of w pixels, float64."""

    Y: Any  # (L or k, w) pixels
    part: Any  # (c w, w) the part of some bands
    F: Any  # (c w, w) correlations, an endmember a row


def new_tile(L: int, p: int) -> Tile:
    """Allocate the scratch for L bands and p endmembers."""
    rows = vectors_of(p) * _width
    return Tile(*(aligned_zeros(n, _width) for n in (max(L, p), rows, rows)))


@compiled
def correlate(Y, E, tile, F, squares):
    """Compute ``Eᵀy`` of n pixels and the squares of their lengths.

    Parameters
    ----------
    Y : array (n, L), float64
    E : array (L, p), float64
    tile : Tile
    F : array (⌈n / w⌉ c w, w), float64
        The correlations, as this module has them.
    squares : array (n,), float64
    """
    L, p = E.shape
    c = tile.F.shape[0] // _width
    raw = tile.F.reshape(1, tile.F.shape[0], _width)
    for first in range(0, len(Y), _width):
        count = min(_width, len(Y) - first)
        for s in range(_width):
            for b in range(L):
                tile.Y[b, s] = Y[first + s, b] if s < count else 0.0
        for j in range(p):
            _store(tile.F, j, _broadcast(0.0))
        square = _broadcast(0.0)
        for begin in range(0, L, BANDS_IN_TURN):
            end = min(begin + BANDS_IN_TURN, L)
            _product(E[begin:end], tile.Y[begin:end], tile.part)
            for j in range(p):
                _store(tile.F, j, _load(tile.F, j) + _load(tile.part, j))
            some = _broadcast(0.0)
            for b in range(begin, end):
                some = _fma(_load(tile.Y, b), _load(tile.Y, b), some)
            square = square + some
        _store(tile.part, 0, square)
        for s in range(count):
            squares[first + s] = tile.part[0, s]
        row = first // _width * c * _width
        for j in range(0, c * _width, _tall):
            for s in range(0, _width, _tall):
                _fetch_block(raw, 0, j, s, F, row + j // _width * _width + s, j % _width)


@compiled
def project(F, c, used, M, tile, out):
    """Compute ``Mᵀf`` of n pixels, f their correlations with the k endmembers in use.

    Parameters
    ----------
    F : array (⌈n / w⌉ c w, w), float64
    c : int
    used : array (k,), int64
    M : array (k, k), float64
    tile : Tile
    out : array (n, k), float64
    """
    for first in range(0, len(out), _width):
        row = first * c
        for i in range(len(used)):
            at = row + used[i] // _width * _width
            for s in range(_width):
                tile.F[i, s] = F[at + s, used[i] % _width]
        _product(M, tile.F, tile.Y)
        for s in range(min(_width, len(out) - first)):
            for i in range(len(used)):
                out[first + s, i] = tile.Y[i, s]


class Regression(NamedTuple):
    """What all pixels share in a pass; k of p endmembers are in use, c' = ⌈k / w⌉."""

    gram: Any  # (k c, w) the products of those in use with all, as vectors
    K: Any  # (k c', w) ``1 + D^½ G D^½ / λ`` of those in use, as vectors; D = diag(η)
    norms: Any  # (k,) their lengths
    roots: Any  # (k,) √η, above 0
    used: Any  # (k,) int64: their numbers
    indices: Any  # (c', w) 0, 1, …
    roundings: float  # that follow each other in a correlation


def regression_of(G: np.ndarray, L: int, scales: np.ndarray, l21: float) -> Regression:
    """Return what pixels of L bands share in a pass, for the Gram matrix G (p, p), scales η (p,) and λ."""
    used = np.flatnonzero(scales)
    roots, own = np.sqrt(scales[used]), G[np.ix_(used, used)]
    K = np.eye(len(used)) + own * np.multiply.outer(roots, roots) / l21
    indices = by_vectors(np.arange(vectors_of(len(used)) * _width)[None].astype(float))
    norms = np.sqrt(np.diag(own))
    return Regression(by_vectors(G[used]), by_vectors(K), norms, roots, used, indices, float(sum_length(L)))


class Scratch(NamedTuple):
    """Scratch for the sums of one pixel, with n members of its support."""

    W: Any  # (c, w) float64: the duals
    support: Any  # (k,) int64: the members
    slopes: Any  # (c', w) float64: w_j / √η_j of the members, 0 beside them
    within: Any  # (c', w) float64: 1 of the members, 0 beside them
    inverse: Any  # (k c', w) float64: the inverse of K on the support
    shares: Any  # (k,) float64: a column of it


def new_scratch(p: int, k: int) -> Scratch:
    """Allocate the scratch for p endmembers, of which k are in use."""
    few = vectors_of(k)
    some = (aligned_zeros(n, _width) for n in (few, few, k * few))
    return Scratch(aligned_zeros(vectors_of(p), _width), np.empty(k, np.int64), *some, np.empty(k))


class Totals(NamedTuple):
    """The sums of some pixels, float64."""

    totals: Any  # (6,) `LEFT` to `EXPLAINED_TERMS`
    rows: Any  # (k,) Σ x_j²
    duals: Any  # (c, w) Σ max(w_j, 0)²
    # (k c', w) as vectors: Σ w wᵀ ∘ G (λ + D G)⁻¹ on the support, λ times the second derivatives by η of the pixels' least costs
    curvature: Any


# Fields of ``totals``: Σ|r|²; Σ xᵀw with w = Eᵀr; degrees of freedom, on the support the trace of ``1 − K⁻¹``; Σρ² and Σρ Σ|e_j|x_j,
# ρ the bound on the rounding of w_j / |e_j|; Σ|x_j w_j|.
LEFT, EXPLAINED, FREEDOM, DUAL_ERRORS, EXPLAINED_ERROR, EXPLAINED_TERMS = range(6)


def new_totals(p: int, k: int) -> Totals:
    """Allocate sums, which are 0."""
    return Totals(
        np.zeros(6), np.zeros(k), aligned_zeros(vectors_of(p), _width), aligned_zeros(k * vectors_of(k), _width)
    )


@compiled
def find_support(x, scratch):
    """List the endmembers that a pixel has; return how many there are."""
    size = 0
    for i in range(len(x)):
        if x[i] > 0.0:
            scratch.support[size] = i
            size += 1
    return size


@compiled
def add_duals(F, row, x, size, gram, scratch, duals):
    """Compute the duals of a pixel with the abundances x (k,), and add their squares; three vectors at a time."""
    c, zero = scratch.W.shape[0], _broadcast(0.0)
    for b in range(0, c, 3):
        b1, b2 = min(b + 1, c - 1), min(b + 2, c - 1)
        w0, w1, w2 = _load(F, row + b * _width), _load(F, row + b1 * _width), _load(F, row + b2 * _width)
        for place in range(size):
            i = scratch.support[place]
            a = _broadcast(-x[i])
            w0 = _fma(a, _load(gram, i * c + b), w0)
            w1 = _fma(a, _load(gram, i * c + b1), w1)
            w2 = _fma(a, _load(gram, i * c + b2), w2)
        _store(scratch.W, b, w0)
        _store(scratch.W, b1, w1)
        _store(scratch.W, b2, w2)
        w0, w1, w2 = _select(w0 > 0.0, w0, zero), _select(w1 > 0.0, w1, zero), _select(w2 > 0.0, w2, zero)
        # All are loaded before one is stored: the last may be the same.
        sum0, sum1, sum2 = _load(duals, b), _load(duals, b1), _load(duals, b2)
        _store(duals, b, _fma(w0, w0, sum0))
        _store(duals, b1, _fma(w1, w1, sum1))
        _store(duals, b2, _fma(w2, w2, sum2))


@compiled
def add_pixel(F, row, square, x, size, shared, scratch, sums):
    """Add a pixel with the abundances x (k,) to ``totals`` and ``rows``, and prepare `add_curvature`."""
    for b in range(scratch.slopes.shape[0]):
        _store(scratch.slopes, b, _broadcast(0.0))
        _store(scratch.within, b, _broadcast(0.0))
    reach, explained, terms, fitted = 0.0, 0.0, 0.0, 0.0
    for place in range(size):
        i = scratch.support[place]
        j = shared.used[i]
        w, f = scratch.W[j // _width, j % _width], F[row + j // _width * _width, j % _width]
        scratch.slopes[i // _width, i % _width] = w / shared.roots[i]
        scratch.within[i // _width, i % _width] = 1.0
        sums.rows[i] += x[i] * x[i]
        reach += shared.norms[i] * x[i]
        product = x[i] * w
        explained, terms, fitted = explained + product, terms + abs(product), fitted + x[i] * f
    # |y|² − xᵀ(f + w) is |r|², and what rounds in w_j is f_j, then a product with each member of the support.
    length = np.sqrt(square)
    rounding = UNIT_ROUNDOFF * ((shared.roundings + size + 2.0) * length + (size + 6.0) * reach)
    sums.totals[LEFT] += square - fitted - explained
    sums.totals[EXPLAINED] += explained
    sums.totals[DUAL_ERRORS] += rounding * rounding
    sums.totals[EXPLAINED_ERROR] += rounding * reach
    sums.totals[EXPLAINED_TERMS] += terms


@compiled
def invert(size, shared, scratch):
    """Compute the inverse of K on the support, row by row, with zeros in the columns beside it."""
    c, inverse, indices = scratch.within.shape[0], scratch.inverse, shared.indices
    for q in range(size):
        for b in range(c):
            row = _load(shared.K, scratch.support[q] * c + b) * _load(scratch.within, b)
            _store(inverse, q * c + b, row)
    for q in range(size):
        column = scratch.support[q]
        place, lane = column // _width, column % _width
        scale = 1.0 / inverse[q * c + place, lane]
        for i in range(size):
            scratch.shares[i] = -inverse[i * c + place, lane]
        for b in range(c):
            is_pivot = _load(indices, b) == float(column)
            row = _load(inverse, q * c + b) * scale
            # All other rows get 0 − share / pivot there, which needs no other operation than the rest of the row.
            other = _select(is_pivot, _broadcast(1.0 + scale), row)
            for i in range(q):
                _store(inverse, i * c + b, _fma(_broadcast(scratch.shares[i]), other, _load(inverse, i * c + b)))
            for i in range(q + 1, size):
                _store(inverse, i * c + b, _fma(_broadcast(scratch.shares[i]), other, _load(inverse, i * c + b)))
            _store(inverse, q * c + b, _select(is_pivot, _broadcast(scale), row))


@compiled
def add_curvature(size, times, scratch, sums):
    """Add what the support gives to the degrees of freedom and the second derivatives, so many times."""
    c = scratch.within.shape[0]
    for q in range(size):
        i = scratch.support[q]
        place, lane = i // _width, i % _width
        slope = scratch.slopes[place, lane] * times
        sums.totals[FREEDOM] += times * (1.0 - scratch.inverse[q * c + place, lane])
        for b in range(c):
            value = _broadcast(-slope) * _load(scratch.slopes, b)
            value = _fma(value, _load(scratch.inverse, q * c + b), _load(sums.curvature, i * c + b))
            _store(sums.curvature, i * c + b, value)
        sums.curvature[i * c + place, lane] += slope * scratch.slopes[place, lane]


@compiled
def add_pixels(F, squares, X, every, shared, scratch, sums):
    """Add n pixels to sums.

    Parameters
    ----------
    F : array (⌈n / w⌉ c w, w), float64
        Their correlations.
    squares : array (n,), float64
        |y|².
    X : array (n, k), float64
        Their abundances of the k endmembers in use, at least 0, for the scales η: optimal, or nearly so.
    every : int
        Degrees of freedom and curvature are taken from one of so many pixels, and multiplied: the inverse is most of the work.
    shared : Regression
    scratch : Scratch
    sums : Totals
    """
    c = scratch.W.shape[0]
    for n in range(len(X)):
        x, row = X[n], n // _width * c * _width + n % _width
        size = find_support(x, scratch)
        add_duals(F, row, x, size, shared.gram, scratch, sums.duals)
        add_pixel(F, row, squares[n], x, size, shared, scratch, sums)
        if n % every == 0:
            invert(size, shared, scratch)
            add_curvature(size, every, scratch, sums)
