"""`rows`: the few spectra of a library that a whole scene needs, and the cost of the loss of each.

Their number is given or found.
"""

from .. import Feature

FEATURE = Feature(
    "rows",
    commands={"rows": "Choose the few spectra of a library that scenes need."},
    public={"rows": "choice", "Choice": "choice"},
    is_in_runs=True,
)
