"""Estimate the number of endmembers in a scene, and extract them from its pixels."""

from ..blocks import cores
from ..io import Scene
from .counts import Counts
from .extraction import capped, counts_of, extract_bundles, extract_from, listed
from .passes import Passes, named, signal_of
from .scan import Gpu
from .stability import stable


def count_endmembers(scene: Scene, budget: int, threads: int | None = None, with_stable: bool = False) -> Counts:
    """Estimate the number of endmembers by all criteria, in one pass over the scene, and a sample of its pixels.

    ``budget`` is bytes of memory for blocks and intermediate results. ``with_stable`` also counts by stability
    (`unmix.endmembers.stability`), in a second pass; it changes nothing of the others. `CubeError` if no pixel is valid, or the valid
    ones have no signal.
    """
    moments = signal_of(scene, budget, threads)
    passes = Passes([scene], budget, threads or cores())
    counts = counts_of(passes, moments)
    if with_stable:
        counts.by["stable"] = stable(moments, passes, budget // 2)
    return counts


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
