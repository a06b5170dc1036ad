"""Solvers of a single pixel as scalar functions, compiled for the CPU and for CUDA alike.

Each takes the plan of the run, a work area that holds the pixel's ``z`` and ``f``, and the scale that duals are
measured against. It leaves the abundances in ``work.a`` and returns its steps, where a step is one column that entered
or left. Names: ``E = QR``, ``z = Qᵀy``, ``f = Eᵀy = Rᵀz``, ``G = EᵀE``, dual ``w = f − G a``, ``H`` the inverse of G on
the support, updated by `unmix.solvers.pixels.inverse_update`.
"""

from typing import Any, NamedTuple

from ...compiled.jit import compiled
from .inverse_update import add_column, remove_column

# The search of a pixel ends after 6 p + 20 steps and leaves it to the certificate and to double-double arithmetic;
# pixels of real scenes take at most 22 (p = 25).
STEPS_PER_ENDMEMBER = 6

FREE, PASSIVE, BARRED = 0, 1, 2  # states of a column


class Plan(NamedTuple):
    """Data that all pixels of a run share; p endmembers, L bands in use; float64 unless stated."""

    E: Any  # (L, p), one endmember a column; under Σa = 1 less their mean (all but E then include a constant band)
    Q: Any  # (L, p); Q R⁻ᵀ for the solver ``planned``
    R: Any  # (p, p)
    packed_index: Any  # unmix.solvers.pixels.active_set.index_of_entries, (0, 0) for solvers without a tableau
    U: Any  # (p, p) Gram matrix of the columns at unit length
    G: Any  # (p, p) = EᵀE
    inverse: Any  # (p, p) = G⁻¹, from which delete-only starts
    norms: Any  # (p,) = |e_j|, with the constant band
    weights: Any  # (p,) = 1/|e_j|
    sizes: Any  # (p,) lengths against which the certificate measures duals
    slopes: Any  # (p,) for the duality gap if E lacks full rank
    curvature: float  # a lower bound of σ_min(E)², for δ
    centre: float  # the length of the mean endmember that was subtracted, or 0
    blur: float  # by how much an endmember may be off, over its length in ``norms``: see `unmix.certificate.blur_of`
    dual_tolerance: float  # a dual below this, relative to |e_j| and the pixel's scale, is zero
    lift: float  # added to each Eᵀy by the constant band: its height squared
    lifts: Any  # (p,) added to each Qᵀy by the constant band; G⁻¹ 1 for ``planned``
    sum_to_one: bool
    nonnegative: bool
    models: Any  # `unmix.solvers.pixels.mesma.tables.Models` for `mesma`; the value of a feature's search; else (0, 0)
    penalty: Any  # (p,) subtracted from each Eᵀy and each dual (`unmix.problem.Problem`); (0,) if there is none


class Work(NamedTuple):
    """Scratch of one pixel, reused for the next."""

    z: Any  # (p,) Qᵀy
    f: Any  # (p,) Eᵀy
    a: Any  # (p,) the abundances
    x: Any  # (p,) the optimum on the support, in the order of ``support``
    s: Any  # (p,) H·1
    u: Any  # (p,)
    H: Any  # (p, p)
    U: Any  # (p, p) orthonormal rows of the last solve
    T: Any  # (p, p) the triangular factor of the last solve
    support: Any  # (p,) int64
    state: Any  # (p,) int64: FREE, PASSIVE or BARRED


@compiled
def optimum(G, f, H, support, k, sum_to_one, x, s, u):
    """Write the least squares optimum on the support; return Σa = 1's multiplier, which all passive duals equal."""
    # x = H f (Li and Li, eq. 11 with the sum). H loses half the digits where cond(E) is 1e4 and more; one step of
    # refinement recovers them for O(k²).
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
            change = 0.0
            row_sum = 0.0
            for m in range(k):
                change += H[i, m] * u[m]
                row_sum += H[i, m]
            x[i] += change
            s[i] = row_sum
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
    """Solve least squares on the passive columns of R, ascending; return False, with ``a`` zero, if dependent."""
    # Modified Gram-Schmidt on [R_P | z]: its error grows with cond(E), H's with cond(E)². Column j of R ends at row
    # j, so the sums are short.
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
        projection = 0.0
        for i in range(j + 1):
            U[k, i] /= length
            projection += U[k, i] * u[i]
        for i in range(j + 1):
            u[i] -= projection * U[k, i]
        s[k] = projection
        k += 1
    # s holds U z. Back substitution turns it into the abundances of the support, which are then copied to their places
    # in a.
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
        for _ in range(2):  # twice: if pixels are far brighter than endmembers, the first leaves |s| of rounding
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
    """Return the first endmember that fits the pixel best on its own, or −1 if none is better than zero."""
    best = -1
    least_cost = 0.0
    for j in range(f.shape[0]):
        if plan.sum_to_one:
            cost = plan.G[j, j] - 2.0 * f[j]
        else:
            cost = -(max(f[j], 0.0) ** 2) / plan.G[j, j]
        if (best < 0 and plan.sum_to_one) or cost < least_cost:
            best = j
            least_cost = cost
    return best


