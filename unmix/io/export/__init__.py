"""Convert finished maps to other formats: each is read back before the ENVI work file it was made from is deleted."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...errors import MethodError, OutputError
from ...later import later
from .work import LISTED, WorkMap, errors_of, work_map

# Names of GDAL's drivers that differ from ours.
ALIASES = {"gtiff": "geotiff"}


@dataclass(frozen=True)
class OutputFormat:
    """An output format for maps.

    Attributes
    ----------
    name, summary : str
    endings : tuple of str
        Extensions of the files of one map; the first file holds the values.
    convert : callable or None
        Makes the file from the work file: ``convert(work, out)``; None for ENVI, which the work file is.
    dataset : str
        The ``dataset`` of `unmix.io.open_cube` that reads the map back; ``{}`` stands for the map's name.
    any_name : bool
        Whether the files may have any name that the file system allows, or only names in UTF-8.
    needs : (str, str)
        The package that writes it, and the extra of unmix that installs that.
    is_folder : bool
        Whether a map is a folder, which no store takes as one object.
    """

    name: str
    summary: str
    endings: tuple[str, ...]
    convert: Callable[[WorkMap, Path], None] | None = None
    dataset: str | None = None
    any_name: bool = True
    needs: tuple[str, str] = ("", "")
    is_folder: bool = False

    def refuse_name(self, folder: Path, stem: str) -> None:
        """Raise `OutputError` where this format cannot write a file of that name in that folder."""
        if self.any_name:
            return
        for part in (stem, str(folder.absolute())):
            try:
                part.encode()
            except UnicodeEncodeError:
                raise OutputError(
                    f"{folder / stem}: `format` {self.name} needs names in UTF-8, but '{part}' is not; use another "
                    "format" + (" or rename the scene" if part == stem else " or another `out_dir`")
                ) from None


def require(name: str) -> OutputFormat:
    """Return a format by name; raise `MethodError` where there is none, or a package that it needs is not installed."""
    name = ALIASES.get(name.lower(), name)
    if name not in FORMATS:
        raise MethodError(f"unknown format '{name}'; `format` is one of {', '.join(FORMATS)}")
    package, extra = FORMATS[name].needs
    if package and importlib.util.find_spec(package) is None:
        raise MethodError(
            f"`format` {name} needs {package}: pip install 'unmix[{extra}]'; `format` netcdf and hdf5 do without"
        )
    return FORMATS[name]


RASTERIO = ("rasterio", "geo")
FORMATS = {
    each.name: each
    for each in (
        OutputFormat("envi", "raw float32 BIL with a header", (".img", ".hdr")),
        OutputFormat(
            "geotiff",
            "tiled, compressed GeoTIFF",
            (".tif",),
            later(__package__, "geotiff:to_geotiff"),
            any_name=False,
            needs=RASTERIO,
        ),
        OutputFormat(
            "cog",
            "cloud-optimized GeoTIFF, with overviews",
            (".tif",),
            later(__package__, "geotiff:to_cog"),
            any_name=False,
            needs=RASTERIO,
        ),
        OutputFormat(
            "hdf5",
            "HDF5 as NetCDF-4 has it, by the CF conventions",
            (".h5",),
            later(__package__, "hdf5:to_hdf5"),
            "/{}:byx",
        ),
        OutputFormat(
            "netcdf",
            "the same, named .nc, which GDAL and QGIS place on the map",
            (".nc",),
            later(__package__, "hdf5:to_hdf5"),
            "/{}:byx",
        ),
        OutputFormat(
            "zarr",
            "Zarr v3 in a folder, by the CF conventions",
            (".zarr",),
            later(__package__, "hdf5:to_zarr"),
            "/{}:byx",
            needs=("zarr", "zarr"),
            is_folder=True,
        ),
    )
}
