"""Compute the optimum of one model from the tables that all pixels share: one source for vectors and GPUs."""

import functools
from typing import Any

from ....compiled.jit import Width, compiled, inlined
from .tables import FALLS, SLACK


@functools.cache
def optimum_function(ops: Width, size: int) -> Any:
    """Return ``optimum``, which writes a model's unconstrained fractions to ``a`` (k, w), and returns their sum and |W f|²."""
    # A model has ``size`` spectra, for which loops are unrolled, or else n.
    load, store, broadcast, fma = ops.load, ops.store, ops.broadcast, ops.fma

    @inlined
    def optimum(table, F, a, at, place, n):
        k = size if size > 0 else n
        # Conditions in place of shorter loops, which compilers would not unroll: 7 % of an average.
        saved, begin = broadcast(0.0), at + FALLS + k
        for i in range(k):
            value, w = broadcast(0.0), begin + i * (i + 1) // 2
            for j in range(k):
                if j <= i:
                    value = fma(broadcast(table.numbers[w + j]), load(F, table.spectra[place + j]), value)
            for j in range(k):
                if j < i:
                    store(a, j, fma(broadcast(table.numbers[w + j]), value, load(a, j)))
            store(a, i, value * table.numbers[w + i])
            saved = fma(value, value, saved)
        total = load(a, 0)
        for i in range(1, k):
            total = total + load(a, i)
        return total, saved

    return optimum


@functools.cache
def constraint_function(ops: Width, size: int) -> Any:
    """Return ``constrain``, which moves fractions whose sum is ``over`` one onto it, at the least cost."""
    # It returns the least of them, or 0, and by how much the squared error grows.
    load, store, select, broadcast, fma = ops.load, ops.store, ops.select, ops.broadcast, ops.fma

    @inlined
    def constrain(table, a, at, n, over):
        k = size if size > 0 else n
        lowest = broadcast(0.0)
        for i in range(k):
            value = fma(over, broadcast(-table.numbers[at + FALLS + i]), load(a, i))
            store(a, i, value)
            lowest = select(value < lowest, value, lowest)
        return lowest, over * over * table.numbers[at + SLACK]

    return constrain


def by_size(make: Any, ops: Width) -> Any:
    """Return the functions ``make(ops, size)`` as one, which takes the spectra of a model first."""
    # The loops over a model's spectra are unrolled for the sizes that there are most models of.
    of_two, of_three, of_any = (make(ops, size) for size in (2, 3, 0))

    @compiled
    def of_size(k, *given):
        if k == 2:
            return of_two(*given)
        if k == 3:
            return of_three(*given)
        return of_any(*given)

    return of_size
