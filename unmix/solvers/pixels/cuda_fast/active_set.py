"""The search on a GPU, up to 32 endmembers: a group of lanes a pixel, the swept tableau in their registers.

Every lane of a group keeps a few rows of the tableau

    T = [[G, f], [fᵀ, ·]]  swept on the support (fcls: and on the row of ones, which never leaves and is not kept),

in which a pivot lets a column enter or leave; the last column then holds the abundances of the support and the duals of
the rest. A group takes a run of neighbouring pixels: the first starts cold, each other from the tableau of the one
before, whose support costs it one product instead of a pivot a column.

All of T is in registers because no index is a run-time value: the diagonal is kept apart, the entry of a row in the
pivot's column is read off the pivot's row by symmetry, and the pivot's row holds ``d − s`` in its own place, so that one
multiplication and addition serves every entry of T alike. That costs d in digits; columns of unit length keep d within 1
for those that enter (with E in radiance units it cost eight digits). Pixels are scaled by their |y|, so a dual is measured
as it is. Which column enters or leaves is decided by integer keys, made of the upper bits of a float64.
"""

from typing import Any, NamedTuple

from numba import float64, int32

from ....compiled.cuda import ALL_LANES, cuda, on_gpu
from ....compiled.ptx import rough_reciprocal
from ..inverse_update import DEPENDENT

MOST_ENDMEMBERS = 32
# What a row is.
FREE, IN, BARRED, NO_ROW = 0, 1, 2, 3
# The key of a row that must leave has this bit; below it the size of what is wrong, and the row in the last six.
LEAVING = 1 << 30
ROW = 63


class Group(NamedTuple):
    """Lanes a pixel and rows a lane (several: what bounds a pivot is reading its row from shared memory); and the run:
    pixels that a group walks from one tableau to the next, cut at fixed samples of a line."""

    lanes: int
    rows: int
    run: int

    @property
    def pixels(self) -> int:
        """Neighbouring pixels that a warp takes."""
        return 32 // self.lanes * self.run


def group_of(p: int, short: bool = False) -> Group:
    """How p endmembers are spread; ``short``: in short runs, because rounding adds up along them."""
    for most, group in GROUPS:
        if p <= most:
            return group._replace(run=min(group.run, SHORT_RUN)) if short else group
    raise ValueError(p)


# Above this cond(E) runs are short: of 7138 Salinas-A pixels at p = 25 (1.5e3) 11 had a δ above 1e-6 after runs of 16, none
# after runs of 4, and one such pixel costs a block a second look by the host, which takes longer than all pivots.
SHORT_FROM, SHORT_RUN = 1e3, 4
GROUPS = (
    (4, Group(2, 2, 4)),
    (8, Group(4, 2, 8)),
    (12, Group(4, 3, 8)),
    (16, Group(8, 2, 16)),
    (24, Group(8, 3, 16)),
    (32, Group(16, 2, 16)),
)


@on_gpu
def reciprocal(x):
    """``1/x`` to the last bit or so, without the slow path of a division: x is neither 0 nor denormal."""
    rough = rough_reciprocal(x)
    rough += rough * (1.0 - x * rough)
    return rough + rough * (1.0 - x * rough)


@on_gpu
def rank_of(size):
    """Bits 6 to 29 of a key, in order of a size that is not negative: its exponent and 13 bits of its mantissa."""
    return int32(int32(cuda.libdevice.double2hiint(size) >> 1) & ~ROW)


def shared_doubles(p: int) -> int:
    """Shared memory of a warp's pivot rows: for each group p entries, the multiplier's, the last column's, 1/d and the
    reach; odd, for the banks."""
    return 32 // group_of(p).lanes * pivot_width(p)


def pivot_width(p: int) -> int:
    """Of one pivot row in shared memory."""
    return p + 4 + (p + 1) % 2


