"""`average`: means and deviations of sums by class over models, weighted by their likelihood, or over plain draws."""

from .. import Feature

FEATURE = Feature("average", public={"ClassAverages": "likely", "average": "likely"}, is_in_runs=True)
