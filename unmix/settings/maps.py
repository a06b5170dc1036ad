"""The maps that a run may write: which options ask for each, what it holds and how it may be stored; and those that no run writes."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..features import Image, features


@dataclass(frozen=True)
class Map:
    """A map, ``STEM_name``.

    Attributes
    ----------
    is_wanted : callable
        Whether a run writes it, from its `unmix.options.Options`.
    count : callable or None
        The number of its bands, from the options, L bands in use and p endmembers. None for a map that `unmix.maps.derived` makes of
        abundances, which says itself how many it has.
    holds : str
        Text of its header; ``{what}`` stands for abundances or fractions, ``{by}`` for version and method. Derived maps have their own.
    bands : tuple of str
        Names of its bands, where these do not depend on the scene.
    has_unit : bool
        Whether values are in a unit, or else plain numbers.
    is_share : bool
        Whether its bands are shares from 0 to 1: two runs are compared by it, and programs show it with the colours of shares.
    can_be_quantized : bool
        Whether it has bands enough to be worth it, and values of a size that is known before the run.
    may_be_negative : bool
        Whether values below 0 are usual.
    is_of_classes : bool
        Whether it holds numbers of classes, as bytes; 0 is no data.
    names_things : bool
        Whether its values are numbers of things, of which there are no means.
    """

    is_wanted: Callable[[Any], bool]
    count: Callable[[Any, int, int], int] | None = None
    holds: str = ""
    bands: tuple[str, ...] = ()
    has_unit: bool = True
    is_share: bool = False
    can_be_quantized: bool = False
    may_be_negative: bool = False
    is_of_classes: bool = False
    names_things: bool = False

    @property
    def is_derived(self) -> bool:
        """Whether it is made of abundances (`unmix.maps.derived`), not by the solver."""
        return self.count is None


def of_each(options: Any, L: int, p: int) -> int:
    """Return the number of bands of a map that has one for each endmember, or for each of the largest (`top`)."""
    return p if options.top is None else min(options.top, p)


MAPS = {
    "abundance": Map(
        lambda options: not options.mesma,
        of_each,
        "{what} {by}",
        has_unit=False,
        is_share=True,
        can_be_quantized=True,
    ),
    "rmse": Map(lambda options: True, lambda *_: 1, "RMSE {by}", ("rmse",)),
    "index": Map(
        lambda options: options.top is not None,
        of_each,
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
    "sigma": Map(lambda options: options.uncertainty and not options.mesma, has_unit=False),
    "spread": Map(lambda options: options.uncertainty and bool(options.mesma)),
    "range": Map(lambda options: options.ranges is not None, has_unit=False, can_be_quantized=True),
    "montecarlo": Map(lambda options: options.monte_carlo is not None, has_unit=False, can_be_quantized=True),
    "class": Map(lambda options: options.class_map, is_of_classes=True, names_things=True),
    "unweighted": Map(lambda options: options.weights is not None, bands=("rmse",)),
    "reflectance": Map(lambda options: options.reading.albedo is not None, bands=("rmse",)),
    "mass": Map(lambda options: options.grains is not None, has_unit=False, is_share=True, can_be_quantized=True),
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
