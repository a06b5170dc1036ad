"""Multiplicative updates for ``min ½ xᵀQx + hᵀx`` over x ≥ 0: paper 003, for one pixel, a thread, or a block of a GPU.

``x_i ← x_i (h⁻_i + (Q⁻x)_i) / (h⁺_i + (Q⁺x)_i)`` with ``v⁺ = max(v, 0)``, ``v⁻ = max(−v, 0)``: nothing is factored, nothing
but products with Q is made, and the cost never rises. Entries only ever come near to zero: those below 1e-7 of the largest
are set to it, and left out of all products from then on (75 to 95 % of them in the paper).
"""

import functools
from typing import Any, NamedTuple

from ...compiled.cooperative import Team

# Entries below this share of the largest are zero for good.
VANISHED = 1e-7


class Dense(NamedTuple):
    """A symmetric matrix, (n, n)."""

    values: Any


class Sparse(NamedTuple):
    """A matrix by rows (CSR): row i has ``values[starts[i]:starts[i + 1]]`` at ``columns[…]``."""

    starts: Any
    columns: Any
    values: Any


def dense_parts(team: Team) -> Any:
    """``parts(Q, x, alive, k, plus, minus)``: Q⁺x and Q⁻x at the ``k`` places of x that are alive, one behind the other."""
    rank, size, sync = team.rank, team.size, team.sync

    @team.compile
    def parts(Q, x, alive, k, plus, minus):
        for t in range(rank(), k, size()):
            plus[t] = 0.0
            minus[t] = 0.0
        for s in range(k):
            j = alive[s]
            value = x[j]
            for t in range(rank(), k, size()):
                part = Q.values[j, alive[t]] * value
                plus[t] += max(part, 0.0)
                minus[t] += max(-part, 0.0)
        sync()

    return parts


def sparse_parts(team: Team) -> Any:
    """The same for a matrix of which zeros are not kept."""
    rank, size, sync = team.rank, team.size, team.sync

    @team.compile
    def parts(Q, x, alive, k, plus, minus):
        for t in range(rank(), k, size()):
            i = alive[t]
            above, below = 0.0, 0.0
            for e in range(Q.starts[i], Q.starts[i + 1]):
                part = Q.values[e] * x[Q.columns[e]]
                above += max(part, 0.0)
                below += max(-part, 0.0)
            plus[t] = above
            minus[t] = below
        sync()

    return parts


PARTS = {"dense": dense_parts, "sparse": sparse_parts}


@functools.cache
def updates_function(team: Team, kind: str) -> Any:
    """``update``, which makes some steps.

    Parameters
    ----------
    team : Team
        Who works on it.
    kind : {"dense", "sparse"}
        Of Q; what follows are the arguments of ``update``, in order.
    Q : Dense or Sparse
    h, x : arrays (n,), float64
        The linear part; where it stands, positive or zero, which is changed.
    alive : array of int
        The places where x is not zero, first.
    k : int
        How many these are.
    plus, minus : arrays (n,), float64
        Scratch.
    count : int
        Steps, at least 1.
    box : array, float64
        Where a team adds up.

    Returns
    -------
    float
        The cost before the last step, Σ x_i (½ (Qx)_i + h_i): its products are at hand.
    """
    rank, size, sync, total, best = team.rank, team.size, team.sync, team.total, team.best
    parts = PARTS[kind](team)

    @team.compile
    def update(Q, h, x, alive, k, plus, minus, count, reduction_buffer):
        """See `updates_function`."""
        cost = 0.0
        for step in range(count):
            parts(Q, x, alive, k, plus, minus)
            part, value, place = 0.0, -1.0, -1
            for t in range(rank(), k, size()):
                i = alive[t]
                part += x[i] * (0.5 * (plus[t] - minus[t]) + h[i])
                up, down = minus[t] + max(-h[i], 0.0), plus[t] + max(h[i], 0.0)
                x[i] = x[i] * (up / down) if down > 0.0 else 0.0
                if x[i] > value:
                    value, place = x[i], i
            sync()
            if step == count - 1:
                cost = total(part, reduction_buffer)
                top = best(value, place, reduction_buffer)
                least = VANISHED * x[top] if top >= 0 else 0.0
                sync()
                for t in range(rank(), k, size()):
                    if x[alive[t]] < least:
                        x[alive[t]] = 0.0
                sync()
        return cost

    return update
