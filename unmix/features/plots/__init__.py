"""Validation of a run with plots of the ground: measured fractions at places of a table, beside what its maps have there."""

from .. import Feature

FEATURE = Feature(
    "plots",
    commands={"validate": "Compare a run's maps with plots of the ground."},
    public={"validate": "plots"},
)
