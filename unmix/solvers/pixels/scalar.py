"""One pixel's arithmetic: every solver as a scalar function, compiled for the CPU and for CUDA alike.

Each takes the plan of the run, a work area that holds the pixel's ``z`` and ``f``, and the scale that duals are measured
against. It leaves the abundances in ``work.a`` and returns its steps, where a step is one column that entered or left.
Names: ``E = QR``, ``z = Qᵀy``, ``f = Eᵀy = Rᵀz``, ``G = EᵀE``, dual ``w = f − G a``, ``H`` the inverse on the support, kept up by
`update`.
"""

from typing import Any, NamedTuple

from ...compiled.jit import compiled
from .inverse_update import add_column, remove_column

# Steps before a pixel is left to the certificate and to double-double; real scenes take at most 22 (p = 25).
STEPS_PER_ENDMEMBER = 6

FREE, PASSIVE, BARRED = 0, 1, 2


class Plan(NamedTuple):
    """What all pixels of a run share; p endmembers, L bands in use; everything float64 but the flags."""

    E: Any  # (L, p), one endmember a column; under Σa = 1 less their mean, and all but E with a constant band below it
    Q: Any  # (L, p)
    R: Any  # (p, p)
    packed_index: Any  # (p, p + 1) uint64: where row k of the tableau lies in the triangle that is kept of it
    U: Any  # (p, p) Gram matrix of the columns at unit length
    G: Any  # (p, p) = EᵀE
    inverse: Any  # (p, p) = G⁻¹, where delete-only starts
    norms: Any  # (p,) = |e_j|, with the constant band
    weights: Any  # (p,) = 1/|e_j|
    sizes: Any  # (p,) what the certificate measures duals against
    slopes: Any  # (p,) for the duality gap where E has no full rank
    curvature: float  # a lower bound of σ_min(E)², for δ
    dual_tolerance: float  # a dual below this, relative to |e_j| and the pixel's scale, is zero
    lift: float  # what the constant band adds to each Eᵀy: its height squared
    lifts: Any  # (p,) and to each Qᵀy
    sum_to_one: bool
    nonnegative: bool
    columns: Any  # (p, L) E's transpose, for `qr`; (0, 0) for the others


class Work(NamedTuple):
    """One pixel's scratch, handed from pixel to pixel."""

    z: Any  # (p,) Qᵀy
    f: Any  # (p,) Eᵀy
    a: Any  # (p,) the answer
    x: Any  # (p,) the optimum on the support, in its order
    s: Any  # (p,) H·1
    u: Any  # (p,)
    H: Any  # (p, p)
    U: Any  # (p, p) orthonormal rows of the last solve
    T: Any  # (p, p) its triangle
    support: Any  # (p,) int64
    state: Any  # (p,) int64: FREE, PASSIVE or BARRED


@compiled
def optimum(G, f, H, support, k, sum_to_one, x, s, u):
    """The least squares optimum on the support, ``x = H f`` (paper 004, eq. 11 with the sum), refined once.

    H forgets half the digits where cond(E) is 1e4 and more; one step of refinement brings them back for O(k^2).
    Returns the multiplier of the sum, which all passive duals equal (0 without the sum).
    """
    multiplier = 0.0
    for i in range(k):
        x[i] = 0.0
    for _ in range(2):
        for i in range(k):
            gradient = f[support[i]] - multiplier
            for m in range(k):
                gradient -= G[support[i], support[m]] * x[m]
            u[i] = gradient
        for i in range(k):
            total = 0.0
            row = 0.0
            for m in range(k):
                total += H[i, m] * u[m]
                row += H[i, m]
            x[i] += total
            s[i] = row
        if sum_to_one:
            missing = 1.0
            spread = 0.0
            for i in range(k):
                missing -= x[i]
                spread += s[i]
            for i in range(k):
                x[i] += missing / spread * s[i]
            multiplier -= missing / spread
    return multiplier


