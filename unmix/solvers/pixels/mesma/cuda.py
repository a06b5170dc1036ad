"""MESMA on a GPU: a thread a pixel, by the functions that serve the CPU too.

A thread's scratch lies in global memory with the thread as the last index, as in `unmix.solvers.pixels.cuda`. Its products of pixel and
spectra are read over and over, so there are only as many threads as the caches have room for.
"""

import math
from typing import Any

import numpy as np

from ....compiled.cuda import cuda
from ..cuda import GeneralSolver, tile_bytes
from .search import Best, best_shapes


class ModelsSolver(GeneralSolver):
    """This as a solver of blocks; see `unmix.solvers.pixels.cuda.GeneralSolver` for the interface."""

    countable = False  # of its maps the host makes others
    MOST_THREADS = 384

    @staticmethod
    def new_scratch(problem: Any, threads: int) -> Any:
        """Allocate the scratch of all threads."""
        shapes = best_shapes(problem.E.shape[1], threads, len(problem.models.spectra))
        return Best(*(cuda.device_array(shape, kind) for shape, kind in shapes))

    @classmethod
    def scratch_bytes(cls, problem: Any, pixels: int) -> int:
        """Return the bytes of GPU memory needed beside the blocks."""
        L, p = problem.E.shape
        best = sum(
            math.prod(shape) * np.dtype(kind).itemsize for shape, kind in best_shapes(p, 1, len(problem.models.spectra))
        )
        tables = sum(values.nbytes for values in problem.models if isinstance(values, np.ndarray))
        return cls.threads(pixels) * (best + tile_bytes(L, p, "mesma")) + tables
