"""The certificate: bound the distance of a pixel's abundances from the optimum by these, pixel and endmembers alone.

Nothing here depends on the solver that found the abundances. κ is the largest violation of the optimality conditions,
relative to the sizes of its terms; δ bounds the distance of the abundances from the optimum, including the rounding
errors of computing δ itself. docs/methods.md has the proofs, term by term.

δ by a face (`face_function`), by the condition of the columns that an optimum may use instead of all endmembers. The
face K holds the support at first. Let g be ``v + ρ`` on K, over the columns' lengths, and σ the smallest singular value
of the columns of K at unit length. Then the optimum over K is no further from a than ``|g| / σ²`` (in abundances times
lengths), and its residual no further than ``|g| / σ`` from the residual of a. So the dual of any other column is below
``v_j + ρ_j + |e_j||g| / σ``; if that is negative for all, the optimum over K is the optimum, and unique. A column for
which it is not joins K. It needs neither full rank nor fewer columns than bands.

A column that depends on K would have the dual 0, were it not for the rounding of the spectra: by ``ε|e_j|`` each, it
moves the dual by up to ``ε|e_j||r| (1 + √k / σ)``. So columns with duals above minus that join K, too, which is then
dependent. σ² is no less than ``1 / |T⁻¹|²`` (Frobenius), T the Cholesky factor of the Gram matrix of K, less the
rounding of both.
"""

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from .compiled.jit import Team, Width, compiled, inlined

# State of a pixel, set by `unmix.solvers.pixels.gather`: solved; not solved since some used bands are nodata; or all of
# them.
SOLVED, PARTLY, MASKED = 0, 1, 2
# Abundances, RMSE and the rest of a pixel that is not solved.
NODATA = -9999.0
# The largest κ of a certified pixel. Solvers reach 1e-14; a limit of 1e-6 accepts wrong supports, with abundances off
# by 1e-2.
CERTIFIED = 1e-10
# The largest δ of a certified pixel, unless the user sets `max_delta`.
MOST_DELTA = 1e-4
# A pixel with a larger δ is solved and certified again in double-double arithmetic, even if its κ is small: nearly
# collinear endmembers hide large errors behind a small κ.
FARTHEST = 1e-6
UNIT_ROUNDOFF = 1.01 * 2.0**-53  # of float64, a hundredth larger to cover all terms of second order
# Added to the square of the violation, so that terms that underflow are not counted as zero.
UNDERFLOW = 1e-280
# κ is at least this times the duality gap over ½ s²: κ ≤ 1e-10 then implies that the gap is at most 1e-12 of ½ s².
GAP_WEIGHT = 100.0
# Rows of ``terms``: λ; the bound of a dual's rounding over |e_j|; the bound of |Σa − 1|; s; κ without the duality gap,
# infinite where nothing follows from the duals; a bound of |y − E a|; and `worth_of_sum`.
MULTIPLIER, MARGIN, SUM_ERROR, SCALE, BARE, LEFT, WORTH = range(TERMS := 7)
# Abundances that are all 0, and proved to within this of it, are those of a pixel without light: the square of such a
# pixel is 0 in float64 (`settle_function` of unmix.solvers.pixels.tile).
DARK = 1e-100
# Spectra are rounded when they are read, scaled, resampled and weighted: an endmember of L bands is known to this many
# units of rounding of its length, and L more. Where that decides which of dependent ones a pixel has, the optimum is
# not unique.
ROUNDINGS_OF_SPECTRA = 16
# The most columns of a `Face`. Of mixtures of 948 minerals the largest support was 53.
MOST_COLUMNS = 96


