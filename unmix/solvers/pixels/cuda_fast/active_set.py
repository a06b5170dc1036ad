"""Active set search on a GPU for up to 32 endmembers: a group of lanes per pixel, with the swept tableau in registers.

Every lane of a group holds a few rows of the tableau

    T = [[G, f], [fᵀ, ·]]  swept on the support (fcls: also on the row of ones, which never leaves and is not stored),

in which a pivot makes a column enter or leave; the last column then holds the abundances of the support and the duals
of the rest. A group takes a run of neighbouring pixels: the first starts cold, every other one from the tableau of the
pixel before, so that its first support costs one product instead of a pivot per column. Rounding accumulates along a
run: where it may matter, abundances are refined, or the next pixel starts cold (`REFINED_ABOVE`).

All of T is in registers because no index is a run-time value: the diagonal is stored apart, the entry of a row in the
pivot's column is read from the pivot's row by symmetry, and the pivot's row holds ``d − s`` in its own place, so that
one multiplication and addition serves every entry of T alike. That loses digits if d is large; columns of unit length
keep d within 1 where they enter (with E in radiance units it cost eight digits). Pixels are scaled by their |y|, so
a dual is compared with the tolerance as it is. Which column enters or leaves is decided by integer keys, made of the
upper bits of a float64.
"""

from typing import Any, NamedTuple

from numba import float64, int32, int64

from ....compiled.cuda import ALL_LANES, cuda, on_gpu
from ....compiled.ptx import largest_of_warp, load_double, rough_reciprocal
from ..inverse_update import DEPENDENT_COLUMN

MOST_ENDMEMBERS = 32
# States of a row.
FREE, IN, BARRED, NO_ROW = 0, 1, 2, 3
# A key has this bit if its row must leave; below it are the rank of a size (`rank_of`) and, in the last six bits, 63
# less the row.
LEAVING = 1 << 30
ROW = 63
WARP = 32


class Group(NamedTuple):
    """How a warp shares out its pixels.

    ``lanes`` per pixel; ``rows`` of the tableau per lane; ``run``, the pixels that a group solves in turn, each from
    the tableau before, beginning at fixed samples of a line; the most ``registers`` of a thread, None for as many as
    the compiler takes.
    """

    lanes: int
    rows: int
    run: int
    registers: int | None

    @property
    def pixels(self) -> int:
        """Number of neighbouring pixels that a warp takes."""
        return WARP // self.lanes * self.run


def group_for(p: int) -> Group:
    """Return the group for p endmembers."""
    return next(group for most, group in GROUPS if p <= most)


# A column enters with 1/d times the rounding errors, where d is the share of its square that the support does not
# explain. From REFINED_FROM of cond(E) on, the sum of 1/d over the columns that entered since a run began cold decides:
# above REFINED_ABOVE, abundances are refined by the residual of their equations; above SPOILT_ABOVE, the next pixel
# starts cold. Salinas-A, p = 25, fcls (1/d up to 1200 in the scene, to 10 000 in dense mixtures): δ is above 1e-6 in
# 0.02 % and 0 % of the pixels; without refinement, in 0.1 % and 40 %.
REFINED_FROM, REFINED_ABOVE, SPOILT_ABOVE = 1e3, 4096.0, 1e7
GROUPS = (
    (4, Group(2, 2, 4, 128)),
    (8, Group(4, 2, 8, 128)),
    (12, Group(4, 3, 8, 128)),
    (16, Group(16, 1, 16, 128)),
    (32, Group(32, 1, 16, 128)),
)


@on_gpu
def reciprocal(x):
    """Return ``1/x`` to about the last bit, without the slow path of a division; x must be neither 0 nor denormal."""
    rough = rough_reciprocal(x)
    rough += rough * (1.0 - x * rough)
    return rough + rough * (1.0 - x * rough)


@on_gpu
def rank_of(size):
    """Return bits 6 to 29 of a key, ordered as ``size`` ≥ 0: its exponent and 13 bits of its mantissa."""
    return int32(int32(cuda.libdevice.double2hiint(size) >> 1) & ~ROW)


