"""Tables of a run's maps by polygon: the means that parcels and stands have, their deviations, and what they are worth."""

from .. import Feature

FEATURE = Feature(
    "zonal",
    commands={"zonal": "Tabulate the maps of finished runs by polygon."},
    public={"zonal": "tables"},
)