@functools.cache
def certify_function(ops: Width) -> Any:
    """Return the compiled function ``certify``, which fills rmse, kappa and delta of a tile of pixels.

    With residual ``r = y − E a`` and dual ``w = Eᵀr``: λ is 0, for the sum to one ``aᵀw / Σa`` under a ≥ 0 and else the
    mean of w, and ``v_j = w_j − λ``. Where a_j = 0 under a ≥ 0, only its positive part counts.

    ``κ = max_j |v_j| / (|e_j| s)``, with ``s = |y|``; for the sum to one the longest column replaces every |e_j|, and s
    is at least that. Where abundances may be negative, s is at least Σ|e_j||a_j|. κ is at least max(−a_j), |Σa − 1|
    over max(1, Σ|a_j|), and 100 times the duality gap over ½ s², with what |Σa − 1| is worth: the gap is taken at a
    divided by its sum.

    ``δ = |v + ρ|₂ / σ²``, where ρ bounds the rounding of v: f is σ²-strongly convex, hence ``σ²|a − a*|² ≤ vᵀ(a* −
    a)``.

    Parameters
    ----------
    ops : Width
        The vector operations, and how many pixels a tile has (``width``). The following are the arguments of
        ``certify``, in order.
    E : array (L, p), float64
        Endmembers. For the sum to one, the mean endmember is subtracted from them and from the pixels: this changes no
        abundance.
    sizes : array (p,), float64
        |e_j|, the lengths of the columns of E.
    slopes : array (p,), float64
        ``e_jᵀc`` for a vector c of length 1 with which all are positive, for the duality gap where curvature is 0.
        Columns that can mix to zero, as a background of either sign, have −1/(σ|e_j|), σ their least singular
        value above 0 at unit length: the dual point is orthogonal to them, as c is. Zeros where there is no such
        vector; with shape (0,), κ leaves the duality gap out.
    curvature : float
        σ², a lower bound of σ_min(E)² (for the sum to one, of E on vectors that sum to 0); 0 where E lacks full rank: δ
        is infinite.
    centre : float
        The length of the mean endmember that was subtracted; 0 if none was.
    sum_to_one, nonnegative : bool
        The constraints.
    penalty : array (p,) or (0,), float64
        Subtracted from each dual: f is then ``½ |y − E a|² + penaltyᵀa``, with a ≥ 0. All that is said of w holds of
        the difference, the slope of f with its sign changed; so does the duality gap, whose dual point satisfies ``Eᵀθ
        ≤ penalty``.
    Y, A : arrays (L, width) and (p, width), float64
        Pixels and abundances, one pixel a column.
    W : array (p, width), float64
        Scratch: the duals.
    rmse, kappa, delta : arrays (1, width), float64
        Results; rmse is ``sqrt(|y − E a|² / L)``. On entry ``delta`` holds a bound that is already known, or infinity.
    terms : array (7, width), float64
        Values of each pixel for `face_function`: the rows `MULTIPLIER` to `WORTH`.
    """
    load, store, fma, broadcast, root = ops.load, ops.store, ops.fma, ops.broadcast, ops.root
    lanes_of, first_of, all_lanes = ops.lanes_of, ops.first_of, 2**ops.width - 1
    verdict, picks = verdict_function(ops), ops.width > 1

    @inlined
    def subtract(E, A, j, b, b1, b2, b3, in1, in2, in3, r0, r1, r2, r3):
        """Subtract endmember j from four bands of a residual."""
        a = load(A, j)
        r0 = fma(broadcast(-E[b, j]), a, r0)
        r1 = fma(broadcast(-E[b1, j] * in1), a, r1)
        r2 = fma(broadcast(-E[b2, j] * in2), a, r2)
        return r0, r1, r2, fma(broadcast(-E[b3, j] * in3), a, r3)

    @inlined
    def add_bands(E, Y, A, W, used, b, b1, b2, b3, in1, in2, in3, yy, rr):
        """Add four bands to the duals, to |y|² and to |r|²; a band whose ``in1`` to ``in3`` is 0 adds nothing."""
        r0, r1, r2, r3 = load(Y, b), load(Y, b1) * in1, load(Y, b2) * in2, load(Y, b3) * in3
        yy = fma(r3, r3, fma(r2, r2, fma(r1, r1, fma(r0, r0, yy))))
        for j in range(E.shape[1] if used == 0 else 0):
            r0, r1, r2, r3 = subtract(E, A, j, b, b1, b2, b3, in1, in2, in3, r0, r1, r2, r3)
        while used != 0:
            r0, r1, r2, r3 = subtract(E, A, first_of(used), b, b1, b2, b3, in1, in2, in3, r0, r1, r2, r3)
            used &= used - 1
        for j in range(E.shape[1]):
            w = fma(broadcast(E[b, j]), r0, load(W, j))
            w = fma(broadcast(E[b1, j]), r1, w)
            w = fma(broadcast(E[b2, j]), r2, w)
            store(W, j, fma(broadcast(E[b3, j]), r3, w))
        return yy, fma(r3, r3, fma(r2, r2, fma(r1, r1, fma(r0, r0, rr))))

    @compiled
    def used_columns(A):
        """Return the columns that any lane uses (not 0, also NaN) as bits; 0 where that is not known."""
        used = 0
        for j in range(A.shape[0] if picks and A.shape[0] < 64 else 0):
            used |= (1 if lanes_of(load(A, j) == 0.0) != all_lanes else 0) << j
        return used

    @compiled
    def certify(
        E, sizes, slopes, curvature, centre, sum_to_one, nonnegative, penalty, Y, A, W, rmse, kappa, delta, terms
    ):
        L, p = E.shape
        for j in range(p):
            store(W, j, broadcast(0.0))
        yy, rr = broadcast(0.0), broadcast(0.0)  # |y|² and |r|²
        used, whole = used_columns(A), L - L % 4
        for b in range(0, whole, 4):  # four bands at a time: A and W are loaded and stored a quarter as often
            yy, rr = add_bands(E, Y, A, W, used, b, b + 1, b + 2, b + 3, 1.0, 1.0, 1.0, yy, rr)
        if whole < L:
            b1, b2, in1, in2 = whole + 1, whole + 2, 1.0 * (whole + 1 < L), 1.0 * (whole + 2 < L)
            b1, b2 = b1 if b1 < L else L - 1, b2 if b2 < L else L - 1
            yy, rr = add_bands(E, Y, A, W, used, whole, b1, b2, L - 1, in1, in2, 0.0, yy, rr)
        for j in range(penalty.shape[0]):
            store(W, j, load(W, j) - broadcast(penalty[j]))
        store(rmse, 0, root(rr / float(L)))
        y_norm, r_norm = root(yy), root(rr)
        verdict(sizes, slopes, curvature, centre, sum_to_one, nonnegative, L, A, W, y_norm, r_norm, kappa, delta, terms)

    return certify


