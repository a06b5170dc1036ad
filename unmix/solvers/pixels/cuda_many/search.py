"""Active set search on a working set (`unmix.solvers.pixels.working_set`), a warp for each pixel.

The tableau of the working set lies in shared memory; one that is too large for it in global memory. A lane holds the columns lane,
lane + 32, … of every row. All lanes agree on each decision by one 32-bit key, so no branch diverges. A pixel that needs more columns
than a stage has room for is left to the next.
"""

import functools
from typing import Any, NamedTuple

from numba import float64, int32

from ....compiled.cuda import ALL_LANES, cuda, cuda_kernel, on_gpu
from ....compiled.ptx import largest_of_warp, rough_reciprocal
from ..cuda_fast.active_set import reciprocal
from ..inverse_update import DEPENDENT
from ..scalar import BARRED, FREE, PASSIVE, STEPS_PER_ENDMEMBER
from ..working_set import ABSENT

WARP = 32
# Columns that join the support in a round, and rounds of a pixel.
CANDIDATES, MOST_ROUNDS, MOST_EXCHANGES = 12, 100, 16
# The most columns of a working set (with that of the ones) in each stage; the last one's tableau lies in global memory.
STAGES = (24, 40, 56, 72, 256)
# Bounds on the registers of a thread in each stage, so that as many warps are resident as shared memory has room for.
REGISTERS = (64, 128, None, None, None)
MOST_MEMBERS = STAGES[-1]
# A key has this bit if its place must leave; below it are the rank of a size and, in the last eight bits, 255 less the place.
LEAVING, PLACE = 1 << 30, 255


class Library(NamedTuple):
    """What all pixels share; p endmembers, float64."""

    U: Any  # (p, p) Gram matrix of the columns at unit length
    norms: Any  # (p,)
    weights: Any  # (p,) = 1/|e_j|
    least: float  # the shortest length
    tolerance: float  # of a dual


class Found(NamedTuple):
    """What the search leaves of N pixels."""

    a: Any  # (N, P) float64: Eᵀy on entry, the abundances after it; P >= p
    scale: Any  # (N,) float64: what the search divides by; 0 where the pixel is masked
    members: Any  # (N, MOST_MEMBERS) int32: the support
    count: Any  # (N,) int32: its size k; −1 − k where the stage has no room for more
    steps: Any  # (N,) int32
    kept: Any  # (N, ·) float64: abundances of the support for the next stage, in units of the tableau, and the multiplier of the ones


@on_gpu
def rank_of(size):
    """Return bits 8 to 29 of a key, ordered as ``size`` ≥ 0: its exponent and 11 bits of its mantissa."""
    return int32(int32(cuda.libdevice.double2hiint(size) >> 1) & ~PLACE)


@on_gpu
def pivot(T, row, b, k, sign, columns):
    """Sweep the tableau on place k, which enters (``sign`` 1) or leaves (−1); ``row`` is what `load_row` copied of it."""
    lane = int32(cuda.laneid)
    d = row[k]
    beta = b[k]
    inverse = reciprocal(d)
    cuda.syncwarp()
    if lane == 0:
        row[k] = d - sign
    cuda.syncwarp()
    for j in range(lane, columns, WARP):
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
        b[j] -= across * beta
    cuda.syncwarp()
    if lane == 0:
        T[k, k] = -inverse
    cuda.syncwarp()


@on_gpu
def load_row(T, row, k, columns):
    """Copy row k of the tableau, and return its diagonal entry."""
    cuda.syncwarp()
    for j in range(int32(cuda.laneid), columns, WARP):
        row[j] = T[k, j]
    cuda.syncwarp()
    return row[k]


