"""Values of the pixels that are solved: maps of them, their residuals, the residuals' noise, and rounding upwards."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ...compiled.jit import compiled
from ...io.fields import NODATA

Values = Callable[[np.ndarray, np.ndarray], np.ndarray]


@compiled
def squares_of_residuals(Y: Any, E: Any, A: Any, out: Any) -> None:
    """Write the sum over the bands of the squared residual of pixels (N, L) with abundances (N, p)."""
    L, p = E.shape
    for n in range(Y.shape[0]):
        square = 0.0
        for b in range(L):
            r = Y[n, b]
            for j in range(p):
                r -= E[b, j] * A[n, j]
            square += r * r
        out[n] = square


def residual_noise(Y: np.ndarray, E: np.ndarray, A: np.ndarray, held: int) -> np.ndarray:
    """Return the noise (N,) in residuals of pixels (N, L) with abundances (N, p) under ``held`` equations; or NaN."""
    squares, free = np.empty(len(Y)), freedom(len(E), A, held)
    squares_of_residuals(Y, E, A, squares)
    return np.sqrt(np.divide(squares, free, out=np.full(len(Y), np.nan), where=free > 0))


def freedom(L: int, A: np.ndarray, held: int) -> np.ndarray:
    """Return the degrees of freedom (N,) that abundances (N, p) leave to a residual of L bands; it may be below 0."""
    return np.asarray(L - np.count_nonzero(A, axis=1) + held)


def map_of_solved(count: int, abundance: np.ndarray, masked: np.ndarray, values: Values) -> np.ndarray:
    """Return a map float32 (n, count, samples) of ``values(places, A)`` (m, count), −9999 where masked."""
    n, p, samples = abundance.shape
    solved = np.flatnonzero(~masked.ravel())
    out = np.full((n * samples, count), NODATA, np.float32)
    out[solved] = values(solved, np.ascontiguousarray(abundance.transpose(0, 2, 1)).reshape(-1, p)[solved])
    return np.ascontiguousarray(out.reshape(n, samples, count).transpose(0, 2, 1))


def rounded_up(values: np.ndarray, step: float | None = None) -> np.ndarray:
    """Return the smallest float32 that is not less than each value; of multiples of a step, where one is given."""
    if step is not None:
        steps = np.ceil(values / step)
        steps += (steps * step).astype(np.float32) < values  # a multiple may be rounded below
        return np.asarray((steps * step).astype(np.float32))
    with np.errstate(over="ignore"):
        nearest = values.astype(np.float32)
    return np.where(nearest < values, np.nextafter(nearest, np.float32(np.inf)), nearest)
