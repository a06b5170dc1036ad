"""A cube in an HDF5 or NetCDF-4 file, and the functions that the readers of products (`unmix.io.formats.products`) share."""

import functools
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ...errors import CubeError
from ..cube import FileCube, as_stored
from ..fields import DTYPES
from ..read import MOST_TOGETHER, Scratch, brief, refuse_links
from ..remote import fetched
from ..scratch import inflate
from .chunks import Layout
from .decoder import Decoder
from .header import MOST_BANDS, axis_in_nanometres

# The interleave of every order of axes; a dataset whose order is not in STRAIGHT is inflated once into a scratch file, as BSQ.
LAYOUTS = {"yxb": "bip", "ybx": "bil", "byx": "bsq", "xyb": "bsq", "xby": "bsq", "bxy": "bsq"}
STRAIGHT = ("yxb", "ybx", "byx")
# Chunks that one call of the library may touch: each costs it some hundred bytes, and a million chunks of 8 bytes took gigabytes.
MOST_CHUNKS = 20_000


@dataclass
class Part:
    """Bands of a cube that lie in one dataset: ``take`` indexes its bands, in the cube's order; ``gain`` and ``offset`` scale them."""

    data: Any  # h5py.Dataset
    take: np.ndarray
    gain: float = 1.0
    offset: float = 0.0

    @functools.cached_property
    def layout(self) -> Layout:
        """How it lies in the file."""
        return Layout.of(self.data)

    @functools.cached_property
    def decoder(self) -> Decoder:
        """Decodes its chunks."""
        return Decoder.of(self.data)

    def read(self, lines: slice) -> np.ndarray:
        """Return some lines, the first axis of the dataset."""
        if not self.decoder.is_worthwhile:
            return np.asarray(self.data[lines])
        out = np.empty((lines.stop - lines.start, *self.decoder.shape[1:]), self.decoder.dtype)
        self.decoder.fill([lines], out)
        return out


@dataclass(eq=False)
class Hdf5Cube(FileCube):
    """A cube in an HDF5 file; see `unmix.io.cube.Cube` for the attributes.

    ``parts`` are the datasets that hold its bands. Where there are several, values are scaled as they are read, and a pixel that
    is 0 in every band becomes NaN. A dataset with a ``scratch`` file is read from there, as BSQ whatever its own order.
    """

    parts: list[Part]

    def fill(self, lines: slice, filled: np.ndarray) -> None:
        """Fill an array with whole lines as stored."""
        with fetched(self.path, lambda: self.stretches(lines)):
            if len(self.parts) == 1:
                self.read_chunks(lines, filled)
            else:
                self.read_parts(lines, filled)

    def read_chunks(self, lines: slice, filled: np.ndarray) -> None:
        """Read lines of the only dataset, its chunks by all cores, or by the library at most `MOST_CHUNKS` of them at a time."""
        data, axis, decoder = self.parts[0].data, 1 if self.interleave == "bsq" else 0, self.parts[0].decoder
        if decoder.is_worthwhile:
            decoder.fill([*[slice(None)] * axis, lines], filled)
            return
        step = max(1, MOST_CHUNKS // chunks_across(data, axis)) * (
            data.chunks[axis] if data.chunks else filled.shape[axis]
        )
        for first in range(lines.start, lines.stop, step):
            last = min(first + step, lines.stop)
            before = (slice(None),) * axis
            here = (*before, slice(first - lines.start, last - lines.start))
            data.read_direct(filled, source_sel=(*before, slice(first, last)), dest_sel=here)

    def read_parts(self, lines: slice, filled: np.ndarray) -> None:
        """Read lines of several datasets (y, b, x), scaled; a pixel is NaN where all its bands are 0."""
        empty = np.ones((filled.shape[0], filled.shape[2]), bool)
        first = 0
        for part in self.parts:
            stored = part.read(lines)[:, part.take]
            empty &= (stored == 0).all(axis=1)
            filled[:, first : first + len(part.take)] = stored * part.gain + part.offset
            first += len(part.take)
        np.moveaxis(filled, 1, 2)[empty] = np.nan

    def stretches(self, lines: slice) -> list[tuple[int, int]]:
        """Return the stretches ``(offset, bytes)`` of the file that hold some lines."""
        axis = 1 if self.interleave == "bsq" else 0
        wanted = [slice(None)] * axis + [lines]
        return [one for part in self.parts for one in part.layout.stretches(wanted)]

    def storage(self) -> dict[str, Any]:
        """Return how the file stores the cube; see `unmix.io.cube.Cube.storage`."""
        datasets = [part.data for part in self.parts]
        chunks = [list(data.chunks) if data.chunks else None for data in datasets]
        return {
            "datasets": [data.name for data in datasets],
            "chunks": chunks,
            "compression": [data.compression for data in datasets],
        }


