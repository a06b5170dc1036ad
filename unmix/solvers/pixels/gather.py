"""Load stored values of neighbouring pixels into a float64 tile; compute missing bands, lengths and matrix products.

A tile is an array (L, width): a row is a band, a lane (`unmix.compiled.jit`) is a pixel. Lanes do not interact, and
every sum runs over the bands in ascending order, so a pixel's result does not depend on the interleave, on its place or
on its neighbours.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import uint32, uint64

from ...compiled.jit import ONE, WIDE, Width, address_of, array_of, as_writable, call_at, compiled, inlined


class Stored(NamedTuple):
    """Scaling from stored values to a spectrum: ``y_b = stored[bands[b]] * gain[b] + offset[b] - shift[b]``."""

    bands: Any  # (L,) int64, the bands in use, ascending
    gain: Any  # (L,) float64
    offset: Any  # (L,) float64
    nodata: float  # compared with the stored value; NaN if the cube has none
    shift: Any = np.empty(0)  # (L,) float64, the mean endmember under Σa = 1; (0,) if there is none


@compiled
def value_bip(raw, line, sample, band):
    """Return one stored value of a cube (lines, samples, bands)."""
    return float(raw[line, sample, band])


@compiled
def value_bil(raw, line, sample, band):
    """Return one stored value of a cube (lines, bands, samples)."""
    return float(raw[line, band, sample])


@compiled
def value_bsq(raw, line, sample, band):
    """Return one stored value of a cube (bands, lines, samples)."""
    return float(raw[band, line, sample])


def rows_bip(ops: Width) -> Any:
    """Return ``rows``, which loads one or more bands of a full tile, from band b on, and returns how many it loaded."""
    width, tall, fetch_block = ops.width, ops.tall, ops.fetch_block

    @compiled
    def rows(raw, line, first, bands, b, Y):
        if b + tall > Y.shape[0] or bands[b + tall - 1] - bands[b] != tall - 1:
            for s in range(width):
                Y[b, s] = float(raw[line, first + s, bands[b]])
            return 1
        for s in range(0, width, tall):
            fetch_block(raw, line, first + s, bands[b], Y, b, s)
        return tall

    return rows


def rows_bil(ops: Width) -> Any:
    """Return ``rows`` as `rows_bip` does, one band a call."""
    fetch, store = ops.fetch, ops.store

    @compiled
    def rows(raw, line, first, bands, b, Y):
        store(Y, b, fetch(raw, line, bands[b], first))
        return 1

    return rows


def rows_bsq(ops: Width) -> Any:
    """Return ``rows`` as `rows_bip` does, one band a call."""
    fetch, store = ops.fetch, ops.store

    @compiled
    def rows(raw, line, first, bands, b, Y):
        store(Y, b, fetch(raw, bands[b], line, first))
        return 1

    return rows


LAYOUTS = {"bip": (value_bip, rows_bip), "bil": (value_bil, rows_bil), "bsq": (value_bsq, rows_bsq)}


@functools.cache
def loader_function(interleave: str, ops: Width) -> Any:
    """Return ``load_pixels(raw, line, first, count, bands, Y)``, which loads stored values as float64."""
    width = ops.width
    value_of, rows_function = LAYOUTS[interleave]
    rows = rows_function(ops)

    @compiled
    def load_pixels(raw, line, first, count, bands, Y):
        L = Y.shape[0]
        b = 0
        while b < L:
            if count == width:
                b += rows(raw, line, first, bands, b, Y)
            else:
                for s in range(width):
                    Y[b, s] = value_of(raw, line, first + (s if s < count else count - 1), bands[b])
                b += 1

    return load_pixels


@functools.cache
def scale_function(ops: Width) -> Any:
    """Return ``scale_pixels``, the part of `gather_function` that does not depend on the stored type."""
    width, load, store, fma, select = ops.width, ops.load, ops.store, ops.fma, ops.select
    any_lane, broadcast, root = ops.any_lane, ops.broadcast, ops.root

    @compiled
    def scale_pixels(count, stored, Y, missing, length, size):
        L = Y.shape[0]
        bad = broadcast(0.0)
        unshifted_square, square = broadcast(0.0), broadcast(0.0)
        shifted = stored.shift.shape[0] > 0
        for b in range(L):
            value = load(Y, b)
            bad = bad + select(
                value == stored.nodata, broadcast(1.0), select(value - value == 0.0, broadcast(0.0), broadcast(1.0))
            )
            y = fma(value, broadcast(stored.gain[b]), broadcast(stored.offset[b]))
            if shifted:
                unshifted_square = fma(y, y, unshifted_square)
                y = y - broadcast(stored.shift[b])
            square = fma(y, y, square)
            store(Y, b, y)
        store(missing, 0, bad)
        for s in range(count, width):
            missing[0, s] = L
        bad = load(missing, 0)
        if any_lane(bad > 0.0):
            for b in range(L):
                store(Y, b, select(bad > 0.0, broadcast(0.0), load(Y, b)))
            unshifted_square = select(bad > 0.0, broadcast(0.0), unshifted_square)
            square = select(bad > 0.0, broadcast(0.0), square)
        store(length, 0, root(unshifted_square if shifted else square))
        store(size, 0, root(square))

    return scale_pixels


@functools.cache
def gather_function(interleave: str, ops: Width) -> Any:
    """Return ``gather``, which fills Y (L, width) with a line's pixels from sample ``first``, in E's unit."""
    # It also fills (1, width): missing, the number of bands without a value; length, |y| before the shift; size, |y|.
    # Pixels that miss a band, and lanes beyond `count`, are 0 throughout, so that no NaN spreads.
    load_pixels, scale_pixels = loader_function(interleave, ops), scale_function(ops)

    @compiled
    def gather(raw, line, first, count, stored, Y, missing, length, size):
        load_pixels(raw, line, first, count, stored.bands, Y)
        scale_pixels(count, stored, Y, missing, length, size)

    return gather


class Block(NamedTuple):
    """Stored values as bytes: functions of a block are compiled once, not for each stored type and interleave."""

    values: Any  # (bytes,) uint8
    shape: Any  # of the block as stored: three integers
    load: Any  # address of the function of `bytes_loader` for the stored type and interleave
    scale: Any  # address of the function of `scale_function`


@functools.cache
def bytes_loader(interleave: str, kind: Any) -> Any:
    """Return `loader_function` for vectors, with the bytes and shape of values of type ``kind`` in place of ``raw``."""
    load_pixels = loader_function(interleave, WIDE)

    @compiled
    def load_bytes(values, shape, line, first, count, bands, Y):
        load_pixels(array_of(values, shape, kind), line, first, count, bands, Y)

    return load_bytes


def block_maker(interleave: str, stored: Stored) -> Callable[[np.ndarray], Block]:
    """Return the function that makes a `Block` of an array, for `gather_block` with ``stored``."""
    # It looks for the machine code once per type: a look-up takes a tenth of a millisecond.
    tile = np.empty((1, WIDE.width))
    scale = address_of(scale_function(WIDE), (0, stored, tile, tile, tile, tile))

    @functools.cache
    def address_for(kind: Any) -> Any:
        arguments = (np.empty(0, np.uint8), (0, 0, 0), 0, 0, 0, stored.bands, tile)
        return address_of(bytes_loader(interleave, kind.type), arguments)

    def block_of(raw: np.ndarray) -> Block:
        return Block(as_writable(raw.reshape(-1).view(np.uint8)), raw.shape, address_for(raw.dtype), scale)

    return block_of


@compiled
def gather_block(block, line, first, count, stored, Y, missing, length, size):
    """Load pixels of a `Block`, as `gather_function` has it."""
    line, first, count = np.int64(line), np.int64(first), np.int64(count)
    call_at(block.load, (block.values, block.shape, line, first, count, stored.bands, Y))
    call_at(block.scale, (count, stored, Y, missing, length, size))


@compiled
def to_floats(block, line, samples, stored, Y, missing, size, out):
    """Write a line to ``out`` (samples, L) float32, negatives as 0; return their number. Masked ones begin with NaN."""
    below, width = 0, Y.shape[1]
    for first in range(0, samples, width):
        count = min(width, samples - first)
        gather_block(block, line, first, count, stored, Y, missing, size, size)
        for s in range(count):
            for b in range(Y.shape[0]):
                below += Y[b, s] < 0.0
                out[first + s, b] = max(Y[b, s], 0.0)
            if missing[0, s] > 0.0:
                out[first + s, 0] = np.nan
    return below


def matrix_product_function(ops: Width) -> Any:
    """Return ``product(M, Y, out)``, which computes ``out = MᵀY``, for M (L, p), Y (L, width), out (p, width)."""
    # Four or five columns at a time: a row of Y is loaded as much less often, and as many sums run side by side.
    return product_of_one() if ops.width == 1 else product_of_vectors(ops)


@functools.cache
def product_of_vectors(ops: Width) -> Any:
    """Return `matrix_product_function` for vectors."""
    load, store, fma, broadcast = ops.load, ops.store, ops.fma, ops.broadcast

    @inlined
    def product_of_some(M, Y, out, j, last, five):
        """Compute the products of the columns from j to ``last``: five of them, or up to four."""
        j1 = j + 1 if j < last else last
        j2 = j1 + 1 if j1 < last else last
        j3 = j2 + 1 if j2 < last else last
        sum0, sum1, sum2, sum3, sum4 = broadcast(0.0), broadcast(0.0), broadcast(0.0), broadcast(0.0), broadcast(0.0)
        for b in range(M.shape[0]):
            y = load(Y, b)
            sum0 = fma(broadcast(M[b, j]), y, sum0)
            sum1 = fma(broadcast(M[b, j1]), y, sum1)
            sum2 = fma(broadcast(M[b, j2]), y, sum2)
            sum3 = fma(broadcast(M[b, j3]), y, sum3)
            if five:
                sum4 = fma(broadcast(M[b, last]), y, sum4)
        store(out, j, sum0)
        store(out, j1, sum1)
        store(out, j2, sum2)
        store(out, j3, sum3)
        if five:
            store(out, last, sum4)

    @compiled
    def product(M, Y, out):
        p = M.shape[1]
        groups = (p + 4) // 5
        for g in range(groups):
            j, last = g * p // groups, (g + 1) * p // groups - 1
            if last - j == 4:
                product_of_some(M, Y, out, j, last, True)
            else:
                product_of_some(M, Y, out, j, last, False)

    return product


@functools.cache
def product_of_one() -> Any:
    """Return `matrix_product_function` for a thread of a GPU, eight columns at a time."""
    # The indices that vectors use took 50 instructions for each product.
    fma = ONE.fma

    @compiled
    def product(M, Y, out):
        L, p = uint32(M.shape[0]), uint64(M.shape[1])
        j = uint64(0)
        while j < p:
            last = p - uint64(1)
            j1, j2, j3, j4 = (
                min(j + uint64(1), last),
                min(j + uint64(2), last),
                min(j + uint64(3), last),
                min(j + uint64(4), last),
            )
            j5, j6, j7 = min(j + uint64(5), last), min(j + uint64(6), last), min(j + uint64(7), last)
            sum0, sum1, sum2, sum3, sum4, sum5, sum6, sum7 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            b, last_band = uint32(0), uint32(L - uint32(1))
            ahead, next_ahead = (
                Y[0, 0],
                Y[min(uint32(1), last_band), 0],
            )  # a value takes longer to load than eight products
            while b < L:
                y, row = ahead, M[b]
                ahead, next_ahead = next_ahead, Y[min(uint32(b + uint32(2)), last_band), 0]
                sum0, sum1, sum2, sum3 = (
                    fma(row[j], y, sum0),
                    fma(row[j1], y, sum1),
                    fma(row[j2], y, sum2),
                    fma(row[j3], y, sum3),
                )
                sum4, sum5, sum6, sum7 = (
                    fma(row[j4], y, sum4),
                    fma(row[j5], y, sum5),
                    fma(row[j6], y, sum6),
                    fma(row[j7], y, sum7),
                )
                b = uint32(b + uint32(1))
            out[j, 0], out[j1, 0], out[j2, 0], out[j3, 0] = sum0, sum1, sum2, sum3
            out[j4, 0], out[j5, 0], out[j6, 0], out[j7, 0] = sum4, sum5, sum6, sum7
            j += uint64(8)

    return product
