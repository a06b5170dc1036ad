"""Hyperspectral unmixing that is exact and proves it, at the speed of the disk and the bus.

>>> import unmix
>>> result = unmix.solve(Y, E, method="fcls")        # arrays
>>> report = unmix.run("cube.hdr", method="fcls")    # files

Nothing heavy is imported until it is used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .errors import CubeError, DeviceError, LibraryError, MethodError, OutputError, UnmixError

if TYPE_CHECKING:
    from .arrays import Solution, solve
    from .blind import nmf_scene
    from .factorisation import Factors, nmf
    from .io import open_cube
    from .job import run
    from .library import Endmembers
    from .quadratic import Programme, nnqp
    from .scene import Reading
    from .selecting import bands_of
    from .selection import Selection, select_bands
    from .soundness import check
    from .systems import Batch, nnls

__version__ = "0.1.0"

_LAZY = {
    "run": ".job", "check": ".soundness", "solve": ".arrays", "Solution": ".arrays", "open_cube": ".io", "Endmembers": ".library",
    "Reading": ".scene", "nnls": ".systems", "Batch": ".systems", "nnqp": ".quadratic", "Programme": ".quadratic",
    "nmf": ".factorisation", "Factors": ".factorisation", "nmf_scene": ".blind", "select_bands": ".selection",
    "Selection": ".selection", "bands_of": ".selecting",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name], __name__), name)
    raise AttributeError(f"module 'unmix' has no attribute '{name}'")


__all__ = [
    "Batch", "CubeError", "DeviceError", "Endmembers", "Factors", "LibraryError", "MethodError", "OutputError", "Programme",
    "Reading", "Selection", "Solution", "UnmixError", "bands_of", "check", "nmf", "nmf_scene", "nnls", "nnqp", "open_cube", "run",
    "select_bands", "solve",
]  # fmt: skip
