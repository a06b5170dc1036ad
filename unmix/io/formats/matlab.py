"""Read cubes in MATLAB files: version 5 (`unmix.io.formats.matlab5`), and 7.3, which is HDF5 with reversed axes.

A variable is one stream, column by column, so it is written once to a scratch file (BSQ), and read from there like any
cube.
"""

import contextlib
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import CubeError, MethodError, brief, say_once
from ..cube import Cube, Kind, as_stored
from ..fields import DTYPES
from ..probe import survives
from ..read import ScratchFile, refuse_links, refuse_links_out
from ..remote import RemotePath
from .cf import names_of_no_data
from .header import MOST_BANDS, axis_in_nanometres
from .matlab5 import Shapes, Version5, refuse_large

KIND = Kind(
    "MATLAB",
    "v5 and v7.3: the one variable (y, x, b), or (b, pixels) with `nRow` and `nCol`; else `--dataset NAME`, or "
    "`NAME:byx` with its "
    "axes in any order",
    "`wavelength`, `wavelengths`, `wl` or `lambda`, `fwhm`, `bbl`; `--wavelengths NAME`",
    "none",
    "NaN; `nodata` and the like; `maxValue`; `--nodata`, `--scale`",
)
# Orders of axes that are tried, each with another axis of bands, where only the number of wavelengths tells it.
ORDERS = ("yxb", "ybx", "byx")
# Names of wavelength variables beside a cube, where they have one value a band; from files seen.
WAVELENGTHS = ("wavelength", "wavelengths", "wl", "lambda")
ROWS, COLUMNS = "nRow", "nCol"
# The stored value that is 1, of whole numbers, beside them.
FULL = "maxValue"


@dataclass(eq=False)
class MatlabCube(Cube):
    """A variable of a MATLAB file; see `unmix.io.cube.Cube` for the attributes."""

    variable: str

    def storage(self) -> dict[str, Any]:
        """Return how the file stores the cube; see `unmix.io.cube.Cube.storage`."""
        return {"variable": self.variable}


class Version73:
    """A file of version 7.3: HDF5 datasets with reversed axes."""

    format = f"{KIND.name} v7.3"

    def __init__(self, path: Path) -> None:
        import h5py  # 0.1 s, which not every library and cube needs

        self.path, self.file = path, h5py.File(path, "r")
        refuse_links_out(path, self.file)
        self.shapes: Shapes = {}
        self.texts_of: list[str] = []
        for name in self.file:
            with contextlib.suppress(KeyError, RuntimeError, OSError, TypeError):  # a broken link
                data = self.file[name]
                if isinstance(data, h5py.Dataset) and data.shape is not None and data.dtype.kind in "fiu":
                    self.shapes[name] = data.shape[::-1]

    def dataset(self, name: str) -> Any:
        """Return a variable's dataset; raise `CubeError` where its values lie in other files."""
        refuse_links(self.path, self.file[name])
        return self.file[name]

    def dtype(self, name: str) -> np.dtype:
        """Return the type of a variable, in native byte order."""
        return np.dtype(self.dataset(name).dtype.newbyteorder("="))

    def value(self, name: str) -> np.ndarray:
        """Return a variable with its axes as in MATLAB."""
        refuse_large(self.path, name, self.shapes[name], self.dtype(name).itemsize)
        return np.asarray(self.dataset(name)[()]).T

    def texts(self, name: str) -> list[str]:
        """Return no strings: in this version they lie behind references, which are not read."""
        return []

    def close(self) -> None:
        """Close the file."""
        self.file.close()


def open_matlab(
    path: Path, dataset: str | None = None, wavelengths: str | None = None, size: tuple[int, int] | None = None
) -> MatlabCube:
    """Open the cube of a MATLAB file: ``dataset`` (as ``NAME`` or ``NAME:byx``), else the only candidate variable."""
    if isinstance(path, RemotePath):
        raise CubeError(f"{path}: MATLAB files are read from disks only; download it first")
    try:
        with contextlib.closing(open_variables(path)) as file:
            return describe(path, file, dataset, wavelengths, size)
    except (CubeError, MethodError):
        raise
    except Exception as error:  # a damaged file may raise anything
        raise CubeError(f"{path}: is damaged, or no MATLAB file: {brief(error)}") from None


def open_variables(path: Path) -> Version5 | Version73:
    """Open a MATLAB file of either version, and return its variables."""
    import h5py

    if not h5py.is_hdf5(path):
        return Version5(path)
    survives(path, lambda: Version73(path))
    return Version73(path)


