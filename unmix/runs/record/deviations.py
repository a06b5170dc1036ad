"""Judge what noise is said to do to a scene's abundances: how far standard deviations can be trusted, and which pixels have none."""

import logging
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ...io.fields import NODATA
from ...problem import Problem
from .fit import percent

# Validity (docs/methods.md) from which on standard deviations are right to 5 %, and below which they can be too large by half or more;
# a larger share of such pixels than `MANY_DOUBTFUL` is worth a warning.
SOUND, DOUBTFUL, MANY_DOUBTFUL = 3.0, 1.0, 0.1
# Of each map that is made from noise, what it holds.
WORDS = {"sigma": "standard deviations", "range": "ranges", "montecarlo": "deviations over draws"}
# The error of a deviation up to which nothing is said of that of the noise.
LEAST_SAID = 0.05


def noise_error(problem: Problem) -> float | None:
    """Return by which share of itself the noise that the residual of a pixel shows is off, at most; None where the noise is given."""
    free = len(problem.endmembers.matrix) - len(problem.endmembers.names) + problem.constraint.equations
    return None if problem.noise is not None else 1.0 / math.sqrt(2.0 * max(1, free))


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


def judge_noise(
    problem: Problem, maps: Mapping[str, np.ndarray], has_validity: bool, solved: int
) -> tuple[dict[str, Any] | None, list[tuple[int, str]]]:
    """Judge the maps of what noise does to the ``solved`` pixels of a scene.

    Parameters
    ----------
    problem : Problem
    maps : mapping of str to array (lines, samples), float32
        A band that all pixels with numbers have, of each map that is made from noise: ``sigma``, ``range``, ``montecarlo``.
    has_validity : bool
        Whether that of ``sigma`` is the validity of its deviations.
    solved : int

    Returns
    -------
    trust : dict or None
        For ``run.json``, where there is a validity: ``below_1`` and ``above_3``, the shares of the pixels with deviations whose
        validity is so; ``without``, the share of those without; and ``said``, that in words.
    sentences : list of (int, str)
        To log, each with its level.
    """
    lacks = {WORDS[name]: without_noise(problem, values, solved) for name, values in maps.items()}
    sentences = [(logging.WARNING, said) for what, without in lacks.items() for said in of_none(what, without)]
    if not has_validity:
        return None, sentences
    below = above = known = 0
    for line in maps["sigma"]:
        some = line[line != np.float32(NODATA)]
        known, below, above = known + some.size, below + int((some < DOUBTFUL).sum()), above + int((some > SOUND).sum())
    shares = {"below_1": below / max(1, known), "above_3": above / max(1, known), "without": lacks[WORDS["sigma"]]}
    sound = [(logging.INFO, of_sound(shares["above_3"], noise_error(problem)))] if known else []
    level = logging.WARNING if shares["below_1"] > MANY_DOUBTFUL else logging.INFO
    sentences = [*sound, *((level, said) for said in of_doubtful(shares["below_1"])), *sentences]
    return shares | {"said": "; ".join(said for _, said in sentences)}, sentences


def of_sound(above_3: float, error: float | None) -> str:
    """Return how many deviations are right."""
    of_noise = ""
    if error is not None and error > LEAST_SAID:
        of_noise = f", the residual gives the noise to {percent(error)}"
    return (
        f"standard deviations are right to 5 % in {percent(above_3)} of the pixels (validity above {SOUND:g}){of_noise}"
    )


def of_doubtful(below_1: float) -> Iterator[str]:
    """Yield that many deviations are bounds alone."""
    if below_1:
        yield (
            f"in {percent(below_1)} of the pixels (validity below {DOUBTFUL:g}) standard deviations are upper bounds: fewer "
            "endmembers, or `by` class with `monte_carlo`, tell more"
        )


def of_none(what: str, without: float) -> Iterator[str]:
    """Yield that pixels have no number."""
    if without:
        why = "as many endmembers as bands leave no residual that shows noise"
        yield f"{percent(without)} of the pixels have no {what}: {why}; give `noise`"
