"""Batches of systems, each solved and certified, by groups of threads of a CPU or a GPU; one matrix for all, or one each."""

import functools
from typing import Any, NamedTuple

import numpy as np

from ...certificate import certify_function
from ...compiled.cooperative import Team
from ...compiled.jit import compiled
from ...compiled.simd import ONE
from ...compiled.thread_groups import CpuGroups, CudaGroups
from .lawson_hanson_qr import Matrix, Scratch, layout_function, nnls_function, scratch_shapes

# Of a GPU's block, and blocks a multiprocessor: a system of 512 x 512 needs 4 MiB of scratch for its Q and R.
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
    """One group's part of arrays in the order of `Scratch` that have one for each group."""
    return Scratch(
        s[0][group], s[1][group], s[2][group], s[3][group], s[4][group], s[5][group], s[6][group], s[7][group], s[8][group],
        s[9][group], s[10][group], s[11][group],
    )  # fmt: skip


@functools.cache
def solve_body(team: Team) -> Any:
    """Solve each system; scratch: columns (n, m) and norms (n,) where each has its own matrix, then the fields of `Scratch`."""
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
            taken = nnls(matrix, systems.B[i], work, reduction_buffer, systems.X[i])
            if rank() == 0:
                systems.steps[i] = taken

    return solve


@functools.cache
def certify_body(team: Team) -> Any:
    """Certify each system, by one thread; scratch, of a thread a column: pixel (m), answer, duals and lengths (n)."""
    certify = certify_function(ONE)

    @compiled
    def certify_systems(start, stop, step, group, systems, scratch, reduction_buffer):
        m, n = systems.B.shape[1], systems.X.shape[1]
        pixel, answer, duals = (
            scratch[0][:, group : group + 1],
            scratch[1][:, group : group + 1],
            scratch[2][:, group : group + 1],
        )
        own = scratch[3][:, group]
        for i in range(start, stop, step):
            a = i if systems.each else 0
            for j in range(n):
                own[j] = 0.0 if systems.each else systems.norms[j]
            if systems.each:
                for k in range(m):
                    for j in range(n):
                        own[j] += systems.rows[a, k, j] * systems.rows[a, k, j]
                for j in range(n):
                    own[j] = own[j] ** 0.5
            for k in range(m):
                pixel[k, 0] = systems.B[i, k]
            for j in range(n):
                answer[j, 0] = systems.X[i, j]
            systems.delta[i, 0] = np.inf
            certify(
                systems.rows[a], own, own[:0], systems.curvature, False, True, pixel, answer, duals, systems.rmse[i : i + 1],
                systems.kappa[i : i + 1], systems.delta[i : i + 1],
            )  # fmt: skip

    return certify_systems


def laid_out(A: np.ndarray) -> np.ndarray:
    """An array of three axes in float64 whose strides are what its shape says, also where an axis has length 1.

    (To a GPU such a one goes as a whole; any other one element by element: 0.7 s for 2 MiB.)
    """
    usual = (8 * A.shape[1] * A.shape[2], 8 * A.shape[2], 8)
    return A if A.dtype == np.float64 and A.strides == usual else np.array(A, np.float64, order="C", copy=True)


class SystemEngine:
    """The matrix of a batch, or one for each system, and who solves with it.

    Parameters
    ----------
    groups : CpuGroups or CudaGroups
    A : array (m, n), or (N, m, n)
    gram : bool
        Whether the systems share AᵀA; else each product with Aᵀ is made anew. Pays from a few systems on.

    Attributes
    ----------
    shape : (int, int, int)
        Matrices, rows and columns.
    each : bool
        Whether each system has its own matrix.
    curvature : float
        No more than σ_min(A)²; 0 where rounding cannot tell it from 0 (cond(A) above 1e6 or so), or each system has its own A: δ
        is infinite then.
    """

    def __init__(self, groups: CpuGroups | CudaGroups, A: np.ndarray, gram: bool) -> None:
        rows = laid_out(A if A.ndim == 3 else A[None])
        self.groups, self.shape, self.each = groups, rows.shape, A.ndim == 3 and len(A) > 1
        _, m, n = rows.shape
        one = np.empty((m, 0)) if self.each else rows[0]
        columns = np.ascontiguousarray(one.T)
        norms = np.sqrt(np.square(one).sum(axis=0))
        product = columns @ one if not self.each and (gram or n <= m) else np.empty((0, 0))
        shared = product if gram and not self.each else np.empty((0, 0))
        self.curvature = 0.0
        if not self.each and n <= m:  # of AᵀA, less all that rounding may have added: an SVD takes ten times as long
            values = np.linalg.eigvalsh(product)
            self.curvature = max(0.0, float(values[0] - m * 2.3e-16 * np.trace(product)))
        self.matrix = tuple(map(groups.put, (rows, columns, shared, norms)))

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
        given = map(self.groups.put, (np.ascontiguousarray(B), *(answers[name] for name in names)))
        systems = Systems(*self.matrix, self.each, self.curvature, *given)
        matrix = ((None, n, m), float), ((None, n), float)
        if not self.each:
            matrix = ((None, 0, m), float), ((None, 0), float)
        scratch = *matrix, *(((None, *shape), kind) for shape, kind in scratch_shapes(m, n))
        self.groups.run(solve_body, len(B), systems, scratch)
        vectors = ((m, None), float), ((n, None), float), ((n, None), float), ((n, None), float)
        self.groups.run(certify_body, len(B), systems, vectors, single=True)
        for name, values in zip(names, systems[7:]):
            self.groups.get(values, answers[name])

    def close(self) -> None:
        """Release threads or memory."""
        self.groups.close()
