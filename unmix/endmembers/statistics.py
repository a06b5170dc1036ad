"""Count, mean and second moment of a scene in one pass, and projections of its pixels; blocks and threads do not change a bit of them.

Each line is summed separately, its pixels in order, and the sums of lines are added in order; threads share the lines.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from ..blocks import plan_blocks
from ..compiled.jit import allocating, compiled
from ..compiled.simd import WIDE
from ..errors import CubeError
from ..io import Cube, Scene, bytes_per_line, read_blocks
from ..scene.fill import ConstantPixels
from ..solvers.pixels.gather import Block, Stored, block_maker, gather_block, product_function

# Pixels added to the second moment at a time; a multiple of every SIMD width.
STRETCH = 64
# Pairs of neighbours for each band that suffice for their covariance: lines are left out where a scene has more.
PAIRS_A_BAND = 200
FEWEST_LINES = 64
# Bytes up to which a matrix (bands, bands) is allowed whatever the budget: 5792 bands.
LARGEST_MATRIX = 2**28
WIDTH, product = WIDE.width, product_function(WIDE)


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
    pairs : int
        Pairs of valid neighbours in a line that differ in some band.
    differences : array (L, L), float64
        Mean of ``d dᵀ / 2`` over their differences d: the covariance of noise that pixels do not share, and of texture (Green et al.
        1988).
    """

    pixels: int
    mean: np.ndarray
    second: np.ndarray
    pairs: int
    differences: np.ndarray

    @property
    def covariance(self) -> np.ndarray:
        """The covariance ``second − mean meanᵀ``, (L, L)."""
        return self.second - np.outer(self.mean, self.mean)


@compiled
def add_products(rows, second):
    """Add ``y yᵀ`` of `STRETCH` pixels to the lower triangle of a matrix, four in each pass: it is read a quarter as often."""
    for s in range(0, STRETCH, 4):
        for i in range(second.shape[0]):
            y0, y1, y2, y3 = rows[s, i], rows[s + 1, i], rows[s + 2, i], rows[s + 3, i]
            for j in range(i + 1):
                second[i, j] += y0 * rows[s, j] + y1 * rows[s + 1, j] + y2 * rows[s + 2, j] + y3 * rows[s + 3, j]


@compiled
def subtract_before(rows, valid, last):
    """Replace each of `STRETCH` pixels by its difference from the pixel before it; return how many differences are not zero.

    A difference is zero if either pixel is not valid or both are equal. ``last[0]`` is the pixel before the stretch, then its last one.
    """
    L, pairs = rows.shape[1], 0
    for b in range(L):
        last[1, b] = rows[STRETCH - 1, b]
    for s in range(STRETCH - 1, -1, -1):
        both = valid[s + 1] and valid[s]
        different = False
        for b in range(L):
            d = rows[s, b] - (rows[s - 1, b] if s > 0 else last[0, b])
            rows[s, b] = d if both else 0.0
            different |= both and d != 0.0
        pairs += different
    for b in range(L):
        last[0, b] = last[1, b]
    valid[0] = valid[STRETCH]
    return pairs


@allocating
def sum_line(block, line, samples, stored, total, second, differences):
    """Sum one line of a block, and differences of its pixels if there is a matrix for them."""
    L, width = total.shape[0], WIDTH
    pixels, pairs = 0, 0
    Y, missing, size = np.empty((L, width)), np.empty((1, width)), np.empty((1, width))
    rows, last = np.zeros((STRETCH, L)), np.zeros((2, L))
    valid = np.zeros(STRETCH + 1, np.bool_)  # the first is that of the pixel before the stretch
    for start in range(0, samples, STRETCH):
        for first in range(start, start + STRETCH, width):
            count = min(width, samples - first)
            at = first - start
            if count <= 0:
                rows[at:] = 0.0
                valid[at + 1 :] = False
                break
            gather_block(block, line, first, count, stored, Y, missing, size, size)
            for s in range(width):
                valid[at + s + 1] = s < count and missing[0, s] == 0.0
                pixels += missing[0, s] == 0.0
                for b in range(L):
                    rows[at + s, b] = Y[b, s]
                    total[b] += Y[b, s]
        add_products(rows, second)
        if differences.shape[0] > 0:
            pairs += subtract_before(rows, valid, last)
            add_products(rows, differences)
    return pixels, pairs


@allocating
def project_line(block, line, samples, stored, U, shift, out):
    """Project one line of a block to d dimensions."""
    (L, d), width = U.shape, WIDTH
    Y, Z = np.empty((L, width)), np.empty((d, width))
    missing, size = np.empty((1, width)), np.empty((1, width))
    for first in range(0, samples, width):
        count = min(width, samples - first)
        gather_block(block, line, first, count, stored, Y, missing, size, size)
        product(U, Y, Z)
        for s in range(count):
            for j in range(d):
                out[first + s, j] = Z[j, s] - shift[j] if missing[0, s] == 0.0 else np.nan
    return 0


def walk(cube: Cube, budget: int, beside: int = 0) -> Iterator[tuple[slice, np.ndarray]]:
    """Read the scene once, in blocks of a memory budget; ``beside`` is the bytes that the caller needs for each line of a block."""
    return read_blocks(
        cube, plan_blocks(cube.lines, bytes_per_line(cube) + beside, budget, 1, chunk=cube.lines_together)
    )


