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
importlib.import_module(".features", __name__)
del globals()["features"]

if TYPE_CHECKING:
    from .arrays.bands import Selection, select_bands
    from .arrays.counts import Poisson, poisson
    from .arrays.nmf import Factors, nmf
    from .arrays.nnls import Batch, nnls
    from .arrays.nnqp import Programme, nnqp
    from .arrays.path import Path, path
    from .arrays.pixels import Solution, mesma, solve
    from .arrays.ranges import Ranges, ranges
    from .arrays.spatial import Spatial, spatial
    from .cluster.batch import batch
    from .commands.bands import bands_of
    from .commands.check import check
    from .commands.extract import extract
    from .commands.finished.compare import compare
    from .commands.finished.export import export
    from .commands.finished.stac import stac
    from .commands.frcov import emit_frcov
    from .commands.images.detect import detect
    from .commands.images.features import features
    from .commands.images.match import match
    from .commands.images.mnf import mnf
    from .commands.images.ppi import ppi
    from .commands.images.superpixels import superpixels
    from .commands.nmf import nmf_scene
    from .commands.plot import plot
    from .features.rows.choice import Choice, rows
    from .io import open_cube
    from .library import Endmembers, load_library
    from .options import Options
    from .pages.write import report
    from .runs import run
    from .runs.penalties.penalty import path_of_scene
    from .scene import ReadOptions
    from .viewer.serve import view
    from .xarray_engine import read

_LAZY = {
    "run": ".runs", "batch": ".cluster.batch", "check": ".commands.check", "compare": ".commands.finished.compare",
    "nmf_scene": ".commands.nmf", "bands_of": ".commands.bands",
    "solve": ".arrays.pixels", "mesma": ".arrays.pixels", "Solution": ".arrays.pixels", "nnls": ".arrays.nnls", "Batch": ".arrays.nnls",
    "nnqp": ".arrays.nnqp", "Programme": ".arrays.nnqp", "nmf": ".arrays.nmf", "Factors": ".arrays.nmf",
    "rows": ".features.rows.choice", "Choice": ".features.rows.choice",
    "spatial": ".arrays.spatial", "Spatial": ".arrays.spatial",
    "ranges": ".arrays.ranges", "Ranges": ".arrays.ranges", "poisson": ".arrays.counts", "Poisson": ".arrays.counts",
    "path": ".arrays.path", "Path": ".arrays.path", "path_of_scene": ".runs.penalties.penalty",
    "select_bands": ".arrays.bands", "Selection": ".arrays.bands",
    "report": ".pages.write", "plot": ".commands.plot",
    "stac": ".commands.finished.stac",
    "detect": ".commands.images.detect", "features": ".commands.images.features",
    "mnf": ".commands.images.mnf", "match": ".commands.images.match",
    "ppi": ".commands.images.ppi", "superpixels": ".commands.images.superpixels",
    "export": ".commands.finished.export", "extract": ".commands.extract",
    "open_cube": ".io", "Endmembers": ".library", "load_library": ".library", "ReadOptions": ".scene", "Options": ".options",
    "emit_frcov": ".commands.frcov", "read": ".xarray_engine", "view": ".viewer.serve",
}  # fmt: skip


def _give_accessor() -> None:
    """Register ``dataset.unmix`` in xarray, where that is imported; what it needs is imported when it is first used."""
    xarray: Any = sys.modules.get("xarray")
    if hasattr(xarray, "register_dataset_accessor") and not hasattr(xarray.Dataset, "unmix"):
        made = lambda dataset: importlib.import_module(".xarray_engine", __name__).Unmixing(dataset)  # noqa: E731
        xarray.register_dataset_accessor("unmix")(made)


_give_accessor()


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name in _LAZY:
        _give_accessor()  # xarray may have been imported after this package
        return getattr(importlib.import_module(_LAZY[name], __name__), name)
    raise AttributeError(f"module 'unmix' has no attribute '{name}'")


def __dir__() -> list[str]:
    """List the public names, imported yet or not."""
    return sorted({*__all__, "__version__", "__doc__", "__file__", "__name__", "__path__"})


__all__ = [
    "Batch",
    "Choice",
    "CubeError",
    "DeviceError",
    "Endmembers",
    "Factors",
    "InputError",
    "LibraryError",
    "MethodError",
    "Options",
    "OutputError",
    "Path",
    "Poisson",
    "Programme",
    "Ranges",
    "ReadOptions",
    "Selection",
    "Solution",
    "Spatial",
    "UnmixError",
    "__version__",
    "bands_of",
    "batch",
    "check",
    "compare",
    "detect",
    "emit_frcov",
    "export",
    "extract",
    "features",
    "load_library",
    "match",
    "mesma",
    "mnf",
    "nmf",
    "nmf_scene",
    "nnls",
    "nnqp",
    "open_cube",
    "path",
    "path_of_scene",
    "plot",
    "poisson",
    "ppi",
    "ranges",
    "read",
    "report",
    "rows",
    "run",
    "select_bands",
    "solve",
    "spatial",
    "stac",
    "superpixels",
    "view",
]  # fmt: skip
