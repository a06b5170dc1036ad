"""Spectral libraries: load them from files, select spectra by name, and bring them to the bands of a cube.

The functions of `files` import it when they are called: a run that extracts its endmembers loads no library.
"""

from typing import TYPE_CHECKING

from ..later import later
from .classes import BRIGHTNESS, OF_LIGHT, SCALE, ClassSums, table_of_classes
from .envi import is_envi_library
from .fractions import DESCRIPTIONS, Normalization
from .spectra import DELETED, SHADE, Endmembers, duplicates, select

if TYPE_CHECKING:
    from .files import files_of, is_library, load, load_for, load_library, load_parts, prepared
    from .matching import match
    from .table import of_frame
    from .to_bands import fit, resample
else:
    fit, resample, match, of_frame = (
        later(__package__, name) for name in ("to_bands:fit", "to_bands:resample", "matching:match", "table:of_frame")
    )
    files_of, is_library, load, load_for, load_library, load_parts, prepared = (
        later(__package__, f"files:{name}")
        for name in ("files_of", "is_library", "load", "load_for", "load_library", "load_parts", "prepared")
    )
