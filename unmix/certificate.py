"""The proof: how far each pixel is from its optimum, from the pixel, the endmembers and the abundances alone.

Nothing here knows how the abundances were found. κ is the largest violation of the optimality conditions, relative to
the sizes of what it is made of; δ bounds the distance of the abundances from the optimum, the rounding of its own
arithmetic included. docs/methods.md has the proof, term by term.
"""

import functools
from typing import Any

import numpy as np

from .compiled.jit import compiled
from .compiled.simd import Width

# What a pixel is; `gather` decides.
SOLVED, PARTLY, MASKED = 0, 1, 2
# Up to here the optimality conditions hold. Solvers reach 1e-14; 1e-6 lets wrong supports through with abundances off by 1e-2.
CERTIFIED = 1e-10
# A certified pixel's abundances are no further from the optimum than this, unless the user asks for another limit.
MOST_DELTA = 1e-4
# A pixel is proved again in double-double arithmetic where δ is above this, whatever κ says: near to collinear endmembers
# hide large errors behind a small κ.
FARTHEST = 1e-6
# The unit roundoff of float64; a hundredth more pays for all terms of second order.
ROUNDING = 1.01 * 2.0**-53
# Added to the square of a violation, so that what underflows is not taken for nothing.
UNDERFLOW = 1e-280
# κ is no less than this times the duality gap over ½ s²: κ ≤ 1e-10 then says that the gap is at most 1e-12 of it.
GAP_WEIGHT = 100.0


@functools.cache
def certify_function(ops: Width) -> Any:
    """``certify``, which certifies a tile: it fills rmse, kappa and delta.

    With residual ``r = y − E a`` and dual ``w = Eᵀr``: λ is 0, for the sum to one ``aᵀw / Σa`` under a ≥ 0 and else the mean of w, and
    ``v_j = w_j − λ``. Where a_j = 0 under a ≥ 0 only its positive part counts.

    ``κ = max_j |v_j| / (|e_j| s)``, with ``s = |y|``; for the sum to one the longest column stands for all |e_j|, and s is no less.
    Where abundances may be negative, s is no less than Σ|e_j||a_j|. κ is no less than max(−a_j), than |Σa − 1| over max(1, Σ|a_j|), and
    than 100 times the duality gap over ½ s².

    ``δ = |v + ρ|₂ / σ²``, where ρ bounds the rounding of v: f is σ²-strongly convex, hence ``σ²|a − a*|² ≤ vᵀ(a* − a)``.

    Parameters
    ----------
    ops : Width
        How many pixels stand side by side, ``width``; what follows are the arguments of ``certify``, in order.
    E : array (L, p), float64
        Endmembers; for the sum to one less their mean, as the pixels: a shift of both changes nothing.
    sizes : array (p,), float64
        |e_j|, of the columns of E.
    slopes : array (p,), float64
        ``e_jᵀc`` for a vector c of length 1 with which all are positive, for the duality gap where curvature is 0; zeros where there is
        none. (0,): κ says nothing of the gap.
    curvature : float
        σ², a lower bound of σ_min(E)², for the sum to one of E on vectors that sum to 0; 0 where E has no full rank: δ is infinite.
    sum_to_one, nonnegative : bool
        The constraints.
    Y, A : arrays (L, width) and (p, width), float64
        Pixels and abundances, one pixel a column.
    W : array (p, width), float64
        Scratch: the duals.
    rmse, kappa, delta : arrays (1, width), float64
        Results; rmse is ``sqrt(|y − E a|² / L)``. ``delta`` holds a bound that is known from elsewhere, or infinity.
    """
    load, store, fma, broadcast, root = ops.load, ops.store, ops.fma, ops.broadcast, ops.root
    verdict = verdict_function(ops)

    @compiled
    def certify(E, sizes, slopes, curvature, sum_to_one, nonnegative, Y, A, W, rmse, kappa, delta):
        L, p = E.shape
        for j in range(p):
            store(W, j, broadcast(0.0))
        length, square = broadcast(0.0), broadcast(0.0)
        for b in range(0, L, 4):  # four bands a turn: A and W are loaded and stored a quarter as often
            b1, b2, b3 = min(b + 1, L - 1), min(b + 2, L - 1), min(b + 3, L - 1)
            in1, in2, in3 = 1.0 * (b + 1 < L), 1.0 * (b + 2 < L), 1.0 * (b + 3 < L)
            r0, r1, r2, r3 = load(Y, b), load(Y, b1) * in1, load(Y, b2) * in2, load(Y, b3) * in3
            length = fma(r3, r3, fma(r2, r2, fma(r1, r1, fma(r0, r0, length))))
            for j in range(p):
                a = load(A, j)
                r0 = fma(broadcast(-E[b, j]), a, r0)
                r1 = fma(broadcast(-E[b1, j] * in1), a, r1)
                r2 = fma(broadcast(-E[b2, j] * in2), a, r2)
                r3 = fma(broadcast(-E[b3, j] * in3), a, r3)
            for j in range(p):
                w = fma(broadcast(E[b, j]), r0, load(W, j))
                w = fma(broadcast(E[b1, j]), r1, w)
                w = fma(broadcast(E[b2, j]), r2, w)
                store(W, j, fma(broadcast(E[b3, j]), r3, w))
            square = fma(r3, r3, fma(r2, r2, fma(r1, r1, fma(r0, r0, square))))
        store(rmse, 0, root(square / float(L)))
        verdict(sizes, slopes, curvature, sum_to_one, nonnegative, L, A, W, root(length), root(square), kappa, delta)

    return certify


