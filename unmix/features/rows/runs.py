"""The part of `rows` in runs."""

from typing import Any

from ...later import later
from ..runs import InRuns
from .settings import RowsSettings


def headline(entry: dict[str, Any]) -> str:
    """Return words for the first line of a report."""
    return f" that {'rows auto' if entry['asked'] == 'auto' else 'rows'} keeps of {int(entry['of'])}"


IN_RUNS = InRuns(
    RowsSettings,
    later(__package__, "scene:RowsOfScene"),
    headline,
    later(__package__, "page:section"),
)
