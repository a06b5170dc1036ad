"""κ and δ of pixels on a GPU, a thread each, from abundances and duals in memory, by the functions that the CPU uses.

The fast path's own verdict bounds δ by the condition of all endmembers. Pixels that this leaves open are bounded here by the condition
of the columns that they use (`unmix.certificate.bound_on_face`).
"""

import functools
import math
from typing import Any

import numpy as np
from numba import float64

from ....certificate import CERTIFIED, FARTHEST, Face, face_shapes, verdict_function
from ....compiled.cuda import cuda, cuda_kernel, to_gpu
from ....compiled.cuda_block import multiprocessors
from ....compiled.simd import ONE
from ..scalar import Plan
from ..tile import NODATA, SOLVED, settle_pixel

THREADS = 64
# The most columns of a face: supports of mixtures of 948 minerals have up to 53.
MOST_COLUMNS = 64


@functools.cache
def settle_kernel() -> Any:
    """Return the kernel that replaces κ and δ of the pixels they leave open.

    Its arguments are `Plan`, `FastWork` with an axis of length 1 after ``a`` and ``w``, the results of the block and a `Face` with the thread as last axis.
    """
    verdict = verdict_function(ONE)

    @cuda_kernel
    def settle_block(plan, work, out, faces):
        terms = cuda.local.array((5, 1), float64)
        kappa = cuda.local.array((1, 1), float64)
        delta = cuda.local.array((1, 1), float64)
        lines, samples = out.state.shape
        t, (L, p) = cuda.grid(1), plan.E.shape
        face = Face(faces.columns[:, t], faces.inside[:, t], faces.factors[:, :, t])
        for n in range(t, lines * samples, cuda.gridsize(1)):
            line, sample = n // samples, n % samples
            if out.state[line, sample] != SOLVED:
                continue
            if out.kappa[line, sample] <= CERTIFIED and out.delta[line, sample] <= FARTHEST:
                continue
            a, w = work.a[n, :p], work.w[n, :p]
            delta[0, 0] = np.inf
            verdict(plan.sizes, plan.slopes, plan.curvature, plan.sum_to_one, True, L, a, w,
                    work.size[n], work.left[n], kappa, delta, terms)  # fmt: skip
            out.kappa[line, sample], out.delta[line, sample] = settle_pixel(
                plan, a[:, 0], w[:, 0], terms[:, 0], work.length[n] == 0.0, kappa[0, 0], delta[0, 0], face
            )

    return settle_block


class Judge:
    """The kernel, and its scratch: one for each part of a block that is solved at the same time.

    Parameters
    ----------
    problem : unmix.problem.Problem
    """

    PARTS = 4

    def __init__(self, problem: Any) -> None:
        self.plan = to_gpu(
            Plan(*problem.plan("given"))._replace(**{name: np.empty((0, 0)) for name in ("Q", "R", "G", "inverse")})
        )
        self.blocks = self.threads() // THREADS
        shapes = face_shapes(problem.E.shape[1], MOST_COLUMNS)
        self.faces = [
            Face(*(cuda.device_array((*shape, self.threads()), kind) for shape, kind in shapes))
            for _ in range(self.PARTS)
        ]

    @classmethod
    def threads(cls) -> int:
        """Return the number of threads of a part: two warps for each multiprocessor."""
        return multiprocessors() * THREADS

    @classmethod
    def scratch_bytes(cls, p: int) -> int:
        """Return the bytes of GPU memory for the faces."""
        each = sum(math.prod(shape) * np.dtype(kind).itemsize for shape, kind in face_shapes(p, MOST_COLUMNS))
        return cls.PARTS * cls.threads() * each

    def settle(self, work: Any, out: Any, part: int, stream: Any) -> None:
        """Enqueue the kernel for a part of a block."""
        columns = work._replace(a=work.a.reshape((*work.a.shape, 1)), w=work.w.reshape((*work.w.shape, 1)))
        settle_kernel()[self.blocks, THREADS, stream](self.plan, columns, out, self.faces[part])


__all__ = ["NODATA", "Judge"]