@functools.cache
def warp_functions(sum_to_one: bool) -> Any:
    """Return the functions of a warp that `search_kernel` is made of."""
    ones = 1 if sum_to_one else 0

    @on_gpu
    def nearest(library, f, n, unit, p):
        """Return the one endmember that is nearest to the pixel."""
        best, gain = int32(-1), -1e300
        for j in range(int32(cuda.laneid), p, WARP):
            length = library.norms[j] * unit
            value = (2.0 * f[n, j] * library.weights[j] * unit - length) * length
            if value > gain:
                best, gain = int32(j), value
        flip = 16
        while flip > 0:
            other, value = cuda.shfl_xor_sync(ALL_LANES, best, flip), cuda.shfl_xor_sync(ALL_LANES, gain, flip)
            if other >= 0 and (best < 0 or value > gain or (value == gain and other < best)):
                best, gain = int32(other), value
            flip //= 2
        return best

    @on_gpu
    def find_candidates(library, f, n, unit, p, multiplier, members, a, k, room):
        """Add the columns with the largest duals, at most one of each lane, to the k members; return how many members there are."""
        lane = int32(cuda.laneid)
        best, most = int32(-1), library.tolerance
        shift = multiplier * library.least
        # Two columns and four rows at a time: a load takes as long as a hundred operations.
        for j in range(lane, p, 2 * WARP):
            next_j = min(j + WARP, p - 1)
            price = (f[n, j] * unit - shift) * library.weights[j]
            next_price = (f[n, next_j] * unit - shift) * library.weights[next_j]
            i = 0
            while i + 4 <= k:
                m0, m1, m2, m3 = members[i], members[i + 1], members[i + 2], members[i + 3]
                u0, u1, u2, u3 = library.U[m0, j], library.U[m1, j], library.U[m2, j], library.U[m3, j]
                v0, v1, v2, v3 = (
                    library.U[m0, next_j],
                    library.U[m1, next_j],
                    library.U[m2, next_j],
                    library.U[m3, next_j],
                )
                price -= a[i] * u0 + a[i + 1] * u1 + a[i + 2] * u2 + a[i + 3] * u3
                next_price -= a[i] * v0 + a[i + 1] * v1 + a[i + 2] * v2 + a[i + 3] * v3
                if m0 == j or m1 == j or m2 == j or m3 == j:
                    price = -1e300
                if m0 == next_j or m1 == next_j or m2 == next_j or m3 == next_j:
                    next_price = -1e300
                i += 4
            while i < k:
                member = members[i]
                price = price - a[i] * library.U[member, j] if member != j else -1e300
                next_price = next_price - a[i] * library.U[member, next_j] if member != next_j else -1e300
                i += 1
            if price > most:
                best, most = int32(j), price
            if next_price > most and j + WARP < p:
                best, most = int32(next_j), next_price
        m = int32(k)
        while m < room and m < k + CANDIDATES:
            key = largest_of_warp(int32(rank_of(most) | int32(PLACE - lane)) if best >= 0 else int32(0))
            if key == 0:
                break
            source = int32(PLACE - (key & PLACE))
            column = cuda.shfl_sync(ALL_LANES, best, source)
            if lane == source:
                best = int32(-1)
            if lane == 0:
                members[m] = column
            m = int32(m + 1)
        cuda.syncwarp()
        return m

    @on_gpu
    def fill(library, f, n, unit, members, a, k, m, T, b, state, feasible):
        """Fill the tableau of m members, after a row and a column of ones under Σa = 1."""
        for j in range(int32(cuda.laneid), m + ones, WARP):
            is_one = j < ones
            column = members[max(j - ones, 0)]
            weight = library.weights[column]
            i = 0
            while i < m:  # four loads at a time, before the stores that they could depend on for all the compiler knows
                r0, r1 = members[i], members[min(i + 1, m - 1)]
                r2, r3 = members[min(i + 2, m - 1)], members[min(i + 3, m - 1)]
                u0, u1, u2, u3 = (
                    library.U[r0, column],
                    library.U[r1, column],
                    library.U[r2, column],
                    library.U[r3, column],
                )
                if is_one:
                    u0, u1 = library.weights[r0] * library.least, library.weights[r1] * library.least
                    u2, u3 = library.weights[r2] * library.least, library.weights[r3] * library.least
                T[i + ones, j] = u0
                if i + 1 < m:
                    T[i + 1 + ones, j] = u1
                if i + 2 < m:
                    T[i + 2 + ones, j] = u2
                if i + 3 < m:
                    T[i + 3 + ones, j] = u3
                i += 4
            if ones == 1:
                T[0, j] = 0.0 if is_one else weight * library.least
            b[j] = unit * library.least if is_one else f[n, column] * weight * unit
            inside = j < k + ones and not is_one
            state[j] = int32(ABSENT if is_one else (PASSIVE if inside else FREE))
            feasible[j] = a[j - ones] if inside else 0.0
        cuda.syncwarp()

    @on_gpu
    def sweep_in(T, row, b, state, feasible, k, columns):
        """Sweep on the support, and under Σa = 1 on the ones."""
        for place in range(ones, k + ones):
            d = load_row(T, row, place, columns)
            if d > DEPENDENT:
                pivot(T, row, b, place, 1.0, columns)
            elif int32(cuda.laneid) == 0:
                state[place], feasible[place] = int32(FREE), 0.0
            if ones == 1 and place == 1 and load_row(T, row, 0, columns) < 0.0:
                pivot(T, row, b, 0, 1.0, columns)
        cuda.syncwarp()

    @on_gpu
    def choose(b, state, feasible, tolerance, columns):
        """Return the key of the next step; 0 if the search has ended."""
        key = int32(0)
        for j in range(int32(cuda.laneid), columns, WARP):
            at, left = b[j], feasible[j]
            rank = int32(0)
            if state[j] == PASSIVE and at <= 0.0:
                share = -at * rough_reciprocal(left - at) if left > at else 1.0
                rank = int32(LEAVING | rank_of(share) | int32(PLACE - j))
            elif state[j] == FREE and at > tolerance:
                rank = int32(rank_of(at) | int32(PLACE - j))
            key = int32(max(key, rank))
        return largest_of_warp(key)

    @on_gpu
    def swap_for(row, state, feasible, k, columns):
        """Return the place that leaves in exchange for place k, which depends on the support, and move to where it is 0; −1 if none."""
        lane = int32(cuda.laneid)
        key = int32(0)
        for j in range(lane, columns, WARP):
            if state[j] == PASSIVE and row[j] > 1e-4:
                size = row[j] / feasible[j] if feasible[j] > 1e-200 else 1e200
                key = int32(max(key, int32(rank_of(size) | int32(PLACE - j))))
        key = largest_of_warp(key)
        if key == 0:
            return int32(-1)
        leaving = int32(PLACE - (key & PLACE))
        step = feasible[leaving] / row[leaving]
        cuda.syncwarp()
        for j in range(lane, columns, WARP):
            if state[j] == PASSIVE:
                feasible[j] = max(feasible[j] - step * row[j], 0.0)
            if j == k:
                feasible[j] = step
        cuda.syncwarp()
        if lane == 0:
            state[leaving], feasible[leaving] = int32(FREE), 0.0
        cuda.syncwarp()
        return leaving

    @on_gpu
    def search_set(T, row, b, state, feasible, tolerance, columns):
        """Run Lawson-Hanson on the working set; return the steps."""
        lane = int32(cuda.laneid)
        steps, exchanges, entered, stuck = int32(0), int32(0), int32(-1), False
        while steps < STEPS_PER_ENDMEMBER * columns + 20:
            key = choose(b, state, feasible, tolerance, columns)
            if key == 0:
                break
            k = int32(PLACE - (key & PLACE))
            steps = int32(steps + 1)
            d = load_row(T, row, k, columns)
            if key >= LEAVING:
                reach = feasible[k] / (feasible[k] - b[k]) if feasible[k] > b[k] else 0.0
                cuda.syncwarp()
                for j in range(lane, columns, WARP):
                    if state[j] == PASSIVE:
                        feasible[j] = max(feasible[j] + reach * (b[j] - feasible[j]), 0.0)
                cuda.syncwarp()
                stuck = k == entered
                if lane == 0:
                    state[k], feasible[k] = int32(BARRED if stuck else FREE), 0.0
                pivot(T, row, b, k, -1.0, columns)
                continue
            for j in range(lane, columns, WARP):  # all of the support is positive: a success
                if state[j] == PASSIVE:
                    feasible[j] = b[j]
                elif state[j] == BARRED and not stuck and d > DEPENDENT:
                    state[j] = int32(FREE)
            stuck = False
            cuda.syncwarp()
            if not d > DEPENDENT and exchanges < MOST_EXCHANGES:
                leaving = swap_for(row, state, feasible, k, columns)
                if leaving >= 0:
                    exchanges = int32(exchanges + 1)
                    load_row(T, row, leaving, columns)
                    pivot(T, row, b, leaving, -1.0, columns)
                    d = load_row(T, row, k, columns)
            sound = d > DEPENDENT
            if lane == 0:
                state[k] = int32(PASSIVE if sound else BARRED)
                feasible[k] = feasible[k] if sound else 0.0
            if sound:
                pivot(T, row, b, k, 1.0, columns)
                entered = k
            cuda.syncwarp()
        return steps

    @on_gpu
    def keep_support(b, state, members, a, k, m):
        """Make the support that was found the first members; return its size, negative if it is the one before."""
        size, changed = int32(0), False
        for i in range(m):
            stays = state[i + ones] == PASSIVE and b[i + ones] > 0.0
            changed = changed or stays != (i < k)
            if stays:
                member, value = members[i], b[i + ones]
                cuda.syncwarp()
                if int32(cuda.laneid) == 0:
                    members[size], a[size] = member, value
                size = int32(size + 1)
                cuda.syncwarp()
        cuda.syncwarp()
        return size if changed else int32(-size - 1)

    return nearest, find_candidates, fill, sweep_in, search_set, keep_support


