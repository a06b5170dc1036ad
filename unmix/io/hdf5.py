"""Cubes in HDF5 and NetCDF-4 files, as the data centres lay them out: a function a product, and what they share."""

import logging
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ..blocks import block_shape
from ..errors import CubeError, MethodError
from .cube import as_stored
from .envi import DTYPES
from .header import TO_NANOMETRES, nanometres
from .read import fill
from .scratch import inflate

log = logging.getLogger("unmix")

LAYOUTS = {"yxb": "bip", "ybx": "bil", "byx": "bsq"}
# Lines that share chunks and take more than this are not read together, but inflated once (`unmix.io.scratch`).
MOST_TOGETHER = 64 * 2**20
# No spectrometer has more; another axis was taken for theirs.
MOST_BANDS = 65535


@dataclass
class Part:
    """Bands of a cube that lie in one dataset: which of its bands, in the cube's order, and how they are scaled here."""

    data: Any  # h5py.Dataset
    take: np.ndarray
    gain: float = 1.0
    offset: float = 0.0


@dataclass(eq=False)
class Hdf5Cube:
    """A cube in an HDF5 file; see `unmix.io.cube.Cube` for the attributes.

    ``parts`` are the datasets it is made of. Where there are several, ``zeros_are_fill``: values are scaled as they
    are read, and a pixel of zeros throughout becomes NaN. ``inflated`` has the axes of a dataset that is read from a scratch
    file instead (`unmix.io.scratch`), and is BSQ whatever it was.
    """

    path: Path
    stem: str
    format: str
    lines: int
    samples: int
    bands: int
    dtype: np.dtype
    layout: str
    parts: list[Part]
    lines_together: int = 1
    wavelengths: np.ndarray | None = None
    fwhm: np.ndarray | None = None
    good_bands: np.ndarray | None = None
    gain: np.ndarray | None = None
    offset: np.ndarray | None = None
    nodata: float | None = None
    fields: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    inflated: str = ""
    scratch: Any = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, lines: slice, out: np.ndarray) -> np.ndarray:
        """Read whole lines as stored; see `unmix.io.cube.Cube.read`."""
        shape = block_shape(self.layout, lines.stop - lines.start, self.samples, self.bands)
        filled = out[: int(np.prod(shape)) * self.dtype.itemsize].view(self.dtype).reshape(shape)
        try:
            if self.inflated:
                self.read_scratch(lines, filled)
            elif len(self.parts) == 1:
                where = (slice(None), lines) if self.layout == "bsq" else (lines,)
                self.parts[0].data.read_direct(filled, source_sel=where)
            else:
                self.read_parts(lines, filled)
        except CubeError:
            raise
        except Exception as error:  # h5py has many words for a damaged file
            place = f"lines {lines.start + 1} to {lines.stop}"
            raise CubeError(f"{self.path}: {place} cannot be read: {brief(error)}") from None
        return filled

    def read_scratch(self, lines: slice, filled: np.ndarray) -> None:
        """Lines of every band from the scratch file, which the first to come makes."""
        with self.lock:
            if self.scratch is None:
                log.info(f"{self.path}: its chunks hold whole bands; inflating it once")
                self.scratch = inflate(self.path, self.parts[0].data, self.inflated, self.dtype)
        flat = filled.reshape(-1).view(np.uint8)
        size, line = filled[0].nbytes, self.samples * self.dtype.itemsize
        for b in range(self.bands):
            part = flat[b * size : (b + 1) * size]
            fill(self.path, self.scratch.fileno(), part, (b * self.lines + lines.start) * line)

    def read_parts(self, lines: slice, filled: np.ndarray) -> None:
        """Bands of several datasets (y, b, x) together, scaled; NaN where all are 0."""
        empty = np.ones((filled.shape[0], filled.shape[2]), bool)
        first = 0
        for part in self.parts:
            stored = part.data[lines][:, part.take]
            empty &= (stored == 0).all(axis=1)
            filled[:, first : first + len(part.take)] = stored * part.gain + part.offset
            first += len(part.take)
        np.moveaxis(filled, 1, 2)[empty] = np.nan

    def expect(self, lines: slice) -> None:
        """Nothing: where chunks lie is the library's secret."""


