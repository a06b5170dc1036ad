"""Multiplicative updates for ``min ½ xᵀQx + hᵀx`` over x ≥ 0 (Sha et al. 2007), on a CPU thread or a GPU block.

``x_i ← x_i (h⁻_i + (Q⁻x)_i) / (h⁺_i + (Q⁺x)_i)`` with ``v⁺ = max(v, 0)``, ``v⁻ = max(−v, 0)``: nothing is factored,
only products with Q are computed, and the cost never rises. Entries approach zero but do not reach it: those below 1e-7
of the largest are set to zero, and left out of all products from then on (75 to 95 % of them in the paper of Sha, Lin,
Saul and Lee).
"""

import functools
from typing import Any, NamedTuple

from ...compiled.jit import Team

# Entries below this share of the largest are set to zero, and remain zero.
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
    """Return ``parts``, which writes Q⁺x and Q⁻x at the places ``alive[:k]`` of a `Dense` Q, stored contiguously."""
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
    """Return ``parts`` as `dense_parts` does, for a `Sparse` matrix."""
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
    """Return ``update``, which makes ``count`` ≥ 1 steps of x (n,) in place; it returns the cost before the last."""
    # alive[:k] are the places where x is not 0. The cost is Σ x_i (½ (Qx)_i + h_i): the step has these products anyway.
    rank, size, sync, total, best = team.rank, team.size, team.sync, team.total, team.best
    parts = PARTS[kind](team)

    @team.compile
    def update(Q, h, x, alive, k, plus, minus, count, reduction_buffer):
        """Make ``count`` steps; see `updates_function`."""
        cost = 0.0
        for step in range(count):
            parts(Q, x, alive, k, plus, minus)
            own_cost, value, place = 0.0, -1.0, -1
            for t in range(rank(), k, size()):
                i = alive[t]
                own_cost += x[i] * (0.5 * (plus[t] - minus[t]) + h[i])
                numerator, denominator = minus[t] + max(-h[i], 0.0), plus[t] + max(h[i], 0.0)
                x[i] = x[i] * (numerator / denominator) if denominator > 0.0 else 0.0
                if x[i] > value:
                    value, place = x[i], i
            sync()
            if step == count - 1:
                cost = total(own_cost, reduction_buffer)
                largest = best(value, place, reduction_buffer)
                least = VANISHED * x[largest] if largest >= 0 else 0.0
                sync()
                for t in range(rank(), k, size()):
                    if x[alive[t]] < least:
                        x[alive[t]] = 0.0
                sync()
        return cost

    return update
