"""Compiled loops over pixels of a block: their sums, their projections, and a number for each.

Pixels are numbered in the order of the scene. Where neighbouring lines lie together in memory (all but BIL) they are
read as one long line, so that the length of lines costs nothing. A pixel's numbers depend on nothing but the pixel; a
sum is a chain of fused additions in the order of the pixels, so that it does not depend on where a block ends.
"""

from typing import Any, NamedTuple

import numpy as np

from ...compiled.jit import WIDE, aligned_zeros, compiled
from ...solvers.pixels.gather import gather_block, matrix_product_function
from .tile import ROWS, add_tile

WIDTH, product = WIDE.width, matrix_product_function(WIDE)
load, store, broadcast, any_lane = WIDE.load, WIDE.store, WIDE.broadcast, WIDE.any_lane
transpose, TALL = WIDE.fetch_block, WIDE.tall
# Pixels whose products are added together: the spectra of as many stay in a processor's second cache (224 bands: 115
# kB).
STRETCH = 64


class Pixels(NamedTuple):
    """Some pixels of a block."""

    first: int  # in the block
    size: int
    run: int  # pixels of a line of the block as it is gathered
    samples: int  # pixels of a line of the scene
    line: int  # of the scene, with which the block begins


class Sums(NamedTuple):
    """Sums over pixels as panels of vectors; B is the number of bands L rounded up to the width, 0 beyond L."""

    total: Any  # (B / width, width): of the spectra
    products: Any  # (B / width · B, width): of y yᵀ; row q B + i is band i by the bands of panel q, where i is not less
    differences: Any  # the same of neighbours' differences
    counts: Any  # (2,) int64: valid pixels, and pairs of neighbours that differ


class Scratch(NamedTuple):
    """Room for one thread's pixels."""

    Y: Any  # (L, width): a tile
    tile: Any  # (1, L, width): the same memory
    missing: Any  # (1, width)
    size: Any  # (1, width)
    spectra: (
        Any  # (B / width · (STRETCH + 1), width): panels of a stretch; the first row of each is the pixel before it
    )
    pairs: Any  # the same for differences
    valid: Any  # (STRETCH + 1,) bool


@compiled
def place_of(pixels, n):
    """Return line and sample of a tile, the lane of the block's pixel n in it, and how many pixels it has from n on."""
    line, sample = n // pixels.run, n % pixels.run
    # A tile at the end of a line begins before pixel n: a whole tile is gathered ten times as fast.
    is_short = pixels.run < WIDTH
    first = 0 if is_short else sample if sample < pixels.run - WIDTH else pixels.run - WIDTH
    count, left = pixels.run if is_short else WIDTH, pixels.first + pixels.size - n
    lane = sample - first
    return line, first, count, lane, count - lane if count - lane < left else left


