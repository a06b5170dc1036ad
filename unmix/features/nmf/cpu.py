"""Steps of non-negative matrix factorisation on the CPU: ranges of pixels on threads, without the GIL, in tiles.

Groups of `GROUP` pixels pass through both updates while they are in the cache, so no array of the cube's size is made.
Pixels are divided into parts, whose number depends on the pixels alone, and the sums of the parts are added in order:
the result does not depend on the number of threads. Several steps are one call, in which threads wait for each other at
a barrier: a step of the benchmark takes 1 ms, and threads that Python woke for every step shared one core for as long.

The time is spent in matrix products, in tiles that stay in registers: ``C (+)= A B`` in float32, 8 rows by 32 (or 16)
columns of C at a time. Each step loads two vectors of B, and every entry of A serves both. For products as narrow as 30
columns this is twice as fast as BLAS, which is made for square ones (222 to 235 GFLOP/s per core against 104: 512 x 30
x 3445, Zen 5).
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ...compiled.jit import compiled
from .barrier import new_barrier, wait
from .updates import LEAST_DIVISOR, LOSSES, column_on_simplex, padded_rank, renew

ROWS, LANES = 8, 16
FLOAT, WORD, PLACE = ir.FloatType(), ir.IntType(64), ir.IntType(32)
VECTOR = ir.VectorType(FLOAT, LANES)
UNDEFINED_VECTOR = ir.Constant(VECTOR, ir.Undefined)


def tile_function(vectors: int) -> Any:
    """Return the function ``tile`` for ``vectors`` vectors of 16 columns."""

    @intrinsic
    def tile(typingctx, A, a, by_row, by_turn, B, b, b_by_turn, turns, C, c, c_by_row, add):
        """Set ``C[c + c_by_row r + s] (+)= Σ_t A[a + by_row r + by_turn t] B[b + b_by_turn t + s]``, flat indices."""

        # t takes ``turns`` values; ``add`` = 0 overwrites C.
        def build(context, builder, signature, args):
            A_, a_, by_row_, by_turn_, B_, b_, b_by_turn_, turns_, C_, c_, c_by_row_, add_ = args
            left, right, out = (
                context.make_array(kind)(context, builder, value).data for kind, value in ((A, A_), (B, B_), (C, C_))
            )
            fma = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(VECTOR, [VECTOR] * 3), "llvm.fma.v16f32"
            )

            def vector_at(data, place, s):
                return builder.bitcast(builder.gep(data, [builder.add(place, WORD(LANES * s))]), VECTOR.as_pointer())

            def row_of(start, step, r):
                return builder.add(start, builder.mul(step, WORD(r)))

            sums = [[cgutils.alloca_once(builder, VECTOR) for _ in range(vectors)] for _ in range(ROWS)]
            with builder.if_else(builder.icmp_signed("!=", add_, add_.type(0))) as (adding, overwriting):
                for loads, branch in ((True, adding), (False, overwriting)):
                    with branch:
                        for r, row in enumerate(sums):
                            for s, place in enumerate(row):
                                at = vector_at(out, row_of(c_, c_by_row_, r), s)
                                builder.store(
                                    builder.load(at, align=4) if loads else ir.Constant(VECTOR, [0.0] * LANES), place
                                )
            with cgutils.for_range(builder, turns_) as loop:
                place = builder.add(b_, builder.mul(loop.index, b_by_turn_))
                columns = [builder.load(vector_at(right, place, s), align=4) for s in range(vectors)]
                for r, row in enumerate(sums):
                    at = builder.add(row_of(a_, by_row_, r), builder.mul(loop.index, by_turn_))
                    first = builder.insert_element(UNDEFINED_VECTOR, builder.load(builder.gep(left, [at])), PLACE(0))
                    entry = builder.shuffle_vector(
                        first, UNDEFINED_VECTOR, ir.Constant(ir.VectorType(PLACE, LANES), [0] * LANES)
                    )
                    for column, into in zip(columns, row):
                        builder.store(builder.call(fma, [entry, column, builder.load(into)]), into)
            for r, row in enumerate(sums):
                for s, into in enumerate(row):
                    builder.store(builder.load(into), vector_at(out, row_of(c_, c_by_row_, r), s), align=4)
            return context.get_dummy_value()

        whole = types.intp
        return types.void(A, whole, whole, whole, B, whole, whole, whole, C, whole, whole, whole), build

    return tile


TILES = {1: tile_function(1), 2: tile_function(2)}


# Pixels that are updated together.
GROUP = 64
# Added to the length of buffer rows, one cache line: without it, all rows fall into the same set of the cache.
GAP = LANES
# Most parts of a block; pixels of a part while there are fewer parts.
MOST_PARTS, PIXELS_A_PART = 128, 431
# Most multiplications in one call, about a tenth of a second: Ctrl-C takes effect only between calls.
PRODUCTS_A_CALL = 2**33
wide, narrow = TILES[2], TILES[1]


@compiled
def multiply_tiles(A, a, by_row, by_turn, B, b, turns, C, c, rows, columns, add):
    """Compute ``C (+)= A B`` from flat offsets on, in tiles; ``rows`` is a multiple of 8, ``columns`` of 16."""
    across = C.shape[1]
    for s in range(0, columns - LANES, 2 * LANES):
        for r in range(0, rows, ROWS):
            wide(A, a + r * by_row, by_row, by_turn, B, b + s, B.shape[1], turns, C, c + r * across + s, across, add)
    if columns % (2 * LANES) != 0:
        s = columns - LANES
        for r in range(0, rows, ROWS):
            narrow(A, a + r * by_row, by_row, by_turn, B, b + s, B.shape[1], turns, C, c + r * across + s, across, add)


@compiled
def quotients(X, first, rows, L, Q, divergence):
    """Replace ``E a`` in Q by the quotients ``x / (E a)``, or by x if there is no ``divergence``."""
    for n in range(rows):
        for b in range(L):
            model = Q[n, b]
            Q[n, b] = (
                X[first + n, b] / (model if model > np.float32(LEAST_DIVISOR) else np.float32(LEAST_DIVISOR))
                if divergence
                else X[first + n, b]
            )


@compiled
def renew_rows(A, first, rows, p, up, down, by_row, divergence, sum_to_one):
    """Renew the abundances of some pixels; ``down`` has a row for each (``by_row`` 1) or one for all (``by_row`` 0)."""
    for n in range(rows):
        below = down[n * by_row]
        if sum_to_one:
            column_on_simplex(A[first + n, :p], up[n, :p], below[:p], divergence)
        else:
            for k in range(p):
                A[first + n, k] = renew(A[first + n, k], up[n, k], below[k])


@compiled
def step_range(first, last, p, X, A, ends, divergence, sum_to_one, scratch, num, den):
    """Update A of pixels ``first`` to ``last``; add their terms of the update of E to ``num`` and ``den``."""
    across, width, L = scratch.Q.shape[1], A.shape[1], ends.columns.shape[0]
    for start in range(first, last, GROUP):
        rows = min(GROUP, last - start)
        if divergence:
            multiply_tiles(A, start * width, width, 1, ends.spectra, 0, p, scratch.Q, 0, rows, L, 0)
        quotients(X, start, rows, L, scratch.Q, divergence)
        multiply_tiles(scratch.Q, 0, across, 1, ends.columns, 0, L, scratch.up, 0, rows, width, 0)
        if divergence:
            renew_rows(A, start, rows, p, scratch.up, ends.sums, 0, True, sum_to_one)
            for n in range(rows):
                for k in range(p):
                    den[0, k] += A[start + n, k]
            multiply_tiles(A, start * width, width, 1, ends.spectra, 0, p, scratch.Q, 0, rows, L, 0)
            quotients(X, start, rows, L, scratch.Q, True)
        else:
            multiply_tiles(A, start * width, width, 1, ends.gram, 0, p, scratch.down, 0, rows, width, 0)
            renew_rows(A, start, rows, p, scratch.up, scratch.down, 1, False, sum_to_one)
            multiply_tiles(A, start * width, 1, width, A, start * width, rows, den, 0, den.shape[0], width, 1)
        multiply_tiles(A, start * width, 1, width, scratch.Q, 0, rows, num, 0, num.shape[0], L, 1)


@compiled
def add_parts(first, last, p, ends, nums, dens):
    """Add up the parts' numerators of bands ``first`` to ``last`` and, on the thread with band 0, the denominators."""
    for k in range(p):
        for b in range(first, last):
            ends.fresh[k, b] = nums[0, k, b]
        for part in range(1, nums.shape[0]):
            for b in range(first, last):
                ends.fresh[k, b] += nums[part, k, b]
    if first == 0 and last > 0:  # if there are more threads than bands, some have no bands
        for part in range(1, dens.shape[0]):
            for i in range(dens.shape[1]):
                for k in range(p):
                    dens[0, i, k] += dens[part, i, k]


