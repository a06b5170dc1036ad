"""Bound quantities of pixels on a GPU: a warp follows the path of a pixel (`ends`), then a thread proves its end (`proof`).

Both are compiled from the source that serves a CPU. The bounds differ from a CPU's by rounding, and are as well proved.
"""

import functools
from typing import Any, NamedTuple

import numpy as np
from numba import float64

from ....compiled.cuda import SIMULATED, cuda, cuda_kernel, multiprocessors, to_gpu
from ....compiled.jit import ONE
from ....compiled.warp import LANES, TEAM, WARP
from . import proof
from .ends import ENDS, EndPixels, bound_of_end, end_functions
from .follow import MOST_MEMBERS, PathScratch, lines_of, scratch_rows, vectors_of

# Warps of a multiprocessor, each with scratch of its own, and threads of a block that proves.
WARPS, THREADS = (2, 4) if SIMULATED else (32, 64)
# Abundances at the ends of paths that are held at a time, at most: 512 MiB.
MOST_ABUNDANCES = 2**26


class TileOnGpu(NamedTuple):
    """A `unmix.features.ranges.solver.proof.ProofScratch` for each of n pixels; the last axis is theirs."""

    Y: Any  # (L, n)
    X: Any  # (P, n); none before a path has an end
    R: Any  # (L, n)
    W: Any  # (P, n)
    given: Any  # (ENDS, n); likewise
    found: Any  # (2, n)


