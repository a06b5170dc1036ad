"""Solve and certify batches of systems by groups of threads of a CPU or a GPU; the systems share one matrix, or have one each."""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ...certificate import (
    CERTIFIED,
    MARGIN,
    MOST_COLUMNS,
    MULTIPLIER,
    SUM_ERROR,
    UNIT_ROUNDOFF,
    Face,
    certify_function,
    face_function,
    face_shapes,
)
from ...compiled.cooperative import ALONE, Team
from ...compiled.jit import compiled, inlined
from ...compiled.simd import ONE
from ...compiled.thread_groups import CpuGroups, CudaGroups
from .lawson_hanson_qr import Matrix, Scratch, layout_function, nnls_function, scratch_shapes

# Threads of a GPU's block, and blocks per multiprocessor: a system of 512 x 512 needs 4 MiB of scratch for its Q and R.
THREADS, BLOCKS_AT_ONCE = 128, 2


class Systems(NamedTuple):
    """A batch of N systems and its answers."""

    rows: Any  # (K, m, n) float64: the matrices
    columns: Any  # (n, m), the transpose; (0, m) where systems are laid out each
    gram: Any  # (n, n) or (0, 0)
    norms: Any  # (n,) or (0,)
    each: bool  # whether systems are laid out each, for they have matrices, weights or allowed columns of their own
    sum_to_one: bool  # whether x sums to one, which is certified alone
    curvature: float
    which: Any  # (N,) int32: the matrix of each
    roots: Any  # (N, m) the square roots of the weights of its rows, or (1, 0) for none; B is times these
    allowed: Any  # (N, n) uint8: the columns that it may use, or (1, 0) for all
    start: Any  # (N, n) uint8: the columns that its search begins with, or (1, 0) for none
    B: Any  # (N, m)
    X: Any  # (N, n)
    rmse: Any  # (N, 1), as kappa and delta
    kappa: Any
    delta: Any
    steps: Any  # (N,) int32


@inlined
def row_of(values, i):
    """Return the row of system i in an array (N, k), or of the one row of an array (1, 0)."""
    return min(i, values.shape[0] - 1)


@compiled
def scratch_of_group(s, group):
    """Return the `Scratch` of one group, from arrays in its order whose first axis is the group."""
    return Scratch(
        s[0][group], s[1][group], s[2][group], s[3][group], s[4][group], s[5][group], s[6][group], s[7][group], s[8][group],
        s[9][group], s[10][group], s[11][group],
    )  # fmt: skip


@functools.cache
def solve_body(team: Team) -> Any:
    """Return the body that solves each system; scratch: columns (n, m) and norms (n,) if each is laid out, then those of `Scratch`."""
    lay_out, nnls, rank, size, sync = layout_function(team), nnls_function(team), team.rank, team.size, team.sync

    @team.compile
    def solve(start, stop, step, group, systems, scratch, reduction_buffer):
        work = scratch_of_group(scratch[2:], group)
        columns = scratch[0][group] if systems.each else systems.columns
        norms = scratch[1][group] if systems.each else systems.norms
        for i in range(start, stop, step):
            rows, roots = systems.rows[systems.which[i]], systems.roots[row_of(systems.roots, i)]
            if systems.each:
                lay_out(rows, roots, columns, norms)
                allowed = systems.allowed[row_of(systems.allowed, i)]
                for j in range(rank(), allowed.shape[0], size()):
                    norms[j] = norms[j] if allowed[j] > 0 else 0.0
                sync()
            matrix = Matrix(rows, columns, systems.gram, norms, roots)
            first = systems.start[row_of(systems.start, i)]
            steps = nnls(matrix, systems.B[i], first, work, reduction_buffer, systems.X[i])
            if rank() == 0:
                systems.steps[i] = steps

    return solve


class Columns(NamedTuple):
    """The columns of one system's matrix, whose products `product_of` returns."""

    rows: Any  # (m, n)
    norms: Any  # (n,) with the constant row
    constant: float  # a row of this value; 0 for none


@inlined
def product_of(U, i, j):
    """Return the product of two columns at unit length; less of one with itself, so that none counts as less dependent for rounding.

    A Gram matrix whose entries are off by ε has eigenvalues that are off by at most kε for k columns.
    """
    m, rows = U.rows.shape[0], U.rows
    s, t, u, v = 0.0, 0.0, 0.0, 0.0
    for b in range(0, m - 3, 4):  # four sums, of which none waits for another
        s += rows[b, i] * rows[b, j]
        t += rows[b + 1, i] * rows[b + 1, j]
        u += rows[b + 2, i] * rows[b + 2, j]
        v += rows[b + 3, i] * rows[b + 3, j]
    for b in range(m - m % 4, m):
        s += rows[b, i] * rows[b, j]
    total = (s + t + u + v + U.constant * U.constant) / (U.norms[i] * U.norms[j])
    return total - MOST_COLUMNS * (U.rows.shape[0] + 8.0) * UNIT_ROUNDOFF if i == j else total


