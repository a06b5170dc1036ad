"""Load spectral libraries from files and folders, in the first format that recognises them."""

import contextlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..errors import CubeError, LibraryError, UnmixError
from ..io import LONGEST_HEADER, Scene, located, open_cube, open_plain, read_small
from ..later import later
from .classes import classified, refuse_lacking
from .envi import is_envi_library
from .forms import (
    LONGEST,
    axes_near,
    data_of,
    header_of,
    holds_spectrum,
    is_splib07,
    load_ecostress,
    load_plot,
    load_sli,
    load_splib07,
    load_usgs,
)
from .spectra import Endmembers, each_once, scaled, select
from .table import load_csv
from .to_bands import fit

# Bytes at the start of a file by which its format is recognised.
HEAD = 4096


@dataclass(frozen=True)
class LibraryFormat:
    """A library format: ``is_it(path, head)`` tests a file's first bytes, ``load(path, raw)`` reads the whole file."""

    name: str
    what: str
    is_it: Callable[[Path, bytes], bool]
    load: Callable[[Path, bytes], Endmembers]


def is_matlab(path: Path, head: bytes) -> bool:
    """Return whether a file is MATLAB: version 5, or 7.3, which is HDF5 with or without 512 bytes before it."""
    return head.startswith(b"MATLAB") or (head.startswith(b"\x89HDF") and path.suffix.lower() == ".mat")


load_matlab = later(__package__, "matlab:load_matlab")
# Tried in this order; a file that no other format recognises is tried as an ENVI library.
FORMATS = (
    LibraryFormat(
        "MATLAB",
        "the table `datalib` (USGS 1995), `A`, `E` or the only one; names, classes, wavelengths",
        is_matlab,
        load_matlab,
    ),
    LibraryFormat(
        "USGS splib06",
        "ASCII, a spectrum a file, −1.23e34 is deleted; a folder of them",
        lambda path, head: b"USGS Digital Spectral Library" in head,
        load_usgs,
    ),
    LibraryFormat(
        "USGS splib07",
        "ASCII, a spectrum a file, wavelengths in files beside it or one folder above; a folder of them, or "
        "of chapters",
        is_splib07,
        load_splib07,
    ),
    LibraryFormat(
        "ECOSTRESS, ASTER",
        "`.spectrum.txt`, a spectrum a file, percent or not; a folder of them",
        lambda path, head: b"X Units:" in head,
        load_ecostress,
    ),
    LibraryFormat(
        "ENVI plot", "ASCII, a column a spectrum", lambda path, head: head.startswith(b"ENVI ASCII Plot"), load_plot
    ),
    LibraryFormat(
        "CSV",
        "commas, semicolons or tabs: wavelengths in the header row, name and class first, a row a spectrum; or "
        "wavelengths in the first column, a column a spectrum",
        lambda path, head: path.suffix.lower() in (".csv", ".txt"),
        load_csv,
    ),
    LibraryFormat("ENVI", "`.sli` or `.lib` with `.hdr`", lambda path, head: True, lambda path, raw: load_sli(path)),
)


# These loaders read text, and recognise it by its content alone.
TEXTS = (load_usgs, load_splib07, load_ecostress, load_plot)
# Loaders whose files a folder may hold.
OF_FOLDERS = (load_usgs, load_splib07, load_ecostress)
# Files of spectrometers and spreadsheets that are not read: how they begin, or their ending, and what to do.
FOREIGN = (
    (rb"as[2-9]|ASD", ".asd", "an ASD file; export it as text (ViewSpec Pro: ASCII Export)"),
    (rb"/\*\*\* Spectra Vista SIG", ".sig", "an SVC file"),
    (rb"Comment:.*\r?\nVersion:", ".sed", "a Spectral Evolution file"),
    (rb"[\x00-\x34]\x00\x00\x00", ".mat", "a MATLAB file of version 4; save it with -v7"),
    (rb"\x93NUMPY", ".npy", "an array of NumPy, which names no spectra; write it as CSV"),
    (rb"PK\x03\x04", ".xlsx", "a workbook; save the sheet as CSV"),
)


