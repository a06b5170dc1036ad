"""A tile: w pixels side by side in a line, from stored values to abundances and their certificate.

Written once for both kinds of device. On a CPU a tile is 64 pixels wide, its inner loops run over them in SIMD, and
each pixel starts from its left neighbour's support (equal in 50 to 73 % of Salinas-A pixels). On a GPU a tile is one
pixel, and threads stand side by side instead. Tiles are cut at fixed samples of absolute lines, and every sum runs over
the bands in ascending order: the bytes that come out depend on neither block, thread nor interleave.
"""

import functools
from typing import Any, NamedTuple

from ..certificate import MASKED, PARTLY, SOLVED, certify
from . import pixel
from .jit import compiled
from .pixel import Plan, Work

WIDTH = 64
NODATA = -9999.0


class Stored(NamedTuple):
    """How stored values become a spectrum: ``y_b = stored[bands[b]] * gain[b] + offset[b]``."""

    bands: Any  # (L,) int64, the bands in use
    gain: Any  # (L,) float64
    offset: Any  # (L,) float64
    nodata: float  # compared with the stored value; NaN where the cube has none


class Tile(NamedTuple):
    """Scratch of one tile, w wide, float64 but for ``missing``."""

    Y: Any  # (L, w)
    Z: Any  # (p, w)
    A: Any  # (p, w)
    W: Any  # (p, w)
    length: Any  # (w,)
    square: Any  # (w,)
    rmse: Any  # (w,)
    kappa: Any  # (w,)
    delta: Any  # (w,)
    missing: Any  # (w,) int64, used bands that are nodata, NaN or infinite


class Results(NamedTuple):
    """Where a block's answers go; n lines. What a user asked not to have has no lines."""

    abundance: Any  # (n, p, samples)
    rmse: Any  # (n, samples)
    kappa: Any  # (n, samples) float64
    delta: Any  # (n, samples) float64
    steps: Any  # (n, samples) int32
    state: Any  # (n, samples) uint8: SOLVED, PARTLY or MASKED
    residual: Any  # (n or 0, L, samples)


@compiled
def gather_bip(raw, line, first, w, stored, Y, missing):
    """Stored values of w pixels to a float64 tile; raw is (lines, samples, bands)."""
    for s in range(w):
        missing[s] = 0
        for b in range(Y.shape[0]):
            value = float(raw[line, first + s, stored.bands[b]])
            if value == stored.nodata or value - value != 0.0:
                missing[s] += 1
            Y[b, s] = value * stored.gain[b] + stored.offset[b]


@compiled
def gather_bil(raw, line, first, w, stored, Y, missing):
    """As `gather_bip`; raw is (lines, bands, samples)."""
    for s in range(w):
        missing[s] = 0
    for b in range(Y.shape[0]):
        band = stored.bands[b]
        for s in range(w):
            value = float(raw[line, band, first + s])
            missing[s] += value == stored.nodata or value - value != 0.0
            Y[b, s] = value * stored.gain[b] + stored.offset[b]


@compiled
def gather_bsq(raw, line, first, w, stored, Y, missing):
    """As `gather_bip`; raw is (bands, lines, samples)."""
    for s in range(w):
        missing[s] = 0
    for b in range(Y.shape[0]):
        band = stored.bands[b]
        for s in range(w):
            value = float(raw[band, line, first + s])
            missing[s] += value == stored.nodata or value - value != 0.0
            Y[b, s] = value * stored.gain[b] + stored.offset[b]


GATHER = {"bip": gather_bip, "bil": gather_bil, "bsq": gather_bsq}


@compiled
def blank_masked(Y, missing):
    """Pixels that miss a band become zero, so that no NaN runs through the sums of their neighbours' tile."""
    for s in range(missing.shape[0]):
        if missing[s] > 0:
            for b in range(Y.shape[0]):
                Y[b, s] = 0.0


@compiled
def project(Q, Y, Z):
    """``Z = QᵀY``, bands in ascending order."""
    p, w = Z.shape
    for j in range(p):
        for s in range(w):
            Z[j, s] = 0.0
    for b in range(Y.shape[0]):
        for j in range(p):
            q = Q[b, j]
            for s in range(w):
                Z[j, s] += q * Y[b, s]


@compiled
def write_residual(E, tile, results, line, first, w):
    """``y − E a`` of each pixel, in the units of the scaled cube."""
    L, p = E.shape
    for b in range(L):
        for s in range(w):
            value = tile.Y[b, s]
            for j in range(p):
                value -= E[b, j] * tile.A[j, s]
            results.residual[line, b, first + s] = value if tile.missing[s] == 0 else NODATA


@compiled
def write_pixel(tile, results, line, sample, s, steps, L):
    """One pixel's answers to their places; nodata where it was masked."""
    good = tile.missing[s] == 0
    for j in range(tile.A.shape[0]):
        results.abundance[line, j, sample] = tile.A[j, s] if good else NODATA
    results.rmse[line, sample] = tile.rmse[s] if good else NODATA
    results.kappa[line, sample] = tile.kappa[s] if good else NODATA
    results.delta[line, sample] = tile.delta[s] if good else NODATA
    results.steps[line, sample] = steps if good else int(NODATA)
    results.state[line, sample] = SOLVED if good else (MASKED if tile.missing[s] == L else PARTLY)


@functools.cache
def tile_solver(interleave: str, solver: str) -> Any:
    """The compiled function that solves one tile, for an interleave and a function of `pixel`."""
    gather = GATHER[interleave]
    solve = getattr(pixel, solver)

    @compiled
    def solve_tile(raw, line, first, w, stored, plan, tile, work, results, steps):
        gather(raw, line, first, w, stored, tile.Y, tile.missing)
        blank_masked(tile.Y, tile.missing)
        project(plan.Q, tile.Y, tile.Z)
        k = 0
        for s in range(w):
            for j in range(tile.Z.shape[0]):
                work.z[j] = tile.Z[j, s]
            k, steps[s] = solve(plan, work, k)
            for j in range(tile.Z.shape[0]):
                tile.A[j, s] = work.a[j]
        certify(plan.E, plan.norms, plan.curvature, plan.sum_to_one, plan.nonnegative, tile.Y, tile.A, tile.W,
                tile.length, tile.square, tile.rmse, tile.kappa, tile.delta)  # fmt: skip
        for s in range(w):
            write_pixel(tile, results, line, first + s, s, steps[s], tile.Y.shape[0])
        if results.residual.shape[0] > 0:
            write_residual(plan.E, tile, results, line, first, w)

    return solve_tile


__all__ = ["GATHER", "NODATA", "WIDTH", "Plan", "Results", "Stored", "Tile", "Work", "tile_solver"]
