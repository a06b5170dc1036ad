"""Nonnegative least squares with at most K endmembers in a pixel: grow, shrink, then exchange endmembers.

Which K of p endmembers fit best is a problem that takes all subsets. Here a support grows to more than K, by the
endmember that lowers the misfit most; then the endmember that is needed least leaves, one after the other, until there
are K; then one is exchanged for another, the pair that lowers the misfit most, as long as there is one. So the answer
says what a user can check: nnls on a support that no addition and no single exchange betters. docs/methods.md compares
it with the best of all subsets.

With columns of unit length, H the inverse of the support's Gram matrix, ``u_j = H E_Sᵀe_j``, ``w_j`` the duals and
``d_j`` the squared distance of e_j from the support's span, the square of the misfit rises by ``a_i² / H_ii`` where
column i leaves, and then falls by ``(w_j + a_i u_ij / H_ii)² / (d_j + u_ij² / H_ii)`` where j enters, unless an
abundance becomes negative: it falls by less then. So all exchanges cost K p divisions, and nnls is solved only for
exchanges that may be the best.
"""

from typing import Any, NamedTuple

import numpy as np

from ...certificate import certify_function
from ...compiled.jit import ALONE, ONE, Width, compiled
from ...solvers.pixels.cpu import new_face
from ...solvers.pixels.inverse_update import add_column, remove_column
from ...solvers.pixels.scalar import FREE, STEPS_PER_ENDMEMBER, Work, lawson_hanson
from ...solvers.pixels.tile import settle_function

# The least fall of the squared misfit, as a share of |y|², for which endmembers are exchanged: 1e4 times its rounding.
LEAST_FALL = 1e-12
# A dual below this, relative to |e_j| and |y|, is zero: no endmember is added for it.
LEAST_DUAL = 1e-12
# A column whose squared distance from the span of the others is below this share of its own does not join them: float64
# keeps half of the digits of its abundance.
TOO_NEAR = 1e-8
# A support grows to G = 2 K + 8. Of 300 mixtures of four of 498 minerals without noise, 95 % are found with K = 4, 84 %
# if it grows to 2 K + 4, and 17 % if it grows to K.
GROWN = 8
# Additions and exchanges of a pixel for each endmember that it may have; pixels of 498 minerals take at most 4.
MOVES_FOR_EACH = 20


class Few(NamedTuple):
    """Some columns in place of all: the fields of a plan for `unmix.solvers.pixels.scalar.lawson_hanson`, float64."""

    G: Any  # (K, K) their Gram matrix, at unit length; zero beyond their number
    norms: Any  # (K,) ones
    dual_tolerance: float
    sum_to_one: bool


class AnswerColumns(NamedTuple):
    """The k columns of one pixel's answer, in place of a `Plan` of all, for `settle_function`."""

    U: Any  # (k, k)
    norms: Any  # (k,)
    sizes: Any  # (k,)
    slopes: Any  # (k,) zeros
    sum_to_one: bool
    blur: float


class SupportModel(NamedTuple):
    """Endmembers that a pixel may have, and the optimum over them."""

    members: Any  # (K,) int64
    columns: Any  # (K,) int64: those of the support, in its order
    few: Few
    work: Work  # of K columns; its support counts places in ``members``


class Grown(NamedTuple):
    """A support of up to G endmembers and its optimum, in its order; float64 unless stated."""

    columns: Any  # (G,) int64
    x: Any  # (G,) abundances of the optimum
    a: Any  # (G,) the feasible point from which it is approached
    u: Any  # (G,) scratch
    H: Any  # (G, G) inverse of the Gram matrix


