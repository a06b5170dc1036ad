"""Nonnegative least squares with at most K endmembers in a pixel: add the best, then exchange until no exchange fits better.

Which K of p endmembers fit best is a problem that takes all subsets. Here the endmember that lowers the misfit most enters, one after
the other, until there are K or none helps; then one of them is exchanged for another endmember, the pair that lowers the misfit most,
as long as there is one. So the answer says what a user can check: nnls on a support that no single exchange betters. docs/methods.md
compares it with the best of all subsets, and with supports of the lasso path, which are the best a third to a half as often.

With columns of unit length, H the inverse of the support's Gram matrix, ``u_j = H E_Sᵀe_j``, ``w_j`` the duals and ``d_j`` the squared
distance of e_j from the support's span, the square of the misfit rises by ``a_i² / H_ii`` where column i leaves, and then falls by
``(w_j + a_i u_ij / H_ii)² / (d_j + u_ij² / H_ii)`` where j enters, unless an abundance becomes negative: it falls by less then. So all
exchanges cost K p divisions, and nnls is solved only for those that may be the best.
"""

from typing import Any, NamedTuple

import numpy as np

from ...compiled.jit import compiled
from .scalar import FREE, Work, lawson_hanson

# The least fall of the squared misfit, as a share of |y|², for which endmembers are exchanged: 1e4 times its rounding.
LEAST_FALL = 1e-12
# A dual below this, relative to |e_j| and |y|, is zero: no endmember is added for it.
LEAST_DUAL = 1e-12
# A column whose squared distance from the span of the others is below this share of its own does not join them: float64 keeps half of
# the digits of its abundance.
TOO_NEAR = 1e-8
# Additions and exchanges of a pixel for each endmember that it may have; pixels of 498 minerals take at most 4.
MOVES_FOR_EACH = 20


class Few(NamedTuple):
    """Some columns in place of all: what `unmix.solvers.pixels.scalar.lawson_hanson` reads of a plan; float64 unless stated."""

    G: Any  # (K, K) their Gram matrix, at unit length; zero beyond their number
    norms: Any  # (K,) ones
    dual_tolerance: float
    sum_to_one: bool


class Model(NamedTuple):
    """Endmembers that a pixel may have, and the optimum over them."""

    members: Any  # (K,) int64
    few: Few
    work: Work  # of K columns; its support counts places in ``members``


class Search(NamedTuple):
    """Scratch of one pixel for p endmembers of which it may have K; float64 unless stated."""

    f: Any  # (p,) products of the endmembers and the pixel, all at unit length
    w: Any  # (p,) duals
    d: Any  # (p,) squared distances from the span of the support; −1 within it
    u: Any  # (K, p) combinations of the support that are nearest to each endmember
    falls: Any  # (K, p) by how much exchanges may lower the squared misfit at most
    model: Model
    trial: Model
    pixel: Any  # (L, 1)
    a: Any  # (K, 1) the answer: abundances of the first members of ``model``
    E: Any  # (L, K) its columns
    U: Any  # (K, K) their Gram matrix at unit length
    sizes: Any  # (K,) their lengths
    slopes: Any  # (K,) zeros
    duals: Any  # (K, 1) for the certificate, as ``face``
    face: Any  # unmix.certificate.Face for K columns


def new_model(K: int) -> Model:
    """Allocate a model."""
    few = Few(np.zeros((K, K)), np.ones(K), 1e-14, False)
    vectors, squares, members = np.empty((6, K)), np.empty((3, K, K)), np.empty((2, K), np.int64)
    return Model(np.zeros(K, np.int64), few, Work(*vectors, *squares, *members))


def new_search(L: int, p: int, K: int, face: Any) -> Search:
    """Allocate the scratch of one pixel, but for its `unmix.certificate.Face`."""
    f, w, d = np.empty((3, p))
    u, falls = np.empty((2, K, p))
    return Search(
        f, w, d, u, falls, new_model(K), new_model(K), np.empty((L, 1)), np.empty((K, 1)), np.empty((L, K)), np.empty((K, K)),
        np.empty(K), np.zeros(K), np.empty((K, 1)), face,
    )  # fmt: skip


@compiled
def fit(U, f, model, n):
    """Find the optimum over the first n members of a model; return the size of its support, and by how much it lowers |y|²."""
    work, G, members = model.work, model.few.G, model.members
    for i in range(members.shape[0]):
        work.f[i] = f[members[i]] if i < n else 0.0
        work.a[i], work.state[i] = 0.0, FREE
        for m in range(members.shape[0]):
            G[i, m] = U[members[i], members[m]] if i < n and m < n else 0.0
    k, _ = lawson_hanson(model.few, work, 0, 0.0, 1.0)
    fall = 0.0
    for i in range(k):
        fall += work.f[work.support[i]] * work.a[work.support[i]]
    return k, fall


@compiled
def keep_support(model, k):
    """Make the support the first members, in its order, of which the others are left out."""
    work = model.work
    for i in range(k):  # x holds the abundances in the order of the support
        work.state[i] = model.members[work.support[i]]
    for i in range(k):
        model.members[i] = work.state[i]


@compiled
def look_around(U, search, k):
    """Compute duals, combinations and distances of all endmembers for a support of k, the first members of the model."""
    f, w, d, u, members, work = search.f, search.w, search.d, search.u, search.model.members, search.model.work
    p = f.shape[0]
    for j in range(p):
        w[j], d[j] = f[j], 1.0
    for i in range(k):
        row, a, combination = U[members[i]], work.x[i], u[i]
        for j in range(p):
            w[j] -= a * row[j]
        for j in range(p):
            combination[j] = 0.0
        for m in range(k):
            h, other = work.H[i, m], U[members[m]]
            for j in range(p):
                combination[j] += h * other[j]
        for j in range(p):
            d[j] -= combination[j] * row[j]
    for i in range(k):
        d[members[i]] = -1.0