@compiled
def add_products(panels, count, B, sums):
    """Add ``y yᵀ`` of the first pixels of a stretch to the lower triangle of a matrix."""
    height = STRETCH + 1
    for q in range(B // WIDTH):
        for i in range(q * WIDTH, B, ROWS):
            add_tile(panels, i // WIDTH * height + 1, i % WIDTH, q * height + 1, count, sums, q * B + i)


@compiled
def take_tile(block, pixels, n, stored, scratch, at):
    """Gather pixels from the block's pixel n on into a stretch from ``at`` on (−1: the one before); return how many."""
    Y, missing, spectra = scratch.Y, scratch.missing, scratch.spectra
    line, first, count, lane, some = place_of(pixels, n)
    some = some if some < STRETCH - at else STRETCH - at
    gather_block(block, line, first, count, stored, Y, missing, scratch.size, scratch.size)
    b, L = 0, Y.shape[0]
    while b < L:
        row, column = b // WIDTH * (STRETCH + 1) + 1 + at, b % WIDTH
        if some == WIDTH and b + TALL <= L:
            for s in range(0, WIDTH, TALL):
                transpose(scratch.tile, 0, b, s, spectra, row + s, column)
            b += TALL
        else:
            for s in range(some):
                spectra[row + s, column] = Y[b, lane + s]
            b += 1
    for s in range(some):
        scratch.valid[at + 1 + s] = missing[0, lane + s] == 0.0
    return some


@compiled
def sum_pixels(block, pixels, each, stored, scratch, sums):
    """Add pixels, and neighbours' differences in every ``each``-th line, to ``sums``; scratch must begin as zeros."""
    spectra, pairs, valid = scratch.spectra, scratch.pairs, scratch.valid
    Q, height = sums.total.shape[0], STRETCH + 1
    n, last = pixels.first, pixels.first + pixels.size
    none = n - n  # 0 as a variable: a literal makes Numba compile what it is given to once more
    valid[0] = False
    if n % pixels.samples > 0:
        take_tile(block, pixels, n - 1, stored, scratch, none - 1)
    while n < last:
        count, at, differing = STRETCH if last - n > STRETCH else last - n, none, none
        while at < count:
            at += take_tile(block, pixels, n + at, stored, scratch, at)
        add_products(spectra, count, Q * WIDTH, sums.products)
        for q in range(Q):
            total = load(sums.total, q)
            for s in range(count):
                total = total + load(spectra, q * height + 1 + s)
            store(sums.total, q, total)
        for s in range(count):
            sums.counts[0] += valid[s + 1]
            line, sample = (n + s) // pixels.samples, (n + s) % pixels.samples
            if sample > 0 and (pixels.line + line) % each == 0 and valid[s] and valid[s + 1]:
                is_other = False
                for q in range(Q):
                    row = q * height + 1
                    d = load(spectra, row + s) - load(spectra, row + s - 1)
                    store(pairs, row + differing, d)
                    is_other = is_other or any_lane(d > 0.0) or any_lane(d < 0.0)
                differing += is_other
        add_products(pairs, differing, Q * WIDTH, sums.differences)
        sums.counts[1] += differing
        for q in range(Q):  # the last pixel is the one before the next stretch
            store(spectra, q * height, load(spectra, q * height + count))
        valid[0] = valid[count]
        n += count


@compiled
def project_pixels(block, pixels, stored, scratch, U, shift, Z, out, more):
    """Write ``Uᵀy − shift`` to rows of ``out``, the last columns to ``more``, NaN if masked; Z (d, width): scratch."""
    n, last, own = pixels.first, pixels.first + pixels.size, out.shape[1]
    while n < last:
        line, first, count, lane, some = place_of(pixels, n)
        gather_block(block, line, first, count, stored, scratch.Y, scratch.missing, scratch.size, scratch.size)
        product(U, scratch.Y, Z)
        for s in range(some):
            is_valid, row = scratch.missing[0, lane + s] == 0.0, n - pixels.first + s
            for j in range(own):
                out[row, j] = Z[j, lane + s] - shift[j] if is_valid else np.nan
            for j in range(more.shape[1]):
                more[row, j] = Z[own + j, lane + s] - shift[own + j] if is_valid else np.nan
        n += some


@compiled
def number_pixels(block, pixels, stored, scratch, mean, direction, out):
    """Write ``directionᵀ(y − mean)``, or ``|y − mean|²`` without direction, of pixels to ``out``; NaN where masked."""
    n, last = pixels.first, pixels.first + pixels.size
    has_direction = direction.shape[0] > 0
    while n < last:
        line, first, count, lane, some = place_of(pixels, n)
        gather_block(block, line, first, count, stored, scratch.Y, scratch.missing, scratch.size, scratch.size)
        total = broadcast(0.0)
        for b in range(mean.shape[0]):
            centred = load(scratch.Y, b) - mean[b]
            total = total + centred * (broadcast(direction[b]) if has_direction else centred)
        store(scratch.size, 0, total)
        for s in range(some):
            out[n - pixels.first + s] = scratch.size[0, lane + s] if scratch.missing[0, lane + s] == 0.0 else np.nan
        n += some


def new_scratch(L: int) -> Scratch:
    """Return room for one thread's pixels of L bands."""
    panels = (
        aligned_zeros(padded(L) // WIDTH * (STRETCH + 1), WIDTH),
        aligned_zeros(padded(L) // WIDTH * (STRETCH + 1), WIDTH),
    )
    Y = aligned_zeros(L, WIDTH)
    rows = aligned_zeros(1, WIDTH), aligned_zeros(1, WIDTH)
    return Scratch(Y, Y[None], *rows, *panels, np.zeros(STRETCH + 1, bool))


def new_sums(L: int) -> Sums:
    """Return sums of no pixel of L bands."""
    B = padded(L)
    of_products = (aligned_zeros(B // WIDTH * B, WIDTH) for _ in range(2))
    return Sums(aligned_zeros(B // WIDTH, WIDTH), *of_products, np.zeros(2, np.int64))


def padded(L: int) -> int:
    """Return L rounded up to a multiple of the width."""
    return -(-L // WIDTH) * WIDTH


def matrix_of(products: np.ndarray, L: int) -> np.ndarray:
    """Return the symmetric matrix (L, L) whose lower triangle sums hold in panels."""
    B = padded(L)
    lower = np.tril(products.reshape(-1, B, WIDTH).transpose(1, 0, 2).reshape(B, B)[:L, :L])
    return np.asarray(lower + np.tril(lower, -1).T)


def in_one_line(raw: np.ndarray, interleave: str) -> np.ndarray:
    """Return stored values with all pixels in one long line, where neighbouring lines lie together: all but BIL."""
    if interleave == "bip":
        return raw.reshape(1, -1, raw.shape[2])
    return raw.reshape(raw.shape[0], 1, -1) if interleave == "bsq" else raw
