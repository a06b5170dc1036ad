"""Pass over the pixels of a scene: their sums, projections and numbers, in units of pixels that threads share, lines of any length."""

from .threads import UNIT, Gpu, View, held_by, numbers, projections, scattered, stored_of, totals_of, walk

__all__ = ["UNIT", "Gpu", "View", "held_by", "numbers", "projections", "scattered", "stored_of", "totals_of", "walk"]
