"""The penalties of a run: on the abundances of each pixel (`l1`), on differences between neighbours, or none."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ...io import Cube
from ...options import Options
from ...problem import Problem
from ...scene import sampled_spectra
from ...summary import Summary

if TYPE_CHECKING:
    from .neighbours import Neighbours

# Pixels of the sample that λ is compared with.
SAMPLE_PIXELS = 2000


class Regression:
    """Penalties of a run; without any, a regression changes nothing.

    Attributes
    ----------
    l1 : float or None
        λ, the cost of an abundance of one, in the unit of half of the squared residual.
    neighbours : Neighbours or None
        The cost of differences between neighbours, with which the whole scene is searched at once (`smooth`).
    """

    def __init__(self, options: Options) -> None:
        self.l1 = options.l1
        self.neighbours: Neighbours | None = None
        if options.tv is not None or options.laplacian is not None:
            from . import neighbours

            self.neighbours = neighbours.Neighbours.of(options)

    def request(self) -> dict[str, Any]:
        """Return the facts that abundances depend on, for ``run.json``."""
        request: dict[str, Any] = {} if self.l1 is None else {"l1": {"lambda": self.l1}}
        return request | ({} if self.neighbours is None else self.neighbours.request())

    def penalise(self, problem: Problem) -> Problem:
        """Return the problem with the penalty."""
        return problem if self.l1 is None else problem.penalised(self.l1)

    def smooth(self, problem: Problem, scene: Cube, options: Options) -> Problem:
        """Return the problem with the abundances that a spatial prior makes of the whole scene."""
        if self.neighbours is None:
            return problem
        is_sought = isinstance(self.neighbours.weight, str) and problem.noise is not None
        power = float(np.square(np.asarray(problem.noise)).sum()) if is_sought else None
        self.neighbours, problem = self.neighbours.smooth(problem, scene, power, options)
        return problem

    def proved(self, report: dict[str, Any]) -> dict[str, Any]:
        """Return a run's record, without the distance of each pixel from its optimum if pixels are proved together."""
        if self.neighbours is None:
            return report
        from .neighbours import proved_together

        return proved_together(report)

    def of_report(self, problem: Problem, scene: Cube, summary: Summary) -> dict[str, Any]:
        """Return the penalties' entries in a run's record."""
        report: dict[str, Any] = {}
        if self.l1 is not None:
            there = 0 if summary.there is None else int(summary.there.sum())
            # ``largest``: the λ from which on half of a sample of pixels is 0; ``above_1_percent``: the mean number of
            # endmembers above 1 %.
            report["l1"] = {
                "lambda": self.l1,
                "largest": largest_of(problem, scene),
                "above_1_percent": there / max(1, summary.solved),
            }
        return report | ({} if self.neighbours is None else {"spatial": self.neighbours.about()})


def largest_of(problem: Problem, scene: Cube) -> float | None:
    """Return a sample's median of the λ from which on a pixel has no endmember; None without pixels."""
    Y = sampled_spectra(problem.scene(scene), SAMPLE_PIXELS)[0]
    return float(np.median((Y @ problem.E).max(axis=1, initial=0.0))) if len(Y) else None
