"""Validation of a run with plots of the ground: measured fractions at places beside those of the run's maps."""

from .. import Feature

FEATURE = Feature(
    "plots",
    commands={"validate": "Compare a run's maps with plots of the ground."},
    public={"validate": "plots"},
)