@functools.cache
def correlate_kernel() -> Any:
    """Return the kernel that computes ``Eᵀy`` at unit length, (n c, w), and turns pixels (n, L) into (L, n); a warp for each pixel."""

    @cuda_kernel
    def correlate_block(unit, Y, F, turned):
        (L, P), lane = unit.shape, cuda.threadIdx.x
        c = F.shape[0] // Y.shape[0]
        for n in range(cuda.blockIdx.x, Y.shape[0], cuda.gridDim.x):
            for j in range(lane, c * LANES, LANES):
                total = float64(0.0)
                for b in range(L if j < P else 0):
                    total += unit[b, j] * Y[n, b]
                F[n * c + j // LANES, lane] = total
            for b in range(lane, L, LANES):
                turned[b, n] = Y[n, b]

    return correlate_block


@functools.cache
def path_kernel(is_fraction: bool) -> Any:
    """Return the kernel that follows the paths of some quantities; its arguments are those of `end_functions`, for all of both."""
    (begin, find_end), load, store = end_functions(WARP, TEAM), WARP.load, WARP.store

    @cuda_kernel
    def follow_block(lines, pixels, signed, X, ends, scratch):
        warp, c = cuda.blockIdx.x, lines.ones.shape[0]
        path = PathScratch(
            scratch.y[warp], scratch.f[warp], scratch.best[warp], scratch.c[warp], scratch.outside[warp], scratch.duals[warp],
            scratch.first[warp], scratch.inverse[warp], scratch.column[warp], scratch.values[warp], scratch.members[warp],
        )  # fmt: skip
        for n in range(warp, pixels.Y.shape[0], cuda.gridDim.x):
            for b in range(c):
                store(path.f, b, load(pixels.F, n * c + b))
            rows = begin(lines, pixels, n, path)
            for e in range(signed.shape[0]):
                find_end(lines, pixels, n, rows, signed[e], is_fraction, path, X[e], ends[e], n)

    return follow_block


@functools.cache
def prove_kernel(is_fraction: bool) -> Any:
    """Return the kernel that proves the ends of paths, a thread for each pixel.

    Its arguments are what pixels share, their misfits, quantity and weights with their sign, a `TileOnGpu`, the sign, the most that
    the quantity can be at all, the negative of the least divisors, and the results.
    """
    prove_tile = proof.prove_end_function(ONE)

    @cuda_kernel
    def prove_block(mixtures, misfits, signed, tile, sign, most, less, proved, reached):
        n = cuda.grid(1)
        if n >= misfits.shape[0]:
            return
        own = proof.ProofScratch(
            tile.Y[:, n : n + 1], tile.X[:, n : n + 1], tile.R[:, n : n + 1], tile.W[:, n : n + 1],
            tile.given[:, n : n + 1], tile.found[:, n : n + 1],
        )  # fmt: skip
        prove_tile(mixtures, signed[0], signed[1], own)
        found = bound_of_end(tile.given, tile.found, n, misfits[n], is_fraction, sign, most, -less[n])
        proved[n], reached[n] = found

    return prove_block


class BoundsOnGpu:
    """The bounds of a library's mixtures, on the current GPU.

    Parameters
    ----------
    E : array (L, P), float64
    shared : unmix.features.ranges.solver.proof.MixturesOnLines
    """

    def __init__(self, E: np.ndarray, shared: proof.MixturesOnLines) -> None:
        self.shape, self.stream, self.blocks = E.shape, cuda.stream(), WARPS * multiprocessors()
        self.lines, self.shared = to_gpu(lines_of(E, bool(shared.has_sum), LANES)), to_gpu(shared)
        rows = scratch_rows(*E.shape, LANES)
        vectors = (cuda.device_array((self.blocks, count, LANES), np.float64) for count in rows)
        self.scratch = PathScratch(*vectors, cuda.device_array((self.blocks, 2, MOST_MEMBERS + 1), np.int64))

    def new(self, *shape: int) -> Any:
        """Allocate an array."""
        return cuda.device_array(shape, np.float64, stream=self.stream)

    def bound(
        self, Y: np.ndarray, best: np.ndarray, misfits: np.ndarray, rho: np.ndarray, quantities: np.ndarray, weights: np.ndarray,
        most: np.ndarray,
    ) -> np.ndarray:  # fmt: skip
        """Bound quantities of n pixels from both sides: see `unmix.features.ranges.solver.bounds.bound`."""
        (L, P), n, is_fraction = self.shape, len(Y), len(weights) > 0
        arrays = (cuda.to_device(np.ascontiguousarray(values), self.stream) for values in (Y, best, misfits, rho))
        there, *others = arrays
        pixels = EndPixels(there, self.new(n * vectors_of(P, LANES), LANES), *others)
        tile = TileOnGpu(self.new(L, n), None, self.new(L, n), self.new(P, n), None, self.new(2, n))
        correlate_kernel()[self.blocks, LANES, self.stream](self.lines.unit, there, pixels.F, tile.Y)
        less = self.new(1, 2, n)
        if is_fraction:
            self.bound_some(
                pixels, tile, np.stack([-weights, 0.0 * weights])[None], False, [(1.0, 0.0)], less[0, 0], less
            )
        signs = np.array([1.0, -1.0])
        own, divisor = (quantities * weights, weights) if is_fraction else (quantities, np.zeros(P))
        signed = np.stack([own, np.broadcast_to(divisor, own.shape)], axis=1)[:, None] * signs[:, None, None]
        ends = [(sign, highest if sign > 0 else 0.0) for highest in most for sign in signs]
        found = self.new(2 * len(quantities), 2, n)
        together = max(1, MOST_ABUNDANCES // (n * P))
        for e in range(0, len(ends), together):
            part = slice(e, e + together)
            self.bound_some(
                pixels, tile, signed.reshape(-1, 2, P)[part], is_fraction, ends[part], less[0, 0], found[part]
            )
        host = found.copy_to_host(stream=self.stream)
        self.stream.synchronize()
        return np.ascontiguousarray(host.reshape(len(quantities), 2, 2, n).transpose(2, 1, 3, 0))

    def bound_some(
        self, pixels: EndPixels, tile: TileOnGpu, signed: np.ndarray, is_fraction: bool, ends: list[tuple[float, float]], less: Any,
        found: Any,
    ) -> None:  # fmt: skip
        """Bound some ends; the rows of ``signed`` (m, 2, P) are their quantities and weights, ``found`` is (m, 2, n)."""
        (_, P), m, n = self.shape, len(signed), len(pixels.misfits)
        c = vectors_of(P, LANES)
        wide = np.zeros((m, 2, c * LANES))
        wide[:, :, :P] = signed
        vectors, X, states = cuda.to_device(wide, self.stream), self.new(m, P, n), self.new(m, ENDS, n)
        path_kernel(is_fraction)[self.blocks, LANES, self.stream](
            self.lines, pixels, vectors.reshape((m, 2 * c, LANES)), X, states, self.scratch
        )
        for e, (sign, most) in enumerate(ends):
            own = tile._replace(X=X[e], given=states[e])
            prove_kernel(is_fraction)[-(-n // THREADS), THREADS, self.stream](
                self.shared, pixels.misfits, vectors[e], own, sign, most, less, found[e, 0], found[e, 1]
            )
