"""Who works on a system: one thread of the CPU, or a block of threads of a GPU; the same source serves both.

Vectors are shared out by stride, ``for i in range(rank(), n, size())``, so that an element is always one thread's own;
``sync`` makes what the others wrote visible, ``total`` adds up over the team, ``best`` finds the largest. On the CPU rank
is 0 and size 1, and everything else is nothing.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numba
from numba.core.caching import FunctionCache

from .jit import keep, name_after_cells


class Team(NamedTuple):
    """What a function of a system is made from; ``compile`` compiles it for those who work on it."""

    name: str
    compile: Callable[..., Any]
    rank: Any
    size: Any
    sync: Any
    total: Any
    best: Any


def summing(function: Callable[..., Any]) -> Any:
    """`unmix.compiled.jit.compiled`, but sums may be added up in any order: four to eight times as fast, and as exact.

    NaN stay NaN, and infinities are kept. Not for what is to be the same bit by bit whatever the machine.
    """
    name_after_cells(function)
    options: dict[str, Any] = {
        "nogil": True,
        "error_model": "numpy",
        "_nrt": False,
        "fastmath": {"reassoc", "contract"},
    }
    return keep(numba.njit(**options)(function), FunctionCache)


@summing
def first(*_):
    """The one thread."""
    return 0


@summing
def alone(*_):
    """One thread."""
    return 1


@summing
def nothing(*_):
    """Nobody to wait for."""
    return None


@summing
def itself(value, reduction_buffer):
    """A sum over one thread."""
    return value


@summing
def only(value, index, reduction_buffer):
    """The largest of one."""
    return index


ALONE = Team("alone", summing, first, alone, nothing, itself, only)
