"""Look for spectra that the endmembers of one scene lack, in a run and in `unmix.check`."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...io import Scene
from ...library import Endmembers, load_for
from ...problem.steps import Step, applied
from ..runs import Part
from .record import Missing
from .search import what_is_missing


class Lacks(Part):
    """The search for spectra that the endmembers lack; ``options`` are those of a run, of which `unmix.check` has some."""

    named: Endmembers | None = None
    found: Missing | None = None

    def read(self, scene: Scene, library: Endmembers | None) -> None:
        """See `unmix.features.runs.Part.read`."""
        if self.options.names is not None:
            self.named = load_for(self.options.names, scene, complete=True, across_gaps=True)

    def request(self) -> dict[str, Any]:
        """See `unmix.features.runs.Part.request`."""
        return {} if self.named is None else {"names": self.named.digest()}

    def look(
        self, sample: Any, look: Any, scene: Scene, library: Endmembers | None, steps: Sequence[Step] = ()
    ) -> None:
        """See `unmix.features.runs.Part.look`."""

        def candidates() -> list[Endmembers]:
            found = [self.named] if self.named is not None else rest_of(vars(self.options), library, scene)
            return [applied(steps, scene.bands, one)[1] for one in found]

        cube = scene.cube
        self.found = what_is_missing(sample, look, (cube.lines, cube.samples), candidates, self.options.threads)

    @property
    def lacking(self) -> float:
        """See `unmix.features.runs.Part.lacking`."""
        return 0.0 if self.found is None else self.found.share

    @property
    def said(self) -> str:
        """See `unmix.features.runs.Part.said`."""
        return "" if self.found is None else self.found.said

    def entry(self, summary: Any) -> dict[str, Any]:
        """See `unmix.features.runs.Part.entry`."""
        return {"missing": None if self.found is None else self.found.to_dict()}


def rest_of(asked: Mapping[str, Any], library: Endmembers | None, scene: Scene) -> list[Endmembers]:
    """Return what ``select`` left out of a library, on the bands in use, which is read again as was ``asked``; empty without such."""
    if asked["endmembers"] is None or library is None or asked["select"] is None:
        return []
    how = asked["classes"], asked["library_scale"], None, True, bool(asked["across_gaps"])
    whole = load_for(asked["endmembers"], scene, *how)
    rest = [j for j, name in enumerate(whole.names) if name not in library.names]
    return [whole.take(rest)] if rest else []
