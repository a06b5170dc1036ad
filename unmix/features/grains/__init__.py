"""`grains`: shares of the mass of intimate mixtures, by density and diameter of the grains."""

from .. import Feature

FEATURE = Feature("grains", is_in_runs=True)
