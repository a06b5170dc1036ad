"""`uncertainty`: standard deviations that noise gives abundances, and for models what those say that fit nearly as well."""

from .. import Feature

FEATURE = Feature("uncertainty", is_in_runs=True)
