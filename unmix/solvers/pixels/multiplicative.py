"""Multiplicative updates (`unmix.solvers.nnqp.updates`) for one pixel, with the support that shows solved.

Convergence is slow, 21 % of Jasper's pixels are certified after 1e3 steps; so after 16, 32, 64, … steps the support that shows is
solved, and the optimality conditions decide (`unmix.arrays.nnqp` for systems of any size).
"""

from ...compiled.cooperative import ALONE
from ...compiled.jit import compiled
from ..nnqp.updates import Dense, updates_function
from .scalar import BARRED, PASSIVE, solve_on_support

# Entries below this share of the largest are left out where the support is solved.
SMALL = 1e-3
# A dual of the solved support up to this, relative to |e_j||y|, ends the search: a tenth of what is certified.
ENOUGH = 1e-11
# After so many steps the support is solved for the first time, after twice as many again, and so on to the last.
FIRST_TRIAL, MOST_STEPS = 16, 10_000


@compiled
def support_is_optimal(plan, work, scale):
    """Solve the support that shows in ``work.a``, into ``work.x``; whether it fulfils the optimality conditions."""
    p = work.a.shape[0]
    largest = 0.0
    for j in range(p):
        largest = max(largest, work.a[j] * plan.norms[j])
    for j in range(p):
        work.state[j] = PASSIVE if work.a[j] * plan.norms[j] > SMALL * largest else BARRED
    if not solve_on_support(plan.R, work.z, work.state, False, work.x, work.U, work.T, work.s, work.u):
        return False
    for j in range(p):
        dual = work.f[j]
        for i in range(p):
            dual -= plan.G[j, i] * work.x[i]
        if work.x[j] < 0.0 or dual > ENOUGH * plan.norms[j] * scale:
            return False
    return True


update_pixel = updates_function(ALONE, "dense")


@compiled
def multiplicative(plan, work, scale):
    """One pixel (`unmix.solvers.pixels.scalar`): Q = G, h = −f; where no support was optimal by the last step, what the steps gave."""
    p = work.a.shape[0]
    h = work.H[0]
    for j in range(p):
        h[j] = -work.f[j]
        work.a[j] = scale / (p * plan.norms[j])
    steps, trial = 0, FIRST_TRIAL
    while scale > 0.0 and steps < MOST_STEPS:
        k = 0
        for j in range(p):
            if work.a[j] > 0.0:
                work.support[k] = j
                k += 1
        trial = min(trial, MOST_STEPS)
        update_pixel(Dense(plan.G), h, work.a, work.support, k, work.s, work.u, trial - steps, work.x)
        steps, trial = trial, 2 * trial
        if support_is_optimal(plan, work, scale):
            for j in range(p):
                work.a[j] = work.x[j]
            break
    return steps
