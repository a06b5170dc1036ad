"""`uncertainty`: standard deviations of abundances by noise, and the spread of models that fit nearly as well."""

from .. import Feature

FEATURE = Feature("uncertainty", is_in_runs=True)
