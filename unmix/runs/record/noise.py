"""Say which pixels have no number where maps are made from noise."""

from collections.abc import Iterator, Mapping

import numpy as np

from ...io.fields import NODATA
from ...problem import Problem
from .fit import in_percent


def judge_noise(
    problem: Problem, maps: Mapping[str, np.ndarray], words: Mapping[str, str], solved: int
) -> tuple[dict[str, float], list[str]]:
    """Return of maps that are made from noise the shares of the ``solved`` pixels that have no number, and sentences to
    warn of them.

    ``maps`` are a band (lines, samples) of each that all pixels with numbers have, ``words`` what each holds.
    """
    lacks = {name: without_noise(problem, values, solved) for name, values in maps.items()}
    return lacks, [said for name, without in lacks.items() for said in of_none(words[name], without)]


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


def of_none(what: str, without: float) -> Iterator[str]:
    """Yield that pixels have no number."""
    if without:
        why = "as many endmembers as bands leave no residual that shows noise"
        yield f"{in_percent(without)} of the pixels have no {what}: {why}; give `noise`"
