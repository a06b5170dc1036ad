"""The maps of a run: which options ask for each, its content and how it is stored; and maps that no run writes."""

import functools
from typing import Any

from ..features import Image, features
from ..features.runs import Map, own_maps


def names_of_each(options: Any, L: int, p: int) -> int:
    """Return the number of bands of a map that has one for each endmember, or for each of the largest (`top`)."""
    return p if options.top is None else min(options.top, p)


MAPS = {
    "abundance": Map(
        lambda options: not options.mesma,
        names_of_each,
        "{what} {by}",
        has_unit=False,
        is_share=True,
        can_be_quantized=True,
    ),
    "rmse": Map(lambda options: True, lambda *_: 1, "RMSE {by}", ("rmse",)),
    "index": Map(
        lambda options: options.top is not None,
        names_of_each,
        "endmembers of the largest {what} {by}, from 1; 0 is none",
        names_things=True,
    ),
    "scale": Map(lambda options: options.normalize != "none", lambda *_: 1, "scale of {what} {by}", ("scale",)),
    "residual": Map(
        lambda options: options.residual,
        lambda options, L, p: L,
        "residual {by}",
        can_be_quantized=True,
        may_be_negative=True,
    ),
    "certificate": Map(
        lambda options: options.certificate,
        lambda *_: 3,
        "certificate {by}",
        ("kappa", "delta", "steps"),
        has_unit=False,
    ),
    "model": Map(lambda options: bool(options.mesma), names_things=True),
    "fraction": Map(lambda options: options.by is not None, has_unit=False, is_share=True, can_be_quantized=True),
    **{name: one.row for name, one in own_maps().items()},
    "class": Map(lambda options: options.class_map, is_of_classes=True, names_things=True),
    "unweighted": Map(lambda options: options.weights is not None, bands=("rmse",)),
    "free": Map(lambda options: options.reading.free is not None, may_be_negative=True),
    "reflectance": Map(lambda options: options.reading.albedo is not None, bands=("rmse",)),
}


@functools.cache
def images() -> dict[str, Image]:
    """Return the rows of all maps that commands other than a run write."""
    own = {"truth_abundance": Image("synth", has_unit=False), "truth_fraction": Image("synth", has_unit=False)}
    return {name: image for one in features() for name, image in one.images.items()} | own


# Suffix of the name of a map that is placed on the ground.
ORTHO = "_ortho"


def map_named(name: str) -> Map:
    """Return the row of `MAPS` for a map's name, placed or not."""
    return MAPS[name.removesuffix(ORTHO)]


def row_of(name: str) -> Map | Image:
    """Return the row of `MAPS` or `images` for a map's name, placed or not."""
    return images().get(name) or map_named(name)