@compiled
def solve_on_support(R, z, state, sum_to_one, a, U, T, s, u):
    """The last word: least squares on the passive columns of R, ascending, by modified Gram-Schmidt on ``[R_P | z]``.

    The one factorisation that a pixel may have: cond(E) counts once here, twice in H. Column j of R ends at row j, so
    the sums are short. Writes ``a`` and returns False where the columns are dependent.
    """
    p = z.shape[0]
    k = 0
    for i in range(p):
        u[i] = z[i]
        a[i] = 0.0
    for j in range(p):
        if state[j] != PASSIVE:
            continue
        before = 0.0
        for i in range(j + 1):
            U[k, i] = R[i, j]
            before += R[i, j] * R[i, j]
        for i in range(j + 1, p):
            U[k, i] = 0.0
        for m in range(k):
            overlap = 0.0
            for i in range(j):
                overlap += U[m, i] * U[k, i]
            for i in range(j):
                U[k, i] -= overlap * U[m, i]
            T[m, k] = overlap
        after = 0.0
        for i in range(j + 1):
            after += U[k, i] * U[k, i]
        if not after > 1e-26 * before:
            return False
        length = after**0.5
        T[k, k] = length
        along = 0.0
        for i in range(j + 1):
            U[k, i] /= length
            along += U[k, i] * u[i]
        for i in range(j + 1):
            u[i] -= along * U[k, i]
        s[k] = along
        k += 1
    # s holds U z; the abundances of the support replace it from the last to the first, then take their places in a.
    for i in range(k - 1, -1, -1):
        for m in range(i + 1, k):
            s[i] -= T[i, m] * s[m]
        s[i] /= T[i, i]
    if sum_to_one:
        spread = 0.0
        for i in range(k):  # u = T⁻ᵀ 1
            u[i] = 1.0
            for m in range(i):
                u[i] -= T[m, i] * u[m]
            u[i] /= T[i, i]
            spread += u[i] * u[i]
        for i in range(k - 1, -1, -1):  # u = T⁻¹ u
            for m in range(i + 1, k):
                u[i] -= T[i, m] * u[m]
            u[i] /= T[i, i]
        for _ in range(2):  # twice: where pixels are far brighter than endmembers, the first leaves |s| of rounding
            missing = 1.0
            for i in range(k):
                missing -= s[i]
            for i in range(k):
                s[i] += missing / spread * u[i]
    k = 0
    for j in range(p):
        if state[j] == PASSIVE:
            a[j] = s[k]
            k += 1
    return True


@compiled
def best_single(plan, f):
    """The endmember that alone explains the pixel best; −1 where none beats nothing. Ties: the lowest."""
    best = -1
    least = 0.0
    for j in range(f.shape[0]):
        if plan.sum_to_one:
            cost = plan.G[j, j] - 2.0 * f[j]
        else:
            cost = -(max(f[j], 0.0) ** 2) / plan.G[j, j]
        if (best < 0 and plan.sum_to_one) or cost < least:
            best = j
            least = cost
    return best


@compiled
def entering(plan, work, k, multiplier, scale):
    """The free column with the largest dual, or −1 where all are zero or less."""
    best = -1
    most = 0.0
    for j in range(work.f.shape[0]):
        if work.state[j] != FREE:
            continue
        dual = work.f[j] - multiplier
        for i in range(k):
            dual -= plan.G[j, work.support[i]] * work.a[work.support[i]]
        if dual <= plan.dual_tolerance * plan.norms[j] * scale:
            continue
        if dual > most:
            best = j
            most = dual
    return best