def neon(file: h5py.File, path: Path) -> Hdf5Cube | None:
    """NEON AOP: ``/SITE/Reflectance/Reflectance_Data`` (y, x, b)."""
    sites = [name for name in file if isinstance(file.get(f"{name}/Reflectance/Reflectance_Data"), h5py.Dataset)]
    if not sites:
        return None
    root = file[f"{sites[0]}/Reflectance"]
    data = root["Reflectance_Data"]
    cube = single(
        path,
        "NEON AOP",
        data,
        "yxb",
        spectral(root, "Metadata/Spectral_Data/Wavelength", "Metadata/Spectral_Data/FWHM"),
    )
    cube.nodata = as_stored(attribute(data, "Data_Ignore_Value"), cube.dtype, path, cube.problems)
    scale = attribute(data, "Scale_Factor")
    if scale is not None:
        scaled(cube, 1.0 / scale if scale > 0 else np.nan, 0.0)
    place = root.get("Metadata/Coordinate_System")
    place = place if isinstance(place, h5py.Group) else {}
    keep(cube, "map info", place.get("Map_Info"))
    keep(cube, "coordinate system string", place.get("Coordinate_System_String"))
    return cube


def emit(file: h5py.File, path: Path) -> Hdf5Cube | None:
    """EMIT L2A: ``/reflectance`` (downtrack, crosstrack, b), in the sensor's geometry."""
    if "sensor_band_parameters/wavelengths" not in file or not isinstance(file.get("reflectance"), h5py.Dataset):
        return None
    names = "sensor_band_parameters/wavelengths", "sensor_band_parameters/fwhm"
    cube = single(path, "EMIT L2A", file["reflectance"], "yxb", spectral(file, *names))
    fill_and_scale(cube, file["reflectance"])
    if cube.nodata is None:
        cube.nodata = as_stored(-9999.0, cube.dtype, path, cube.problems)
    good = file.get("sensor_band_parameters/good_wavelengths")
    if good is not None:
        cube.good_bands = of_bands(cube, good, "good_wavelengths") != 0
    return cube


def aviris3(file: h5py.File, path: Path) -> Hdf5Cube | None:
    """AVIRIS-3 and -5: ``/reflectance/reflectance`` (b, y, x)."""
    if not isinstance(file.get("reflectance/reflectance"), h5py.Dataset):
        return None
    data = file["reflectance/reflectance"]
    cube = single(path, "AVIRIS-3", data, "byx", spectral(file, "reflectance/wavelength", "reflectance/fwhm"))
    fill_and_scale(cube, data)
    for name in ("transverse_mercator", "projection"):
        if name in file and "spatial_ref" in file[name].attrs:
            system = text(file[name].attrs["spatial_ref"])
            keep(cube, "coordinate system string", system)
            transform = text(file[name].attrs.get("GeoTransform", "")).split()
            if len(transform) == 6:
                west, across, _, north, _, down = (float(word) for word in transform)
                if np.all(np.isfinite([west, across, north, down])):
                    cube.fields["map info"] = map_info(system, west, north, across, -down)
    return cube


