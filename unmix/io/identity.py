"""By what an input is known again: what its files hold, and never when they were written; and whether it changes while it is read."""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CubeError
from . import Cube
from .window import Window

# A file up to this size is known by all of its bytes, a larger one by so many blocks of it.
SMALL, BLOCKS, BLOCK = 2**20, 64, 4096
# Hexadecimal digits of a digest.
DIGITS = 16
# What a cube says of itself; the rest of its meaning is in its fields and the way it is stored.
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
    """Return by what a scene is known again, as it was opened: the same whichever of its files was named, and wherever they lie.

    Parameters
    ----------
    scene : Cube
        The cube, or a `Window` of it: then the whole cube is meant, and the mask, where there is one.

    Returns
    -------
    dict
        ``header``, a digest of what the cube says of itself; ``data``, the size of its file and a digest of all bytes of it, or,
        above 1 MiB, of 64 blocks of 4 KiB spread evenly over it, the first and the last among them; and of a mask the same, and its
        band. No time is in it: a copy is the same scene.

    Raises
    ------
    CubeError
        Where a file cannot be read.
    """
    if not isinstance(scene, Window):
        return input_id(scene)
    found = input_id(scene.cube)
    if scene.mask is not None:
        mask, band = scene.mask
        found["mask"] = {**input_id(mask), "band": band + 1}
    return found


def input_id(cube: Cube) -> dict[str, Any]:
    """Return `identity_of` a whole cube."""
    described = {name: plain(getattr(cube, name)) for name in DESCRIBED_BY}
    placed = None if cube.placement is None else [list(cube.placement.shape), cube.placement.fields]
    meaning = [described, str(cube.dtype), dict(cube.fields), cube.storage(), placed]
    text = json.dumps(meaning, default=str, sort_keys=True)
    return {"header": hashlib.sha256(text.encode()).hexdigest()[:DIGITS], "data": content_of(cube.path)}


def plain(value: Any) -> Any:
    """Return an array as a list, anything else as it is."""
    return value.tolist() if isinstance(value, np.ndarray) else value


def content_of(path: Path) -> dict[str, Any]:
    """Return the size of a file, and a digest of its bytes, or of blocks of them where they are many."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            for place, length in pieces(size):
                digest.update(os.pread(file.fileno(), length, place))
    except OSError as error:
        raise CubeError(f"{path}: cannot be read: {error.strerror}") from None
    return {"bytes": size, "digest": digest.hexdigest()[:DIGITS]}


def pieces(size: int) -> list[tuple[int, int]]:
    """Return which stretches ``(place, bytes)`` of a file of that size stand for it."""
    if size <= SMALL:
        return [(0, size)]
    return [(k * (size - BLOCK) // (BLOCKS - 1), BLOCK) for k in range(BLOCKS)]


def is_older(identity: dict[str, Any]) -> bool:
    """Whether that is of a version of unmix which knew an input by the time of its file; it cannot be compared with another."""
    return "modified" in identity.get("data", {})


def files_of(cube: Cube) -> list[Path]:
    """Return the files that a cube, or a window of one with its mask, is read from; its data first."""
    if not isinstance(cube, Window):
        return [cube.path, *cube.beside]
    return [*files_of(cube.cube), *([] if cube.mask is None else files_of(cube.mask[0]))]


class Watch:
    """Look again at the files of a scene, which are opened more than once while it is read: do they change meanwhile?

    Parameters
    ----------
    scene : Cube
        Just opened.
    """

    def __init__(self, scene: Cube) -> None:
        self.scene = scene
        self.states = {path: state_of(path) for path in files_of(scene)}
        self.identity = identity_of(scene)

    def check(self) -> None:
        """Raise `CubeError` where a file is not what it was when the scene was opened."""
        path = self.changed()
        if path is not None:
            raise CubeError(
                f"{path}: changed while it was read; nothing of this run was given a name: run it again when the file is at rest"
            )

    def changed(self) -> Path | None:
        """Return a file that is not what it was; None where all are."""
        return next((path for path, before in self.states.items() if state_of(path) != before), None)

    def is_hidden(self) -> bool:
        """Whether files changed and their identity does not tell: no later run could know what was read of which."""
        if self.changed() is None:
            return False
        try:
            return identity_of(self.scene) == self.identity
        except CubeError:
            return False


def state_of(path: Path) -> Sequence[int] | None:
    """Return what the system changes when anybody writes to a file, or puts another in its place; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
