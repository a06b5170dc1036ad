"""The maps that a run may write: what each holds and how it may be stored."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Map:
    """A map, ``STEM_name``.

    Attributes
    ----------
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
    is_derived : bool
        Whether it is made of abundances (`unmix.jobs.derived`), not by the solver.
    """

    has_unit: bool = True
    is_share: bool = False
    can_be_quantized: bool = False
    may_be_negative: bool = False
    is_of_classes: bool = False
    is_derived: bool = False


MAPS = {
    "abundance": Map(has_unit=False, is_share=True, can_be_quantized=True),
    "rmse": Map(),
    "residual": Map(can_be_quantized=True, may_be_negative=True),
    "certificate": Map(has_unit=False),
    "index": Map(),
    "fraction": Map(has_unit=False, is_share=True, can_be_quantized=True, is_derived=True),
    "model": Map(is_derived=True),
    "sigma": Map(has_unit=False, is_derived=True),
    "spread": Map(is_derived=True),
    "montecarlo": Map(has_unit=False, can_be_quantized=True, is_derived=True),
    "class": Map(is_of_classes=True, is_derived=True),
    "unweighted": Map(is_derived=True),
    "scale": Map(),
}
# What follows the name of a map that is placed on the ground.
ORTHO = "_ortho"


def map_named(name: str) -> Map:
    """Return what the map of this name is, placed or not."""
    return MAPS[name.removesuffix(ORTHO)]
