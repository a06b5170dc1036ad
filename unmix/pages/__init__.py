"""Pictures and pages of finished runs: a browse image beside the maps, and one HTML file that needs nothing else.

They need no more than the base installation. The browse image holds no time or path; a page shows the run's record,
which does: the page of one finished run is the same bytes each time.
"""

from .pictures import (
    BLOCK_BYTES,
    CLASSES,
    MAGMA,
    MOST_CLASSES,
    VIRIDIS,
    Canvas,
    MapView,
    colour_of,
    dash_of,
    fields_of_classes,
    hex_of,
    png,
    ramp,
    thin_bands,
    thinned_lines,
    views_of,
)
