"""Reading and writing: one file a format, behind one `Cube`."""

import contextlib
import os
import stat
from importlib import import_module
from pathlib import Path

from ..errors import CubeError, MethodError
from .axis import axis_from_file
from .cube import INTERLEAVES, Bands, Cube, Kind, as_stored, bytes_per_line, missing, spectra
from .formats.envi import TIFF_MAGIC

HDF5 = b"\x89HDF\r\n\x1a\n"
# HDF5 may stand behind something else of one of these sizes.
USER_BLOCKS = (0, 512, 1024, 2048)
# What a file begins with, and the module and function that opens it; everything else is tried as ENVI.
SIGNATURES = (
    (HDF5, "products", "open_hdf5"),
    *((magic, "geotiff", "open_geotiff") for magic in TIFF_MAGIC),
    (b"MATLAB 5.0 MAT-file", "matlab", "open_matlab"),
    (b"MATLAB 7.3 MAT-file", "matlab", "open_matlab"),
    (b"", "envi", "open_envi"),
)


def open_cube(path: str | os.PathLike[str], dataset: str | None = None, wavelengths: str | None = None) -> Cube:
    """Open a scene; reads its header only.

    Parameters
    ----------
    path : path-like
        The cube: for ENVI, the header or the data file; GeoTIFF, MATLAB, or a product in HDF5 or NetCDF-4.
    dataset : str, optional
        The cube in an HDF5 file of no product that is known, ``/path`` or ``/path:byx`` with its axes in order (y lines,
        x samples, b bands; default yxb, or b where ``wavelengths`` fit no other).
    wavelengths : str, optional
        Its wavelengths, in nm or µm, in place of what it says of them: a file (`unmix.io.axis.axis_from_file`), or where none has
        that name the dataset in an HDF5 file. In a MATLAB file both may be names of variables.

    Returns
    -------
    Cube

    Raises
    ------
    CubeError
        Where the file is missing, unreadable, truncated or of a kind that is not supported.
    MethodError
        Where ``dataset`` is given for a file that is not HDF5, or names no axes.
    """
    path = Path(path)
    head = b""
    try:
        regular = stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        regular = False
    except OSError as error:  # a name that is too long, links that lead in circles
        raise CubeError(f"{path}: cannot be opened: {error.strerror}") from None
    if regular:  # a pipe would be waited for; the reader says what is wrong
        with contextlib.suppress(OSError), open(path, "rb") as file:
            head = file.read(max(USER_BLOCKS) + len(HDF5))
    start = next((at for at in USER_BLOCKS if head[at:].startswith(HDF5) and not head.startswith(b"MATLAB")), 0)
    module, function = next(
        (module, function) for magic, module, function in SIGNATURES if head[start:].startswith(magic)
    )
    has_names = module in ("products", "matlab")
    axis_file = None if wavelengths is None or (has_names and not os.path.isfile(wavelengths)) else Path(wavelengths)
    if dataset is not None and not has_names:
        raise MethodError(f"`dataset` is for HDF5 and MATLAB files, which {path} is not")
    inside = (("dataset", dataset), ("wavelengths", wavelengths if axis_file is None else None))
    named = {key: name for key, name in inside if name is not None}
    cube: Cube = getattr(import_module(f".formats.{module}", __package__), function)(path, **named)
    if axis_file is not None:
        cube.wavelengths, fwhm = axis_from_file(axis_file, cube.bands)
        cube.fwhm = cube.fwhm if fwhm is None else fwhm
    return cube


def kinds() -> list[Kind]:
    """Every kind of cube that is read; docs/formats.md is made of them."""
    envi, geotiff, products, matlab = (
        import_module(f".formats.{name}", __package__) for name in ("envi", "geotiff", "products", "matlab")
    )
    return [envi.KIND, *geotiff.KINDS, *(kind for kind, _ in products.PRODUCTS), products.NAMED, matlab.KIND]


__all__ = [
    "INTERLEAVES",
    "Bands",
    "Cube",
    "Kind",
    "as_stored",
    "bytes_per_line",
    "kinds",
    "missing",
    "open_cube",
    "spectra",
]
