"""The exact search, pixels side by side: an active set by pivots on the swept tableau, one of each lane.

    T = [[U, f], [fᵀ, ·]]  swept on the support (fcls: and on the row of ones, which never leaves and is not kept),

where U is the Gram matrix of the endmembers at unit length, and pixels are scaled by their size. A pivot on index k lets a
column enter (s = 1) or leave (s = −1): ``d = T_kk; T_ij −= T_ik T_kj / d; T_ik = s T_ik / d; T_kk = −1/d``. The last row then
holds the abundances of the support and the duals of the rest: all that the next step asks for.

Each lane has its own k in the same pass. The pivot's row is collected lane by lane, with ``d − s`` in the pivot's own
place, so that one multiplication and addition serves every entry of T alike; T is symmetric, and half of it is kept. No
branch depends on a lane: those that did cost as much as all the rest. Every pixel starts cold, from its best endmember: its
answer is a function of itself.
"""

import functools
from typing import Any

import numpy as np

from ...compiled.jit import compiled
from ...compiled.simd import Width
from .inverse_update import DEPENDENT
from .scalar import BARRED, FREE, PASSIVE, STEPS_PER_ENDMEMBER


@compiled
def row_of(k):
    """Where row k begins in a triangle that is kept row by row."""
    return k * (k + 1) // 2


@functools.cache
def start_function(ops: Width) -> Any:
    """``start``: the tableau of an empty support, or, for the sum to one, of the best single endmember."""
    width, load, store, select, broadcast = ops.width, ops.load, ops.store, ops.select, ops.broadcast

    @compiled
    def start(plan, tile, unit):
        U, norms, weights = plan.U, plan.norms, plan.weights
        T, pivot, chosen = tile.T, tile.pivot, tile.chosen
        p = U.shape[0]
        last = row_of(p)
        for j in range(p):
            store(T, last + j, load(tile.F, j) * (broadcast(weights[j]) * unit))
            store(tile.state, j, broadcast(FREE))
            store(tile.A, j, broadcast(0.0))
        if not plan.sum_to_one:
            for i in range(p):
                for j in range(i + 1):
                    store(T, row_of(i) + j, broadcast(U[i, j]))
            return
        # The best: the largest 2f − |e|², in units of the pixel.
        best = broadcast(0.0)
        gain = broadcast(0.0)
        for j in range(p):
            length = broadcast(norms[j]) * unit
            value = (load(T, last + j) * 2.0 - length) * length
            better = value > gain if j > 0 else value == value
            gain = select(better, value, gain)
            best = select(better, broadcast(float(j)), best)
        store(chosen, 0, best)
        for s in range(width):
            k = np.uint64(chosen[0, s])
            for j in range(p):
                pivot[j, s] = U[k, j]
            pivot[p, s] = T[last + k, s]
            chosen[1, s] = norms[k]
        # Sum-to-one has the coefficient 1/|e| here. What sweeping k and the ones leaves can be written down.
        longest = load(chosen, 1)
        alone = longest * unit
        force = load(pivot, p) - alone
        for i in range(p):
            ratio = longest * broadcast(weights[i])
            mine = load(pivot, i)
            over = mine - ratio
            for j in range(i + 1):
                value = broadcast(U[i, j]) - ratio * load(pivot, j) - over * (longest * broadcast(weights[j]))
                store(T, row_of(i) + j, value)
            store(T, last + i, load(T, last + i) - mine * alone - ratio * force)
        store(chosen, 1, alone)
        for s in range(width):
            k = np.uint64(chosen[0, s])
            for j in range(p):
                T[plan.packed_index[k, j], s] = norms[k] * weights[j]
            T[plan.packed_index[k, k], s] = 0.0
            T[last + k, s] = chosen[1, s]
            tile.state[k, s] = PASSIVE

    return start


@functools.cache
def choose_function(ops: Width) -> Any:
    """``choose``: what each lane does next, into ``chosen``: the index, 1 or −1 (enters, leaves; 0: done), and the reach.

    Lawson-Hanson: of the support's abundances that are not positive, the one that the way to them meets first leaves; where all are
    positive, the largest dual above the tolerance enters. Ties go to the lowest index.
    """
    load, store, select, broadcast = ops.load, ops.store, ops.select, ops.broadcast

    @compiled
    def choose(tile, tolerance, p):
        last = row_of(p)
        # The way from a (positive) to b ends at a share a/(a − b); what is left of it is compared without dividing.
        rest, whole, first = broadcast(-1.0), broadcast(1.0), broadcast(0.0)
        steepest, best = broadcast(tolerance), broadcast(-1.0)
        for i in range(p):
            a, b, state = load(tile.A, i), load(tile.T, last + i), load(tile.state, i)
            way = a - b
            behind = select(way > 0.0, broadcast(0.0) - b, broadcast(1.0))
            way = select(way > 0.0, way, broadcast(1.0))
            sooner = (state == PASSIVE) & (b <= 0.0) & (behind * whole > rest * way)
            rest = select(sooner, behind, rest)
            whole = select(sooner, way, whole)
            first = select(sooner, broadcast(float(i)), first)
            steeper = (state == FREE) & (b > steepest)
            steepest = select(steeper, b, steepest)
            best = select(steeper, broadcast(float(i)), best)
        leaves = rest >= 0.0
        store(tile.chosen, 0, select(leaves, first, select(best >= 0.0, best, broadcast(0.0))))
        store(tile.chosen, 1, select(leaves, broadcast(-1.0), select(best >= 0.0, broadcast(1.0), broadcast(0.0))))
        store(tile.chosen, 2, (whole - rest) / whole)

    return choose


