"""Integers of 16 bits for values ``offset + step · integer``: the same arithmetic on a CPU and a GPU."""

from typing import Any

import numpy as np

from .certificate import NODATA
from .compiled.jit import compiled

# Largest integer that stands for a value, and the one for no data.
MOST_STEPS, BLANK = 65_534, 65_535
# `integer_of` returns this where no integer stands for a value.
MISFIT = -1


@compiled
def integer_of(value: Any, step: float, offset: float) -> int:
    """Return the integer that stands for a value, `BLANK` for `NODATA`, `MISFIT` if there is none."""
    if value == NODATA:
        return BLANK
    number = (np.float64(value) - offset) / step
    # `MOST_STEPS` is even, so half a step above it is rounded to it; NaN fits nowhere.
    if not -0.5 <= number <= MOST_STEPS + 0.5:
        return MISFIT
    return round(number)


@compiled
def to_integers(values: Any, stored: Any, step: float, offset: float) -> int:
    """Store values (n,) as 16-bit integers (n,); return the index of the last that does not fit, −1 if all do."""
    # Compiled, because the host's writing bounds a run on a GPU: in NumPy, with arrays in between, it took as long
    # again.
    misfit = -1
    for i in range(len(values)):
        number = integer_of(values[i], step, offset)
        if number == MISFIT:
            misfit = i
        stored[i] = np.uint16(max(number, 0))
    return misfit
