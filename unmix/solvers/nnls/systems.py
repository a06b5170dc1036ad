"""Solve and certify batches of systems by groups of threads of a CPU or a GPU; the systems share one matrix, or have one each."""

import functools
from typing import Any, NamedTuple

import numpy as np

from ...certificate import certify_function
from ...compiled.cooperative import Team
from ...compiled.jit import compiled
from ...compiled.simd import ONE
from ...compiled.thread_groups import CpuGroups, CudaGroups
from .lawson_hanson_qr import Matrix, Scratch, layout_function, nnls_function, scratch_shapes

# Threads of a GPU's block, and blocks per multiprocessor: a system of 512 x 512 needs 4 MiB of scratch for its Q and R.
THREADS, BLOCKS_AT_ONCE = 128, 2


class Systems(NamedTuple):
    """A batch of N systems and its answers."""

    rows: Any  # (1 or N, m, n) float64
    columns: Any  # (n, m), the transpose; (0, m) where each system has its own matrix
    gram: Any  # (n, n) or (0, 0)
    norms: Any  # (n,) or (0,)
    each: bool
    curvature: float
    B: Any  # (N, m)
    X: Any  # (N, n)
    rmse: Any  # (N, 1), as kappa and delta
    kappa: Any
    delta: Any
    steps: Any  # (N,) int32


@compiled
def scratch_of_group(s, group):
    """Return the `Scratch` of one group, from arrays in its order whose first axis is the group."""
    return Scratch(
        s[0][group], s[1][group], s[2][group], s[3][group], s[4][group], s[5][group], s[6][group], s[7][group], s[8][group],
        s[9][group], s[10][group], s[11][group],
    )  # fmt: skip


@functools.cache
def solve_body(team: Team) -> Any:
    """Return the body that solves each system; scratch: columns (n, m) and norms (n,) if each has a matrix, then those of `Scratch`."""
    lay_out, nnls, rank = layout_function(team), nnls_function(team), team.rank

    @team.compile
    def solve(start, stop, step, group, systems, scratch, reduction_buffer):
        work = scratch_of_group(scratch[2:], group)
        columns = scratch[0][group] if systems.each else systems.columns
        norms = scratch[1][group] if systems.each else systems.norms
        for i in range(start, stop, step):
            a = i if systems.each else 0
            if systems.each:
                lay_out(systems.rows[a], columns, norms)
            matrix = Matrix(systems.rows[a], columns, systems.gram, norms)
            steps = nnls(matrix, systems.B[i], work, reduction_buffer, systems.X[i])
            if rank() == 0:
                systems.steps[i] = steps

    return solve


@functools.cache
def certify_body(team: Team) -> Any:
    """Return the body that certifies each system by one thread; scratch, a column per thread: b (m), x, duals and norms (n), terms."""
    certify = certify_function(ONE)

    @compiled
    def certify_systems(start, stop, step, group, systems, scratch, reduction_buffer):
        m, n = systems.B.shape[1], systems.X.shape[1]
        pixel, answer, duals = (
            scratch[0][:, group : group + 1],
            scratch[1][:, group : group + 1],
            scratch[2][:, group : group + 1],
        )
        norms = scratch[3][:, group]
        for i in range(start, stop, step):
            a = i if systems.each else 0
            for j in range(n):
                norms[j] = 0.0 if systems.each else systems.norms[j]
            if systems.each:
                for k in range(m):
                    for j in range(n):
                        norms[j] += systems.rows[a, k, j] * systems.rows[a, k, j]
                for j in range(n):
                    norms[j] = norms[j] ** 0.5
            for k in range(m):
                pixel[k, 0] = systems.B[i, k]
            for j in range(n):
                answer[j, 0] = systems.X[i, j]
            systems.delta[i, 0] = np.inf
            certify(
                systems.rows[a], norms, norms[:0], systems.curvature, False, True, norms[:0], pixel, answer, duals,
                systems.rmse[i : i + 1], systems.kappa[i : i + 1], systems.delta[i : i + 1], scratch[4][:, group : group + 1],
            )  # fmt: skip

    return certify_systems


def laid_out(A: np.ndarray) -> np.ndarray:
    """Return an array of three axes as float64 in C order, with the strides of its shape also along axes of length 1.

    (Such an array is copied to a GPU as a whole; any other one element by element: 0.7 s for 2 MiB.)
    """
    contiguous = (8 * A.shape[1] * A.shape[2], 8 * A.shape[2], 8)
    return A if A.dtype == np.float64 and A.strides == contiguous else np.array(A, np.float64, order="C", copy=True)


class SystemEngine:
    """A matrix for all systems, or one for each, and the threads that solve with it.

    Parameters
    ----------
    groups : CpuGroups or CudaGroups
    A : array (m, n), or (N, m, n)
    gram : bool
        Compute AᵀA once for all systems, instead of products with Aᵀ for each. Pays from a few systems on.

    Attributes
    ----------
    shape : (int, int, int)
        Number of matrices, rows and columns.
    each : bool
        Whether each system has its own matrix.
    curvature : float
        A lower bound of σ_min(A)²; 0 if rounding hides that it is above 0 (cond(A) above 1e6 or so), or each system has its own A:
        δ is infinite then.
    """

    def __init__(self, groups: CpuGroups | CudaGroups, A: np.ndarray, gram: bool) -> None:
        rows = laid_out(A if A.ndim == 3 else A[None])
        self.groups, self.shape, self.each = groups, rows.shape, A.ndim == 3 and len(A) > 1
        _, m, n = rows.shape
        shared_matrix = np.empty((m, 0)) if self.each else rows[0]
        columns = np.ascontiguousarray(shared_matrix.T)
        norms = np.sqrt(np.square(shared_matrix).sum(axis=0))
        product = columns @ shared_matrix if not self.each and (gram or n <= m) else np.empty((0, 0))
        shared_gram = product if gram and not self.each else np.empty((0, 0))
        self.curvature = 0.0
        if (
            not self.each and n <= m
        ):  # eigenvalues of AᵀA less what rounding may have added: an SVD of A takes ten times as long
            values = np.linalg.eigvalsh(product)
            self.curvature = max(0.0, float(values[0] - m * 2.3e-16 * np.trace(product)))
        self.matrix = tuple(map(groups.put, (rows, columns, shared_gram, norms)))

    def solve(self, B: np.ndarray, answers: dict[str, np.ndarray]) -> None:
        """Solve and certify a batch.

        Parameters
        ----------
        B : array (N, m), float64
        answers : dict of arrays
            ``x`` (N, n), ``rmse``, ``kappa`` and ``delta`` (N, 1) float64, ``steps`` (N,) int32; filled.
        """
        _, m, n = self.shape
        names = ("x", "rmse", "kappa", "delta", "steps")
        arrays = map(self.groups.put, (np.ascontiguousarray(B), *(answers[name] for name in names)))
        systems = Systems(*self.matrix, self.each, self.curvature, *arrays)
        own_matrix = ((None, n, m), float), ((None, n), float)
        if not self.each:
            own_matrix = ((None, 0, m), float), ((None, 0), float)
        scratch = *own_matrix, *(((None, *shape), kind) for shape, kind in scratch_shapes(m, n))
        self.groups.run(solve_body, len(B), systems, scratch)
        vectors = tuple(((rows, None), float) for rows in (m, n, n, n, 5))
        self.groups.run(certify_body, len(B), systems, vectors, single=True)
        for name, values in zip(names, systems[7:]):
            self.groups.get(values, answers[name])

    def close(self) -> None:
        """Release threads or memory."""
        self.groups.close()
