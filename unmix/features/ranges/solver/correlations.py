"""Compute the correlations ``Eᵀy`` of pixels with a library.

They lie as the search by pixels reads them: pixels in tiles of w, the width of vectors; row ``(t c + b) w + s`` of an array
(·, w) holds endmembers ``b w`` to ``b w + w − 1`` of pixel s of tile t, with c = ⌈p / w⌉, filled up with zeros.
"""

from typing import Any, NamedTuple

import numpy as np

from ....compiled.jit import WIDE, aligned_zeros, compiled
from ....solvers.pixels.gather import matrix_product_function

_product, _load, _store, _fma = matrix_product_function(WIDE), WIDE.load, WIDE.store, WIDE.fma
_width, _tall, _broadcast, _fetch_block = WIDE.width, WIDE.tall, WIDE.broadcast, WIDE.fetch_block

# Bands that are added up in turn before their sum joins that of the others: so few operations follow each other that rounding stays
# small where a pixel is fitted to its last digits.
BANDS_IN_TURN = 16


def vectors_of(p: int, width: int = _width) -> int:
    """Return the number of vectors that hold a number for each of p endmembers."""
    return -(-p // width)


def by_vectors(M: np.ndarray, width: int = _width) -> np.ndarray:
    """Return the rows of a matrix (n, p) as vectors, (n c, w), filled up with zeros."""
    n, p = M.shape
    wide = aligned_zeros(n * vectors_of(p, width), width)
    wide.reshape(n, -1)[:, :p] = M
    return wide


class CorrelationTile(NamedTuple):
    """Scratch for the correlations of w pixels, float64."""

    Y: Any  # (L, w) pixels
    part: Any  # (c w, w) the part of some bands
    F: Any  # (c w, w) correlations, an endmember a row


def new_correlations(L: int, p: int) -> CorrelationTile:
    """Allocate the scratch for L bands and p endmembers."""
    rows = vectors_of(p) * _width
    return CorrelationTile(*(aligned_zeros(n, _width) for n in (max(L, p), rows, rows)))


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
