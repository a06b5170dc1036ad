"""`missing`: the spectrum that pixels share and no mixture of the endmembers has, and which of a library it is."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...settings import setting
from .. import Feature, InRuns, later

if TYPE_CHECKING:
    from ...library import Endmembers


@dataclass(frozen=True, kw_only=True)  # the order of the other options stays what it is
class NamesSettings:
    """The option of what is missing."""

    names: "str | os.PathLike[str] | Endmembers | None" = setting(
        None, "contents",
        "Library to name a spectrum that pixels share and the endmembers lack. Not for `l1`, `tv` and `laplacian`.",
        "LIBRARY", group="Endmembers", kind="input", is_path=True, before="by", unset="what `select` leaves out of `endmembers`",
        excludes=dict.fromkeys(("mesma", "l1", "tv", "laplacian"), "since it is for mixtures without a penalty"),
    )  # fmt: skip


FEATURE = Feature(
    "missing",
    in_runs=InRuns(
        NamesSettings, later(__name__, "scene:Lacks"), section=later(__name__, "page:section"), is_always=True
    ),
)
