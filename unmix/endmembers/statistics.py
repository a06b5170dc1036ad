"""Count, mean and second moment of a scene in one pass, and projections of its pixels; blocks and threads do not change a bit of them.

Each line is summed separately, its pixels in order, and the sums of lines are added in order; threads share the lines.
"""

import functools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..blocks import plan_blocks
from ..compiled.jit import allocating
from ..compiled.simd import WIDE
from ..errors import CubeError
from ..io.cube import Bands, Cube, bytes_per_line
from ..solvers.pixels.gather import Stored, gather_function, product_function

# Pixels added to the second moment at a time; a multiple of every SIMD width.
STRETCH = 64
# Bytes up to which a matrix (bands, bands) is allowed whatever the budget: 5792 bands.
LARGEST_MATRIX = 2**28


@dataclass(frozen=True)
class Moments:
    """Count and moments of all valid pixels of a scene.

    Attributes
    ----------
    pixels : int
        Number of valid pixels.
    mean : array (L,), float64
    second : array (L, L), float64
        Mean of ``y yᵀ``.
    """

    pixels: int
    mean: np.ndarray
    second: np.ndarray

    @property
    def covariance(self) -> np.ndarray:
        """The covariance ``second − mean meanᵀ``, (L, L)."""
        return self.second - np.outer(self.mean, self.mean)


@functools.cache
def line_sums(interleave: str) -> Any:
    """Return the compiled function that sums one line of a block."""
    gather, width = gather_function(interleave, WIDE), WIDE.width

    @allocating
    def sum_line(raw, line, samples, stored, total, second):
        L = total.shape[0]
        pixels = 0
        Y, missing, size = np.empty((L, width)), np.empty((1, width)), np.empty((1, width))
        rows = np.zeros((STRETCH, L))
        for start in range(0, samples, STRETCH):
            for first in range(start, start + STRETCH, width):
                count = min(width, samples - first)
                if count <= 0:
                    rows[first - start :] = 0.0
                    break
                gather(raw, line, first, count, stored, Y, missing, size, size)
                for s in range(width):
                    pixels += missing[0, s] == 0.0
                    for b in range(L):
                        rows[first - start + s, b] = Y[b, s]
                        total[b] += Y[b, s]
            for s in range(0, STRETCH, 4):  # four pixels in each pass over the matrix: it is read a quarter as often
                for i in range(L):
                    y0, y1, y2, y3 = rows[s, i], rows[s + 1, i], rows[s + 2, i], rows[s + 3, i]
                    for j in range(i + 1):
                        second[i, j] += (
                            y0 * rows[s, j] + y1 * rows[s + 1, j] + y2 * rows[s + 2, j] + y3 * rows[s + 3, j]
                        )
        return pixels

    return sum_line


@functools.cache
def line_projection(interleave: str) -> Any:
    """Return the compiled function that projects one line of a block to d dimensions."""
    gather, product, width = gather_function(interleave, WIDE), product_function(WIDE), WIDE.width

    @allocating
    def project_line(raw, line, samples, stored, U, shift, out):
        L, d = U.shape
        Y, Z = np.empty((L, width)), np.empty((d, width))
        missing, size = np.empty((1, width)), np.empty((1, width))
        for first in range(0, samples, width):
            count = min(width, samples - first)
            gather(raw, line, first, count, stored, Y, missing, size, size)
            product(U, Y, Z)
            for s in range(count):
                for j in range(d):
                    out[first + s, j] = Z[j, s] - shift[j] if missing[0, s] == 0.0 else np.nan
        return 0

    return project_line


def walk(cube: Cube, budget: int, visit: Callable[[np.ndarray, slice], None], beside: int = 0) -> None:
    """Read the scene once and pass each block to ``visit``, in order; ``beside`` is the bytes that ``visit`` needs for each line."""
    block_plan = plan_blocks(cube.lines, bytes_per_line(cube) + beside, budget, 1, chunk=cube.lines_together)
    buffer = np.empty(block_plan.lines_per_block * bytes_per_line(cube), np.uint8)
    for lines in block_plan:
        visit(cube.read(lines, buffer), lines)


