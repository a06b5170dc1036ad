"""Maps derived from float64 abundances: sums by class, models, deviations, proved ranges, draws, unweighted RMSE."""

from .table import MOST_WRITERS, DerivedMap, derived_maps, header_fields, threads_of_a_writer
