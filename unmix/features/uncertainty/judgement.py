"""Judge how far the standard deviations of a scene can be trusted."""

import logging
from typing import Any

import numpy as np

from ...io.fields import NODATA
from ...problem import Problem
from ...runs.record.fit import in_percent

# Validity (docs/methods.md) from which on standard deviations are right to 5 %, and below which they are wider than
# noise.
SOUND, DOUBTFUL = 3.0, 1.0
# The share of pixels with a fraction near 0, above which it is said.
MANY_NEAR_ZERO = 0.1
# The share of pixels whose abundances are not proved, above which deviations of a scene say too little.
MOST_NOT_UNIQUE = 0.02


def judge_deviations(
    problem: Problem, sigma: np.ndarray, without: float, not_unique: float
) -> tuple[dict[str, Any], list[tuple[int, str]]]:
    """Judge deviations by their validity (lines, samples); return shares, and sentences to log with their levels.

    ``without`` is the share of pixels without one, ``not_unique`` of those whose abundances are not proved.
    """
    below = above = known = 0
    for line in sigma:
        some = line[line != np.float32(NODATA)]
        known, below, above = known + some.size, below + int((some < DOUBTFUL).sum()), above + int((some > SOUND).sum())
    shares = {"below_1": below / max(1, known), "above_3": above / max(1, known), "without": without}
    p, L = len(problem.endmembers.names), len(problem.endmembers.matrix)
    if known and (p > L or not_unique > MOST_NOT_UNIQUE):
        who = f"{p} spectra for {L} bands: pixels" if p > L else f"{in_percent(not_unique)} of the pixels"
        sentence = (
            f"{who} are fitted as well by other mixtures, and deviations are of one: take `ranges`, or `unmix mesma` "
            "with `average`"
        )
        return shares, [(logging.WARNING, sentence)]
    return shares, said_of_deviations(shares["above_3"], shares["below_1"], problem) if known else []


def said_of_deviations(above_3: float, below_1: float, problem: Problem) -> list[tuple[int, str]]:
    """Return what the deviations of a scene hold, as sentences to log with their levels."""
    said = [
        f"deviations are exact in {in_percent(above_3)} of the pixels, if bands share no noise, and cautious in the others"
    ]
    if below_1 > MANY_NEAR_ZERO:
        other = "scls" if problem.constraint.sum_to_one else "ucls (even light)"
        said.append(
            f"in {in_percent(below_1)} of the pixels a fraction is within noise of 0: small means are too large, "
            f"not by `method` {other}"
        )
    return [(logging.INFO, sentence) for sentence in said]
