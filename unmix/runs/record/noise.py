"""Say which pixels have no number where maps are made from noise."""

from collections.abc import Mapping

import numpy as np

from ...io.fields import NODATA
from ...problem import Problem
from .fit import in_percent


def judge_noise(
    problem: Problem, maps: Mapping[str, np.ndarray], words: Mapping[str, str], solved: int
) -> tuple[dict[str, float], list[str]]:
    """Return of maps that are made from noise the shares of the ``solved`` pixels that have no number, and sentences to warn of them.

    ``maps`` are a band (lines, samples) of each that all pixels with numbers have, ``words`` what each holds.
    """
    why = "as many endmembers as bands leave no residual that shows noise; give `noise`"
    lacks = {name: without_noise(problem, values, solved) for name, values in maps.items()}
    return lacks, [
        f"{in_percent(share)} of the pixels have no {words[name]}: {why}" for name, share in lacks.items() if share
    ]


def without_noise(problem: Problem, values: np.ndarray, solved: int) -> float:
    """Return the share of the ``solved`` pixels that have no number, since their residual shows no noise.

    ``values`` (lines, samples) are those of a band that all other pixels have.
    """
    equations = problem.constraint.equations
    if (
        problem.noise is not None
        or len(problem.endmembers.names) - equations < len(problem.endmembers.matrix)
        or not solved
    ):
        return 0.0
    return 1.0 - sum(int((line != np.float32(NODATA)).sum()) for line in values) / solved
