"""Batches of systems on a GPU: a block of threads a system, from the same source as the CPU's (`unmix.solvers.nnls.lawson_hanson_qr`).

Blocks are as many as the GPU holds at once, or as memory allows, and stride over the systems: a system of 512 x 512 needs 4 MiB of
scratch for its Q and R. The certificate is made on the GPU, too, a thread a system.
"""

import functools
from typing import Any

import numpy as np
from numba import cuda

from ...certificate import certify_function
from ...compiled.cuda import cuda_kernel
from ...compiled.cuda_block import BLOCK, MOST_SCRATCH, SIMULATED
from ...compiled.simd import ONE
from .cpu import Shared
from .lawson_hanson_qr import Matrix, Scratch, layout_function, nnls_function, scratch_shapes

THREADS = 4 if SIMULATED else 128
CERTIFYING = 32  # threads of a block that certifies: systems are few
BLOCKS_AT_ONCE = 2  # a multiprocessor; more wait for the same memory


@functools.cache
def systems_kernel() -> Any:
    """The kernel: arguments are the constants of `Shared`, the right-hand sides, the fields of Scratch, x and steps."""
    lay_out, nnls = layout_function(BLOCK), nnls_function(BLOCK)
    buffer_size = 2 * THREADS

    @cuda_kernel
    def solve_batch(
        rows, columns, gram, norms, each, B,
        Q, R, along, x, y, goal, order, left, column, dual, start, state, X, steps,
    ):  # fmt: skip
        reduction_buffer = cuda.shared.array(buffer_size, np.float64)
        own = cuda.blockIdx.x
        for i in range(own, B.shape[0], cuda.gridDim.x):
            a, t = (i, own) if each else (0, 0)
            if each:
                lay_out(rows[a], columns[t], norms[t])
            work = Scratch(
                Q[own], R[own], along[own], x[own], y[own], goal[own], order[own], left[own], column[own], dual[own],
                start[own], state[own],
            )  # fmt: skip
            taken = nnls(Matrix(rows[a], columns[t], gram, norms[t]), B[i], work, reduction_buffer, X[i])
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


class CudaEngine:
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
        """Solve and certify a batch; as `unmix.solvers.nnls.cpu.solve_systems`."""
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
