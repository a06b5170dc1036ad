"""`auto`, the default: choose the endmembers of cones, near-pure means or simplices that explain a scene best."""

from .choice import Chosen, auto, count_edges
from .corners import Cone, cone
from .likely import Likely

__all__ = ["Chosen", "Cone", "Likely", "auto", "cone", "count_edges"]