@compiled
def lawson_hanson(plan, work, k, multiplier, scale):
    """Lawson-Hanson from the optimum on a support where all is positive; paper 004's Algorithm 2 with `update`.

    With the sum to one the same moves keep Σa = 1, and duals count from its multiplier. Every outer step lowers the
    residual, so no support comes twice; a column that rounding throws straight out again is barred until the next
    success.
    """
    p = work.f.shape[0]
    steps = 0
    while steps < STEPS_PER_ENDMEMBER * p + 20:
        j = entering(plan, work, k, multiplier, scale)
        if j < 0:
            break
        grown = add_column(plan.G, work.H, work.support, k, j, work.u)
        if grown == k:
            work.state[j] = BARRED
            continue
        k = grown
        work.state[j] = PASSIVE
        work.a[j] = 0.0
        steps += 1
        stuck = False
        while k > 0:
            multiplier = optimum(plan.G, work.f, work.H, work.support, k, plan.sum_to_one, work.x, work.s, work.u)
            reach = 1.0
            leaving = -1
            for i in range(k):
                if work.x[i] <= 0.0:
                    have = work.a[work.support[i]]
                    part = have / (have - work.x[i]) if have > work.x[i] else 0.0
                    if leaving < 0 or part < reach:
                        leaving = i
                        reach = part
            for i in range(k):
                e = work.support[i]
                work.a[e] += reach * (work.x[i] - work.a[e])
            if leaving < 0:
                break
            e = work.support[leaving]
            work.a[e] = 0.0
            stuck = e == j
            work.state[e] = BARRED if stuck else FREE
            k = remove_column(work.H, work.support, k, leaving, work.u)
            steps += 1
        if not stuck:
            for i in range(p):
                if work.state[i] == BARRED:
                    work.state[i] = FREE
    return k, steps


@compiled
def start_cold(plan, work):
    """Empty the support, then take in the best single endmember; returns k, 0 or 1, and the multiplier."""
    for j in range(work.f.shape[0]):
        work.state[j] = FREE
        work.a[j] = 0.0
    j = best_single(plan, work.f)
    if j < 0:
        return 0, 0.0
    work.state[j] = PASSIVE
    k = add_column(plan.G, work.H, work.support, 0, j, work.u)
    multiplier = optimum(plan.G, work.f, work.H, work.support, k, plan.sum_to_one, work.x, work.s, work.u)
    work.a[j] = work.x[0]
    return k, multiplier


@compiled
def inverse(plan, work, scale):
    """Paper 004, Algorithm 2: Lawson-Hanson from the empty set, largest dual first, by the inverse alone."""
    for j in range(work.a.shape[0]):
        work.state[j] = FREE
        work.a[j] = 0.0
    k, multiplier = start_cold(plan, work) if plan.sum_to_one else (0, 0.0)  # no point of the empty set sums to one
    first = k
    _, steps = lawson_hanson(plan, work, k, multiplier, scale)
    return steps + first


@compiled
def delete_only(plan, work, scale):
    """Paper 004, Algorithm 3: from all endmembers, take out the negative one with the largest |z/s|. Not exact."""
    p = work.a.shape[0]
    for i in range(p):
        work.support[i] = i
        work.a[i] = 0.0
        for j in range(p):
            work.H[i, j] = plan.inverse[i, j]
    k = p
    while k > 0:
        optimum(plan.G, work.f, work.H, work.support, k, plan.sum_to_one, work.x, work.s, work.u)
        leaving = -1
        most = 0.0
        for i in range(k):
            if work.x[i] < 0.0:
                offset = abs(work.x[i] / work.s[i]) if work.s[i] != 0.0 else 1e300
                if leaving < 0 or offset > most:
                    leaving = i
                    most = offset
        if leaving < 0:
            break
        k = remove_column(work.H, work.support, k, leaving, work.u)
    for i in range(k):
        work.a[work.support[i]] = work.x[i]
    return p - k


@compiled
def direct(plan, work, scale):
    """Least squares on all endmembers, with or without the sum to one; nothing is searched."""
    for j in range(work.a.shape[0]):
        work.state[j] = PASSIVE
    solve_on_support(plan.R, work.z, work.state, plan.sum_to_one, work.a, work.U, work.T, work.s, work.u)
    return 0
