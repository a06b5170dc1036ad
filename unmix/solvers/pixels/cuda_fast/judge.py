"""κ and δ of pixels on a GPU from abundances and duals in memory, by the functions that the CPU uses.

The fast path's own verdict bounds δ by the condition of all endmembers. Pixels that this leaves open are bounded here
by the condition of the columns that they use (`unmix.certificate.face_function`), a warp for each.
"""

import functools
import math
from typing import Any, NamedTuple

import numpy as np
from numba import float64, int64

from ....certificate import CERTIFIED, FARTHEST, TERMS, Face, face_shapes, verdict_function
from ....compiled.cuda import SIMULATED, cuda, cuda_kernel, multiprocessors, on_gpu, to_gpu
from ....compiled.jit import ONE
from ....compiled.warp import team_of
from ..scalar import Plan
from ..tile import SOLVED, settle_function

# Threads of a block that bounds a pixel; the most such blocks for each multiprocessor, its shared memory for them, and
# what a block takes of it for its buffer and the system, in bytes.
WARP = 4 if SIMULATED else 32
BLOCKS, SHARED, BUFFERS = 32, 220_000, 1600
# The most columns of a face, whose factors lie in shared memory first (in global memory 240 spectra took 134 ns a
# pixel), and for the pixels that need more in global memory. Supports of mixtures of 948 minerals have up to 53.
IN_SHARED, MOST_COLUMNS = 40, 96


@on_gpu
def is_settled(kappa, delta):
    """Return whether κ and δ of a pixel leave nothing open."""
    return kappa <= CERTIFIED and delta <= FARTHEST


class Open(NamedTuple):
    """Pixels that κ and δ leave open, as numbers of pixels of a block, in any order."""

    count: Any  # (1,) int32
    pixels: Any  # (N,) int32


@cuda_kernel
def list_none(found):
    """Empty the list."""
    found.count[0] = 0


@cuda_kernel
def list_open(found, state, kappa, delta):
    """Add the pixels that are open to the list; states, κ and δ are flat."""
    for n in range(cuda.grid(1), state.size, cuda.gridsize(1)):
        if state[n] == SOLVED and not is_settled(kappa[n], delta[n]):
            found.pixels[cuda.atomic.add(found.count, 0, 1)] = n


@functools.cache
def verdict_kernel() -> Any:
    """Return the kernel that computes κ, δ and the terms (N, 7, 1) of open pixels, one thread each."""
    # Its arguments are Plan, FastWork with an axis of length 1 after a and w, the terms, Open and the block's results.
    verdict = verdict_function(ONE)

    @cuda_kernel
    def judge_block(plan, work, terms, found, out):
        kappa = cuda.local.array((1, 1), float64)
        delta = cuda.local.array((1, 1), float64)
        L, p = plan.E.shape
        samples = out.state.shape[1]
        for i in range(cuda.grid(1), found.count[0], cuda.gridsize(1)):
            n = found.pixels[i]
            line, sample = n // samples, n % samples
            delta[0, 0] = np.inf
            verdict(
                plan.sizes,
                plan.slopes,
                plan.curvature,
                plan.centre,
                plan.sum_to_one,
                True,
                L,
                work.a[n, :p],
                work.w[n, :p],
                work.size[n],
                work.left[n],
                kappa,
                delta,
                terms[n],
            )
            out.kappa[line, sample], out.delta[line, sample] = kappa[0, 0], delta[0, 0]

    return judge_block


