"""The tableau of a working set on a GPU, a warp for each pixel.

Up to 32 columns it lies in the registers of the warp, as the tiles of 8 × 8 that a matrix product leaves there; a pivot is such a
product with one column of numbers and three of zeros. So only the pivot's row goes through shared memory, eight values a lane: with a
column a lane, where every lane needs all 32 values, a pivot took three times as long. Larger tableaux lie in shared memory, or in
global memory where they are too large for that; there a lane works on the columns lane, lane + 32, … The diagonal D is held apart, and
in the tableau itself it has no meaning: so its own place needs no run-time index into registers.
"""

import functools
from typing import Any, NamedTuple

from numba import float64, int32

from ....compiled.cuda import ALL_LANES, cuda, on_gpu
from ....compiled.ptx import multiply, multiply_half
from ..cuda_fast.active_set import reciprocal

WARP = 32


class Stage(NamedTuple):
    """Where the tableau lies, for working sets of some size."""

    most: int  # columns, with that of the ones
    memory: str  # "tiles" in registers, "shared" or "global"
    registers: int | None  # bound for each thread, so that as many warps are resident as are useful
    warps: int  # for each multiprocessor

    @property
    def per_lane(self) -> int:
        """Columns of a lane."""
        return -(-self.most // WARP)

    @property
    def shape(self) -> tuple[int, ...]:
        """What a lane holds of tiles, or a warp in memory; rows there have an odd length, to avoid bank conflicts."""
        tiles = self.most // 8
        return (tiles, tiles, 2) if self.memory == "tiles" else (self.most, self.most + 1 - self.most % 2)

    @property
    def scratch(self) -> tuple[int, int]:
        """Shared memory to fill tiles from."""
        return (self.most, self.most + 1) if self.memory == "tiles" else (1, 1)


class Functions(NamedTuple):
    """What a warp does with a tableau (T, D)."""

    invert: Any  # (D, inverses): before it is known which entry the next pivot divides by, for that takes 100 cycles
    value_at: Any  # (values, k) the entry of place k, in all lanes
    fill: Any  # (library, members, m, T, D, rows) from the Gram matrix; ``rows`` is scratch of `Stage.scratch`
    load_row: Any  # (T, row, k, columns) to ``row``, in shared memory; its entry k has no meaning
    pivot: Any  # (T, D, inverses, b, row, k, sign, columns) sweep on place k, which enters (sign 1) or leaves (−1)


@functools.cache
def tableau_functions(stage: Stage, sum_to_one: bool, half: bool) -> Functions:
    """Return the functions for a stage; under Σa = 1 place 0 is the row of ones, in units of the shortest endmember.

    ``half`` is for GPUs that multiply eight rows at a time.
    """
    ones, per_lane = 1 if sum_to_one else 0, stage.per_lane

    @on_gpu
    def value_at(values, k):
        value = values[0]
        for c in range(1, per_lane):
            if k >= WARP * c:
                value = values[c]
        return cuda.shfl_sync(ALL_LANES, value, k % WARP)

    @on_gpu
    def invert(D, inverses):
        for c in range(per_lane):
            inverses[c] = reciprocal(D[c])

    @on_gpu
    def member_at(members, m, place):
        return members[min(max(place - ones, 0), m - 1)]

    @on_gpu
    def fill_diagonal(library, members, m, D):
        for c in range(per_lane):
            place = int32(cuda.laneid) + WARP * c
            column = member_at(members, m, place)
            D[c] = library.U[column, column] if ones <= place < m + ones else 0.0

    if stage.memory == "tiles":
        return Functions(invert, value_at, *in_tiles(stage, ones, half, value_at, member_at, fill_diagonal))
    return Functions(invert, value_at, *in_memory(stage, ones, value_at, member_at, fill_diagonal))


def in_tiles(stage: Stage, ones: int, half: bool, value_at: Any, member_at: Any, fill_diagonal: Any) -> tuple[Any, ...]:
    """Return ``fill``, ``load_row`` and ``pivot`` for tiles in registers, where T stays only if all its indices are constants."""
    most, per_lane, tiles = stage.most, stage.per_lane, stage.most // 8

    @on_gpu
    def entry(library, members, m, i, place):
        row, column = member_at(members, m, i), member_at(members, m, place)
        value = library.U[row, column]
        if ones == 1 and (i == 0 or place == 0):
            value = library.weights[row if place == 0 else column] * library.least if i + place > 0 else 0.0
        return value if place < m + ones else 0.0

    @on_gpu
    def fill(library, members, m, T, D, rows):
        columns = int32(m + ones)
        cuda.syncwarp()
        # By rows, for a tile's loads hit eight times as many lines of the cache; four at a time, for each waits 300 cycles.
        for i in range(0, columns, 4):
            for c in range(per_lane):
                place = min(int32(cuda.laneid) + WARP * c, most)
                v0, v1 = entry(library, members, m, i, place), entry(library, members, m, i + 1, place)
                v2, v3 = entry(library, members, m, i + 2, place), entry(library, members, m, i + 3, place)
                rows[i, place], rows[i + 1, place], rows[i + 2, place], rows[i + 3, place] = v0, v1, v2, v3
        cuda.syncwarp()
        g, q = int32(cuda.laneid // 4), int32(cuda.laneid % 4)
        for s in range(tiles):
            for t in range(tiles):
                inside = 8 * t + g < columns
                T[t, s, 0] = rows[8 * t + g, 8 * s + 2 * q] if inside else 0.0
                T[t, s, 1] = rows[8 * t + g, 8 * s + 2 * q + 1] if inside else 0.0
        fill_diagonal(library, members, m, D)

    @on_gpu
    def copy_row(T, row, k):
        first = 2 * int32(cuda.laneid % 4)
        if cuda.laneid // 4 == k % 8:
            for t in range(tiles):
                if 8 * t <= k < 8 * t + 8:  # with ==, the compiler would put k // 8 in place of t
                    for s in range(tiles):
                        row[8 * s + first] = T[t, s, 0]
                        row[8 * s + first + 1] = T[t, s, 1]

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
        if cuda.laneid == k % 8 * 4 + k % 8 // 2:  # the lane that has just written it
            row[k] = d - sign
        cuda.syncwarp()
        for t in range(tiles):
            left[t] = row[8 * t + int32(cuda.laneid // 4)] if cuda.laneid % 4 == 0 else 0.0
        for s in range(tiles):
            across = -inverse * left[s]
            for t in range(0, tiles, 2):
                if max(8 * s, 8 * t) >= columns:
                    continue
                if half or t + 1 == tiles:
                    T[t, s, 0], T[t, s, 1] = multiply_half(left[t], across, T[t, s, 0], T[t, s, 1])
                else:
                    T[t, s, 0], T[t, s, 1], T[t + 1, s, 0], T[t + 1, s, 1] = multiply(
                        left[t], left[t + 1], across, T[t, s, 0], T[t, s, 1], T[t + 1, s, 0], T[t + 1, s, 1]
                    )
                if half and t + 1 < tiles:
                    T[t + 1, s, 0], T[t + 1, s, 1] = multiply_half(left[t + 1], across, T[t + 1, s, 0], T[t + 1, s, 1])
        for c in range(per_lane):
            place = int32(cuda.laneid) + WARP * c
            mine = row[min(place, most - 1)]
            D[c] = -inverse if place == k else D[c] - mine * (mine * inverse)
            b[c] -= mine * inverse * beta

    return fill, load_row, pivot


def in_memory(stage: Stage, ones: int, value_at: Any, member_at: Any, fill_diagonal: Any) -> tuple[Any, ...]:
    """Return ``fill``, ``load_row`` and ``pivot`` for a tableau in shared or global memory; a lane touches its own columns alone."""
    per_lane = stage.per_lane

    @on_gpu
    def fill(library, members, m, T, D, rows):
        last = m + ones - 1
        for j in range(int32(cuda.laneid), m + ones, WARP):
            is_one, column = j < ones, member_at(members, m, j)
            weight = library.weights[column] * library.least
            # Four loads at a time, before the stores that they could depend on for all the compiler knows.
            for i in range(ones, m + ones, 4):
                r0, r1 = member_at(members, m, i), member_at(members, m, i + 1)
                r2, r3 = member_at(members, m, i + 2), member_at(members, m, i + 3)
                if is_one:
                    u0, u1 = library.weights[r0] * library.least, library.weights[r1] * library.least
                    u2, u3 = library.weights[r2] * library.least, library.weights[r3] * library.least
                else:
                    u0, u1 = library.U[r0, column], library.U[r1, column]
                    u2, u3 = library.U[r2, column], library.U[r3, column]
                T[i, j], T[min(i + 1, last), j], T[min(i + 2, last), j], T[min(i + 3, last), j] = u0, u1, u2, u3
            if ones == 1:
                T[0, j] = 0.0 if is_one else weight
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

    return fill, load_row, pivot