def shared_doubles(p: int) -> int:
    """Return the float64 values of shared memory for a warp's pivot rows: `pivot_width` for each group."""
    return WARP // group_for(p).lanes * pivot_width(p)


def pivot_width(p: int) -> int:
    """Return the length of a pivot row: p entries, multiplier, last column, 1/d and reach."""
    # Odd, to avoid bank conflicts.
    return p + 4 + (p + 1) % 2


def search_function(p: int, sum_to_one: bool, refines: bool) -> Any:
    """Return ``search``, which finds the abundances of a warp's pixels by pivots on the tableau."""
    # With `refines`, abundances whose rounding may have grown (REFINED_ABOVE) get the tableau's answer to the residual
    # of their equations added, and the search goes on from there: their error is then the residual's error.
    lanes, rows, run, _ = group_for(p)
    attempts = 2 if refines else 1
    width = pivot_width(p)
    shape = rows, p
    most_pivots = 6 * p + 20
    ones, last, over, reach_at = p, p + 1, p + 2, p + 3

    @on_gpu
    def largest(key):
        """Return the largest key of a group, in all its lanes."""
        if lanes == WARP:
            return largest_of_warp(key)
        offset = lanes // 2
        while offset > 0:
            key = int32(max(key, cuda.shfl_xor_sync(ALL_LANES, key, offset)))
            offset //= 2
        return key

    @on_gpu
    def over_group(value):
        """Return the sum over the lanes of a group, in all of them."""
        offset = lanes // 2
        while offset > 0:
            value += cuda.shfl_xor_sync(ALL_LANES, value, offset)
            offset //= 2
        return value

    @on_gpu
    def column_of(U, column):
        """Return the address of a column of the Gram matrix; of the last one where there is no such column."""
        return U + int64(8 * min(column, p - 1))

    @on_gpu
    def best_alone(scaled_f, norms, unit, first_row):
        """Return the endmember nearest to the pixel, which has the largest ``2f − |e|²``."""
        key = int32(-(2**31) + ROW)
        for r in range(rows):
            if first_row + r < p:
                # In units of the pixel. A float64's upper half sorts as an integer if negative ones have their other
                # bits inverted.
                length = unit * norms[first_row + r]
                upper = int32(cuda.libdevice.double2hiint((2.0 * scaled_f[r] - length) * length))
                high = int32(upper ^ int32(int32(upper >> 31) & 0x7FFFFFFF))
                key = int32(max(key, int32(high & ~ROW) | int32(ROW - (first_row + r))))  # type: ignore[assignment]
        return int32(ROW - (largest(key) & ROW))

    @on_gpu
    def search(U, norms, weights, tolerance, f, scale, shared, rest, steps, line, start, samples):
        """Replace ``Eᵀy`` in ``f`` by the abundances, for the warp's pixels from sample ``start`` of a line."""
        # U is the address of EᵀE at unit length, norms and weights are |e| and 1/|e|. A pixel of scale 0 is masked and
        # skipped. The warp's pivot rows lie in `shared` from `rest` on.
        T = cuda.local.array(shape, float64)
        D = cuda.local.array(rows, float64)  # the diagonal
        V = cuda.local.array(rows, float64)  # the multiplier's column
        B = cuda.local.array(rows, float64)  # the last column: abundances in the support, duals elsewhere
        A = cuda.local.array(rows, float64)  # the feasible point
        scaled_f = cuda.local.array(rows, float64)  # f of this pixel, scaled
        g = cuda.local.array(rows, float64)  # f less what the abundances so far explain
        weight = cuda.local.array(rows, float64)  # 1/|e|
        c = cuda.local.array(rows, float64)
        over_ones = cuda.local.array(rows, float64)
        state = cuda.local.array(rows, int32)
        lane = int32(cuda.laneid % lanes)
        group = int32(cuda.laneid // lanes)
        pivot_row = int32(rest + group * width)
        first_row = int32(lane * rows)  # this lane's first row
        for r in range(rows):
            weight[r] = weights[min(first_row + r, p - 1)]
        growth = 0.0  # 1/d of all columns that entered since the tableau was made
        for turn in range(run):
            sample = start + group * run + turn
            exists = sample < samples
            n = line * samples + sample
            size = scale[n] if exists else 0.0
            active = size > 0.0
            unit = 1.0 / size if active else 1.0
            for r in range(rows):
                scaled_f[r] = (
                    f[n, min(first_row + r, p - 1)] * weight[r] * unit if active and first_row + r < p else 0.0
                )
            if turn == 0 or (refines and cuda.any_sync(ALL_LANES, growth > SPOILT_ABOVE)):
                growth = 0.0
                for r in range(rows):
                    state[r] = FREE if first_row + r < p else NO_ROW
                    V[r] = 0.0
                    D[r] = 1.0
                # In all loops over T, columns are the outer loop: otherwise the compiler does not unroll both, and only
                # an array that is indexed by constants stays in registers.
                for j in range(p):
                    for r in range(rows):
                        T[r, j] = load_double(column_of(U, first_row + r) + 8 * p * j)
                if sum_to_one:
                    # The tableau swept on the best single endmember and on the ones has a closed form.
                    k = best_alone(scaled_f, norms, unit, first_row)
                    length = norms[k]
                    for r in range(rows):
                        # In the row of ones an endmember's coefficient is 1/|e| here; c is column k of T.
                        c[r] = weight[r] * length
                        over_ones[r] = load_double(column_of(U, first_row + r) + 8 * p * int64(k)) - c[r]
                        V[r] = (-1.0 if first_row + r == k else over_ones[r]) * length
                        D[r] = 0.0 if first_row + r == k else 1.0 - c[r] * (2.0 * over_ones[r] + c[r])
                        if first_row + r == k:
                            state[r] = IN
                    for j in range(p):
                        across = load_double(column_of(U, k) + 8 * p * j)
                        ratio = weights[j] * length
                        for r in range(rows):
                            value = T[r, j] - c[r] * across - over_ones[r] * ratio
                            T[r, j] = ratio if first_row + r == k else (c[r] if j == k else value)
            pivots = int32(0)
            for r in range(rows):
                B[r] = 0.0
                if state[r] == BARRED:
                    state[r] = FREE
            for attempt in range(attempts):
                if attempt > 0 and not cuda.any_sync(ALL_LANES, active and growth > REFINED_ABOVE):
                    break
                lacking = unit  # of the sum, in units of the pixel
                for r in range(rows):
                    A[r] = B[r] if attempt > 0 and state[r] == IN else 0.0
                    g[r] = scaled_f[r]
                if attempt > 0:
                    for r in range(rows):
                        if first_row + r < p:
                            shared[pivot_row + first_row + r] = A[r]
                    cuda.syncwarp()
                    for j in range(p):
                        across = shared[pivot_row + j]
                        for r in range(rows):
                            g[r] -= load_double(column_of(U, first_row + r) + 8 * p * j) * across
                    if sum_to_one:
                        # Less the multiplier's part, the residual is near 0; the tableau's answer to that part would be
                        # rounding alone.
                        total, slope = 0.0, 0.0
                        for r in range(rows):
                            total += weight[r] * A[r]
                            slope += g[r] * A[r]
                        total, slope = over_group(total), over_group(slope)
                        lacking -= total
                        multiplier = slope / total if total > 0.0 else 0.0
                        for r in range(rows):
                            g[r] -= multiplier * weight[r]
                    cuda.syncwarp()
                # The last column for the support: b = a + g (free rows) − T g (support) − T·ones.
                for r in range(rows):
                    if first_row + r < p:
                        shared[pivot_row + first_row + r] = g[r] if state[r] == IN else 0.0
                cuda.syncwarp()
                for r in range(rows):
                    passive = g[r] if state[r] == IN else 0.0
                    B[r] = A[r] + g[r] - passive - D[r] * passive
                    if sum_to_one:
                        B[r] -= V[r] * lacking
                    A[r] = 0.0
                for j in range(p):
                    across = shared[pivot_row + j]
                    for r in range(rows):
                        B[r] -= T[r, j] * (0.0 if first_row + r == j else across)
                cuda.syncwarp()
                searching = active
                shedding = True
                stuck = False
                entered = int32(-1)
                while True:
                    # A row that must leave ranks above every row that may enter; ties go to the lowest row.
                    key = int32(0)
                    for r in range(rows):
                        drop = abs(B[r])
                        share = drop * rough_reciprocal(A[r] + drop) if A[r] > B[r] else 1.0
                        leave = int32(LEAVING | rank_of(drop if shedding else share))
                        rank = int32(leave if B[r] <= 0.0 else 0)
                        enter = int32(rank_of(B[r]) if B[r] > tolerance else 0)
                        rank = int32(rank if state[r] == IN else (enter if state[r] == FREE else 0))
                        key = int32(max(key, int32(rank | int32(ROW - (first_row + r))) if rank != 0 else int32(0)))
                    key = largest(key)
                    if key == 0 or pivots >= most_pivots:
                        searching = False
                    if not cuda.any_sync(ALL_LANES, searching):
                        break
                    k = int32(ROW - (key & ROW))
                    leaving = key >= LEAVING
                    sign = -1.0 if leaving else 1.0
                    if searching and not leaving:
                        # All of the support is positive: a success. Barred rows may then try again.
                        shedding = False
                        for r in range(rows):
                            A[r] = B[r] if state[r] == IN else 0.0
                            if state[r] == BARRED and not stuck:
                                state[r] = FREE
                        stuck = False
                    if searching and k // rows == lane:
                        d, v, b, feasible = 0.0, 0.0, 0.0, 0.0
                        for r in range(rows):
                            if k == first_row + r:
                                d, v, b, feasible = D[r], V[r], B[r], A[r]
                        for j in range(p):
                            for r in range(rows):
                                if k == first_row + r:
                                    shared[pivot_row + j] = T[r, j]
                        # A column that depends on the support may not enter: no pivot.
                        sound = leaving or d > DEPENDENT_COLUMN
                        shared[pivot_row + k] = d - sign
                        shared[pivot_row + ones] = v
                        shared[pivot_row + last] = b
                        shared[pivot_row + over] = reciprocal(d) if sound else 0.0
                        shared[pivot_row + reach_at] = feasible * reciprocal(feasible - b) if feasible > b else 0.0
                    cuda.syncwarp()
                    if searching:
                        inverse = shared[pivot_row + over]
                        reach = shared[pivot_row + reach_at]
                        sound = inverse != 0.0
                        stuck_now = leaving and k == entered and not shedding
                        after = int32((BARRED if stuck_now else FREE) if leaving else (IN if sound else BARRED))
                        for r in range(rows):
                            if leaving and not shedding and state[r] == IN:
                                A[r] = max(A[r] + reach * (B[r] - A[r]), 0.0)
                            across = shared[pivot_row + min(first_row + r, p - 1)]
                            c[r] = across * inverse
                            D[r] -= c[r] * across
                            b = B[r] - c[r] * shared[pivot_row + last]
                            if k == first_row + r:
                                A[r] = 0.0
                                c[r] = 1.0 - sign * inverse if sound else 0.0
                                D[r] = -inverse if sound else shared[pivot_row + k] + sign
                                b = B[r] * (sign * inverse if sound else 1.0)
                                state[r] = after
                            B[r] = b
                            if sum_to_one:
                                V[r] -= c[r] * shared[pivot_row + ones]
                        for j in range(p):
                            across = shared[pivot_row + j]
                            for r in range(rows):
                                T[r, j] -= c[r] * across
                        if leaving:
                            stuck = stuck_now
                        else:
                            entered = k
                            growth += inverse
                        pivots = int32(pivots + 1)
                    cuda.syncwarp()
            if active:
                for r in range(rows):
                    if first_row + r < p:
                        f[n, first_row + r] = max(B[r], 0.0) * weight[r] * size if state[r] == IN else 0.0
                if lane == 0:
                    steps[line, sample] = pivots

    return search
