"""Judge how far the standard deviations of a scene can be trusted."""

import logging
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...io.fields import NODATA
from ...problem import Problem
from ...runs.record.fit import in_percent

# Validity (docs/methods.md) from which on standard deviations are right to 5 %, and below which they can be too large
# by half or more; a larger share of such pixels than `MANY_DOUBTFUL` is worth a warning.
SOUND, DOUBTFUL, MANY_DOUBTFUL = 3.0, 1.0, 0.1
# The error of a deviation up to which nothing is said of that of the noise.
LEAST_SAID = 0.05


def noise_error(problem: Problem) -> float | None:
    """Return the largest relative error of the noise that a pixel's residual shows; None where noise is given."""
    free = len(problem.endmembers.matrix) - len(problem.endmembers.names) + problem.constraint.equations
    return None if problem.noise is not None else 1.0 / math.sqrt(2.0 * max(1, free))


def judge_deviations(
    problem: Problem, sigma: np.ndarray, without: float
) -> tuple[dict[str, Any], list[tuple[int, str]]]:
    """Judge deviations by their validity (lines, samples); return shares, and sentences to log with their levels."""
    below = above = known = 0
    for line in sigma:
        some = line[line != np.float32(NODATA)]
        known, below, above = known + some.size, below + int((some < DOUBTFUL).sum()), above + int((some > SOUND).sum())
    shares = {"below_1": below / max(1, known), "above_3": above / max(1, known), "without": without}
    sound = [(logging.INFO, of_sound(shares["above_3"], noise_error(problem)))] if known else []
    level = logging.WARNING if shares["below_1"] > MANY_DOUBTFUL else logging.INFO
    return shares, [*sound, *((level, said) for said in of_doubtful(shares["below_1"]))]


def of_sound(above_3: float, error: float | None) -> str:
    """Return how many deviations are right."""
    of_noise = ""
    if error is not None and error > LEAST_SAID:
        of_noise = f", the residual gives the noise to {in_percent(error)}"
    return (
        f"standard deviations are right to 5 % in {in_percent(above_3)} of the pixels (validity above "
        f"{SOUND:g}){of_noise}"
    )


def of_doubtful(below_1: float) -> Iterator[str]:
    """Yield that many deviations are bounds alone."""
    if below_1:
        yield (
            f"in {in_percent(below_1)} of the pixels (validity below {DOUBTFUL:g}) standard deviations are upper "
            "bounds: fewer "
            "endmembers, or `by` class with `monte_carlo`, tell more"
        )
