"""Tell from a file's contents whether unmix wrote it."""

import json
import os
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

from ...errors import UnmixError
from ..opening import open_plain, path_of, read_plain
from ..probe import survives
from .header import read_header

# Begin of every page.
PAGE_HEAD = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    '<meta name="generator" content="unmix">'
)
# The chunk of a PNG for the software that made it, and how many bytes of a file are searched for it: it follows the
# size.
PNG_SOFTWARE, SEARCHED_BYTES = b"Software\0unmix", 1024
# Bytes at the end of a PDF that are searched for its creator, which the table of all its objects follows.
SEARCHED_END = 2**18
# The ending of a Zarr store that is a folder; the document of its group, and the most bytes of that.
STORE, DOCUMENT, LONGEST_DOCUMENT = ".zarr", "zarr.json", 2**24
# Words of our descriptions and titles; others may speak of unmixing, too.
WORDS = re.compile(r"\bby unmix\b|\bunmix synth\b")


def says_unmix(path: Path) -> bool:
    """Return whether a file states that unmix wrote it; False where it is unreadable, or its format has no place."""
    says = SAYS.get(path.suffix.lower())
    if says is None or not (path.is_dir() if path.suffix.lower() == STORE else path.is_file()):
        return False
    try:
        return says(path)
    except (UnmixError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, zipfile.BadZipFile):
        return False


def header_says(path: Path) -> bool:
    """Ask an ENVI header."""
    fields = read_header(path)
    return "unmix version" in fields or WORDS.search(fields.get("description", "")) is not None


def json_says(path: Path) -> bool:
    """Ask a JSON file: a record, a table of bands, or a STAC item."""
    content = json.loads(read_plain(path))
    return "unmix" in content or "unmix" in content["properties"]["processing:software"]


def beginning_says(path: Path) -> bool:
    """Ask a page or a picture."""
    with open_plain(path) as file:
        beginning = file.read(SEARCHED_BYTES)
    if beginning.startswith(b"\x89PNG"):
        return b"tEXt" + PNG_SOFTWARE in beginning
    return beginning.startswith(PAGE_HEAD.encode())


def picture_says(path: Path) -> bool:
    """Ask a drawing, by the creator that it names: SVG near its beginning, PDF in one of its last objects."""
    with open_plain(path) as file:
        beginning, end = file.read(2 * SEARCHED_BYTES), os.fstat(file.fileno()).st_size
        file.seek(max(0, end - SEARCHED_END))
        rest = file.read()
    if beginning.startswith(b"%PDF"):
        return b"/Creator (unmix)" in rest
    return beginning.startswith(b"<?xml") and b"<cc:Agent>\n      <dc:title>unmix</dc:title>" in beginning


def geotiff_says(path: Path) -> bool:
    """Ask a GeoTIFF."""
    from .geotiff import gdal, settings

    try:
        with open_plain(path) as file, settings(), gdal().open(path_of(file), driver="GTiff") as source:
            return bool(source.tags().get("TIFFTAG_SOFTWARE") == "unmix")
    except Exception as error:  # GDAL's own errors are of no common class
        raise ValueError(str(error)) from None


def hdf5_says(path: Path) -> bool:
    """Ask an HDF5 or NetCDF-4 file, in a child process first: a damaged one may crash the library."""
    survives(path, lambda: title_of(path))
    return WORDS.search(title_of(path)) is not None


def zarr_says(path: Path) -> bool:
    """Ask a Zarr store, a folder or a ZIP archive: the attributes of its group."""
    if path.suffix.lower() == STORE:
        with open_plain(path / DOCUMENT) as file:
            text = file.read(LONGEST_DOCUMENT)
    else:
        with open_plain(path) as file, zipfile.ZipFile(file) as archive:
            about = archive.getinfo(DOCUMENT)
            text = archive.read(about) if about.file_size <= LONGEST_DOCUMENT else b"{}"
    return store_says(text)


def store_says(document: bytes) -> bool:
    """Ask the document of a Zarr store's group."""
    return WORDS.search(str(json.loads(document)["attributes"]["title"])) is not None


def title_of(path: Path) -> str:
    """Return the title of an HDF5 file."""
    import h5py

    with open_plain(path) as opened, h5py.File(opened, "r") as file:
        title = file.attrs.get("title", b"")
    return title.decode(errors="replace") if isinstance(title, bytes) else str(title)


SAYS: dict[str, Callable[[Path], bool]] = {
    ".hdr": header_says,
    ".json": json_says,
    ".html": beginning_says,
    ".htm": beginning_says,
    ".png": beginning_says,
    ".svg": picture_says,
    ".pdf": picture_says,
    ".tif": geotiff_says,
    ".tiff": geotiff_says,
    ".h5": hdf5_says,
    ".nc": hdf5_says,
    ".zip": zarr_says,
    STORE: zarr_says,
}