def prisma(file: h5py.File, path: Path) -> Hdf5Cube | None:
    """PRISMA L2D: a cube of VNIR and one of SWIR (y, b, x), which become one with ascending wavelengths.

    Wavelengths of 0 are bands that are not used; of the two that overlap, SWIR's are called bad.
    """
    fields = file.get("HDFEOS/SWATHS/PRS_L2D_HCO/Data Fields", {})
    if "VNIR_Cube" not in fields or "SWIR_Cube" not in fields:
        return None
    parts, waves, widths = [], [], []
    for name in ("Vnir", "Swir"):
        data = fields[f"{name.upper()}_Cube"]
        if not isinstance(data, h5py.Dataset) or data.ndim != 3 or 0 in data.shape or data.dtype.str[1:] != "u2":
            raise CubeError(f"{path}: {data.name} is not uint16 (y, b, x): {data}")
        refuse_links(path, data)
        wave, width = (np.asarray(file.attrs[f"List_{what}_{name}"], float).ravel() for what in ("Cw", "Fwhm"))
        if not len(wave) == len(width) == data.shape[1]:
            raise CubeError(f"{path}: {len(wave)} wavelengths for {data.shape[1]} bands of {data.name}")
        take = np.flatnonzero((wave > 0) & np.isfinite(wave))
        if len(take) == 0:
            raise CubeError(f"{path}: no band of {data.name} has a wavelength")
        take = take[np.argsort(wave[take], kind="stable")]
        low, high = (float(file.attrs[f"L2Scale{name}{end}"]) for end in ("Min", "Max"))
        parts.append(Part(data, take, (high - low) / 65535, low))
        waves.append(wave[take])
        widths.append(width[take])
    lines, _, samples = parts[0].data.shape
    if parts[1].data.shape[::2] != (lines, samples):
        raise CubeError(f"{path}: VNIR is {parts[0].data.shape} and SWIR {parts[1].data.shape}; they must be one scene")
    cube = Hdf5Cube(path, path.stem, "PRISMA L2D", lines, samples, sum(len(part.take) for part in parts),
                    np.dtype(np.float32), "bil", parts, together(parts[0].data, 0))  # fmt: skip
    cube.wavelengths, width = np.concatenate(waves), np.concatenate(widths)
    if np.all(np.isfinite(width) & (width > 0)):
        cube.fwhm = width
    else:
        cube.problems.append(f"{path}: an fwhm is not above 0; all are left out of account")
    longest = waves[0].max(initial=0.0)
    cube.good_bands = np.concatenate([np.ones(len(waves[0]), bool), waves[1] > longest])
    corner = [file.attrs.get(f"Product_ULcorner_{axis}") for axis in ("easting", "northing")]
    code = file.attrs.get("Epsg_Code")
    if code is not None and None not in corner and np.isfinite(float(code)):
        cube.fields["map info"] = map_info(f"EPSG:{int(code)}", float(corner[0]), float(corner[1]), 30.0, 30.0)
    return cube


def tanager(file: h5py.File, path: Path) -> Hdf5Cube | None:
    """Tanager: ``/HDFEOS/{SWATHS,GRIDS}/HYP/Data Fields/…`` (b, y, x), everything else in the cube's attributes."""
    for group in ("SWATHS", "GRIDS"):
        for name in ("surface_reflectance", "toa_radiance"):
            data = file.get(f"HDFEOS/{group}/HYP/Data Fields/{name}")
            if isinstance(data, h5py.Dataset):
                waves = data.attrs.get("wavelengths", data.attrs.get("center_wavelengths"))
                cube = single(path, "Tanager", data, "byx", (waves, data.attrs.get("fwhm"), ""))
                fill_and_scale(cube, data)
                return cube
    return None


# Asked in turn: each returns the cube of its product, or None.
PRODUCTS: tuple[Callable[[h5py.File, Path], Hdf5Cube | None], ...] = (neon, emit, aviris3, prisma, tanager)


def open_hdf5(path: Path, dataset: str | None = None, wavelengths: str | None = None) -> Hdf5Cube:
    """Open the cube of a product that `PRODUCTS` knows, or the one that is named (`unmix.io.open_cube`); reads no pixel.

    Raises
    ------
    CubeError
        Where the file cannot be read, or is of no product that is known; it lists the cubes that are in it.
    """
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise CubeError(f"{path}: cannot be read as HDF5: {brief(error)}") from None
    try:
        if dataset is not None:
            return named(file, path, dataset, wavelengths)
        if wavelengths is not None:
            raise MethodError("--wavelengths goes with --dataset")
        for product in PRODUCTS:
            cube = product(file, path)
            if cube is not None:
                return cube
        raise CubeError(
            f"{path}: is HDF5, but of no product that is known; name its cube with --dataset: {three_axes(file)}"
        )
    except (CubeError, MethodError):
        file.close()
        raise
    except Exception as error:  # whatever a damaged file throws: h5py has ten kinds of it
        file.close()
        raise CubeError(f"{path}: is damaged, or laid out in a way that is not known: {brief(error)}") from None