def stored_of(scene: Scene) -> Stored:
    """Return the bands and nodata value in the form that compiled functions take; NaN stands for no nodata value."""
    _, bands, nodata = scene
    return Stored(bands.index, bands.gain, bands.offset, float("nan") if nodata is None else nodata)


def moments(scene: Scene, budget: int, threads: int) -> Moments:
    """Compute the mean and second moment of the valid pixels, in one pass; all zero where there are none.

    Also warn of fill values that no header declares; see `unmix.scene.fill`. `CubeError` if the second moment
    of all bands does not fit in memory.
    """
    cube, L = scene.cube, len(scene.bands.index)
    size = 8 * L * L
    if size > max(budget, LARGEST_MATRIX):
        raise CubeError(
            f"{cube.path}: {L} bands: their second moment takes {size} bytes; use fewer `bands`, or give `endmembers`"
        )
    stored = stored_of(scene)
    block_of = block_maker(cube.interleave, stored)
    total, sums, pixels, pairs = np.zeros(L), np.zeros((2, L, L)), 0, 0
    # Neighbours of every ``each``-th line are enough; the choice depends on the scene alone. Masks may leave some of them empty.
    each = max(1, min(cube.lines * max(0, cube.samples - 1) // (PAIRS_A_BAND * L), cube.lines // FEWEST_LINES))
    # Lines summed at a time: each has its own matrices.
    lines_at_once = max(1, min(2 * threads, int(budget / (size * (1.0 + 1.0 / each)))))

    def one_line(block: Block, first: int, line: int) -> tuple[tuple[int, int], np.ndarray, np.ndarray]:
        takes_part = (first + line) % each == 0
        line_total, line_sums = np.zeros(L), np.zeros((1 + takes_part, L, L))
        differences = line_sums[1] if takes_part else line_sums[0, :0]
        counts = sum_line(block, line, cube.samples, stored, line_total, line_sums[0], differences)
        return counts, line_total, line_sums

    constants = ConstantPixels(scene)

    with ThreadPoolExecutor(threads) as pool:
        for lines, raw in walk(cube, budget):
            constants.look(raw, lines)
            block, n = block_of(raw), lines.stop - lines.start
            for first in range(0, n, lines_at_once):
                some = range(first, min(first + lines_at_once, n))
                for counts, line_total, of_line in pool.map(functools.partial(one_line, block, lines.start), some):
                    pixels, pairs = pixels + counts[0], pairs + counts[1]
                    np.add(total, line_total, out=total)
                    np.add(sums[: len(of_line)], of_line, out=sums[: len(of_line)])
    constants.warn()
    second, differences = (np.tril(matrix) + np.tril(matrix, -1).T for matrix in sums)
    n = max(1, pixels)
    return Moments(pixels, total / n, second / n, pairs, differences / (2 * max(1, pairs)))


def merged(parts: Sequence[Moments]) -> Moments:
    """Return the moments of several scenes together; those of one are as they are, to the bit."""
    if len(parts) == 1:
        return parts[0]
    pixels, pairs = sum(part.pixels for part in parts), sum(part.pairs for part in parts)
    mean, second = (
        sum(getattr(part, name) * (part.pixels / max(1, pixels)) for part in parts) for name in ("mean", "second")
    )
    differences = sum(part.differences * (part.pairs / max(1, pairs)) for part in parts)
    return Moments(pixels, np.asarray(mean), np.asarray(second), pairs, np.asarray(differences))


def projected(
    scene: Scene, budget: int, threads: int, U: np.ndarray, shift: np.ndarray, visit: Callable[[int, np.ndarray], None]
) -> None:
    """Project every pixel, ``x = Uᵀy − shift`` with U (L, d) and shift (d,), in one pass.

    ``visit`` receives the number of a block's first pixel and the projections of its pixels, array (pixels, d), NaN where masked. The
    array is reused for the next block.
    """
    cube, stored = scene.cube, stored_of(scene)

    def one_line(block: Block, line: int, out: np.ndarray) -> None:
        project_line(block, line, cube.samples, stored, U, shift, out)

    each_line(cube, stored, budget, threads, U.shape[1:], one_line, visit)


def each_line(
    cube: Cube, stored: Stored, budget: int, threads: int, shape: tuple[int, ...],
    one_line: Callable[[Block, int, np.ndarray], None], visit: Callable[[int, np.ndarray], None],
) -> None:  # fmt: skip
    """Read the scene once, compute a result for each pixel, line by line on threads, and pass the results of each block to ``visit``.

    ``one_line`` fills ``out`` (samples, ...) from line ``line`` of a block, which is for ``stored``; ``shape`` is that of one pixel's
    result; ``visit`` as of `projected`.
    """
    out, block_of = np.empty((0, cube.samples, *shape)), block_maker(cube.interleave, stored)
    with ThreadPoolExecutor(threads) as pool:
        for lines, raw in walk(cube, budget, 8 * math.prod(shape) * cube.samples):
            n = lines.stop - lines.start
            if len(out) < n:
                out = np.empty((n, cube.samples, *shape))
            block = block_of(raw)
            list(pool.map(functools.partial(one_line, block), range(n), out))
            visit(lines.start * cube.samples, out[:n].reshape(-1, *shape))
