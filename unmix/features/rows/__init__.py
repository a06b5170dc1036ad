"""`rows`: the few spectra of a library that a whole scene needs, their number found or given, with what the loss of each would cost."""

from .. import Feature

FEATURE = Feature(
    "rows",
    commands={"rows": "Choose the few spectra of a library that scenes need."},
    public={"rows": "choice", "Choice": "choice"},
    is_in_runs=True,
)
