"""Bound quantities of pixels on a CPU: the ends of their paths (`ends`), and the proof of these (`proof`), sixteen at a time."""

from typing import Any, NamedTuple

import numpy as np

from ....compiled.jit import ALONE, WIDE, aligned_zeros, compiled
from . import follow, proof
from .ends import ENDS, bound_of_end, end_functions

_load, _store, _width = WIDE.load, WIDE.store, WIDE.width
(_begin, _find_end), _prove_tile = end_functions(WIDE, ALONE), proof.prove_end_function(WIDE)
# The ends of a quantity: that of most, and that of least, which is the most of its negative.
UPWARDS, DOWNWARDS = 0, 1


class BoundScratch(NamedTuple):
    """Scratch of a thread, float64."""

    path: Any  # of `follow`
    tile: Any  # of `proof`; what is given are the ends of paths
    signed: Any  # (2 c, w) the quantity and the weights with the sign of an end
    numbers: Any  # (2, c w) the same memory
    least: Any  # (w,) by pixel: the least sum of weights


def new_scratch(L: int, P: int) -> BoundScratch:
    """Allocate the scratch for L bands and P endmembers."""
    path = follow.new_scratch(L, P, _width)
    signed = aligned_zeros(2 * len(path.c), _width)
    return BoundScratch(path, proof.new_scratch(L, P, ENDS), signed, signed.reshape(2, -1), np.empty(_width))


@compiled
def find_ends(lines, mixtures, pixels, first, count, is_fraction, scratch):
    """Follow the paths of a tile, and compute bounds and misfits at their ends."""
    tile, path = scratch.tile, scratch.path
    c = lines.ones.shape[0]
    for s in range(count):
        n = first + s
        for b in range(c):
            _store(path.f, b, _load(pixels.F, (n // _width * c + b) * _width + n % _width))
        rows = _begin(lines, pixels, n, path)
        _find_end(lines, pixels, n, rows, scratch.signed, is_fraction, path, tile.X, tile.given, s)
    for s in range(count, _width):  # lanes without a pixel repeat the last one
        for j in range(tile.X.shape[0]):
            tile.X[j, s] = tile.X[j, count - 1]
        for row in range(tile.given.shape[0]):
            tile.given[row, s] = tile.given[row, count - 1]
    _prove_tile(mixtures, scratch.numbers[0], scratch.numbers[1], tile)


@compiled
def bound_tile(lines, mixtures, pixels, first, count, is_fraction, sign, most, scratch, proved, reached):
    """Bound the quantity of a tile that ``signed`` holds, or its fraction, as `unmix.features.ranges.solver.ends.bound_of_end` does."""
    find_ends(lines, mixtures, pixels, first, count, is_fraction, scratch)
    ends, found = scratch.tile.given, scratch.tile.found
    for s in range(count):
        n, least = first + s, scratch.least[s]
        proved[n], reached[n] = bound_of_end(ends, found, s, pixels.misfits[n], is_fraction, sign, most, least)


@compiled
def bound(lines, mixtures, pixels, quantities, weights, most, scratch, found):
    """Bound quantities of n pixels from both sides.

    Parameters
    ----------
    lines : unmix.features.ranges.solver.follow.Lines
    mixtures : unmix.features.ranges.solver.proof.MixturesOnLines
    pixels : Pixels
    quantities : array (k, P), float64
        c.
    weights : array (P,) or (0,), float64
        w, for fractions.
    most : array (k,), float64
        The largest ``cᵀa`` of any mixture, whether it fits or not.
    scratch : Scratch
    found : array (2, 2, n, k), float64
        First axis: the bounds that are proved, then the values that mixtures reach; second: `UPWARDS`, then `DOWNWARDS` with the other
        sign.
    """
    numbers, is_fraction = scratch.numbers, len(weights) > 0
    for first in range(0, len(pixels.Y), _width):
        count = min(_width, len(pixels.Y) - first)
        for s in range(_width):
            for b in range(pixels.Y.shape[1]):
                scratch.tile.Y[b, s] = pixels.Y[first + min(s, count - 1), b]
        if is_fraction:
            least, other = found[0, DOWNWARDS, :, 0], found[1, DOWNWARDS, :, 0]
            for j in range(len(weights)):
                numbers[0, j], numbers[1, j] = -weights[j], 0.0
            bound_tile(lines, mixtures, pixels, first, count, False, 1.0, 0.0, scratch, least, other)
            for s in range(_width):
                scratch.least[s] = -least[first + min(s, count - 1)]
        for q in range(len(quantities)):
            for side in range(2):
                sign = 1.0 if side == UPWARDS else -1.0
                for j in range(quantities.shape[1]):
                    numbers[0, j] = sign * quantities[q, j] * (weights[j] if is_fraction else 1.0)
                    numbers[1, j] = sign * weights[j] if is_fraction else 0.0
                proved, reached = found[0, side, :, q], found[1, side, :, q]
                highest = most[q] if side == UPWARDS else 0.0
                bound_tile(lines, mixtures, pixels, first, count, is_fraction, sign, highest, scratch, proved, reached)
