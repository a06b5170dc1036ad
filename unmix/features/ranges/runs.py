"""The part of `ranges` in runs."""

import logging
from collections.abc import Iterator
from typing import Any

from ...later import later
from ...methods import BOUNDED, EXACT
from ...settings import for_a_feature, setting
from ..runs import InRuns, Map, OwnMap, Part

log = logging.getLogger("unmix")
# The map whose values are bounded, by the values of `ranges`.
OF = {"each": "abundance", "class": "fraction"}


@for_a_feature
class RangesSettings:
    """The options of `ranges`, but for `within`."""

    ranges: str | None = setting(
        None,
        "values",
        "Also write the least and the largest sum of each class, or abundance of each endmember, over all mixtures "
        "that fit a pixel, "
        "proved for these spectra: STEM_range. With `normalize` of fractions. Needs `confidence` or `within`.",
        group="Outputs",
        before="within",
        choices=("class", "each"),
        methods=BOUNDED,
        solvers=EXACT,
        excludes={"likelihood": ""}
        | dict.fromkeys(("l1", "tv", "laplacian"), "which leaves mixtures out, and ranges are over all"),
    )
    confidence: float | None = setting(
        None,
        "values",
        "For `ranges`: mixtures fit that `noise` allows with this confidence, such as 0.95, one range at a time.",
        "C",
        group="Outputs",
        before="within",
        kind="number",
        noise="of pixels",
        needs=("ranges",),
        excludes={"albedo": "which changes the noise of bands"},
    )
    simultaneous: bool = setting(
        False,
        "values",
        "For `confidence`: all ranges of a pixel hold together; -9999 where no mixture fits.",
        group="Outputs",
        before="within",
        needs=("ranges",),
    )


def faults(options: Any) -> Iterator[str]:
    """Yield a message if `ranges` lacks a limit, or has one that is none."""
    from .limit import FitLimit

    _ = FitLimit.of(options)  # which refuses numbers out of range
    if options.simultaneous and options.noise == "auto":
        yield "`simultaneous` needs the noise of the bands: that of a residual fits it always; name a file with `noise`"


class RangesOfScene(Part):
    """The ranges in the run of one scene."""

    def of_maps(self, derived: Any, rasters: Any, path: Any) -> dict[str, Any]:
        """See `unmix.features.runs.Part.of_maps`."""
        from .judgement import ranges_of
        from .limit import FitLimit

        names = [band.removesuffix(" lower") for band in derived["range"].bands[::2]]
        found = ranges_of(rasters["range"].stored(), names, FitLimit.of(self.options).words)
        log.info(f"{path}: {found['said']}")
        return {"ranges": found}


MAP = OwnMap(
    Map(lambda options: options.ranges is not None, has_unit=False, can_be_quantized=True),
    later(__package__, "maps:made"),
    of_noise=lambda options: "ranges" if options.confidence is not None else "",
    bounds=lambda asked: OF.get(asked.get("ranges", ""), ""),
)
IN_RUNS = InRuns(
    RangesSettings,
    RangesOfScene,
    section=later(__package__, "page:section"),
    faults=faults,
    maps={"range": MAP},
)
