"""Steps of the search for abundances alike between neighbours, on an endmember's image (lines, samples), float64.

The state of an abundance, or of a difference between neighbours, is its dual plus ρ times its value;
`unmix.arrays.spatial` has the method. An edge belongs to the pixel on its left, or above it.
"""

from ..compiled.jit import compiled

# How far a step goes, of the whole way being 1: with that searches took 1.6 times as many; from 1.6 to 1.9 all were
# alike.
RELAXATION = 1.8


@compiled
def dual_of(state, cost, rho, smooth):
    """Return the dual of a difference: the state clipped to its cost, or for half the square a share of it."""
    return state * cost / (cost + rho) if smooth else min(max(state, -cost), cost)


@compiled
def flow(state, cost, rho, smooth):
    """Return ρ times the value of a difference, less its dual."""
    return state - 2.0 * dual_of(state, cost, rho, smooth)


@compiled
def right_side(F, V, W, U, across, down, rho, smooth, right):
    """Fill ``right`` (lines, S), the right-hand side of an endmember's linear system, from states V, W, U."""
    n, S = F.shape
    for i in range(n):
        for s in range(S):
            right[i, s] = F[i, s] + abs(V[i, s])
            right[i, s] -= flow(W[i, s], across[i, s], rho, smooth) + flow(U[i, s], down[i, s], rho, smooth)
        for s in range(1, S):
            right[i, s] += flow(W[i, s - 1], across[i, s - 1], rho, smooth)
        if i > 0:
            for s in range(S):
                right[i, s] += flow(U[i - 1, s], down[i - 1, s], rho, smooth)


@compiled
def step_lines(a, V, W, U, across, down, rho, smooth):
    """Step the states of an endmember with abundances (lines, S); return squared moves of ρ × values and duals."""
    n, S = a.shape
    near, far = 0.0, 0.0
    for i in range(n):
        for s in range(S):
            before = min(V[i, s], 0.0)
            step = RELAXATION * (rho * a[i, s] - V[i, s] + before)
            V[i, s] += step
            moved = min(V[i, s], 0.0) - before
            near += (step - moved) ** 2
            far += moved**2
        for state, cost, next_line, next_sample in ((W, across, 0, 1), (U, down, 1, 0)):
            for s in range(S - next_sample if i + next_line < n else 0):
                before = dual_of(state[i, s], cost[i, s], rho, smooth)
                step = RELAXATION * (rho * (a[i + next_line, s + next_sample] - a[i, s]) - state[i, s] + before)
                state[i, s] += step
                moved = dual_of(state[i, s], cost[i, s], rho, smooth) - before
                near += (step - moved) ** 2
                far += moved**2
    return near, far
