"""Where threads in compiled code wait for each other, without Python: a gate that opens when all have come."""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .jit import compiled

WORD = ir.IntType(64)


def new_barrier() -> np.ndarray:
    """A new one: how many wait, how often it opened, whether nobody needs to come any more."""
    return np.zeros(3, np.int64)


def place_of(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    """The address of an entry of an array of int64."""
    return builder.gep(context.make_array(kind)(context, builder, array).data, [index])


@intrinsic
def add_one(typingctx, array, index):
    """Add 1 to an entry that several threads know; returns what it was."""

    def build(context, builder, signature, args):
        return builder.atomic_rmw("add", place_of(context, builder, array, *args), WORD(1), "seq_cst")

    return types.int64(array, types.intp), build


@intrinsic
def load_atomic(typingctx, array, index):
    """An entry as it is now."""

    def build(context, builder, signature, args):
        return builder.load_atomic(place_of(context, builder, array, *args), "acquire", 8)

    return types.int64(array, types.intp), build


@intrinsic
def yield_core(typingctx):
    """Let another thread have the core (POSIX sched_yield)."""

    def build(context, builder, signature, args):
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.IntType(32), []), "sched_yield")
        builder.call(function, [])
        return context.get_dummy_value()

    return types.void(), build


@compiled
def wait(barrier, threads):
    """Wait until so many threads have come."""
    if threads == 1:
        return
    opened = load_atomic(barrier, 1)
    if add_one(barrier, 0) == threads - 1:
        barrier[0] = 0
        add_one(barrier, 1)
        return
    while load_atomic(barrier, 1) == opened and load_atomic(barrier, 2) == 0:
        yield_core()
