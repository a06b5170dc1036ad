"""Search a system of few columns and many rows by its Gram matrix, on a CPU, in one pass over the rows per column pair.

The Cholesky factor R of AᵀA makes a system of as many rows as columns, ``|R x − d|² = |A x − b|²`` but for a constant,
which is searched by QR as any other. R is as exact as AᵀA allows, so that x is refined by the residual of the system
itself. Nothing is trusted: a column that nearly depends on the others, or an answer whose κ is not as in a well
solved system, sends it to the search by QR.
"""

import functools
from typing import Any, NamedTuple

from ...compiled.jit import ALONE, compiled
from .lawson_hanson_qr import Matrix, dot_function, nnls_function

# Systems with at most this many columns, and at least so many times as many rows.
MOST_COLUMNS, ROWS_A_COLUMN = 16, 8
# Least square of a column without its part along those before, as a share of its square, with which the Gram matrix
# decides.
LEAST_PIVOT = 1e-8
# Largest κ of an answer that stands.
WELL_SOLVED = 1e-13

_dot = dot_function(ALONE)


class Square(NamedTuple):
    """A system of as many rows as columns: scratch, of arrays (n, n) and (n,)."""

    rows: Any  # R; in the end the factor of the support
    columns: Any  # its transpose
    gram: Any
    right: Any  # d, for which Rᵀd = Aᵀb
    step: Any


def square_shapes(n: int) -> Square:
    """Return shape and type of each field."""
    return Square(((n, n), float), ((n, n), float), ((n, n), float), ((n,), float), ((n,), float))


def serves(m: int, n: int) -> bool:
    """Return whether a system of m rows and n columns is searched so."""
    return n <= MOST_COLUMNS and m >= ROWS_A_COLUMN * n


@compiled
def factor_gram(gram, inside, lower):
    """Write the Cholesky factor of a Gram matrix (n, n), identity where ``inside`` is 0; return whether regular."""
    n, regular = gram.shape[0], True
    for i in range(n):
        for j in range(i + 1):
            value = gram[i, j] if inside[i] > 0.0 and inside[j] > 0.0 else (1.0 if i == j else 0.0)
            for k in range(j):
                value -= lower[i, k] * lower[j, k]
            if i == j:
                regular = regular and (value > LEAST_PIVOT * gram[i, i] or not inside[i] > 0.0)
                lower[i, i] = value**0.5 if value > 0.0 else 1.0
            else:
                lower[i, j], lower[j, i] = value / lower[j, j], 0.0
    return regular


@compiled
def forward(lower, x):
    """Replace x (n,) by what ``lower`` maps to it."""
    for i in range(x.shape[0]):
        for k in range(i):
            x[i] -= lower[i, k] * x[k]
        x[i] /= lower[i, i]


@compiled
def square_of(columns, norms, b, s):
    """Fill a `Square`; return whether no column nearly depends on the others. Columns of length 0 are left out."""
    n = columns.shape[0]
    for i in range(n):
        s.right[i] = _dot(columns[i], b) if norms[i] > 0.0 else 0.0
        for j in range(i + 1):
            product = _dot(columns[i], columns[j])
            s.gram[i, j], s.gram[j, i] = product, product
    regular = factor_gram(s.gram, norms, s.columns)
    forward(s.columns, s.right)
    for i in range(n):
        for j in range(n):
            s.rows[i, j] = s.columns[j, i]
    return regular


@compiled
def refine(columns, b, s, left, x):
    """Refine x on its support once, by the residual of the system itself; return whether all entries stay positive."""
    n = x.shape[0]
    for k in range(b.shape[0]):
        left[k] = b[k]
    for j in range(n):
        if x[j] > 0.0:
            weight, column = x[j], columns[j]
            for k in range(b.shape[0]):
                left[k] -= weight * column[k]
    for j in range(n):
        s.step[j] = _dot(columns[j], left) if x[j] > 0.0 else 0.0
    if not factor_gram(s.gram, x, s.rows):
        return False
    forward(s.rows, s.step)
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            s.step[i] -= s.rows[k, i] * s.step[k]
        s.step[i] /= s.rows[i, i]
        if x[i] > 0.0 and not x[i] + s.step[i] > 0.0:
            return False
    for i in range(n):
        x[i] += s.step[i] if x[i] > 0.0 else 0.0
    return True


@functools.cache
def search_function() -> Any:
    """Return the compiled search by the Gram matrix, which returns its steps, or −1 where it declines the system."""
    # columns (n, m) and norms (n,) are weighted; norms are 0 for columns that must not enter; work is for (n, n).
    nnls = nnls_function(ALONE)

    @compiled
    def search(columns, norms, b, start, square, work, left, reduction_buffer, x):
        if not square_of(columns, norms, b, square):
            return -1
        matrix = Matrix(square.rows, square.columns, square.gram[:0], norms, square.right[:0])
        steps = nnls(matrix, square.right, start, work, reduction_buffer, x)
        return steps if refine(columns, b, square, left, x) else -1

    return search