def single(path: Path, data: Any, axes: str, axis: tuple[Any, Any, str]) -> Hdf5Cube:
    """Return the cube of one dataset; ``axis`` is its wavelengths and FWHM, as stored, and their unit."""
    if data.ndim != 3 or 0 in data.shape:
        raise CubeError(f"{path}: {data.name} has the shape {data.shape}; a cube has three axes, none empty")
    refuse_links(path, data)
    if data.shape[axes.index("b")] > MOST_BANDS:
        raise CubeError(
            f"{path}: {brief(data.name)} has {data.shape[axes.index('b')]} bands as {axes}; is the order of its axes another?"
        )
    if axes in STRAIGHT and chunks_across(data, axes.index("y")) > MOST_CHUNKS:
        raise CubeError(
            f"{path}: {brief(data.name)} has chunks of {data.chunks}: too small to be read; repack it with h5repack -l CHUNK=…"
        )
    dtype = data.dtype.newbyteorder("=")
    if dtype not in DTYPES.values():
        raise CubeError(f"{path}: {data.name} is of type {data.dtype}; cubes are of whole or real numbers")
    length = dict(zip(axes, data.shape))
    cube = Hdf5Cube(path, path.stem, "HDF5", length["y"], length["x"], length["b"], dtype, LAYOUTS[axes],
                    [Part(data, np.arange(length["b"]))], lines_together=together(data, axes.index("y")))  # fmt: skip
    size = cube.lines_together * cube.samples * cube.bands * dtype.itemsize
    if (size > MOST_TOGETHER and cube.lines_together > 1) or axes not in STRAIGHT:
        cube.scratch = Scratch(functools.partial(inflate, path, data, axes, dtype))
        cube.interleave, cube.lines_together = "bsq", 1
    waves, fwhm, units = axis
    if waves is not None:
        values = of_bands(cube, waves, "wavelengths")
        widths = None if fwhm is None else of_bands(cube, fwhm, "FWHM")
        cube.wavelengths, cube.fwhm = axis_in_nanometres(values, widths, units, path, cube.problems)
    return cube


def together(data: Any, axis: int) -> int:
    """Return the lines of a chunk, the fewest to read at once so that each chunk is decompressed once."""
    return int(data.chunks[axis]) if data.chunks else 1


def chunks_across(data: Any, axis: int) -> int:
    """Return the number of chunks that hold one line."""
    if not data.chunks:
        return 1
    return math.prod(-(-n // step) for i, (n, step) in enumerate(zip(data.shape, data.chunks)) if i != axis)


def of_bands(cube: Hdf5Cube, values: Any, name: str) -> np.ndarray:
    """Return an array or a dataset of one value a band as float64; `CubeError` for another count, checked before reading."""
    if np.size(values) != cube.bands:
        raise CubeError(f"{cube.path}: {np.size(values)} {name} for {cube.bands} bands")
    if isinstance(values, h5py.Dataset):
        refuse_links(cube.path, values)
        values = values[()]
    return np.asarray(values, float).ravel()


def spectral(root: Any, waves: str, fwhm: str) -> tuple[Any, Any, str]:
    """Return wavelengths, FWHM and their unit by the names of their datasets; None where there is no dataset."""
    return root.get(waves), root.get(fwhm), unit_of(root[waves]) if waves in root else ""


def unit_of(thing: Any) -> str:
    """Return the unit that the attributes of a dataset name; empty where they name none."""
    unit = ""
    for key in ("Units", "units", "unit"):
        unit = text(thing.attrs.get(key, unit))
    return unit


def fill_and_scale(cube: Hdf5Cube, data: Any) -> None:
    """Set nodata, gain and offset from NetCDF's ``_FillValue``, ``scale_factor`` and ``add_offset``."""
    cube.nodata = as_stored(attribute(data, "_FillValue"), cube.dtype, cube.path, cube.problems)
    gain, offset = attribute(data, "scale_factor"), attribute(data, "add_offset")
    if gain is not None or offset is not None:
        scaled(cube, 1.0 if gain is None else gain, 0.0 if offset is None else offset)


def scaled(cube: Hdf5Cube, gain: float, offset: float) -> None:
    """Set the same gain and offset for every band; `CubeError` where the gain is 0, or one is not finite."""
    if not (np.isfinite(gain) and gain != 0 and np.isfinite(offset)):
        raise CubeError(f"{cube.path}: its scale {gain:g} or offset {offset:g} is invalid; give `scale`")
    cube.gain, cube.offset = np.full(cube.bands, gain), np.full(cube.bands, offset)


def attribute(thing: Any, name: str) -> float | None:
    """Return an attribute as a number, the first of an array; None where there is no such attribute."""
    return float(np.asarray(thing.attrs[name], float).ravel()[0]) if name in thing.attrs else None


def text(value: Any) -> str:
    """Return a string from a str, bytes, an array or a dataset; empty where there is none."""
    if isinstance(value, h5py.Dataset):
        value = value[()] if value.size in (0, 1) and not value.is_virtual and not value.external else ""
    if isinstance(value, h5py.Empty | h5py.Group):
        return ""
    if isinstance(value, np.ndarray):
        value = value.ravel()[0] if value.size else ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def keep(cube: FileCube, key: str, value: Any) -> None:
    """Add a text, where there is one, to the header fields that outputs copy."""
    words = "" if value is None else " ".join(text(value).translate(str.maketrans("{}", "()")).split())
    if words:
        cube.fields[key] = words


def map_info(system: str, west: float, north: float, across: float, down: float) -> str:
    """Return ENVI's map info of a map whose upper left corner is at (west, north) and whose pixels are ``across`` by ``down``."""
    zone = re.search(r"UTM zone (\d+)([NS])|EPSG:32([67])(\d\d)\b", system)
    name = "Arbitrary"
    ending = "units=Meters"
    if system.lstrip().upper().startswith(("GEOGCS", "GEOGCRS")):
        name, ending = "Geographic Lat/Lon", "WGS-84, units=Degrees"
    elif zone:
        number = zone[1] or str(int(zone[4]))
        south = zone[2] == "S" or zone[3] == "7"
        name, ending = "UTM", f"{number}, {'South' if south else 'North'}, WGS-84, units=Meters"
    return f"{name}, 1, 1, {west!r}, {north!r}, {across!r}, {down!r}, {ending}"
