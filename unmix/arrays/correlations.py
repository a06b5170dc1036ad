"""The correlations ``Eᵀy`` of many pixels with a library, which are all that collaborative regression needs of a pixel."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..blocks import cores
from ..compiled.simd import WIDE, aligned_zeros
from ..library import Endmembers
from ..methods import choose
from ..problem import Problem, plan_problem
from ..problem.factors import gram_matrix
from ..solvers.pixels.rows import (
    Regression,
    Totals,
    add_pixels,
    correlate,
    from_vectors,
    new_scratch,
    new_tile,
    new_totals,
    project,
    vectors_of,
)
from .gpu import Gpu, gpu_of, guarded
from .pixels import solve_pixels

# Pixels of a block, which a thread takes, and the most blocks of a batch, for which a device is opened. A block is what is summed on a
# CPU, a batch on a GPU: neither depends on memory, or threads. Where memory is short, a CPU takes fewer blocks at a time.
BLOCK_PIXELS, BATCH_BLOCKS, LEAST_BATCH_BLOCKS = 2048, 32, 4
# The share of a GPU's free memory that correlations may take; the rest is for the search and others.
SHARE_OF_GPU = 0.7
# From this number of pixels for each endmember in use on, the curvature is that of one pixel of four: Newton's steps then need one
# pass more at most, and a pass half of the time. (With a fifth of these pixels, noiseless ones with small λ took twice as many passes.)
LEAST_PIXELS, ONE_OF = 1000, 4
Visit = Callable[[np.ndarray], None]
EachBlock = Callable[[Visit], None]
# Σ over some pixels: totals (6,), rows (k,), duals (p,) and curvature (k, k), as `unmix.solvers.pixels.rows.Totals` has them.
Sums = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class Block(NamedTuple):
    """Pixels by their correlations."""

    F: Any  # as `unmix.solvers.pixels.rows` has them; float64, on the device that solves the pixels
    squares: Any  # (n,) |y|²
    highest: float  # the largest |y_b|


def blocks_of(Y: np.ndarray) -> EachBlock:
    """Return a function that passes pixels (n, L) to another, `BLOCK_PIXELS` at a time."""

    def each_block(visit: Visit) -> None:
        for first in range(0, len(Y), BLOCK_PIXELS):
            visit(Y[first : first + BLOCK_PIXELS])

    return each_block


class Pass(Protocol):
    """A pass over all pixels, for given costs of k endmembers; both methods take a batch that `Correlations.visit` passes on."""

    def solve(self, batch: list[Block]) -> np.ndarray:
        """Return the abundances, (n, k)."""

    def sums(self, batch: list[Block]) -> Iterable[Sums]:
        """Solve the pixels, and yield the sums of parts of them."""


class Correlations:
    """The pixels of a scene or an array by their correlations with a library.

    Correlations are kept from one pass to the next as far as memory allows; those of other pixels are made anew.

    Parameters
    ----------
    each_block : callable
        Passes all pixels to a function, `BLOCK_PIXELS` at a time, (n, L) float64, the same each time it is called, and arrays that stay
        as they are.
    E : array (L, p), float64
    budget : int, optional
        Bytes of memory for correlations that are kept; default is no limit. On a GPU it is a share of what is free.
    device : str
        The device that solves pixels: see `unmix.devices.choose_device`; of several GPUs it is the first.
    threads : int, optional
        CPU threads; default is all.

    Attributes
    ----------
    E : array (L, p), float64
        In C order.
    G : array (p, p), float64
        Their Gram matrix.
    count : int
        The pixels, after the first visit.
    highest : float
        The largest size of a value, after the first visit.
    """

    def __init__(
        self, each_block: EachBlock, E: np.ndarray, *, budget: int | None = None, device: str = "cpu", threads: int | None = None,
    ) -> None:  # fmt: skip
        self.each_block, self.E, self.G = each_block, np.ascontiguousarray(E, float), gram_matrix(E)
        self.threads, self.gpu = threads or cores(), gpu_of(device)
        with guarded(self.gpu):
            self.room = (
                self.gpu.free_memory() * SHARE_OF_GPU if self.gpu else float("inf") if budget is None else budget
            )
        self.batch = BATCH_BLOCKS
        if budget is not None and self.gpu is None:  # beside a batch there are its pixels, and those of the next
            self.batch = min(max(budget // (32 * BLOCK_PIXELS * sum(self.E.shape)), LEAST_BATCH_BLOCKS), BATCH_BLOCKS)
        self.kept: list[list[Block]] = []
        self.has_all, self.count, self.highest = False, 0, 0.0

    def visit(self, use: Callable[[list[Block]], None]) -> None:
        """Pass all pixels to ``use``, some blocks at a time."""
        waiting = list[Any]()
        number = count = 0

        def use_batch(batch: list[Block]) -> None:
            nonlocal count
            count += sum(len(block.squares) for block in batch)
            self.highest = max(self.highest, *(block.highest for block in batch))
            use(batch)

        def use_waiting() -> None:
            first = number - len(waiting)
            batch = self.hold([future.result() for future in waiting])
            waiting.clear()
            size = sum(block.F.nbytes for block in batch)
            if size <= self.room and first == len(self.kept) * self.batch:  # without a gap
                self.kept.append(batch)
                self.room -= size
            use_batch(batch)

        def take(Y: np.ndarray) -> None:
            nonlocal number
            if number >= len(self.kept) * self.batch:
                waiting.append(pool.submit(self.block_of, Y))
            elif number % self.batch == 0:
                use_batch(self.kept[number // self.batch])
            number += 1
            if len(waiting) == self.batch:
                use_waiting()

        if self.has_all:
            for batch in self.kept:
                use_batch(batch)
        else:
            with ThreadPoolExecutor(self.threads) as pool:
                self.each_block(take)
                if waiting:
                    use_waiting()
            self.has_all = number <= len(self.kept) * self.batch
        self.count = count

    def block_of(self, Y: np.ndarray) -> Block:
        """Return the correlations of pixels (n, L)."""
        L, p = self.E.shape
        rows = -(-len(Y) // WIDE.width) * vectors_of(p) * WIDE.width
        block = Block(aligned_zeros(rows, WIDE.width), np.empty(len(Y)), float(np.abs(Y).max(initial=0.0)))
        correlate(Y, self.E, new_tile(L, p), block.F, block.squares)
        return block

    def hold(self, blocks: list[Block]) -> list[Block]:
        """Return a batch as the device takes it: on a GPU one block there."""
        if self.gpu is None:
            return blocks
        with guarded(self.gpu):
            return [upload(blocks, self.gpu.cuda)]

    def begin(self, shared: Regression, costs: np.ndarray) -> Pass:
        """Begin a pass, which minimises each pixel's ``½|y − E a|² + ½ Σ ρ_j a_j²`` over a ≥ 0 in use; ρ are the ``costs``, (k,)."""
        problem, R = None, np.empty((0, 0))
        if len(costs):
            # The Gram matrix with the costs is RᵀR, so that is the least squares of ``R⁻ᵀf − R a``: k bands in place of a pixel's.
            R = np.linalg.qr(np.vstack([self.E[:, shared.used], np.diag(np.sqrt(costs))]))[1]
            names = tuple(f"endmember {j + 1}" for j in shared.used)
            factor = Endmembers(names, np.ascontiguousarray(R), None, source="E")
            problem = plan_problem(factor, *choose("nnls"), warns=False)
        if self.gpu is None:
            return PassOnCpu(self, shared, problem, R)
        with guarded(self.gpu):
            return PassOnGpu(self, shared, problem, self.gpu)

    def every(self, k: int) -> int:
        """Return which share of the pixels has its curvature taken: one of this number."""
        return ONE_OF if self.count >= LEAST_PIXELS * k else 1