def named(file: h5py.File, path: Path, dataset: str, wavelengths: str | None) -> Hdf5Cube:
    """Any dataset of three axes, with any dataset of wavelengths; fill and scale as NetCDF has them."""
    name, _, axes = dataset.partition(":")
    data = file.get(name)
    if not isinstance(data, h5py.Dataset):
        raise CubeError(f"{path}: has no dataset '{name}'; of three axes there are: {three_axes(file)}")
    waves = None
    if wavelengths is not None:
        if not isinstance(file.get(wavelengths), h5py.Dataset):
            raise CubeError(f"{path}: has no dataset '{wavelengths}'")
        waves = file[wavelengths]
    if not axes and waves is not None and data.ndim == 3:
        fitting = [one for one in LAYOUTS if data.shape[one.index("b")] == np.size(waves)]
        axes = fitting[0] if len(fitting) == 1 else ""
    axes = axes or "yxb"
    if axes not in LAYOUTS:
        raise MethodError(f"--dataset {dataset}: the axes are one of {', '.join(LAYOUTS)}, not '{axes}'")
    units = spectral(file, wavelengths, wavelengths)[2] if wavelengths is not None else ""
    cube = single(path, f"HDF5 {name}", data, axes, (waves, None, units))
    fill_and_scale(cube, data)
    return cube


def three_axes(file: h5py.File) -> str:
    """The names of all datasets that could be a cube."""
    found: list[str] = []

    def visit(name: str, thing: Any) -> None:
        if isinstance(thing, h5py.Dataset) and thing.ndim == 3 and len(found) < 5:
            found.append(f"/{brief(name)} {thing.shape}")

    file.visititems(visit)
    return ", ".join(found) or "none"


def single(path: Path, product: str, data: Any, axes: str, axis: tuple[Any, Any, str]) -> Hdf5Cube:
    """The cube of one dataset; ``axis`` is its wavelengths and FWHM, as stored, and their unit."""
    if data.ndim != 3 or 0 in data.shape:
        raise CubeError(f"{path}: {data.name} has the shape {data.shape}; a cube has three axes, none empty")
    refuse_links(path, data)
    if data.shape[axes.index("b")] > MOST_BANDS:
        raise CubeError(
            f"{path}: {brief(data.name)} has {data.shape[axes.index('b')]} bands as {axes}; is the order another?"
        )
    dtype = data.dtype.newbyteorder("=")
    if dtype not in DTYPES.values():
        raise CubeError(f"{path}: {data.name} is of type {data.dtype}; cubes are of whole or real numbers")
    size = dict(zip(axes, data.shape))
    cube = Hdf5Cube(path, path.stem, product, size["y"], size["x"], size["b"], dtype, LAYOUTS[axes],
                    [Part(data, np.arange(size["b"]))], together(data, axes.index("y")))  # fmt: skip
    if cube.lines_together * cube.samples * cube.bands * dtype.itemsize > MOST_TOGETHER and cube.lines_together > 1:
        cube.inflated, cube.layout, cube.lines_together = axes, "bsq", 1
    waves, fwhm, units = axis
    if waves is not None:
        values = of_bands(cube, waves, "wavelengths")
        if not np.all(np.isfinite(values)):
            raise CubeError(f"{path}: a wavelength is not finite")
        if units not in TO_NANOMETRES:
            units = "nm" if np.any(values >= 25.0) else "um"
        cube.wavelengths = nanometres(values, units)
        if fwhm is not None:
            widths = of_bands(cube, fwhm, "FWHM")
            if np.all(np.isfinite(widths) & (widths > 0)):
                cube.fwhm = nanometres(widths, units)
            else:
                cube.problems.append(f"{path}: an fwhm is not above 0; all are left out of account")
    return cube


