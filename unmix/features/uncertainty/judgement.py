"""Judge how far the standard deviations of a scene can be trusted."""

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...io.fields import NODATA
from ...problem import Problem
from ...runs.record.fit import in_percent

# Validity (docs/methods.md) from which on standard deviations are right to 5 %, and below which they can be too large
# by half or more; a larger share of such pixels than `MANY_DOUBTFUL` is worth a warning.
SOUND, DOUBTFUL, MANY_DOUBTFUL = 3.0, 1.0, 0.1


def judge_deviations(
    problem: Problem, sigma: np.ndarray, without: float
) -> tuple[dict[str, Any], list[tuple[int, str]]]:
    """Judge deviations by their validity (lines, samples); return shares, and sentences to log with their levels."""
    below = above = known = 0
    for line in sigma:
        some = line[line != np.float32(NODATA)]
        known, below, above = known + some.size, below + int((some < DOUBTFUL).sum()), above + int((some > SOUND).sum())
    shares = {"below_1": below / max(1, known), "above_3": above / max(1, known), "without": without}
    sound = [(logging.INFO, of_sound(shares["above_3"]))] if known else []
    level = logging.WARNING if shares["below_1"] > MANY_DOUBTFUL else logging.INFO
    return shares, [*sound, *((level, said) for said in of_doubtful(shares["below_1"]))]


def of_sound(above_3: float) -> str:
    """Return how many deviations are right."""
    return (
        f"standard deviations are right to 5 % in {in_percent(above_3)} of the pixels (validity above {SOUND:g}), of "
        "noise alone: spectra that vary or are missing add to them"
    )


def of_doubtful(below_1: float) -> Iterator[str]:
    """Yield that many deviations are wider than noise."""
    if below_1:
        yield (
            f"in {in_percent(below_1)} of the pixels (validity below {DOUBTFUL:g}) they are wider than noise, since "
            "spectra near 0 may be none: fewer endmembers, or `by` class with `monte_carlo`, tell more"
        )
