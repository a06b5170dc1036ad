"""Say which pixels have no number where maps are made from noise."""

from collections.abc import Iterator, Mapping

import numpy as np

from ...io.fields import NODATA
from ...problem import Problem
from .fit import in_percent


def judge_noise(
    problem: Problem, maps: Mapping[str, np.ndarray], words: Mapping[str, str], solved: int
) -> tuple[dict[str, float], list[str]]:
    """Return for each map the share of the ``solved`` pixels that have no number, and sentences to warn of them."""
    # ``maps`` has one band (lines, samples) of each map made from noise, ``words`` the content of each.
    lacks = {name: without_noise(problem, values, solved) for name, values in maps.items()}
    return lacks, [said for name, without in lacks.items() for said in of_none(words[name], without)]


def without_noise(problem: Problem, values: np.ndarray, solved: int) -> float:
    """Return the share of the ``solved`` pixels without a number in ``values`` (lines, samples), for lack of noise."""
    equations = problem.constraint.equations
    if (
        problem.noise is not None
        or len(problem.endmembers.names) - equations < len(problem.endmembers.matrix) - problem.lost
        or not solved
    ):
        return 0.0
    return 1.0 - sum(int((line != np.float32(NODATA)).sum()) for line in values) / solved


def of_none(what: str, without: float) -> Iterator[str]:
    """Yield that pixels have no number."""
    if without:
        why = "as many endmembers as bands leave no residual that shows noise"
        yield f"{in_percent(without)} of the pixels have no {what}: {why}; give `noise`"
