"""Lawson-Hanson with an updated QR factorisation: for large systems, a matrix shared or one each, any rank, any shape.

Luo and Duraiswami 2011: the passive columns are kept in the order in which they entered, ``A_P = Q R``; a column
enters at the right end by modified Gram-Schmidt, repeated if much of it cancels, and leaves by Givens rotations
(their Algorithms 1 to 3). A column that the others span does not enter. If many systems share a matrix, a first search
computes the duals from its Gram matrix; a second search, which decides, computes them from the residual itself.
"""

import functools
from typing import Any, NamedTuple

from ...compiled.jit import ALONE, Team

# Share of a dependent column's length that is orthogonal to the passive columns, at most.
DEPENDENT_COLUMN = 1e-13
# Share of its length below which a projected column is projected once more (Daniel, Gragg, Kaufman and Stewart 1976).
ONCE_MORE = 0.7
# A dual below this, relative to |a_j||b|, is zero: a hundred times the rounding of a dual. But a column that is nearly
# in the span of the support has a small dual where it would take away a residual of 1e-7 |b|: it enters where its
# orthogonal part holds more of b than this, relative to |b|.
ZERO_DUAL = 1e-14
FREE, PASSIVE, BARRED = 0, 1, 2
BLOCK_COLUMNS = 8  # transposed at a time


class Matrix(NamedTuple):
    """The matrix of one or many systems.

    ``rows`` is A, (m, n); ``columns`` its transpose, (n, m), each row of A times one of ``roots`` (m,), the square
    roots of weights, or (0,) for none; ``gram`` is AᵀA, (n, n), or (0, 0) if all duals are computed from the residual;
    ``norms`` (n,) are |a_j|, of the columns as weighted; 0 for a column that is not to enter.
    """

    rows: Any
    columns: Any
    gram: Any
    norms: Any
    roots: Any


class SystemScratch(NamedTuple):
    """Scratch of one system, for supports of at most ``most`` = min(m, n) columns; see `scratch_shapes`.

    ``Q`` (most, m) holds the orthonormal columns as rows; ``R`` (most, most) is transposed: row c is column c.
    ``along`` is Qᵀb, ``x`` the abundances of the support, ``y`` and ``goal`` its least squares, ``order`` its columns
    by time of entry. ``left`` (m,) is a residual, ``dual`` and ``start`` (n,) duals, ``state`` (n,).
    """

    Q: Any
    R: Any
    along: Any
    x: Any
    y: Any
    goal: Any
    order: Any
    left: Any
    column: Any
    dual: Any
    start: Any
    state: Any


def scratch_shapes(m: int, n: int) -> SystemScratch:
    """Return shape and type of each field of `SystemScratch`, for a matrix (m, n)."""
    most = min(m, n)
    real, whole = "f8", "i4"
    return SystemScratch(
        ((most, m), real),
        ((most, most), real),
        ((most,), real),
        ((most,), real),
        ((most,), real),
        ((most,), real),
        ((most,), whole),
        ((m,), real),
        ((m,), real),
        ((n,), real),
        ((n,), real),
        ((n,), whole),
    )


@functools.cache
def dot_function(team: Team) -> Any:
    """Return ``dot(u, v)``, a thread's part of a dot product, over the elements that it also writes elsewhere."""
    rank, size = team.rank, team.size

    @team.compile
    def dot(u, v):
        part = 0.0
        for i in range(rank(), u.shape[0], size()):
            part += u[i] * v[i]
        return part

    @team.compile
    def dot_alone(u, v):  # the compiler makes vectors of a loop whose step it knows
        total = 0.0
        for i in range(u.shape[0]):
            total += u[i] * v[i]
        return total

    return dot_alone if team is ALONE else dot


