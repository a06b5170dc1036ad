"""Exact active set search for the pixels of a tile side by side, by pivots on a swept tableau per lane.

    T = [[U, f], [fᵀ, ·]]  swept on the support (fcls: also on the row of ones, which never leaves and is not stored),

where U is the Gram matrix of the endmembers at unit length, and pixels are scaled by their size. A pivot on index k
makes a column enter (s = 1) or leave (s = −1): ``d = T_kk; T_ij −= T_ik T_kj / d; T_ik = s T_ik / d; T_kk = −1/d``. The
last row then holds the abundances of the support and the duals of the other columns, which is all that the next step
needs.

Each lane has its own k in the same pass. The pivot row is collected lane by lane, with ``d − s`` in the pivot's own
place, so that one multiplication and addition serves every entry of T alike; T is symmetric, and half of it is stored.
No branch depends on a lane: such branches cost as much as all the rest. Every pixel starts cold (under Σa = 1 from its
best endmember), so its answer depends on nothing but the pixel.
"""

import functools
from typing import Any, NamedTuple

import numpy as np

from ...compiled.jit import Width, compiled
from .inverse_update import DEPENDENT_COLUMN
from .scalar import BARRED, FREE, PASSIVE, STEPS_PER_ENDMEMBER

# Exchanges of a pixel without a penalty; after these, columns that depend on the support are barred, for exchanges may
# go round in circles: the fit stays the same. With a penalty each lowers it, and in a library of 12 dimensions most
# steps are exchanges.
MOST_EXCHANGES = 16.0
# With a penalty the dual of a column that depends on the support is no rounding, so such columns are often the next;
# their pivots are rounding, of up to 1e-10 where the support is nearly dependent itself. Below this it is looked
# whether an exchange comes first.
NEARLY_DEPENDENT = 1e-8


class Tableau(NamedTuple):
    """The tableaux of w pixels side by side, of m columns each; all float64."""

    T: Any  # ((m + 1)(m + 2) / 2, w) lower triangle of the swept matrix, row by row; its last row is the pixel
    pivot: Any  # (m + 1, w) the row that is swept
    state: Any  # (m, w) FREE, PASSIVE, BARRED or ABSENT
    a: Any  # (m, w) a feasible point, in units of the tableau
    chosen: Any  # (3, w) the next step of each lane: see `choose_function`
    exchanged: Any  # (1, w) see `exchange`
    places: Any  # (m, m + 1) uint64: `index_of_entries`; a table takes a third less time than computing the places


def triangle(k: int) -> int:
    """Return where row k begins in a lower triangle that is stored row by row: the entries of the k rows before."""
    return k * (k + 1) // 2


row_of = compiled(triangle)  # Python calls the function above, for which no compiled code has to be loaded


