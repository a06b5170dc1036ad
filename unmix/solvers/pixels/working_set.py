"""Active set search for many endmembers: price all, solve few.

A pixel is a mixture of some dozen endmembers even where the library has hundreds. So the tableau
(`unmix.solvers.pixels.active_set`) holds only a working set: the support, and the `CANDIDATES` columns with the largest
duals. When no column of it may enter or leave, the duals of all columns are computed from the Gram matrix ("priced"),
and those above the tolerance become the next candidates; if no dual is, the support is optimal. The objective falls
with every round. Each round fills its tableau anew from the Gram matrix and sweeps it on the support, so rounding does
not accumulate.

Any number of endmembers, of any rank: a column that depends on the support enters in exchange for another one. Under Σa
= 1 the tableau has a row and a column of ones. Lanes are pixels, as in `active_set`; they do not interact.
"""

import functools
from typing import Any, NamedTuple

import numpy as np

from ...compiled.jit import Width, compiled
from .active_set import DEPENDENT_COLUMN, Tableau, exchanges_of, pivots_function, row_of, sweep_function
from .scalar import FREE, PASSIVE, STEPS_PER_ENDMEMBER

# Columns that join the support in a round: 40, 45 and 60 us a pixel with 8, 16 and 32 at p = 240 (two cores), 80, 91
# and 112 at p = 500.
CANDIDATES = 8
# The most columns of a working set, and rounds of a pixel; a pixel that needs more is not certified.
MOST_MEMBERS, MOST_ROUNDS = 256, 100
# State of an unused place of the tableau.
ABSENT = 3
# A dual below this, relative to |e_j| and the pixel's scale, is rounding of its price.
LEAST_DUAL = 4e-15


class WorkingSet(NamedTuple):
    """Scratch of a tile of w pixels, beside the tableau in `unmix.solvers.pixels.tile.Tile`; m is `members_of` p."""

    members: Any  # (m, w) int64: the columns of the tableau, the support first
    size: Any  # (2, w) int64: members of the support, and in all
    a: Any  # (m, w) float64: the abundances of the support, in units of the tableau
    feasible: Any  # (m, w) float64: `Tableau.a`
    unit: Any  # (w,) float64: one over the scale of each pixel
    multiplier: Any  # (w,) float64: of the row of ones
    alive: Any  # (1, w) float64: 1 for pixels that are not solved yet
    price: Any  # (p,) float64: duals of one pixel
    best: Any  # (CANDIDATES,) float64: the largest of these
    chosen: Any  # (CANDIDATES,) int64: their columns


def members_of(p: int) -> int:
    """Return the most columns of the tableau for p endmembers, the column of ones included."""
    return min(p, MOST_MEMBERS) + 1


def new_working_set(p: int, width: int) -> WorkingSet:
    """Allocate the scratch of a tile."""
    m = members_of(p)
    return WorkingSet(
        np.empty((m, width), np.int64),
        np.empty((2, width), np.int64),
        np.empty((m, width)),
        np.empty((m, width)),
        np.empty(width),
        np.empty(width),
        np.empty((1, width)),
        np.empty(p),
        np.empty(CANDIDATES),
        np.empty(CANDIDATES, np.int64),
    )


@compiled
def add_rows(U, members, a, s, k, price):
    """Subtract ``a_i U_i`` of the support's k members from the prices, four rows at a time."""
    for i in range(0, k - 3, 4):
        r0, r1, r2, r3 = U[members[i, s]], U[members[i + 1, s]], U[members[i + 2, s]], U[members[i + 3, s]]
        a0, a1, a2, a3 = a[i, s], a[i + 1, s], a[i + 2, s], a[i + 3, s]
        for j in range(price.shape[0]):
            price[j] -= a0 * r0[j] + a1 * r1[j] + a2 * r2[j] + a3 * r3[j]
    for i in range(k - k % 4, k):
        row, weight = U[members[i, s]], a[i, s]
        for j in range(price.shape[0]):
            price[j] -= weight * row[j]


