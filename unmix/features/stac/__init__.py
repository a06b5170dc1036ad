"""STAC: items of finished runs, and scenes that items name."""

from .. import Feature

FEATURE = Feature(
    "stac",
    commands={"stac": "Describe finished runs as STAC items."},
    public={"stac": "items"},
    documents="documents",
)