@compiled
def renew_bands(first, last, p, ends, dens, divergence):
    """Renew bands ``first`` to ``last`` of E, in both copies."""
    fresh = ends.fresh
    for b in range(first, last):
        for k in range(p):
            below = np.float32(0.0)
            if divergence:
                below = dens[0, 0, k]
            else:
                for j in range(p):
                    below += ends.columns[b, j] * dens[0, j, k]
            fresh[k, b] = renew(ends.spectra[k, b], fresh[k, b], below)
        for k in range(p):
            ends.columns[b, k] = fresh[k, b]
            ends.spectra[k, b] = fresh[k, b]


@compiled
def summarise(p, ends):
    """Compute the sums of E's columns and its Gram matrix, which the updates of all pixels need."""
    L, width = ends.columns.shape
    for k in range(width):
        ends.sums[0, k] = 0.0
    for b in range(L):
        for k in range(p):
            ends.sums[0, k] += ends.columns[b, k]
    multiply_tiles(ends.columns, 0, 1, width, ends.columns, 0, L, ends.gram, 0, ends.gram.shape[0], width, 0)


@compiled
def steps_of_rows(
    share, shares, count, fresh, turn, barrier, cuts, p, X, A, ends, divergence, sum_to_one, work, nums, dens
):
    """Do a thread's share of ``count`` steps, or of one for one block of several (``fresh``: first, ``turn``: last)."""
    parts, L = cuts.shape[0] - 1, ends.columns.shape[0]
    low, high = L * share // shares, L * (share + 1) // shares
    for _ in range(count):
        for i in range(share, nums.shape[0], shares):
            if fresh:
                nums[i] = 0.0
                dens[i] = 0.0
            if i < parts:
                step_range(cuts[i], cuts[i + 1], p, X, A, ends, divergence, sum_to_one, work, nums[i], dens[i])
        if turn:
            wait(barrier, shares)
            add_parts(low, high, p, ends, nums, dens)
            wait(barrier, shares)
            renew_bands(low, high, p, ends, dens, divergence)
            wait(barrier, shares)
            if share == 0:
                summarise(p, ends)
            wait(barrier, shares)


