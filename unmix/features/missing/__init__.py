"""`missing`: the spectrum that pixels share and no mixture of the endmembers has, and which of a library it is."""

from .. import Feature

FEATURE = Feature("missing", is_in_runs=True)
