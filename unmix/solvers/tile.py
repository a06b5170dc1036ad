"""A tile: w pixels side by side in a line, from stored values to abundances and their certificate.

Written once for both kinds of device. On a CPU a tile is 64 pixels wide, its inner loops run over them in SIMD, a
support that one pixel finds is tried on all others, and a search starts from the last pixel's support. On a GPU a tile
is one pixel, and threads stand side by side instead. Tiles are cut at fixed samples of absolute lines, and every sum runs over
the bands in ascending order: the bytes that come out depend on neither block, thread nor interleave.
"""

import functools
from typing import Any, NamedTuple

from ..certificate import MASKED, PARTLY, SOLVED, certify
from . import pixel
from .jit import compiled
from .pixel import PASSIVE, Plan, Work, polish
from .safe import safe

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
    Z: Any  # (p, w) QᵀY
    F: Any  # (p, w) EᵀY
    X: Any  # (p, w) optima on one support
    A: Any  # (p, w) abundances
    W: Any  # (p, w) scratch
    rows: Any  # (4, w) scratch
    length: Any  # (w,)
    square: Any  # (w,)
    rmse: Any  # (w,)
    kappa: Any  # (w,)
    delta: Any  # (w,)
    missing: Any  # (w,) int64, used bands that are nodata, NaN or infinite
    done: Any  # (w,) int64, 1 where the abundances are found


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
    pixels = raw[line, first : first + w]
    for s in range(w):
        missing[s] = 0
    for b in range(Y.shape[0]):
        band, gain, offset = stored.bands[b], stored.gain[b], stored.offset[b]
        for s in range(w):
            value = float(pixels[s, band])
            missing[s] += (value == stored.nodata) | (value - value != 0.0)
            Y[b, s] = value * gain + offset


@compiled
def gather_bil(raw, line, first, w, stored, Y, missing):
    """As `gather_bip`; raw is (lines, bands, samples)."""
    for s in range(w):
        missing[s] = 0
    for b in range(Y.shape[0]):
        values, gain, offset = raw[line, stored.bands[b], first : first + w], stored.gain[b], stored.offset[b]
        for s in range(w):
            value = float(values[s])
            missing[s] += (value == stored.nodata) | (value - value != 0.0)
            Y[b, s] = value * gain + offset


@compiled
def gather_bsq(raw, line, first, w, stored, Y, missing):
    """As `gather_bip`; raw is (bands, lines, samples)."""
    for s in range(w):
        missing[s] = 0
    for b in range(Y.shape[0]):
        values, gain, offset = raw[stored.bands[b], line, first : first + w], stored.gain[b], stored.offset[b]
        for s in range(w):
            value = float(values[s])
            missing[s] += (value == stored.nodata) | (value - value != 0.0)
            Y[b, s] = value * gain + offset


SEARCH = {
    "active_set": pixel.active_set,
    "inverse": pixel.inverse,
    "delete_only": pixel.delete_only,
    "direct": pixel.direct,
    "safe": safe,
}
GATHER = {"bip": gather_bip, "bil": gather_bil, "bsq": gather_bsq}


@compiled
def blank_masked(Y, missing):
    """Pixels that miss a band become zero, so that no NaN runs through the sums of their neighbours' tile."""
    for s in range(missing.shape[0]):
        if missing[s] > 0:
            for b in range(Y.shape[0]):
                Y[b, s] = 0.0


@compiled
def multiply_back(M, Y, Z):
    """``Z = MᵀY``, bands in ascending order; M is (L, p), Y (L, w), Z (p, w).

    Four bands and two columns a turn: Z is loaded and stored a quarter as often, Y loaded half as often, and not one
    addition is in another place. Beyond the last band M counts as zero.
    """
    L, w = Y.shape
    p = Z.shape[0]
    for j in range(p):
        for s in range(w):
            Z[j, s] = 0.0
    for b in range(0, L, 4):
        b1, b2, b3 = min(b + 1, L - 1), min(b + 2, L - 1), min(b + 3, L - 1)
        in1, in2, in3 = 1.0 * (b + 1 < L), 1.0 * (b + 2 < L), 1.0 * (b + 3 < L)
        for j in range(0, p - 1, 2):
            m0, m1, m2, m3 = M[b, j], in1 * M[b1, j], in2 * M[b2, j], in3 * M[b3, j]
            n0, n1, n2, n3 = M[b, j + 1], in1 * M[b1, j + 1], in2 * M[b2, j + 1], in3 * M[b3, j + 1]
            for s in range(w):
                y0, y1, y2, y3 = Y[b, s], Y[b1, s], Y[b2, s], Y[b3, s]
                Z[j, s] = (((Z[j, s] + m0 * y0) + m1 * y1) + m2 * y2) + m3 * y3
                Z[j + 1, s] = (((Z[j + 1, s] + n0 * y0) + n1 * y1) + n2 * y2) + n3 * y3
        if p % 2 == 1:
            m0, m1, m2, m3 = M[b, p - 1], in1 * M[b1, p - 1], in2 * M[b2, p - 1], in3 * M[b3, p - 1]
            for s in range(w):
                Z[p - 1, s] = (((Z[p - 1, s] + m0 * Y[b, s]) + m1 * Y[b1, s]) + m2 * Y[b2, s]) + m3 * Y[b3, s]


@compiled
def combine(c, X, k, out):
    """``out += Σ_m c[m] X[m]`` over the first k rows, ascending, four a turn; rows beyond count as zero."""
    for m in range(0, k, 4):
        m1, m2, m3 = min(m + 1, k - 1), min(m + 2, k - 1), min(m + 3, k - 1)
        c0, c1, c2, c3 = c[m], c[m1] * (m + 1 < k), c[m2] * (m + 2 < k), c[m3] * (m + 3 < k)
        for s in range(out.shape[0]):
            out[s] = (((out[s] + c0 * X[m, s]) + c1 * X[m1, s]) + c2 * X[m2, s]) + c3 * X[m3, s]