def search_function(p: int, sum_to_one: bool, short: bool) -> Any:
    """``search``, for a warp: abundances of its pixels by pivots on the tableau."""
    lanes, rows, run = group_of(p, short)
    width = pivot_width(p)
    shape = rows, p
    most_pivots = 6 * p + 20
    ones, last, over, reach_at = p, p + 1, p + 2, p + 3

    @on_gpu
    def largest(key):
        """Of a group, known to all its lanes."""
        offset = lanes // 2
        while offset > 0:
            key = int32(max(key, cuda.shfl_xor_sync(ALL_LANES, key, offset)))
            offset //= 2
        return key

    @on_gpu
    def best_alone(own, norms, unit, top):
        """The endmember nearest to the pixel: the largest ``2f − |e|²``."""
        key = int32(-(2**31) + ROW)
        for r in range(rows):
            if top + r < p:
                # In units of the pixel; a float64's upper half, its sign folded, is in order as an integer.
                length = unit * norms[top + r]
                upper = int32(cuda.libdevice.double2hiint((2.0 * own[r] - length) * length))
                high = int32(upper ^ int32(int32(upper >> 31) & 0x7FFFFFFF))
                key = int32(max(key, int32(high & ~ROW) | int32(ROW - (top + r))))  # type: ignore[assignment]
        return int32(ROW - (largest(key) & ROW))

    @on_gpu
    def search(U, norms, weights, tolerance, f, scale, shared, rest, steps, line, start, samples):
        """Put the abundances of the warp's pixels, from ``start`` of a line, in place of their ``Eᵀy`` in ``f``.

        ``U`` is ``EᵀE`` for columns of unit length, ``norms`` and ``weights`` are |e| and 1/|e|; a pixel whose ``scale`` is
        0 has no values and stays as it is. ``shared[rest:]`` is where pivot rows go.
        """
        T = cuda.local.array(shape, float64)
        D = cuda.local.array(rows, float64)  # the diagonal
        V = cuda.local.array(rows, float64)  # the multiplier's column
        B = cuda.local.array(rows, float64)  # the last column: abundances in the support, duals elsewhere
        A = cuda.local.array(rows, float64)  # the feasible point
        own = cuda.local.array(rows, float64)  # f of this pixel
        weight = cuda.local.array(rows, float64)  # 1/|e|
        c = cuda.local.array(rows, float64)
        over_ones = cuda.local.array(rows, float64)
        state = cuda.local.array(rows, int32)
        lane = int32(cuda.laneid % lanes)
        group = int32(cuda.laneid // lanes)
        at = int32(rest + group * width)
        top = int32(lane * rows)  # this lane's first row
        for r in range(rows):
            here = top + r < p
            weight[r] = weights[min(top + r, p - 1)]
            state[r] = FREE if here else NO_ROW
            A[r] = 0.0
            V[r] = 0.0
            D[r] = 1.0
        # Wherever T is touched, columns are the outer loop: only so are both loops small enough to be unrolled, and an
        # array that is indexed by constants alone stays in registers.
        for j in range(p):
            for r in range(rows):
                T[r, j] = U[min(top + r, p - 1), j]
        for turn in range(run):
            sample = start + group * run + turn
            here = sample < samples
            n = line * samples + sample
            size = scale[n] if here else 0.0
            active = size > 0.0
            unit = 1.0 / size if active else 1.0
            for r in range(rows):
                own[r] = f[n, min(top + r, p - 1)] * weight[r] * unit if active and top + r < p else 0.0
            if sum_to_one and turn == 0:
                # The tableau swept on the best single endmember and on the ones can be written down.
                k = best_alone(own, norms, unit, top)
                length = norms[k]
                for r in range(rows):
                    # Sum-to-one has the coefficient 1/|e| here; c is what T has in column k.
                    c[r] = weight[r] * length
                    over_ones[r] = U[min(top + r, p - 1), k] - c[r]
                    V[r] = (-1.0 if top + r == k else over_ones[r]) * length
                    D[r] = 0.0 if top + r == k else 1.0 - c[r] * (2.0 * over_ones[r] + c[r])
                    if top + r < p:
                        state[r] = IN if top + r == k else FREE
                for j in range(p):
                    across = U[k, j]
                    ratio = weights[j] * length
                    for r in range(rows):
                        value = T[r, j] - c[r] * across - over_ones[r] * ratio
                        T[r, j] = ratio if top + r == k else (c[r] if j == k else value)
            # The last column of this pixel for the support at hand: b = f (free rows) − T f (support) − T·ones.
            cuda.syncwarp()
            for r in range(rows):
                if top + r < p:
                    shared[at + top + r] = own[r] if state[r] == IN else 0.0
            cuda.syncwarp()
            for r in range(rows):
                mine = own[r] if state[r] == IN else 0.0
                B[r] = own[r] - mine - D[r] * mine
                if sum_to_one:
                    B[r] -= V[r] * unit
                A[r] = 0.0
                if state[r] == BARRED:
                    state[r] = FREE
            for j in range(p):
                across = shared[at + j]
                for r in range(rows):
                    B[r] -= T[r, j] * (0.0 if top + r == j else across)
            cuda.syncwarp()
            shedding = True
            stuck = False
            entered = int32(-1)
            pivots = int32(0)
            while True:
                # A row that must leave outranks every row that may enter; ties go to the lowest.
                key = int32(0)
                for r in range(rows):
                    drop = abs(B[r])
                    share = drop * rough_reciprocal(A[r] + drop) if A[r] > B[r] else 1.0
                    leave = int32(LEAVING | rank_of(drop if shedding else share))
                    rank = int32(leave if B[r] <= 0.0 else 0)
                    enter = int32(rank_of(B[r]) if B[r] > tolerance else 0)
                    rank = int32(rank if state[r] == IN else (enter if state[r] == FREE else 0))
                    key = int32(max(key, int32(rank | int32(ROW - (top + r))) if rank != 0 else int32(0)))
                key = largest(key)
                if key == 0 or pivots >= most_pivots:
                    if active:
                        for r in range(rows):
                            if top + r < p:
                                f[n, top + r] = max(B[r], 0.0) * weight[r] * size if state[r] == IN else 0.0
                        if lane == 0:
                            steps[line, sample] = pivots
                    active = False
                if not cuda.any_sync(ALL_LANES, active):
                    break
                k = int32(ROW - (key & ROW))
                leaving = key >= LEAVING
                sign = -1.0 if leaving else 1.0
                if active and not leaving:
                    # All of the support is positive: a success. Barred rows may try again.
                    shedding = False
                    for r in range(rows):
                        A[r] = B[r] if state[r] == IN else 0.0
                        if state[r] == BARRED and not stuck:
                            state[r] = FREE
                    stuck = False
                if active and k // rows == lane:
                    d, v, b, x = 0.0, 0.0, 0.0, 0.0
                    for r in range(rows):
                        if k == top + r:
                            d, v, b, x = D[r], V[r], B[r], A[r]
                    for j in range(p):
                        for r in range(rows):
                            if k == top + r:
                                shared[at + j] = T[r, j]
                    # A column that depends on the support may not enter: no pivot.
                    sound = leaving or d > DEPENDENT
                    shared[at + k] = d - sign
                    shared[at + ones] = v
                    shared[at + last] = b
                    shared[at + over] = reciprocal(d) if sound else 0.0
                    shared[at + reach_at] = x * reciprocal(x - b) if x > b else 0.0
                cuda.syncwarp()
                if active:
                    inverse = shared[at + over]
                    reach = shared[at + reach_at]
                    sound = inverse != 0.0
                    stuck_now = leaving and k == entered and not shedding
                    after = int32((BARRED if stuck_now else FREE) if leaving else (IN if sound else BARRED))
                    for r in range(rows):
                        if leaving and not shedding and state[r] == IN:
                            A[r] = max(A[r] + reach * (B[r] - A[r]), 0.0)
                        across = shared[at + min(top + r, p - 1)]
                        c[r] = across * inverse
                        D[r] -= c[r] * across
                        b = B[r] - c[r] * shared[at + last]
                        if k == top + r:
                            A[r] = 0.0
                            c[r] = 1.0 - sign * inverse if sound else 0.0
                            D[r] = -inverse if sound else shared[at + k] + sign
                            b = B[r] * (sign * inverse if sound else 1.0)
                            state[r] = after
                        B[r] = b
                        if sum_to_one:
                            V[r] -= c[r] * shared[at + ones]
                    for j in range(p):
                        across = shared[at + j]
                        for r in range(rows):
                            T[r, j] -= c[r] * across
                    if leaving:
                        stuck = stuck_now
                    else:
                        entered = k
                    pivots = int32(pivots + 1)
                cuda.syncwarp()

    return search
