"""Read cubes in Zarr stores: a folder here or on a server, or a ZIP archive."""

from pathlib import Path
from typing import Any

from ....errors import CubeError, MethodError, brief
from ...cube import Kind
from ...identity import spread
from ...remote import RemotePath
from ...remote.path import ZARR, ZARR_DOCUMENTS

KIND = Kind(
    "Zarr",
    "a folder, a folder on a server whose name ends in `.zarr`, or a ZIP archive, v2 or v3, sharded or not: an array "
    "with named axes "
    "(xarray, GeoZarr, OME-Zarr: the finest level), or a group of arrays (y, x) of one size, a band each (EOPF); "
    "`--dataset /path`, or `/path:byx`, where there are several",
    "`wavelength` and `fwhm` beside the array; `stac_discovery`; `--wavelengths /path`",
    "`spatial:transform` and `proj:`, `grid_mapping`, or evenly spaced `x` and `y`",
    "as NetCDF; also in `_eopf_attrs`",
)
# Most chunks of a store on a server whose versions are asked for.
MOST_ASKED = 64
ZIP = b"PK\x03\x04"


def is_store(path: Path) -> bool:
    """Return whether a path leads to a Zarr store, or to a group or an array in it."""
    if isinstance(path, RemotePath):
        return bool(path.objects)
    return any((path / name).is_file() for name in ZARR_DOCUMENTS)


def stem_of(path: Path) -> str:
    """Return the name of a store without its endings."""
    name = path.name[:-4] if path.name.lower().endswith(".zip") else path.name
    return name[: -len(ZARR)] if name.lower().endswith(ZARR) and name != ZARR else name


def open_zarr(path: Path, dataset: str | None = None, wavelengths: str | None = None) -> Any:
    """Open the cube in a Zarr store, or the array or group ``dataset`` (`unmix.io.open_cube`); read no pixel."""
    try:
        import zarr
    except ImportError:
        raise CubeError(f"{path}: Zarr stores need zarr: pip install 'unmix[zarr]'") from None
    from .layouts import cube_in
    from .store import Store

    try:
        if isinstance(path, RemotePath):
            path.stat()  # raises a clear error if the store does not exist
        cube = cube_in(Store(path), dataset, wavelengths)
    except (CubeError, MethodError):
        raise
    except FileNotFoundError as error:
        raise CubeError(f"{path}: {error.strerror or brief(error)}") from None
    except Exception as error:  # zarr raises many kinds of errors for a damaged store
        raise CubeError(f"{path}: cannot be read as Zarr: {brief(error)}") from None
    cube.stem = stem_of(path)
    if isinstance(path, RemotePath):
        path.objects = [*documents_above(cube.names), *spread(sorted(cube.keys()), MOST_ASKED)]
    return cube


def documents_above(names: list[str]) -> list[str]:
    """Return the names of all metadata documents that may describe arrays: their own and their groups'."""
    parts = [name.split("/") for name in names]
    folders = {"/".join(one[:k]) for one in parts for k in range(len(one) + 1)}
    return [f"{folder}/{name}".lstrip("/") for folder in sorted(folders) for name in ZARR_DOCUMENTS]
