"""The option `names`."""

import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ...settings import setting

if TYPE_CHECKING:
    from ...library import Endmembers

_of_endmembers = partial(setting, group="Endmembers")


@dataclass(frozen=True, kw_only=True)  # the order of the other options stays what it is
class NamesSettings:
    """The option of what is missing."""

    names: "str | os.PathLike[str] | Endmembers | None" = _of_endmembers(
        None, "contents",
        "Library to name a spectrum that pixels share and the endmembers lack. Not for `l1`, `tv` and `laplacian`.",
        "LIBRARY", kind="input", is_path=True, unset="what `select` leaves out of `endmembers`",
        excludes=dict.fromkeys(("mesma", "l1", "tv", "laplacian"), "since it is for mixtures without a penalty"),
    )  # fmt: skip