@compiled
def find_candidates(plan, F, unit, least, tolerance, work, s):
    """Add the columns with the largest duals to the members of lane s; return how many were added."""
    members, price, best, chosen = work.members, work.price, work.best, work.chosen
    p, k = price.shape[0], work.size[0, s]
    multiplier = work.multiplier[s] * least
    for j in range(p):
        price[j] = (F[j, s] * unit - multiplier) * plan.weights[j]
    add_rows(plan.U, members, work.a, s, k, price)
    for i in range(k):
        price[members[i, s]] = 0.0
    room = min(CANDIDATES, min(p, MOST_MEMBERS) - k)
    found = 0
    for j in range(p):
        if not price[j] > tolerance or (found == room and (room == 0 or price[j] <= best[found - 1])):
            continue
        place = min(found, room - 1)
        while place > 0 and best[place - 1] < price[j]:
            best[place], chosen[place] = best[place - 1], chosen[place - 1]
            place -= 1
        best[place], chosen[place] = price[j], j
        found = min(found + 1, room)
    for i in range(found):
        members[k + i, s] = chosen[i]
    work.size[1, s] = k + found
    return found


@compiled
def fill(plan, F, tableau, unit, least, m, work, s):
    """Fill lane s of a tableau of m columns, and under Σa = 1 one of ones, from the Gram matrix."""
    T, members, k, n = tableau.T, work.members, work.size[0, s], work.size[1, s]
    if work.alive[0, s] == 0.0:
        k = n = 0
    for i in range(n):
        first, row = row_of(i), plan.U[members[i, s]]
        for j in range(i + 1):
            T[first + j, s] = row[members[j, s]]
    for i in range(n, m):
        first = row_of(i)
        for j in range(i + 1):
            T[first + j, s] = 0.0
    last = row_of(m)
    if plan.sum_to_one:
        for i in range(m):
            T[last + i, s] = plan.weights[members[i, s]] * least if i < n else 0.0
        T[last + m, s] = 0.0
        tableau.state[m, s] = ABSENT
        tableau.a[m, s] = 0.0
        last = row_of(m + 1)
        T[last + m, s] = unit * least
        T[last + m + 1, s] = 0.0
    else:
        T[last + m, s] = 0.0
    for i in range(m):
        T[last + i, s] = F[members[i, s], s] * plan.weights[members[i, s]] * unit if i < n else 0.0
        tableau.state[i, s] = PASSIVE if i < k else (FREE if i < n else ABSENT)
        tableau.a[i, s] = work.a[i, s] if i < k else 0.0


@compiled
def keep_support(plan, tableau, m, work, s):
    """Move the new support of lane s to the front of its members; return whether it differs from the one before."""
    last = row_of(m + plan.sum_to_one)
    before, k, changed = work.size[0, s], 0, False
    for i in range(work.size[1, s]):
        b = tableau.T[last + i, s]
        stays = tableau.state[i, s] == PASSIVE and b > 0.0
        changed = changed or stays != (i < before)
        if stays:
            work.members[k, s], work.a[k, s] = work.members[i, s], b
            k += 1
    work.size[0, s] = k
    work.multiplier[s] = tableau.T[last + m, s] if plan.sum_to_one else 0.0
    return changed


@compiled
def begin_working_set(plan, F, unit, least, work, s):
    """Begin lane s with no column, or under Σa = 1 with the one endmember that is nearest to the pixel."""
    work.size[0, s], work.multiplier[s] = 0, 0.0
    if not plan.sum_to_one:
        return
    best, gain = 0, -np.inf
    for j in range(plan.norms.shape[0]):
        length = plan.norms[j] * unit
        value = (2.0 * F[j, s] * plan.weights[j] * unit - length) * length
        if value > gain:
            best, gain = j, value
    work.size[0, s], work.members[0, s], work.a[0, s] = 1, best, plan.norms[best] * unit
    work.multiplier[s] = (F[best, s] * plan.weights[best] * unit - work.a[0, s]) / (plan.weights[best] * least)


