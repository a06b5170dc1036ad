"""Sizes, times and digests of inputs: of files, and of folders that are read as one input, such as Zarr's."""

import hashlib
import json
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .read import read_parts
from .remote import RemotePath

# The digest of a folder covers the names and sizes of all files, and all their bytes if there are at most SMALL, else the last TAIL
# bytes of SAMPLED files, spread evenly over them by name.
SMALL, SAMPLED, TAIL = 2**20, 256, 4096


class Status(NamedTuple):
    """Size in bytes of an input, and when it was last written to and last changed, in ns; of a folder, of all its files together."""

    size: int
    modified: int
    changed: int


def is_folder(path: Path) -> bool:
    """Return whether an input is a folder on this machine."""
    return not isinstance(path, RemotePath) and path.is_dir()


def status_of(path: Path) -> Status:
    """Return the status of an input; `OSError` where it is missing, or its server does not answer."""
    own = path.stat()
    if isinstance(path, RemotePath):
        return Status(own.st_size, int(own.st_mtime * 1e9), 0)
    if not path.is_dir():
        return Status(own.st_size, own.st_mtime_ns, own.st_ctime_ns)
    all_of_them = [os.stat(path / name) for name in files_below(path)]
    times = [(one.st_mtime_ns, one.st_ctime_ns) for one in (own, *all_of_them)]
    modified, changed = map(max, zip(*times))
    return Status(sum(one.st_size for one in all_of_them), modified, changed)


def files_below(folder: Path) -> list[str]:
    """Return the names of all files in a folder and the folders in it, sorted; those that links lead to, too, and no pipes."""
    found, places, seen = [], [""], set()
    while places:
        below = places.pop()
        with os.scandir(folder / below) as entries:
            for entry in entries:
                name = f"{below}/{entry.name}".lstrip("/")
                if entry.is_dir():  # links are followed, but none in a circle
                    status = entry.stat()
                    places += [] if (status.st_dev, status.st_ino) in seen else [name]
                    seen.add((status.st_dev, status.st_ino))
                elif entry.is_file():
                    found.append(name)
    return sorted(found)


def folder_digest(folder: Path) -> str:
    """Return a digest of the files in a folder; see `SAMPLED`. `OSError` or `CubeError` where one cannot be read."""
    sizes = {name: os.stat(folder / name).st_size for name in files_below(folder)}
    digest = hashlib.sha256(json.dumps(sizes).encode())
    is_small = sum(sizes.values()) <= SMALL
    for name in sizes if is_small else spread(list(sizes)):
        part = np.zeros(sizes[name] if is_small else min(TAIL, sizes[name]), np.uint8)
        read_parts(folder / name, [(part, sizes[name] - len(part))])
        digest.update(part.data)
    return digest.hexdigest()


def spread(names: list[str], most: int = SAMPLED) -> list[str]:
    """Return ``most`` of some names or, if there are fewer, all: spread evenly, the first and the last among them."""
    return names if len(names) <= most else [names[k * (len(names) - 1) // (most - 1)] for k in range(most)]
