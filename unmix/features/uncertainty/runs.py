"""The part of `uncertainty` in runs."""

from typing import Any

from ...later import later
from ...settings import for_a_feature, setting
from ..runs import InRuns, Map, OwnMap, Part


@for_a_feature
class UncertaintySettings:
    """The option of standard deviations."""

    uncertainty: bool = setting(
        False,
        "values",
        "Also write the standard deviation that noise gives each abundance, or with `by` each sum, and its validity "
        "(right to 5 % "
        "above 3): STEM_sigma.",
        group="Outputs",
        before="noise",
        noise="of pixels",
        excludes=dict.fromkeys(("allowed", "likelihood", "tv", "laplacian"), "")
        | {
            "l1": "whose abundances are too small, which deviations cannot tell",
            "albedo": "which changes the noise of bands",
        },
    )


class Deviations(Part):
    """The deviations in the run of one scene."""

    def judge(
        self, problem: Any, maps: Any, lacks: Any, said: Any, solved: int
    ) -> tuple[dict[str, Any], list[tuple[int, str]]]:
        """See `unmix.features.runs.Part.judge`."""
        if "sigma" not in maps or not problem.constraint.has_bounds:  # there is no validity
            return {}, []
        from .judgement import judge_deviations

        trust, sentences = judge_deviations(problem, maps["sigma"], lacks["sigma"])
        return {"uncertainty": trust | {"said": "; ".join(text for _, text in [*sentences, *said])}}, sentences


SPREAD = (
    "Also write the gap to the RMSE of the next best model, the number of models that fit nearly as well, and over "
    "these mean, "
    "standard deviation, least and largest fraction of each class and of shade: STEM_spread."
)
SIGMA_MAP = OwnMap(
    Map(lambda options: options.uncertainty and not options.mesma, has_unit=False),
    later(__package__, "deviations:made"),
    of_noise=lambda options: "standard deviations",
    is_deviation=True,
)
SPREAD_MAP = OwnMap(
    Map(lambda options: options.uncertainty and bool(options.mesma)),
    later(__package__, "spread:made"),
    is_within=True,
)
IN_RUNS = InRuns(
    UncertaintySettings,
    Deviations,
    section=later(__package__, "page:section"),
    maps={"sigma": SIGMA_MAP, "spread": SPREAD_MAP},
    for_models={"uncertainty": {"help": SPREAD}},
)
