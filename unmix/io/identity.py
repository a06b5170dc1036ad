"""Identify an input by the contents of its files, never by their times, and detect whether it changes while it is read.

Sizes, times and digests of inputs: of files, and of folders that are read as one input, such as Zarr's.
"""

import hashlib
import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import CubeError
from .cube import Cube
from .read import read_parts
from .remote import RemotePath
from .window import Window

# The digest of a folder covers the names and sizes of all files, and all their bytes if there are at most SMALL, else
# the last TAIL bytes of SAMPLED files, spread evenly over them by name.
SMALL, SAMPLED, TAIL = 2**20, 256, 4096


class Status(NamedTuple):
    """The size (bytes) of an input and its times of modification and change (ns); of a folder, over all its files."""

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
    """Return the sorted names of regular files in a folder and below; links are followed, but not in circles."""
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


log = logging.getLogger("unmix")
# The digest of a file up to SMALL_FILE bytes covers all of it; a larger file's digest covers BLOCKS blocks of
# BLOCK_BYTES bytes.
SMALL_FILE, BLOCKS, BLOCK_BYTES = 2**20, 64, 4096
# Hexadecimal digits of a digest.
DIGITS = 16
# Attributes of a cube that belong to its identity; its fields, its storage and its placement do, too.
DESCRIBED_BY = (
    "lines",
    "samples",
    "bands",
    "interleave",
    "wavelengths",
    "fwhm",
    "good_bands",
    "gain",
    "offset",
    "nodata",
)


def identity_of(scene: Cube) -> dict[str, Any]:
    """Return the identity of a scene and its masks, by content: copies have the same, whichever file was named."""
    if not isinstance(scene, Window):
        return input_id(scene)
    identity = input_id(scene.cube)
    ids = [(mask.option, {**input_id(mask.cube), "band": mask.band + 1}) for mask in scene.masks]
    identity |= {option: one for option, one in ids if option != "mask_out"}
    # Their order changes nothing.
    flagged = sorted({json.dumps(one, sort_keys=True) for option, one in ids if option == "mask_out"})
    return identity | ({"mask_out": [json.loads(one) for one in flagged]} if flagged else {})


def input_id(cube: Cube) -> dict[str, Any]:
    """Return the identity of a whole cube; see `identity_of`."""
    values = {name: getattr(cube, name) for name in DESCRIBED_BY}
    described = {name: one.tolist() if isinstance(one, np.ndarray) else one for name, one in values.items()}
    placement = None if cube.placement is None else [list(cube.placement.shape), cube.placement.fields]
    metadata = [described, str(cube.dtype), dict(cube.fields), cube.storage(), placement]
    text = json.dumps(metadata, default=str, sort_keys=True)
    return {"header": hashlib.sha256(text.encode()).hexdigest()[:DIGITS], "data": content_of(cube.path)}


def content_of(path: Path) -> dict[str, Any]:
    """Return the size of a file or folder, and a digest of its bytes, of blocks where it is large (see `pieces`)."""
    digest = hashlib.sha256()
    try:
        size = status_of(path).size
        if is_folder(path):
            return {"bytes": size, "digest": folder_digest(path)[:DIGITS]}
        if isinstance(path, RemotePath) and path.objects:
            return {"bytes": size, **path.version.identity()}
        parts = [(np.zeros(length, np.uint8), offset) for offset, length in pieces(size)]
        if isinstance(path, RemotePath):
            from .remote.store import fill

            fill(path, parts)
        else:
            read_parts(path, parts)
    except OSError as error:
        raise CubeError(f"{path}: cannot be read: {error.strerror}") from None
    for part, _ in parts:
        digest.update(part.data)
    version = path.version.identity() if isinstance(path, RemotePath) else {}
    return {"bytes": size, "digest": digest.hexdigest()[:DIGITS], **version}


def pieces(size: int) -> list[tuple[int, int]]:
    """Return the pieces ``(offset, bytes)`` of a file of that size that its digest covers."""
    if size <= SMALL_FILE:
        return [(0, size)]
    return [(k * (size - BLOCK_BYTES) // (BLOCKS - 1), BLOCK_BYTES) for k in range(BLOCKS)]


def is_older(identity: dict[str, Any]) -> bool:
    """Return whether an older unmix made this identity, with the file's time; it matches none that is made now."""
    return "modified" in identity.get("data", {})


def files_of(cube: Cube) -> list[Path]:
    """Return the files that a cube, or a window and its masks, is read from; the data file first."""
    if not isinstance(cube, Window):
        return [cube.path, *cube.beside]
    return [*files_of(cube.cube), *(path for mask in cube.masks for path in files_of(mask.cube))]


class Watch:
    """Detect whether the files of a scene change while it is read; they are opened more than once.

    Parameters
    ----------
    scene : Cube
        The scene, just opened.
    others : sequence of Path
        More files that are read.
    """

    def __init__(self, scene: Cube, others: Sequence[Path] = ()) -> None:
        self.scene = scene
        self.states = {path: state_of(path) for path in [*files_of(scene), *others]}
        self.identity = identity_of(scene)

    def check(self) -> None:
        """Raise `CubeError` where a file has changed since the scene was opened."""
        path = self.changed()
        if path is not None:
            raise CubeError(
                f"{path}: changed while it was read; this run leaves no results: run it again when nothing writes to "
                "the file"
            )

    def changed(self) -> Path | None:
        """Return a file that has changed since the scene was opened, or None."""
        return next((path for path, before in self.states.items() if state_of(path) != before), None)

    def is_hidden(self) -> bool:
        """Return whether files changed but the identity did not: a later run could not tell which version was read."""
        if self.changed() is None:
            return False
        try:
            return identity_of(self.scene) == self.identity
        except CubeError:
            return False


def state_of(path: Path) -> Sequence[Any] | None:
    """Return device, inode, size and times of a file, which change when it is written or replaced; None if missing."""
    try:
        if isinstance(path, RemotePath):
            # Each request for an object is for the version that was opened; the versions of a folder are asked anew.
            return path.versions() if path.objects else ()
        own = os.stat(path)
        return own.st_dev, own.st_ino, *status_of(path)
    except OSError:
        return None


def modified(scene: Cube) -> int:
    """Return when the scene's data was last written to, in ns."""
    return status_of(scene.path).modified


def warn_if_touched(scene: Cube, about: dict[str, Any]) -> None:
    """Warn where the data was written to since the run began; the identity of a large file covers only blocks of it."""
    if about.get("modified") not in (None, modified(scene)):
        log.warning(
            f"{scene.path}: was written to, or copied, since the unfinished run began; the parts of it that were "
            "compared are the "
            "same. If other values changed, start again with `overwrite`"
        )
