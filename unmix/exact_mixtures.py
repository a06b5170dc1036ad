"""Prove, in float64, pixels that are mixtures without noise: their residual is rounding.

There every dual is rounding, so that the certificate cannot say which endmembers an optimum may use, and double-double,
which finds the support of the rounding of the pixel, takes twenty times as long as a pixel with noise. But the optimum
a* fits as well as a, which says much: with ``d = a* − a`` and ``ε ≥ |y − E a|`` it is ``|E d| ≤ 2ε``. Let c be a
direction in which no endmember of a set K points, and every other one does: ``e_jᵀc = 0`` in K, ``e_jᵀc ≥ γ|e_j|``
outside, where a is 0 and so d is not negative. Then ``γ Σ|e_j|d_j ≤ cᵀE d ≤ 2ε|c|`` outside of K, and inside ``|d|``
follows from the least singular value of K. Such a c is what the optimum of the pixel, moved a little out of the
endmembers' hull, leaves of it. docs/methods.md has the terms.
"""

import math

import numpy as np

from .certificate import CERTIFIED, GAP_WEIGHT, UNDERFLOW, UNIT_ROUNDOFF, extend_function
from .compiled.jit import ALONE, WIDE, allocating, compiled
from .devices import Line
from .problem import Problem
from .solvers.pixels.cpu import Plan, Results, Stored, new_face, path_of_solver, range_solver, runs_in
from .solvers.pixels.gather import block_maker, gather_block

# Residual, as a share of the pixel's length, below which it may be a mixture without noise.
NO_NOISE = 1e-12
# How far a pixel is moved, as a share of its length: far more than rounding, and less than an abundance that matters.
MOVED = 1e-4
# Endmembers whose product with c is below this share of the lengths belong to K.
ALONG = 1e-8
# Corrections of the abundances on K from their residual; the second one is rounding.
CORRECTIONS = 3
# Shorter pixels are left to double-double: squares of their rounding underflow.
SHORTEST_PIXEL = 1e-100

_extend = extend_function(ALONE)
WIDTH = WIDE.width


@allocating
def gather_all(block, stored, Y):
    """Write the pixels of a block (1, n, bands), scaled and shifted, to Y (1, n, L)."""
    L, width = Y.shape[2], WIDTH
    tile, missing, length = np.empty((L, width)), np.empty((1, width)), np.empty((1, width))
    for first in range(0, Y.shape[1], width):
        count = min(width, Y.shape[1] - first)
        gather_block(block, 0, first, count, stored, tile, missing, length, length)
        for s in range(count):
            for b in range(L):
                Y[0, first + s, b] = tile[b, s]


@compiled
def find_direction(plan, moved, x, used, c, q):
    """Write c = E x − moved and q = Eᵀc, for the sum to one less its mean ν on x's support; return ν and |c|."""
    L, p = plan.E.shape
    square, multiplier, k = 0.0, 0.0, 0
    for j in range(p):
        q[j] = 0.0
        if x[j] > 0.0:
            used[k] = j
            k += 1
    for b in range(L):
        row, value = plan.E[b], -moved[b]
        for i in range(k):
            value += row[used[i]] * x[used[i]]
        for j in range(p):
            q[j] += row[j] * value
        c[b] = value
        square += value * value
    for i in range(k if plan.sum_to_one else 0):
        multiplier += q[used[i]] / k
    for j in range(p):
        q[j] -= multiplier
    return multiplier, math.sqrt(square)


@compiled
def find_face(plan, x, q, length, face):
    """Put the columns of K on the face, and factor their Gram matrix; return their number, and a bound of σ² or 0."""
    k, inverse_square = 0, 0.0
    for j in range(x.shape[0]):
        face.inside[j] = x[j] > 0.0 or not q[j] > ALONG * plan.norms[j] * length
        if face.inside[j]:
            if k == face.columns.shape[0]:
                return k, 0.0
            face.columns[k] = j
            inverse_square += _extend(plan.U, face, k, j, face.row)
            if not inverse_square < np.inf:
                return k, 0.0
            k += 1
    return k, 0.98 / inverse_square - k * (k + 12.0) * UNIT_ROUNDOFF if k > 0 else 0.0


@compiled
def fit_exactly(plan, y, a, r, k, face, right):
    """Correct the abundances on K by their residual, at 0 or above; leave the residual in r, return its length."""
    L = y.shape[0]
    left = 0.0
    for turn in range(CORRECTIONS + 1):
        left, missing = 0.0, 1.0
        for i in range(k):
            missing -= a[face.columns[i]]
        for b in range(L):
            r[b] = y[b]
            for i in range(k):
                r[b] -= plan.E[b, face.columns[i]] * a[face.columns[i]]
            left += r[b] * r[b]
        if turn == CORRECTIONS:
            break
        for i in range(k):
            j = face.columns[i]
            right[i] = plan.lift * missing if plan.sum_to_one else 0.0
            for b in range(L):
                right[i] += plan.E[b, j] * r[b]
            right[i] /= plan.norms[j]
        for i in range(k - 1, -1, -1):  # T⁻¹ times it, in place, and then T⁻ᵀ times that
            value = 0.0
            for m in range(i + 1):
                value += face.factors[i, m] * right[m]
            right[i] = value
        for m in range(k):
            value = 0.0
            for i in range(m, k):
                value += face.factors[i, m] * right[i]
            a[face.columns[m]] = max(a[face.columns[m]] + value / plan.norms[face.columns[m]], 0.0)
    return math.sqrt(left)


