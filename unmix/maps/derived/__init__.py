"""Maps made of the float64 abundances beside them: sums by class, models, deviations, proved ranges, draws, RMSE without weights."""

from .table import MOST_WRITERS, DerivedMap, derived_maps, header_fields, threads_of_a_writer
