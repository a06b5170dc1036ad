"""`monte_carlo`: means and standard deviations of sums by class over random draws of spectra and noise."""

from .. import Feature

FEATURE = Feature("monte_carlo", is_in_runs=True)
