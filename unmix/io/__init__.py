"""Reading and writing: one file a format, behind one `Cube`."""

import os
from collections.abc import Callable
from pathlib import Path

from .cube import INTERLEAVES, Bands, Cube, bytes_per_line, missing, spectra
from .envi import open_envi

# Format by extension of either file; everything else is tried as ENVI.
FORMATS: dict[str, Callable[[Path], Cube]] = {}


def open_cube(path: str | os.PathLike[str]) -> Cube:
    """Open a scene; reads its header only.

    Parameters
    ----------
    path : path-like
        The cube: for ENVI, the header or the data file.

    Returns
    -------
    Cube

    Raises
    ------
    CubeError
        Where the file is missing, unreadable, truncated or of a kind that is not supported.
    """
    path = Path(path)
    return FORMATS.get(path.suffix.lower(), open_envi)(path)


__all__ = ["INTERLEAVES", "Bands", "Cube", "bytes_per_line", "missing", "open_cube", "spectra"]