@compiled
def model_range(first, last, p, A, spectra, L, out):
    """Compute ``E a`` of pixels ``first`` to ``last`` into the rows of ``out``, (pixels, L + `GAP`)."""
    multiply_tiles(A, first * A.shape[1], A.shape[1], 1, spectra, 0, p, out, 0, last - first, L, 0)


class Ends(NamedTuple):
    """The endmembers in all forms that a step needs; float32, padded with zeros beyond bands and endmembers."""

    spectra: Any  # (p, L)
    columns: Any  # (L, p)
    fresh: Any  # (p, L), scratch: the next spectra
    sums: Any  # (1, p) of the columns
    gram: Any  # (p, p)


class RowScratch(NamedTuple):
    """Scratch of a thread."""

    Q: Any  # (GROUP, L) quotients
    up: Any  # (GROUP, p) numerators
    down: Any  # (GROUP, p) denominators


class CpuEngine:
    """The steps of a factorisation, for blocks of pixels.

    Parameters
    ----------
    L, p : int
        Bands, endmembers.
    most : int
        Pixels of the largest block.
    loss : str
        A key of `unmix.features.nmf.updates.LOSSES`.
    sum_to_one : bool
        Keep the sum of each pixel's abundances at one.
    threads : int
    """

    name = "cpu"

    def __init__(self, L: int, p: int, most: int, loss: str, sum_to_one: bool, threads: int) -> None:
        self.L, self.p, self.divergence, self.sum_to_one, self.threads = L, p, LOSSES[loss], sum_to_one, threads
        bands, width, rows = padded_rank(L, LANES), padded_rank(p, LANES), padded_rank(p, ROWS)
        parts = len(self.cut(most)) - 1
        self.ends = Ends(
            *(
                np.zeros(n, np.float32)
                for n in ((rows, bands + GAP), (bands, width), (rows, bands + GAP), (1, width), (rows, width))
            )
        )
        self.scratch = [
            RowScratch(*(np.zeros((GROUP, n), np.float32) for n in (bands + GAP, width, width))) for _ in range(threads)
        ]
        self.nums = np.zeros((parts, rows, bands + GAP), np.float32)
        self.dens = np.zeros((parts, 1 if self.divergence else rows, width), np.float32)
        self.pool = ThreadPoolExecutor(threads, "nmf")

    def shape(self, pixels: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the shapes of a block's pixels and abundances, float32, padded to multiples of a tile."""
        return (padded_rank(pixels, ROWS), padded_rank(self.L, LANES)), (
            padded_rank(pixels, ROWS),
            padded_rank(self.p, LANES),
        )

    def begin(self, E: np.ndarray) -> None:
        """Set the endmembers, (L, p)."""
        self.ends.columns[: self.L, : self.p] = E
        self.ends.spectra[: self.p, : self.L] = E.T
        summarise(self.p, self.ends)

    @property
    def E(self) -> np.ndarray:
        """The endmembers, (L, p), float32."""
        return self.ends.columns[: self.L, : self.p].copy()

    def hold(self, X: np.ndarray, A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return a block's pixels and abundances in the form that `steps` takes."""
        return X, A

    def cut(self, pixels: int) -> np.ndarray:
        """Return the pixels at which the parts of a block begin, and the end of the last one."""
        tiles = padded_rank(pixels, ROWS) // ROWS
        count = max(1, min(MOST_PARTS, -(-tiles * ROWS // PIXELS_A_PART), tiles))
        return np.arange(count + 1) * tiles // count * ROWS

    def steps(self, block: tuple[np.ndarray, np.ndarray], count: int, fresh: bool = True, turn: bool = True) -> None:
        """Make ``count`` steps on a block of all pixels, or one on a block of several (first: fresh, last: turn)."""
        X, A = block
        cuts = self.cut(len(X))
        each = max(1, PRODUCTS_A_CALL // (X.size * self.p)) if fresh and turn else 1
        for first in range(0, count, each):
            barrier = new_barrier()

            def work(share: int, todo: int = min(each, count - first), barrier: np.ndarray = barrier) -> None:
                steps_of_rows(
                    share,
                    self.threads,
                    todo,
                    fresh,
                    turn,
                    barrier,
                    cuts,
                    self.p,
                    X,
                    A,
                    self.ends,
                    self.divergence,
                    self.sum_to_one,
                    self.scratch[share],
                    self.nums,
                    self.dens,
                )

            self.shared_out(work, barrier)

    def shared_out(self, work: Any, barrier: np.ndarray | None = None) -> None:
        """Run ``work(i)`` for each thread i; the calling thread is the first."""
        others = []
        try:
            others += [self.pool.submit(work, i) for i in range(1, self.threads)]
            work(0)
        except BaseException:
            if barrier is not None:
                barrier[2] = 1  # release the threads: not all of them will reach the barrier
            raise
        finally:
            for other in others:
                other.result()

    def cost(self, block: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """Return a block's loss and its number of values above 0 with a model of 0, (2,)."""
        X, A = block
        cuts = self.cut(len(X))
        losses = np.zeros((len(cuts) - 1, 2))

        def work(share: int) -> None:
            model = self.scratch[share].Q
            for i in range(share, len(losses), self.threads):
                for first in range(cuts[i], cuts[i + 1], GROUP):
                    last = min(first + GROUP, cuts[i + 1])
                    model_range(first, last, self.p, A, self.ends.spectra, len(self.ends.columns), model)
                    losses[i] += loss_of(X[first:last, : self.L], model[: last - first, : self.L], self.divergence)

        self.shared_out(work)
        return np.asarray(losses.sum(axis=0))

    def fetch(self, block: tuple[np.ndarray, np.ndarray], A: np.ndarray) -> None:
        """Do nothing: the block's abundances were updated in place."""

    def close(self) -> None:
        """End the threads."""
        self.pool.shutdown()


def loss_of(X: np.ndarray, model: np.ndarray, divergence: bool) -> tuple[float, int]:
    """Return ``Σ x log(x / m) − x + m`` or ``½ Σ (x − m)²``, and the number of x > 0 with m = 0."""
    if not divergence:
        return 0.5 * float(np.square(X - model, dtype=np.float32).sum(dtype=np.float64)), 0
    # Models of 0 would make the divergence infinite; so it is finite, and still falls. Logarithms are in float32, of
    # which numpy computes sixteen at a time.
    positive = np.maximum(model, np.float32(LEAST_DIVISOR))
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = X * np.log(X / positive)
    missed = 0 if model.min(initial=1.0) > 0 else int(np.count_nonzero((X > 0) & (model <= 0)))
    return float((np.where(X > 0, terms, np.float32(0)) - X + model).sum(dtype=np.float64)), missed
