"""Solve and certify batches of systems, with a matrix shared or one each, by groups of threads of a CPU or a GPU."""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ...certificate import (
    CERTIFIED,
    LEFT,
    MARGIN,
    MOST_COLUMNS,
    MULTIPLIER,
    ROUNDINGS_OF_SPECTRA,
    SUM_ERROR,
    TERMS,
    UNIT_ROUNDOFF,
    Face,
    face_function,
    face_shapes,
    verdict_function,
)
from ...compiled.jit import ALONE, ONE, Team, compiled, inlined
from ...compiled.thread_groups import CpuGroups, CudaGroups
from . import gram
from .lawson_hanson_qr import Matrix, SystemScratch, dot_function, layout_function, nnls_function, scratch_shapes

# Fewest systems that are many: those of a GPU's multiprocessors at once. A system of 512 x 512 needs 4 MiB of scratch
# for its Q and R.
MANY_SYSTEMS = 1024
# Fewest systems that share one AᵀA: computing it costs as much as some dozen steps.
FEWEST_SHARING = 4
# Columns whose largest entry is between 2 to the power of minus this and of this are not scaled: float64 holds their
# fourth powers.
ORDINARY = 64


def block_for(count: int) -> tuple[int, int]:
    """Return the threads of a GPU's block and the blocks per multiprocessor for a number of systems."""
    # Many systems are solved by a warp each, whose threads wait least for each other; few by four warps each.
    return (32, 8) if count >= MANY_SYSTEMS else (128, 2)


class Systems(NamedTuple):
    """A batch of N systems and its answers."""

    rows: Any  # (K, m, n) float64: the matrices
    columns: Any  # (n, m), the transpose; (0, m) where systems are laid out each
    gram: Any  # (n, n) or (0, 0)
    norms: Any  # (n,) or (0,)
    each: bool  # whether systems are laid out each, for they have matrices, weights or allowed columns of their own
    searches: bool  # whether systems are solved
    judges: bool  # and certified
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
def row_of_system(values, i):
    """Return the row of system i in an array (N, k), or of the one row of an array (1, 0)."""
    return min(i, values.shape[0] - 1)


@compiled
def scratch_of_group(s, group):
    """Return the `Scratch` of one group, from arrays in its order whose first axis is the group."""
    return SystemScratch(
        s[0][group],
        s[1][group],
        s[2][group],
        s[3][group],
        s[4][group],
        s[5][group],
        s[6][group],
        s[7][group],
        s[8][group],
        s[9][group],
        s[10][group],
        s[11][group],
    )


class Columns(NamedTuple):
    """The weighted columns of one system's matrix, whose products `product_of` returns."""

    columns: Any  # (n, m)
    norms: Any  # (n,) with the constant row
    constant: float  # a row of this value; 0 for none


_dot_alone = dot_function(ALONE)


@inlined
def product_of(U, i, j):
    """Return the product of two columns at unit length, less a bound of its rounding for a column with itself."""
    total = _dot_alone(U.columns[i], U.columns[j]) + U.constant * U.constant
    total /= U.norms[i] * U.norms[j]
    # A Gram matrix whose entries are off by ε has eigenvalues off by at most kε for k columns: so rounding cannot make
    # columns count as less dependent than they are.
    return total - MOST_COLUMNS * (U.columns.shape[1] + 8.0) * UNIT_ROUNDOFF if i == j else total


class Evidence(NamedTuple):
    """Scratch of ``judge``: what a certificate is computed from."""

    left: Any  # (m,) the residual
    answer: Any  # (n, 1)
    duals: Any  # (n, 1)
    terms: Any  # (7, 1), see `unmix.certificate.certify_function`
    norms: Any  # (n,) lengths of the columns with a constant row


def evidence_shapes(m: int, n: int) -> Evidence:
    """Return shape and type of each field."""
    return Evidence(((m,), float), ((n, 1), float), ((n, 1), float), ((TERMS, 1), float), ((n,), float))


