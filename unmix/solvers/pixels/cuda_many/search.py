"""Active set search on a working set (`unmix.solvers.pixels.working_set`), a warp for each pixel.

All lanes agree on each decision by one 32-bit key, so no branch diverges. A library that fits a tableau in registers is
its own working set, and one round is enough. With a larger one, a pixel that needs more columns than a stage has room
for is left to the next.
"""

import functools
from typing import Any, NamedTuple

from numba import float64, int32, uint32

from ....compiled.cuda import ALL_LANES, cuda, cuda_kernel, on_gpu
from ....compiled.ptx import largest_of_warp, rough_reciprocal
from ....compiled.warp import counted_in_warp
from ..inverse_update import DEPENDENT_COLUMN
from ..scalar import BARRED, FREE, PASSIVE, STEPS_PER_ENDMEMBER
from ..working_set import ABSENT
from .tableau import WARP, Stage, tableau_functions

# Columns that join the support in a round, and rounds of a pixel.
CANDIDATES, MOST_ROUNDS = 12, 100
STAGES = (
    Stage(32, "tiles", 96, 20),
    Stage(48, "tiles", 160, 12),
    Stage(64, "tiles", 216, 9),
    Stage(256, "global", None, 2),
)
# The first of these with room for a whole library takes it.
WHOLE = (Stage(40, "tiles", 128, 16), Stage(48, "tiles", 160, 12))
# A pivot below this may have cost the digits of a whole library's tableau: the next round prices it afresh.
SMALL_PIVOT = 1e-4
MOST_MEMBERS = STAGES[-1].most
# A key has this bit if its place must leave; below it are the rank of a size and, in the last eight bits, 255 less the
# place.
LEAVING, PLACE = 1 << 30, 255


class Library(NamedTuple):
    """Constants that all pixels share; p endmembers, float64."""

    U: Any  # (p, p) Gram matrix of the columns at unit length; under Σa = 1 after a row and a column of the ones
    norms: Any  # (p,)
    weights: Any  # (p,) = 1/|e_j|
    least: float  # the shortest length
    tolerance: float  # of a dual
    most_exchanges: (
        int  # of a pixel in a round, and up to which pivot: see `unmix.solvers.pixels.active_set.exchanges_of`
    )
    near: float
    tiles: Any  # U by `in_lane_order`; of length 0 if it is not searched whole


class SearchResults(NamedTuple):
    """Results of the search for N pixels."""

    a: Any  # (N, P) float64: Eᵀy on entry, the abundances after it; P >= p
    scale: Any  # (N,) float64: what the search divides by; 0 where the pixel is masked
    members: Any  # (N, MOST_MEMBERS) int32: the support
    count: Any  # (N,) int32: its size k; −1 − k where the stage has no room for more
    steps: Any  # (N,) int32
    kept: Any  # (N, ·) float64: abundances for the next stage, in units of the tableau, and the multiplier of the ones


@on_gpu
def rank_in_warp(size):
    """Return bits 8 to 29 of a key, ordered as ``size`` ≥ 0: its exponent and 11 bits of its mantissa."""
    return int32(int32(cuda.libdevice.double2hiint(size) >> 1) & ~PLACE)


