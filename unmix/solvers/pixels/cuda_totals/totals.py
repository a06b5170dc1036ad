"""Compute the totals of a run, and the stored results, on the GPU where the results are.

On the host counting and checking took longer than all reading, copying and writing together (10 million pixels: 0.34 s against 0.20),
and κ, δ, steps and states crossed the bus for them alone. A block of which pixels are solved again is counted on the host
(`unmix.summary`).
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numba import float64, int32

from ....certificate import CERTIFIED, MASKED, SOLVED
from ....compiled.cuda import cuda, cuda_kernel, on_gpu
from ....quotients import divide_pixel
from ....summary import BINS, CORNER, KAPPA_BINS, POOR, THERE, bin_of, kappa_bin_of
from ..scalar import STEPS_PER_ENDMEMBER
from .encode import THREADS, Checker, encode


class Counts(NamedTuple):
    """The counts of a block of n lines, as arrays on the GPU or on the host; all but the last three as in `unmix.summary.Counts`."""

    pixels: Any  # (n, 4) int32: solved, masked, failed, doubtful
    worst: Any  # (n, 4) float64: κ, δ, relative RMSE, RMSE
    steps: Any  # (n, most + 1) int32: number of solved pixels that took 0, 1, 2, … steps; the last: that many or more
    misfit: Any  # (n, 256) int32: number of them whose relative RMSE is in each bin
    kappas: Any  # (n, 64) int32: number of them whose κ is in each octave
    sums: Any  # (n, p) float64: of the abundances of solved pixels
    most: Any  # (n, p) float64: the largest of them
    there: Any  # (n, p) int32: number of them above `unmix.summary.THERE`
    outside: Any  # (n, p) int32: above `CORNER`, where the relative RMSE is above `POOR`
    abundance: Any  # (n,) uint32: CRC-32 of each line of the abundances, as they are stored
    rmse: Any  # (n,) uint32: the same of the RMSE
    residual: Any  # (n,) uint32: the same of the residuals, if wanted


def most_steps(p: int) -> int:
    """Return the number of steps from which on they are counted together.

    A search for p endmembers is given up at this number; with more than 330 endmembers it is 2000, since the counts are in the
    shared memory of a block of threads.
    """
    return min(STEPS_PER_ENDMEMBER * p + 20, 2000)


def count_shapes(lines: int, p: int) -> Counts:
    """Return type and shape of each field of `Counts`, for a block of ``lines``."""
    most, each = most_steps(p), (lines, p)
    return Counts(
        (np.int32, (lines, 4)), (np.float64, (lines, 4)), (np.int32, (lines, most + 1)), (np.int32, (lines, BINS)),
        (np.int32, (lines, KAPPA_BINS)), (np.float64, each), (np.float64, each), (np.int32, each), (np.int32, each),
        *((np.uint32, (lines,)),) * 3,
    )  # fmt: skip


@on_gpu
def reduce_threads(sums, maxima, t, width):
    """Reduce rows of ``sums`` by addition and rows of ``maxima`` by maximum over each ``width`` threads, into the first of them."""
    half = width // 2
    while half > 0:
        cuda.syncthreads()
        if t % width < half:
            for i in range(sums.shape[0]):
                sums[i, t] += sums[i, t + half]
            for i in range(maxima.shape[0]):
                maxima[i, t] = max(maxima[i, t], maxima[i, t + half])
        half //= 2
    cuda.syncthreads()


@on_gpu
def count_endmembers(line, t, p, state, abundance, relative, part, maxima, sums, most, there, outside):
    """Count per endmember: a warp and one reduction for its four counts (a block each and a reduction a count took twice as long)."""
    samples, lane = state.shape[1], t % 32
    for first in range(0, p, THREADS // 32):
        j = first + t // 32
        total, largest, above_presence, in_poor_corner = 0.0, -np.inf, 0.0, 0.0
        if j < p:
            for s in range(lane, samples, 32):
                if state[line, s] == SOLVED:
                    a = abundance[line, j, s]
                    total += float(a)
                    largest = max(largest, float(a))
                    above_presence += 1.0 if a > THERE else 0.0
                    if a > CORNER and relative[line, s] > POOR:
                        in_poor_corner += 1.0
        part[0, t], part[1, t], part[2, t], maxima[0, t] = total, above_presence, in_poor_corner, largest
        reduce_threads(part, maxima, t, 32)
        if j < p and lane == 0:
            sums[line, j], most[line, j] = part[0, t], maxima[0, t]
            there[line, j], outside[line, j] = int(part[1, t]), int(part[2, t])


@functools.cache
def count_kernel(p: int) -> Any:
    """Return the kernel of `unmix.summary.count_block`, which also counts the doubtful pixels for `unmix.rescue`; a block per line."""
    last = most_steps(p)
    kinds, size = 4, last + 1

    @cuda_kernel
    def count_block(state, kappa, delta, steps, abundance, rmse, relative, bits, kappa_bits, farthest, pixels, worst, histogram,
                    misfit, kappas, sums, most, there, outside):  # fmt: skip
        kind_counts = cuda.shared.array(kinds, int32)
        step_counts = cuda.shared.array(size, int32)
        bin_counts = cuda.shared.array(BINS, int32)
        kappa_counts = cuda.shared.array(KAPPA_BINS, int32)
        part = cuda.shared.array((3, THREADS), float64)
        maxima = cuda.shared.array((4, THREADS), float64)
        line, t = cuda.grid(1) // THREADS, cuda.grid(1) % THREADS
        samples = state.shape[1]
        for i in range(t, size, THREADS):
            step_counts[i] = 0
        for i in range(t, BINS, THREADS):
            bin_counts[i] = 0
        for i in range(t, KAPPA_BINS, THREADS):
            kappa_counts[i] = 0
        if t < kinds:
            kind_counts[t] = 0
        cuda.syncthreads()
        solved, masked, failed, doubtful = 0, 0, 0, 0
        worst_kappa, worst_delta, worst_relative, worst_rmse = 0.0, 0.0, 0.0, 0.0
        for s in range(t, samples, THREADS):
            if state[line, s] == SOLVED:
                pixel_kappa, pixel_delta, pixel_rmse = kappa[line, s], delta[line, s], float(rmse[line, s])
                solved += 1
                failed += 0 if pixel_kappa <= CERTIFIED else 1
                doubtful += 0 if pixel_kappa <= CERTIFIED and pixel_delta <= farthest else 1
                worst_kappa = max(worst_kappa, pixel_kappa if pixel_kappa == pixel_kappa else np.inf)
                worst_delta = max(worst_delta, pixel_delta if pixel_delta == pixel_delta else np.inf)
                worst_rmse = max(worst_rmse, pixel_rmse if pixel_rmse == pixel_rmse else np.inf)
                cuda.atomic.add(step_counts, min(steps[line, s], last), 1)
                cuda.atomic.add(kappa_counts, kappa_bin_of(kappa_bits[line, s]), 1)
                if relative[line, s] >= 0.0:
                    worst_relative = max(worst_relative, float(relative[line, s]))
                    cuda.atomic.add(bin_counts, bin_of(bits[line, s]), 1)
            elif state[line, s] == MASKED:
                masked += 1
        cuda.atomic.add(kind_counts, 0, solved)
        cuda.atomic.add(kind_counts, 1, masked)
        cuda.atomic.add(kind_counts, 2, failed)
        cuda.atomic.add(kind_counts, 3, doubtful)
        maxima[0, t], maxima[1, t], maxima[2, t], maxima[3, t] = worst_kappa, worst_delta, worst_relative, worst_rmse
        part[0, t], part[1, t], part[2, t] = 0.0, 0.0, 0.0
        reduce_threads(part, maxima, t, THREADS)
        if t < kinds:
            pixels[line, t] = kind_counts[t]
            worst[line, t] = maxima[t, 0]
        for i in range(t, size, THREADS):
            histogram[line, i] = step_counts[i]
        for i in range(t, BINS, THREADS):
            misfit[line, i] = bin_counts[i]
        for i in range(t, KAPPA_BINS, THREADS):
            kappas[line, i] = kappa_counts[i]
        cuda.syncthreads()
        count_endmembers(line, t, p, state, abundance, relative, part, maxima, sums, most, there, outside)

    return count_block


@functools.cache
def divide_kernel() -> Any:
    """Return the kernel that makes fractions of the abundances of a block, a thread for each pixel."""

    @cuda_kernel
    def divide(A, delta, state, weights, length, most, fractions, scales, far):
        n = cuda.grid(1)
        if n < state.size:
            divide_pixel(
                A, delta, state, n // state.shape[1], n % state.shape[1], weights, length, most, fractions, scales, far
            )

    return divide


class Counter:
    """Counts and checks blocks of lines of ``samples`` pixels, and makes the integers that are stored.

    Parameters
    ----------
    p, samples : int
    farthest : float
        A δ above it is doubtful.
    L : int
        Bands of the residuals; 0 without them.
    steps : mapping of str to (float, float)
        Step and offset of the results that are stored as integers.
    shares : tuple of array (p,) and two floats, optional
        Where abundances become fractions: the weights, and bounds of their length and of the largest.
    """

    def __init__(
        self, p: int, samples: int, farthest: float, L: int = 0, steps: Mapping[str, tuple[float, float]] | None = None,
        shares: tuple[np.ndarray, float, float] | None = None,
    ) -> None:  # fmt: skip
        self.farthest, self.steps = farthest, steps or {}
        self.kernel = count_kernel(p)
        self.shares = None if shares is None else (cuda.to_device(shares[0]), *shares[1:])
        bands = {"abundance": p, "rmse": 1} | ({"residual": L} if L else {})
        self.checkers = {
            name: Checker(count * samples, 16 if name in self.steps else 32) for name, count in bands.items()
        }

    def launch(
        self, results: dict[str, Any], counts: Counts, integers: dict[str, Any], fractions: dict[str, Any], stream: Any
    ) -> None:
        """Fill ``fractions``, ``counts`` and ``integers``, device arrays for as many lines as ``results`` has.

        Where there are fractions, these are counted and stored, not the abundances.
        """
        if self.shares is not None:
            made = fractions["abundance"], fractions["scale"], fractions["delta"]
            blocks = -(-results["state"].size // THREADS)
            divide_kernel()[blocks, THREADS, stream](
                results["abundance"], results["delta"], results["state"], *self.shares, *made
            )
            results = results | {"abundance": fractions["abundance"], "delta": fractions["delta"]}
        names = ("state", "kappa", "delta", "steps", "abundance", "rmse", "relative")
        bits, kappa_bits = results["relative"].view(np.int32), results["kappa"].view(np.int64)
        self.kernel[len(results["state"]), THREADS, stream](
            *(results[name] for name in names), bits, kappa_bits, self.farthest, *counts[:9]
        )
        for name, checker in self.checkers.items():
            if name in self.steps:
                encode(results[name], *self.steps[name], integers[name], counts.pixels, stream)
            checker.launch(integers.get(name, results[name]), getattr(counts, name), stream)
