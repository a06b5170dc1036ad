"""The penalty on the sum of abundances that a run asks for (`l1`): its weights, and what the scene makes of it."""

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InputError
from ..io import Cube, missing, spectra
from ..problem import Problem
from ..scene.sample import FEW, sampled
from ..summary import Summary
from .derived.noise import read_numbers


@dataclass(frozen=True)
class Penalty:
    """What an abundance costs: λ times its weight.

    Attributes
    ----------
    l1 : float
        λ.
    weights : array (p,), float64, or None
        None is 1 for all.
    source : path-like or None
        The file with the weights.
    """

    l1: float
    weights: np.ndarray | None = None
    source: str | os.PathLike[str] | None = None

    @classmethod
    def of(cls, l1: float, path: str | os.PathLike[str] | None) -> "Penalty":
        """Read the weights; `InputError` where they cannot be read, or one is negative."""
        if path is None:
            return cls(l1)
        weights = np.array(read_numbers(path, "weight", "an endmember"))
        if not np.all((weights >= 0) & np.isfinite(weights)):
            raise InputError(f"{path}: weights of endmembers must be numbers that are not negative")
        return cls(l1, weights, path)

    def to_dict(self) -> dict[str, Any]:
        """Return what abundances depend on, for ``run.json``."""
        return {"lambda": self.l1, "weights": None if self.weights is None else self.weights.tolist()}

    def put_on(self, problem: Problem) -> Problem:
        """Return a problem with the penalty; `InputError` where there are not as many weights as endmembers."""
        p = len(problem.endmembers.names)
        if self.weights is not None and len(self.weights) != p:
            raise InputError(f"{self.source}: {len(self.weights)} weights for {p} endmembers; write one on each line")
        return problem.penalised(self.l1, self.weights)

    def about(self, problem: Problem, scene: Cube, summary: Summary) -> dict[str, Any]:
        """Return what a run's record says of the penalty.

        Returns
        -------
        dict
            ``lambda``; ``largest``, the λ from which on half of the pixels of a sample are 0, which λ is to be compared with (None
            where no pixel ever is); ``endmembers``, how many a pixel has on average above 1 %.
        """
        most = largest_of(problem, scene, self.weights)
        finite = most[np.isfinite(most)]
        there = 0 if summary.there is None else int(summary.there.sum())
        return {
            "lambda": self.l1,
            "largest": float(np.median(finite)) if len(finite) else None,
            "endmembers": there / max(1, summary.solved),
        }


def largest_of(problem: Problem, scene: Cube, weights: np.ndarray | None) -> np.ndarray:
    """Return the λ from which on each pixel of a sample of a scene is 0: the largest ``e_jᵀy / w_j``, at least 0; array, float64."""
    found = [np.empty(0)]
    for part in sampled(scene, FEW):
        good = ~missing(part, scene.interleave, problem.bands, problem.nodata)
        products = spectra(part, scene.interleave, problem.bands)[good] @ problem.E
        with np.errstate(divide="ignore", invalid="ignore"):
            each = np.where(products > 0, products / (1.0 if weights is None else weights), 0.0)
        found.append(each.max(axis=1, initial=0.0))
    return np.concatenate(found)
