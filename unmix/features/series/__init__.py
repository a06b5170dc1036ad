"""Series of one place: the change a year of each material, in each pixel of runs at several dates."""

from .. import Feature

FEATURE = Feature(
    "series",
    commands={"series": "Map the change a year over runs of one place."},
    public={"series": "trends"},
)
