"""Average the models of pixels on a GPU: the functions of `unmix.features.average.sums`, a thread for each pixel."""

import functools
import threading
from typing import Any

import numpy as np
from numba import cuda, float64

from ...compiled.cuda import SIMULATED, cuda_kernel, to_gpu
from ...compiled.jit import ONE
from .sums import AverageWork, pixel_function, work_shapes

THREADS = 4 if SIMULATED else 128
# Most pixels of a launch: their products with spectra are in the GPU's memory.
MOST_PIXELS = 1 << 18
# Writers of several threads would each hold memory of the GPU.
LOCK = threading.Lock()


@functools.cache
def kernel(shapes: tuple[tuple[int, int], ...]) -> Any:
    """Return the kernel for scratch of these `work_shapes` one pixel."""
    average = pixel_function(ONE)
    _, of_a, of_sums, of_totals, of_evidence = shapes
    rows, sets = of_totals[0], of_evidence[0]

    @cuda_kernel
    def average_pixels(table, E, Y, prior, noise, F, totals, evidence, fits):
        n = cuda.grid(1)
        if n < Y.shape[0]:
            work = AverageWork(
                F[:, n : n + 1],
                cuda.local.array(of_a, float64),
                cuda.local.array(of_sums, float64),
                cuda.local.array(of_totals, float64),
                cuda.local.array(of_evidence, float64),
            )
            square = 0.0
            for b in range(Y.shape[1]):
                square += Y[n, b] * Y[n, b]
            for j in range(E.shape[1]):
                product = 0.0
                for b in range(Y.shape[1]):
                    product += Y[n, b] * E[b, j]
                work.F[j, 0] = product
            best, sigma, which = average(table, work, prior, square, noise, float64(Y.shape[1]))
            fits[n, 0], fits[n, 1], fits[n, 2] = best, sigma, which
            for row in range(rows):
                totals[n, row] = work.totals[row, 0]
            for row in range(sets):
                evidence[n, row] = work.evidence[row, 0]

    return average_pixels


def average_there(
    likely: Any,
    Y: np.ndarray,
    noise: tuple[float, float, float],
    totals: np.ndarray,
    evidence: np.ndarray,
    fits: np.ndarray,
) -> None:
    """Fill the sums of pixels (N, L), as `sums.cpu_function` does."""
    shapes = work_shapes(likely.E.shape[1], likely.classes, likely.table.sizes.tolist(), 1)
    run = kernel(shapes)
    with LOCK:
        if likely.there is None:
            likely.there = to_gpu(likely.table), to_gpu(likely.E)
        table, E = likely.there
        prior = to_gpu(likely.prior)
        for first in range(0, len(Y), MOST_PIXELS):
            part = slice(first, first + MOST_PIXELS)
            pixels = to_gpu(Y[part])
            N = len(Y[part])
            F = cuda.device_array((E.shape[1], N), np.float64)
            answers = [cuda.device_array((N, values.shape[1]), np.float64) for values in (totals, evidence, fits)]
            run[-(-N // THREADS), THREADS](table, E, pixels, prior, noise, F, *answers)
            for values, found in zip((totals, evidence, fits), answers):
                values[part] = found.copy_to_host()
