"""Find the optimum of each pixel of a tile, from the support of the pixel before."""

import functools
from typing import Any

from ....compiled.jit import Width, compiled, inlined
from .pivots import COUNT, LAST, MEMBERS, PROBED, combine_function, enter_function, leave_function, table_functions

# The most supports that are tried for a pixel.
MOST_ROUNDS = 60
# The most columns that enter or leave for a pixel.
MOST_STEPS = 400
# Up to this round all columns that should leave do, and one enters; after it one enters only where none leaves.
ROUNDS_OF_BOTH = 6
# Σ 1/d over the pivots d of a support above which answers are refined once.
REFINED_ABOVE = 4096.0


@functools.cache
def optimum_functions(ops: Width, c: int) -> tuple[Any, Any]:
    """Return ``evaluate`` and ``refine``, which write a lane's optimum on a support and return if it is global."""
    # It is if no abundance of the support is negative and no dual beside it is above the tolerance.
    load, store, fma, select, broadcast = ops.load, ops.store, ops.fma, ops.select, ops.broadcast
    any_lane, width, combine = ops.any_lane, ops.width, combine_function(ops, c)

    @inlined
    def faults(value, outside, tolerance):
        """Return 1 where an answer breaks a condition of an optimum."""
        beside = select(value > tolerance, broadcast(1.0), broadcast(0.0))
        return select(outside > 0.0, beside, select(value > 0.0, broadcast(0.0), broadcast(1.0)))

    @inlined
    def evaluate(table, entry, s, unit):
        vectors, wrong = table.vectors, broadcast(0.0)
        for b in range(c):
            outside = load(vectors, table.outside + entry * c + b)
            value = load(vectors, table.pixels + b * width + s) * outside
            value = combine(table, entry, b, value, unit, table.pixels + s, width)
            store(vectors, table.answers + b * width + s, value)
            wrong = wrong + faults(value, outside, table.tolerance)
        return not any_lane(wrong > 0.0)

    @compiled
    def refine(table, entry, s, unit):
        """Add the support's answer to the residual ``f − U a``, without the multiplier's part under Σa = 1."""
        vectors, supports, t = table.vectors, table.supports, table.t
        members = supports[entry, MEMBERS : MEMBERS + supports[entry, COUNT]]
        rest, product, square = unit, 0.0, 0.0
        for b in range(c):
            value = load(vectors, table.pixels + b * width + s)
            for j in members:
                a = vectors[table.answers + j // width * width + s, j % width]
                value = fma(broadcast(-a), load(vectors, table.gram + j * c + b), value)
            store(vectors, t + b, value)
        for j in members:
            one = vectors[table.ones + j // width, j % width]
            rest -= vectors[table.answers + j // width * width + s, j % width] * one
            product, square = product + vectors[t + j // width, j % width] * one, square + one * one
        multiplier = broadcast(-product / square if table.has_sum == 1 else 0.0)
        for b in range(c):
            store(vectors, t + b, fma(multiplier, load(vectors, table.ones + b), load(vectors, t + b)))
        wrong = broadcast(0.0)
        for b in range(c):
            outside = load(vectors, table.outside + entry * c + b)
            value = select(outside > 0.0, load(vectors, t + b), load(vectors, table.answers + b * width + s))
            value = combine(table, entry, b, value, rest, t, 1)
            store(vectors, table.answers + b * width + s, value)
            wrong = wrong + faults(value, outside, table.tolerance)
        return not any_lane(wrong > 0.0)

    return evaluate, refine


@functools.cache
def lane_function(ops: Width, c: int) -> Any:
    """Return ``search_lane``, which returns the entry of a pixel's support (−1: not found) and the steps to it."""
    load, select, broadcast, any_lane = ops.load, ops.select, ops.broadcast, ops.any_lane
    lanes_of, first_of, largest_of, width = ops.lanes_of, ops.first_of, ops.largest_of, ops.width
    enter, leave = enter_function(ops, c), leave_function(ops, c)
    _, find, copy = table_functions(ops, c)
    evaluate, refine = optimum_functions(ops, c)

    @inlined
    def choose(table, entry, s):
        """Return the column of largest dual above the tolerance (−1 for none), and whether any column should leave."""
        best, negative = broadcast(table.tolerance), broadcast(0.0)
        x_row, outside_row = table.answers + s, table.outside + entry * c
        for b in range(c):
            x, outside = load(table.vectors, x_row + b * width), load(table.vectors, outside_row + b) > 0.0
            best = select(outside & (x > best), x, best)
            negative = select(outside, negative, select(x > 0.0, negative, broadcast(1.0)))
        entering = -1
        if any_lane(best > table.tolerance):
            largest = broadcast(largest_of(best))
            for b in range(c):
                x, outside = load(table.vectors, x_row + b * width), load(table.vectors, outside_row + b) > 0.0
                lanes = lanes_of(outside & (x == largest))
                if lanes != 0 and entering < 0:
                    entering = b * width + first_of(lanes)
        return entering, any_lane(negative > 0.0)

    @inlined
    def step(table, s, entering, rounds):
        """Change the pivoted support; return the columns that left or entered, and whether one could not enter."""
        n, changed = table.supports.shape[0] - 1, 0
        for b in range(c):
            x, outside = (
                load(table.vectors, table.answers + b * width + s),
                load(table.vectors, table.outside + n * c + b),
            )
            lanes = lanes_of((x <= 0.0) & (outside == 0.0))
            while lanes != 0 and table.supports[n, COUNT] > table.has_sum:
                leave(table, n, b * width + first_of(lanes), s)
                lanes &= lanes - 1
                changed += 1
        if entering >= 0 and (changed == 0 or rounds <= ROUNDS_OF_BOTH):
            if not enter(table, n, entering, s):
                return changed, True
            changed += 1
        return changed, False

    @compiled
    def move(table, entry, s):
        """Pivot from a support to its optimum; return its entry (−1: not found), and columns that left or entered."""
        n, steps = table.supports.shape[0] - 1, 0
        copy(table, entry)
        for rounds in range(1, MOST_ROUNDS + 1):
            entering, leaves = choose(table, n, s)
            if entering < 0 and not leaves:
                return find(table), steps
            changed, is_refused = step(table, s, entering, rounds)
            steps += changed
            if is_refused:  # columns made anew may be better than pivoted columns
                return (find(table) if steps > 0 else -1), steps
        return -1, steps

    @inlined
    def search_lane(table, entry, s, unit):
        steps = 0
        while entry >= 0 and steps < MOST_STEPS:
            is_optimum = evaluate(table, entry, s, unit)
            if table.growth[entry] > REFINED_ABOVE:
                is_optimum = refine(table, entry, s, unit)
            if is_optimum:
                return entry, steps
            entry, changed = move(table, entry, s)
            steps += changed
        return -1, steps

    return search_lane


@functools.cache
def supports_function(ops: Width, c: int) -> Any:
    """Return ``search``, which writes abundances and steps, or sets ``tile.begins`` to −1 to leave the run."""
    # A run is left where a pixel needs nearly dependent endmembers, or where the first pixels have so little in common
    # that the other search is faster; not if shorter than a tile, since its results have to be found again.
    load, store, select, broadcast, width = ops.load, ops.store, ops.select, ops.broadcast, ops.width
    fetch_block, tall = ops.fetch_block, ops.tall
    begin, _, _ = table_functions(ops, c)
    search_lane = lane_function(ops, c)

    @compiled
    def search_lanes(table, begins, size, steps, count):
        """Search the pixels of a tile one after the other; return whether the other search has to."""
        entry, pivoted, seen = -1 if begins else table.used[LAST], 0, 0
        for s in range(width):
            steps[0, s] = 0.0
            is_solved = s < count and size[0, s] > 0.0
            if is_solved:
                unit = 1.0 / size[0, s]
                if entry < 0:
                    entry = begin(table, s, unit)
                entry, changed = search_lane(table, entry, s, unit)
                if entry < 0:
                    return True
                steps[0, s] = changed
                pivoted += changed * table.supports[entry, COUNT] if seen > 0 else 0
                seen += 1
                if begins and seen == PROBED and count == width and pivoted > table.most_pivoted:
                    return True
            for b in range(c):
                row = table.answers + b * width + s
                within = load(table.vectors, table.outside + (0 if entry < 0 else entry) * c + b) == 0.0
                x = load(table.vectors, row) if is_solved else broadcast(0.0)
                store(table.vectors, row, select(within, x, broadcast(0.0)))
        table.used[LAST] = entry
        return False

    @compiled
    def search(plan, tile, table, count):
        p, by_row = table.p, table.by_row
        size = load(tile.size, 0)
        unit = broadcast(1.0) / select(size > 0.0, size, broadcast(1.0))
        for j in range(p):
            store(table.vectors, by_row + j, load(tile.F, j) * (broadcast(plan.weights[j]) * unit))
        for j in range(0, p, tall):
            for s in range(0, width, tall):
                fetch_block(
                    table.block, 0, by_row + j, s, table.vectors, table.pixels + j // width * width + s, j % width
                )
        if search_lanes(table, tile.begins[0, 0] > 0.0, tile.size, tile.steps, count):
            tile.begins[0, 0] = -1.0
            return
        for j in range(0, p, tall):
            for s in range(0, width, tall):
                fetch_block(
                    table.block, 0, table.answers + j // width * width + s, j % width, table.vectors, by_row + j, s
                )
        for j in range(p):
            store(tile.A, j, load(table.vectors, by_row + j) * (broadcast(plan.weights[j]) * size))

    return search