@inlined
def worth_of_sum(multiplier, r_norm, centre, sum_error, beyond, longest):
    """Return by how much ½|y − E a|² may change when a is divided by its sum, which is off by ``sum_error``."""
    # To first order by λ, of size ``multiplier``, for each unit. Errors ``beyond`` the rounding of a sum, which is no
    # more than the spectra's rounding, count for the given spectra, too: by the residual along their mean, of length
    # ``centre``.
    apart, outer = longest * sum_error, centre * beyond
    return multiplier * sum_error + r_norm * outer + (apart + outer) * (apart + outer) * 0.5


@functools.cache
def verdict_function(ops: Width) -> Any:
    """Return ``verdict``, which computes κ and δ of a tile from its duals W and norms of pixels and residuals."""
    load, store, fma, select, broadcast, root = ops.load, ops.store, ops.fma, ops.select, ops.broadcast, ops.root

    @compiled
    def verdict(
        sizes, slopes, curvature, centre, sum_to_one, nonnegative, L, A, W, y_norm, r_norm, kappa, delta, terms
    ):
        zero, one, infinity = broadcast(0.0), broadcast(1.0), broadcast(np.inf)
        p = A.shape[0]
        total, absolute_sum, term_sum, nonzero, multiplier, longest = zero, zero, zero, zero, zero, 0.0
        for j in range(p):
            a = load(A, j)
            magnitude = select(a < 0.0, zero - a, a)
            total, absolute_sum = total + a, absolute_sum + magnitude
            term_sum = fma(magnitude, broadcast(sizes[j]), term_sum)
            nonzero = nonzero + select(a == 0.0, zero, one)
            longest = sizes[j] if sizes[j] > longest else longest
            if sum_to_one:
                multiplier = fma(a if nonnegative else one, load(W, j), multiplier)
        scale, sum_error, beyond, worst = y_norm, zero, zero, zero
        if sum_to_one:
            scale = select(y_norm > longest, y_norm, broadcast(longest))
            weight = total if nonnegative else broadcast(float(p))
            multiplier = select(weight == 0.0, zero, multiplier / select(weight == 0.0, one, weight))
            excess = total - 1.0
            excess = select(excess > 0.0, excess, zero - excess)
            worst = excess / select(absolute_sum > 1.0, absolute_sum, one)
            of_rounding = absolute_sum * (p * UNIT_ROUNDOFF)
            sum_error = excess + of_rounding  # upper bound of |Σa − 1|
            beyond = select(excess > 2.0 * of_rounding, excess - 2.0 * of_rounding, zero)
        if not nonnegative:  # E a may then be a difference of terms far larger than the pixel, and rounds like these
            scale = select(term_sum > scale, term_sum, scale)
        # Bound of a dual's rounding error over |e_j|: k + 2 roundings in y − E a, where k abundances are not 0, L + 2
        # in Eᵀr, and the error of the sum.
        off = (y_norm + term_sum) * (nonzero + 2.0) * UNIT_ROUNDOFF + sum_error * longest
        rounding = r_norm * ((L + 2.0) * UNIT_ROUNDOFF) + off
        violation, largest_ratio, most_negative = zero, zero, zero
        highest_dual, weighted_duals, slope = zero, zero, zero
        gaps = slopes.shape[0] > 0
        held = zero  # the residual along columns to which the dual point is orthogonal, bounded by their duals
        for j in range(p if gaps and curvature <= 0.0 else 0):
            v, weight = load(W, j), 0.0 if slopes[j] > 0.0 else -slopes[j]
            bound = (select(v < 0.0, zero - v, v) + rounding * sizes[j]) * broadcast(weight)
            held = fma(bound, bound, held)
        held = root(held)  # no part of the margin that `face_function` takes
        for j in range(p):
            a, v = load(A, j), load(W, j) - multiplier
            margin = (rounding + held) * sizes[j]
            magnitude = select(v < 0.0, zero - v, v)
            bound = magnitude + margin  # of the exact dual's magnitude
            if nonnegative:
                most_negative = select(zero - a > most_negative, zero - a, most_negative)
                upper = select(v + margin > 0.0, v + margin, zero)
                magnitude = select((a <= 0.0) & (v < 0.0), zero, magnitude)
                bound = select(a <= 0.0, upper, bound)
                highest_dual = select(upper > highest_dual, upper, highest_dual)
                if gaps and slopes[j] >= 0.0:
                    part = upper * broadcast(1.0 / slopes[j] if slopes[j] > 0.0 else np.inf)
                    slope = select(part > slope, part, slope)
                if not (gaps and slopes[j] < 0.0):
                    weighted_duals = fma(a, bound, weighted_duals)
            violation = fma(bound, bound, violation)
            column_size = longest if sum_to_one else sizes[j]
            ratio = magnitude * broadcast(1.0 / column_size if column_size > 0.0 else 0.0)
            largest_ratio = select(ratio > largest_ratio, ratio, largest_ratio)
        violation_norm = root(violation)
        violation = violation + UNDERFLOW
        gap = infinity if gaps else zero
        distance = load(delta, 0)
        if curvature > 0.0:
            inverse = broadcast(1.0 / curvature)
            general = fma(root(violation), inverse, sum_error)
            distance = select(general < distance, general, distance)
            distance = select(most_negative > 0.0, infinity, distance)
            if gaps:
                step = violation_norm * inverse
                gap = violation_norm * select(step < distance, step, distance)
        if sum_to_one and nonnegative:
            gap = select(highest_dual + weighted_duals < gap, highest_dual + weighted_duals, gap)
        elif nonnegative and gaps:  # duality gap at the dual point y − E a − slope c
            for j in range(p):
                weighted_duals = fma(load(A, j) * (0.0 if slopes[j] < 0.0 else slopes[j]), slope, weighted_duals)
            weighted_duals = fma((slope + held) * 0.5, slope + held, weighted_duals)
            gap = select(weighted_duals < gap, weighted_duals, gap)
        worth = zero
        if sum_to_one and nonnegative:
            size = select(multiplier < 0.0, zero - multiplier, multiplier)
            worth = worth_of_sum(size, r_norm, centre, sum_error, beyond, longest)
            gap = gap + worth
        inverse_scale = one / select(scale > 0.0, scale, one)
        gap_term = gap * inverse_scale * (2.0 * GAP_WEIGHT) * inverse_scale
        relative = select(scale > 0.0, largest_ratio * inverse_scale, select(largest_ratio > 0.0, infinity, zero))
        worst = select(most_negative > worst, most_negative, worst)
        worst = select(relative > worst, relative, worst)
        bare = worst
        worst = select((scale > 0.0) & (gap_term > worst), gap_term, worst)
        # Comparisons with NaN are false, and dividing by an overflow gives zero: neither may count as certified.
        sound = (violation - violation == 0.0) & (scale - scale == 0.0) & (rounding - rounding == 0.0)
        store(kappa, 0, select(sound, worst, infinity))
        store(delta, 0, select(sound, distance, infinity))
        store(terms, MULTIPLIER, multiplier)
        store(terms, MARGIN, rounding)
        store(terms, SUM_ERROR, sum_error)
        store(terms, SCALE, scale)
        store(terms, BARE, select(sound & (most_negative <= 0.0), bare, infinity))
        store(terms, LEFT, r_norm + off)
        store(terms, WORTH, worth)

    return verdict


