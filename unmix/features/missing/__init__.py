"""`missing`: the spectrum that pixels share and no mixture of the endmembers has, and which of a library it is."""

from .. import Feature, InRuns, later
from .settings import NamesSettings

FEATURE = Feature(
    "missing",
    in_runs=InRuns(
        NamesSettings, later(__name__, "scene:Lacks"), section=later(__name__, "page:section"), is_always=True
    ),
)