@compiled
def best_addition(search):
    """Return the endmember that lowers the misfit most, −1 if none has a dual above zero; and whether one was too near the others."""
    w, d = search.w, search.d
    best, largest, near = -1, 0.0, False
    for j in range(w.shape[0]):
        if w[j] > LEAST_DUAL and d[j] >= 0.0:
            if not d[j] > TOO_NEAR:
                near = True
            elif w[j] * w[j] > largest * d[j]:
                best, largest = j, w[j] * w[j] / d[j]
    return best, near


@compiled
def bound_falls(search, k):
    """Compute by how much each exchange lowers the squared misfit, at most."""
    w, d, work = search.w, search.d, search.model.work
    for i in range(k):
        inverse = 1.0 / work.H[i, i]
        share, loss = work.x[i] * inverse, work.x[i] * work.x[i] * inverse
        u, falls = search.u[i], search.falls[i]
        for j in range(w.shape[0]):
            dual = w[j] + share * u[j]
            distance = d[j] + inverse * u[j] * u[j]
            sound = (dual > 0.0) & (distance > TOO_NEAR) & (d[j] > -0.5)
            falls[j] = dual * dual / (distance if sound else 1.0) - loss if sound else -1.0


@compiled
def stays_positive(search, k, i, j):
    """Return whether all abundances are positive where j takes the place of the support's i-th endmember."""
    work = search.model.work
    inverse = 1.0 / work.H[i, i]
    share, u = work.x[i] * inverse, search.u
    step = (search.w[j] + share * u[i, j]) / (search.d[j] + inverse * u[i, j] * u[i, j])
    for m in range(k):
        if m != i and work.x[m] - share * work.H[m, i] - step * (u[m, j] - u[i, j] * inverse * work.H[m, i]) <= 0.0:
            return False
    return True


@compiled
def best_exchange(U, search, k, fall):
    """Return the place in the support and the endmember that lower the misfit most where it takes that place; −1 if none does.

    ``fall`` is by how much the support lowers |y|².
    """
    model, trial, falls = search.model, search.trial, search.falls
    bound_falls(search, k)
    place, entering, best = -1, -1, LEAST_FALL
    while True:
        i_first, j_first, largest = -1, -1, best
        for i in range(k):
            row = falls[i]
            for j in range(row.shape[0]):
                if row[j] > largest:
                    i_first, j_first, largest = i, j, row[j]
        if i_first < 0:
            return place, entering
        falls[i_first, j_first] = -1.0
        if not stays_positive(search, k, i_first, j_first):
            for m in range(k):
                trial.members[m] = model.members[m]
            trial.members[i_first] = j_first
            largest = fit(U, search.f, trial, k)[1] - fall
        if largest > best:
            place, entering, best = i_first, j_first, largest


@compiled
def search(U, search):
    """Find the support for the pixel in ``search.f``; it becomes the first members of the model, and ``work.x`` their abundances.

    Return its size, and whether the search came to its end.
    """
    model = search.model
    most, k, fall = model.members.shape[0], 0, 0.0
    for _ in range(MOVES_FOR_EACH * most):
        look_around(U, search, k)
        j, near, n = -1, False, k
        if k < most:
            j, near = best_addition(search)
        if j >= 0:
            model.members[k] = j
            n = k + 1
        elif k == most or near:  # else no dual is above zero: it is the optimum over all endmembers
            place, j = best_exchange(U, search, k, fall)
            if j >= 0:
                model.members[place] = j
        if j < 0:
            return k, True
        k, fall = fit(U, search.f, model, n)
        keep_support(model, k)
    return k, False


@compiled
def correct(plan, search, k, size):
    """Copy the columns of the support, and write its abundances, corrected by what they leave of the pixel."""
    work, members, a = search.model.work, search.model.members, search.a
    for i in range(k):
        j = members[i]
        a[i, 0], search.sizes[i], work.u[i] = work.x[i] * size * plan.weights[j], plan.sizes[j], 0.0
        for m in range(k):
            search.U[i, m] = plan.U[j, members[m]]
    for b in range(plan.E.shape[0]):
        left = search.pixel[b, 0]
        for i in range(k):
            search.E[b, i] = plan.E[b, members[i]]
            left -= search.E[b, i] * a[i, 0]
        for i in range(k):
            work.u[i] += search.E[b, i] * left
    for i in range(k):
        work.u[i] *= plan.weights[members[i]]
    for i in range(k):
        change = 0.0
        for m in range(k):
            change += work.H[i, m] * work.u[m]
        a[i, 0] = max(a[i, 0] + change * plan.weights[members[i]], 0.0)


@compiled
def choose_support(plan, F, Y, size, work, s):
    """Choose the endmembers of lane s of a tile, and find their abundances, ``work.a``; ``work`` is a `Search`.

    ``size`` is |y|. Return how many there are, the first members of the model, and whether the search came to its end.
    """
    for j in range(work.f.shape[0]):
        work.f[j] = F[j, s] * plan.weights[j] / size if size > 0.0 else 0.0
    for b in range(Y.shape[0]):
        work.pixel[b, 0] = Y[b, s]
    k, has_ended = search(plan.U, work)
    correct(plan, work, k, size)
    return k, has_ended
