"""`at_most`: nonnegative least squares with at most K endmembers in a pixel, which no exchange of one betters."""

from .. import Feature

FEATURE = Feature("at_most", is_in_runs=True)