@on_gpu
def nearest_column(library, f, n, unit, p):
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
def candidates_of_warp(library, f, n, unit, p, ones, multiplier, members, a, k, room):
    """Add the columns with the largest duals, at most one per lane, to the k members; return their new number."""
    lane = int32(cuda.laneid)
    best, most = int32(-1), library.tolerance
    U, shift = library.U, multiplier * library.least
    # Two columns and four rows at a time: a load takes as long as a hundred operations.
    for j in range(lane, p, 2 * WARP):
        next_j = min(j + WARP, p - 1)
        column, next_column = uint32(j + ones), uint32(next_j + ones)
        price = (f[n, j] * unit - shift) * library.weights[j]
        next_price = (f[n, next_j] * unit - shift) * library.weights[next_j]
        i = 0
        while i + 4 <= k:
            m0, m1, m2, m3 = members[i], members[i + 1], members[i + 2], members[i + 3]
            r0, r1, r2, r3 = uint32(m0 + ones), uint32(m1 + ones), uint32(m2 + ones), uint32(m3 + ones)
            u0, u1, u2, u3 = U[r0, column], U[r1, column], U[r2, column], U[r3, column]
            v0, v1, v2, v3 = U[r0, next_column], U[r1, next_column], U[r2, next_column], U[r3, next_column]
            price -= a[i] * u0 + a[i + 1] * u1 + a[i + 2] * u2 + a[i + 3] * u3
            next_price -= a[i] * v0 + a[i + 1] * v1 + a[i + 2] * v2 + a[i + 3] * v3
            if m0 == j or m1 == j or m2 == j or m3 == j:
                price = -1e300
            if m0 == next_j or m1 == next_j or m2 == next_j or m3 == next_j:
                next_price = -1e300
            i += 4
        while i < k:
            member = members[i]
            price = price - a[i] * U[uint32(member + ones), column] if member != j else -1e300
            next_price = next_price - a[i] * U[uint32(member + ones), next_column] if member != next_j else -1e300
            i += 1
        if price > most:
            best, most = int32(j), price
        if next_price > most and j + WARP < p:
            best, most = int32(next_j), next_price
    key = int32(rank_in_warp(most) | int32(PLACE - lane)) if best >= 0 else int32(0)
    before = int32(0)
    for other in range(WARP):
        before = int32(before + (1 if cuda.shfl_sync(ALL_LANES, key, other) > key else 0))
    found = counted_in_warp(key > 0)[1]
    free = min(int32(room - k), int32(CANDIDATES))
    if key > 0 and before < free:
        members[k + before] = best
    cuda.syncwarp()
    return int32(k + min(found, free))


@on_gpu
def write_pixel(library, found, n, size, members, a, k, multiplier, steps, unfinished):
    """Write the k abundances of a pixel, or what the next stage goes on from."""
    lane = int32(cuda.laneid)
    if not unfinished:
        for j in range(lane, found.a.shape[1], WARP):
            found.a[n, j] = 0.0
        cuda.syncwarp()
        for i in range(lane, k, WARP):
            found.a[n, members[i]] = a[i] * (library.weights[members[i]] * size)
    for i in range(lane, k, WARP):
        found.members[n, i] = members[i]
        if unfinished:
            found.kept[n, i] = a[i]
    if lane == 0:
        if unfinished:
            found.kept[n, k] = multiplier
        found.count[n] = -1 - k if unfinished else k
        found.steps[n] = steps


