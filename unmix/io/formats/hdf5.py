"""A cube in an HDF5 or NetCDF-4 file, and functions that the product readers (`unmix.io.formats.products`) share."""

import contextlib
import functools
import math
from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ...errors import CubeError, brief
from ..cube import Cube
from ..fields import DTYPES
from ..read import MOST_TOGETHER, ScratchFile, refuse_links
from ..remote import fetched
from ..scratch import inflate
from .cf import PER_PIXEL, Beside, Variable, roles, text_of, type_of_attribute
from .cf_place import plain_value
from .chunks import MOST_CHUNKS, Decoder
from .header import MOST_BANDS, axis_in_nanometres

# The interleave of every order of axes; a dataset whose order is not in STRAIGHT is inflated once into a scratch file,
# as BSQ.
LAYOUTS = {"yxb": "bip", "ybx": "bil", "byx": "bsq", "xyb": "bsq", "xby": "bsq", "bxy": "bsq"}
STRAIGHT = ("yxb", "ybx", "byx")


@dataclass
class DatasetPart:
    """Bands of a cube in one dataset: ``take`` indexes them in the cube's order, ``gain`` and ``offset`` scale them."""

    data: Any  # h5py.Dataset
    take: np.ndarray
    gain: float = 1.0
    offset: float = 0.0

    @functools.cached_property
    def decoder(self) -> Decoder:
        """Finds and decodes its chunks."""
        return Decoder.of(self.data)

    def fill(self, lines: slice, axis: int, filled: np.ndarray) -> None:
        """Read lines along ``axis``."""
        # Values that are read as unsigned HDF5 would clip.
        self.decoder.fill([*[slice(None)] * axis, lines], filled.view(self.decoder.dtype.newbyteorder("=")))


@dataclass(eq=False)
class Hdf5Cube(Cube):
    """A cube in an HDF5 file; see `unmix.io.cube.Cube` for the attributes.

    ``parts`` are the datasets that hold its bands. Where there are several, values are scaled as they are read, and a
    pixel that is 0 in every band becomes NaN; bands that are datasets (y, x) are read as they are. A dataset with a
    ``scratch`` file is read from there, as BSQ whatever its own order.
    """

    parts: list[DatasetPart]

    def fill(self, lines: slice, filled: np.ndarray) -> None:
        """Fill an array with whole lines as stored."""
        with fetched(self.path, lambda: self.stretches(lines)):
            if self.parts[0].data.ndim == 2:
                for part, plane in zip(self.parts, filled):
                    part.fill(lines, 0, plane)
            elif len(self.parts) == 1:
                self.parts[0].fill(lines, 1 if self.interleave == "bsq" else 0, filled)
            else:
                self.read_parts(lines, filled)

    def read_parts(self, lines: slice, filled: np.ndarray) -> None:
        """Read lines of several datasets (y, b, x), scaled; a pixel is NaN where all its bands are 0."""
        empty = np.ones((filled.shape[0], filled.shape[2]), bool)
        first = 0
        for part in self.parts:
            whole = np.empty((len(filled), *part.decoder.shape[1:]), part.decoder.dtype.newbyteorder("="))
            part.fill(lines, 0, whole)
            stored = whole[:, part.take]
            empty &= (stored == 0).all(axis=1)
            filled[:, first : first + len(part.take)] = stored * part.gain + part.offset
            first += len(part.take)
        np.moveaxis(filled, 1, 2)[empty] = np.nan

    def stretches(self, lines: slice) -> list[tuple[int, int]]:
        """Return the stretches ``(offset, bytes)`` of the file that hold some lines."""
        axis = 1 if self.interleave == "bsq" and self.parts[0].data.ndim > 2 else 0
        wanted = [slice(None)] * axis + [lines]
        return [one for part in self.parts for one in part.decoder.stretches(wanted)]

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
    if data.ndim != len(axes) or 0 in data.shape:
        raise CubeError(f"{path}: {data.name} has the shape {data.shape}; a cube has three axes, none empty")
    refuse_links(path, data)
    refuse_filters(path, data)
    if data.shape[axes.index("b")] > MOST_BANDS:
        raise CubeError(
            f"{path}: {brief(data.name)} has {data.shape[axes.index('b')]} bands as {axes}; is the order of its axes "
            "another?"
        )
    if axes in STRAIGHT and chunks_across(data, axes.index("y")) > MOST_CHUNKS:
        raise CubeError(
            f"{path}: {brief(data.name)} has chunks of {data.chunks}: too small to be read; repack it with h5repack -l "
            "CHUNK=…"
        )
    dtype = type_of_attribute(data.dtype, Attributes(data))
    if dtype not in DTYPES.values():
        raise CubeError(
            f"{path}: {data.name} is of type {data.dtype}; cubes are of whole numbers, or real ones of 32 or 64 bits"
        )
    length = dict(zip(axes, data.shape))
    cube = Hdf5Cube(
        path,
        path.stem,
        "HDF5",
        length["y"],
        length["x"],
        length["b"],
        dtype,
        LAYOUTS[axes.replace("1", "")],
        [DatasetPart(data, np.arange(length["b"]))],
        lines_together=together(data, axes.index("y")),
    )
    size = cube.lines_together * cube.samples * cube.bands * dtype.itemsize
    if (size > MOST_TOGETHER and cube.lines_together > 1) or axes not in STRAIGHT:
        cube.scratch = ScratchFile(functools.partial(inflate, path, data, axes, data.dtype.newbyteorder("=")))
        cube.interleave, cube.lines_together = "bsq", 1
    waves, fwhm, units = axis
    if waves is not None:
        values = of_bands(cube, waves, "wavelengths")
        widths = None if fwhm is None else of_bands(cube, fwhm, "FWHM")
        cube.wavelengths, cube.fwhm = axis_in_nanometres(values, widths, units, path, cube.problems)
    return cube


