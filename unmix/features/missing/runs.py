"""The part of `missing` in runs."""

import os
from typing import TYPE_CHECKING

from ...later import later
from ...settings import for_a_feature, setting
from ..runs import InRuns

if TYPE_CHECKING:
    from ...library import Endmembers


@for_a_feature
class NamesSettings:
    """The option of what is missing."""

    names: "str | os.PathLike[str] | Endmembers | None" = setting(
        None,
        "contents",
        "Library to name a spectrum that pixels share and the endmembers lack. Not for `l1`, `tv` and `laplacian`.",
        "LIBRARY",
        group="Endmembers",
        kind="input",
        is_path=True,
        before="by",
        unset="what `select` leaves out of `endmembers`",
        excludes=dict.fromkeys(("mesma", "l1", "tv", "laplacian"), "since it is for mixtures without a penalty"),
    )


IN_RUNS = InRuns(
    NamesSettings, later(__package__, "scene:Lacks"), section=later(__package__, "page:section"), is_always=True
)