def describe(
    path: Path, file: Version5 | Version73, dataset: str | None, wavelengths: str | None, size: tuple[int, int] | None
) -> MatlabCube:
    """Return the cube of an open file; of ``size`` where that says none."""
    if {ROWS, COLUMNS} <= set(file.shapes):
        size = None
    name, _, axes = (dataset or "").lstrip("/").partition(":")
    labels = None if size or {ROWS, COLUMNS} <= set(file.shapes) else label_raster(file)
    name = name or labels or find_cube(path, file.shapes, size)
    if axes and sorted(axes) != sorted("yxb"):
        raise MethodError(f"`dataset` {dataset}: the axes must be an order of y, x and b, such as byx, not '{axes}'")
    if name not in file.shapes:
        raise CubeError(f"{path}: has no variable '{name}' of numbers; it has: {listed(file.shapes)}")
    stored = file.shapes[name]
    if axes and len(stored) != 3:
        raise MethodError(f"`dataset` {dataset}: {name} has no three axes, but the shape {stored}; name it alone")
    axes = axes or axes_of_variable(file, stored, wavelengths)
    shape = tuple(stored[axes.index(axis)] for axis in "yxb") if len(stored) == 3 else stored
    if len(shape) == 2:
        shape = (*shape, 1) if name == labels else shape_of_pixels(path, file, name, size)
    if len(shape) == 3 and shape[2] > MOST_BANDS:
        raise CubeError(f"{path}: '{name}' has {shape[2]} bands; is it a cube of (lines, samples, bands)?")
    if len(shape) != 3 or 0 in shape:
        raise CubeError(f"{path}: '{name}' has the shape {shape}; a cube has three axes, none empty")
    dtype = file.dtype(name)
    if dtype not in DTYPES.values():
        raise CubeError(
            f"{path}: '{name}' is of type {dtype}; cubes are of whole numbers, or real ones of 32 or 64 bits"
        )
    lines, samples, bands = shape
    make = functools.partial(inflate_variable, path, name, (lines, samples, bands), axes, dtype)
    cube = MatlabCube(
        path, path.stem, file.format, lines, samples, bands, dtype, "bsq", name, scratch=ScratchFile(make)
    )
    axis = wavelengths.lstrip("/") if wavelengths is not None else of_variable_bands(file, WAVELENGTHS, bands)
    if axis is not None:
        if axis not in file.shapes or np.prod(file.shapes[axis]) != bands:
            raise CubeError(f"{path}: '{axis}' is no variable of {bands} wavelengths; it has: {listed(file.shapes)}")
        waves = np.asarray(file.value(axis), float).ravel()
        if wavelengths is not None or (np.all(np.isfinite(waves)) and np.all(waves > 0)):
            widths = of_variable_bands(file, ("fwhm",), bands)
            fwhm = None if widths is None else np.asarray(file.value(widths), float).ravel()
            cube.wavelengths, cube.fwhm = axis_in_nanometres(waves, fwhm, "", path, cube.problems)
    good = of_variable_bands(file, ("bbl",), bands)
    cube.good_bands = None if good is None else np.asarray(file.value(good)).ravel() != 0
    for blank in (name for name in names_of_no_data(file.shapes) if np.prod(file.shapes[name]) == 1):
        cube.nodata = as_stored(float(file.value(blank).ravel()[0]), dtype, path, cube.problems)
    full = float(file.value(FULL).ravel()[0]) if np.prod(file.shapes.get(FULL, (0,))) == 1 else 0.0
    if dtype.kind in "iu" and 1 < full < np.inf:
        cube.gain = np.full(bands, 1 / full)
        say_once(f"{path}: values are divided by its {FULL}, {full:g}")
    return cube


def axes_of_variable(file: Version5 | Version73, stored: tuple[int, ...], wavelengths: str | None) -> str:
    """Return the order of a variable's axes: (y, x, b), unless another axis alone is as long as its wavelengths."""
    named = (
        [wavelengths.lstrip("/")] if wavelengths is not None else [n for n in file.shapes if n.lower() in WAVELENGTHS]
    )
    lengths = {int(np.prod(file.shapes[name])) for name in named if name in file.shapes}
    fitting = [order for order in ORDERS if len(stored) == 3 and stored[order.index("b")] in lengths]
    return fitting[0] if len(fitting) == 1 else ORDERS[0]


def label_raster(file: Version5 | Version73) -> str | None:
    """Return the only variable, where it has two axes and bytes, as labels of benchmarks do; None otherwise."""
    found = [name for name, shape in file.shapes.items() if len(shape) > 2 or min(shape) > 1]
    is_one = len(found) == 1 and len(file.shapes[found[0]]) == 2 and file.dtype(found[0]).itemsize == 1
    return found[0] if is_one else None


