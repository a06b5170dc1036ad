"""Series of one place: how much of each material there is more or less a year, in each pixel of runs at several dates."""

from .. import Feature

FEATURE = Feature(
    "series",
    commands={"series": "Map the change a year over runs of one place."},
    public={"series": "trends"},
)
