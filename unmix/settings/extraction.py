"""How endmembers are extracted."""

from dataclasses import dataclass
from functools import partial

from . import setting

option = partial(setting, group="Endmembers")
# Of options of a run's extraction.
_NOT_EXTRACTED = {"endmembers": "which are not extracted"}


@dataclass(frozen=True)
class ExtractSettings:
    """The options of `unmix.methods.Extraction`."""

    count: int | str = option(
        "auto",
        "outputs",
        "Number of endmembers; auto estimates it (at most 30; see unmix count).",
        "N",
        short="-n",
        unset="auto",
        is_first=True,
        excludes=_NOT_EXTRACTED,
    )
    extract: str | None = option(
        None,
        "outputs",
        "How endmembers are extracted: vca (random directions), spa or atgp (successive projections), nfindr (largest "
        "simplex), "
        "sisal (smallest simplex around the pixels, where none is pure), cone (smallest cone around their directions, "
        "whatever "
        "their brightness) or auto (cone or means of near-pure pixels, or where brightness does not vary the most "
        "likely simplex or "
        "sisal: what explains the scene best).",
        "NAME",
        kind="word",
        unset="auto; vca with options of exchanges, or of run with `method`",
    )
    refine: bool = option(
        True,
        "outputs",
        "Exchange vca's pixels as long as that enlarges their simplex, as nfindr does.",
        switch="refine/no_refine",
        unset="refine",
        excludes=_NOT_EXTRACTED,
    )
    smooth: int = option(
        0,
        "outputs",
        "Take the mean of the K pixels nearest to each corner in place of the corner.",
        "K",
        kind="whole",
        least=0,
        excludes=_NOT_EXTRACTED,
    )
    outside: float | None = option(
        None,
        "outputs",
        "For sisal: coordinates that may be below 0, for each pixel; few for a simplex around all.",
        "SHARE",
        kind="number",
        unset="0.3",
        excludes=_NOT_EXTRACTED,
    )
    outliers: float | None = option(
        None,
        "outputs",
        "Extract from no pixel that is T times as far from all others as is usual (RX detector): 10 finds hot pixels; "
        "rare "
        "materials are far, too. 0 keeps odd pixels, which are left out where T is not given.",
        "T",
        kind="number",
        excludes=_NOT_EXTRACTED,
    )
    seed: int = option(
        0,
        "values",
        "Seed of vca's directions and of the draws of `average`.",
        "S",
        kind="whole",
        least=0,
        most=9223372036854775807,
    )