@compiled
def entering(plan, work, k, multiplier, scale):
    """Return the free column with the largest dual, or −1 if none is above the tolerance."""
    best = -1
    largest = 0.0
    for j in range(work.f.shape[0]):
        if work.state[j] != FREE:
            continue
        dual = work.f[j] - multiplier
        for i in range(k):
            dual -= plan.G[j, work.support[i]] * work.a[work.support[i]]
        if dual <= plan.dual_tolerance * plan.norms[j] * scale:
            continue
        if dual > largest:
            best = j
            largest = dual
    return best


@compiled
def descend(plan, work, k, j):
    """Move from feasible abundances to the optimum on their support; columns that would be negative leave."""
    # Returns the support's size, the multiplier of Σa = 1, whether column j (just entered) was the last to leave, which
    # bars it, and the number of columns that left.
    stuck, steps, multiplier = False, 0, 0.0
    while k > 0:
        multiplier = optimum(plan.G, work.f, work.H, work.support, k, plan.sum_to_one, work.x, work.s, work.u)
        reach = 1.0
        leaving = -1
        for i in range(k):
            if work.x[i] <= 0.0:
                abundance = work.a[work.support[i]]
                fraction = abundance / (abundance - work.x[i]) if abundance > work.x[i] else 0.0
                if leaving < 0 or fraction < reach:
                    leaving = i
                    reach = fraction
        for i in range(k):
            column = work.support[i]
            work.a[column] += reach * (work.x[i] - work.a[column])
        if leaving < 0:
            break
        column = work.support[leaving]
        work.a[column] = 0.0
        stuck = column == j
        work.state[column] = BARRED if stuck else FREE
        k = remove_column(work.H, work.support, k, leaving, work.u)
        steps += 1
    return k, multiplier, stuck, steps


@compiled
def lawson_hanson(plan, work, k, multiplier, scale):
    """Run Lawson-Hanson from the optimum on a support of k positive abundances; return the new k and the steps."""
    # Li and Li's Algorithm 2. Every outer step lowers the residual, so no support comes twice; a column that rounding
    # removes as soon as it has entered is barred until another one enters and stays.
    p = work.f.shape[0]
    steps = 0
    while steps < STEPS_PER_ENDMEMBER * p + 20:
        j = entering(plan, work, k, multiplier, scale)
        if j < 0:
            break
        new_k = add_column(plan.G, work.H, work.support, k, j, work.u)
        if new_k == k:
            work.state[j] = BARRED
            continue
        k = new_k
        work.state[j] = PASSIVE
        work.a[j] = 0.0
        steps += 1
        k, multiplier, stuck, left = descend(plan, work, k, j)
        steps += left
        if not stuck:
            for i in range(p):
                if work.state[i] == BARRED:
                    work.state[i] = FREE
    return k, steps


@compiled
def start_cold(plan, work):
    """Empty the support, then add the best single endmember; returns k, 0 or 1, and the multiplier."""
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
    """Solve by Li and Li's Algorithm 2: Lawson-Hanson from the empty set, largest dual first, by the inverse alone."""
    for j in range(work.a.shape[0]):
        work.state[j] = FREE
        work.a[j] = 0.0
    k, multiplier = start_cold(plan, work) if plan.sum_to_one else (0, 0.0)  # an empty support cannot sum to one
    first = k
    _, steps = lawson_hanson(plan, work, k, multiplier, scale)
    return steps + first


@compiled
def delete_only(plan, work, scale):
    """Solve by Li and Li's Algorithm 3, not exactly: from all endmembers, remove the negative one of largest |z/s|."""
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
        largest = 0.0
        for i in range(k):
            if work.x[i] < 0.0:
                offset = abs(work.x[i] / work.s[i]) if work.s[i] != 0.0 else 1e300
                if leaving < 0 or offset > largest:
                    leaving = i
                    largest = offset
        if leaving < 0:
            break
        k = remove_column(work.H, work.support, k, leaving, work.u)
    for i in range(k):
        work.a[work.support[i]] = work.x[i]
    return p - k


@compiled
def direct(plan, work, scale):
    """Solve least squares on all endmembers, with or without the sum to one; there is no search."""
    for j in range(work.a.shape[0]):
        work.state[j] = PASSIVE
    solve_on_support(plan.R, work.z, work.state, plan.sum_to_one, work.a, work.U, work.T, work.s, work.u)
    return 0