@compiled
def bound_mixture(plan, a, q, multiplier, length, k, curvature, size, left, face):
    """Return κ and δ of abundances on K; infinite where nothing follows."""
    L, p = plan.E.shape
    longest, terms, total, shortest, shortest_inside = 0.0, 0.0, 0.0, np.inf, np.inf
    along, away, share = 0.0, np.inf, UNIT_ROUNDOFF * (L + 2.0) * length
    for j in range(p):
        longest = max(longest, plan.sizes[j])
        shortest = min(shortest, plan.norms[j])
        margin = share + 2.0 * UNIT_ROUNDOFF * (abs(q[j]) + 2.0 * abs(multiplier)) / plan.norms[j]
        if face.inside[j]:
            terms += plan.sizes[j] * a[j]
            total += a[j]
            shortest_inside = min(shortest_inside, plan.norms[j])
            along = max(along, abs(q[j]) / plan.norms[j] + margin)
        else:
            away = min(away, q[j] / plan.norms[j] - margin)
    sum_error, height, scale = 0.0, 0.0, size
    if plan.sum_to_one:
        sum_error = abs(total - 1.0) + p * UNIT_ROUNDOFF * total
        height, scale = math.sqrt(plan.lift), max(size, longest)
    # Bounds on the residual of feasible abundances, and on the length of E d with the constant band.
    left = (
        left * (1.0 + L * UNIT_ROUNDOFF)
        + UNIT_ROUNDOFF * (k + 2.0) * (size + terms)
        + (longest + plan.centre) * sum_error
    )
    apart = 2.0 * left + height * sum_error
    kappa = max(max(2.0 * left / scale, GAP_WEIGHT * (left / scale) ** 2), sum_error)
    sigma = math.sqrt(curvature)
    loss = along * math.sqrt(float(k)) / sigma
    if not away > loss:
        return kappa, np.inf
    outside = (
        0.0 if away == np.inf else (2.0 * left * length + abs(multiplier) * sum_error + loss * apart) / (away - loss)
    )
    inside = (apart + outside) / sigma
    return kappa, (inside / shortest_inside + outside / shortest + math.sqrt(UNDERFLOW)) * (1.0 + 1e-10)


@allocating
def prove_all(plan, Y, moved, X, face, A, residuals, left, kappa, delta):
    """Prove pixels Y (n, L) by optima X (p, n) of the ``moved`` ones; fill abundances A (n, p) and the rest."""
    # ``residuals`` is (n, L), or (0, L) if not wanted; ``left`` has their lengths; κ and δ are infinite if a pixel is
    # not proved.
    n, L = Y.shape
    p = X.shape[0]
    used = np.empty(p, np.int64)
    c, r, q, x, right = np.empty(L), np.empty(L), np.empty(p), np.empty(p), np.empty(face.columns.shape[0])
    for i in range(n):
        kappa[i], delta[i] = np.inf, np.inf
        size = 0.0
        for b in range(L):
            size += Y[i, b] * Y[i, b]
        size = math.sqrt(size)
        if not size > SHORTEST_PIXEL:
            continue
        for j in range(p):
            x[j] = max(X[j, i], 0.0)
            A[i, j] = 0.0
        multiplier, length = find_direction(plan, moved[i], x, used, c, q)
        if not length > 0.0:
            continue
        k, curvature = find_face(plan, x, q, length, face)
        if not curvature > 0.0:
            continue
        for m in range(k):
            A[i, face.columns[m]] = x[face.columns[m]]
        left[i] = fit_exactly(plan, Y[i], A[i], r, k, face, right)
        for b in range(L if residuals.shape[0] > 0 else 0):
            residuals[i, b] = r[b]
        kappa[i], delta[i] = bound_mixture(plan, A[i], q, multiplier, length, k, curvature, size, left[i], face)


def prove_mixtures(
    problem: Problem, plan: Plan, spectra: np.ndarray, results: dict[str, np.ndarray], limit: float
) -> np.ndarray:
    """Replace answers of pixels that are mixtures without noise by proved ones; return which (n,) are proved."""
    # For a ≥ 0 without a penalty; ``spectra`` (1, n, bands) as stored; ``results`` of one line; ``limit``: the largest
    # δ that is proof enough.
    n, (L, p) = spectra.shape[1], problem.E.shape
    Y = np.empty((1, n, L))
    stored = Stored(*problem.stored())
    gather_all(block_maker("bip", stored)(spectra), stored, Y)
    moved = Y * (1.0 + MOVED)
    # Where every multiple is feasible, away from the mean direction of the endmembers: a multiple is as exact as the
    # pixel.
    if problem.constraint.is_cone:
        mean = (problem.E / problem.norms).sum(axis=1)
        moved = Y - MOVED * np.linalg.norm(Y, axis=2, keepdims=True) * (mean / max(float(np.linalg.norm(mean)), 1e-300))
    line = Line(n, moved.nbytes, real=np.float64)
    found = {name: np.empty(shape, kind) for name, (kind, shape) in line.results(1, problem).items()}
    plain = Stored(np.arange(L), np.ones(L), np.zeros(L), np.nan)
    range_solver("bip", path_of_solver(problem), plain, plan, in_scene=False)(0, runs_in(1, n), moved, Results(**found))
    A, R = np.zeros((n, p)), np.zeros((n if len(results["residual"]) else 0, L))
    left, kappa, delta = np.zeros(n), np.empty(n), np.empty(n)
    prove_all(plan, Y[0], moved[0], found["abundance"][0], new_face(p), A, R, left, kappa, delta)
    proved = np.asarray((kappa <= CERTIFIED) & (delta <= limit))
    results["abundance"][0][:, proved] = A[proved].T
    results["rmse"][0, proved] = left[proved] / math.sqrt(L)
    if len(R):  # not by a product of matrices, whose last bit depends on how many pixels there are
        results["residual"][0][:, proved] = R[proved].T
    results["kappa"][0, proved], results["delta"][0, proved] = kappa[proved], delta[proved]
    return proved