def blur_of(L: int, share: float = 1.0) -> float:
    """Return ε, the error of an endmember of L bands over its length with the constant band (own length: ``share``)."""
    return (L + ROUNDINGS_OF_SPECTRA) * UNIT_ROUNDOFF * share


class Face(NamedTuple):
    """Scratch of ``face_function`` for p endmembers, at most ``most`` of them on the face."""

    columns: Any  # (most,) int64
    inside: Any  # (p,) uint8: 1 for columns of the face
    # (most, most + 1) float64: for T, the Cholesky factor of the columns' Gram matrix, entry (i, m) of T⁻¹ is at [i,
    # m], of T at [m, i + 1]
    factors: Any
    row: Any  # (most,) float64: the row of T that is computed


def face_shapes(p: int, most: int = MOST_COLUMNS) -> tuple[tuple[tuple[int, ...], Any], ...]:
    """Return shape and type of each field of `Face`."""
    most = min(p, most)
    return ((most,), np.int64), ((p,), np.uint8), ((most, most + 1), np.float64), ((most,), np.float64)


@inlined
def entry_of(U, i, j):
    """Return an entry of a Gram matrix."""
    return U[i, j]


@functools.cache
def extend_function(team: Team, product: Any = entry_of) -> Any:
    """Return ``extend``, which adds a column to a `Face`'s Cholesky factor and its inverse."""
    # ``product(U, i, j)`` returns the product of two columns at unit length.
    rank, size, sync, total = team.rank, team.size, team.sync, team.total

    @team.compile
    def extend(U, face, k, j, reduction_buffer):
        """Add column j as the face's k-th to the factor; return the inverse's gain in squares, inf if dependent."""
        columns, factors, row = face.columns, face.factors, face.row
        for i in range(rank(), k, size()):
            row[i] = product(U, columns[i], j)
        sync()
        square = product(U, j, j)
        for i in range(k):
            value = row[i] * factors[i, i]
            for m in range(i + 1 + rank(), k, size()):
                row[m] -= value * factors[i, m + 1]
            if rank() == 0:
                factors[i, k + 1] = value
            square -= value * value
            sync()
        if not square > 0.0:
            return np.inf
        length = math.sqrt(square)
        gained = 0.0
        for i in range(rank(), k, size()):
            value = 0.0
            for m in range(i, k):
                value -= factors[m, k + 1] * factors[m, i]
            value /= length
            factors[k, i] = value
            gained += value * value
        if rank() == 0:
            factors[k, k + 1], factors[k, k] = length, 1.0 / length
        sync()
        return total(gained, reduction_buffer) + 1.0 / square

    return extend


