"""Unmix many scenes, or the parts of one, on a Dask cluster."""

from .. import Feature

FEATURE = Feature(
    "cluster",
    commands={"batch": "Unmix many scenes on many machines."},
    public={"batch": "batch"},
)
