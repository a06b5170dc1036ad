"""Reading and writing: one file a format, behind one `Cube`."""

import contextlib
import os
from importlib import import_module
from pathlib import Path

from ..errors import MethodError
from .cube import INTERLEAVES, Bands, Cube, as_stored, bytes_per_line, missing, spectra

# What a file begins with, and the module and function that opens it; everything else is tried as ENVI.
SIGNATURES = ((b"\x89HDF\r\n\x1a\n", "products", "open_hdf5"), (b"", "envi", "open_envi"))


def open_cube(path: str | os.PathLike[str], dataset: str | None = None, wavelengths: str | None = None) -> Cube:
    """Open a scene; reads its header only.

    Parameters
    ----------
    path : path-like
        The cube: for ENVI, the header or the data file; for a product in HDF5 or NetCDF-4, the file.
    dataset : str, optional
        The cube in an HDF5 file of no product that is known, ``/path`` or ``/path:byx`` with its axes in order (y lines,
        x samples, b bands; default yxb, or b where ``wavelengths`` fit no other).
    wavelengths : str, optional
        The dataset of its wavelengths, in nm or µm.

    Returns
    -------
    Cube

    Raises
    ------
    CubeError
        Where the file is missing, unreadable, truncated or of a kind that is not supported.
    MethodError
        Where ``dataset`` or ``wavelengths`` are given for a file that is not HDF5, or name no axes.
    """
    path = Path(path)
    head = b""
    if path.is_file():  # a pipe would be waited for; the reader says what is wrong
        with contextlib.suppress(OSError), open(path, "rb") as file:
            head = file.read(8)
    module, function = next((module, function) for start, module, function in SIGNATURES if head.startswith(start))
    named = {key: name for key, name in (("dataset", dataset), ("wavelengths", wavelengths)) if name is not None}
    if named and module != "products":
        raise MethodError(f"--{next(iter(named))} is for HDF5 files, which {path} is not")
    cube: Cube = getattr(import_module(f".{module}", __package__), function)(path, **named)
    return cube


__all__ = ["INTERLEAVES", "Bands", "Cube", "as_stored", "bytes_per_line", "missing", "open_cube", "spectra"]
