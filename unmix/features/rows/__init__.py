"""`rows`: the few spectra of a library that a whole scene needs, their number found or given, with what the loss of each would cost."""

from typing import Any

from .. import Feature, InRuns, Part
from .settings import RowsSettings


def begin(options: Any) -> Part:
    """Return what is done in the run of one scene."""
    from .scene import RowsOfScene

    return RowsOfScene(options)


def headline(entry: dict[str, Any]) -> str:
    """Return words for the first line of a report."""
    return f" that {'rows auto' if entry['asked'] == 'auto' else 'rows'} keeps of {int(entry['of'])}"


def section(entry: dict[str, Any]) -> str:
    """Return HTML for a report."""
    from .page import section

    return section(entry)


def check(solved: Any, everything: bool) -> tuple[list[str], str]:
    """Return faults of the rows that a finished run kept, and what was found right."""
    from .check import check

    return check(solved, everything)


FEATURE = Feature(
    "rows",
    public={"rows": "choice", "Choice": "choice"},
    in_runs=InRuns(RowsSettings, begin, headline, section, check, "`rows` auto leaves few in the whole scene"),
)