# A dual of a column that may not be used: no optimum uses it.
NEVER = -1e300


@functools.cache
def products_function(team: Team) -> Any:
    """Return ``products``, which writes the residual and duals of ``e.answer``, and returns |b| and |residual|."""
    rank, size, sync, total, dot = team.rank, team.size, team.sync, team.total, dot_function(team)

    @team.compile
    def products(b, columns, allowed, e, reduction_buffer):
        n, m = columns.shape
        for k in range(rank(), m, size()):
            e.left[k] = b[k]
        for j in range(n):
            x = e.answer[j, 0]
            if x != 0.0:
                column = columns[j]
                for k in range(rank(), m, size()):
                    e.left[k] -= x * column[k]
        of_pixel, of_residual = total(dot(b, b), reduction_buffer), total(dot(e.left, e.left), reduction_buffer)
        sync()
        for j in range(rank(), n, size()):
            may = allowed.shape[0] == 0 or allowed[j] > 0
            e.duals[j, 0] = _dot_alone(columns[j], e.left) if may else NEVER
        sync()
        return of_pixel**0.5, of_residual**0.5

    return products


@functools.cache
def judge_function(team: Team) -> Any:
    """Return ``judge``, which certifies system i from its weighted columns (n, m) and their lengths ``sizes`` (n,)."""
    # A column that the system may not use has size 0. Where no bound of σ_min(A) proves a distance, the face does.
    rank, size, sync = team.rank, team.size, team.sync
    products, verdict, bound_on_face = products_function(team), verdict_function(ONE), face_function(team, product_of)

    @team.compile
    def with_constant_row(sizes, e):
        """Compute lengths of columns with a constant row, which changes no x that sums to one; return its value."""
        constant, k = 0.0, sizes.shape[0]
        for c in range(k):
            constant += sizes[c] / k
        for c in range(rank(), k, size()):
            e.norms[c] = (sizes[c] * sizes[c] + constant * constant) ** 0.5
        sync()
        return constant

    @team.compile
    def judge(systems, i, columns, sizes, e, face, reduction_buffer):
        b, allowed, sum_to_one = systems.B[i], systems.allowed[row_of_system(systems.allowed, i)], systems.sum_to_one
        for j in range(rank(), sizes.shape[0], size()):
            e.answer[j, 0] = systems.X[i, j]
        sync()
        of_pixel, of_residual = products(b, columns, allowed, e, reduction_buffer)
        if rank() == 0:
            systems.rmse[i, 0], systems.delta[i, 0] = of_residual / b.shape[0] ** 0.5, np.inf
            verdict(
                sizes,
                sizes[:0],
                systems.curvature,
                0.0,
                sum_to_one,
                True,
                b.shape[0],
                e.answer,
                e.duals,
                of_pixel,
                of_residual,
                systems.kappa[i : i + 1],
                systems.delta[i : i + 1],
                e.terms,
            )
        sync()
        if systems.kappa[i, 0] <= CERTIFIED and not systems.delta[i, 0] < np.inf:
            constant = with_constant_row(sizes, e) if sum_to_one else 0.0
            norms = e.norms if sum_to_one else sizes
            blur = (b.shape[0] + ROUNDINGS_OF_SPECTRA) * UNIT_ROUNDOFF
            delta, _ = bound_on_face(
                Columns(columns, norms, constant),
                norms,
                sizes,
                sum_to_one,
                e.answer[:, 0],
                e.duals[:, 0],
                e.terms[MULTIPLIER, 0],
                e.terms[MARGIN, 0],
                e.terms[SUM_ERROR, 0],
                blur * e.terms[LEFT, 0],
                face,
                reduction_buffer,
            )
            sync()
            if rank() == 0:
                systems.delta[i, 0] = delta
        sync()

    return judge