@functools.cache
def search_kernel(sum_to_one: bool, stage: int, first: bool) -> Any:
    """Return the kernel that replaces ``Eᵀy`` of every pixel by its abundances; unless ``first``, for those that stages before have
    left.

    Its arguments are `Library`, `Found`, the number of pixels, and for the last stage the tableaux in global memory (blocks, m, m).
    """
    nearest, find_candidates, fill, sweep_in, search_set, keep_support = warp_functions(sum_to_one)
    most, ones, last = STAGES[stage], 1 if sum_to_one else 0, stage == len(STAGES) - 1
    tableau_shape = (1, 1) if last else (most, most + 1 - most % 2)

    @functools.partial(cuda_kernel, registers=REGISTERS[stage])
    def search_block(library, found, pixels, tableaux):
        in_shared = cuda.shared.array(tableau_shape, float64)
        row = cuda.shared.array(most, float64)
        b = cuda.shared.array(most, float64)
        feasible = cuda.shared.array(most, float64)
        a = cuda.shared.array(most, float64)
        state = cuda.shared.array(most, int32)
        members = cuda.shared.array(most, int32)
        T = tableaux[cuda.blockIdx.x] if last else in_shared
        lane, p = int32(cuda.laneid), library.norms.shape[0]
        f = found.a
        room = min(most - ones, p)
        for n in range(cuda.blockIdx.x, pixels, cuda.gridDim.x):
            if not first and found.count[n] >= 0:
                continue
            size = found.scale[n]
            unit = 1.0 / size if size > 0.0 else 1.0
            k, steps, multiplier = int32(0), int32(0), 0.0
            if not first:  # where the stage before has stopped
                k, steps = int32(-1 - found.count[n]), found.steps[n]
                multiplier = found.kept[n, k]
                for i in range(lane, k, WARP):
                    members[i], a[i] = found.members[n, i], found.kept[n, i]
            elif sum_to_one and size > 0.0:
                column = nearest(library, f, n, unit, p)
                if lane == 0:
                    members[0], a[0] = column, library.norms[column] * unit
                weight = library.weights[column]
                multiplier = (f[n, column] * weight * unit - library.norms[column] * unit) / (weight * library.least)
                k = int32(1)
            cuda.syncwarp()
            unfinished = False
            for _ in range(MOST_ROUNDS if size > 0.0 else 0):
                if not last and room < p and room - k < CANDIDATES // 2:
                    unfinished = True
                    break
                m = find_candidates(library, f, n, unit, p, multiplier, members, a, k, room)
                if m == k:
                    break
                columns = m + ones
                fill(library, f, n, unit, members, a, k, m, T, b, state, feasible)
                sweep_in(T, row, b, state, feasible, k, columns)
                steps = int32(steps + search_set(T, row, b, state, feasible, library.tolerance, columns))
                if sum_to_one:
                    multiplier = b[0]
                kept = keep_support(b, state, members, a, k, m)
                k = int32(kept if kept >= 0 else -kept - 1)
                if kept < 0:
                    break
            if not unfinished:
                for j in range(lane, f.shape[1], WARP):
                    f[n, j] = 0.0
                cuda.syncwarp()
                for i in range(lane, k, WARP):
                    f[n, members[i]] = a[i] * (library.weights[members[i]] * size)
            for i in range(lane, k, WARP):
                found.members[n, i] = members[i]
                if unfinished:
                    found.kept[n, i] = a[i]
            if lane == 0:
                if unfinished:
                    found.kept[n, k] = multiplier
                found.count[n] = -1 - k if unfinished else k
                found.steps[n] = steps
            cuda.syncwarp()

    return search_block
