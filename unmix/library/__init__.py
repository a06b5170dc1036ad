"""Spectral libraries: load them from files, select spectra by name, and bring them to the bands of a cube.

Names of `files` are imported when they are first used: a run that extracts its endmembers loads no library.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .classes import BRIGHTNESS, SCALE, ClassSums, table_of_classes
from .envi import is_envi_library
from .fit import fit, resample
from .fractions import DESCRIPTIONS, Normalization
from .match import AMBIGUOUS, Comparable, match
from .spectra import DELETED, SHADE, Endmembers, duplicates, select

if TYPE_CHECKING:
    from .files import FORMATS, files_of, is_library, load, load_for, load_library, load_parts, prepared

OF_FILES = ("FORMATS", "files_of", "is_library", "load", "load_for", "load_library", "load_parts", "prepared")


def __getattr__(name: str) -> Any:
    """Return a name of `files`."""
    if name in OF_FILES:
        return getattr(importlib.import_module(".files", __name__), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
