"""STAC items of finished runs."""

from .. import Feature

FEATURE = Feature(
    "stac",
    commands={"stac": "Describe finished runs as STAC items."},
    public={"stac": "items"},
)
