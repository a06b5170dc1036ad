"""The tableau of a working set on a GPU, a warp for each pixel.

Up to 64 columns it lies in the registers of the warp, as the tiles of 8 × 8 that a matrix product leaves there; a pivot
is such a product with one column of numbers and three of zeros. So only the pivot's row goes through shared memory,
eight values a lane: with a column a lane, where every lane needs all 32 values, a pivot took three times as long. The
tableau is symmetric: a warp holds the tiles on and above the diagonal. Larger tableaux lie in global memory; there a
lane works on the columns lane, lane + 32, … The diagonal D is stored apart, and the tableau's own diagonal has no
meaning: so no run-time index into registers is needed for it.
"""

import functools
from typing import Any, NamedTuple

import numpy as np
from numba import float64, int32, uint32

from ....compiled.cuda import ALL_LANES, WARP, cuda, on_gpu
from ....compiled.ptx import multiply_half, multiply_matrices
from ..cuda_fast.active_set import reciprocal


class Stage(NamedTuple):
    """Place of the tableau, for working sets up to a size."""

    most: int  # columns, the column of the ones included
    memory: str  # "tiles" in registers, or "global"
    registers: int | None  # most of each thread, so that enough warps are resident; None is no bound
    warps: int  # for each multiprocessor

    @property
    def per_lane(self) -> int:
        """Columns of a lane."""
        return -(-self.most // WARP)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a lane's tiles in registers, or of a warp's tableau in memory."""
        # Rows in memory have an odd length, to avoid bank conflicts.
        tiles = self.most // 8
        return (tiles, tiles, 2) if self.memory == "tiles" else (self.most, self.most + 1 - self.most % 2)

    @property
    def scratch(self) -> tuple[int, int]:
        """Shared memory to fill a row of tiles from."""
        return (8, self.most + 1) if self.memory == "tiles" else (1, 1)


class Functions(NamedTuple):
    """Functions of a warp on a tableau (T, D)."""

    invert: Any  # (D, inverses) invert all entries, before the next pivot is known: a division takes 100 cycles
    value_at: Any  # (values, k) the entry of place k, in all lanes
    fill: Any  # (library, members, m, T, D, rows) from the Gram matrix; ``rows`` is scratch of `Stage.scratch`
    fill_whole: Any  # (library, T, D) with all columns in order, from `in_lane_order`; None for a tableau in memory
    load_row: Any  # (T, row, k, columns) to ``row``, in shared memory; its entry k has no meaning
    pivot: Any  # (T, D, inverses, b, row, k, sign, columns) sweep on place k, which enters (sign 1) or leaves (−1)


@functools.cache
def tableau_functions(stage: Stage, sum_to_one: bool, half: bool) -> Functions:
    """Return a stage's functions on a tableau; ``half`` is for GPUs that multiply eight rows at a time."""
    # Under Σa = 1 place 0 is the row of ones, in units of the shortest endmember.
    ones, per_lane = 1 if sum_to_one else 0, stage.per_lane

    @on_gpu
    def value_at(values, k):
        value = values[0]
        for c in range(1, per_lane):
            if k >= WARP * c:
                value = values[c]
        return cuda.shfl_sync(ALL_LANES, value, k & (WARP - 1))

    @on_gpu
    def invert(D, inverses):
        for c in range(per_lane):
            inverses[c] = reciprocal(D[c])

    @on_gpu
    def row_of(members, m, place):
        """Return a place's row in the Gram matrix; places past the last repeat its row, and are never chosen."""
        at = int32(place - ones)
        at = at if at < m else int32(m - 1)
        member = members[uint32(at if at > 0 else int32(0))]
        return uint32(member + ones if place >= ones else int32(0))

    @on_gpu
    def fill_diagonal(library, members, m, D):
        for c in range(per_lane):
            place = int32(int32(cuda.laneid) + WARP * c)
            row = row_of(members, m, place)
            D[c] = library.U[row, row]

    if stage.memory == "tiles":
        fill = fill_functions(stage, ones, row_of, fill_diagonal)
        return Functions(invert, value_at, *fill, *pivots_on_gpu(stage, half, value_at))
    return Functions(invert, value_at, *in_memory(stage, ones, value_at, row_of, fill_diagonal))


def in_lane_order(U: np.ndarray, most: int) -> np.ndarray:
    """Return the tiles of a Gram matrix, filled with zeros to ``most`` columns, in the order of a warp's lanes."""
    tiles = np.zeros((most, most))
    tiles[: len(U), : len(U)] = U
    # From (tile row, row of tile, tile column, half column, entry) to (tile row, tile column, entry, lane).
    split = tiles.reshape(most // 8, 8, most // 8, 4, 2)
    return np.ascontiguousarray(split.transpose(0, 2, 4, 1, 3)).ravel()


@on_gpu
def tile_place():
    """Return the row and half the column of a lane's two entries of a tile."""
    lane = uint32(cuda.laneid)
    return uint32(lane >> 2), uint32(lane & 3)


def fill_functions(stage: Stage, ones: int, row_of: Any, fill_diagonal: Any) -> tuple[Any, Any]:
    """Return ``fill`` and ``fill_whole`` for tiles in registers."""
    # T stays in registers only while all its indices are constants.
    most, per_lane, tiles = stage.most, stage.per_lane, stage.most // 8

    def fill_tiles(t):
        """Return the function that fills row t of the tiles: in a loop over the rows, T would not stay in registers."""

        @on_gpu
        def fill_row(library, members, m, T, rows):
            g, q = tile_place()
            cuda.syncwarp()
            # By rows: loads by tiles would hit eight times as many lines of the cache.
            for c in range(per_lane if 8 * t < m + ones else 0):
                place = uint32(min(int32(cuda.laneid) + WARP * c, most))
                column = row_of(members, m, place)
                for i in range(8):
                    rows[i, place] = library.U[row_of(members, m, 8 * t + i), column]
            cuda.syncwarp()
            for s in range(tiles):
                if s >= t:
                    T[t, s, 0] = rows[g, 8 * s + 2 * q]
                    T[t, s, 1] = rows[g, 8 * s + 2 * q + 1]

        return fill_row

    def in_turn(first, second):
        @on_gpu
        def both(library, members, m, T, rows):
            first(library, members, m, T, rows)
            second(library, members, m, T, rows)

        return both

    all_tiles = functools.reduce(in_turn, map(fill_tiles, range(tiles)))

    @on_gpu
    def fill(library, members, m, T, D, rows):
        all_tiles(library, members, m, T, rows)
        fill_diagonal(library, members, m, D)

    @on_gpu
    def fill_whole(library, T, D):
        for t in range(tiles):
            for s in range(tiles):
                if s >= t:
                    T[t, s, 0] = library.tiles[uint32(((t * tiles + s) * 2) * WARP + cuda.laneid)]
                    T[t, s, 1] = library.tiles[uint32(((t * tiles + s) * 2 + 1) * WARP + cuda.laneid)]
        for c in range(per_lane):
            row = uint32(min(int32(cuda.laneid) + WARP * c, library.U.shape[0] - 1))
            D[c] = library.U[row, row]

    return fill, fill_whole


def pivots_on_gpu(stage: Stage, half: bool, value_at: Any) -> tuple[Any, Any]:
    """Return ``load_row`` and ``pivot`` for tiles in registers."""
    most, per_lane, tiles = stage.most, stage.per_lane, stage.most // 8

    @on_gpu
    def copy_row(T, row, k):
        g, q = tile_place()
        for t in range(tiles):
            if 8 * t <= k < 8 * t + 8:  # with ==, the compiler would put k // 8 in place of t
                if g == k & 7:
                    for s in range(tiles):
                        if s >= t:
                            row[8 * s + 2 * q] = T[t, s, 0]
                            row[8 * s + 2 * q + 1] = T[t, s, 1]
                if q == (k & 7) >> 1:
                    for s in range(tiles):
                        if s < t:
                            row[8 * s + g] = T[s, t, 0] if k & 1 == 0 else T[s, t, 1]

    @on_gpu
    def load_row(T, row, k, columns):
        cuda.syncwarp()
        copy_row(T, row, k)
        cuda.syncwarp()

    @on_gpu
    def pivot(T, D, inverses, b, row, k, sign, columns):
        left = cuda.local.array(tiles, float64)
        d, inverse, beta = value_at(D, k), value_at(inverses, k), value_at(b, k)
        cuda.syncwarp()
        copy_row(T, row, k)
        g, q = tile_place()
        if g == k & 7 and q == (k & 7) >> 1:  # the lane that has just written it
            row[uint32(k)] = d - sign
        cuda.syncwarp()
        for t in range(tiles):
            left[t] = row[8 * t + g] if q == 0 else 0.0
        for s in range(tiles):
            across = -inverse * left[s]
            for t in range(0, tiles, 2):
                if t > s or 8 * s >= columns:
                    continue
                if half or t == s:
                    T[t, s, 0], T[t, s, 1] = multiply_half(left[t], across, T[t, s, 0], T[t, s, 1])
                else:
                    T[t, s, 0], T[t, s, 1], T[t + 1, s, 0], T[t + 1, s, 1] = multiply_matrices(
                        left[t], left[t + 1], across, T[t, s, 0], T[t, s, 1], T[t + 1, s, 0], T[t + 1, s, 1]
                    )
                if half and t < s:
                    T[t + 1, s, 0], T[t + 1, s, 1] = multiply_half(left[t + 1], across, T[t + 1, s, 0], T[t + 1, s, 1])
        for c in range(per_lane):
            place = int32(cuda.laneid) + WARP * c
            mine = row[uint32(min(place, most - 1))]
            D[c] = -inverse if place == k else D[c] - mine * (mine * inverse)
            b[c] -= mine * inverse * beta

    return load_row, pivot


def in_memory(stage: Stage, ones: int, value_at: Any, row_of: Any, fill_diagonal: Any) -> tuple[Any, ...]:
    """Return ``fill``, None, ``load_row``, ``pivot`` for a tableau in global memory; lanes write their own columns."""
    per_lane = stage.per_lane

    @on_gpu
    def fill(library, members, m, T, D, rows):
        last = m + ones - 1
        for j in range(int32(cuda.laneid), m + ones, WARP):
            column = row_of(members, m, j)
            # Four loads at a time, before the stores: the compiler does not know that they are independent.
            for i in range(0, m + ones, 4):
                u0, u1 = library.U[row_of(members, m, i), column], library.U[row_of(members, m, i + 1), column]
                u2, u3 = library.U[row_of(members, m, i + 2), column], library.U[row_of(members, m, i + 3), column]
                T[i, j], T[min(i + 1, last), j], T[min(i + 2, last), j], T[min(i + 3, last), j] = u0, u1, u2, u3
        fill_diagonal(library, members, m, D)

    @on_gpu
    def load_row(T, row, k, columns):
        cuda.syncwarp()
        for j in range(int32(cuda.laneid), columns, WARP):
            row[j] = T[k, j]
        cuda.syncwarp()

    @on_gpu
    def pivot(T, D, inverses, b, row, k, sign, columns):
        d, inverse, beta = value_at(D, k), value_at(inverses, k), value_at(b, k)
        cuda.syncwarp()
        for j in range(int32(cuda.laneid), columns, WARP):
            row[j] = d - sign if j == k else T[k, j]
        cuda.syncwarp()
        for c in range(per_lane):
            j = int32(cuda.laneid) + WARP * c
            if j < columns:
                across = row[j] * inverse
                i = 0
                while i + 4 <= columns:
                    t0, t1, t2, t3 = T[i, j], T[i + 1, j], T[i + 2, j], T[i + 3, j]
                    r0, r1, r2, r3 = row[i], row[i + 1], row[i + 2], row[i + 3]
                    T[i, j] = t0 - r0 * across
                    T[i + 1, j] = t1 - r1 * across
                    T[i + 2, j] = t2 - r2 * across
                    T[i + 3, j] = t3 - r3 * across
                    i += 4
                while i < columns:
                    T[i, j] -= row[i] * across
                    i += 1
                D[c] = -inverse if j == k else D[c] - row[j] * across
                b[c] -= across * beta

    return fill, None, load_row, pivot
