"""Estimate the number of endmembers in a scene, and extract them from its pixels."""

from ..later import later
from .extraction import extract_bundles, extract_from, listed
from .passes import named, signal_of
from .scan import Gpu

count_endmembers, counts_of, capped = (
    later(__package__, f"counts:{name}") for name in ("count_endmembers", "counts_of", "capped")
)

__all__ = [
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
