"""The inverse of a support's Gram matrix, as vectors: endmembers enter and leave.

Row 0 is that of the sum: under a constraint on it the matrix is bordered by the lengths of the abundances; else the row is 0.
"""

import functools
from typing import Any, NamedTuple

from numba import uint32

from ....compiled.jit import Team, Width

# The squared share of an entering column that lies outside of the support's span, at least: below it the inverse loses its digits.
LEAST_PIVOT = 1e-9


class Places(NamedTuple):
    """The numbers that vectors hold, by place. Unsigned indices spare a GPU the question whether they count from the end."""

    get: Any  # (X, i) the number at place i of the vectors X
    put: Any  # (X, i, value)
    count: Any  # (n) the vectors that n numbers take


@functools.cache
def places_of(ops: Width) -> Places:
    """Return the access to numbers of vectors."""
    last, shift = ops.width - 1, (ops.width - 1).bit_length()

    @ops.compile
    def get(X, i):
        return X[uint32(i >> shift), uint32(i & last)]

    @ops.compile
    def put(X, i, value):
        X[uint32(i >> shift), uint32(i & last)] = value

    @ops.compile
    def count(n):
        return (n + last) >> shift

    return Places(get, put, count)


@functools.cache
def update_functions(ops: Width, team: Team) -> tuple[Any, Any]:
    """Return ``enter(lines, inverse, members, size, j, column)`` and ``leave(inverse, members, size, q, column)``.

    They border an inverse of ``size`` rows by endmember j, if it is independent enough, or take row q out, whose place the last takes.
    """
    load, store, fma, broadcast, total = ops.load, ops.store, ops.fma, ops.broadcast, ops.total
    (get, put, count), rank, ranks, sync, width = places_of(ops), team.rank, team.size, team.sync, ops.width

    @ops.compile
    def begin_with_sum(inverse, one, square, d):
        """Invert ``[[0, one], [one, square]]``; the border alone has no inverse."""
        for b in range(count(2)):
            store(inverse, b, broadcast(0.0))
            store(inverse, d + b, broadcast(0.0))
        sync()
        if rank() == 0:
            put(inverse, 0, -square / one**2)
            put(inverse, 1, 1.0 / one)
            put(inverse, d * width, 1.0 / one)

    @ops.compile
    def enter(lines, inverse, members, size, j, column):
        c, d, has_sum = lines.ones.shape[0], column.shape[0] // 2, lines.has_sum == 1
        one, square = get(lines.ones, j), get(lines.U, j * c * width + j)
        if rank() == 0:
            members[uint32(size)] = j
        if size == 1 and has_sum:
            begin_with_sum(inverse, one, square, d)
            sync()
            return True
        for i in range(rank(), size, ranks()):
            value = one if has_sum else 0.0
            put(column, i, get(lines.U, members[uint32(i)] * c * width + j) if i > 0 else value)
        vectors = count(size + 1)
        for i in range(size + rank(), vectors * width, ranks()):
            put(column, i, 0.0)
        for i in range(size if size % width == 0 else 0):  # the row's last place begins a vector
            store(inverse, i * d + vectors - 1, broadcast(0.0))
        for b in range(vectors):
            store(inverse, size * d + b, broadcast(0.0))
        sync()
        inside = broadcast(0.0)
        for b in range(vectors):
            h = broadcast(0.0)
            for k in range(size):
                h = fma(broadcast(get(column, k)), load(inverse, k * d + b), h)
            store(column, d + b, h)
            inside = fma(h, load(column, b), inside)
        pivot = square - total(inside)
        if not pivot > LEAST_PIVOT:
            return False
        sync()
        if rank() == 0:
            put(column, d * width + size, -1.0)
        sync()
        for b in range(vectors):
            share = load(column, d + b) / broadcast(pivot)
            for i in range(size + 1):
                row = load(inverse, i * d + b)
                store(inverse, i * d + b, fma(broadcast(get(column, d * width + i)), share, row))
        sync()
        return True

    @ops.compile
    def leave(inverse, members, size, q, column):
        d, last = column.shape[0] // 2, size - 1
        for i in range(rank(), size, ranks()):
            put(column, i, get(inverse, i * d * width + q))
        sync()
        pivot = get(column, q)
        for b in range(count(size)):
            row = load(inverse, q * d + b) / broadcast(pivot)
            for i in range(size):
                store(inverse, i * d + b, fma(broadcast(-get(column, i)), row, load(inverse, i * d + b)))
            store(inverse, q * d + b, load(inverse, last * d + b))
        sync()
        for i in range(rank(), size, ranks()):
            put(inverse, i * d * width + q, get(inverse, i * d * width + last))
            put(inverse, i * d * width + last, 0.0)
        if rank() == 0:
            members[uint32(q)] = members[uint32(last)]
        sync()

    return enter, leave
