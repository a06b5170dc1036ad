"""Multiplicative updates (`unmix.solvers.nnqp.updates`) for one pixel, with exact solves on the emerging support.

Convergence is slow: 21 % of Jasper's pixels are certified after 1e3 steps. So after 16, 32, 64, … steps least squares is solved on the
entries that are not negligible, and its solution is the answer if it meets the optimality conditions (`unmix.arrays.nnqp` does the
same for systems of any size).
"""

from ...compiled.cooperative import ALONE
from ...compiled.jit import compiled
from ..nnqp.updates import Dense, updates_function
from .scalar import BARRED, PASSIVE, solve_on_support

# Entries up to this share of the largest (each times |e_j|) are left out of the support that is solved.
SMALL = 1e-3
# If no dual of the solved support is above this, relative to |e_j||y|, the search ends: a tenth of what is certified.
ENOUGH = 1e-11
# Steps before the support is solved for the first time (then after twice as many, and so on), and the most steps.
FIRST_TRIAL, MOST_STEPS = 16, 10_000


@compiled
def support_is_optimal(plan, work, scale):
    """Solve least squares on the support of ``work.a`` into ``work.x``; returns True if that meets the optimality conditions."""
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
    """Solve one pixel as in `unmix.solvers.pixels.scalar`, with Q = G, h = −f; without an optimal support keep the last iterate."""
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
