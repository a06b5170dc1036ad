"""Compute ``Eᵀy`` from stored pixels, and the residual and the duals from the abundances: matrix products by a warp.

A warp takes a tile of 16 pixels of a line, and the bands in chunks of 32. Lane ``4 g + q`` holds the pixels g and g + 8
of a tile and the bands ``8 q`` to ``8 q + 7`` of a chunk. The order of the sum over the bands is free: in this one a
lane's values are adjacent in a BIP file and go into the product without passing through shared memory. E is stored in
the order in which lanes read it (`lane_order`), and is read through the L1 cache. Bands that are not in use are zero in
E and in the pixel, so every sum is the same whatever the interleave.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import float64, uint32

from ....compiled.cuda import ALL_LANES, cuda, on_gpu
from ....compiled.ptx import load_double, load_pair, load_words, multiply_half, multiply_matrices, multiply_twice
from ..tile import NODATA

CHUNK = 32
# Pixels of a tile. Two tiles at once would share every read of E, but need too many registers: 2-12 % slower from p = 9
# on.
PIXELS = 16
ROWS = 2  # pixels of a tile that a lane holds


class StoredBlock(NamedTuple):
    """A block as stored, and how its values become spectra; arrays over bands are in the order of `by_lane`."""

    raw: Any  # flat
    address: int
    by_line: int  # values from a line to the next, from a sample to the next, from a band to the next
    by_sample: int
    by_band: int
    bands: int
    chunks: Any  # int32: the chunks of 32 bands that hold one in use
    used: Any  # int32
    gain: Any
    offset: Any
    shift: int  # address
    nodata: float
    row: Any  # int32: of the residual


class FastPlan(NamedTuple):
    """Constants that all pixels share; p endmembers, float64."""

    E: int  # the address of E in the order of lanes (`lane_order`)
    U: int  # address of the (p, p) Gram matrix of the columns at unit length
    norms: Any  # (p,)
    weights: Any  # (p,) = 1/|e_j|, for the search
    sizes: Any  # (p,) for the certificate
    units: Any  # (p,) 1 over what it measures a dual against
    curvature: float
    longest: float  # of the sizes under Σa = 1, else 0
    lift: float  # added to each Eᵀy by the constant band
    least_scale: float
    mean_square: float  # |ē|²
    tolerance: float  # of a dual
    L: int
    penalty: Any  # (p,) subtracted from each Eᵀy and dual; (1,) where there is none


class FastWork(NamedTuple):
    """Arrays that the three kernels hand on, for N pixels."""

    a: Any  # (N, p) Eᵀy, then the abundances
    size: Any  # (N,) |y|, from the mean endmember under Σa = 1
    length: Any  # (N,) |y| of the pixel as it is
    scale: Any  # (N,) what the search divides by; 0 where a value is missing
    w: Any  # (N, p) duals, for `unmix.solvers.pixels.cuda_fast.judge`; (1, p) where it is not used
    left: Any  # (N,) |y − E a|, likewise


def chunks_in_use(index: np.ndarray) -> np.ndarray:
    """Return the chunks of 32 stored bands that hold a band in use, int32; ``index`` lists those bands."""
    return np.unique(np.asarray(index) // CHUNK).astype(np.int32)


def lane_order(E: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return E (L, p), of stored bands ``index``, as (chunk, pair, eight endmembers, endmember, q, band of pair)."""
    chunks = chunks_in_use(index)
    p = E.shape[1]
    wide = np.zeros((int(chunks[-1] + 1) * CHUNK, -(-p // 8) * 8))
    wide[index, :p] = E
    parts = wide.reshape(-1, 4, 4, 2, wide.shape[1] // 8, 8)[chunks]  # chunk, q, pair, band, eight, endmember
    return np.ascontiguousarray(parts.transpose(0, 2, 4, 5, 1, 3))


def by_lane(values: np.ndarray, index: np.ndarray, kind: Any) -> np.ndarray:
    """Return values (L,) of the used bands spread over the chunks in use: flat, 32 a chunk, zero for other bands."""
    chunks = chunks_in_use(index)
    wide = np.zeros(int(chunks[-1] + 1) * CHUNK, kind)
    wide[index] = values
    return wide.reshape(-1, CHUNK)[chunks].reshape(-1)


def wide_values(signed: bool) -> tuple[Any, Any]:
    """Return ``fetch`` and ``value`` for 16-bit BIP, which read eight values at a time, from multiples of 16 bytes."""
    # A conversion to float64 takes four times as long as an addition (an H100 does 16 a clock). Instead, a value goes
    # into the low bits of 2⁵², which is then subtracted.
    flip = 0x80008000 if signed else 0
    base = 2.0**52 + (2**15 if signed else 0)

    @on_gpu
    def fetch(raw, address, by_band, first, bands, held, row):
        words = load_words(address + 2 * (first if first < bands else 0))
        for i in range(4):
            held[row, i] = words[i]

    @on_gpu
    def value(held, row, i):
        word = uint32(held[row, i // 2] ^ uint32(flip))
        half = (word >> uint32(16)) if i % 2 else (word & uint32(0xFFFF))
        return cuda.libdevice.hiloint2double(0x43300000, half) - base

    return fetch, value


@on_gpu
def fetch_each(raw, place, by_band, first, bands, held, row):
    """Load eight stored values one by one, from any layout."""
    for i in range(8):
        held[row, i] = raw[place + (first + i if first + i < bands else 0) * by_band]


@on_gpu
def value_each(held, row, i):
    """Return a stored value of any type as float64."""
    return float64(held[row, i])


@on_gpu
def multiply_halves(a0, a1, b, c0, c1, c2, c3):
    """Do the product of `multiply` on GPUs before sm_90, by two products of eight rows."""
    c0, c1 = multiply_half(a0, b, c0, c1)
    c2, c3 = multiply_half(a1, b, c2, c3)
    return c0, c1, c2, c3


@on_gpu
def multiply_halves_twice(a0, a1, a2, a3, b0, b1, c0, c1, c2, c3):
    """Do the product of `multiply_twice` on GPUs before sm_90."""
    c0, c1, c2, c3 = multiply_halves(a0, a1, b0, c0, c1, c2, c3)
    return multiply_halves(a2, a3, b1, c0, c1, c2, c3)


def spectra_functions(
    p: int,
    kind: str,
    wide: bool,
    plain: bool,
    centred: bool,
    holes: bool,
    gaps: bool,
    half: bool,
    residual_too: bool,
    penalised: bool,
) -> tuple[Any, Any]:
    """Return ``project`` and ``certify`` for a tile of 16 pixels, compiled for the case."""
    # wide: 16-bit BIP, pixels at multiples of 16 bytes; plain: gains 1 and offsets 0; centred: mean endmember
    # subtracted (Σa = 1); holes: a chunk holds unused bands; gaps: values may be missing; half: small matrix product.
    fetch, value = wide_values(kind == "int16") if wide else (fetch_each, value_each)
    product, product_twice = (multiply_halves, multiply_halves_twice) if half else (multiply_matrices, multiply_twice)
    # Blocks of eight columns: of E, and of E with the mean endmember (needed for |y| from |y − ē|); groups of four
    # columns of E.
    dual_blocks, blocks, quads = -(-p // 8), -(-(p + centred) // 8), -(-p // 4)
    words = 4 if wide else 8
    held_type = np.dtype(np.uint32 if wide else kind)
    held_shape, pair_shape, sums_shape, x_shape = (ROWS, words), (ROWS, 2), (blocks, 4), (ROWS, quads)

    @on_gpu
    def spectrum(held, row, i, b, stored, shift):
        """Return band i of the lane in a chunk for its pixel ``row``, less ``shift``, the mean endmember."""
        y = value(held, row, i)
        if not plain:
            y = y * stored.gain[b] + stored.offset[b]
        if centred:
            y = y - shift
        if holes and stored.used[b] == 0:
            y = 0.0
        return y

    @on_gpu
    def is_missing(held, row, i, b, stored):
        number = value(held, row, i)
        return stored.used[b] != 0 and (number == stored.nodata or number - number != 0.0)

    @on_gpu
    def fetch_chunk(stored, offsets, c, fetched):
        """Fetch this lane's values of chunk c."""
        band = stored.chunks[c] * CHUNK + 8 * (cuda.laneid % 4)
        for row in range(ROWS):
            fetch(stored.raw, offsets[row], stored.by_band, band, stored.bands, fetched, row)

    @on_gpu
    def next_chunk(stored, offsets, c, current, fetched):
        """Move chunk c, already fetched, to ``current``, and fetch the next one into ``fetched``."""
        for row in range(ROWS):
            for i in range(words):
                current[row, i] = fetched[row, i]
        if c + 1 < stored.chunks.shape[0]:
            fetch_chunk(stored, offsets, c + 1, fetched)

    @on_gpu
    def project(stored, plan, offsets, squares, means, lost, f, first, pixels):
        """Write a tile's ``Eᵀy`` to ``f[first:]``, and this lane's parts of |y|² and of the missing values."""
        # If centred, the product with the mean endmember goes into `means` of the lane that mean_lane returns.
        current = cuda.local.array(held_shape, held_type)
        fetched = cuda.local.array(held_shape, held_type)
        y = cuda.local.array(pair_shape, float64)
        sums = cuda.local.array(sums_shape, float64)
        lane = cuda.laneid
        q, g = lane % 4, lane // 4
        for n in range(blocks):
            for i in range(4):
                sums[n, i] = 0.0
        for row in range(ROWS):
            squares[row] = 0.0
            lost[row] = 0
        fetch_chunk(stored, offsets, 0, fetched)
        for c in range(stored.chunks.shape[0]):
            next_chunk(stored, offsets, c, current, fetched)
            address = plan.E + (c * 4 * blocks * 32 + lane) * 16
            for pair in range(4):
                first_band = c * CHUNK + 8 * q + 2 * pair
                shifts = load_pair(stored.shift + 8 * first_band) if centred else (0.0, 0.0)
                for row in range(ROWS):
                    for e in range(2):
                        b = first_band + e
                        band_value = spectrum(current, row, 2 * pair + e, b, stored, shifts[e])
                        if gaps and is_missing(current, row, 2 * pair + e, b, stored):
                            lost[row] += 1
                            band_value = 0.0
                        y[row, e] = band_value
                        squares[row] += band_value * band_value
                for n in range(blocks):
                    b0, b1 = load_pair(address + (pair * blocks + n) * 512)
                    s0, s1, s2, s3 = sums[n, 0], sums[n, 1], sums[n, 2], sums[n, 3]
                    s0, s1, s2, s3 = product_twice(y[0, 0], y[1, 0], y[0, 1], y[1, 1], b0, b1, s0, s1, s2, s3)
                    sums[n, 0], sums[n, 1], sums[n, 2], sums[n, 3] = s0, s1, s2, s3
        if centred:
            for row in range(ROWS):
                means[row] = sums[p // 8, 2 * row + p % 2]
        for n in range(blocks):
            for i in range(4):
                j = 8 * n + 2 * q + i % 2
                pixel = 8 * (i // 2) + g
                if j < p and pixel < pixels:
                    f[first + pixel, j] = sums[n, i] + plan.lift - (plan.penalty[j] if penalised else 0.0)

    @on_gpu
    def certify(stored, plan, offsets, a, first, pixels, squares, duals, residual, line, sample, good):
        """Compute this lane's part of ``|y − E a|²`` and its duals ``Eᵀ(y − E a)``, from pixel and ``a[first:]``."""
        current = cuda.local.array(held_shape, held_type)
        fetched = cuda.local.array(held_shape, held_type)
        x = cuda.local.array(x_shape, float64)
        r = cuda.local.array(4, float64)
        lane = cuda.laneid
        q, g = lane % 4, lane // 4
        for n in range(dual_blocks):
            for i in range(4):
                duals[n, i] = 0.0
        for row in range(ROWS):
            squares[row] = 0.0
            for k in range(quads):
                j = 4 * k + q
                x[row, k] = -a[first + 8 * row + g, j] if j < p and 8 * row + g < pixels else 0.0
        fetch_chunk(stored, offsets, 0, fetched)
        for c in range(stored.chunks.shape[0]):
            next_chunk(stored, offsets, c, current, fetched)
            start = plan.E + c * 4 * blocks * 512
            across = start + (q * 4 + g // 2) * 16 + g % 2 * 8
            for pair in range(4):
                first_band = c * CHUNK + 8 * q + 2 * pair
                shifts = load_pair(stored.shift + 8 * first_band) if centred else (0.0, 0.0)
                for i in range(4):
                    r[i] = spectrum(current, i // 2, 2 * pair + i % 2, first_band + i % 2, stored, shifts[i % 2])
                r0, r1, r2, r3 = r[0], r[1], r[2], r[3]
                for k in range(0, quads - 1, 2):
                    b0 = load_double(across + (pair * blocks + k // 2) * 512)
                    b1 = load_double(across + (pair * blocks + k // 2) * 512 + 256)
                    r0, r1, r2, r3 = product_twice(x[0, k], x[1, k], x[0, k + 1], x[1, k + 1], b0, b1, r0, r1, r2, r3)
                if quads % 2:
                    b0 = load_double(across + (pair * blocks + quads // 2) * 512)
                    r0, r1, r2, r3 = product(x[0, quads - 1], x[1, quads - 1], b0, r0, r1, r2, r3)
                squares[0] += r0 * r0
                squares[0] += r1 * r1
                squares[1] += r2 * r2
                squares[1] += r3 * r3
                for n in range(dual_blocks):
                    b0, b1 = load_pair(start + (pair * blocks + n) * 512 + lane * 16)
                    s0, s1, s2, s3 = duals[n, 0], duals[n, 1], duals[n, 2], duals[n, 3]
                    s0, s1, s2, s3 = product_twice(r0, r2, r1, r3, b0, b1, s0, s1, s2, s3)
                    duals[n, 0], duals[n, 1], duals[n, 2], duals[n, 3] = s0, s1, s2, s3
                if residual_too:
                    r[0], r[1], r[2], r[3] = r0, r1, r2, r3
                    for i in range(4):
                        b = c * CHUNK + 8 * q + 2 * pair + i % 2
                        pixel = 8 * (i // 2) + g
                        if stored.used[b] != 0 and pixel < pixels:
                            residual[line, stored.row[b], sample + pixel] = r[i] if good[i // 2] != 0 else NODATA

    return project, certify


def mean_lane(p: int) -> int:
    """Return which of the four lanes of a pixel holds its product with column p, the mean endmember."""
    return p % 8 // 2


@on_gpu
def over_rows(first, second):
    """Return the sum over a pixel's four lanes: of ``first`` to lanes of even number, of ``second`` to odd ones."""
    odd = cuda.laneid % 2 != 0
    value = (second if odd else first) + cuda.shfl_xor_sync(ALL_LANES, first if odd else second, 1)
    return value + cuda.shfl_xor_sync(ALL_LANES, value, 2)


@on_gpu
def most_of_rows(first, second):
    """Return the largest value of `over_rows` in place of the sum."""
    odd = cuda.laneid % 2 != 0
    value = max(second if odd else first, cuda.shfl_xor_sync(ALL_LANES, first if odd else second, 1))
    return max(value, cuda.shfl_xor_sync(ALL_LANES, value, 2))


@on_gpu
def other_row(value):
    """Return the value of the neighbouring lane, which works for the other row."""
    return cuda.shfl_xor_sync(ALL_LANES, value, 1)