def stored_of(bands: Bands, nodata: float | None) -> Stored:
    """Return the bands and nodata value in the form that compiled functions take; NaN stands for no nodata value."""
    return Stored(bands.index, bands.gain, bands.offset, float("nan") if nodata is None else nodata)


def moments(cube: Cube, bands: Bands, nodata: float | None, budget: int, threads: int) -> Moments:
    """Compute the mean and second moment of the valid pixels, in one pass.

    Raises
    ------
    CubeError
        If no pixel is valid, or there are so many bands that their second moment does not fit in memory.
    """
    L = len(bands.index)
    size = 8 * L * L
    if size > max(budget, LARGEST_MATRIX):
        raise CubeError(
            f"{cube.path}: {L} bands: their second moment takes {size} bytes; use fewer `bands`, or give `endmembers`"
        )
    stored, sum_line = stored_of(bands, nodata), line_sums(cube.interleave)
    total, second, pixels = np.zeros(L), np.zeros((L, L)), 0
    lines_at_once = max(1, min(2 * threads, budget // size))  # lines summed at a time: each has its own matrix

    def one_line(raw: np.ndarray, line: int) -> tuple[int, np.ndarray, np.ndarray]:
        line_total, line_second = np.zeros(L), np.zeros((L, L))
        return sum_line(raw, line, cube.samples, stored, line_total, line_second), line_total, line_second

    def visit(raw: np.ndarray, lines: slice) -> None:
        nonlocal pixels
        n = lines.stop - lines.start
        for first in range(0, n, lines_at_once):
            for count, line_total, line_second in pool.map(
                functools.partial(one_line, raw), range(first, min(first + lines_at_once, n))
            ):
                pixels += count
                np.add(total, line_total, out=total)
                np.add(second, line_second, out=second)

    with ThreadPoolExecutor(threads) as pool:
        walk(cube, budget, visit)
    if pixels == 0:
        raise CubeError(f"{cube.path}: all {cube.lines * cube.samples} pixels are masked as nodata")
    second = np.tril(second) + np.tril(second, -1).T
    return Moments(pixels, total / pixels, second / pixels)


def projected(
    cube: Cube,
    bands: Bands,
    nodata: float | None,
    budget: int,
    threads: int,
    U: np.ndarray,
    shift: np.ndarray,
    visit: Callable[[int, np.ndarray], None],
) -> None:
    """Project every pixel, ``x = Uᵀy − shift``, in one pass.

    Parameters
    ----------
    U : array (L, d), float64
    shift : array (d,), float64
    visit : callable
        Receives the number of a block's first pixel and the projections of its pixels, array (pixels, d), NaN where masked. The
        array is reused for the next block.
    """
    stored, project_line = stored_of(bands, nodata), line_projection(cube.interleave)

    def one_line(raw: np.ndarray, line: int, out: np.ndarray) -> None:
        project_line(raw, line, cube.samples, stored, U, shift, out)

    each_line(cube, budget, threads, U.shape[1:], one_line, visit)


def each_line(
    cube: Cube,
    budget: int,
    threads: int,
    shape: tuple[int, ...],
    one_line: Callable[[np.ndarray, int, np.ndarray], None],
    visit: Callable[[int, np.ndarray], None],
) -> None:
    """Read the scene once, compute a result for each pixel, line by line on threads, and pass the results of each block to ``visit``.

    Parameters
    ----------
    shape : tuple of int
        Shape of one pixel's result.
    one_line : callable
        Fills ``out`` (samples, ...) from line ``line`` of ``raw``.
    visit : callable
        See `projected`.
    """
    out = np.empty((0, *shape))

    def one_block(raw: np.ndarray, lines: slice) -> None:
        nonlocal out
        pixels = (lines.stop - lines.start) * cube.samples
        if len(out) < pixels:
            out = np.empty((pixels, *shape))

        def work(line: int) -> None:
            one_line(raw, line, out[line * cube.samples : (line + 1) * cube.samples])

        list(pool.map(work, range(lines.stop - lines.start)))
        visit(lines.start * cube.samples, out[:pixels])

    with ThreadPoolExecutor(threads) as pool:
        walk(cube, budget, one_block, 8 * math.prod(shape) * cube.samples)
