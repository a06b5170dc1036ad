"""Selection of bands by orthogonal projections: the least collinear bands, or bands that predict a target."""

from .. import Feature

FEATURE = Feature(
    "bands",
    commands={"bands": "Choose the least collinear bands, or those that predict a target."},
    public={"select_bands": "arrays", "Selection": "arrays", "bands_of": "scene"},
)
