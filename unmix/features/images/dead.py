"""Warn of dead bands, which decide depths and angles as a whole."""

import logging

from ...io import Scene, counted, in_ranges
from ...scene import survey

log = logging.getLogger("unmix")


def warn_of_constant(scene: Scene) -> None:
    """Warn of bands in use that have one value on a sample, as those of a dead detector have."""
    if bands := survey(scene).faults()["constant"]:
        log.warning(
            f"{scene.cube.path}: {counted(len(bands), 'band')} in use with one value on the sample: "
            f"{in_ranges(bands)}; `bands` auto leaves such bands out"
        )
