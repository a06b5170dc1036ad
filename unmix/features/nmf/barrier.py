"""A barrier for threads in compiled code, without the GIL: it opens when all threads have arrived."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ...compiled.jit import compiled

WORD = ir.IntType(64)


def new_barrier() -> np.ndarray:
    """Return a barrier, (3,) int64: threads that wait, times it opened, and 1 once nobody needs to wait any more."""
    return np.zeros(3, np.int64)


def place_of(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    """Return the address of an entry of an array of int64."""
    return builder.gep(context.make_array(kind)(context, builder, array).data, [index])


@intrinsic
def add_one(typingctx, array, index):
    """Add 1 atomically to an entry that threads share; return the value before."""

    def build(context, builder, signature, args):
        return builder.atomic_rmw("add", place_of(context, builder, array, *args), WORD(1), "seq_cst")

    return types.int64(array, types.intp), build


@intrinsic
def load_atomic(typingctx, array, index):
    """Return the present value of an entry that threads share, by an atomic load."""

    def build(context, builder, signature, args):
        return builder.load_atomic(place_of(context, builder, array, *args), "acquire", 8)

    return types.int64(array, types.intp), build


@intrinsic
def yield_core(typingctx):
    """Give the core to another thread (POSIX sched_yield)."""

    def build(context, builder, signature, args):
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.IntType(32), []), "sched_yield")
        builder.call(function, [])
        return context.get_dummy_value()

    return types.void(), build


@compiled
def wait(barrier, threads):
    """Wait until ``threads`` threads have arrived."""
    if threads == 1:
        return
    opened = load_atomic(barrier, 1)
    if add_one(barrier, 0) == threads - 1:
        barrier[0] = 0
        add_one(barrier, 1)
        return
    while load_atomic(barrier, 1) == opened and load_atomic(barrier, 2) == 0:
        yield_core()
