"""Read ENVI cubes: a text header, and raw values that are read by position into buffers of the caller."""

import contextlib
import functools
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import CubeError
from ..cube import INTERLEAVES, Cube, Kind, place_for
from ..fields import DTYPES, header_beside, spectral_fields
from ..opening import open_plain, why_no_file
from ..read import ScratchFile, announce, fill_all, read_parts
from ..remote import RemotePath, files_named
from .header import read_header, says_tiff, sizes_in, whole, words

KIND = Kind(
    "ENVI",
    "header and data, bip, bil or bsq, nine types, both byte orders; also gzip-compressed (`file compression = 1`)",
    "`wavelength`, `fwhm`, `bbl`",
    "copied to the letter",
    "`data ignore value`, `reflectance scale factor`, `data gain values`, `data offset values`",
)
EXTENSIONS = ("", ".img", ".dat", ".raw", ".bin", ".bsq", ".bil", ".bip", ".sli", ".lib", ".hyspex", ".envi")
OTHER_FORMATS = {
    ".h5": "HDF5",
    ".hdf5": "HDF5",
    ".he5": "HDF5",
    ".nc": "NetCDF",
    ".mat": "MATLAB",
    ".gz": "gzip",
    ".tif": "TIFF",
    ".tiff": "TIFF",
    ".xml": "XML",
    ".zip": "ZIP",
}
TIFF_EXTENSIONS = (".tif", ".tiff")
HDF = (".h5", ".hdf5", ".he5", ".nc")
TO_TIFF, TO_NETCDF4 = (
    "make a GeoTIFF of it: gdal_translate {name} {stem}.tif",
    "convert it: nccopy -k netCDF-4 {name} {stem}_4.nc",
)
# Files in a folder from which on each may be a band.
STACK = 8
# The first bytes of files of other formats, which these are, and what to do with them.
REFUSED = {
    b"\x0e\x03\x13\x01": ("HDF4", "convert it with gdal_translate -of ENVI"),
    **dict.fromkeys((b"CDF\x01", b"CDF\x02", b"CDF\x05"), ("NetCDF-3", TO_NETCDF4)),
    b"<VRTDataset": ("VRT, which names other files", TO_TIFF),
    b"\0\0\0\x0cjP  ": ("JPEG 2000", TO_TIFF),
    b"NITF": ("NITF", TO_TIFF),
    b"\x93NUMPY": ("an array of NumPy", "write it with h5py, and name the order of its axes in `dataset`"),
}
GZIP_MAGIC = b"\x1f\x8b"
TIFF_MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
# Bytes before and after each line, or band, of a file that an instrument wrote.
FRAMES = "major frame offsets", "minor frame offsets"


def find_header(path: Path) -> Path:
    """Return the header of an ENVI cube from the path of its header or its data file."""
    if path.is_dir():
        raise CubeError(f"{path}: is a folder; name a cube's header or data file{cubes_within(path)}")
    if not path.is_file():
        raise CubeError(f"{path}: {why_no_file(path)}")
    with open_plain(path) as file:
        head = file.read(max(map(len, REFUSED)))
    for kind, todo in (said for magic, said in REFUSED.items() if head.startswith(magic)):
        raise CubeError(f"{path}: is {kind}, and not read; {todo.format(name=path.name, stem=path.stem)}")
    if path.suffix.lower() in OTHER_FORMATS:
        kind = OTHER_FORMATS[path.suffix.lower()]
        if kind in ("HDF5", "NetCDF", "MATLAB", "TIFF"):
            like = "HDF5 (NetCDF-4 does)" if kind in ("HDF5", "NetCDF") else "it"
            old = " (MATLAB 4 is not read: save it with -v7)" if kind == "MATLAB" else ""
            raise CubeError(f"{path}: is named like {kind}, but does not begin like {like}; is it whole?{old}")
        raise CubeError(f"{path}: {kind} cannot be read; name the cube itself")
    if path.suffix.lower() == ".hdr":
        return path
    header = header_beside(path)
    if header is None:
        table = "; of spectra in a table as pixels see docs/lab.md" * (path.suffix.lower() in (".csv", ".txt"))
        raise CubeError(f"{path}: no header beside it (looked for {path.stem}.hdr and {path.name}.hdr){table}")
    is_own = header.stem.lower() == path.name.lower() or path.suffix.lower() in EXTENSIONS
    if not is_own:
        with contextlib.suppress(CubeError):  # of a header that promises nothing
            if path.stat().st_size == promised(read_header(header), header):
                return header
        raise CubeError(f"{path}: {header.name} beside it is the header of another file; name that file, or the header")
    return header