class ExchangeSearch(NamedTuple):
    """Scratch of one pixel that may have K of p endmembers; float64 unless stated."""

    f: Any  # (p,) products of the endmembers and the pixel, all at unit length
    w: Any  # (p,) duals
    d: Any  # (p,) squared distances from the span of the support; −1 within it
    u: Any  # (K, p) combinations of the support that are nearest to each endmember
    falls: Any  # (K, p) by how much exchanges may lower the squared misfit at most
    row: Any  # (p,)
    grown: Grown
    model: SupportModel
    trial: SupportModel
    pixel: Any  # (L, 1)
    a: Any  # (K, 1) the answer: abundances of the first members of ``model``
    E: Any  # (L, K) its columns
    U: Any  # (K, K) their Gram matrix at unit length
    sizes: Any  # (K,) their lengths
    slopes: Any  # (K,) zeros
    duals: Any  # (K, 1) for the certificate, as ``face``
    face: Any  # unmix.certificate.Face for K columns


def new_model(K: int) -> SupportModel:
    """Allocate a model."""
    few = Few(np.zeros((K, K)), np.ones(K), 1e-14, False)
    vectors, squares, members = np.empty((6, K)), np.empty((3, K, K)), np.empty((2, K), np.int64)
    return SupportModel(np.zeros(K, np.int64), np.zeros(K, np.int64), few, Work(*vectors, *squares, *members))


def new_work(L: int, p: int, plan: Any) -> ExchangeSearch:
    """Allocate the scratch of one pixel; the models of the plan are the number K."""
    K = plan.models
    n = min(p, 2 * K + GROWN)
    grown = Grown(np.empty(n, np.int64), *np.empty((3, n)), np.empty((n, n)))
    f, w, d, row = np.empty((4, p))
    u, falls = np.empty((2, K, p))
    return ExchangeSearch(
        f,
        w,
        d,
        u,
        falls,
        row,
        grown,
        new_model(K),
        new_model(K),
        np.empty((L, 1)),
        np.empty((K, 1)),
        np.empty((L, K)),
        np.empty((K, K)),
        np.empty(K),
        np.zeros(K),
        np.empty((K, 1)),
        new_face(K),
    )


@compiled
def fit_support(U, f, model, n):
    """Find the optimum over a model's first n members; return its support's size and how far it lowers |y|²."""
    work, G, members = model.work, model.few.G, model.members
    for i in range(members.shape[0]):
        work.f[i] = f[members[i]] if i < n else 0.0
        work.a[i], work.state[i] = 0.0, FREE
        for m in range(members.shape[0]):
            G[i, m] = U[members[i], members[m]] if i < n and m < n else 0.0
    k, _ = lawson_hanson(model.few, work, 0, 0.0, 1.0)
    fall = 0.0
    for i in range(k):
        model.columns[i] = members[work.support[i]]
        fall += work.f[work.support[i]] * work.x[i]
    return k, fall


@compiled
def look_around(U, search, k):
    """Compute duals, combinations and distances of all endmembers for a support of k."""
    f, w, d, columns, work = search.f, search.w, search.d, search.model.columns, search.model.work
    p = f.shape[0]
    for j in range(p):
        w[j], d[j] = f[j], 1.0
    for i in range(k):
        row, a, combination = U[columns[i]], work.x[i], search.u[i]
        for j in range(p):
            w[j] -= a * row[j]
        for j in range(p):
            combination[j] = 0.0
        for m in range(k):
            h, other = work.H[i, m], U[columns[m]]
            for j in range(p):
                combination[j] += h * other[j]
        for j in range(p):
            d[j] -= combination[j] * row[j]
    for i in range(k):
        d[columns[i]] = -1.0


@compiled
def best_addition(search):
    """Return the endmember that lowers the misfit most (else −1), and whether one was too near the others."""
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
def find_row(U, search, k, i):
    """Compute the combination of a support of k that its i-th column has in every endmember, ``row = H_i E_SᵀE``."""
    row, grown = search.row, search.grown
    for j in range(row.shape[0]):
        row[j] = 0.0
    for m in range(k):
        share, other = grown.H[i, m], U[grown.columns[m]]
        for j in range(row.shape[0]):
            row[j] += share * other[j]