@compiled
def scales(plan, tile):
    """``F = RᵀZ`` (that is EᵀY), and what each pixel's duals are measured against.

    That is |z|, at most |y|; for the sum to one no less than the longest endmember, or dark pixels look wrong.
    """
    p, w = tile.Z.shape
    longest = 0.0
    for j in range(p):
        if plan.sum_to_one:
            longest = max(longest, plan.norms[j])
    for s in range(w):
        tile.length[s] = 0.0
    for j in range(p):
        for s in range(w):
            tile.F[j, s] = 0.0
            tile.length[s] += tile.Z[j, s] * tile.Z[j, s]
        combine(plan.R[:, j], tile.Z, j + 1, tile.F[j])
    for s in range(w):
        tile.length[s] = max(tile.length[s] ** 0.5, longest)


@compiled
def optima(plan, work, k, tile):
    """`pixel.optimum` for all pixels of the tile at once: X on the support, and the multipliers in ``square``.

    Those that are done are carried along: a loop that begins at zero is one that Numba's compiler makes SIMD of.
    """
    w = tile.F.shape[1]
    multiplier, missing = tile.square, tile.rmse
    spread = 0.0
    for i in range(k):
        work.s[i] = 0.0
        for m in range(k):
            work.s[i] += work.H[i, m]
        spread += work.s[i]
        for s in range(w):
            tile.X[i, s] = 0.0
    for s in range(w):
        multiplier[s] = 0.0
    for _ in range(2):
        for i in range(k):
            row = work.support[i]
            for m in range(k):
                work.u[m] = -plan.G[row, work.support[m]]
            for s in range(w):
                tile.W[i, s] = tile.F[row, s] - multiplier[s]
            combine(work.u, tile.X, k, tile.W[i])
        for i in range(k):
            combine(work.H[i], tile.W, k, tile.X[i])
        if plan.sum_to_one:
            for s in range(w):
                missing[s] = 1.0
            for m in range(k):
                for s in range(w):
                    missing[s] -= tile.X[m, s]
            for s in range(w):
                missing[s] /= spread
                multiplier[s] -= missing[s]
            for i in range(k):
                for s in range(w):
                    tile.X[i, s] += work.s[i] * missing[s]


@compiled
def adopt(plan, work, k, tile, first, steps):
    """Give the support just found to every later pixel of the tile whose optimum it is; they take no step at all.

    Neighbours share supports: a tile takes a search for each of its supports, and the rest is this, in SIMD.
    """
    p, w = tile.F.shape
    optima(plan, work, k, tile)
    fits, dual = tile.kappa, tile.rmse  # 0 where it fits
    for s in range(w):
        fits[s] = tile.done[s]
    for i in range(k):
        for s in range(w):
            fits[s] += 1.0 * (tile.X[i, s] <= 0.0)
    for j in range(p):
        if work.state[j] == PASSIVE:
            continue
        for m in range(k):
            work.u[m] = -plan.G[j, work.support[m]]
        for s in range(w):
            dual[s] = tile.F[j, s] - tile.square[s]
        combine(work.u, tile.X, k, dual)
        limit = plan.dual_tolerance * plan.norms[j]
        for s in range(w):
            fits[s] += 1.0 * (dual[s] > limit * tile.length[s])
    for s in range(first, w):
        if fits[s] != 0.0:
            continue
        for j in range(p):
            work.z[j] = tile.Z[j, s]
            tile.A[j, s] = 0.0
        for i in range(k):
            work.x[i] = tile.X[i, s]
        polish(plan.R, work.z, work.H, work.support, k, plan.sum_to_one, work.x, work.s, work.u)
        for i in range(k):
            tile.A[work.support[i], s] = max(work.x[i], 0.0)
        tile.done[s] = 1
        steps[s] = 0


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
    """The compiled function that solves one tile, for an interleave and a solver of `SEARCH`."""
    gather = GATHER[interleave]
    solve = SEARCH[solver]

    @compiled
    def solve_tile(raw, line, first, w, stored, plan, tile, work, results, steps):
        gather(raw, line, first, w, stored, tile.Y, tile.missing)
        blank_masked(tile.Y, tile.missing)
        multiply_back(plan.Q, tile.Y, tile.Z)
        scales(plan, tile)
        for s in range(w):
            tile.done[s] = 0
        k = 0
        for s in range(w):
            if tile.done[s] != 0:
                continue
            for j in range(tile.Z.shape[0]):
                work.z[j] = tile.Z[j, s]
                work.f[j] = tile.F[j, s]
            k, steps[s] = solve(plan, work, k, tile.length[s])
            for j in range(tile.Z.shape[0]):
                tile.A[j, s] = work.a[j]
            tile.done[s] = 1
            if k > 0 and s + 1 < w:
                adopt(plan, work, k, tile, s + 1, steps)
        certify(plan.E, plan.norms, plan.curvature, plan.sum_to_one, plan.nonnegative, tile.Y, tile.A, tile.W, tile.rows,
                tile.length, tile.square, tile.rmse, tile.kappa, tile.delta)  # fmt: skip
        for s in range(w):
            write_pixel(tile, results, line, first + s, s, steps[s], tile.Y.shape[0])
        if results.residual.shape[0] > 0:
            write_residual(plan.E, tile, results, line, first, w)

    return solve_tile


__all__ = ["GATHER", "NODATA", "WIDTH", "Plan", "Results", "Stored", "Tile", "Work", "tile_solver"]