@functools.cache
def working_set_function(ops: Width) -> Any:
    """Return ``search(plan, tile, work)``, which writes abundances into ``tile.A`` and steps into ``tile.steps``."""
    width, load, store, select, broadcast = ops.width, ops.load, ops.store, ops.select, ops.broadcast
    pivots, sweep = pivots_function(ops), sweep_function(ops)

    @compiled
    def enter(tableau, place, columns, work):
        """Sweep all lanes that are not solved on one place: a member of their support, or the ones."""
        k = broadcast(float(place))
        for i in range(columns + 1):
            at = row_of(place) + i if i <= place else row_of(i) + place
            store(tableau.pivot, i, load(tableau.T, at))
        d = load(tableau.pivot, place)
        enters = (load(work.alive, 0) > 0.0) & (load(tableau.state, place) == PASSIVE) & (d > DEPENDENT_COLUMN)
        enters = enters | ((load(tableau.state, place) == ABSENT) & (d < 0.0))
        inverse = select(enters, broadcast(1.0) / select(enters, d, broadcast(1.0)), broadcast(0.0))
        sweep(tableau, k, d, inverse, broadcast(1.0), columns)
        # A member that depends on those before it is only a candidate.
        lost = (load(tableau.state, place) == PASSIVE) & (d <= DEPENDENT_COLUMN)
        store(tableau.state, place, select(lost, broadcast(FREE), load(tableau.state, place)))
        store(tableau.a, place, select(lost, broadcast(0.0), load(tableau.a, place)))

    @compiled
    def search(plan, tile, work):
        ones = 1 if plan.sum_to_one else 0
        least = np.inf
        for j in range(plan.norms.shape[0]):
            least = min(least, plan.norms[j])
        tolerance = max(plan.dual_tolerance, LEAST_DUAL)
        most_steps = float(STEPS_PER_ENDMEMBER * min(plan.norms.shape[0], MOST_MEMBERS) + 20)
        exchanges, near = exchanges_of(plan, most_steps)
        tableau = Tableau(tile.T, tile.pivot, tile.state, work.feasible, tile.chosen, tile.exchanged, plan.packed_index)
        store(tile.steps, 0, broadcast(0.0))
        for s in range(width):
            size = tile.size[0, s]
            work.alive[0, s] = 1.0 if size > 0.0 else 0.0
            work.unit[s] = 1.0 / size if size > 0.0 else 1.0
            begin_working_set(plan, tile.F, work.unit[s], least, work, s)
        for _ in range(MOST_ROUNDS):
            m, most_in = 0, 0
            for s in range(width):
                if work.alive[0, s] > 0.0:
                    if find_candidates(plan, tile.F, work.unit[s], least, tolerance, work, s) == 0:
                        work.alive[0, s] = 0.0
                    else:
                        m, most_in = max(m, work.size[1, s]), max(most_in, work.size[0, s])
            if m == 0:
                break
            for s in range(width):
                fill(plan, tile.F, tableau, work.unit[s], least, m, work, s)
            for place in range(most_in):
                enter(tableau, place, m + ones, work)
                if ones == 1 and place == 0:
                    enter(tableau, m, m + ones, work)
            alive = load(work.alive, 0) > 0.0
            steps = pivots(tableau, m + ones, tolerance, alive, most_steps, exchanges, near)
            store(tile.steps, 0, load(tile.steps, 0) + select(alive, steps, broadcast(0.0)))
            for s in range(width):
                if work.alive[0, s] > 0.0 and not keep_support(plan, tableau, m, work, s):
                    work.alive[0, s] = 0.0
        for j in range(tile.A.shape[0]):
            store(tile.A, j, broadcast(0.0))
        for s in range(width):
            if tile.size[0, s] > 0.0:
                for i in range(work.size[0, s]):
                    j = work.members[i, s]
                    tile.A[j, s] = work.a[i, s] * (plan.weights[j] * tile.size[0, s])

    return search
