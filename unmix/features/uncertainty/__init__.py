"""`uncertainty`: standard deviations of abundances by noise."""

from .. import Feature

FEATURE = Feature("uncertainty", is_in_runs=True)
