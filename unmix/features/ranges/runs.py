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
        methods=(*BOUNDED, "mesma"),
        solvers=EXACT,
        excludes={"likelihood": ""}
        | dict.fromkeys(("l1", "tv", "laplacian", "allowed"), "which leaves mixtures out, and ranges are over all"),
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
        excludes={
            "mesma": "whose models err by their library more than by noise; `within` says which mixtures `ranges` are "
            "over"
        }
        | {"albedo": "which changes the noise of bands"},
    )
    simultaneous: bool = setting(
        False,
        "values",
        "For `confidence`: all ranges of a pixel hold together; -9999 where no mixture fits.",
        group="Outputs",
        before="within",
        needs=("ranges",),
        excludes={"mesma": "whose `ranges` are over the mixtures that `within` allows"},
    )


def faults(options: Any) -> Iterator[str]:
    """Yield a message if `ranges` lacks a limit, or has one that is none."""
    if options.mesma and options.mesma.limits != "exact":
        yield "`ranges` are over mixtures, and `limits` viper are of models; leave one of the two out"
    if options.mesma and options.ranges == "each":
        yield "`ranges` each: the maps of mesma are of classes; use `ranges` class"
    if options.mesma and options.within is None and options.mesma.fusion == 0:
        yield "`ranges` of mesma are within half of `fusion`, which is 0, unless `within` says more; give that"
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


OF_MODELS = (
    "Also write the least and the largest fraction of each class over all mixtures of all models whose RMSE is at most "
    "`within` above "
    "that of the chosen one: STEM_range."
)
MAP = OwnMap(
    Map(lambda options: options.ranges is not None, has_unit=False, can_be_quantized=True),
    later(__package__, "maps:made"),
    of_noise=lambda options: "ranges" if options.confidence is not None else "",
    bounds=lambda asked: OF.get(asked.get("ranges", ""), ""),
    is_within=True,
)
IN_RUNS = InRuns(
    RangesSettings,
    RangesOfScene,
    section=later(__package__, "page:section"),
    faults=faults,
    maps={"range": MAP},
    for_models={"ranges": {"help": OF_MODELS, "type": ("class",)}},
)
