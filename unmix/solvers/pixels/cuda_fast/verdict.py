"""κ and δ of the pixels of a tile on a GPU, from duals that four lanes of a warp hold for each."""

import math
from typing import Any

import numpy as np
from numba import float64

from ....certificate import GAP_WEIGHT, UNDERFLOW, UNIT_ROUNDOFF, worth_of_sum
from ....compiled.cuda import cuda, on_gpu
from .projection import ROWS, most_of_rows, other_row, over_rows


def verdict_function(p: int, sum_to_one: bool) -> Any:
    """Return ``verdict``, which computes κ and δ of two pixels as `unmix.certificate.certify_function` defines them."""
    blocks = -(-p // 8)

    @on_gpu
    def verdict(a, n, other, duals, plan, y_norm, r_norm):
        """Return κ and δ of this lane's pixel n, in row ``q % 2``; ``other`` is the pixel of the other row."""
        # y_norm is |y| (|y − ē| for the sum to one) and r_norm is |r|, both of pixel n; four lanes hold its duals.
        q = cuda.laneid % 4
        total = cuda.local.array(ROWS, float64)
        term_sum = cuda.local.array(ROWS, float64)
        nonzero = cuda.local.array(ROWS, float64)
        multiplier = cuda.local.array(ROWS, float64)
        violation = cuda.local.array(ROWS, float64)
        largest_ratio = cuda.local.array(ROWS, float64)
        highest_dual = cuda.local.array(ROWS, float64)
        weighted_duals = cuda.local.array(ROWS, float64)
        most_negative = cuda.local.array(ROWS, float64)
        for row in range(ROWS):
            pixel = n if row == q % 2 else other
            total[row], term_sum[row], nonzero[row], multiplier[row] = 0.0, 0.0, 0.0, 0.0
            for m in range(blocks):
                for e in range(2):
                    j = 8 * m + 2 * q + e
                    x = a[pixel, min(j, p - 1)] if j < p else 0.0
                    term_sum[row] += abs(x) * plan.sizes[min(j, p - 1)]
                    nonzero[row] += 0.0 if x == 0.0 else 1.0
                    if sum_to_one:
                        total[row] += x
                        multiplier[row] += x * duals[m, 2 * row + e]
        my_terms = over_rows(term_sum[0], term_sum[1])
        my_nonzero = over_rows(nonzero[0], nonzero[1])
        scale = max(y_norm, plan.longest)
        worst = 0.0
        sum_error = 0.0
        if sum_to_one:
            my_total = over_rows(total[0], total[1])
            my_multiplier = over_rows(multiplier[0], multiplier[1])
            my_multiplier = my_multiplier / my_total if my_total != 0.0 else 0.0
            other_multiplier = other_row(my_multiplier)
            worst = abs(my_total - 1.0) / max(my_total, 1.0)
            sum_error = abs(my_total - 1.0) + p * UNIT_ROUNDOFF * my_total
        roundings = r_norm * (plan.L + 2.0) + (y_norm + my_terms) * (my_nonzero + 2.0)
        my_rounding = roundings * UNIT_ROUNDOFF + sum_error * plan.longest
        other_rounding = other_row(my_rounding)
        for row in range(ROWS):
            is_mine = row == q % 2
            pixel = n if is_mine else other
            rounding = my_rounding if is_mine else other_rounding
            violation[row], largest_ratio[row], highest_dual[row] = 0.0, 0.0, 0.0
            weighted_duals[row], most_negative[row] = 0.0, 0.0
            for m in range(blocks):
                for e in range(2):
                    j = 8 * m + 2 * q + e
                    if j < p:
                        x = a[pixel, j]
                        v = duals[m, 2 * row + e]
                        if sum_to_one:
                            v -= my_multiplier if is_mine else other_multiplier
                        margin = rounding * plan.sizes[j]
                        most_negative[row] = max(most_negative[row], -x)
                        upper = max(v + margin, 0.0)
                        magnitude = max(v, 0.0) if x <= 0.0 else abs(v)
                        bound = upper if x <= 0.0 else magnitude + margin
                        highest_dual[row] = max(highest_dual[row], upper)
                        weighted_duals[row] += x * bound
                        violation[row] += bound * bound
                        largest_ratio[row] = max(largest_ratio[row], magnitude * plan.units[j])
        my_ratio = most_of_rows(largest_ratio[0], largest_ratio[1])
        negative = most_of_rows(most_negative[0], most_negative[1])
        highest = most_of_rows(highest_dual[0], highest_dual[1])
        violation_norm = math.sqrt(over_rows(violation[0], violation[1]))
        weighted = over_rows(weighted_duals[0], weighted_duals[1])
        squared = violation_norm * violation_norm + UNDERFLOW
        distance = math.sqrt(squared) / plan.curvature + sum_error if negative <= 0.0 else np.inf
        gap = violation_norm * min(distance, violation_norm / plan.curvature)
        if sum_to_one or highest == 0.0:
            gap = min(gap, highest + weighted)
        if sum_to_one:
            beyond = max(sum_error - 3.0 * p * UNIT_ROUNDOFF * my_total, 0.0)
            gap += worth_of_sum(
                abs(my_multiplier), r_norm, math.sqrt(plan.mean_square), sum_error, beyond, plan.longest
            )
        worst = max(worst, negative)
        if scale > 0.0:
            worst = max(worst, my_ratio / scale, gap / scale * (2.0 * GAP_WEIGHT) / scale)
        elif my_ratio != 0.0:
            worst = np.inf
        if squared - squared != 0.0 or scale - scale != 0.0 or my_rounding - my_rounding != 0.0:
            return np.inf, np.inf  # comparisons with NaN are false, and dividing by an overflow gives zero
        return worst, distance

    return verdict
