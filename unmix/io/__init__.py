"""Read and write cubes: one module for each family of formats, all behind the protocol `Cube`."""

import contextlib
import os
import stat
from importlib import import_module
from pathlib import Path

from ..errors import CubeError, MethodError, brief
from ..features import of_documents
from ..later import later
from .cube import (
    INTERLEAVES,
    Bands,
    Cube,
    Kind,
    as_stored,
    band_names,
    bands_named,
    by_pixel,
    bytes_per_line,
    counted,
    cut,
    in_ranges,
    missing,
    place_for,
    read_blocks,
    read_lines,
    spectra,
)
from .fields import DTYPES, MAP_FIELDS, NODATA, acquisition_of, code_of, header_beside
from .formats import zarr
from .formats.envi import TIFF_MAGIC
from .identity import (
    Watch,
    content_of,
    files_of,
    identity_of,
    input_id,
    is_folder,
    is_older,
    modified,
    state_of,
    status_of,
    warn_if_touched,
)
from .opening import (
    LONGEST_HEADER,
    close_late,
    mapped,
    open_named,
    open_new,
    open_plain,
    open_there,
    parted,
    read_plain,
    read_small,
    why_no_file,
    write_new,
)
from .remote import (
    VERSIONS,
    RemotePath,
    absolute,
    document_of,
    exists,
    fetched,
    files_named,
    is_file,
    is_remote,
    leads_elsewhere,
    located,
    sizes_in_folder,
)
from .text import Row, csv_of, decimal_commas, decoded, is_whole, list_rows, refuse_pairs
from .window import (
    Changed,
    Mask,
    Scene,
    Tied,
    Window,
    begin_within,
    origin_of,
    size_of_whole,
)
from .write import write_all

apart, both_places, is_one_system, placed, refuse_elsewhere = (
    later(__package__, f"ground:{name}")
    for name in ("apart", "both_places", "is_one_system", "placed", "refuse_elsewhere")
)
axis_from_file, files_of_axis = later(__package__, "axis:axis_from_file"), later(__package__, "axis:files_of_axis")

HDF5 = b"\x89HDF\r\n\x1a\n"
# Offsets at which an HDF5 file may begin: a user block of this many bytes may precede it.
USER_BLOCKS = (0, 512, 1024, 2048)
# First bytes of web pages.
PAGES = (b"<!doctype html", b"<html")
# First bytes of a file, and the module and function that open it; every other file is tried as ENVI.
SIGNATURES = (
    (HDF5, "products", "open_hdf5"),
    *((magic, "geotiff", "open_geotiff") for magic in TIFF_MAGIC),
    (b"MATLAB 5.0 MAT-file", "matlab", "open_matlab"),
    (b"MATLAB 7.3 MAT-file", "matlab", "open_matlab"),
    (zarr.ZIP, "zarr", "open_zarr"),
    (b"", "envi", "open_envi"),
)


# Readers whose files hold several arrays by name.
OF_NAMES = "products", "matlab", "zarr"


def has_names(path: Path) -> bool:
    """Return whether a file may hold several cubes, each by its name: HDF5, Zarr, MATLAB."""
    leads_on = document_of(path) is not None or dated(path)[1] != ""
    return leads_on or (path.suffix.lower() != ".npy" and reader_of(path)[0] in OF_NAMES)


