"""The part of `grains` in runs."""

import os
from typing import Any

from ...later import later
from ...settings import for_a_feature, setting
from ..runs import InRuns, Map, OwnMap, Part


@for_a_feature
class GrainsSettings:
    """The option of shares of the mass."""

    grains: str | os.PathLike[str] | None = setting(
        None,
        "contents",
        "With `albedo`: a CSV table of name, density and diameter of each endmember's grains, by which abundances, the "
        "shares of the "
        "grains' cross-sections, become shares of the mass: STEM_mass.",
        "TABLE",
        group="Outputs",
        is_path=True,
        is_of_library="weighs",
        needs=("albedo",),
        before="normalize",
    )


class Grains(Part):
    """The table in the run of one scene."""

    def read(self, scene: Any, library: Any) -> None:
        """See `unmix.features.runs.Part.read`."""
        from .mass import mass_of

        self.mass = dict(zip(library.names, mass_of(self.options.grains, library.names).tolist()))

    def request(self) -> dict[str, Any]:
        """See `unmix.features.runs.Part.request`."""
        return {"grains": self.mass}


MAP = OwnMap(
    Map(lambda options: options.grains is not None, has_unit=False, is_share=True, can_be_quantized=True),
    later(__package__, "mass:made"),
)
IN_RUNS = InRuns(GrainsSettings, Grains, maps={"mass": MAP})
