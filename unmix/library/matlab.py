"""Libraries in MATLAB files, of version 5 and 7.3."""

import contextlib
from pathlib import Path

import numpy as np

from ..errors import CubeError, LibraryError, brief
from ..io.formats.header import unit_of_heading
from ..io.formats.matlab import WAVELENGTHS, Version5, Version73, listed, of_variable_bands, open_variables
from ..io.formats.matlab5 import character
from .spectra import DELETED, Endmembers, make
from .table import axis_in_library

# Names of tables of spectra (bands, spectra) in files seen; a table of another name is used if it is the only one.
TABLES = ("datalib", "a", "e", "m", "endmembers", "library", "spectra")
# The 1995 library of the USGS begins with columns of wavelength (µm), resolution (µm) and channel.
USGS_COLUMNS = 3


def load_matlab(path: Path, raw: bytes) -> Endmembers:
    """Load a MATLAB variable (bands, spectra), with names, classes and wavelengths if present; ``raw`` is unused."""
    try:
        file = open_variables(path)
        try:
            return spectra_of(path, file)
        finally:
            file.close()
    except CubeError as error:
        raise LibraryError(str(error)) from None
    except LibraryError:
        raise
    except Exception as error:  # whatever a damaged file throws
        raise LibraryError(f"{path}: is damaged, or no MATLAB file: {brief(error)}") from None


def spectra_of(path: Path, file: Version5 | Version73) -> Endmembers:
    """Return the spectra of an open file."""
    tables = {name: shape for name, shape in file.shapes.items() if len(shape) == 2 and min(shape) > 1}
    candidates = [name for want in TABLES for name in tables if name.lower() == want]
    if not candidates and (len(tables) != 1 or any(len(shape) == 3 for shape in file.shapes.values())):
        problem = "more than one variable could be spectra" if tables else "no variable is a table of spectra"
        raise LibraryError(f"{path}: {problem}: {listed(file.shapes)}")
    # Benchmarks keep abundances (materials, pixels) as A, beside spectra (bands, materials) as M.
    tall = [name for name in candidates if tables[name][0] >= tables[name][1]]
    name = (tall or candidates or list(tables))[0]
    with np.errstate(invalid="ignore"):  # of NaN that signals
        matrix = np.asarray(file.value(name), float)
    names = texts(file, "names", "cood")
    if name.lower() == "datalib" and names is not None and len(names) == matrix.shape[1]:
        waves, fwhm, matrix = matrix[:, 0] * 1000, matrix[:, 1] * 1000, matrix[:, USGS_COLUMNS:]
        matrix = np.where(matrix < DELETED, np.nan, matrix)
        return make(names[USGS_COLUMNS:], matrix, waves, path, fwhm=fwhm)
    if name.lower() == "datalib":
        raise LibraryError(
            f"{path}: 'datalib' needs a variable 'names' with a name for each of its {matrix.shape[1]} columns"
        )
    bands, count = matrix.shape
    axis = of_variable_bands(file, WAVELENGTHS, bands)
    centres = (
        None
        if axis is None
        else axis_in_library(np.asarray(file.value(axis), float).ravel(), None, unit_of_heading(axis), path)[0]
    )
    classes = classes_of(file, count)
    if names is None or len(names) != count:
        names = texts(file, "materials", "material_names") if classes is None else classes
    if names is None or len(names) != count:
        names = [f"endmember {j + 1}" for j in range(count)]
    return make(names, matrix, centres, path, classes=classes)


def classes_of(file: Version5 | Version73, count: int) -> list[str] | None:
    """Return each spectrum's class if the table is made of ``lib1``, ``lib2``, …, one for each material; else None."""
    materials = texts(file, "material_names") or []
    parts = [file.shapes.get(f"lib{k + 1}", (0, 0)) for k in range(len(materials))]
    if not materials or sum(shape[-1] for shape in parts) != count:
        return None
    return [word for word, shape in zip(materials, parts) for _ in range(shape[-1])]


def texts(file: Version5 | Version73, *names: str) -> list[str] | None:
    """Return the strings of the first readable variable of ``names``; None if no variable is readable."""
    for name in names:
        if len(file.shapes.get(name, ())) == 2:  # character codes as numbers
            return ["".join(map(character, row)).strip() for row in np.asarray(file.value(name), float).tolist()]
        if name in file.texts_of:
            with contextlib.suppress(CubeError):
                words = file.texts(name)
                if words and all(words):
                    return words
    return None
