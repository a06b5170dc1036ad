"""Unmix hyperspectral pixels exactly, with a certificate for every pixel.

>>> import numpy as np, unmix
>>> E = np.array([[0.1, 0.8], [0.5, 0.4], [0.9, 0.2]])          # three bands of two endmembers
>>> Y = np.array([[0.625, 0.425, 0.375]])                       # one pixel
>>> unmix.solve(Y, E, method="fcls").abundances.round(6)        # arrays
array([[0.25, 0.75]])
>>> report = unmix.run("cube.hdr", method="fcls", count=3)      # files
>>> report["certified"]
True

Modules that need NumPy or Numba are imported when they are first used.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

from ._version import VERSION as __version__
from .errors import CubeError, DeviceError, InputError, LibraryError, MethodError, OutputError, UnmixError

if sys.platform == "win32":
    raise ImportError(
        "unmix runs on Linux and macOS: it locks and replaces files as these do; on Windows use it in WSL"
    )

# The package `unmix.features` is imported before others do, and its name left to the function `features`.
_features = importlib.import_module(".features", __name__)
del globals()["features"]

if TYPE_CHECKING:
    from .arrays.counts import Poisson, poisson
    from .arrays.nnls import Batch, nnls
    from .arrays.pixels import Solution, mesma, solve
    from .arrays.spatial import Spatial, spatial
    from .commands.check import check
    from .commands.extract import extract
    from .commands.finished.compare import compare
    from .commands.finished.export import export
    from .features.bands.arrays import Selection as Selection
    from .features.bands.arrays import select_bands as select_bands
    from .features.bands.scene import bands_of as bands_of
    from .features.cluster.batch import batch as batch
    from .features.emit.frcov import emit_frcov as emit_frcov
    from .features.images.detect import detect as detect
    from .features.images.features import features as features
    from .features.images.match import match as match
    from .features.images.mnf import mnf as mnf
    from .features.images.ppi import ppi as ppi
    from .features.nmf.arrays import Factors as Factors
    from .features.nmf.arrays import nmf as nmf
    from .features.nmf.scene import nmf_scene as nmf_scene
    from .features.plot.spectra import plot as plot
    from .features.ranges.arrays import Ranges as Ranges
    from .features.ranges.arrays import ranges as ranges
    from .features.rows.choice import Choice as Choice
    from .features.rows.choice import rows as rows
    from .features.series.trends import series as series
    from .features.stac.items import stac as stac
    from .features.systems.nnqp import Programme as Programme
    from .features.systems.nnqp import nnqp as nnqp
    from .features.viewer.serve import view as view
    from .features.xarray.engine import read as read
    from .io import open_cube
    from .library import Endmembers, load_library
    from .options import Options
    from .pages.write import report
    from .runs import run
    from .scene import ReadOptions

# The modules of the core's public names; features add theirs.
_LAZY = {
    "run": ".runs",
    "check": ".commands.check",
    "compare": ".commands.finished.compare",
    "solve": ".arrays.pixels",
    "mesma": ".arrays.pixels",
    "Solution": ".arrays.pixels",
    "nnls": ".arrays.nnls",
    "Batch": ".arrays.nnls",
    "spatial": ".arrays.spatial",
    "Spatial": ".arrays.spatial",
    "poisson": ".arrays.counts",
    "Poisson": ".arrays.counts",
    "report": ".pages.write",
    "export": ".commands.finished.export",
    "extract": ".commands.extract",
    "open_cube": ".io",
    "Endmembers": ".library",
    "load_library": ".library.files",
    "ReadOptions": ".scene",
    "Options": ".options",
    **_features.public(),
}


def _attach() -> None:
    """Let features attach themselves to other packages that are imported by now."""
    for one in _features.features():
        if one.attach is not None:
            one.attach()


_attach()


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name in _LAZY:
        _attach()  # another thread may have been importing them
        return getattr(importlib.import_module(_LAZY[name], __name__), name)
    raise AttributeError(f"module 'unmix' has no attribute '{name}'")


def __dir__() -> list[str]:
    """List the public names, imported yet or not."""
    return sorted({*__all__, "__version__", "__doc__", "__file__", "__name__", "__path__"})


__all__ = [
    "Batch",
    "CubeError",
    "DeviceError",
    "Endmembers",
    "InputError",
    "LibraryError",
    "MethodError",
    "Options",
    "OutputError",
    "Poisson",
    "ReadOptions",
    "Solution",
    "Spatial",
    "UnmixError",
    "__version__",
    "check",
    "compare",
    "export",
    "extract",
    "load_library",
    "mesma",
    "nnls",
    "open_cube",
    "poisson",
    "report",
    "run",
    "solve",
    "spatial",
]
__all__ += sorted(_features.public())
