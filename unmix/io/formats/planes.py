"""Read HDF5 and NetCDF files whose bands are datasets (y, x), as ACOLITE and NASA's ocean colour write them."""

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ...errors import CubeError, brief
from ..fields import DTYPES
from ..read import MOST_TOGETHER, ScratchFile, refuse_links
from .cf import WAVELENGTHS, Beside, type_of_attribute
from .cf_place import describe
from .hdf5 import Attributes, DatasetPart, Hdf5Cube, beside, refuse_filters, together, variable_in

# Fewest datasets that are bands of a cube.
FEWEST_BANDS = 3
# The name of a band: a beginning, and its wavelength in nm at the end.
BAND = re.compile(r"(.*?)_?(\d{3,4}(?:\.\d+)?)(?:nm)?$")


def sets_of_planes(file: h5py.File) -> dict[str, list[h5py.Dataset]]:
    """Return the datasets (y, x) of each group whose names differ by a final wavelength, by `/GROUP/BEGINNING_*`."""
    found: dict[tuple[str, Any, Any], list[h5py.Dataset]] = {}

    def visit(path: str, data: Any) -> None:
        folder, _, name = path.rpartition("/")
        match = BAND.match(name)
        if isinstance(data, h5py.Dataset) and data.ndim == 2 and data.dtype.kind in "iuf" and match:
            stem = name[: match.start(2)]
            found.setdefault((f"{folder}/{stem}*".lstrip("/"), data.shape, data.dtype), []).append(data)

    file.visititems(visit)
    return {
        key[0]: sorted(planes, key=wavelength_of_band) for key, planes in found.items() if len(planes) >= FEWEST_BANDS
    }


def wavelength_of_band(data: h5py.Dataset) -> float:
    """Return the wavelength of a band, from its attribute, else from its name."""
    own = Attributes(data)
    said = next((one for name in WAVELENGTHS if (one := own.get(name)) is not None and np.size(one) == 1), None)
    match = BAND.match(data.name)
    return float(np.ravel(said)[0]) if said is not None else float(match[2]) if match else 0.0


def by_planes(file: h5py.File, path: Path, asked: str = "") -> Hdf5Cube | None:
    """Open the only set of bands, or the one ``asked`` for; None without one, `CubeError` where there are several."""
    sets = sets_of_planes(file)
    sets = {name: planes for name, planes in sets.items() if not asked or name == asked.strip("/")}
    if len(sets) > 1:
        listed = ", ".join(f"/{brief(name)} ({len(planes)} bands)" for name, planes in sets.items())
        raise CubeError(f"{path}: name its cube with `dataset`; there are: {listed}")
    return next((cube_of_planes(path, planes) for planes in sets.values()), None)


def cube_of_planes(path: Path, planes: list[h5py.Dataset]) -> Hdf5Cube:
    """Return the cube whose bands are datasets (y, x) of one shape and type."""
    first = planes[0]
    for data in planes:
        refuse_links(path, data)
        refuse_filters(path, data)
    dtype = type_of_attribute(first.dtype, Attributes(first))
    if dtype not in DTYPES.values() or 0 in first.shape:
        raise CubeError(f"{path}: {brief(first.name)} is of type {first.dtype} and shape {first.shape}: no band")
    parts, size = [DatasetPart(data, np.arange(1)) for data in planes], dict(zip("yx", first.shape))
    lines = together(first, 0)
    cube = Hdf5Cube(
        path, path.stem, "HDF5", size["y"], size["x"], len(planes), dtype, "bsq", parts, lines_together=lines
    )
    if lines > 1 and lines * cube.samples * cube.bands * dtype.itemsize > MOST_TOGETHER:
        cube.scratch, cube.lines_together = ScratchFile(functools.partial(written_to_scratch, path, parts, dtype)), 1
    near = beside(cube, first, "yx")
    groups = [Attributes(first.file), *([] if first.parent.name == "/" else [Attributes(first.parent)])]
    describe(cube, Beside(cube, list(map(variable_in, planes)), "yx", groups, near.find), [1] * len(planes))
    return cube


def written_to_scratch(path: Path, parts: list[DatasetPart], dtype: np.dtype) -> Any:
    """Write bands that cannot be read by lines to a scratch file, and return that."""
    from ..scratch import from_pieces

    lines, samples = parts[0].data.shape

    def pieces() -> Iterator[tuple[list[int], np.ndarray]]:
        for band, part in enumerate(parts):
            plane = np.empty((lines, samples), dtype)
            part.fill(slice(0, lines), 0, plane)
            yield [band, 0, 0], plane[None]

    return from_pieces(path, [len(parts), lines, samples], dtype, pieces())
