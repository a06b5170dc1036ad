"""Batches of systems on a GPU: a block of threads a system, from the same source as the CPU's (`unmix.solvers.qr`).

Blocks are as many as the GPU holds at once, or as memory allows, and stride over the systems: a system of 512 x 512 needs 4 MiB of
scratch for its Q and R. The certificate is made on the GPU, too, a thread a system.
"""

import functools
from typing import Any

import numba
import numpy as np
from numba import cuda

from ..certificate import certify_function
from .cuda import ALL_LANES, cuda_kernel
from .lanes import ONE
from .qr import Matrix, Scratch, layout_function, nnls_function, scratch_shapes
from .systems import Shared
from .team import Team

SIMULATED = bool(numba.config.ENABLE_CUDASIM)
THREADS = 4 if SIMULATED else 128
WARP = 32
# What all blocks' scratch may take of a GPU's memory.
MOST_SCRATCH = 8 * 2**30
CERTIFYING = 32  # threads of a block that certifies: systems are few
BLOCKS_AT_ONCE = 2  # a multiprocessor; more wait for the same memory


def on_gpu(function: Any) -> Any:
    """A function of the GPU."""
    return cuda.jit(function, device=True)


@on_gpu
def rank() -> Any:
    """Which thread of the block."""
    return cuda.threadIdx.x


@on_gpu
def size() -> Any:
    """Threads of the block."""
    return cuda.blockDim.x


@on_gpu
def sync():
    """Wait for the block."""
    cuda.syncthreads()


def total_by_tree(value, box):
    """The sum over a block, by halves; for the simulator, which has no shuffles."""
    t = cuda.threadIdx.x
    box[t] = value
    cuda.syncthreads()
    half = cuda.blockDim.x // 2
    while half > 0:
        if t < half:
            box[t] += box[t + half]
        cuda.syncthreads()
        half //= 2
    result = box[0]
    cuda.syncthreads()
    return result


