"""Products of missions: EMIT's fractional cover."""

from .. import Feature

FEATURE = Feature(
    "emit",
    commands={"product": "Make a mission's product of a granule: EMIT's fractional cover."},
    public={"emit_frcov": "frcov"},
)