def cubes_within(folder: Path) -> str:
    """Return text that names up to three likely cubes of a folder, without quality layers of an EnMAP product."""
    names = sorted(entry.name for entry in folder.iterdir() if entry.suffix.lower() in (".hdr", *TIFF_EXTENSIONS, *HDF))
    found = [name for name in names if "SPECTRAL_IMAGE" in name.upper()] or names
    stack = "; stack them first if each is one band" if len(found) >= STACK else ""
    return f" in it, such as {', '.join(found[:3])}{stack}" if found else ""


def promised(fields: Mapping[str, str], header: Path) -> int:
    """Return the bytes of a data file that a header promises; 0 for a compressed file, whose size it does not say."""
    lines, samples, bands = sizes_in(fields, header)
    dtype = DTYPES.get(whole(fields, "data type", header))
    if dtype is None or whole(fields, "file compression", header, 0):
        return 0
    return whole(fields, "header offset", header, 0) + samples * lines * bands * dtype.itemsize


def find_data(header: Path, endings: tuple[str, ...] = EXTENSIONS, fields: Mapping[str, str] | None = None) -> Path:
    """Return the data file of a header: a usual extension or, by ``fields``, any extension and the promised size."""
    stem = header.name[:-4]
    names = [stem + spelt for ending in endings for spelt in (ending, ending.upper())]
    candidates = [
        entry for entry in files_named(header.parent, names) if entry != header and entry.name.startswith(stem)
    ]
    if candidates and not any(entry.is_file() for entry in candidates):
        raise CubeError(f"{candidates[0]}: is no file; {header.name} has no other data file beside it")
    candidates = [entry for entry in candidates if entry.is_file()]
    if not candidates and fields is not None:
        candidates = of_its_size(header, promised(fields, header))
    if not candidates:
        looked = ", ".join(stem + ending for ending in endings[:3])
        raise CubeError(f"{header}: no data file beside it (looked for {looked}, …)")
    if len(candidates) > 1:
        listed = ", ".join(entry.name for entry in candidates)
        raise CubeError(f"{header}: more than one data file could be meant: {listed}; name the data file instead")
    return candidates[0]


def of_its_size(header: Path, size: int) -> list[Path]:
    """Return the files with a header's stem that have ``size`` bytes; `CubeError` where all have other sizes."""
    if isinstance(header, RemotePath):
        return []
    beside = [entry for entry in header.parent.iterdir() if entry.stem == header.stem and entry != header]
    beside = [entry for entry in beside if entry.is_file()]
    found = [entry for entry in beside if entry.stat().st_size == size]
    if beside and not found:
        one = beside[0]
        raise CubeError(
            f"{header}: no data file beside it; {one.name} has {one.stat().st_size} bytes, but {header.name} promises "
            f"{size}; if it is "
            "the cube, name it"
        )
    return found


@dataclass(eq=False)
class EnviCube(Cube):
    """An ENVI cube; see `unmix.io.cube.Cube` for the attributes.

    ``skip`` is the header offset in bytes; ``swapped`` is true where the byte order is not this machine's;
    gzip-compressed data is read from a ``scratch`` file.
    """

    swapped: bool
    skip: int

    def read(self, lines: slice, out: np.ndarray) -> np.ndarray:
        """Read whole lines as stored; see `unmix.io.cube.Cube.read`."""
        values = place_for(self, lines, out)
        size, offsets = self.pieces(lines)
        parts = [(out[i * size : (i + 1) * size], offset) for i, offset in enumerate(offsets)]
        if self.scratch is not None:
            fill_all(self.path, self.scratch.fileno(), parts)
        else:
            read_parts(self.path, parts)
        if self.swapped:
            values.byteswap(inplace=True)
        return self.screened(values)

    def storage(self) -> dict[str, Any]:
        """Return how the file stores the cube; see `unmix.io.cube.Cube.storage`."""
        order = "swapped" if self.swapped else "native"
        return {"byte_order": order, "header_offset": self.skip, "compression": "gzip" if self.packed else None}

    @property
    def packed(self) -> bool:
        """Return whether the data is gzip-compressed."""
        return self.scratch is not None

    def expect(self, lines: slice) -> None:
        """Announce that these lines will be read soon; see `unmix.io.cube.Cube.expect`."""
        if self.packed:
            return
        size, offsets = self.pieces(lines)
        announce(self.path, [(offset, size) for offset in offsets])

    def pieces(self, lines: slice) -> tuple[int, list[int]]:
        """Return the bytes of each contiguous piece of the file that holds these lines, and their offsets."""
        line_bytes = self.samples * self.dtype.itemsize  # of one band
        n = lines.stop - lines.start
        if self.interleave == "bsq":
            return n * line_bytes, [self.skip + (b * self.lines + lines.start) * line_bytes for b in range(self.bands)]
        return n * line_bytes * self.bands, [self.skip + lines.start * line_bytes * self.bands]


def open_envi(path: Path) -> Cube:
    """Open an ENVI cube by its header or its data file, also a TIFF behind a header; read only the header."""
    try:
        return open_pair(path)
    except OSError as error:
        raise CubeError(f"{error.filename or path}: cannot be read: {error.strerror}") from None