@functools.cache
def warp_functions(stage: Stage, sum_to_one: bool, half: bool) -> Any:
    """Return the functions of a warp of `search_kernel`; arrays of values have an entry for each column of a lane."""
    ones, per_lane = 1 if sum_to_one else 0, stage.per_lane
    invert, value_at, fill, fill_whole, load_row, pivot = tableau_functions(stage, sum_to_one, half)

    @on_gpu
    def begin(library, f, n, unit, members, a, first, k, m, b, feasible, state):
        """Set b, state and feasible of each place before any sweep; k places from ``first`` on are the support."""
        for c in range(per_lane):
            place = int32(cuda.laneid) + WARP * c
            index = min(max(place - ones, 0), m - 1)
            inside = ones <= place < m + ones
            is_member = first <= place < first + k
            b[c] = f[n, members[index]] * library.weights[members[index]] * unit if inside else 0.0
            if ones == 1 and place == 0:
                b[c] = unit * library.least
            state[c] = int32(PASSIVE if is_member else (FREE if inside else ABSENT))
            feasible[c] = a[place - first] if is_member else 0.0

    @on_gpu
    def choose(b, feasible, state, tolerance):
        """Return the key of the next step; 0 if the search has ended."""
        key = int32(0)
        for c in range(per_lane):
            at, left = b[c], feasible[c]
            rank = int32(0)
            below = int32(PLACE - (int32(cuda.laneid) + WARP * c))
            if state[c] == PASSIVE and at <= 0.0:
                share = -at * rough_reciprocal(left - at) if left > at else 1.0
                rank = int32(LEAVING | rank_in_warp(share) | below)
            elif state[c] == FREE and at > tolerance:
                rank = int32(rank_in_warp(at) | below)
            key = int32(max(key, rank))
        return largest_of_warp(key)

    @on_gpu
    def swap_for(T, row, feasible, state, k, d, dual, columns):
        """Move to where a column leaves for the dependent place k of pivot d, and return its place; −1 if none does."""
        # See unmix.solvers.pixels.active_set.exchange.
        load_row(T, row, k, columns)
        key = int32(0)
        for c in range(per_lane):
            place = int32(cuda.laneid) + WARP * c
            if state[c] == PASSIVE and row[place] > 1e-4:
                size = row[place] / feasible[c] if feasible[c] > 1e-200 else 1e200
                key = int32(max(key, int32(rank_in_warp(size) | int32(PLACE - place))))
        key = largest_of_warp(key)
        if key == 0:
            return int32(-1)
        leaving = int32(PLACE - (key & PLACE))
        step = value_at(feasible, leaving) / row[leaving]
        if d > DEPENDENT_COLUMN and dual < d * step:
            return int32(-1)
        for c in range(per_lane):
            place = int32(cuda.laneid) + WARP * c
            if place == leaving:
                state[c], feasible[c] = int32(FREE), 0.0
            elif place == k:
                feasible[c] = step
            elif state[c] == PASSIVE:
                feasible[c] = max(feasible[c] - step * row[place], 0.0)
        return leaving

    @on_gpu
    def leave(b, feasible, state, k, next_state):
        """Move towards the solution on the support until place k's abundance is 0, and take k out of the support."""
        left, at = value_at(feasible, k), value_at(b, k)
        reach = left / (left - at) if left > at else 0.0
        for c in range(per_lane):
            if state[c] == PASSIVE:
                feasible[c] = max(feasible[c] + reach * (b[c] - feasible[c]), 0.0)
            if int32(cuda.laneid) + WARP * c == k:
                state[c], feasible[c] = next_state, 0.0

    @on_gpu
    def succeed(b, feasible, state, frees):
        """Move to the solution on the support, which is positive; what was barred may enter again if it ``frees``."""
        for c in range(per_lane):
            if state[c] == PASSIVE:
                feasible[c] = b[c]
            elif state[c] == BARRED and frees:
                state[c] = int32(FREE)

    @on_gpu
    def set_state(feasible, state, k, new, keeps):
        """Set the state of place k, and its abundance to 0 unless it ``keeps`` it."""
        for c in range(per_lane):
            if int32(cuda.laneid) + WARP * c == k:
                state[c] = new
                feasible[c] = feasible[c] if keeps else 0.0

    @on_gpu
    def search_set(T, D, inverses, b, feasible, state, row, first, k, library, columns):
        """Sweep on k places from ``first`` on and run Lawson-Hanson; return steps and smallest pivot that entered."""
        steps, exchanges, entered, stuck, smallest = int32(0), int32(0), int32(-1), False, 1.0
        swept, with_ones, waiting = first, ones == 0, int32(-1)
        most_steps = int32(STEPS_PER_ENDMEMBER * columns + 20)
        while steps < most_steps:
            invert(D, inverses)
            sign = 1.0
            if swept > first and not with_ones:  # right after the first of the support
                place, with_ones = int32(0), True
            elif swept < first + k:
                place = swept
                swept = int32(swept + 1)
                if not value_at(D, place) > DEPENDENT_COLUMN:
                    set_state(feasible, state, place, int32(FREE), False)
                    continue
            else:
                exchanged = waiting >= 0
                key = int32(PLACE - waiting) if exchanged else choose(b, feasible, state, library.tolerance)
                if key == 0:
                    break
                steps, place = int32(steps + 1), int32(PLACE - (key & PLACE))
                if key >= LEAVING:
                    stuck = place == entered
                    leave(b, feasible, state, place, int32(BARRED if stuck else FREE))
                    sign = -1.0
                else:
                    d, dual = value_at(D, place), value_at(b, place)
                    if not exchanged:
                        succeed(b, feasible, state, not stuck and d > DEPENDENT_COLUMN)
                    stuck, waiting = False, int32(-1)
                    leaving = int32(-1)
                    if not d > library.near and not exchanged and exchanges < library.most_exchanges:
                        leaving = swap_for(T, row, feasible, state, place, d, dual, columns)
                    if leaving >= 0:
                        exchanges, waiting = int32(exchanges + 1), place
                        place, sign = leaving, -1.0
                    elif d > DEPENDENT_COLUMN:
                        set_state(feasible, state, place, int32(PASSIVE), True)
                        entered, smallest = place, min(smallest, d)
                    else:
                        set_state(feasible, state, place, int32(BARRED), False)
                        continue
            # The only call of pivot: with four, the code did not fit the cache of instructions.
            pivot(T, D, inverses, b, row, place, sign, columns)
        return steps, smallest

    @on_gpu
    def keep_support(b, state, members, a, first, k, m):
        """Make the support that was found the first members; return its size, negative if it is the one before."""
        size, changed = int32(0), False
        for c in range(per_lane):
            place = int32(cuda.laneid) + WARP * c
            stays = place >= ones and state[c] == PASSIVE and b[c] > 0.0
            changed = cuda.any_sync(ALL_LANES, stays != (first <= place < first + k)) or changed
            before, kept = counted_in_warp(stays)
            member = members[min(max(place - ones, 0), m - 1)]
            cuda.syncwarp()
            if stays:
                members[size + before], a[size + before] = member, b[c]
            size = int32(size + kept)
            cuda.syncwarp()
        return size if changed else int32(-size - 1)

    return begin, fill, fill_whole, search_set, keep_support, value_at