class PassOnCpu:
    """See `Pass`. ``problem`` is that of the columns of R (k, k) in place of spectra."""

    def __init__(self, pixels: Correlations, shared: Regression, problem: Problem | None, R: np.ndarray) -> None:
        self.pixels, self.shared, self.problem = pixels, shared, problem
        self.k, self.p, self.every = len(R), len(pixels.G), pixels.every(len(R))
        self.inverse = np.ascontiguousarray(np.linalg.solve(R, np.eye(len(R))))

    def solve(self, batch: list[Block]) -> np.ndarray:
        """See `Pass.solve`."""
        ends = np.cumsum([len(block.squares) for block in batch])
        Y = np.empty((ends[-1], self.k))
        if self.problem is None:
            return Y

        def fill(block: Block, end: int) -> None:
            out = Y[end - len(block.squares) : end]
            project(block.F, vectors_of(self.p), self.shared.used, self.inverse, new_tile(self.k, self.k), out)

        with ThreadPoolExecutor(self.pixels.threads) as pool:
            list(pool.map(fill, batch, ends))
        return solve_pixels(Y, self.problem, self.k, "cpu", self.pixels.threads).abundances

    def sums(self, batch: list[Block]) -> Iterator[Sums]:
        """See `Pass.sums`."""
        ends = np.cumsum([len(block.squares) for block in batch])
        with ThreadPoolExecutor(self.pixels.threads) as pool:
            for found in pool.map(self.sums_of, batch, np.split(self.solve(batch), ends[:-1])):
                curvature = from_vectors(found.curvature, self.k, self.k)
                yield found.totals, found.rows, from_vectors(found.duals, 1, self.p)[0], curvature

    def sums_of(self, block: Block, X: np.ndarray) -> Totals:
        """Return the sums of a block, for its abundances X (n, k)."""
        found = new_totals(self.p, self.k)
        every = self.every if len(X) == BLOCK_PIXELS else 1
        add_pixels(block.F, block.squares, X, every, self.shared, new_scratch(self.p, self.k), found)
        return found


class PassOnGpu:
    """See `Pass`; a batch is one block."""

    def __init__(self, pixels: Correlations, shared: Regression, problem: Problem | None, gpu: Gpu) -> None:
        from ..solvers.pixels.cuda_many.rows import RowsOnGpu

        self.rows, self.problem, self.gpu = RowsOnGpu(shared, len(pixels.G), BLOCK_PIXELS * BATCH_BLOCKS), problem, gpu
        self.every = pixels.every(len(shared.used))

    def solve(self, batch: list[Block]) -> np.ndarray:
        """See `Pass.solve`."""
        with guarded(self.gpu):
            self.rows.search(self.problem, batch[0].F, batch[0].squares)
            return self.rows.abundances(len(batch[0].squares))

    def sums(self, batch: list[Block]) -> Iterator[Sums]:
        """See `Pass.sums`."""
        with guarded(self.gpu):
            self.rows.search(self.problem, batch[0].F, batch[0].squares)
            every = self.every if len(batch[0].squares) == BLOCK_PIXELS * BATCH_BLOCKS else 1
            found = self.rows.sums(batch[0].F, batch[0].squares, every)
        yield found


def upload(blocks: list[Block], cuda: Any) -> Block:
    """Return blocks as one, whose arrays are on the current GPU; ``cuda`` is Numba's module."""
    F = cuda.device_array((sum(len(block.F) for block in blocks), WIDE.width), np.float64)
    first = 0
    for block in blocks:
        F[first : first + len(block.F)].copy_to_device(block.F)
        first += len(block.F)
    squares = cuda.to_device(np.concatenate([block.squares for block in blocks]))
    return Block(F, squares, max(block.highest for block in blocks))
