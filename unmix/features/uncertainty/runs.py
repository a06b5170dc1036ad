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
        is_first=True,
        noise="of pixels",
        excludes=dict.fromkeys(("tv", "laplacian"), "")
        | {
            "likelihood": "whose noise is of counts; least squares with `noise`, the roots of the counts, has it",
            "mesma": "whose error is that of the choice: use `average`",
            "l1": "whose abundances are too small, which deviations cannot tell",
            "albedo": "which changes the noise of bands",
        },
    )


class Deviations(Part):
    """The deviations in the run of one scene."""

    def judge(
        self, problem: Any, maps: Any, lacks: Any, said: Any, summary: Any
    ) -> tuple[dict[str, Any], list[tuple[int, str]]]:
        """See `unmix.features.runs.Part.judge`."""
        if "sigma" not in maps or not problem.constraint.has_bounds:  # there is no validity
            return {}, []
        from .judgement import judge_deviations

        trust, sentences = judge_deviations(
            problem, maps["sigma"], lacks["sigma"], summary.fit_certified / max(1, summary.solved)
        )
        return {"uncertainty": trust | {"said": "; ".join(text for _, text in [*sentences, *said])}}, sentences


SIGMA_MAP = OwnMap(
    Map(lambda options: options.uncertainty, has_unit=False),
    later(__package__, "deviations:made"),
    of_noise=lambda options: "standard deviations",
    is_deviation=True,
)
IN_RUNS = InRuns(
    UncertaintySettings,
    Deviations,
    section=later(__package__, "page:section"),
    maps={"sigma": SIGMA_MAP},
)