def is_library(path: Path, dataset: str | None = None) -> bool:
    """Return whether a path is a library: a folder, text of spectra, ENVI library, or MATLAB file without a cube."""
    try:
        if path.is_dir():
            return True
        if not path.is_file():
            return False
        head = head_of(path)
        if is_matlab(path, head):
            if dataset is not None:
                return False
            with contextlib.suppress(CubeError):
                open_cube(path)
                return False
            return bool(load_file(path).names)
    except (OSError, CubeError, LibraryError):
        return False
    return is_envi_library(path) or any(entry.is_it(path, head) for entry in FORMATS if entry.load in TEXTS)


def load(path: Path) -> Endmembers:
    """Load a library whose spectra are on one axis: a file in one of the `FORMATS`, or a folder of text files."""
    parts = load_parts(path)
    if len(parts) > 1:
        sizes = ", ".join(str(len(part.matrix)) for part in parts[:8])
        raise LibraryError(
            f"{path}: its spectra are on {len(parts)} different axes ({sizes} channels); resample them to the bands of "
            "a cube"
        )
    return parts[0]


def load_library(
    path: str | os.PathLike[str], *, wanted: str | None = None, classes: str | None = None, scale: float | None = None
) -> Endmembers:
    """Load a spectral library as it is in its file or folder; `unmix.run` brings it to a scene's bands.

    Parameters
    ----------
    path : path-like
        CSV, ENVI (``.sli``, ``.lib``), MATLAB, text of the USGS or ECOSTRESS, or a folder of such text.
    wanted : str, optional
        Only spectra with these names or classes, separated by commas: ``"oak*,soil"``; ``"!oak*"`` leaves out.
    classes : str, optional
        Where classes are: a column of the library or of a table beside it.
    scale : float, optional
        Divide the spectra by this number.

    Returns
    -------
    Endmembers
        The spectra are the columns of ``matrix`` (L, p), float64.

    Raises
    ------
    LibraryError
        If it cannot be read, holds no such spectra, or its spectra are on different axes.
    """
    path = located(path)
    (library,) = prepared([load(path)], path, classes, scale, wanted)
    return library


def load_parts(path: Path) -> list[Endmembers]:
    """Load a library as one `Endmembers` for each wavelength axis; see `load`."""
    try:
        return load_folder(path) if path.is_dir() else [load_file(path)]
    except OSError as error:
        raise LibraryError(f"{path}: cannot read the library: {error.strerror or error}") from None
    except CubeError as error:  # raised by the header reader, which cubes use too
        raise LibraryError(str(error)) from None


def prepared(
    parts: list[Endmembers],
    path: Path,
    classes: str | None,
    scale: float | None,
    wanted: str | None,
    across_gaps: bool = False,
) -> list[Endmembers]:
    """Return a library's parts `classified`, `scaled` and with `select` applied, each where its argument is given."""
    parts = [replace(part, across_gaps=True) for part in parts] if across_gaps else parts
    parts = parts if classes is None else classified(parts, classes, path)
    parts = parts if scale is None else [scaled(part, scale) for part in parts]
    parts = parts if wanted is None else select(parts, wanted)
    if classes is not None:
        refuse_lacking(parts, classes)
    return parts


def load_file(path: Path) -> Endmembers:
    """Load the library of one file."""
    head = head_of(path)
    if head.startswith(b"\x89HDF") and not is_matlab(path, head):
        raise LibraryError(f"{path}: is HDF5; as libraries only MATLAB files (.mat) can be HDF5")
    for begins, ending, what in FOREIGN:
        if re.match(begins, head) and path.suffix.lower() in (ending, ".txt", ".csv", ""):
            also = "" if ";" in what else "; export it as a table of wavelength and reflectance"
            raise LibraryError(f"{path}: is {what}{also}: docs/formats.md lists what is read")
    library_format = next(entry for entry in FORMATS if entry.is_it(path, head))
    reads_itself = library_format.load is load_matlab or library_format.name == "ENVI"
    most = LONGEST if library_format.load in TEXTS else LONGEST_HEADER
    return library_format.load(path, b"" if reads_itself else read_small(path, most))


