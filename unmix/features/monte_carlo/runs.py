"""The part of `monte_carlo` in runs."""

from dataclasses import asdict, replace
from typing import Any

from ...later import later
from ..runs import InRuns, Map, OwnMap, Part
from .settings import DrawChoice, DrawSettings, faults_of_draws


class Drawn(Part):
    """The draws in the run of one scene."""

    def plan(self, problem: Any) -> Any:
        """See `unmix.features.runs.Part.plan`."""
        from .draws import plan_draws

        options = self.options
        sums = options.sums(problem.endmembers, problem.normalization)
        draws = plan_draws(problem, sums, DrawChoice.of(options), options.budget)
        return replace(problem, further=problem.further | {"monte_carlo": draws})


MAP = OwnMap(
    Map(lambda options: options.monte_carlo is not None, has_unit=False, can_be_quantized=True),
    later(__package__, "draws:made"),
    section=later(__package__, "page:section"),
    of_noise=lambda options: "deviations over draws" if DrawChoice.of(options).has_noise else "",
)
IN_RUNS = InRuns(
    DrawSettings,
    Drawn,
    faults=faults_of_draws,
    request={"draws": lambda options: asdict(DrawChoice.of(options))},
    uses_seed=True,
    maps={"montecarlo": MAP},
)