@compiled
def gather(systems, i, rows, norms):
    """Write the weighted rows (m, n) and lengths of the columns of system i.

    In place of a column that it may not use stands the first that it may, whose dual says nothing new.
    """
    a, roots = systems.which[i], systems.roots[row_of(systems.roots, i)]
    allowed = systems.allowed[row_of(systems.allowed, i)]
    (m, n), usable = systems.rows[a].shape, 0
    while usable < allowed.shape[0] and allowed[usable] == 0:
        usable += 1
    for j in range(n):
        norms[j] = 0.0
    for b in range(m):
        root = roots[b] if roots.shape[0] > 0 else 1.0
        for j in range(n):
            rows[b, j] = systems.rows[a, b, j] * root
        for j in range(allowed.shape[0]):
            if allowed[j] == 0:
                rows[b, j] = rows[b, usable] if usable < n else 0.0
        for j in range(n):
            norms[j] += rows[b, j] * rows[b, j]
    for j in range(n):
        norms[j] = norms[j] ** 0.5


@inlined
def with_constant_row(sizes, norms):
    """Write the lengths of columns (k,) with a constant row, which changes no x that sums to one; return its value."""
    constant, k = 0.0, sizes.shape[0]
    for c in range(k):
        constant += sizes[c] / k
    for c in range(k):
        norms[c] = (sizes[c] * sizes[c] + constant * constant) ** 0.5
    return constant


# A dual of a column that may not be used: no optimum uses it.
NEVER = -1e300


@functools.cache
def judge_function() -> Any:
    """Return ``judge(systems, i, U, sizes, allowed, vectors, face, reduction_buffer)``, which certifies system i by one thread.

    ``U`` has its columns, ``sizes`` (n,) their lengths; ``vectors`` are its pixel (m, 1), its answer (n, 1), and scratch for duals
    (n, 1) and terms (5, 1). Where no bound of σ_min(A) proves a distance, the columns that the optimum may use do
    (`unmix.certificate.face_function`).
    """
    certify, bound_on_face = certify_function(ONE), face_function(ALONE, product_of)

    @compiled
    def judge(systems, i, U, sizes, allowed, vectors, face, reduction_buffer):
        pixel, answer, duals, terms = vectors
        for b in range(pixel.shape[0]):
            pixel[b, 0] = systems.B[i, b]
        for j in range(answer.shape[0]):
            answer[j, 0] = systems.X[i, j]
        systems.delta[i, 0] = np.inf
        certify(
            U.rows, sizes, sizes[:0], systems.curvature, systems.sum_to_one, True, sizes[:0], pixel, answer, duals,
            systems.rmse[i : i + 1], systems.kappa[i : i + 1], systems.delta[i : i + 1], terms,
        )  # fmt: skip
        for j in range(allowed.shape[0]):
            duals[j, 0] = duals[j, 0] if allowed[j] > 0 else NEVER
        if systems.kappa[i, 0] <= CERTIFIED and not systems.delta[i, 0] < np.inf:
            systems.delta[i, 0], _ = bound_on_face(
                U, U.norms, sizes, systems.sum_to_one, answer[:, 0], duals[:, 0], terms[MULTIPLIER, 0], terms[MARGIN, 0],
                terms[SUM_ERROR, 0], face, reduction_buffer,
            )  # fmt: skip

    return judge


@functools.cache
def certify_body(team: Team) -> Any:
    """Return the body that certifies each system of one matrix; scratch is `certify_scratch`, whose last axis is the thread."""
    judge = judge_function()

    @compiled
    def certify_systems(start, stop, step, group, systems, scratch, reduction_buffer):
        columns, none = Columns(systems.rows[0], systems.norms, 0.0), systems.allowed[0]
        face = Face(scratch[4][:, group], scratch[5][:, group], scratch[6][:, :, group], scratch[7][:, group])
        vectors = scratch[0][:, :, group], scratch[1][:, :, group], scratch[2][:, :, group], scratch[3][:, :, group]
        for i in range(start, stop, step):
            judge(systems, i, columns, systems.norms, none, vectors, face, reduction_buffer)

    return certify_systems


@functools.cache
def certify_each_body(team: Team) -> Any:
    """Return the body that certifies each system with what it has of its own; scratch is `certify_scratch`, whose first axis is the
    thread, and then a matrix (m, n), the lengths of its columns and those with a constant row.
    """
    judge = judge_function()

    @compiled
    def certify_systems(start, stop, step, group, systems, scratch, reduction_buffer):
        face = Face(scratch[4][group], scratch[5][group], scratch[6][group], scratch[7][group])
        vectors = scratch[0][group], scratch[1][group], scratch[2][group], scratch[3][group]
        rows, sizes, norms = scratch[8][group], scratch[9][group], scratch[10][group]
        for i in range(start, stop, step):
            allowed = systems.allowed[row_of(systems.allowed, i)]
            gather(systems, i, rows, sizes)
            for j in range(norms.shape[0]):
                norms[j] = sizes[j]
            constant = with_constant_row(sizes, norms) if systems.sum_to_one else 0.0
            judge(systems, i, Columns(rows, norms, constant), sizes, allowed, vectors, face, reduction_buffer)

    return certify_systems


