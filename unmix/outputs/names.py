"""Every file that a command reads, and every file that it may write: no file is ever both."""

import json
import logging
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..errors import MethodError
from ..io import Cube
from ..io.export import FORMATS, OutputFormat
from ..io.formats.envi import EXTENSIONS, TIFF_EXTENSIONS
from ..io.identity import files_of
from ..io.window import Window
from ..library import files_of as library_files

MAPS = ("abundance", "rmse", "residual", "certificate", "index")
ORTHO = "_ortho"  # behind the name of a map that was placed
LIBRARY = ("_endmembers.csv", "_endmembers.sli", "_endmembers.hdr")
RECORD, LOCK, JOURNAL, PART = "_run.json", "_run.lock", "_run.journal.part", ".part"


def suffixes_of(maps: Iterable[str], form: OutputFormat, ortho: bool = False) -> tuple[str, ...]:
    """Return what a run puts behind its stem: of these maps in this format, of its endmembers and of its record, which is last."""
    kinds = ("", ORTHO) if ortho else ("",)
    return (*(f"_{name}{kind}{ending}" for name in maps for kind in kinds for ending in form.endings), *LIBRARY, RECORD)


# Of all runs there are: their names are among these.
SUFFIXES = tuple(dict.fromkeys(suffix for form in FORMATS.values() for suffix in suffixes_of(MAPS, form, True)))


def is_ours(name: Any, stem: str) -> bool:
    """Whether that can be the name of an output of a scene: nothing but its stem and a suffix that runs have, and so no path."""
    return isinstance(name, str) and name.startswith(stem) and name[len(stem) :] in SUFFIXES


def listed(folder: Path, stem: str) -> list[str]:
    """Return the outputs that a finished run says it wrote, its record itself among them; none where no record can be read."""
    try:
        names = list(json.loads((folder / (stem + RECORD)).read_text())["digests"])
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [name for name in (*names, stem + RECORD) if is_ours(name, stem)]


def parts_of(suffixes: Sequence[str], maps: Iterable[str] = ()) -> list[str]:
    """Return what stands behind the stem, and before ``.part``, in the names of files that a run of these outputs works with.

    That is everything of the same maps, and of further ``maps``: a map of any format begins as a work file of ENVI's.
    """
    known = {map_of(suffix) for suffix in suffixes} | set(maps)
    return [suffix for suffix in SUFFIXES if map_of(suffix) in known or suffix in (*LIBRARY, RECORD)]


def map_of(suffix: str) -> str:
    """Return which map a suffix is of: ``rmse`` of ``_rmse_ortho.tif``."""
    return re.split("[_.]", suffix)[1]


def of_a_run(folder: Path, stem: str, suffixes: Sequence[str]) -> list[Path]:
    """Return every path that a run may write, or take away: its outputs, those of the run that it replaces, and what it works with."""
    names = [stem + suffix for suffix in suffixes] + listed(folder, stem)
    parts = [stem + suffix + PART for suffix in parts_of(suffixes)]
    return [
        folder / name for name in dict.fromkeys((*names, *parts, stem + JOURNAL, stem + LOCK, stem + LOCK + ".turn"))
    ]


def with_parts(outputs: Iterable[Path]) -> list[Path]:
    """Return outputs, and the names that they have until they are whole."""
    return [one for path in outputs for one in (path, path.with_name(path.name + PART))]


Inputs = list[tuple[str, Path]]


def inputs_of(scene: Cube | None = None, **others: str | os.PathLike[str] | None) -> Inputs:
    """Return what a command reads, each file with what it belongs to.

    Parameters
    ----------
    scene : Cube, optional
        Opened; with its mask, where it has one.
    **others
        By what they are: ``library``, ``target`` and so on; the library's are all its files, and of ``FILE:NAME`` the file.
    """
    found: Inputs = []
    if isinstance(scene, Window):
        found += [("cube", path) for path in files_of(scene.cube)]
        found += [] if scene.mask is None else [("mask", path) for path in files_of(scene.mask[0])]
    elif scene is not None:
        found += [("cube", path) for path in files_of(scene)]
    for what, spec in others.items():
        if spec is not None:
            path = file_of(spec)
            found += [(what, one) for one in (library_files(path) if what == "library" else [path])]
    return found


def file_of(spec: str | os.PathLike[str]) -> Path:
    """Return the file of ``FILE`` or ``FILE:NAME``."""
    return Path(spec) if os.path.exists(spec) else Path(os.fspath(spec).rpartition(":")[0] or spec)


def refuse_inputs(outputs: Iterable[Path], inputs: Inputs) -> None:
    """Raise `MethodError` where a file that may be written is one that is read, whatever it is called there: links count.

    The log of this process is among what is written.
    """
    read = {identity: (what, path) for what, path in inputs if (identity := inode(path)) is not None}
    logs = [
        Path(one.baseFilename) for one in logging.getLogger("unmix").handlers if isinstance(one, logging.FileHandler)
    ]
    for path in (*outputs, *logs):
        what, own = read.get(inode(path) or (-1, -1), ("", path))
        if what:
            raise MethodError(
                f"{path}: an output would replace {own}, a file of the {what} that is read; use `out_dir`, or another name"
            )


def refuse_headers_of_others(outputs: Iterable[Path]) -> None:
    """Raise `MethodError` where a header to be written is that of other data than what is written beside it."""
    outputs = list(outputs)
    own = {inode(path) for path in outputs} - {None}
    for header in outputs:
        if header.suffix.lower() != ".hdr" or not header.exists():
            continue
        for ending in (*EXTENSIONS, *TIFF_EXTENSIONS):
            data = header.with_name(header.name[:-4] + ending)
            if data.is_file() and data not in outputs and inode(data) not in own:
                raise MethodError(f"{header}: is the header of {data.name}, which would be lost; use another name")


def inode(path: Path) -> tuple[int, int] | None:
    """Return what makes two names one file; None where there is none."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino
