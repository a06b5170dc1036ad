"""Convert finished maps to other formats: each is made from the complete ENVI work file and read back before that is deleted."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CubeError, MethodError, OutputError
from ..settings.maps import map_named
from .fields import DTYPES, origin_fields, scaling
from .formats.header import centres_of, format_header, geotransform, read_header, words

TILE = 256
NODATA = -9999.0
# Fields of a header that have a word for each band.
LISTED = ("band names", "wavelength", "fwhm", "bbl", "data gain values", "data offset values")
# HDF5 allows no attribute above 64 KiB.
LONGEST_ATTRIBUTE = 2**15
# The name by which NetCDF-4 knows a dimension without coordinates, before its length in ten places.
NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable."
# Names of GDAL's drivers that differ from ours.
ALIASES = {"gtiff": "geotiff"}
# Units of length in ENVI's map info, and their UDUNITS names.
UNITS = {"feet": "ft", "us survey feet": "US_survey_foot", "yards": "yd", "km": "km", "kilometers": "km", "miles": "mi"}


@dataclass(frozen=True)
class OutputFormat:
    """An output format for maps.

    Attributes
    ----------
    name, summary : str
    endings : tuple of str
        Extensions of the files of one map; the first file holds the values.
    convert : callable or None
        Makes the file from the work file and its header: ``convert(image, header, out, name)``; None for ENVI, which the work file is.
    dataset : str
        The ``dataset`` of `unmix.io.open_cube` that reads the map back; ``{}`` stands for the map's name.
    any_name : bool
        Whether the files may have any name that the file system allows, or only names in UTF-8.
    """

    name: str
    summary: str
    endings: tuple[str, ...]
    convert: Callable[[Path, Path, Path, str], None] | None = None
    dataset: str | None = None
    any_name: bool = True

    def refuse_name(self, folder: Path, stem: str) -> None:
        """Raise `OutputError` where this format cannot write a file of that name in that folder."""
        if self.any_name:
            return
        for part in (stem, str(folder.absolute())):
            try:
                part.encode()
            except UnicodeEncodeError:
                raise OutputError(
                    f"{folder / stem}: `format` {self.name} needs names in UTF-8, but '{part}' is not; use another format"
                    + (" or rename the scene" if part == stem else " or another `out_dir`")
                ) from None


def require(name: str) -> OutputFormat:
    """Return a format by name; raise `MethodError` where there is none, or a package that it needs is not installed."""
    name = ALIASES.get(name.lower(), name)
    if name not in FORMATS:
        raise MethodError(f"unknown format '{name}'; `format` is one of {', '.join(FORMATS)}")
    if FORMATS[name].endings == (".tif",):
        try:
            import rasterio  # noqa: F401
        except ImportError:
            raise MethodError(
                f"`format` {name} needs rasterio: pip install 'unmix[geo]'; `format` netcdf and hdf5 do without"
            ) from None
    return FORMATS[name]


def work_file(image: Path, header: Path) -> tuple[np.ndarray, dict[str, str]]:
    """Return the values of a work file as a memory map (lines, bands, samples), and the fields of its header."""
    fields = read_header(header)
    shape = tuple(int(fields[key]) for key in ("lines", "bands", "samples"))
    kind = DTYPES[int(fields["data type"])].newbyteorder("<")
    return np.memmap(image, kind, "r", shape=shape), fields


def pieces_of(values: np.ndarray) -> Iterator[tuple[int, slice, np.ndarray]]:
    """Yield values (lines, bands, samples) in pieces of `TILE` lines of a band: the band, the lines and the piece."""
    lines, bands, _ = values.shape
    for line in range(0, lines, TILE):
        rows = slice(line, min(line + TILE, lines))
        for b in range(bands):
            yield b, rows, values[rows, b]


def to_geotiff(image: Path, header: Path, out: Path, name: str) -> None:
    """Write a tiled, compressed GeoTIFF; GDAL itself reads the map information of the work file.

    Raises
    ------
    OutputError
        Where the values read back differ from those written.
    """
    from .formats.geotiff import gdal, settings

    rasterio = gdal()
    values, fields = work_file(image, header)
    lines, bands, samples = values.shape
    blank, is_float = float(fields["data ignore value"]), values.dtype.kind == "f"
    shape = {"height": lines, "width": samples, "count": bands, "dtype": values.dtype.name, "nodata": blank}
    tile_sides = {key: min(TILE, -(-n // 16) * 16) for key, n in (("blockxsize", samples), ("blockysize", lines))}
    tiles = {"tiled": True, **tile_sides, "compress": "deflate", "predictor": 3 if is_float else 2,
             "interleave": "band", "bigtiff": "IF_SAFER"}  # fmt: skip
    with settings():
        with work_dataset(image, header, name) as source:
            georeference = {"crs": source.crs, "transform": source.transform} if "map info" in fields else {}
        with rasterio.open(out, "w", driver="GTiff", **shape, **georeference, **tiles) as target:
            write_tags(target, fields, bands, header)
            for b, rows, piece in pieces_of(values):
                window = ((rows.start, rows.stop), (0, samples))
                target.write(np.ascontiguousarray(piece), b + 1, window=window)
        check_tiff(out, values)


def write_tags(target: Any, fields: dict[str, str], bands: int, header: Path) -> None:
    """Write what a header says of a map and its bands into an open dataset of rasterio."""
    if colours_of(fields):
        target.write_colormap(1, dict(enumerate(colours_of(fields))))
        target.update_tags(
            1, CLASSES="; ".join(f"{i} {name}" for i, name in enumerate(words(fields, "class names") or []))
        )
    gain, offset = scaling(fields, bands, header)
    if gain is not None and offset is not None:  # of a map in steps
        target.scales, target.offsets = gain.tolist(), offset.tolist()
    origin = {key.replace(" ", "_").upper(): value for key, value in origin_fields(fields).items()}
    target.update_tags(TIFFTAG_SOFTWARE="unmix", DESCRIPTION=fields.get("description", "").strip(), **origin)
    for b, tags in enumerate(tags_of_bands(fields, bands), 1):
        target.set_band_description(b, tags.pop("name"))
        if tags:
            target.update_tags(b, **tags)
        if "wavelength" in tags:  # in micrometres, where GDAL 3.10 looks for them
            of_imagery = {"CENTRAL_WAVELENGTH_UM": tags["wavelength"], "FWHM_UM": tags.get("fwhm", "")}
            target.update_tags(
                b, ns="IMAGERY", **{tag: f"{float(word) / 1000:.6g}" for tag, word in of_imagery.items() if word}
            )


def to_cog(image: Path, header: Path, out: Path, name: str) -> None:
    """Write a cloud-optimized GeoTIFF: tiles and overviews in the order in which they are read over a network.

    Overviews are means, of numbers that name something the nearest. GDAL makes it of the work file, so that no other is needed.

    Raises
    ------
    OutputError
        Where the values read back differ from those written.
    """
    from .formats.geotiff import gdal, settings

    rasterio = gdal()
    from rasterio.shutil import copy

    values, fields = work_file(image, header)
    names_something = name.removesuffix("_ortho") in ("class", "index", "model")
    with contextlib.ExitStack() as opened:
        opened.enter_context(settings())
        # Without an .aux.xml of class names, which nobody would find: the tags have them.
        opened.enter_context(rasterio.Env(GDAL_PAM_ENABLED=False))
        virtual = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="unmix-"))) / f"{name}.vrt"
        source = opened.enter_context(work_dataset(image, header, name))
        copy(source, virtual, driver="VRT")
        with rasterio.open(virtual, "r+") as target:
            write_tags(target, fields, values.shape[1], header)
        copy(
            virtual, out, driver="COG", compress="DEFLATE", bigtiff="IF_SAFER", blocksize=TILE,
            predictor="FLOATING_POINT" if values.dtype.kind == "f" else "STANDARD",
            overview_resampling="NEAREST" if names_something else "AVERAGE",
        )  # fmt: skip
    with settings():
        check_tiff(out, values)


@contextlib.contextmanager
def work_dataset(image: Path, header: Path, name: str) -> Iterator[Any]:
    """Yield a work file as GDAL opens it, under names that it knows."""
    from .formats.geotiff import gdal

    with tempfile.TemporaryDirectory(prefix="unmix-") as folder:
        pair = Path(folder) / f"{name}.img"
        if image.stat().st_size > 1:
            pair.symlink_to(image.resolve())
        else:  # GDAL does not recognise a file of one byte
            pair.write_bytes(image.read_bytes() + b"\0")
        pair.with_suffix(".hdr").symlink_to(header.resolve())
        with gdal().open(pair, driver="ENVI") as source:
            yield source


def colours_of(fields: dict[str, str]) -> list[tuple[int, ...]]:
    """Return red, green and blue of each class of a classification; of other maps none."""
    numbers = [int(word) for word in words(fields, "class lookup") or []]
    return [tuple(numbers[i : i + 3]) for i in range(0, len(numbers), 3)]


def tags_of_bands(fields: dict[str, str], bands: int) -> list[dict[str, str]]:
    """Return for each band its name, and its wavelength, FWHM and good-band flag where the header has them."""
    tags = [{"name": name} for name in words(fields, "band names") or [""] * bands]
    for key in ("wavelength", "fwhm", "bbl"):
        for tag, word in zip(tags, words(fields, key) or []):
            tag[key] = word
            if key == "wavelength":
                tag["wavelength_units"] = fields.get("wavelength units", "")
    return tags


def to_hdf5(image: Path, header: Path, out: Path, name: str) -> None:
    """Write HDF5 that follows the CF conventions for NetCDF-4: one variable (band, y, x), gzip, with band names and map information.

    Raises
    ------
    OutputError
        Where the values read back differ from those written.
    """
    import h5py

    from .formats.hdf5_write import new_hdf5

    values, fields = work_file(image, header)
    lines, bands, samples = values.shape
    tile, blank = (1, min(TILE, lines), min(TILE, samples)), float(fields["data ignore value"])
    with new_hdf5(out, libver=("earliest", "v110")) as (file, target):
        file.attrs["Conventions"] = np.bytes_("CF-1.8")
        file.attrs["title"] = np.bytes_(fields.get("description", "").strip())
        for key, value in origin_fields(fields).items():
            file.attrs[key.replace(" ", "_")] = np.bytes_(value.encode()[:LONGEST_ATTRIBUTE])
        data = file.create_dataset(
            name, (bands, lines, samples), values.dtype, chunks=tile, compression="gzip", shuffle=True, fillvalue=blank
        )
        data.attrs["_FillValue"] = np.array([blank], values.dtype)
        data.attrs["long_name"] = np.bytes_(fields.get("description", "").strip().encode()[:LONGEST_ATTRIBUTE])
        gain, offset = scaling(fields, bands, header)
        if gain is not None and offset is not None:  # of a map in steps, which all its bands share
            data.attrs["scale_factor"], data.attrs["add_offset"] = float(gain[0]), float(offset[0])
        if not map_named(name).has_unit:
            data.attrs["units"] = np.bytes_("1")
        classes = words(fields, "class names")
        if classes:
            data.attrs["flag_values"] = np.arange(len(classes), dtype=values.dtype)
            meanings = " ".join("_".join(one.split()) for one in classes)
            data.attrs["flag_meanings"] = np.bytes_(meanings.encode()[:LONGEST_ATTRIBUTE])
        names = words(fields, "band names") or [str(b + 1) for b in range(bands)]
        if sum(map(len, names)) < LONGEST_ATTRIBUTE:
            data.attrs["band_names"] = names  # GDAL shows these; `band_name` has them however long they are
        file["band"] = np.arange(1, bands + 1, dtype=np.int32)
        file["band_name"] = np.array(names, h5py.string_dtype())
        data.attrs["coordinates"] = np.bytes_("band_name")
        scales = {"band": file["band"]} | map_of(file, data, fields, lines, samples)
        for axis, length in (("y", lines), ("x", samples)):
            if axis not in scales:  # h5netcdf refuses a variable some of whose dimensions have no name
                scales[axis] = file.create_dataset(axis, (length,), ">f4")
                scales[axis].make_scale(f"{NO_VARIABLE}{length:10d}")
        for axis, scale in scales.items():
            if not scale.is_scale:
                scale.make_scale(axis)
            data.dims[["band", "y", "x"].index(axis)].attach_scale(scale)
        file["band_name"].dims[0].attach_scale(file["band"])
        for key in ("wavelength", "fwhm"):
            if key in fields:
                file[key] = np.array(words(fields, key), float)
                file[key].attrs["units"] = np.bytes_("nm")
                file[key].dims[0].attach_scale(file["band"])
        for b, rows, piece in pieces_of(values):
            data[b, rows] = piece
            target.check()
    with h5py.File(out, "r") as file:
        for b, rows, piece in pieces_of(values):
            check_read_back(out, file[name][b, rows], piece)


def map_of(file: Any, data: Any, fields: dict[str, str], lines: int, samples: int) -> dict[str, Any]:
    """Write the map information of the header, where it has any; return the datasets of the axes y and x, empty on a turned map."""
    for key in ("map info", "coordinate system string"):
        if key in fields and len(fields[key]) < LONGEST_ATTRIBUTE:
            data.attrs[key.replace(" ", "_")] = " ".join(fields[key].split())
    transform = geotransform(fields.get("map info", ""))
    if transform is None:
        return {}
    grid_mapping = file.create_dataset("spatial_ref", data=np.int32(0))
    grid_mapping.attrs["GeoTransform"] = np.bytes_(" ".join(f"{number:.17g}" for number in transform))
    wkt = system_of(fields)
    if wkt and len(wkt.encode()) < LONGEST_ATTRIBUTE:
        grid_mapping.attrs["spatial_ref"] = grid_mapping.attrs["crs_wkt"] = np.bytes_(wkt.encode())
    data.attrs["grid_mapping"] = np.bytes_("spatial_ref")
    centres = centres_of(transform, lines, samples)
    if centres is None:
        return {}
    degrees = fields["map info"].strip().lower().startswith("geographic")
    axes = {"y": centres[0], "x": centres[1]}
    for axis, values in axes.items():
        file[axis] = values
        names = (
            {"y": "latitude", "x": "longitude"}
            if degrees
            else {"y": "projection_y_coordinate", "x": "projection_x_coordinate"}
        )
        file[axis].attrs["standard_name"] = np.bytes_(names[axis])
        units = {"y": "degrees_north", "x": "degrees_east"}[axis] if degrees else length_unit(fields["map info"])
        file[axis].attrs["units"] = np.bytes_(units)
    return {axis: file[axis] for axis in axes}


def length_unit(map_info: str) -> str:
    """Return the UDUNITS unit of a map's axes; metres where the map info has none."""
    units = [word.partition("=")[2] for word in map_info.split(",") if word.strip().lower().startswith("units")]
    return UNITS.get(units[0].strip().lower(), "m") if units else "m"


def system_of(fields: dict[str, str]) -> str:
    """Return the WKT of a header, or that which GDAL derives from its map info; empty where GDAL cannot, or is not installed."""
    own = " ".join(fields.get("coordinate system string", "").split())
    if own:
        return own
    try:
        from .formats.geotiff import gdal

        rasterio = gdal()
    except CubeError:
        return ""
    minimal: dict[str, Any] = {"samples": 1, "lines": 1, "bands": 1, "data type": 1, "interleave": "bsq"}
    with tempfile.TemporaryDirectory(prefix="unmix-") as folder:
        image = Path(folder) / "map.img"
        image.write_bytes(bytes(2))  # GDAL does not recognise a file of one byte
        map_fields = {key: fields[key] for key in ("map info", "projection info") if key in fields}
        image.with_suffix(".hdr").write_text(format_header(minimal | map_fields), encoding="utf-8")
        with contextlib.suppress(Exception), rasterio.open(image, driver="ENVI") as source:
            return source.crs.to_wkt() if source.crs else ""
    return ""


def check_tiff(path: Path, values: np.ndarray) -> None:
    """Raise `OutputError` where a TIFF differs from the work file's values (lines, bands, samples)."""
    from .formats.geotiff import gdal

    with gdal().open(path, driver="GTiff") as written:
        for b, rows, piece in pieces_of(values):
            window = ((rows.start, rows.stop), (0, values.shape[2]))
            check_read_back(path, written.read(b + 1, window=window), piece)


def check_read_back(path: Path, read_back: np.ndarray, written: np.ndarray) -> None:
    """Raise `OutputError` where a part of a converted map differs from its work file."""
    if not np.array_equal(read_back, written, equal_nan=True):
        raise OutputError(f"{path}: what was read back is not what was written; is the disk sound, and not full?")


FORMATS = {
    each.name: each
    for each in (
        OutputFormat("envi", "raw float32 BIL with a header", (".img", ".hdr")),
        OutputFormat("geotiff", "tiled, compressed GeoTIFF", (".tif",), to_geotiff, any_name=False),
        OutputFormat("cog", "cloud-optimized GeoTIFF, with overviews", (".tif",), to_cog, any_name=False),
        OutputFormat("hdf5", "HDF5 as NetCDF-4 has it, by the CF conventions", (".h5",), to_hdf5, "/{}:byx"),
        OutputFormat(
            "netcdf", "the same, named .nc, which GDAL and QGIS place on the map", (".nc",), to_hdf5, "/{}:byx"
        ),
    )
}
