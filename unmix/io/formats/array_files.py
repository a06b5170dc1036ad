"""Arrays in files that are no cubes: .npy, HDF5, MATLAB."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ...errors import InputError, brief
from ..opening import why_no_file
from ..read import refuse_links, refuse_links_out
from .matlab import Version73, open_variables


def open_array(spec: str | Path, kinds: str = "fiu") -> Any:
    """Open an array of 1 to 3 axes, ``FILE.npy``, ``FILE.h5:/dataset`` or ``FILE.mat:NAME``; slicing reads it."""
    path, name = Path(spec), ""
    if not path.exists() and ":" in str(spec):
        file, _, name = str(spec).rpartition(":")
        path = Path(file)
    if not path.is_file():
        raise InputError(f"{path}: {why_no_file(path)}")
    try:
        if path.suffix.lower() == ".npy":
            array: Any = np.load(path, mmap_mode="r", allow_pickle=False)
        elif path.suffix.lower() == ".mat":
            array = read_matlab(path, name)
        elif h5py.is_hdf5(path):
            array = open_array_file(path, name)
        else:
            raise InputError(f"{path}: arrays are read from .npy, .h5 and .mat")
    except InputError:
        raise
    except Exception as error:  # of the library that reads it
        fault = "holds no plain array of numbers" if "pickle" in str(error) else f"cannot be read: {brief(error)}"
        raise InputError(f"{path}: {fault}") from None
    if array.dtype.kind not in kinds or not 1 <= array.ndim <= 3 or 0 in array.shape:
        raise InputError(
            f"{path}: is {array.dtype} of shape {array.shape}; numbers of one to three axes are wanted, none empty"
        )
    return array


def open_array_file(path: Path, name: str) -> Any:
    """Return a dataset of an HDF5 file, by its name or the only one; raise `InputError` where it is not clear which."""
    file = h5py.File(path, "r")
    refuse_links_out(path, file)
    names: list[str] = []
    file.visititems(lambda key, item: names.append(key) if isinstance(item, h5py.Dataset) and item.ndim else None)
    wanted = name.strip("/") or (names[0] if len(names) == 1 else "")
    if wanted not in names:
        raise InputError(f"{path}: name one of its datasets, FILE:/NAME: {', '.join(names[:8]) or 'none'}")
    refuse_links(path, file[wanted])
    return file[wanted]


def read_matlab(path: Path, name: str) -> np.ndarray:
    """Return a variable of a MATLAB file, by its name or the only one; vectors lose the axis of length 1."""
    file = open_variables(path)
    try:
        wanted = name or (next(iter(file.shapes)) if len(file.shapes) == 1 else "")
        if wanted not in file.shapes:
            raise InputError(
                f"{path}: name one of its variables, FILE:NAME: {', '.join(list(file.shapes)[:8]) or 'none'}"
            )
        value = file.value(wanted)
        value = value if not isinstance(file, Version73) else np.ascontiguousarray(value)
        return value.ravel() if value.ndim == 2 and 1 in value.shape else value
    finally:
        file.close()