@compiled
def take_out(grown, k, i):
    """Let the i-th of k endmembers leave, and move to the optimum on the rest; return the support's size."""
    columns, x, a, u, H = grown
    share = x[i] / H[i, i]
    for m in range(k):
        x[m] -= share * H[m, i]
    k = remove_column(H, columns, k, i, u)
    x[i], a[i] = x[k], a[k]
    return k


@compiled
def drop_negative(U, search, k, follows):
    """Move to the optimum on a support of k and drop endmembers that become negative; return the support's size."""
    columns, x, a, _, H = search.grown
    d, row = search.d, search.row
    while k > 0:
        leaving, reach = -1, 1.0
        for i in range(k):
            if x[i] <= 0.0:
                share = a[i] / (a[i] - x[i]) if a[i] > x[i] else 0.0
                if leaving < 0 or share < reach:
                    leaving, reach = i, share
        for i in range(k):
            a[i] += reach * (x[i] - a[i])
        if leaving < 0:
            break
        if follows:
            find_row(U, search, k, leaving)
            inverse = 1.0 / H[leaving, leaving]
            for j in range(d.shape[0]):
                d[j] += inverse * row[j] * row[j]
            d[columns[leaving]] = inverse
        k = take_out(search.grown, k, leaving)
    return k


@compiled
def grow_support(U, search):
    """Let endmembers join an empty support, those first that lower the misfit most; return its size."""
    f, w, d, row, grown = search.f, search.w, search.d, search.row, search.grown
    k, p, most = 0, search.f.shape[0], search.grown.columns.shape[0]
    for j in range(p):
        w[j], d[j] = f[j], 1.0
    for _ in range(STEPS_PER_ENDMEMBER * most):
        entering, _ = best_addition(search)
        if entering < 0 or k == most or add_column(U, grown.H, grown.columns, k, entering, grown.u) == k:
            break
        find_row(U, search, k + 1, k)
        distance, dual = 1.0 / grown.H[k, k], w[entering]
        for j in range(p):
            d[j] -= distance * row[j] * row[j]
        d[entering] = -1.0
        grown.x[k], grown.a[k] = 0.0, 0.0
        for i in range(k + 1):
            grown.x[i] += grown.H[i, k] * dual
        k = drop_negative(U, search, k + 1, True)
        for j in range(p):
            w[j] = f[j]
        for i in range(k):
            a, other = grown.x[i], U[grown.columns[i]]
            for j in range(p):
                w[j] -= a * other[j]
    return k


@compiled
def shrink(U, search, k, most):
    """Drop endmembers from a support of k until ``most`` are left, always the one that raises the misfit least."""
    _, x, _, _, H = search.grown
    while k > most:
        leaving, least = 0, np.inf
        for i in range(k):
            loss = x[i] * x[i] / H[i, i]
            if loss < least:
                leaving, least = i, loss
        k = drop_negative(U, search, take_out(search.grown, k, leaving), False)
    return k


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
    """Return the place and the endmember of the best exchange, −1 if none; the support lowers |y|² by ``fall`` now."""
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
                trial.members[m] = model.columns[m]
            trial.members[i_first] = j_first
            largest = fit_support(U, search.f, trial, k)[1] - fall
        if largest > best:
            place, entering, best = i_first, j_first, largest


@compiled
def search(U, search):
    """Find the support for ``search.f``, the model's first columns; return its size and whether the search ended."""
    model, most = search.model, search.falls.shape[0]
    k = shrink(U, search, grow_support(U, search), most)
    for i in range(k):
        model.members[i] = search.grown.columns[i]
    k, fall = fit_support(U, search.f, model, k)
    for _ in range(MOVES_FOR_EACH * most):
        look_around(U, search, k)
        j, near, n = -1, False, k
        if k < most:
            j, near = best_addition(search)
        for i in range(k):
            model.members[i] = model.columns[i]
        if j >= 0:
            model.members[k] = j
            n = k + 1
        elif k == most or near:  # else no dual is above zero: it is the optimum over all endmembers
            place, j = best_exchange(U, search, k, fall)
            if j >= 0:
                model.members[place] = j
        if j < 0:
            return k, True
        k, fall = fit_support(U, search.f, model, n)
    return k, False


