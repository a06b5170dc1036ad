"""Spectral libraries: read from whatever holds them, chosen from, and brought to the bands of a cube."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import CubeError, LibraryError, UnmixError
from ..io import open_cube
from ..io.fields import header_beside
from ..io.formats.header import LONGEST_HEADER, read_header, read_small
from .ascii import LONGEST, load_ecostress, load_plot, load_usgs
from .envi import data_of, header_of, load_sli
from .fit import fit, resample
from .matlab import load_matlab
from .spectra import DELETED, Endmembers, duplicates, each_once, select
from .table import load_csv

HEAD = 4096


@dataclass(frozen=True)
class LibraryFormat:
    """A format of libraries: ``is_it(path, head)`` by its first bytes, ``load(path, whole)`` reads it."""

    name: str
    what: str
    is_it: Callable[[Path, bytes], bool]
    load: Callable[[Path, bytes], Endmembers]


def is_matlab(path: Path, head: bytes) -> bool:
    """Version 5, or version 7.3, which is HDF5 behind 512 bytes or none."""
    return head.startswith(b"MATLAB") or (head.startswith(b"\x89HDF") and path.suffix.lower() == ".mat")


# Asked in turn; what none knows is tried as an ENVI library.
FORMATS = (
    LibraryFormat("MATLAB", "the table `datalib` (USGS 1995), `A`, `E` or the only one; names, classes, wavelengths", is_matlab,
                  load_matlab),
    LibraryFormat("USGS splib06", "ASCII, a spectrum a file, −1.23e34 is deleted; a folder of them",
                  lambda path, head: b"USGS Digital Spectral Library" in head, load_usgs),
    LibraryFormat("ECOSTRESS, ASTER", "`.spectrum.txt`, a spectrum a file, percent or not; a folder of them",
                  lambda path, head: b"X Units:" in head, load_ecostress),
    LibraryFormat("ENVI plot", "ASCII, a column a spectrum",
                  lambda path, head: head.startswith(b"ENVI ASCII Plot"), load_plot),
    LibraryFormat("CSV", "wavelengths in the header row, name and class first, a row a spectrum",
                  lambda path, head: path.suffix.lower() in (".csv", ".txt"), load_csv),
    LibraryFormat("ENVI", "`.sli` or `.lib` with `.hdr`", lambda path, head: True, lambda path, raw: load_sli(path)),
)  # fmt: skip


TEXTS = (load_usgs, load_ecostress, load_plot)


def is_library(path: Path, dataset: str | None = None) -> bool:
    """Return whether a path names a spectral library rather than a cube.

    That is a folder, text of spectra, an ENVI library (by its header, whichever of the two files is named), or a MATLAB file with a
    table of spectra and no cube (where none is named as ``dataset``).
    """
    try:
        if path.is_dir():
            return True
        if not path.is_file():
            return False
        with open(path, "rb") as file:
            head = file.read(HEAD)
        if is_matlab(path, head):
            return dataset is None and not is_cube(path) and bool(load_file(path).names)
    except (OSError, CubeError, LibraryError):
        return False
    return is_envi_library(path) or any(one.is_it(path, head) for one in FORMATS if one.load in TEXTS)


def is_envi_library(path: Path) -> bool:
    """Return whether a path is one of the two files of an ENVI library."""
    try:
        header = path if path.suffix.lower() == ".hdr" else header_beside(path)
        return header is not None and "library" in read_header(header).get("file type", "").lower()
    except (OSError, CubeError):
        return False


def is_cube(path: Path) -> bool:
    """Return whether a path opens as a cube."""
    try:
        open_cube(path)
    except CubeError:
        return False
    return True


def load(path: Path) -> Endmembers:
    """Load a library whose spectra are on one axis.

    Parameters
    ----------
    path : Path
        A file of one of `FORMATS`, or a folder of such files.

    Raises
    ------
    LibraryError
        Where it cannot be read, holds no spectra, or holds some on different axes.
    """
    parts = load_parts(path)
    if len(parts) > 1:
        sizes = ", ".join(str(len(part.matrix)) for part in parts[:8])
        raise LibraryError(f"{path}: its spectra are on {len(parts)} different axes ({sizes} channels); resample it")
    return parts[0]


def load_parts(path: Path) -> list[Endmembers]:
    """Load a library: the spectra on each axis together; see `load`."""
    try:
        return load_folder(path) if path.is_dir() else [load_file(path)]
    except OSError as error:
        raise LibraryError(f"{path}: cannot read the library: {error.strerror or error}") from None
    except CubeError as error:  # from the header it shares with cubes
        raise LibraryError(str(error)) from None


def load_file(path: Path) -> Endmembers:
    """Load the library of one file."""
    head = b""
    if path.is_file():
        with open(path, "rb") as file:
            head = file.read(HEAD)
    if head.startswith(b"\x89HDF") and not is_matlab(path, head):
        raise LibraryError(f"{path}: is HDF5, of which only MATLAB's is read as a library")
    found = next(one for one in FORMATS if one.is_it(path, head))
    own_reader = found.load is load_matlab or found.name == "ENVI"
    return found.load(path, b"" if own_reader else read_small(path, LONGEST if found.load in TEXTS else LONGEST_HEADER))


def files_of(path: Path) -> list[Path]:
    """Return the files that a library is read from: itself, the data and the header of ENVI's, all files of a folder."""
    try:
        if path.is_dir():
            return [entry for entry in sorted(path.iterdir()) if entry.is_file()]
        return [data_of(path, header_of(path)), header_of(path)] if is_pair(path) else [path]
    except (OSError, UnmixError):  # whoever loads it says what is wrong
        return [path]


def is_pair(path: Path) -> bool:
    """Whether a library is ENVI's, data and header."""
    head = b""
    if path.is_file():
        with open(path, "rb") as file:
            head = file.read(HEAD)
    return next(one for one in FORMATS if one.is_it(path, head)).name == "ENVI"


def load_folder(path: Path) -> list[Endmembers]:
    """The spectra of all text files of a folder; those on one axis together, in the order of the files' names."""
    kinds = [one for one in FORMATS if one.load in (load_usgs, load_ecostress)]
    spectra: list[Endmembers] = []
    for entry in sorted(path.iterdir()):
        if not entry.is_file():
            continue
        with open(entry, "rb") as file:
            head = file.read(HEAD)
        spectra += [one.load(entry, read_small(entry, LONGEST)) for one in kinds if one.is_it(entry, head)][:1]
    if not spectra:
        raise LibraryError(f"{path}: no file in this folder is a spectrum of the USGS or of ECOSTRESS")
    together: dict[bytes, list[Endmembers]] = {}
    for one in spectra:
        assert one.wavelengths is not None
        together.setdefault(one.wavelengths.tobytes(), []).append(one)
    names = iter(each_once([one.names[0] for some in together.values() for one in some]))
    return [
        Endmembers(
            tuple(next(names) for _ in some),
            np.column_stack([one.matrix for one in some]),
            some[0].wavelengths,
            source=path.name,
            classes=tuple(one.classes[0] if one.classes else "" for one in some),
        )
        for some in together.values()
    ]


__all__ = [
    "DELETED",
    "FORMATS",
    "Endmembers",
    "duplicates",
    "files_of",
    "fit",
    "is_library",
    "load",
    "load_parts",
    "resample",
    "select",
]
