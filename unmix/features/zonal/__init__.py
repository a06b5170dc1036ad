"""Tables of a run's maps by polygon: the means of parcels and stands, their deviations, and their reliability."""

from .. import Feature

FEATURE = Feature(
    "zonal",
    commands={"zonal": "Tabulate the maps of finished runs by polygon."},
    public={"zonal": "tables"},
)