# The arrays of a group's scratch before the arrays that it certifies with, and before a `Square`.
AFTER_SEARCH = 2 + len(SystemScratch._fields)
AFTER_PROOF = AFTER_SEARCH + len(Evidence._fields) + len(Face._fields)


@functools.cache
def solve_body(team: Team) -> Any:
    """Return the body that lays out each system if needed, and solves it, certifies it, or both."""
    # Its scratch: columns (n, m) and norms (n,) if laid out; then fields of SystemScratch, Evidence, Face and Square,
    # and of the SystemScratch of the square system.
    lay_out, nnls, rank, size, sync = layout_function(team), nnls_function(team), team.rank, team.size, team.sync
    judge, search_by_gram = judge_function(team), gram.search_function()

    @team.compile
    def search(systems, i, rows, columns, norms, roots, work, reduction_buffer):
        matrix = Matrix(rows, columns, systems.gram, norms, roots)
        start = systems.start[row_of_system(systems.start, i)]
        steps = nnls(matrix, systems.B[i], start, work, reduction_buffer, systems.X[i])
        if rank() == 0:
            systems.steps[i] = steps
        sync()

    @team.compile
    def is_well_solved(systems, i, columns, norms, square, work, evidence, face, reduction_buffer):
        """Search by the Gram matrix, if it serves, and certify; return whether the answer stands."""
        if square.right.shape[0] == 0 or not (systems.searches and systems.judges):
            return False
        start = systems.start[row_of_system(systems.start, i)]
        steps = search_by_gram(
            columns, norms, systems.B[i], start, square, work, evidence.left, reduction_buffer, systems.X[i]
        )
        systems.steps[i] = steps
        if steps >= 0:
            judge(systems, i, columns, norms, evidence, face, reduction_buffer)
        return steps >= 0 and systems.kappa[i, 0] <= gram.WELL_SOLVED

    @team.compile
    def is_not(*_):
        return False

    by_gram = is_well_solved if team is ALONE else is_not

    @team.compile
    def solve(start, stop, step, group, systems, scratch, reduction_buffer):
        s, t = scratch[AFTER_SEARCH:], scratch[AFTER_PROOF:]
        work, small = scratch_of_group(scratch[2:AFTER_SEARCH], group), scratch_of_group(t[5:], group)
        evidence = Evidence(s[0][group], s[1][group], s[2][group], s[3][group], s[4][group])
        face = Face(s[5][group], s[6][group], s[7][group], s[8][group])
        square = gram.Square(t[0][group], t[1][group], t[2][group], t[3][group], t[4][group])
        columns = scratch[0][group] if systems.each else systems.columns
        norms = scratch[1][group] if systems.each else systems.norms
        for i in range(start, stop, step):
            rows, roots = systems.rows[systems.which[i]], systems.roots[row_of_system(systems.roots, i)]
            if systems.each:
                lay_out(rows, roots, columns, norms)
                allowed = systems.allowed[row_of_system(systems.allowed, i)]
                for j in range(rank(), allowed.shape[0], size()):
                    norms[j] = norms[j] if allowed[j] > 0 else 0.0
                sync()
            done = by_gram(systems, i, columns, norms, square, small, evidence, face, reduction_buffer)
            if systems.searches and not done:
                search(systems, i, rows, columns, norms, roots, work, reduction_buffer)
            if systems.judges and not done:
                judge(systems, i, columns, norms, evidence, face, reduction_buffer)

    return solve


def laid_out(A: np.ndarray) -> np.ndarray:
    """Return an array of three axes as float64 in C order, with its shape's strides even along axes of length 1."""
    # An array with other strides is copied to a GPU element by element: 0.7 s for 2 MiB.
    contiguous = (8 * A.shape[1] * A.shape[2], 8 * A.shape[2], 8)
    return A if A.dtype == np.float64 and A.strides == contiguous else np.array(A, np.float64, order="C", copy=True)


