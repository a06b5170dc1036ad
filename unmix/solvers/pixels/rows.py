"""Add the pixels of collaborative sparse regression to the sums of a pass (`unmix.arrays.collaborative`)."""

from typing import Any, NamedTuple

import numpy as np

from ...certificate import UNIT_ROUNDOFF
from ...compiled.jit import compiled
from ...compiled.simd import WIDE, aligned_zeros
from .gather import product_function

_product, _load, _store, _fma, _select = product_function(WIDE), WIDE.load, WIDE.store, WIDE.fma, WIDE.select
_width, _broadcast = WIDE.width, WIDE.broadcast


class Scratch(NamedTuple):
    """Scratch for w pixels at a time, float64, w the width of vectors."""

    Y: Any  # (L, w) pixels
    X: Any  # (k, w) abundances
    R: Any  # (L, w) residuals
    W: Any  # (p, w) Eᵀr
    squares: Any  # (p, w) Σ max(w_j, 0)², by lane
    lengths: Any  # (2, w) |r|² and |y|²
    K: Any  # (n n, w) the matrices of the supports, then their inverses; n members at most
    root: Any  # (n, w) √η of their members
    slope: Any  # (n, w) w_j / √η_j
    support: Any  # (n, w) int64: the members
    sizes: Any  # (w,) int64


def new_scratch(L: int, p: int, k: int, most: int) -> Scratch:
    """Allocate the scratch for L bands and p endmembers, of which k are in use and a pixel has at most ``most``."""
    tiles = (aligned_zeros(n, _width) for n in (L, k, L, p, p, 2, most * most, most, most))
    return Scratch(*tiles, np.empty((most, _width), np.int64), np.empty(_width, np.int64))


@compiled
def load_tile(Y, X, first, count, scratch):
    """Load pixels and abundances of ``count`` pixels, and compute residuals, their duals and the squares of lengths."""
    for s in range(_width):
        n = first + min(s, count - 1)
        for b in range(Y.shape[1]):
            scratch.Y[b, s] = Y[n, b] if s < count else 0.0
        for i in range(X.shape[1]):
            scratch.X[i, s] = X[n, i] if s < count else 0.0


@compiled
def compute_tile(E, columns, scratch):
    """Compute residuals, their duals and the squares of lengths of a tile, and add the squares of the duals."""
    if len(columns) > 0:
        _product(columns, scratch.X, scratch.R)
    else:
        scratch.R[:] = 0.0
    left, length = _broadcast(0.0), _broadcast(0.0)
    for b in range(E.shape[0]):
        y = _load(scratch.Y, b)
        r = y - _load(scratch.R, b)
        _store(scratch.R, b, r)
        left, length = _fma(r, r, left), _fma(y, y, length)
    _store(scratch.lengths, 0, left)
    _store(scratch.lengths, 1, length)
    _product(E, scratch.R, scratch.W)
    for j in range(E.shape[1]):
        w = _load(scratch.W, j)
        w = _select(w > 0.0, w, _broadcast(0.0))
        _store(scratch.squares, j, _fma(w, w, _load(scratch.squares, j)))


@compiled
def load_supports(G, scales, l21, used, count, scratch):
    """Load the matrices of the supports of a tile, as large as that of the largest, the others with ones on the diagonal.

    Return their size.
    """
    largest = 0
    for s in range(_width):
        scratch.sizes[s] = 0
        for i in range(scratch.X.shape[0] if s < count else 0):
            if scratch.X[i, s] > 0.0:
                place = scratch.sizes[s]
                scratch.support[place, s], root = i, np.sqrt(scales[i])
                scratch.root[place, s], scratch.slope[place, s] = root, scratch.W[used[i], s] / root
                scratch.sizes[s] += 1
        largest = max(largest, scratch.sizes[s])
    for s in range(_width):
        size = scratch.sizes[s]
        for i in range(largest):
            for m in range(i + 1):
                value = 1.0 if i == m else 0.0
                if i < size:
                    at, other = scratch.support[i, s], scratch.support[m, s]
                    value = G[at, other] * scratch.root[i, s] * scratch.root[m, s] + (l21 if i == m else 0.0)
                scratch.K[i * largest + m, s] = scratch.K[m * largest + i, s] = value
    return largest