@compiled
def correct(plan, search, k, size):
    """Copy the columns of the support, and write its abundances, corrected by what they leave of the pixel."""
    work, columns, a = search.model.work, search.model.columns, search.a
    for i in range(k):
        j = columns[i]
        a[i, 0], search.sizes[i], work.u[i] = work.x[i] * size * plan.weights[j], plan.sizes[j], 0.0
        for m in range(k):
            search.U[i, m] = plan.U[j, columns[m]]
    for b in range(plan.E.shape[0]):
        left = search.pixel[b, 0]
        for i in range(k):
            search.E[b, i] = plan.E[b, columns[i]]
            left -= search.E[b, i] * a[i, 0]
        for i in range(k):
            work.u[i] += search.E[b, i] * left
    for i in range(k):
        work.u[i] *= plan.weights[columns[i]]
    for i in range(k):
        change = 0.0
        for m in range(k):
            change += work.H[i, m] * work.u[m]
        a[i, 0] = max(a[i, 0] + change * plan.weights[columns[i]], 0.0)


@compiled
def choose_support(plan, F, Y, size, work, s):
    """Write lane s's support and abundances to ``work``; return the support's size and whether the search ended."""
    for j in range(work.f.shape[0]):
        work.f[j] = F[j, s] * plan.weights[j] / size if size > 0.0 else 0.0
    for b in range(Y.shape[0]):
        work.pixel[b, 0] = Y[b, s]
    k, has_ended = search(plan.U, work)
    correct(plan, work, k, size)
    return k, has_ended


def tile_solver(ops: Width) -> Any:
    """Return the tile solver for at most K endmembers a pixel; its ``work`` is an `ExchangeSearch`."""
    store, broadcast, certify, width = ops.store, ops.broadcast, certify_function(ONE), ops.width
    settle = settle_function(ALONE)

    @compiled
    def prove(plan, tile, search, s, k):
        # The certificate gets the columns of the endmembers that the pixel has alone.
        a, w, sizes, slopes = search.a[:k], search.duals[:k], search.sizes[:k], search.slopes[:k]
        lane = tile.rmse[:, s : s + 1], tile.kappa[:, s : s + 1], tile.delta[:, s : s + 1]
        certify(
            search.E[:, :k],
            sizes,
            slopes,
            0.0,
            0.0,
            False,
            True,
            plan.penalty,
            search.pixel,
            a,
            w,
            *lane,
            tile.terms[:, s : s + 1],
        )
        columns, dark = (
            AnswerColumns(search.U[:k, :k], sizes, sizes, slopes, False, plan.blur),
            tile.length[0, s] == 0.0,
        )
        return settle(
            columns,
            a[:, 0],
            w[:, 0],
            tile.terms[:, s],
            dark,
            tile.kappa[0, s],
            tile.delta[0, s],
            search.face,
            search.face.row,
        )

    @compiled
    def search_tile(plan, tile, work, count):
        for j in range(tile.A.shape[0]):
            store(tile.A, j, broadcast(0.0))
        for s in range(count):
            k, has_ended = choose_support(plan, tile.F, tile.Y, tile.size[0, s], work, s)
            tile.kappa[0, s], tile.delta[0, s] = prove(plan, tile, work, s, k)
            # A pixel whose search did not end is not certified.
            tile.kappa[0, s] = tile.kappa[0, s] if has_ended else np.inf
            tile.steps[0, s] = k
            for i in range(k):
                tile.A[work.model.columns[i], s] = work.a[i, 0]
        for s in range(count, width):  # lanes that hold no pixel
            tile.steps[0, s] = 0.0

    return search_tile