def near_one(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return matrices (..., m, n), columns over powers of 2 where squares may overflow, and exponents (..., n)."""
    exponents = np.frexp(np.maximum(A.max(axis=-2), -A.min(axis=-2)))[1]
    exponents = np.where(np.abs(exponents) > ORDINARY, exponents, 0)
    return (np.ldexp(A, -exponents[..., None, :]) if exponents.any() else A), exponents


class SystemEngine:
    """A matrix for all systems, or some, and the threads that solve with them.

    Parameters
    ----------
    groups : CpuGroups or CudaGroups
    A : array (m, n), or (K, m, n)
        The latter may be an array of the groups' GPU, float64 in C order.
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
    matrix : tuple of arrays
        The fields of `Systems` from ``rows`` to ``norms``, as the groups have them.
    curvature : float
        A lower bound of σ_min(A)²; 0 if rounding hides that it is above 0 (cond(A) above 1e6 or so), or systems are
        laid out each.
    """

    def __init__(self, groups: CpuGroups | CudaGroups, A: np.ndarray, gram: bool, each: bool = False) -> None:
        rows = laid_out(A if A.ndim == 3 else A[None]) if isinstance(A, np.ndarray) else A
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
        """Solve and certify B (N, m), times the weights' roots, with ``own`` as in `Systems`; fill ``answers``."""
        self.run(B, own, answers)

    def search(self, B: np.ndarray, own: Mapping[str, np.ndarray], answers: dict[str, np.ndarray]) -> None:
        """Solve a batch, and certify nothing; see `solve`."""
        self.run(B, own, answers, judges=False)

    def certify_sum(self, B: np.ndarray, own: Mapping[str, np.ndarray], answers: dict[str, np.ndarray]) -> None:
        """Certify answers ``x`` that sum to one; see `solve`."""
        self.run(B, own, answers, searches=False, sum_to_one=True)

    def run(
        self,
        B: np.ndarray,
        own: Mapping[str, np.ndarray],
        answers: dict[str, np.ndarray],
        *,
        searches: bool = True,
        judges: bool = True,
        sum_to_one: bool = False,
    ) -> None:
        """Solve a batch, or certify it, or both; see `solve`."""
        N, count = len(B), self.shape[0]
        which = np.arange(N, dtype=np.int32) if count == N else np.zeros(N, np.int32)
        none = {"which": which, "roots": np.empty((1, 0))} | {
            name: np.empty((1, 0), np.uint8) for name in ("allowed", "start")
        }
        names = ("x", "rmse", "kappa", "delta", "steps")
        arrays = (*(own.get(name, values) for name, values in none.items()), np.ascontiguousarray(B))
        put = tuple(map(self.groups.put, (*arrays, *(answers[name] for name in names))))
        self.enqueue(self.matrix, put, N, searches, judges, sum_to_one)
        for name, values in zip(names, put[-len(names) :]):
            self.groups.get(values, answers[name])

    def enqueue(
        self,
        matrix: tuple[Any, ...],
        arrays: tuple[Any, ...],
        N: int,
        searches: bool = True,
        judges: bool = True,
        sum_to_one: bool = False,
    ) -> None:
        """Enqueue N systems, whose ``matrix`` and ``arrays`` (`Systems` from ``which`` on) the groups already hold."""
        _, m, n = self.shape
        systems = Systems(*matrix, self.each, searches, judges, sum_to_one, self.curvature, *arrays)
        each = n if self.each else 0
        small = n if self.each and gram.serves(m, n) and isinstance(self.groups, CpuGroups) else 0
        of_group = (
            *scratch_shapes(m, n),
            *evidence_shapes(m, n),
            *face_shapes(n),
            *gram.square_shapes(small),
            *scratch_shapes(small, small),
        )
        scratch = ((None, each, m), float), ((None, each), float), *(((None, *shape), kind) for shape, kind in of_group)
        self.groups.run(solve_body, N, systems, scratch)

    def close(self) -> None:
        """Release threads or memory."""
        self.groups.close()