def refuse_filters(path: Path, data: h5py.Dataset) -> None:
    """Raise `CubeError` where chunks are compressed by a filter that HDF5 does not have here."""
    properties = data.id.get_create_plist()
    used = [properties.get_filter(k) for k in range(properties.get_nfilters())]
    with contextlib.suppress(ImportError):
        if not all(h5py.h5z.filter_avail(one[0]) for one in used):
            import hdf5plugin  # noqa: F401  # which registers its filters
    lacking = [one for one in used if not h5py.h5z.filter_avail(one[0])]
    if lacking:
        number, name = lacking[0][0], text_of(lacking[0][3]) or "unknown"
        raise CubeError(
            f"{path}: {data.name} is compressed by filter {number} ({name[:40]}), which is not here: "
            "pip install hdf5plugin"
        )


def together(data: Any, axis: int) -> int:
    """Return the lines of a chunk, the fewest to read at once so that each chunk is decompressed once."""
    return int(data.chunks[axis]) if data.chunks else 1


def chunks_across(data: Any, axis: int) -> int:
    """Return the number of chunks that hold one line."""
    if not data.chunks:
        return 1
    return math.prod(-(-n // step) for i, (n, step) in enumerate(zip(data.shape, data.chunks)) if i != axis)


def of_bands(cube: Hdf5Cube, values: Any, name: str) -> np.ndarray:
    """Return one float64 value for each band from an array or dataset; check the count before reading."""
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
    return variable_in(thing).unit


def scaled_dataset(cube: Hdf5Cube, gain: float, offset: float) -> None:
    """Set the same gain and offset for every band; `CubeError` where the gain is 0, or one is not finite."""
    if not (np.isfinite(gain) and gain != 0 and np.isfinite(offset)):
        raise CubeError(f"{cube.path}: its scale {gain:g} or offset {offset:g} is invalid; give `scale`")
    cube.gain, cube.offset = np.full(cube.bands, gain), np.full(cube.bands, offset)


def attribute(thing: Any, name: str) -> float | None:
    """Return an attribute as a number, the first of an array; None where there is no such attribute."""
    return float(np.asarray(thing.attrs[name], float).ravel()[0]) if name in thing.attrs else None


class Attributes(Mapping[str, Any]):
    """The attributes of a group or dataset as numbers, arrays and texts, without empty and damaged ones."""

    def __init__(self, thing: Any) -> None:
        self.own = thing.attrs

    def __getitem__(self, name: str) -> Any:
        try:
            value = self.own[name]
        except Exception:  # h5py raises many kinds of errors for a damaged one
            raise KeyError(name) from None
        if isinstance(value, h5py.Empty):
            raise KeyError(name)
        if isinstance(value, np.ndarray) and value.dtype.kind in "OSU":
            return text_of(value) if value.size == 1 else [text_of(one) for one in value.ravel()]
        return text_of(value) if isinstance(value, bytes) else value

    def __iter__(self) -> Iterator[str]:
        return iter(self.own)

    def __len__(self) -> int:
        return len(self.own)


def dimensions_of_dataset(data: h5py.Dataset) -> list[str]:
    """Return the names of a dataset's axes, from dimension scales, else labels; empty where one has no name."""
    names = []
    with contextlib.suppress(Exception):  # damaged references
        if data.attrs.get("CLASS") == b"DIMENSION_SCALE" and data.ndim == 1:
            return [data.name.rpartition("/")[2]]
        names = [one[0].name.rpartition("/")[2] if len(one) else one.label for one in data.dims]
    return names if len(names) == data.ndim and all(names) else []


def is_bare(data: h5py.Dataset) -> bool:
    """Return whether a dataset is a dimension of NetCDF without values."""
    with contextlib.suppress(Exception):  # a damaged attribute
        return text_of(data.attrs.get("NAME", "")).startswith("This is a netCDF dimension but not")
    return False


def variable_in(data: h5py.Dataset) -> Variable:
    """Return a dataset as `unmix.io.formats.cf` reads it."""
    attributes: Any = Attributes(data)
    # NetCDF sets a fill value whatever the attributes say; of bytes it means nothing, and 0 is HDF5's own.
    if data.dtype.kind in "iuf" and data.dtype.itemsize > 1 and data.fillvalue and "_FillValue" not in attributes:
        attributes = ChainMap({"_FillValue": data.fillvalue}, attributes)
    return Variable(data.name, data.shape, data.dtype, dimensions_of_dataset(data), attributes, lambda: data[()])


def axes_named(data: h5py.Dataset) -> str:
    """Return the order of a cube's axes by their names, as `unmix.io.formats.cf.roles`; empty where it is not clear."""
    known = roles(data.shape, dimensions_of_dataset(data), Attributes(data)) if data.ndim > 2 else ""
    return known if known.replace("1", "") in LAYOUTS else ""


def beside(cube: Hdf5Cube, data: h5py.Dataset, axes: str) -> Beside:
    """Return what lies beside a dataset: in its group and in those above, whose dimensions it may have, too."""
    groups = [data.parent]
    while groups[0].name not in ("/", None):
        groups.insert(0, groups[0].parent)

    dimensions = dict(zip(axes, dimensions_of_dataset(data)))

    @functools.cache
    def elsewhere() -> list[h5py.Group]:
        """Return the groups of the file with arrays along the cube's bands, or of the coordinates of its pixels."""
        found: dict[str, h5py.Group] = {}

        def visit(name: str, thing: Any) -> None:
            if not isinstance(thing, h5py.Dataset):
                return
            is_axis = thing.shape == (cube.bands,) and dimensions_of_dataset(thing) == [dimensions.get("b")]
            if is_axis or (name.rpartition("/")[2] in PER_PIXEL and thing.shape == (cube.lines, cube.samples)):
                found.setdefault(thing.parent.name, thing.parent)

        with contextlib.suppress(Exception):  # a damaged neighbour
            data.file.visititems(visit)
        return list(found.values())

    def find(name: str) -> Variable | None:
        found = []
        for group in [*reversed(groups), *elsewhere()]:
            spelt = [name, *(key for key in group if key != name and key.lower() == name.lower())]
            found += [one for key in spelt if isinstance(one := group.get(key), h5py.Dataset) and not is_bare(one)]
        # An array of the same length along another dimension may be another instrument's.
        own = (one for one in found if dimensions_of_dataset(one) == [dimensions.get("b")])
        best = next(own, found[0] if found else None)
        return None if best is None or best.is_virtual or best.external else variable_in(best)

    return Beside(cube, [variable_in(data)], axes, [Attributes(group) for group in groups], find)


def text_of_attribute(value: Any) -> str:
    """Return a string from a str, bytes, an array or a dataset; empty where there is none."""
    if isinstance(value, h5py.Dataset):
        value = value[()] if value.size in (0, 1) and not value.is_virtual and not value.external else ""
    return "" if isinstance(value, h5py.Empty | h5py.Group) else text_of(value)


def keep_open(cube: Cube, key: str, value: Any) -> None:
    """Add a text, where there is one, to the header fields that outputs copy."""
    words = "" if value is None else plain_value(text_of_attribute(value))
    if words:
        cube.fields[key] = words