def index_of_entries(m: int) -> np.ndarray:
    """Return the places of row k of an m x m tableau, and of its pixel, in the stored triangle: (m, m + 1) uint64."""
    k, j = np.indices((m, m + 1))
    high, low = np.maximum(k, j), np.minimum(k, j)
    return (high * (high + 1) // 2 + low).astype(np.uint64)


@functools.cache
def start_function(ops: Width) -> Any:
    """Return ``start``, which fills the tableau of an empty support or, under Σa = 1, of the best single endmember."""
    width, load, store, select, broadcast = ops.width, ops.load, ops.store, ops.select, ops.broadcast

    @compiled
    def start(plan, F, tableau, unit):
        U, norms, weights = plan.U, plan.norms, plan.weights
        T, pivot, chosen = tableau.T, tableau.pivot, tableau.chosen
        p = U.shape[0]
        last = row_of(p)
        for j in range(p):
            store(T, last + j, load(F, j) * (broadcast(weights[j]) * unit))
            store(tableau.state, j, broadcast(FREE))
            store(tableau.a, j, broadcast(0.0))
        if not plan.sum_to_one:
            for i in range(p):
                for j in range(i + 1):
                    store(T, row_of(i) + j, broadcast(U[i, j]))
            return
        # The best endmember has the largest 2f − |e|², in units of the pixel.
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
        # In the row of ones an endmember's coefficient is 1/|e| here. The tableau swept on k and on the ones has a
        # closed form.
        best_length = load(chosen, 1)
        best_abundance = best_length * unit
        best_dual = load(pivot, p) - best_abundance
        for i in range(p):
            ratio = best_length * broadcast(weights[i])
            entry = load(pivot, i)
            excess = entry - ratio
            for j in range(i + 1):
                value = broadcast(U[i, j]) - ratio * load(pivot, j) - excess * (best_length * broadcast(weights[j]))
                store(T, row_of(i) + j, value)
            store(T, last + i, load(T, last + i) - entry * best_abundance - ratio * best_dual)
        store(chosen, 1, best_abundance)
        for s in range(width):
            k = np.uint64(chosen[0, s])
            for j in range(p):
                T[tableau.places[k, j], s] = norms[k] * weights[j]
            T[tableau.places[k, k], s] = 0.0
            T[last + k, s] = chosen[1, s]
            tableau.state[k, s] = PASSIVE

    return start


@functools.cache
def choose_function(ops: Width) -> Any:
    """Return ``choose``, which writes each lane's step to ``chosen``: index, sign (1 enters, −1 leaves) and reach."""
    # Lawson-Hanson: the first abundance to reach zero on the way to the support's optimum leaves; if all stay positive,
    # the column with the largest dual above the tolerance enters. Ties: the lowest index. Sign 0: the lane is done.
    load, store, select, broadcast = ops.load, ops.store, ops.select, ops.broadcast

    @compiled
    def choose(tableau, tolerance, p):
        last = row_of(p)
        # The way from a (positive) to b ≤ 0 meets zero at the share a/(a − b); the remaining −b/(a − b) is compared
        # without dividing.
        first_remaining, first_distance, leaving = broadcast(-1.0), broadcast(1.0), broadcast(0.0)
        largest, entering = broadcast(tolerance), broadcast(-1.0)
        for i in range(p):
            a, b, state = load(tableau.a, i), load(tableau.T, last + i), load(tableau.state, i)
            distance = a - b
            remaining = select(distance > 0.0, broadcast(0.0) - b, broadcast(1.0))
            distance = select(distance > 0.0, distance, broadcast(1.0))
            earlier = (state == PASSIVE) & (b <= 0.0) & (remaining * first_distance > first_remaining * distance)
            first_remaining = select(earlier, remaining, first_remaining)
            first_distance = select(earlier, distance, first_distance)
            leaving = select(earlier, broadcast(float(i)), leaving)
            larger = (state == FREE) & (b > largest)
            largest = select(larger, b, largest)
            entering = select(larger, broadcast(float(i)), entering)
        leaves = first_remaining >= 0.0
        store(tableau.chosen, 0, select(leaves, leaving, select(entering >= 0.0, entering, broadcast(0.0))))
        store(
            tableau.chosen, 1, select(leaves, broadcast(-1.0), select(entering >= 0.0, broadcast(1.0), broadcast(0.0)))
        )
        store(tableau.chosen, 2, (first_distance - first_remaining) / first_distance)

    return choose


@functools.cache
def collect_function(ops: Width) -> Any:
    """Return ``collect``, which copies each lane's row to sweep into ``pivot``, without branches on lanes."""
    width = ops.width

    @compiled
    def collect(tableau, p):
        T, pivot, chosen, index = tableau.T, tableau.pivot, tableau.chosen, tableau.places
        for s in range(width):
            k = np.uint64(chosen[0, s])
            for j in range(p + 1):
                pivot[j, s] = T[index[k, j], s]

    return collect


@compiled
def exchange(tableau, s, p):
    """Let a column of lane s leave for a dependent one that is to enter; return the latter, or −1 if none leaves."""
    # The entering column is a combination of the support, with the coefficients of the pivot row: it grows, at the cost
    # of the combination, until an abundance is used up, whose column leaves. To bar it instead (right for an exact
    # dependence) leaves half the pixels that contain one of two like spectra at the wrong one, at cond(E) = 1e8.
    j = np.int64(tableau.chosen[0, s])
    leaving, step = -1, np.inf
    for i in range(p):  # from the optimum on the support, which is positive
        if tableau.state[i, s] == PASSIVE:
            tableau.a[i, s] = tableau.T[row_of(p) + i, s]
    for i in range(p):
        if tableau.state[i, s] == PASSIVE:
            share = tableau.pivot[i, s]
            # Small shares are rounding, or would make the next pivot as small as this one.
            if share > 1e-4 and tableau.a[i, s] < step * share:
                leaving, step = i, tableau.a[i, s] / share
    # One that depends nearly may enter, if the optimum with it comes before an abundance is used up.
    d = tableau.pivot[j, s]
    if leaving < 0 or (d > DEPENDENT_COLUMN and tableau.T[row_of(p) + j, s] < d * step):
        return -1
    for i in range(p):
        if tableau.state[i, s] == PASSIVE:
            left = tableau.a[i, s] - step * tableau.pivot[i, s]
            tableau.a[i, s] = 0.0 if left < 0.0 else left
    tableau.a[j, s] = step
    tableau.chosen[0, s], tableau.chosen[1, s], tableau.chosen[2, s] = leaving, -1.0, 0.0
    for i in range(p + 1):
        tableau.pivot[i, s] = tableau.T[tableau.places[leaving, i], s]
    return j


@functools.cache
def move_function(ops: Width) -> Any:
    """Return ``move``, which updates states and feasible points for each lane's step; ``held`` lanes keep theirs."""
    load, store, select, broadcast = ops.load, ops.store, ops.select, ops.broadcast

    @compiled
    def move(tableau, k, sign, after, frees, held, p):
        last = row_of(p)
        reach = load(tableau.chosen, 2)
        enters, leaves, moves = sign > 0.0, sign < 0.0, sign * sign > 0.0
        for i in range(p):
            a, b, state = load(tableau.a, i), load(tableau.T, last + i), load(tableau.state, i)
            # If a column enters, all of the support is positive: a success. Barred columns may then try again.
            between = a + reach * (b - a)
            between = select(between > 0.0, between, broadcast(0.0))
            moved = select(enters, b, select(leaves, between, a))
            a = select((state == PASSIVE) & (held == 0.0), moved, a)
            is_pivot = (k == float(i)) & moves
            store(tableau.a, i, select(is_pivot & ((held == 0.0) | leaves), broadcast(0.0), a))
            state = select(frees & (state == BARRED), broadcast(FREE), state)
            store(tableau.state, i, select(is_pivot, after, state))

    return move


@functools.cache
def sweep_function(ops: Width) -> Any:
    """Return ``sweep``, which does the pivot on T; it changes nothing in lanes whose ``inverse`` is 0."""
    load, store, fma, select, broadcast = ops.load, ops.store, ops.fma, ops.select, ops.broadcast

    @compiled
    def sweep(tableau, k, d, inverse, sign, p):
        T, pivot = tableau.T, tableau.pivot
        for i in range(p):
            store(pivot, i, select(k == float(i), d - sign, load(pivot, i)))
        place = 0
        for i in range(p + 1):
            factor = broadcast(0.0) - load(pivot, i) * inverse
            for j in range(i):
                store(T, place, fma(factor, load(pivot, j), load(T, place)))
                place += 1
            updated = fma(factor, load(pivot, i), load(T, place))
            store(T, place, select((k == float(i)) & (inverse * inverse > 0.0), broadcast(0.0) - inverse, updated))
            place += 1

    return sweep


@functools.cache
def pivots_function(ops: Width) -> Any:
    """Return ``pivots``, which searches the lanes ``alive``, leaves optima in T's last row, and returns steps."""
    # A column with a pivot of at most `near` is exchanged for another one, if that one is used up first.
    load, store, select, any_lane, broadcast = ops.load, ops.store, ops.select, ops.any_lane, ops.broadcast
    choose, collect = choose_function(ops), collect_function(ops)
    move, sweep, width = move_function(ops), sweep_function(ops), ops.width

    @compiled
    def pivot_of(tableau, k, p):
        """Return the pivot of each lane, its entry k of the pivot row."""
        d = broadcast(0.0)
        for j in range(p):
            d = select(k == float(j), load(tableau.pivot, j), d)
        return d

    @compiled
    def exchange_lanes(tableau, dependent, p):
        """Call `exchange` for the lanes that need it; its results are left in ``tableau.exchanged``."""
        store(tableau.exchanged, 0, dependent)
        for s in range(width):
            tableau.exchanged[0, s] = exchange(tableau, s, p) if tableau.exchanged[0, s] > 0.0 else -1.0

    @compiled
    def pivots(tableau, p, tolerance, alive, most, most_exchanges, near):
        zero, one = broadcast(0.0), broadcast(1.0)
        steps, stuck, entered = zero, zero, broadcast(-1.0)
        pending = broadcast(-1.0)  # the column for which another one has left, see `exchange`
        exchanges = zero
        while True:
            choose(tableau, tolerance, p)
            held = select(pending >= 0.0, one, zero)
            k = select(held > 0.0, pending, load(tableau.chosen, 0))
            sign = select(held > 0.0, one, select(alive & (steps < most), load(tableau.chosen, 1), zero))
            if not any_lane(sign * sign > 0.0):
                break
            store(tableau.chosen, 0, k)
            collect(tableau, p)
            d = pivot_of(tableau, k, p)
            pending = broadcast(-1.0)
            dependent = (sign > 0.0) & (held == 0.0) & (d <= near) & (exchanges < most_exchanges)
            if any_lane(dependent):
                exchange_lanes(tableau, select(dependent, one, zero), p)
                pending = load(tableau.exchanged, 0)
                swaps = pending >= 0.0
                held = select(swaps, one, held)
                exchanges = exchanges + select(swaps, one, zero)
                k, sign = load(tableau.chosen, 0), select(swaps, broadcast(-1.0), sign)
                d = pivot_of(tableau, k, p)
            # A column that depends on the support may not enter, so there is no pivot and it is barred. A column that
            # leaves right after it entered is barred, too.
            sound = (sign < 0.0) | ((sign > 0.0) & (d > DEPENDENT_COLUMN))
            stuck_now = select((sign < 0.0) & (k == entered) & (held == 0.0), one, zero)
            enters = select(sound, broadcast(PASSIVE), broadcast(BARRED))
            leaves = select(stuck_now > 0.0, broadcast(BARRED), broadcast(FREE))
            frees = (sign > 0.0) & sound & (stuck == 0.0)
            move(tableau, k, sign, select(sign > 0.0, enters, leaves), frees, held, p)
            sweep(tableau, k, d, select(sound, one / select(sound, d, one), zero), sign, p)
            stuck = select(sign * sign > 0.0, stuck_now, stuck)
            entered = select(sign > 0.0, k, entered)
            steps = steps + sign * sign
        return steps

    return pivots


@compiled
def exchanges_of(plan, most_steps):
    """Return how many exchanges a pixel may take, and up to which pivot."""
    if plan.penalty.shape[0] > 0:
        return most_steps, NEARLY_DEPENDENT
    return MOST_EXCHANGES, DEPENDENT_COLUMN


@functools.cache
def search_function(ops: Width) -> Any:
    """Return ``search(plan, tile)``, which writes abundances into ``tile.A`` and pivots into ``tile.steps``."""
    load, store, select, broadcast = ops.load, ops.store, ops.select, ops.broadcast
    start, pivots = start_function(ops), pivots_function(ops)

    @compiled
    def search(plan, tile):
        p = plan.U.shape[0]
        zero, one = broadcast(0.0), broadcast(1.0)
        size = load(tile.size, 0)
        alive = size > 0.0
        tableau = Tableau(tile.T, tile.pivot, tile.state, tile.A, tile.chosen, tile.exchanged, plan.packed_index)
        start(plan, tile.F, tableau, one / select(alive, size, one))
        most = float(STEPS_PER_ENDMEMBER * p + 20)
        exchanges, near = exchanges_of(plan, most)
        steps = pivots(tableau, p, plan.dual_tolerance, alive, most, exchanges, near)
        for j in range(p):
            b = load(tile.T, row_of(p) + j)
            within = (load(tile.state, j) == PASSIVE) & (b > 0.0) & alive
            store(tile.A, j, select(within, b * (broadcast(plan.weights[j]) * size), zero))
        store(tile.steps, 0, steps)

    return search
