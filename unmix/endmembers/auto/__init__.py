"""`auto`, the default: endmembers by the cone, by means of near-pure pixels, or by simplices, whichever explain the scene best."""

from .choice import Chosen, auto, count_edges
from .corners import Cone, cone
from .likely import Likely

__all__ = ["Chosen", "Cone", "Likely", "auto", "cone", "count_edges"]