def open_cube(path: str | os.PathLike[str], dataset: str | None = None, wavelengths: str | None = None) -> Cube:
    """Open a scene; read only its header.

    Parameters
    ----------
    path : path-like
        The cube: an ENVI header or data file; GeoTIFF; MATLAB; a product in HDF5 or NetCDF-4 (``FILE#DATE`` where it
        holds several times); a Zarr store, as a folder, a
        folder on a server, or a ZIP archive; or a document that names one of these
        (`unmix.features.Feature.documents`).
    dataset : str, optional
        The cube in an HDF5 file, ``/path`` or ``/path:byx`` with its axes in order (y lines, x samples, b bands).
        Default: the order that the axes' names tell, or, where exactly one axis is as long as ``wavelengths``, that
        axis is b. In a Zarr store, an array or a group; in a MATLAB file, the variable's name, yxb by default.
    wavelengths : str, optional
        Wavelengths, in nm or µm, that replace those of the cube: a file (`unmix.io.axis.axis_from_file`), or, where no
        file has that name, a dataset of the HDF5 file, an array of the Zarr store or a variable of the MATLAB file.

    Returns
    -------
    Cube

    Raises
    ------
    CubeError
        Where the file is missing, unreadable, truncated or of an unsupported kind.
    MethodError
        Where ``dataset`` is given for a file that is neither HDF5, Zarr nor MATLAB, or its axes are not an order of y,
        x and b.
    """
    path = located(path)
    document = document_of(path)
    if document is not None:
        # The user's wavelength file may lie anywhere, and has all bands; files that an item names lie below its folder.
        own = wavelengths if wavelengths is not None and is_file(wavelengths) else None
        named: Cube | None = of_documents(
            "opened", *document, lambda one: open_cube(one, dataset, None if own else wavelengths)
        )
        if named is None:
            raise CubeError(f"{document[0]}: names no scene (of a STAC item, it lists the assets)")
        return named if own is None else on_axis(named, located(own))
    path, date = dated(path)
    module, function = reader_of(path)
    if date and module != "products":
        raise CubeError(f"{path}: is no HDF5 or NetCDF file with several times, so it has no #{brief(date)}")
    holds_names = module in OF_NAMES
    axis_file = None if wavelengths is None or (holds_names and not is_file(wavelengths)) else located(wavelengths)
    if dataset is not None and not holds_names:
        if not exists(path):
            raise CubeError(f"{path}: {why_no_file(path)}")
        raise MethodError(f"`dataset` is for HDF5, Zarr and MATLAB files; {path} is none of them")
    names = (("dataset", dataset), ("wavelengths", wavelengths if axis_file is None else None))
    given = {key: name for key, name in (*names, ("date", date or None)) if name is not None}
    cube: Cube = getattr(import_module(f".formats.{module}", __package__), function)(path, **given)
    return cube if axis_file is None else on_axis(cube, axis_file)


def on_axis(cube: Cube, axis_file: Path) -> Cube:
    """Give a cube the wavelengths of a file in place of its own, and return it."""
    cube.wavelengths, fwhm = axis_from_file(axis_file, cube.bands)
    cube.fwhm = cube.fwhm if fwhm is None else fwhm
    cube.beside = [*cube.beside, *files_of_axis(axis_file)]
    return cube


def dated(path: Path) -> tuple[Path, str]:
    """Split ``FILE#DATE`` into the file and the date, which is empty where the whole path is a file."""
    file, _, date = os.fspath(path).rpartition("#")
    has_no_date = not file or isinstance(path, RemotePath) or os.path.lexists(path) or not os.path.isfile(file)
    return (path, "") if has_no_date else (Path(file), date)


def reader_of(path: Path) -> tuple[str, str]:
    """Return the module and the function that open a file, chosen by its first bytes."""
    try:
        if zarr.is_store(path):
            return "zarr", "open_zarr"
        regular = stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        regular = False
    except OSError as error:  # such as a name that is too long, or a loop of links
        raise CubeError(f"{path}: cannot be opened: {error.strerror or brief(error)}") from None
    head = b""
    if regular:  # opening a pipe would block; the reader reports what is wrong
        with contextlib.suppress(OSError), open_plain(path) as file:
            head = file.read(max(USER_BLOCKS) + len(HDF5))
    if isinstance(path, RemotePath) and head.lstrip()[:15].lower().startswith(PAGES):
        raise CubeError(f"{path}: is a web page, perhaps one to log in at: give a token of its server (`UNMIX_TOKEN`)")
    start = next((at for at in USER_BLOCKS if head[at:].startswith(HDF5) and not head.startswith(b"MATLAB")), 0)
    return next((module, function) for magic, module, function in SIGNATURES if head[start:].startswith(magic))


def kinds() -> list[Kind]:
    """Return every kind of cube that can be read; docs/formats.md is generated from them."""
    envi, geotiff, products, matlab = (
        import_module(f".formats.{name}", __package__) for name in ("envi", "geotiff", "products", "matlab")
    )
    return [envi.KIND, *geotiff.KINDS, *(kind for kind, _ in products.PRODUCTS), products.NAMED, zarr.KIND, matlab.KIND]
