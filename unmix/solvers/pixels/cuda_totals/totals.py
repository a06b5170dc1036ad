"""Compute the totals of a run, and the stored results, on the GPU where the results are.

On the host counting and checking took longer than all reading, copying and writing together (10 million pixels: 0.34 s
against 0.20), and κ, δ, steps and states crossed the bus for them alone. A block with pixels to solve again is
counted on the host (`unmix.summary`).

Encode the stored results of a block on the GPU: 16-bit integers for values, and the CRC-32 of every line.
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numba import float64, int32, uint32

from ....certificate import CERTIFIED, MASKED, SOLVED
from ....compiled.cuda import cuda, cuda_kernel, on_gpu
from ....quotients import divide_pixel
from ....steps import MISFIT, integer_of
from ....summary import BINS, CORNER, DOUBTFUL, KAPPA_BINS, POOR, THERE, bin_of, kappa_bin_of
from ..scalar import STEPS_PER_ENDMEMBER

# Threads per line; a power of two.
THREADS = 128
# zlib's CRC-32: lowest bit first; the register starts as all ones and is inverted at the end.
POLYNOMIAL, ONES = 0xEDB88320, 0xFFFFFFFF


@functools.cache
def encode_kernel() -> Any:
    """Return the kernel that stores lines of values as integers (`unmix.steps`); a block of threads per line."""
    # It counts values that fit no integer as doubtful pixels, which sends their lines to the host.

    @cuda_kernel
    def encode_lines(values, step, offset, stored, pixels):
        line, t = cuda.grid(1) // THREADS, cuda.grid(1) % THREADS
        misfits = 0
        for i in range(t, values.shape[1], THREADS):
            number = integer_of(values[line, i], step, offset)
            misfits += 1 if number == MISFIT else 0
            stored[line, i] = max(number, 0)
        if misfits > 0:
            cuda.atomic.add(pixels, (line, DOUBTFUL), misfits)

    return encode_lines


@functools.cache
def check_kernel() -> Any:
    """Return the kernel that computes the CRC-32 of lines; a block of threads per line."""
    # A CRC is linear. Each thread takes every THREADS-th item: it advances its CRC by that many items (`stride`, four
    # tables of a byte each) before it adds the next; then to the end of the line (`to_end`), and all are added.

    @cuda_kernel
    def check_lines(items, stride, to_end, before, out):
        table = cuda.shared.array((4, 256), uint32)
        part = cuda.shared.array(THREADS, uint32)
        line, t = cuda.grid(1) // THREADS, cuda.grid(1) % THREADS
        for i in range(t, 1024, THREADS):
            table[i // 256, i % 256] = stride[i // 256, i % 256]
        cuda.syncthreads()
        n = items.shape[1]
        crc = uint32(0)
        for i in range(t, n, THREADS):
            crc = uint32(
                table[0, crc & 255]
                ^ table[1, (crc >> 8) & 255]
                ^ table[2, (crc >> 16) & 255]
                ^ table[3, crc >> 24]
                ^ items[line, i]
            )
        moved = uint32(0)
        for bit in range(32):
            moved = uint32(moved ^ (to_end[t, bit] if (crc >> bit) & 1 else 0))
        part[t] = moved
        cuda.syncthreads()
        half = THREADS // 2
        while half > 0:
            if t < half:
                part[t] = part[t] ^ part[t + half]
            cuda.syncthreads()
            half //= 2
        if t == 0:
            out[line] = part[0] ^ before

    return check_lines


def moved_by(counts: np.ndarray, bits: int) -> np.ndarray:
    """Return each bit of a CRC advanced by ``counts`` (n,) items of zeros, of ``bits`` each; (n, 32) uint32."""
    power = np.array([crc_of_bit(bit, bits) for bit in range(32)], np.uint32)
    result = np.tile(np.uint32(1) << np.arange(32, dtype=np.uint32), (len(counts), 1))
    while counts.any():
        odd = counts & 1 == 1
        result[odd] = apply(power, result[odd].ravel()).reshape(-1, 32)
        power, counts = apply(power, power), counts >> 1
    return result


def crc_of_bit(bit: int, zeros: int) -> int:
    """Return one bit of a CRC advanced by a number of zero bits."""
    value = 1 << bit
    for _ in range(zeros):
        value = value >> 1 ^ (POLYNOMIAL if value & 1 else 0)
    return value


def apply(matrix: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Multiply a matrix over GF(2), given by its columns (32,) as uint32, with each of some values."""
    bits = values[:, None] >> np.arange(32, dtype=np.uint32) & np.uint32(1)
    return np.bitwise_xor.reduce(bits * matrix, axis=1).astype(np.uint32)