def total_by_warps(value, box):
    """The sum over a block: in each warp by shuffles, then over the warps."""
    for step in (16, 8, 4, 2, 1):
        value += cuda.shfl_xor_sync(ALL_LANES, value, step)
    t = cuda.threadIdx.x
    if t % WARP == 0:
        box[t // WARP] = value
    cuda.syncthreads()
    result = 0.0
    for w in range(cuda.blockDim.x // WARP):
        result += box[w]
    cuda.syncthreads()
    return result


def best_by_tree(value, index, box):
    """The index of the largest value of a block, of equal ones the smallest; −1 where no thread has one."""
    t, n = cuda.threadIdx.x, cuda.blockDim.x
    box[t], box[n + t] = value, index
    cuda.syncthreads()
    half = n // 2
    while half > 0:
        if t < half:
            a, b = box[n + t], box[n + t + half]
            if b >= 0 and (a < 0 or box[t + half] > box[t] or (box[t + half] == box[t] and b < a)):
                box[t], box[n + t] = box[t + half], b
        cuda.syncthreads()
        half //= 2
    result = int(box[n])
    cuda.syncthreads()
    return result


total = on_gpu(total_by_tree if SIMULATED else total_by_warps)
best = on_gpu(best_by_tree)
BLOCK = Team("block", on_gpu, rank, size, sync, total, best)


@functools.cache
def systems_kernel() -> Any:
    """The kernel: arguments are the constants of `Shared`, the right-hand sides, the fields of Scratch, x and steps."""
    lay_out, nnls = layout_function(BLOCK), nnls_function(BLOCK)
    places = 2 * THREADS

    @cuda_kernel
    def solve_batch(
        rows, columns, gram, norms, each, B,
        Q, R, along, x, y, goal, order, left, column, dual, start, state, X, steps,
    ):  # fmt: skip
        box = cuda.shared.array(places, np.float64)
        own = cuda.blockIdx.x
        for i in range(own, B.shape[0], cuda.gridDim.x):
            a, t = (i, own) if each else (0, 0)
            if each:
                lay_out(rows[a], columns[t], norms[t])
            work = Scratch(
                Q[own], R[own], along[own], x[own], y[own], goal[own], order[own], left[own], column[own], dual[own],
                start[own], state[own],
            )  # fmt: skip
            taken = nnls(Matrix(rows[a], columns[t], gram, norms[t]), B[i], work, box, X[i])
            if cuda.threadIdx.x == 0:
                steps[i] = taken

    return solve_batch


@functools.cache
def certificate_kernel() -> Any:
    """The kernel that certifies, a thread a system; ``work`` is (m + 3n, threads): pixel, answer, duals, lengths."""
    certify = certify_function(ONE)

    @cuda_kernel
    def certify_batch(rows, norms, each, curvature, B, X, work, rmse, kappa, delta):
        t = cuda.grid(1)
        m, n = B.shape[1], X.shape[1]
        for i in range(t, B.shape[0], cuda.gridsize(1)):
            a = i if each else 0
            own, lengths = work[:, t : t + 1], norms[0]
            if each:
                lengths = work[m + 2 * n :, t]
                for j in range(n):
                    lengths[j] = 0.0
                for k in range(m):
                    for j in range(n):
                        lengths[j] += rows[a, k, j] * rows[a, k, j]
                for j in range(n):
                    lengths[j] = lengths[j] ** 0.5
            for k in range(m):
                own[k, 0] = B[i, k]
            for j in range(n):
                own[m + j, 0] = X[i, j]
            delta[i, 0] = np.inf
            certify(
                rows[a], lengths, lengths[:0], curvature, False, True, own[:m], own[m : m + n], own[m + n : m + 2 * n],
                rmse[i : i + 1], kappa[i : i + 1], delta[i : i + 1],
            )  # fmt: skip

    return certify_batch


class OnGpu:
    """A batch's matrix on a GPU, and the scratch of its blocks.

    Parameters
    ----------
    shared : Shared
    most : int
        Systems of the largest batch.
    """

    def __init__(self, shared: Shared, most: int) -> None:
        self.shared = shared
        _, m, n = shared.rows.shape
        shapes = scratch_shapes(m, n)
        own = sum(int(np.prod(shape)) * np.dtype(kind).itemsize for shape, kind in shapes) + 8 * n * (m + 1)
        units = 1 if SIMULATED else cuda.get_current_device().MULTIPROCESSOR_COUNT
        self.blocks = max(1, min(most, BLOCKS_AT_ONCE * units, MOST_SCRATCH // own))
        self.scratch = [cuda.device_array((self.blocks, *shape), kind) for shape, kind in shapes]
        self.rows, self.gram = cuda.to_device(shared.rows), cuda.to_device(shared.gram)
        if shared.each:
            self.columns, self.norms = (
                cuda.device_array((self.blocks, *shape), np.float64) for shape in ((n, m), (n,))
            )
        else:
            self.columns, self.norms = (
                cuda.to_device(np.array(one[None], copy=True)) for one in (shared.columns, shared.norms)
            )

    def solve(self, B: np.ndarray, answers: dict[str, np.ndarray]) -> None:
        """Solve and certify a batch; as `unmix.solvers.systems.solve_systems`."""
        _, m, n = self.shared.rows.shape
        each = self.shared.each
        right = cuda.to_device(np.ascontiguousarray(B))
        results = {name: cuda.device_array(answers[name].shape, answers[name].dtype) for name in answers}
        systems_kernel()[self.blocks, THREADS](
            self.rows, self.columns, self.gram, self.norms, each, right, *self.scratch, results["x"], results["steps"]
        )
        threads = min(THREADS, CERTIFYING)
        grid = max(1, min(-(-len(B) // threads), 256))
        work = cuda.device_array((m + 3 * n, grid * threads), np.float64)
        certificate_kernel()[grid, threads](
            self.rows, self.norms, each, self.shared.curvature, right, results["x"], work,
            results["rmse"], results["kappa"], results["delta"],
        )  # fmt: skip
        for name, values in results.items():
            values.copy_to_host(answers[name])