@functools.cache
def collect_function(ops: Width) -> Any:
    """``collect``: the row that each lane is to sweep; no branch depends on a lane."""
    width = ops.width

    @compiled
    def collect(packed_index, tile):
        p = packed_index.shape[0]
        T, pivot, chosen = tile.T, tile.pivot, tile.chosen
        for s in range(width):
            k = np.uint64(chosen[0, s])
            for j in range(p + 1):
                pivot[j, s] = T[packed_index[k, j], s]

    return collect


@functools.cache
def move_function(ops: Width) -> Any:
    """``move``: the point and the states of the step that each lane takes."""
    load, store, select, broadcast = ops.load, ops.store, ops.select, ops.broadcast

    @compiled
    def move(tile, k, sign, after, frees, p):
        last = row_of(p)
        reach = load(tile.chosen, 2)
        enters, leaves, some = sign > 0.0, sign < 0.0, sign * sign > 0.0
        for i in range(p):
            a, b, state = load(tile.A, i), load(tile.T, last + i), load(tile.state, i)
            # Where a column enters, all of the support is positive: a success. Barred rows may then try again.
            between = a + reach * (b - a)
            between = select(between > 0.0, between, broadcast(0.0))
            moved = select(enters, b, select(leaves, between, a))
            a = select(state == PASSIVE, moved, a)
            mine = (k == float(i)) & some
            store(tile.A, i, select(mine, broadcast(0.0), a))
            state = select(frees & (state == BARRED), broadcast(FREE), state)
            store(tile.state, i, select(mine, after, state))

    return move


@functools.cache
def sweep_function(ops: Width) -> Any:
    """``sweep``: the pivot itself; nothing happens in lanes whose ``inverse`` is 0."""
    load, store, fma, select, broadcast = ops.load, ops.store, ops.fma, ops.select, ops.broadcast

    @compiled
    def sweep(tile, k, d, inverse, sign, p):
        T, pivot = tile.T, tile.pivot
        for i in range(p):
            store(pivot, i, select(k == float(i), d - sign, load(pivot, i)))
        at = 0
        for i in range(p + 1):
            factor = broadcast(0.0) - load(pivot, i) * inverse
            for j in range(i):
                store(T, at, fma(factor, load(pivot, j), load(T, at)))
                at += 1
            after = fma(factor, load(pivot, i), load(T, at))
            store(T, at, select((k == float(i)) & (sign * inverse > 0.0), broadcast(0.0) - inverse, after))
            at += 1

    return sweep


@functools.cache
def search_function(ops: Width) -> Any:
    """``search(plan, tile)``: abundances of all lanes into ``tile.A``, and how many pivots they took."""
    load, store, select, any_lane, broadcast = ops.load, ops.store, ops.select, ops.any_lane, ops.broadcast
    start, choose, collect = start_function(ops), choose_function(ops), collect_function(ops)
    move, sweep = move_function(ops), sweep_function(ops)

    @compiled
    def search(plan, tile):
        p = plan.U.shape[0]
        last = row_of(p)
        most = float(STEPS_PER_ENDMEMBER * p + 20)
        zero, one = broadcast(0.0), broadcast(1.0)
        size = load(tile.size, 0)
        alive = size > 0.0
        unit = one / select(alive, size, one)
        start(plan, tile, unit)
        steps, stuck, entered = zero, zero, broadcast(-1.0)
        while True:
            choose(tile, plan.dual_tolerance, p)
            k = load(tile.chosen, 0)
            sign = select(alive & (steps < most), load(tile.chosen, 1), zero)
            if not any_lane(sign * sign > 0.0):
                break
            collect(plan.packed_index, tile)
            d = zero
            for j in range(p):
                d = select(k == float(j), load(tile.pivot, j), d)
            # A column that depends on the support may not enter: no pivot, and one that leaves as it came waits, too.
            sound = (sign < 0.0) | ((sign > 0.0) & (d > DEPENDENT))
            stuck_now = select((sign < 0.0) & (k == entered), one, zero)
            enters = select(sound, broadcast(PASSIVE), broadcast(BARRED))
            leaves = select(stuck_now > 0.0, broadcast(BARRED), broadcast(FREE))
            frees = (sign > 0.0) & sound & (stuck == 0.0)
            move(tile, k, sign, select(sign > 0.0, enters, leaves), frees, p)
            sweep(tile, k, d, select(sound, one / select(sound, d, one), zero), sign, p)
            stuck = select(sign * sign > 0.0, stuck_now, stuck)
            entered = select(sign > 0.0, k, entered)
            steps = steps + sign * sign
        for j in range(p):
            b = load(tile.T, last + j)
            within = (load(tile.state, j) == PASSIVE) & (b > 0.0) & alive
            store(tile.A, j, select(within, b * (broadcast(plan.weights[j]) * size), zero))
        store(tile.steps, 0, steps)

    return search
