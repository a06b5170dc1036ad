"""`ranges`: the proved least and largest abundance, or sum of a class, over all mixtures that fit a pixel."""

from .. import Feature

FEATURE = Feature("ranges", public={"ranges": "arrays", "Ranges": "arrays"}, is_in_runs=True)
