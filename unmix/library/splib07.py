"""USGS splib07 as text: a spectrum a file, values alone; the wavelengths of each spectrometer are in a file of their own."""

import re
from pathlib import Path

import numpy as np

from ..errors import CubeError, LibraryError
from ..io.formats.header import read_small
from ..io.text import decoded
from .spectra import DELETED, Endmembers, make

# The first line of every file, from which the title is taken.
FIRST_LINE = re.compile(r"\s*s(?:plib)?07\w*\s+Record=\s*\d+:\s*(.*)")
# Names of files with wavelengths, whose first word is the spectrometer: splib07a_Wavelengths_ASD_0.35-2.5_microns_2151_ch.txt.
AXIS = re.compile(r"s(?:plib)?07\w*?_Wavelengths_([A-Za-z0-9]+).*\.txt", re.IGNORECASE)
# Files in the same folders that hold no spectra: wavelengths, widths of bands, errors.
NO_SPECTRUM = re.compile(r"wavelength|bandpass|bandwidth|errorbar|resolution", re.IGNORECASE)
# Bytes of the longest file, of some 4280 values; values of a file at most.
LONGEST, MOST_VALUES = 2**20, 2**16


def is_splib07(path: Path, head: bytes) -> bool:
    """Return whether a file is text of splib07, by its first line."""
    return FIRST_LINE.match(head[:200].decode("latin-1")) is not None


def holds_spectrum(path: Path, head: bytes) -> bool:
    """Return whether a file of splib07 holds a spectrum, by its name and title."""
    found = FIRST_LINE.match(head[:200].decode("latin-1").splitlines()[0])
    return NO_SPECTRUM.search(path.name) is None and found is not None and NO_SPECTRUM.search(found[1]) is None


def values_of(path: Path, raw: bytes) -> tuple[str, np.ndarray]:
    """Return title and values of a file, NaN where they are deleted."""
    first, *lines = decoded(raw).splitlines()
    found = FIRST_LINE.match(first)
    try:
        if found is None or len(lines) > MOST_VALUES:
            raise ValueError
        values = np.array([float(line) for line in lines if line.strip()])
    except ValueError:
        raise LibraryError(
            f"{path}: is no complete file of USGS splib07: a title, and a value a line below it"
        ) from None
    return " ".join(found[1].split()), np.where(values < DELETED, np.nan, values)


def load_splib07(path: Path, raw: bytes) -> Endmembers:
    """Load a spectrum; its wavelengths (µm) are in a file beside it or in the folder above, of the same number and spectrometer."""
    title, values = values_of(path, raw)
    axis = axis_for(path, title, len(values))
    known = np.isfinite(axis)
    words = title.split()
    return make([title or path.stem], values[known, None], axis[known] * 1000, path, classes=words[:1] or [""])


def axis_for(path: Path, title: str, count: int) -> np.ndarray:
    """Return the wavelengths (count,) of a spectrum, in µm; `LibraryError` where no file, or more than one, has them."""
    found: dict[bytes, np.ndarray] = {}
    words = [word.lower() for word in re.split(r"[\s_]+", f"{title} {path.stem}")]
    for file, spectrometer in axes_near(path):
        try:
            axis = values_of(file, read_small(file, LONGEST))[1]
        except CubeError as error:
            raise LibraryError(str(error)) from None
        if len(axis) == count:
            is_named = any(word.startswith(spectrometer) for word in words)
            if is_named:
                return axis
            found[axis.tobytes()] = axis
    if len(found) == 1:
        return next(iter(found.values()))
    fault = "several files" if found else "no file"
    raise LibraryError(
        f"{path}: {fault} splib07…_Wavelengths_….txt beside it or in the folder above {'have' if found else 'has'} {count} wavelengths"
    )


def axes_near(path: Path) -> list[tuple[Path, str]]:
    """Return the files of wavelengths in the folder of a file and the one above, with their spectrometers in small letters."""
    folder = path.absolute().parent
    files = [file for place in (folder, folder.parent) for file in sorted(place.iterdir())]
    named = ((file, AXIS.fullmatch(file.name)) for file in files)
    return [(file, found[1].lower()) for file, found in named if found is not None and file.is_file()]
