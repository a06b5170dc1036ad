"""`rows`: the few spectra of a library that a whole scene needs, their number found or given, with what the loss of each would cost."""

from typing import Any

from .. import Feature, InRuns, later
from .settings import RowsSettings


def headline(entry: dict[str, Any]) -> str:
    """Return words for the first line of a report."""
    return f" that {'rows auto' if entry['asked'] == 'auto' else 'rows'} keeps of {int(entry['of'])}"


FEATURE = Feature(
    "rows",
    public={"rows": "choice", "Choice": "choice"},
    in_runs=InRuns(
        RowsSettings,
        later(__name__, "scene:RowsOfScene"),
        headline,
        later(__name__, "page:section"),
        later(__name__, "check:check"),
        "`rows` auto leaves few in the whole scene",
    ),
)