@functools.cache
def face_function(team: Team, product: Any = entry_of) -> Any:
    """Return the compiled ``bound_on_face``, which bounds distance to the optimum and duality gap by a face."""
    rank, size, sync, counted = team.rank, team.size, team.sync, team.counted
    extend = extend_function(team, product)

    @team.compile
    def mark(w, a, norms, sizes, multiplier, margin, blur, longest, reach, weighted, first, k, face, reduction_buffer):
        """Mark columns that join k others: first the support, then those of possibly dual ≥ 0; return their number."""
        found = 0
        for begin in range(0, a.shape[0], size()):
            j, joins = begin + rank(), False
            if j < a.shape[0]:
                v = w[j] - multiplier
                if first:
                    joins = a[j] > 0.0
                else:
                    v += margin * sizes[j] + (sizes[j] + longest) * reach + weighted
                    may = not v + norms[j] * blur < 0.0
                    joins = may and face.inside[j] == 0
                if first or joins:
                    face.inside[j] = 1 if joins else 0
            before, joining = counted(joins, reduction_buffer)
            if joins and k + found + before < face.columns.shape[0]:
                face.columns[k + found + before] = j
            found += joining
        sync()
        return found

    # U is the first argument of ``product`` or, without that, the Gram matrix (p, p) of the endmembers at unit length
    # (with the constant band for the sum to one), right to 4 units of rounding. ``norms`` (p,) are the lengths of these
    # columns, ``sizes`` those without the constant band; a ≥ 0 and w (p,) abundances and duals; ``blur`` is ε|r|. The
    # bounds are infinite if the face is too nearly dependent, or has no room.
    @team.compile
    def bound_on_face(U, norms, sizes, sum_to_one, a, w, multiplier, margin, sum_error, blur, face, reduction_buffer):
        k, inverse_square = np.int64(0), 0.0  # a literal 0 would have `mark` and `extend` compiled twice
        violation, weighted, longest, shortest, reach, curvature = UNDERFLOW, 0.0, 0.0, np.inf, 0.0, 1.0
        first, blurred = True, blur
        while True:
            joining = mark(
                w,
                a,
                norms,
                sizes,
                multiplier,
                margin,
                blurred,
                longest,
                reach,
                weighted,
                first,
                k,
                face,
                reduction_buffer,
            )
            if joining == 0 and not first:
                break
            if k + joining > face.columns.shape[0]:
                return np.inf, np.inf
            for _ in range(joining):
                j = face.columns[k]
                inverse_square += extend(U, face, k, j, reduction_buffer)
                if not inverse_square < np.inf:
                    return np.inf, np.inf
                k += 1
                v, rounding = w[j] - multiplier, margin * sizes[j]
                bound = abs(v) + rounding if a[j] > 0.0 else 0.0 if v + rounding < 0.0 else v + rounding
                violation += (bound / norms[j]) ** 2
                shortest = norms[j] if norms[j] < shortest else shortest
                if sum_to_one:
                    weighted += a[j] * bound
                    longest = sizes[j] if sizes[j] > longest else longest
            if k > 0:
                curvature = 0.98 / inverse_square - k * (k + 12.0) * UNIT_ROUNDOFF
            if not curvature > 0.0:
                return np.inf, np.inf
            reach, blurred = math.sqrt(violation / curvature) * (1.0 + 1e-10), blur * (1.0 + math.sqrt(k / curvature))
            first = False
        if k == 0:
            return sum_error, 0.0
        return math.sqrt(violation) / curvature / shortest + sum_error, reach * reach

    return bound_on_face