def stages_for(columns: int) -> tuple[tuple[Stage, ...], bool]:
    """Return a search's stages for endmembers and the row of ones, and whether the first takes the whole library."""
    for stage in WHOLE:
        if columns <= stage.most:
            return (stage,), True
    return STAGES, False


@functools.cache
def search_kernel(sum_to_one: bool, stage: Stage, whole: bool, first: bool, half: bool) -> Any:
    """Return the kernel of one stage, which replaces ``Eᵀy`` by the abundances."""
    # The `first` stage takes all pixels, later ones pixels that ran out of room. Arguments: Library, SearchResults, the
    # number of pixels, and for the last stage the tableaux in global memory (blocks, m, m).
    begin, fill, fill_whole, search_set, keep_support, value_at = warp_functions(stage, sum_to_one, half)
    most, ones, last, per_lane = stage.most, 1 if sum_to_one else 0, stage == STAGES[-1], stage.per_lane
    shape, scratch, in_tiles = stage.shape, stage.scratch, stage.memory == "tiles"

    @functools.partial(cuda_kernel, registers=stage.registers)
    def search_block(library, found, pixels, tableaux):
        if in_tiles:
            T = cuda.local.array(shape, float64)
        else:
            T = tableaux[cuda.blockIdx.x]
        D = cuda.local.array(per_lane, float64)
        inverses = cuda.local.array(per_lane, float64)
        b = cuda.local.array(per_lane, float64)
        feasible = cuda.local.array(per_lane, float64)
        state = cuda.local.array(per_lane, int32)
        rows = cuda.shared.array(scratch, float64)
        row = cuda.shared.array(most, float64)
        a = cuda.shared.array(most, float64)
        members = cuda.shared.array(most, int32)
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
                column = nearest_column(library, f, n, unit, p)
                if lane == 0:
                    members[0], a[0] = column, library.norms[column] * unit
                weight = library.weights[column]
                multiplier = (f[n, column] * weight * unit - library.norms[column] * unit) / (weight * library.least)
                k = int32(1)
            cuda.syncwarp()
            begins = int32(ones)
            if whole:
                begins = int32(begins + members[0] if k == 1 else begins)
                cuda.syncwarp()
                for i in range(lane, p, WARP):
                    members[i] = i
                cuda.syncwarp()
            unfinished = False
            for number in range(MOST_ROUNDS if size > 0.0 else 0):
                if not last and room < p and room - k < CANDIDATES // 2:
                    unfinished = True
                    break
                at_once = whole and number == 0
                m = p if at_once else candidates_of_warp(library, f, n, unit, p, ones, multiplier, members, a, k, room)
                # After small pivots the support is swept afresh, even where no column is to join it.
                if m == k and not (whole and number == 1 and k > 0):
                    break
                begins = begins if at_once else int32(ones)
                if whole and at_once:
                    fill_whole(library, T, D)
                else:
                    fill(library, members, m, T, D, rows)
                begin(library, f, n, unit, members, a, begins, k, m, b, feasible, state)
                columns = int32(m + ones)
                taken, smallest = search_set(T, D, inverses, b, feasible, state, row, begins, k, library, columns)
                steps = int32(steps + taken)
                if sum_to_one:
                    multiplier = value_at(b, 0)
                kept = keep_support(b, state, members, a, begins, k, m)
                k = int32(kept if kept >= 0 else -kept - 1)
                if kept < 0 or (at_once and smallest > SMALL_PIVOT):
                    break
            write_pixel(library, found, n, size, members, a, k, multiplier, steps, unfinished)
            cuda.syncwarp()

    return search_block
