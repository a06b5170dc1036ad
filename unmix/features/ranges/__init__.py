"""`ranges`: the least and the largest abundance, or sum of a class, over all mixtures of a library that fit a pixel, proved."""

from .. import Feature

FEATURE = Feature("ranges", public={"ranges": "arrays", "Ranges": "arrays"}, is_in_runs=True)