@functools.cache
def layout_function(team: Team) -> Any:
    """Return ``lay_out(rows, roots, columns, norms)``, which writes a weighted transpose (n, m) and its norms."""
    rank, size, sync, dot_alone = team.rank, team.size, team.sync, dot_function(ALONE)

    @team.compile
    def lay_out(rows, roots, columns, norms):
        m, n = rows.shape
        for first in range(0, n, BLOCK_COLUMNS):  # blocked, so that source and target both stay in the cache
            for i in range(rank(), m, size()):
                root = roots[i] if roots.shape[0] > 0 else 1.0
                for j in range(first, min(first + BLOCK_COLUMNS, n)):
                    columns[j, i] = rows[i, j] * root
        sync()
        for j in range(rank(), n, size()):
            norms[j] = dot_alone(columns[j], columns[j]) ** 0.5
        sync()

    return lay_out


@functools.cache
def nnls_function(team: Team) -> Any:
    """Return ``nnls``, which writes the optimum to x (n,) and returns the number of columns that entered or left."""
    # b (m,) is times the roots of the weights; start is (n,) or (0,); reduction_buffer has room for twice the team.
    rank, size, sync, total, best = team.rank, team.size, team.sync, team.total, team.best
    dot = dot_function(team)

    @team.compile
    def subtract_rows(out, rows, chosen, weights, count):
        """Compute ``out −= Σ weights[t] rows[chosen[t]]``, four rows at a time."""
        n = out.shape[0]
        for t in range(0, count - 3, 4):
            a, b, c, d = chosen[t], chosen[t + 1], chosen[t + 2], chosen[t + 3]
            p, q, r, s = weights[t], weights[t + 1], weights[t + 2], weights[t + 3]
            for i in range(rank(), n, size()):
                out[i] -= p * rows[a, i] + q * rows[b, i] + r * rows[c, i] + s * rows[d, i]
        for t in range(count - count % 4, count):
            a, p = chosen[t], weights[t]
            for i in range(rank(), n, size()):
                out[i] -= p * rows[a, i]

    @team.compile
    def add_all_rows(out, rows, weights):
        """Compute ``out += Σ weights[i] rows[i]`` over all rows, four at a time."""
        m, n = rows.shape
        for i in range(0, m - 3, 4):
            p, q, r, s = weights[i], weights[i + 1], weights[i + 2], weights[i + 3]
            for j in range(rank(), n, size()):
                out[j] += p * rows[i, j] + q * rows[i + 1, j] + r * rows[i + 2, j] + s * rows[i + 3, j]
        for i in range(m - m % 4, m):
            for j in range(rank(), n, size()):
                out[j] += weights[i] * rows[i, j]

    @team.compile
    def duals_of_left(A, work, dual):
        """Write the products of the weighted columns with ``work.left`` to ``dual`` (n,)."""
        for j in range(rank(), dual.shape[0], size()):
            dual[j] = 0.0
        if A.roots.shape[0] > 0:
            for i in range(rank(), work.left.shape[0], size()):
                work.column[i] = work.left[i] * A.roots[i]
        sync()
        add_all_rows(dual, A.rows, work.column if A.roots.shape[0] > 0 else work.left)
        sync()

    @team.compile
    def duals_of_residual(A, b, work, k):
        """Compute ``left = b − A_P x`` and ``dual = Aᵀ left``."""
        for i in range(rank(), b.shape[0], size()):
            work.left[i] = b[i]
        subtract_rows(work.left, A.columns, work.order, work.x, k)
        duals_of_left(A, work, work.dual)

    @team.compile
    def duals(A, b, work, k, shared):
        """Compute the duals at the current x, from the Gram matrix if ``shared``, otherwise from the residual."""
        if not shared:
            duals_of_residual(A, b, work, k)
            return
        for j in range(rank(), work.dual.shape[0], size()):
            work.dual[j] = work.start[j]
        subtract_rows(work.dual, A.gram, work.order, work.x, k)
        sync()

    @team.compile
    def steepest(A, work, limit, reduction_buffer):
        """Return the free column with the largest dual relative to its length, or −1 if none is above ``limit``."""
        value, index = limit, -1
        for j in range(rank(), work.dual.shape[0], size()):
            if work.state[j] == FREE and work.dual[j] > value * A.norms[j]:
                value, index = work.dual[j] / A.norms[j], j
        return best(value, index, reduction_buffer)

    @team.compile
    def enter(A, b, work, j, k, reduction_buffer):
        """Add column j at the end of the support and extend Q, R and Qᵀb; returns False if the others span it."""
        m = b.shape[0]
        for i in range(rank(), m, size()):
            work.column[i] = A.columns[j, i]
        for c in range(rank(), k, size()):
            work.R[k, c] = 0.0
        sync()
        full_length = total(dot(work.column, work.column), reduction_buffer) ** 0.5
        length = full_length
        for _ in range(3):
            previous = length
            for c in range(k):
                overlap = total(dot(work.Q[c], work.column), reduction_buffer)
                for i in range(rank(), m, size()):
                    work.column[i] -= overlap * work.Q[c, i]
                if rank() == 0:
                    work.R[k, c] += overlap
            length = total(dot(work.column, work.column), reduction_buffer) ** 0.5
            if length > ONCE_MORE * previous or length <= DEPENDENT_COLUMN * full_length:
                break
        if not length > DEPENDENT_COLUMN * full_length:
            return False
        for i in range(rank(), m, size()):
            work.Q[k, i] = work.column[i] / length
        overlap = total(dot(work.Q[k], b), reduction_buffer)
        if rank() == 0:
            work.R[k, k] = length
            work.along[k] = overlap
            work.order[k] = j
            work.x[k] = 0.0
            work.state[j] = PASSIVE
        sync()
        return True

    @team.compile
    def solve(work, k):
        """Solve ``R y = goal``; ``goal`` is overwritten."""
        for c in range(k - 1, -1, -1):
            value = work.goal[c] / work.R[c, c]
            sync()
            if rank() == 0:
                work.y[c] = value
            for i in range(rank(), c, size()):
                work.goal[i] -= value * work.R[c, i]
            sync()

    @team.compile
    def leave(work, i, k):
        """Remove the column at place i of the support: shift R, and make it triangular again by rotations."""
        m = work.left.shape[0]
        sync()
        if rank() == 0:
            work.state[work.order[i]] = FREE
            for c in range(i, k - 1):
                work.order[c], work.x[c] = work.order[c + 1], work.x[c + 1]
        for c in range(i, k - 1):
            for t in range(rank(), c + 2, size()):
                work.R[c, t] = work.R[c + 1, t]
            sync()
        for q in range(i, k - 1):
            a, b = work.R[q, q], work.R[q, q + 1]
            length = (a * a + b * b) ** 0.5
            cos, sin = (a / length, b / length) if length > 0.0 else (1.0, 0.0)
            sync()
            for t in range(q + rank(), k - 1, size()):
                u, v = work.R[t, q], work.R[t, q + 1]
                work.R[t, q], work.R[t, q + 1] = cos * u + sin * v, cos * v - sin * u
            for t in range(rank(), m, size()):
                u, v = work.Q[q, t], work.Q[q + 1, t]
                work.Q[q, t], work.Q[q + 1, t] = cos * u + sin * v, cos * v - sin * u
            if rank() == 0:
                u, v = work.along[q], work.along[q + 1]
                work.along[q], work.along[q + 1] = cos * u + sin * v, cos * v - sin * u
            sync()

    @team.compile
    def free_all(work):
        """Free the barred columns: the support has changed, so they may be tried again."""
        for j in range(rank(), work.state.shape[0], size()):
            if work.state[j] == BARRED:
                work.state[j] = FREE
        sync()

    @team.compile
    def descend(work, k, reduction_buffer):
        """Move x to the least squares of the support without negative columns; return columns left and removed."""
        removed = 0
        while k > 0:
            for c in range(rank(), k, size()):
                work.goal[c] = work.along[c]
            sync()
            solve(work, k)
            value, index = -2.0, -1
            for c in range(rank(), k, size()):
                if work.y[c] <= 0.0:
                    fraction = work.x[c] / (work.x[c] - work.y[c]) if work.x[c] > work.y[c] else 0.0
                    if -fraction > value:
                        value, index = -fraction, c
            leaving = best(value, index, reduction_buffer)
            if leaving < 0:
                for c in range(rank(), k, size()):
                    work.x[c] = work.y[c]
                sync()
                return k, removed
            reach = work.x[leaving] / (work.x[leaving] - work.y[leaving]) if work.x[leaving] > work.y[leaving] else 0.0
            sync()
            for c in range(rank(), k, size()):
                work.x[c] = max(0.0, work.x[c] + reach * (work.y[c] - work.x[c]))
            leave(work, leaving, k)
            k -= 1
            removed += 1
        return k, removed

    @team.compile
    def refine(A, b, work, k, reduction_buffer):
        """Refine the least squares of the support once from its residual, unless an entry would not stay positive."""
        duals_of_residual(A, b, work, k)
        for c in range(k):
            along = total(dot(work.Q[c], work.left), reduction_buffer)
            if rank() == 0:
                work.goal[c] = along
        sync()
        solve(work, k)
        value, index = 0.0, -1
        for c in range(rank(), k, size()):
            if not work.x[c] + work.y[c] > 0.0:
                value, index = 1.0, c
        if best(value, index, reduction_buffer) >= 0:
            return
        for c in range(rank(), k, size()):
            work.x[c] += work.y[c]
        sync()

    @team.compile
    def search(A, b, work, shared, limit, k, steps, reduction_buffer):
        """Run Lawson-Hanson from the current support of k columns; returns (columns in the support, steps)."""
        n, most = work.state.shape[0], work.order.shape[0]
        while steps < 10 * n + 100:  # beyond this the search gives up; the certificate then shows the error
            duals(A, b, work, k, shared)
            j = steepest(A, work, limit if shared else -limit, reduction_buffer)
            if j >= 0 and not work.dual[j] > limit * A.norms[j]:
                j = j if total(dot(work.left, work.left), reduction_buffer) > limit * limit else -1
            if j < 0 or k == most:
                break
            steps += 1
            if not enter(A, b, work, j, k, reduction_buffer) or not work.along[k] > limit:
                sync()
                if rank() == 0:
                    work.state[j] = BARRED
                sync()
                continue
            left, removed = descend(work, k + 1, reduction_buffer)
            turned_back = left == k and removed == 1 and work.state[j] == FREE
            steps += removed
            k = left
            sync()
            if turned_back:  # by rounding: the column would enter again
                if rank() == 0:
                    work.state[j] = BARRED
                sync()
            else:
                free_all(work)
        return k, steps

    @team.compile
    def begin_with(A, b, start, work, reduction_buffer):
        """Enter the columns of a start, except columns that would be negative; return the support's size and steps."""
        k, entered = 0, 0
        for j in range(start.shape[0]):
            if start[j] > 0 and work.state[j] == FREE and k < work.order.shape[0]:
                entered += 1
                k += 1 if enter(A, b, work, j, k, reduction_buffer) else 0
        k, removed = descend(work, k, reduction_buffer)
        return k, entered + removed

    @team.compile
    def nnls(A, b, start, work, reduction_buffer, x):
        m, n = A.rows.shape
        square = 0.0
        for i in range(rank(), m, size()):
            work.left[i] = b[i]
            square += b[i] * b[i]
        for j in range(rank(), n, size()):
            work.state[j] = FREE if A.norms[j] > 0.0 else PASSIVE
            x[j] = 0.0
        sync()
        length = total(square, reduction_buffer) ** 0.5
        duals_of_left(A, work, work.start)
        k, steps = 0, 0
        limit = ZERO_DUAL * length
        if length > 0.0:
            k, steps = begin_with(A, b, start, work, reduction_buffer)
            if A.gram.shape[0] > 0:
                k, steps = search(A, b, work, True, limit, k, steps, reduction_buffer)
            free_all(work)
            refine(A, b, work, k, reduction_buffer)
            k, steps = search(A, b, work, False, limit, k, steps, reduction_buffer)
            refine(A, b, work, k, reduction_buffer)
        for c in range(rank(), k, size()):
            x[work.order[c]] = work.x[c]
        sync()
        return steps

    return nnls