def refuse_links(path: Path, data: Any) -> None:
    """Raise where the values lie in other files: such links may lead anywhere, and in circles (seen: a crash in HDF5)."""
    if data.is_virtual or data.external:
        raise CubeError(f"{path}: {brief(data.name)} has its values in other files; name the file that holds them")


def together(data: Any, axis: int) -> int:
    """Lines that lie in one chunk: read together, each chunk is decompressed once."""
    return int(data.chunks[axis]) if data.chunks else 1


def of_bands(cube: Hdf5Cube, values: Any, name: str) -> np.ndarray:
    """The values of an array or a dataset, one a band, as float64; counted before they are read."""
    if np.size(values) != cube.bands:
        raise CubeError(f"{cube.path}: {np.size(values)} {name} for {cube.bands} bands")
    return np.asarray(values[()] if isinstance(values, h5py.Dataset) else values, float).ravel()


def spectral(root: Any, waves: str, fwhm: str) -> tuple[Any, Any, str]:
    """Wavelengths, FWHM and their unit by the names of their datasets; None where there is none."""
    values = [root.get(name) for name in (waves, fwhm)]
    units = ""
    if waves in root:
        for key in ("Units", "units", "unit"):
            units = text(root[waves].attrs.get(key, units)).strip().lower()
    return values[0], values[1], units


def fill_and_scale(cube: Hdf5Cube, data: Any) -> None:
    """``_FillValue``, ``scale_factor`` and ``add_offset``, as NetCDF has them."""
    cube.nodata = as_stored(attribute(data, "_FillValue"), cube.dtype, cube.path, cube.problems)
    gain, offset = attribute(data, "scale_factor"), attribute(data, "add_offset")
    if gain is not None or offset is not None:
        scaled(cube, 1.0 if gain is None else gain, 0.0 if offset is None else offset)


def scaled(cube: Hdf5Cube, gain: float, offset: float) -> None:
    """Let every band be scaled."""
    if not (np.isfinite(gain) and gain != 0 and np.isfinite(offset)):
        raise CubeError(f"{cube.path}: the scale {gain:g} and offset {offset:g} of its values are none; give --scale")
    cube.gain, cube.offset = np.full(cube.bands, gain), np.full(cube.bands, offset)


def brief(error: Exception | str) -> str:
    """What an error or a name says, in a few words of one line."""
    words = " ".join(str(error).split()) or type(error).__name__
    return words if len(words) <= 160 else words[:160] + " …"


def attribute(thing: Any, name: str) -> float | None:
    """A number, which may stand in an array."""
    return float(np.asarray(thing.attrs[name], float).ravel()[0]) if name in thing.attrs else None


def text(value: Any) -> str:
    """A string, which may be bytes, or stand in an array or a dataset."""
    if isinstance(value, h5py.Dataset):
        value = value[()] if value.size in (0, 1) else ""
    if isinstance(value, h5py.Empty | h5py.Group):
        return ""
    if isinstance(value, np.ndarray):
        value = value.ravel()[0] if value.size else ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def keep(cube: Hdf5Cube, key: str, value: Any) -> None:
    """Carry a text over to the outputs' headers, where there is one."""
    words = "" if value is None else " ".join(text(value).translate(str.maketrans("{}", "()")).split())
    if words:
        cube.fields[key] = words


def map_info(system: str, west: float, north: float, across: float, down: float) -> str:
    """ENVI's line for a map whose upper left corner is at (west, north)."""
    zone = re.search(r"UTM zone (\d+)([NS])|EPSG:32([67])(\d\d)\b", system)
    name = "Arbitrary"
    ending = "units=Meters"
    if zone:
        number = zone[1] or str(int(zone[4]))
        south = zone[2] == "S" or zone[3] == "7"
        name, ending = "UTM", f"{number}, {'South' if south else 'North'}, WGS-84, units=Meters"
    return f"{name}, 1, 1, {west!r}, {north!r}, {across!r}, {down!r}, {ending}"
