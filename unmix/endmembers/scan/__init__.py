"""Pass over the pixels of a scene: their sums and projections, in units of pixels that threads share."""

from .threads import UNIT, Gpu, View, held_by, numbers, projections, scattered, stored_of, totals_of, walk

__all__ = ["UNIT", "Gpu", "View", "held_by", "numbers", "projections", "scattered", "stored_of", "totals_of", "walk"]
