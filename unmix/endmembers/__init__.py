"""Estimate the number of endmembers in a scene, and extract them from its pixels."""

from ..blocks import cores
from ..io import Scene
from .counts import Counts
from .extraction import capped, counts_of, extract_bundles, extract_from, listed, without_odd
from .passes import Passes, named, signal_of
from .scan import Gpu


def count_endmembers(scene: Scene, budget: int, threads: int | None = None) -> Counts:
    """Estimate the number of endmembers by all criteria, in one pass over the scene; ``budget`` is bytes of memory."""
    scenes, moments = [scene], signal_of(scene, budget, threads)
    if any(map(len, moments.odd)):
        scenes, _ = without_odd(scenes, moments.odd)
        moments = signal_of(scenes[0], budget, threads)
    return counts_of(Passes(scenes, budget, threads or cores()), moments)


__all__ = [
    "Counts",
    "Gpu",
    "capped",
    "count_endmembers",
    "counts_of",
    "extract_bundles",
    "extract_from",
    "listed",
    "named",
    "signal_of",
]
