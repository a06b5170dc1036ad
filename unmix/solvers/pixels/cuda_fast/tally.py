"""What a run adds up over its pixels, and the checks of its lines, made on the GPU where the answers are.

On the host both cost more than all reading, copying and writing together (10 million pixels: 0.34 s beside 0.20), and κ, δ, steps
and states crossed the bus for them alone. A block that needs a second look is still counted there (`unmix.summary`).
"""

import functools
from typing import Any, NamedTuple

import numpy as np
from numba import float64, int32, uint32

from ....certificate import CERTIFIED, MASKED, SOLVED
from ....compiled.cuda import cuda, cuda_kernel, on_gpu
from ....summary import BINS, CORNER, POOR, THERE, bin_of
from ..scalar import STEPS_PER_ENDMEMBER

# Threads a line; a power of two.
THREADS = 128
# CRC-32, as zlib: bits from the lowest, all ones before and after.
POLYNOMIAL, ONES = 0xEDB88320, 0xFFFFFFFF


class Counts(NamedTuple):
    """Of a block of n lines; arrays on the GPU or on the host. All but the last two as `unmix.summary.Counts`."""

    pixels: Any  # (n, 4) int32: solved, masked, failed, doubtful
    worst: Any  # (n, 4) float64: κ, δ, relative RMSE, RMSE
    steps: Any  # (n, most + 1) int32: how many solved pixels took 0, 1, 2, … steps
    misfit: Any  # (n, 256) int32: how many have a relative RMSE in each bin
    sums: Any  # (n, p) float64: of the abundances of solved pixels
    most: Any  # (n, p) float64
    there: Any  # (n, p) int32
    outside: Any  # (n, p) int32
    abundance: Any  # (n,) uint32: CRC-32 of each line of the abundances
    rmse: Any  # (n,) uint32: the same of the RMSE


def count_shapes(lines: int, p: int) -> Counts:
    """Type and shape of each field, for a block of so many lines."""
    most = STEPS_PER_ENDMEMBER * p + 20
    each = lines, p
    return Counts(
        (np.int32, (lines, 4)), (np.float64, (lines, 4)), (np.int32, (lines, most + 1)), (np.int32, (lines, BINS)), (np.float64, each),
        (np.float64, each), (np.int32, each), (np.int32, each), (np.uint32, (lines,)), (np.uint32, (lines,)),
    )  # fmt: skip


@on_gpu
def gather(sums, mosts, t, width):
    """Add up the rows of ``sums``, and take the largest of those of ``mosts``, over each ``width`` threads: the first has it."""
    half = width // 2
    while half > 0:
        cuda.syncthreads()
        if t % width < half:
            for i in range(sums.shape[0]):
                sums[i, t] += sums[i, t + half]
            for i in range(mosts.shape[0]):
                mosts[i, t] = max(mosts[i, t], mosts[i, t + half])
        half //= 2
    cuda.syncthreads()


