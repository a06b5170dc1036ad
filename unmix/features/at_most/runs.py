"""The part of `at_most` in runs."""

from dataclasses import replace
from typing import Any

from ...errors import MethodError
from ...settings import for_a_feature, setting
from ..runs import InRuns, OwnSearch, Part


@for_a_feature
class AtMostSettings:
    """The options of `at_most`."""

    at_most: int | None = setting(
        None,
        "values",
        "For nnls: use at most K endmembers in a pixel, such that no exchange of one fits better. CPU only.",
        "K",
        group="Model",
        kind="whole",
        least=1,
        before="likelihood",
        methods=("nnls",),
        solvers=("active-set",),
        excludes=dict.fromkeys(("l1", "tv", "laplacian", "likelihood"), "")
        | dict.fromkeys(("uncertainty", "average"), "which takes the endmembers of a pixel for known")
        | {"ranges": "which is over all mixtures"},
    )


class AtMost(Part):
    """The bound in the run of one scene."""

    def plan(self, problem: Any) -> Any:
        """See `unmix.features.runs.Part.plan`."""
        return with_at_most(problem, self.options.at_most)

    def entry(self, summary: Any) -> dict[str, Any]:
        """Return the number of pixels with 0, 1, 2, … endmembers, which the search counts as its steps."""
        most = self.options.at_most
        return {"at_most": {"most": most, "pixels": [*summary.steps, *[0] * (most + 1 - len(summary.steps))]}}


def with_at_most(problem: Any, most: Any) -> Any:
    """Return a problem with at most so many endmembers in a pixel; `MethodError` if that is impossible."""
    problem.refuse("at_most", most)
    p = len(problem.endmembers.names)
    if most > p:
        raise MethodError(f"`at_most` {most}: there are only {p} endmembers; leave it out, or name at most {p}")
    return replace(problem, search=("at_most", most))


def mean_count(entry: dict[str, Any]) -> str:
    """Return words for the first line of a report."""
    pixels = entry["pixels"]
    mean = sum(k * n for k, n in enumerate(pixels)) / max(1, sum(pixels))
    return f", at most {entry['most']} endmembers a pixel ({mean:.1f} on average)"


def price_of_bound(most: int, summary: Any) -> str:
    """Return advice where most pixels have as many endmembers as they may."""
    full = sum(summary.steps[most:]) > summary.solved / 2
    return "a run without `at_most` shows whether that is why" if full else ""


SEARCH = OwnSearch(
    with_at_most,
    file="search",
    argument="""int, optional
        For nnls: the most endmembers of a pixel. Each answer is the optimum over those that the pixel has, to which κ and δ refer; no
        exchange of one of them for another endmember lowers the misfit (docs/methods.md). ``steps`` counts them. On the CPU alone.""",
    best="each answer is the best of its endmembers, and no exchange of one is better",
    price=price_of_bound,
)
IN_RUNS = InRuns(AtMostSettings, AtMost, mean_count, search=SEARCH)
