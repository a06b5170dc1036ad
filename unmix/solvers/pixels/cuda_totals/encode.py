"""Encode the stored results of a block on the GPU: 16-bit integers for values, and the CRC-32 of every line."""

import functools
from typing import Any

import numpy as np
from numba import uint32

from ....compiled.cuda import cuda, cuda_kernel
from ....steps import MISFIT, integer_of
from ....summary import DOUBTFUL

# Threads per line; a power of two.
THREADS = 128
# zlib's CRC-32: lowest bit first; the register starts as all ones and is inverted at the end.
POLYNOMIAL, ONES = 0xEDB88320, 0xFFFFFFFF


@functools.cache
def encode_kernel() -> Any:
    """Return the kernel that stores lines of values as integers (`unmix.steps`); a block of threads per line.

    It counts the values that fit no integer as doubtful pixels, which sends their lines to the host.
    """

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
    """Return the kernel that computes the CRC-32 of lines; a block of threads per line.

    A CRC is linear. Each thread takes every `THREADS`-th item: it advances its CRC by that many items (``stride``, four tables of a
    byte each) before it adds the next. Finally it advances its CRC to the end of the line (``to_end``), and all are added.
    """

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
    """Return each of the 32 bits of a CRC advanced by ``counts`` (n,) items of zeros, of ``bits`` each; (n, 32) uint32."""
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
