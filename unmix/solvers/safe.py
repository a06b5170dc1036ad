"""The slow, safe search: Lawson-Hanson with a QR at every step, for what updates of an inverse cannot be trusted with.

It serves pixels that fail their certificate, and all pixels where cond(E) is above 1e4; right to cond(E) 1e8. Same
signature as the functions of `pixel`.
"""

from .jit import compiled
from .pixel import BARRED, FREE, PASSIVE, start_cold


@compiled
def orthogonalise(plan, column, base, U, k, out):
    """A column of R (less that of ``base``, for the sum to one), made orthogonal to the first k rows of U.

    Twice, where much of it goes: what is left is then right to rounding *of what is left*. Returns |before| and |after|.
    """
    p = out.shape[0]
    before = 0.0
    for i in range(p):
        out[i] = plan.R[i, column] - (plan.R[i, base] if base >= 0 else 0.0)
        before += out[i] * out[i]
    after = before
    for _ in range(2):
        for m in range(k):
            overlap = 0.0
            for i in range(p):
                overlap += U[m, i] * out[i]
            for i in range(p):
                out[i] -= overlap * U[m, i]
        after = 0.0
        for i in range(p):
            after += out[i] * out[i]
    return before**0.5, after**0.5


@compiled
def solve_safely(plan, work, base):
    """Least squares on the passive columns by QR; for the sum to one on their differences to ``base``, which has the rest.

    Leaves the optimum in ``work.x``, the orthonormal rows in ``work.U``, and in ``work.u`` what of z they do not reach.
    Returns how many rows, or −1 where the columns are dependent.
    """
    p = work.z.shape[0]
    for i in range(p):
        work.u[i] = work.z[i] - (plan.R[i, base] if base >= 0 else 0.0)
        work.x[i] = 0.0
    k = 0
    for j in range(p):
        if work.state[j] != PASSIVE or j == base:
            continue
        before, after = orthogonalise(plan, j, base, work.U, k, work.U[k])
        if not after > 1e-13 * before:
            return -1
        for m in range(k):
            work.T[m, k] = 0.0
            for i in range(p):
                work.T[m, k] += work.U[m, i] * (plan.R[i, j] - (plan.R[i, base] if base >= 0 else 0.0))
        work.T[k, k] = after
        along = 0.0
        for i in range(p):
            work.U[k, i] /= after
            along += work.U[k, i] * work.u[i]
        for i in range(p):
            work.u[i] -= along * work.U[k, i]
        work.s[k] = along
        work.support[k] = j
        k += 1
    rest = 1.0
    for i in range(k - 1, -1, -1):
        for m in range(i + 1, k):
            work.s[i] -= work.T[i, m] * work.s[m]
        work.s[i] /= work.T[i, i]
        work.x[work.support[i]] = work.s[i]
        rest -= work.s[i]
    if base >= 0:
        work.x[base] = rest
    return k


@compiled
def safe(plan, work, scale):
    """The slow path, exact to cond(E) 1e8: Lawson-Hanson with a new QR at every step, no inverse.

    A dual is the product of what is left of the pixel with what is left of the column, each beside the support: near a
    support that almost spans the column both are small, and their product is right to rounding of the small. From
    ``f − G a`` it would be right to rounding of |e|·|y|, and abundances to cond(E)² of that.
    """
    p = work.f.shape[0]
    start_cold(plan, work)
    steps = 0
    while steps < 100 * p:
        base = -1
        if plan.sum_to_one:
            for j in range(p):
                if work.state[j] == PASSIVE and (base < 0 or work.a[j] > work.a[base]):
                    base = j
        best = -1
        most = 0.0
        k = solve_safely(plan, work, base)
        for j in range(p):
            if work.state[j] != FREE:
                continue
            _, left = orthogonalise(plan, j, base, work.U, k, work.f)
            dual = 0.0
            for i in range(p):
                dual += work.f[i] * work.u[i]
            if dual > 1e-15 * left * scale and dual > most * left:
                best = j
                most = dual / left
        if best < 0:
            break
        work.state[best] = PASSIVE
        barred = False
        while steps < 100 * p:
            steps += 1
            if solve_safely(plan, work, base) < 0:
                work.state[best] = BARRED
                barred = True
                continue
            reach = 1.0
            leaving = -1
            for j in range(p):
                if work.state[j] == PASSIVE and work.x[j] <= 0.0:
                    part = work.a[j] / (work.a[j] - work.x[j]) if work.a[j] > work.x[j] else 0.0
                    if leaving < 0 or part < reach:
                        leaving = j
                        reach = part
            for j in range(p):
                work.a[j] += reach * (work.x[j] - work.a[j])
            if leaving < 0:
                break
            work.a[leaving] = 0.0
            barred = leaving == best
            work.state[leaving] = BARRED if barred else FREE
            if leaving == base:
                for j in range(p):
                    if work.state[j] == PASSIVE and (work.state[base] != PASSIVE or work.a[j] > work.a[base]):
                        base = j
        if not barred:
            for j in range(p):
                if work.state[j] == BARRED:
                    work.state[j] = FREE
    return steps
