"""The part of `average` in runs."""

import logging
from dataclasses import asdict, replace
from typing import Any

from ...later import later
from ..runs import InRuns, Map, OwnMap, Part
from .settings import AverageSettings, DrawChoice, faults_of_average

log = logging.getLogger("unmix")


class Averaged(Part):
    """The average in the run of one scene."""

    def plan(self, problem: Any) -> Any:
        """See `unmix.features.runs.Part.plan`."""
        options = self.options
        if options.average != "plain":
            return problem
        from .draws import plan_draws

        sums = options.sums(problem.endmembers, problem.normalization)
        draws = plan_draws(problem, sums, DrawChoice.of(options), options.budget)
        return replace(problem, further=problem.further | {"average": draws})

    def of_maps(self, derived: Any, rasters: Any, path: Any) -> dict[str, Any]:
        """See `unmix.features.runs.Part.of_maps`."""
        if self.options.average == "plain":
            return {}
        found = derived["average"].entry()
        log.info(f"{path}: {found['said']}")
        return {"average": found}


def made(given: Any) -> Any:
    """Return the map of a run."""
    if given.options.average == "plain":
        from .draws import PlainAverage

        return PlainAverage(given)
    from .likely import LikelyAverage

    return LikelyAverage(given)


OF_MODELS = (
    "Also write mean and standard deviation of each class, shade and brightness over all models, weighted by their "
    "likelihood: STEM_average."
)
MAP = OwnMap(
    Map(lambda options: options.average is not None, has_unit=False, can_be_quantized=True),
    made,
    section=later(__package__, "page:section"),
    of_noise=lambda options: (
        "deviations over draws" if options.average == "plain" and DrawChoice.of(options).has_noise else ""
    ),
)
IN_RUNS = InRuns(
    AverageSettings,
    Averaged,
    faults=faults_of_average,
    request={"draws": lambda options: asdict(DrawChoice.of(options))},
    uses_seed=True,
    maps={"average": MAP},
    for_models={"average": {"help": OF_MODELS, "type": ("likelihood",)}},
)
