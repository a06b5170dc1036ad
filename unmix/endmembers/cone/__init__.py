"""`cone`: endmembers of a scene whose brightness varies, as the edges of the smallest cone around the directions of its pixels."""

from .corners import Cone, cone, count
from .smallest import amounts

__all__ = ["Cone", "amounts", "cone", "count"]