def files_of(path: Path) -> list[Path]:
    """Return the files that a library is read from: itself, an ENVI pair, USGS axes, or all files of a folder."""
    try:
        if path.is_dir():
            own = [entry for entry in sorted(path.iterdir()) if entry.is_file()]
            found = spectra_of(path)
            axes = [file for one in found[:1] if one[1].load is load_splib07 for file, _ in axes_near(one[0])]
            return list(dict.fromkeys([*own, *(file for file, _ in found), *axes]))
        if is_splib07(path, head_of(path)):
            return [path, *(file for file, _ in axes_near(path))]
        return [data_of(path, header_of(path)), header_of(path)] if is_pair(path) else [path]
    except (OSError, UnmixError):  # loading it will raise the error
        return [path]


def is_pair(path: Path) -> bool:
    """Return whether a library is an ENVI one: a data file and its header."""
    head = head_of(path)
    return next(entry for entry in FORMATS if entry.is_it(path, head)).name == "ENVI"


def head_of(path: Path) -> bytes:
    """Return the first bytes of a file, by which its format is recognised; none of what is no file."""
    if not path.is_file():
        return b""
    with open_plain(path) as file:
        return file.read(HEAD)


def load_folder(path: Path) -> list[Endmembers]:
    """Load all spectra of a folder of text files, in the order of file names, as one `Endmembers` for each axis."""
    spectra = [entry.load(file, read_small(file, LONGEST)) for file, entry in spectra_of(path)]
    if not spectra:
        raise LibraryError(f"{path}: no file in this folder, or in the folders in it, is a USGS or ECOSTRESS spectrum")
    by_axis: dict[bytes, list[Endmembers]] = {}
    for spectrum in spectra:
        assert spectrum.wavelengths is not None
        by_axis.setdefault(spectrum.wavelengths.tobytes(), []).append(spectrum)
    names = iter(each_once([spectrum.names[0] for part in by_axis.values() for spectrum in part]))
    return [
        Endmembers(
            tuple(next(names) for _ in part),
            np.column_stack([spectrum.matrix for spectrum in part]),
            part[0].wavelengths,
            source=path.resolve().name if path.name in ("", "..") else path.name,
            classes=tuple(spectrum.classes[0] if spectrum.classes else "" for spectrum in part),
        )
        for part in by_axis.values()
    ]


def spectra_of(path: Path) -> list[tuple[Path, LibraryFormat]]:
    """Return the spectra files in a folder, with formats; without any, those in its subfolders (USGS chapters)."""
    entries = sorted(path.iterdir())
    found = spectra_among(entries)
    inner = (
        [] if found else [one for one in entries if one.is_dir() and not (one.is_symlink() or one.name.startswith("."))]
    )
    return found + [one for folder in inner for one in spectra_among(sorted(folder.iterdir()))]


def spectra_among(entries: Sequence[Path]) -> list[tuple[Path, LibraryFormat]]:
    """Return those of some files that are spectra, with their formats."""
    formats = [entry for entry in FORMATS if entry.load in OF_FOLDERS]
    found: list[tuple[Path, LibraryFormat]] = []
    for file in filter(Path.is_file, entries):
        head = head_of(file)
        matching = [entry for entry in formats if entry.is_it(file, head)][:1]
        found += [(file, entry) for entry in matching if entry.load is not load_splib07 or holds_spectrum(file, head)]
    return found


def load_for(
    library: str | os.PathLike[str] | Endmembers,
    scene: Scene,
    classes: str | None = None,
    scale: float | None = None,
    select: str | None = None,
    complete: bool = False,
    across_gaps: bool = False,
) -> Endmembers:
    """Return a library `prepared` and `fit` to the bands in use of a scene; `LibraryError` where that is impossible."""
    if isinstance(library, Endmembers):
        parts, path = [library], Path("library")
    else:
        path = located(library)
        parts = load_parts(path)
    return fit(prepared(parts, path, classes, scale, select, across_gaps), scene.cube, scene.bands.index, complete)