@functools.cache
def verdict_function(ops: Width) -> Any:
    """``verdict``: κ and δ of a tile from its duals W, and the lengths of its pixels and of what is left of them."""
    load, store, fma, select, broadcast, root = ops.load, ops.store, ops.fma, ops.select, ops.broadcast, ops.root

    @compiled
    def verdict(sizes, slopes, curvature, sum_to_one, nonnegative, L, A, W, length, left, kappa, delta):
        zero, one, endless = broadcast(0.0), broadcast(1.0), broadcast(np.inf)
        p = A.shape[0]
        total, absolute, reach, members, multiplier, longest = zero, zero, zero, zero, zero, 0.0
        for j in range(p):
            a = load(A, j)
            size = select(a < 0.0, zero - a, a)
            total, absolute = total + a, absolute + size
            reach = fma(size, broadcast(sizes[j]), reach)
            members = members + select(a == 0.0, zero, one)
            longest = max(longest, sizes[j])
            if sum_to_one:
                multiplier = fma(a if nonnegative else one, load(W, j), multiplier)
        scale, apart, worst = length, zero, zero
        if sum_to_one:
            scale = select(length > longest, length, broadcast(longest))
            weight = total if nonnegative else broadcast(float(p))
            multiplier = select(weight == 0.0, zero, multiplier / select(weight == 0.0, one, weight))
            over = total - 1.0
            over = select(over > 0.0, over, zero - over)
            worst = over / select(absolute > 1.0, absolute, one)
            apart = over + absolute * (p * ROUNDING)  # how far the sum is from 1, at most
        if not nonnegative:  # abundances of both signs may be far larger than the pixel, and their rounding with them
            scale = select(reach > scale, reach, scale)
        # What rounding may have done to a dual, over |e_j|: y − E a by k + 2 roundings, where k are
        # not 0, Eᵀr by L + 2, and the sum that is not 1.
        rounding = (left * (L + 2.0) + (length + reach) * (members + 2.0)) * ROUNDING + apart * longest
        violation, steepest, highest, along, slope, below = zero, zero, zero, zero, zero, zero
        gaps = slopes.shape[0] > 0
        for j in range(p):
            a, v = load(A, j), load(W, j) - multiplier
            margin = rounding * sizes[j]
            size = select(v < 0.0, zero - v, v)
            most = size + margin  # of the true dual
            if nonnegative:
                below = select(zero - a > below, zero - a, below)
                high = select(v + margin > 0.0, v + margin, zero)
                size = select((a <= 0.0) & (v < 0.0), zero, size)
                most = select(a <= 0.0, high, most)
                highest = select(high > highest, high, highest)
                if gaps:
                    part = high * broadcast(1.0 / slopes[j] if slopes[j] > 0.0 else np.inf)
                    slope = select(part > slope, part, slope)
                along = fma(a, most, along)
            violation = fma(most, most, violation)
            against = longest if sum_to_one else sizes[j]
            steep = size * broadcast(1.0 / against if against > 0.0 else 0.0)
            steepest = select(steep > steepest, steep, steepest)
        least = root(violation)
        violation = violation + UNDERFLOW
        gap = endless if gaps else zero
        far = load(delta, 0)
        if curvature > 0.0:
            inverse = broadcast(1.0 / curvature)
            general = fma(root(violation), inverse, apart)
            far = select(general < far, general, far)
            far = select(below > 0.0, endless, far)
            if gaps:
                reach = least * inverse
                gap = least * select(reach < far, reach, far)
        if sum_to_one and nonnegative:
            gap = select(highest + along < gap, highest + along, gap)
        elif nonnegative and gaps:  # the dual point y − E a − slope c
            for j in range(p):
                along = fma(load(A, j) * slopes[j], slope, along)
            along = fma(slope * 0.5, slope, along)
            gap = select(along < gap, along, gap)
        unit = one / select(scale > 0.0, scale, one)
        behind = gap * unit * (2.0 * GAP_WEIGHT) * unit
        relative = steepest * unit
        relative = select(behind > relative, behind, relative)
        relative = select(scale > 0.0, relative, select(steepest > 0.0, endless, zero))
        worst = select(below > worst, below, worst)
        worst = select(relative > worst, relative, worst)
        # A NaN compares with nothing, and an overflow divides everything to zero: neither may pass.
        sound = (violation - violation == 0.0) & (scale - scale == 0.0)
        store(kappa, 0, select(sound, worst, endless))
        store(delta, 0, select(sound, far, endless))

    return verdict
