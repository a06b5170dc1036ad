"""The penalties that a run is asked for: on the abundances of each pixel (`l1`), on differences between neighbours, or none."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...io import Cube
from ...options import Options
from ...problem import Problem
from ...summary import Summary

if TYPE_CHECKING:
    from .neighbours import Neighbours
    from .penalty import Penalty


class Regression:
    """Penalties of a run; without any, a regression changes nothing.

    Attributes
    ----------
    penalty : Penalty or None
    neighbours : Neighbours or None
        The cost of differences between neighbours, with which the whole scene is searched at once (`smooth`).
    """

    def __init__(self, options: Options) -> None:
        self.penalty: Penalty | None = None
        self.neighbours: Neighbours | None = None
        if options.l1 is not None:
            from . import penalty  # with what it needs, 50 ms

            self.penalty = penalty.Penalty.of(options.l1, options.l1_weights)
        if options.tv is not None or options.laplacian is not None:
            from . import neighbours

            self.neighbours = neighbours.Neighbours.of(options)

    def request(self) -> dict[str, Any]:
        """Return the facts that abundances depend on, for ``run.json``."""
        request: dict[str, Any] = {} if self.penalty is None else {"l1": self.penalty.to_dict()}
        return request | ({} if self.neighbours is None else self.neighbours.request())

    def state(self) -> dict[str, Any]:
        """Return the choices that a resumed run takes over."""
        penalty, neighbours = self.penalty, self.neighbours
        return {
            "l1": None if penalty is None else {"l1": penalty.l1, "chosen_by": penalty.chosen_by},
            "spatial": None if neighbours is None else neighbours.state(),
        }

    def resume(self, state: dict[str, Any] | None) -> None:
        """Take over what an earlier run chose, from its `state`."""
        if state is not None and self.penalty is not None and state.get("l1") is not None:
            self.penalty = replace(self.penalty, **state["l1"])
        if state is not None and self.neighbours is not None and state.get("spatial") is not None:
            self.neighbours = replace(self.neighbours, **state["spatial"])

    def refuse_other_count(self, problem: Problem) -> None:
        """Raise `InputError` where there are not as many weights as endmembers."""
        if self.penalty is not None:
            self.penalty.refuse_other_count(problem)

    def penalise(self, problem: Problem, scene: Cube, options: Options) -> Problem:
        """Return the problem with the penalty, whose λ is chosen here unless the user, or an earlier run, has."""
        if self.penalty is None:
            return problem
        if isinstance(self.penalty.l1, str):
            power = power_of(problem.noise)
            self.penalty = self.penalty.chosen(problem, scene, power, options.budget, options.threads)
        return self.penalty.put_on(problem)

    def smooth(self, problem: Problem, scene: Cube, options: Options, device: str, file: Path, key: bytes) -> Problem:
        """Return the problem with the abundances that a spatial prior makes of the whole scene; ``file`` holds the search."""
        if self.neighbours is None:
            return problem
        power = power_of(problem.noise) if isinstance(self.neighbours.weight, str) else None
        self.neighbours, problem = self.neighbours.smooth(problem, scene, power, options, device, file, key)
        return problem

    def proved(self, report: dict[str, Any]) -> dict[str, Any]:
        """Return a run's record; where pixels are proved together, it does not say how far each is from an optimum of its own."""
        if self.neighbours is None:
            return report
        from .neighbours import proved_together

        return proved_together(report)

    def of_report(self, problem: Problem, scene: Cube, summary: Summary) -> dict[str, Any]:
        """Return the penalties' entries in a run's record."""
        report: dict[str, Any] = {} if self.penalty is None else {"l1": self.penalty.about(problem, scene, summary)}
        return report | ({} if self.neighbours is None else {"spatial": self.neighbours.about()})


def power_of(noise: Any) -> float | None:
    """Return the sum over the bands of the variance of noise, None where none is known."""
    return None if noise is None else float(np.square(np.asarray(noise)).sum())