def open_pair(path: Path) -> Cube:
    """Open an ENVI cube; see `open_envi`, which turns errors of the file system into `CubeError`."""
    header = find_header(path)
    fields = read_header(header)
    if "library" in fields.get("file type", "").lower():
        raise CubeError(
            f"{header}: is a spectral library, not a cube; give it as `endmembers` (its spectra as pixels: docs/lab.md)"
        )
    if says_tiff(fields):
        return open_tiff(find_data(header, TIFF_EXTENSIONS))
    data = path
    if path == header:
        try:
            data = find_data(header, EXTENSIONS, fields)
        except CubeError as error:  # a TIFF may take wavelengths from a header that does not say what its data is
            with contextlib.suppress(CubeError):
                cube = open_tiff(find_data(header, TIFF_EXTENSIONS))
                if [cube.lines, cube.samples, cube.bands] == sizes_in(fields, header):
                    return cube
            raise error
    lines, samples, bands = sizes_in(fields, header)
    if min(samples, lines, bands) < 1:
        raise CubeError(f"{header}: {lines} lines, {samples} samples, {bands} bands: each must be at least 1")
    interleave = fields.get("interleave", "").partition(";")[0].strip().lower()
    packed = whole(fields, "file compression", header, 0) != 0
    with open_plain(data) as file:
        head = file.read(4)
        if head in TIFF_MAGIC:
            if data.suffix.lower() in TIFF_EXTENSIONS:
                return open_tiff(data)
            raise CubeError(
                f"{data}: is a TIFF, though {header.name} says 'interleave = {interleave[:20]}'; set it to tif"
            )
        if packed and head[:2] != GZIP_MAGIC:
            raise CubeError(f"{data}: is not gzip-compressed, though {header.name} says so; set 'file compression = 0'")
    if interleave not in INTERLEAVES:
        what = f"its interleave '{interleave[:20]}' is not" if interleave else "the header has no 'interleave ='"
        raise CubeError(f"{header}: {what} bip, bil or bsq")
    code = whole(fields, "data type", header)
    if code not in DTYPES:
        kind = "complex" if code in (6, 9) else "unknown"
        raise CubeError(f"{header}: data type {code} ({kind}) is not supported; supported: {sorted(DTYPES)}")
    for key in FRAMES:
        if any(word.strip() not in ("", "0") for word in words(fields, key) or ()):
            raise CubeError(
                f"{header}: has '{key}', bytes between lines, which are not read; save it anew without them"
            )
    dtype = DTYPES[code]
    skip = whole(fields, "header offset", header, 0)
    if skip < 0:
        raise CubeError(f"{header}: header offset {skip} is negative")
    if packed and max(bands, samples, lines) > 2**24:  # the size of a compressed file does not limit its data's size
        raise CubeError(
            f"{header}: {lines} lines, {samples} samples, {bands} bands: implausible; is the header damaged?"
        )
    size = lines * samples * bands * dtype.itemsize
    problems = [] if packed else check_size(data, header, skip, size)
    return EnviCube(
        path=data,
        stem=data.name
        if header.stem.lower() == data.name.lower() and data.suffix.lower() not in EXTENSIONS
        else data.stem,
        format=KIND.name,
        beside=[header],
        lines=lines,
        samples=samples,
        bands=bands,
        dtype=dtype,
        swapped=(whole(fields, "byte order", header, 0) == 1) != (sys.byteorder == "big") and dtype.itemsize > 1,
        skip=skip,
        interleave=interleave,
        fields=fields,
        problems=problems,
        scratch=ScratchFile(functools.partial(unpack, data, skip + size)) if packed else None,
        **spectral_fields(fields, bands, dtype, header, problems),
    )


def open_tiff(data: Path) -> Cube:
    """Open the TIFF behind an ENVI header; imported here, because only TIFF files need `unmix.io.formats.geotiff`."""
    from .geotiff import open_geotiff

    with open_plain(data) as file:
        if file.read(4) not in TIFF_MAGIC:
            raise CubeError(f"{data}: is not a TIFF, though its header says so")
    return open_geotiff(data)


def unpack(data: Path, size: int) -> Any:
    """Inflate the data into a scratch file."""
    # Imported here, because `unmix.io.scratch` imports h5py, which ENVI files do not need.
    from ..scratch import gunzip

    return gunzip(data, size)


def check_size(data: Path, header: Path, skip: int, wanted: int) -> list[str]:
    """Raise `CubeError` where the data file is shorter than the header says; return a warning where it is longer."""
    size = data.stat().st_size
    if size < skip + wanted:
        raise CubeError(f"{data}: is truncated: {size} bytes, but {header.name} promises {skip + wanted}")
    if size > skip + wanted:
        return [f"{data}: {size} bytes, {size - skip - wanted} more than {header.name} promises"]
    return []