def certify_scratch(m: int, n: int) -> tuple[tuple[tuple[int, ...], Any], ...]:
    """Return shape and type of what a thread certifies with: a pixel, an answer, duals, terms, and the fields of `Face`."""
    return *(((rows, 1), float) for rows in (m, n, n, 5)), *face_shapes(n)


def laid_out(A: np.ndarray) -> np.ndarray:
    """Return an array of three axes as float64 in C order, with the strides of its shape also along axes of length 1.

    (Such an array is copied to a GPU as a whole; any other one element by element: 0.7 s for 2 MiB.)
    """
    contiguous = (8 * A.shape[1] * A.shape[2], 8 * A.shape[2], 8)
    return A if A.dtype == np.float64 and A.strides == contiguous else np.array(A, np.float64, order="C", copy=True)


class SystemEngine:
    """A matrix for all systems, or some, and the threads that solve with them.

    Parameters
    ----------
    groups : CpuGroups or CudaGroups
    A : array (m, n), or (K, m, n)
    gram : bool
        Compute AᵀA once for all systems, instead of products with Aᵀ for each. Pays from a few systems on.
    each : bool
        Lay systems out each, for they have weights or allowed columns of their own.

    Attributes
    ----------
    shape : (int, int, int)
        Number of matrices, rows and columns.
    each : bool
        Whether systems are laid out each: also if there are several matrices.
    curvature : float
        A lower bound of σ_min(A)²; 0 if rounding hides that it is above 0 (cond(A) above 1e6 or so), or systems are laid out each.
    """

    def __init__(self, groups: CpuGroups | CudaGroups, A: np.ndarray, gram: bool, each: bool = False) -> None:
        rows = laid_out(A if A.ndim == 3 else A[None])
        self.groups, self.shape, self.each = groups, rows.shape, each or len(rows) > 1
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

    def solve(self, B: np.ndarray, own: Mapping[str, np.ndarray], answers: dict[str, np.ndarray]) -> None:
        """Solve and certify a batch.

        Parameters
        ----------
        B : array (N, m), float64
            Times the square roots of the weights.
        own : dict of arrays
            ``which``, ``roots``, ``allowed`` and ``start`` of `Systems`, of those that systems have; without ``which`` they have the
            one matrix, or one each.
        answers : dict of arrays
            ``x`` (N, n), ``rmse``, ``kappa`` and ``delta`` (N, 1) float64, ``steps`` (N,) int32; filled.
        """
        self.run(B, own, answers)

    def search(self, B: np.ndarray, own: Mapping[str, np.ndarray], answers: dict[str, np.ndarray]) -> None:
        """Solve a batch, and certify nothing; see `solve`."""
        self.run(B, own, answers, judges=False)

    def certify_sum(self, B: np.ndarray, own: Mapping[str, np.ndarray], answers: dict[str, np.ndarray]) -> None:
        """Certify answers ``x`` that sum to one; see `solve`."""
        self.run(B, own, answers, searches=False, sum_to_one=True)

    def run(
        self, B: np.ndarray, own: Mapping[str, np.ndarray], answers: dict[str, np.ndarray], *, searches: bool = True,
        judges: bool = True, sum_to_one: bool = False,
    ) -> None:  # fmt: skip
        """Solve a batch, or certify it, or both; see `solve`."""
        count, m, n = self.shape
        N = len(B)
        which = np.arange(N, dtype=np.int32) if count == N else np.zeros(N, np.int32)
        none = {"which": which, "roots": np.empty((1, 0))} | {
            name: np.empty((1, 0), np.uint8) for name in ("allowed", "start")
        }
        names = ("x", "rmse", "kappa", "delta", "steps")
        arrays = (*(own.get(name, values) for name, values in none.items()), np.ascontiguousarray(B))
        put = tuple(map(self.groups.put, (*arrays, *(answers[name] for name in names))))
        systems = Systems(*self.matrix, self.each, sum_to_one, self.curvature, *put)
        laid_out_each = ((None, n if self.each else 0, m), float), ((None, n if self.each else 0), float)
        scratch = *laid_out_each, *(((None, *shape), kind) for shape, kind in scratch_shapes(m, n))
        if searches:
            self.groups.run(solve_body, N, systems, scratch)
        each = *certify_scratch(m, n), ((m, n), float), ((n,), float), ((n,), float)
        if self.each and judges:
            own_scratch = tuple(((None, *shape), kind) for shape, kind in each)
            self.groups.run(certify_each_body, N, systems, own_scratch, single=True)
        elif judges:
            scratch = tuple(((*shape, None), kind) for shape, kind in certify_scratch(m, n))
            self.groups.run(certify_body, N, systems, scratch, single=True)
        for name, values in zip(names, put[-len(names) :]):
            self.groups.get(values, answers[name])

    def close(self) -> None:
        """Release threads or memory."""
        self.groups.close()