@functools.cache
def face_kernel(most: int) -> Any:
    """Return the kernel that bounds κ and δ of the open pixels by a face, a block of threads for each."""
    # Its arguments are those of verdict_kernel, and a Face whose arrays have an axis of blocks before the list. The
    # factors of `most` columns lie in shared memory, unless it is 0.
    settle = settle_function(team_of(WARP))
    buffer_size, shared, length, shape = 2 * WARP, most > 0, max(most, 1), (max(most, 1), most + 1)

    @cuda_kernel
    def settle_block(plan, work, terms, faces, found, out):
        reduction_buffer = cuda.shared.array(buffer_size, float64)
        block, p = cuda.blockIdx.x, plan.E.shape[1]
        in_shared = cuda.shared.array(shape, float64)
        columns = cuda.shared.array(length, int64)
        row = cuda.shared.array(length, float64)
        face = Face(
            columns if shared else faces.columns[block],
            faces.inside[block],
            in_shared if shared else faces.factors[block],
            row if shared else faces.row[block],
        )
        samples = out.state.shape[1]
        for i in range(block, found.count[0], cuda.gridDim.x):
            n = found.pixels[i]
            line, sample = n // samples, n % samples
            if is_settled(out.kappa[line, sample], out.delta[line, sample]):
                continue
            kappa, delta = settle(
                plan,
                work.a[n, :p, 0],
                work.w[n, :p, 0],
                terms[n, :, 0],
                work.length[n] == 0.0,
                out.kappa[line, sample],
                out.delta[line, sample],
                face,
                reduction_buffer,
            )
            cuda.syncthreads()
            if cuda.threadIdx.x == 0:
                out.kappa[line, sample], out.delta[line, sample] = kappa, delta
            cuda.syncthreads()

    return settle_block


class Judge:
    """The kernels, and their scratch for the pixels of a block.

    Parameters
    ----------
    problem : unmix.problem.Problem
    pixels : int
    parts : int
        Parts of a block that are solved at the same time.
    """

    def __init__(self, problem: Any, pixels: int, parts: int = 1) -> None:
        nothing = np.empty((0, 0))
        self.plan = to_gpu(Plan(*problem.plan("direct"))._replace(Q=nothing, R=nothing, G=nothing, inverse=nothing))
        self.terms = cuda.device_array((pixels, TERMS, 1), np.float64)
        self.found = [cuda.device_array(1, np.int32) for _ in range(parts)], cuda.device_array(pixels, np.int32)
        p = problem.E.shape[1]
        # The kernels to run, one after the other: the second where the first may have too little room.
        self.stages = (min(p, IN_SHARED), 0) if p > IN_SHARED else (p,)
        self.blocks = self.blocks_for(p)
        shapes = face_shapes(p, MOST_COLUMNS)
        self.faces = [
            Face(*(cuda.device_array((self.blocks, *shape), kind) for shape, kind in shapes)) for _ in range(parts)
        ]

    @staticmethod
    def blocks_for(p: int) -> int:
        """Return how many blocks of threads the GPU holds at once."""
        most = min(p, IN_SHARED)
        return max(1, min(BLOCKS, SHARED // (8 * most * (most + 3) + BUFFERS))) * multiprocessors()

    @staticmethod
    def scratch_bytes(p: int, pixels: int, parts: int = 1) -> int:
        """Return the bytes of GPU memory for the scratch."""
        each = sum(math.prod(shape) * np.dtype(kind).itemsize for shape, kind in face_shapes(p, MOST_COLUMNS))
        return parts * Judge.blocks_for(p) * each + (4 + 8 * TERMS) * pixels

    def settle(self, work: Any, out: Any, first: int, part: int, stream: Any) -> None:
        """Enqueue the kernels for a part of a block, whose first pixel is ``first``."""
        columns = work._replace(a=work.a.reshape((*work.a.shape, 1)), w=work.w.reshape((*work.w.shape, 1)))
        places = slice(first, first + out.state.size)
        counts, pixels = self.found
        found, terms = Open(counts[part], pixels[places]), self.terms[places]
        flat = (array.reshape(out.state.size) for array in (out.state, out.kappa, out.delta))
        list_none[1, 1, stream](found)
        list_open[8 * multiprocessors(), 256, stream](found, *flat)
        verdict_kernel()[4 * multiprocessors(), 128, stream](self.plan, columns, terms, found, out)
        for most in self.stages:
            face_kernel(most)[self.blocks, WARP, stream](self.plan, columns, terms, self.faces[part], found, out)