class Checker:
    """Computes the CRC-32 of lines of ``count`` items each, of 32 or 16 bits."""

    def __init__(self, count: int, bits: int = 32) -> None:
        stride, start = moved_by(np.array([THREADS, count]), bits)
        tables = [apply(stride, np.arange(256, dtype=np.uint32) << np.uint32(8 * k)) for k in range(4)]
        # Distance in items from the last one that thread t takes to the end of the line, that item included.
        last = [count - (t + (count - 1 - t) // THREADS * THREADS) if t < count else 0 for t in range(THREADS)]
        self.kind = np.dtype(f"u{bits // 8}")
        self.stride = cuda.to_device(np.stack(tables))
        self.to_end = cuda.to_device(moved_by(np.array(last), bits))
        self.before = np.uint32(int(apply(start, np.array([ONES], np.uint32))[0]) ^ ONES)

    def launch(self, values: Any, out: Any, stream: Any) -> None:
        """Compute the CRC-32 of each line of an array (n, …) of such items into ``out`` (n,)."""
        items = by_line(values).view(self.kind)
        check_kernel()[len(items), THREADS, stream](items, self.stride, self.to_end, self.before, out)


def encode(values: Any, step: float, offset: float, stored: Any, pixels: Any, stream: Any) -> None:
    """Store values (n, …) as integers; see `encode_kernel`."""
    encode_kernel()[len(values), THREADS, stream](by_line(values), step, offset, by_line(stored), pixels)


def by_line(values: Any) -> Any:
    """Return an array (n, …) on the GPU as (n, items)."""
    return values.reshape((values.shape[0], values.size // values.shape[0]))


class CountsOnGpu(NamedTuple):
    """Counts of a block of n lines, on GPU or host; all but the last three as in `unmix.summary.BlockCounts`."""

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
    """Return the number of steps from which on pixels are counted together; a search for p endmembers ends there."""
    # At most 2000 (above 330 endmembers), since the counts are in the shared memory of a block of threads.
    return min(STEPS_PER_ENDMEMBER * p + 20, 2000)


def count_shapes(lines: int, p: int) -> CountsOnGpu:
    """Return type and shape of each field of `CountsOnGpu`, for a block of ``lines``."""
    most, each = most_steps(p), (lines, p)
    return CountsOnGpu(
        (np.int32, (lines, 4)),
        (np.float64, (lines, 4)),
        (np.int32, (lines, most + 1)),
        (np.int32, (lines, BINS)),
        (np.int32, (lines, KAPPA_BINS)),
        (np.float64, each),
        (np.float64, each),
        (np.int32, each),
        (np.int32, each),
        *((np.uint32, (lines,)),) * 3,
    )


@on_gpu
def reduce_threads(sums, maxima, t, width):
    """Reduce rows of ``sums`` by addition and of ``maxima`` by maximum into the first of each ``width`` threads."""
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
def count_in_use(line, t, p, state, abundance, relative, part, maxima, sums, most, there, outside):
    """Count per endmember by a warp, with one reduction for its four counts."""
    # A block for each endmember, and a reduction for each count, took twice as long.
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
    """Return the kernel of `unmix.summary.count_block`, with `unmix.rescue`'s doubtful pixels; a block per line."""
    last = most_steps(p)
    kinds, size = 4, last + 1

    @cuda_kernel
    def count_block(
        state,
        kappa,
        delta,
        steps,
        abundance,
        rmse,
        relative,
        bits,
        kappa_bits,
        farthest,
        pixels,
        worst,
        histogram,
        misfit,
        kappas,
        sums,
        most,
        there,
        outside,
    ):
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
        count_in_use(line, t, p, state, abundance, relative, part, maxima, sums, most, there, outside)

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
        self,
        p: int,
        samples: int,
        farthest: float,
        L: int = 0,
        steps: Mapping[str, tuple[float, float]] | None = None,
        shares: tuple[np.ndarray, float, float] | None = None,
    ) -> None:
        self.farthest, self.steps = farthest, steps or {}
        self.kernel = count_kernel(p)
        self.shares = None if shares is None else (cuda.to_device(shares[0]), *shares[1:])
        bands = {"abundance": p, "rmse": 1} | ({"residual": L} if L else {})
        self.checkers = {
            name: Checker(count * samples, 16 if name in self.steps else 32) for name, count in bands.items()
        }

    def launch(
        self,
        results: dict[str, Any],
        counts: CountsOnGpu,
        integers: dict[str, Any],
        fractions: dict[str, Any],
        stream: Any,
    ) -> None:
        """Fill device arrays with fractions, counts and integers of ``results``; count the fractions, if any."""
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