@on_gpu
def count_endmembers(line, t, p, state, abundance, relative, part, mosts, sums, most, there, outside):
    """A warp an endmember: one reduction for all four counts. (A block an endmember, a reduction a count, took twice as long.)"""
    samples, lane = state.shape[1], t % 32
    for first in range(0, p, THREADS // 32):
        j = first + t // 32
        total, largest, some, all_of_it = 0.0, -np.inf, 0.0, 0.0
        if j < p:
            for s in range(lane, samples, 32):
                if state[line, s] == SOLVED:
                    a = abundance[line, j, s]
                    total += float(a)
                    largest = max(largest, float(a))
                    some += 1.0 if a > THERE else 0.0
                    if a > CORNER and relative[line, s] > POOR:
                        all_of_it += 1.0
        part[0, t], part[1, t], part[2, t], mosts[0, t] = total, some, all_of_it, largest
        gather(part, mosts, t, 32)
        if j < p and lane == 0:
            sums[line, j], most[line, j] = part[0, t], mosts[0, t]
            there[line, j], outside[line, j] = int(part[1, t]), int(part[2, t])


@functools.cache
def count_kernel(p: int) -> Any:
    """A block of threads a line: `unmix.summary.count_block`, and what `unmix.rescue` asks first."""
    most_steps = STEPS_PER_ENDMEMBER * p + 20
    kinds, size = 4, most_steps + 1

    @cuda_kernel
    def count_block(state, kappa, delta, steps, abundance, rmse, relative, bits, farthest, pixels, worst, histogram, misfit, sums,
                    most, there, outside):  # fmt: skip
        found = cuda.shared.array(kinds, int32)
        taken = cuda.shared.array(size, int32)
        binned = cuda.shared.array(BINS, int32)
        part = cuda.shared.array((3, THREADS), float64)
        mosts = cuda.shared.array((4, THREADS), float64)
        line, t = cuda.grid(1) // THREADS, cuda.grid(1) % THREADS
        samples = state.shape[1]
        for i in range(t, size, THREADS):
            taken[i] = 0
        for i in range(t, BINS, THREADS):
            binned[i] = 0
        if t < kinds:
            found[t] = 0
        cuda.syncthreads()
        solved, masked, failed, doubtful = 0, 0, 0, 0
        wrong, far, loose, left = 0.0, 0.0, 0.0, 0.0
        for s in range(t, samples, THREADS):
            if state[line, s] == SOLVED:
                k, d, r = kappa[line, s], delta[line, s], float(rmse[line, s])
                solved += 1
                failed += 0 if k <= CERTIFIED else 1
                doubtful += 0 if k <= CERTIFIED and d <= farthest else 1
                wrong = max(wrong, k if k == k else np.inf)
                far = max(far, d if d == d else np.inf)
                left = max(left, r if r == r else np.inf)
                cuda.atomic.add(taken, min(steps[line, s], most_steps), 1)
                if relative[line, s] >= 0.0:
                    loose = max(loose, float(relative[line, s]))
                    cuda.atomic.add(binned, bin_of(bits[line, s]), 1)
            elif state[line, s] == MASKED:
                masked += 1
        cuda.atomic.add(found, 0, solved)
        cuda.atomic.add(found, 1, masked)
        cuda.atomic.add(found, 2, failed)
        cuda.atomic.add(found, 3, doubtful)
        mosts[0, t], mosts[1, t], mosts[2, t], mosts[3, t] = wrong, far, loose, left
        part[0, t], part[1, t], part[2, t] = 0.0, 0.0, 0.0
        gather(part, mosts, t, THREADS)
        if t < kinds:
            pixels[line, t] = found[t]
            worst[line, t] = mosts[t, 0]
        for i in range(t, size, THREADS):
            histogram[line, i] = taken[i]
        for i in range(t, BINS, THREADS):
            misfit[line, i] = binned[i]
        cuda.syncthreads()
        count_endmembers(line, t, p, state, abundance, relative, part, mosts, sums, most, there, outside)

    return count_block


@functools.cache
def check_kernel() -> Any:
    """A block of threads a line: its CRC-32.

    A CRC is linear. Each thread takes every `THREADS`-th word, moving what it has by as many words (`stride`, four tables of a
    byte each) before it adds the next; what it has in the end is moved to the end of the line (`to_end`), and all are added.
    """

    @cuda_kernel
    def check_lines(words, stride, to_end, before, out):
        table = cuda.shared.array((4, 256), uint32)
        part = cuda.shared.array(THREADS, uint32)
        line, t = cuda.grid(1) // THREADS, cuda.grid(1) % THREADS
        for i in range(t, 1024, THREADS):
            table[i // 256, i % 256] = stride[i // 256, i % 256]
        cuda.syncthreads()
        n = words.shape[1]
        have = uint32(0)
        for i in range(t, n, THREADS):
            have = uint32(
                table[0, have & 255]
                ^ table[1, (have >> 8) & 255]
                ^ table[2, (have >> 16) & 255]
                ^ table[3, have >> 24]
                ^ words[line, i]
            )
        moved = uint32(0)
        for bit in range(32):
            moved = uint32(moved ^ (to_end[t, bit] if (have >> bit) & 1 else 0))
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


def moved_by(words: int) -> np.ndarray:
    """What becomes of each of the 32 bits of a CRC when so many words of zeros follow; (32,) uint32."""
    one = np.array([crc_of_bit(bit) for bit in range(32)], np.uint32)
    result, power = np.uint32(1) << np.arange(32, dtype=np.uint32), one
    while words:
        if words & 1:
            result = apply(power, result)
        power, words = apply(power, power), words >> 1
    return result


def crc_of_bit(bit: int) -> int:
    """One bit of a CRC after 32 bits of zeros."""
    value = 1 << bit
    for _ in range(32):
        value = value >> 1 ^ (POLYNOMIAL if value & 1 else 0)
    return value


def apply(matrix: np.ndarray, values: np.ndarray) -> np.ndarray:
    """A matrix over GF(2), its columns (32,), times each of some values."""
    bits = values[:, None] >> np.arange(32, dtype=np.uint32) & np.uint32(1)
    return np.bitwise_xor.reduce(bits * matrix, axis=1).astype(np.uint32)


class Checker:
    """CRC-32 of lines of ``words`` words each."""

    def __init__(self, words: int) -> None:
        stride = moved_by(THREADS)
        tables = [apply(stride, np.arange(256, dtype=np.uint32) << np.uint32(8 * k)) for k in range(4)]
        # The last word that thread t takes is so many words from the end of the line, itself included.
        last = [words - (t + (words - 1 - t) // THREADS * THREADS) if t < words else 0 for t in range(THREADS)]
        self.stride = cuda.to_device(np.stack(tables))
        self.to_end = cuda.to_device(np.stack([moved_by(distance) for distance in last]))
        self.before = np.uint32(int(apply(moved_by(words), np.array([ONES], np.uint32))[0]) ^ ONES)

    def launch(self, values: Any, out: Any, stream: Any) -> None:
        """Check each line of a float32 array (n, ·, samples) into ``out`` (n,)."""
        words = values.reshape((values.shape[0], values.size // values.shape[0])).view(np.uint32)
        check_kernel()[words.shape[0], THREADS, stream](words, self.stride, self.to_end, self.before, out)


class Counter:
    """Counts and checks blocks of lines of ``samples`` pixels and p endmembers; δ above ``farthest`` is doubtful."""

    def __init__(self, p: int, samples: int, farthest: float) -> None:
        self.farthest = farthest
        self.kernel = count_kernel(p)
        self.checkers = Checker(p * samples), Checker(samples)

    def launch(self, results: dict[str, Any], counts: Counts, stream: Any) -> None:
        """Fill ``counts``, device arrays for as many lines."""
        names = ("state", "kappa", "delta", "steps", "abundance", "rmse", "relative")
        bits = results["relative"].view(np.int32)
        self.kernel[len(results["state"]), THREADS, stream](
            *(results[name] for name in names), bits, self.farthest, *counts[:8]
        )
        for checker, name in zip(self.checkers, ("abundance", "rmse")):
            checker.launch(results[name], getattr(counts, name), stream)