def find_cube(path: Path, shapes: Shapes, size: tuple[int, int] | None) -> str:
    """Return the name of the one variable that is a cube, rather one of more than four bands than another."""
    candidates = [name for name, shape in shapes.items() if len(shape) == 3]
    if len(candidates) > 1:
        candidates = [name for name in candidates if shapes[name][2] > 4] or candidates
    if not candidates and ({ROWS, COLUMNS} <= set(shapes) or size):
        count = size and size[0] * size[1]
        tables = {name: shape for name, shape in shapes.items() if len(shape) == 2 and min(shape) > 1}
        candidates = [name for name, shape in tables.items() if count is None or count in shape]
        if len(candidates) > 1:  # such as the endmembers
            largest = max(np.prod(shapes[name]) for name in candidates)
            candidates = [name for name in candidates if np.prod(shapes[name]) == largest]
    if len(candidates) != 1:
        if not candidates and not any(len(shape) == 3 for shape in shapes.values()):
            raise CubeError(
                f"{path}: no variable has three axes, nor two beside {ROWS} and {COLUMNS} ({listed(shapes)}); save "
                "these, or a structure's numbers, as variables"
            )
        raise CubeError(f"{path}: more than one variable could be the cube; name it with `dataset`: {listed(shapes)}")
    return candidates[0]


def listed(shapes: Shapes) -> str:
    """Return the first eight variables with their shapes, as text."""
    entries = [f"{brief(name)} {shape}" for name, shape in list(shapes.items())[:8]]
    return ", ".join(entries) or "none of numbers"


def shape_of_pixels(
    path: Path, file: Version5 | Version73, name: str, size: tuple[int, int] | None
) -> tuple[int, int, int]:
    """Return (lines, samples, bands) of a variable (bands, pixels) or (pixels, bands), pixels column by column."""
    if size is None and not {ROWS, COLUMNS} <= set(file.shapes):
        raise CubeError(
            f"{path}: '{name}' has two axes, but there are no {ROWS} and {COLUMNS} to give its lines and samples: save "
            "them in the file"
        )
    rows, columns = size or (whole_number(path, key, file.value(key)) for key in (ROWS, COLUMNS))
    shape = file.shapes[name]
    if rows < 1 or columns < 1 or rows * columns not in shape:
        raise CubeError(f"{path}: '{name}' has the shape {shape}, but {ROWS} x {COLUMNS} is {rows} x {columns}")
    return rows, columns, shape[0] if shape[1] == rows * columns else shape[1]  # where both fit, (bands, pixels)


def whole_number(path: Path, name: str, value: np.ndarray) -> int:
    """Return the one whole number that a variable holds."""
    if value.size != 1 or not np.isfinite(value.ravel()[0]) or value.ravel()[0] != int(value.ravel()[0]):
        raise CubeError(f"{path}: '{name}' is not a whole number")
    return int(value.ravel()[0])


def of_variable_bands(file: Version5 | Version73, names: tuple[str, ...], bands: int) -> str | None:
    """Return the first variable with one of these names, in upper or lower case, and one value a band; or None."""
    for name, shape in file.shapes.items():
        if name.lower() in names and np.prod(shape) == bands and max(shape) == bands:
            return name
    return None


def inflate_variable(path: Path, name: str, shape: tuple[int, int, int], axes: str, dtype: np.dtype) -> Any:
    """Write a variable, of three axes in the order ``axes`` or of two, into a scratch file, and return that."""
    from ..scratch import from_pieces
    from ..scratch import inflate as inflate_chunks

    lines, samples, bands = shape
    try:
        with contextlib.closing(open_variables(path)) as file:
            if len(file.shapes[name]) == 3 and isinstance(file, Version73):
                return inflate_chunks(path, file.dataset(name), axes[::-1], dtype)
            stored = file.value(name)
            if stored.ndim == 3:
                cube = stored.transpose([axes.index(axis) for axis in "byx"])
            else:
                flat = stored if stored.shape == (bands, samples * lines) else stored.T
                cube = flat.reshape(bands, samples, lines).transpose(0, 2, 1)
            pieces = (([b, 0, 0], np.ascontiguousarray(cube[b : b + 1], dtype)) for b in range(bands))
            return from_pieces(path, [bands, lines, samples], dtype, pieces)
    except CubeError:
        raise
    except Exception as error:
        raise CubeError(f"{path}: '{name}' is damaged: {brief(error)}") from None