@compiled
def invert(K, size):
    """Replace positive definite matrices, an entry a row, by their inverses, pivot by pivot."""
    for q in range(size):
        row, scale = q * size, _broadcast(1.0) / _load(K, q * size + q)
        _store(K, row + q, _broadcast(1.0))
        for m in range(size):
            _store(K, row + m, _load(K, row + m) * scale)
        for i in range(size):
            if i != q:
                share = _load(K, i * size + q)
                _store(K, i * size + q, _broadcast(0.0))
                for m in range(size):
                    _store(K, i * size + m, _load(K, i * size + m) - share * _load(K, row + m))


@compiled
def add_support(l21, s, largest, scratch, totals, curvature):
    """Add what the support of lane s gives to the degrees of freedom and the second derivatives."""
    for i in range(scratch.sizes[s]):
        at, slope = scratch.support[i, s], scratch.slope[i, s]
        for m in range(i + 1):
            value = (1.0 if i == m else 0.0) - l21 * scratch.K[i * largest + m, s]
            if i == m:
                totals[2] += value
            value *= slope * scratch.slope[m, s]
            other = scratch.support[m, s]
            curvature[at, other] += value
            if i != m:
                curvature[other, at] += value


@compiled
def add_pixels(Y, X, E, columns, G, scales, l21, used, scratch, totals, rows, duals, curvature):
    """Add n pixels to sums.

    Parameters
    ----------
    Y : array (n, L), float64
    X : array (n, k), float64
        Their optimal abundances of the k endmembers in use, at least 0, for the scales η.
    E : array (L, p), float64, in Fortran order
    columns : array (k, L), float64, in Fortran order
        The endmembers in use.
    G : array (k, k), float64
        Their Gram matrix.
    scales : array (k,), float64
        η, above 0.
    l21 : float
        λ.
    used : array (k,), int64
        Their numbers.
    scratch : Scratch
    totals : array (6,), float64
        ``Σ|r|²``, ``Σ xᵀw`` with w = Eᵀr, and degrees of freedom: on the support, D = diag(η), the trace of
        ``(λ + D^½ G D^½)⁻¹ D^½ G D^½``. Then, with the bound ``ρ = u ((L + 2)|r| + (k + 2)(|y| + Σ|e_j|x_j))`` of the rounding of
        ``w_j / |e_j|`` (`unmix.certificate`), ``Σρ²`` and ``Σρ Σ|e_j|x_j``. Last ``Σ|x_j w_j|``.
    rows, duals : arrays (k,) and (p,), float64
        ``Σ x_j²`` and ``Σ max(w_j, 0)²``.
    curvature : array (k, k), float64
        ``Σ w wᵀ ∘ G (λ + D G)⁻¹`` on the support: λ times the second derivatives by η of the pixels' least costs.
    """
    L = E.shape[0]
    scratch.squares[:] = 0.0
    for first in range(0, len(Y), _width):
        count = min(_width, len(Y) - first)
        load_tile(Y, X, first, count, scratch)
        compute_tile(E, columns, scratch)
        largest = load_supports(G, scales, l21, used, count, scratch)
        invert(scratch.K, largest)
        for s in range(count):
            size, reach, explained, terms = scratch.sizes[s], 0.0, 0.0, 0.0
            for place in range(size):
                i = scratch.support[place, s]
                x = scratch.X[i, s]
                rows[i] += x * x
                reach += np.sqrt(G[i, i]) * x
                product = x * scratch.W[used[i], s]
                explained, terms = explained + product, terms + abs(product)
            left, length = np.sqrt(scratch.lengths[0, s]), np.sqrt(scratch.lengths[1, s])
            rounding = UNIT_ROUNDOFF * ((L + 2.0) * left + (size + 2.0) * (length + reach))
            totals[0] += scratch.lengths[0, s]
            totals[1] += explained
            totals[3] += rounding * rounding
            totals[4] += rounding * reach
            totals[5] += terms
            add_support(l21, s, largest, scratch, totals, curvature)
    for j in range(E.shape[1]):
        for s in range(_width):
            duals[j] += scratch.squares[j, s]
