"""List the files that a command reads and those that it may write, and refuse a file that is both."""

import logging
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..errors import MethodError, OutputError
from ..io import Cube, RemotePath, Window, is_remote, located, parted
from ..io.export import FORMATS, OutputFormat
from ..io.folder import is_folder
from ..io.formats.envi import EXTENSIONS, TIFF_EXTENSIONS
from ..io.identity import files_of
from ..library import files_of as library_files
from ..settings.maps import MAPS, ORTHO
from .run_record import read_record

LIBRARY = ("_endmembers.csv", "_endmembers.sli", "_endmembers.hdr")
BROWSE, PAGE, ITEM = "_browse.png", "_report.html", "_stac.json"
RECORD, LOCK, JOURNAL, SEARCH, PART = "_run.json", "_run.lock", "_run.journal.part", "_run.search.part", ".part"


def suffixes_of(maps: Iterable[str], form: OutputFormat, ortho: bool = False, browse: bool = False) -> tuple[str, ...]:
    """Return the suffixes of a run's outputs: of these maps in this format, of endmembers and picture and, last, of the record."""
    kinds, picture = ("", ORTHO) if ortho else ("",), (BROWSE,) if browse else ()
    files = (f"_{name}{kind}{ending}" for name in maps for kind in kinds for ending in form.endings)
    return (*files, *LIBRARY, *picture, RECORD)


# The suffixes of the outputs of all possible runs.
SUFFIXES = tuple(dict.fromkeys(suffix for form in FORMATS.values() for suffix in suffixes_of(MAPS, form, True, True)))


def is_ours(name: Any, stem: str) -> bool:
    """Return whether ``name`` may be an output of a scene: its stem and one of `SUFFIXES`, so never a path to another folder."""
    return isinstance(name, str) and name.startswith(stem) and name[len(stem) :] in SUFFIXES


def listed(folder: Path, stem: str) -> list[str]:
    """Return the outputs that the record of a finished run lists, and the record; none where it cannot be read."""
    try:
        names = list(read_record(folder / (stem + RECORD))["digests"])
    except (OSError, OutputError, KeyError):
        return []
    return [name for name in (*names, stem + RECORD) if is_ours(name, stem)]


def parts_of(suffixes: Sequence[str], maps: Iterable[str] = ()) -> list[str]:
    """Return the suffixes, before ``.part``, of the work files of a run with these outputs.

    These are all suffixes of the same maps, and of further ``maps``: maps of every format are first written as ENVI files.
    """
    wanted = {map_of(suffix) for suffix in suffixes} | set(maps)
    return [suffix for suffix in SUFFIXES if map_of(suffix) in wanted or suffix in (*LIBRARY, BROWSE, RECORD)]


def map_of(suffix: str) -> str:
    """Return the map that a suffix belongs to: ``rmse`` for ``_rmse_ortho.tif``."""
    return re.split("[_.]", suffix)[1]


def of_a_run(folder: Path, stem: str, suffixes: Sequence[str]) -> list[Path]:
    """Return all paths that a run may write or delete: its outputs, those of the run that it replaces, and its work files."""
    names = [stem + suffix for suffix in suffixes] + listed(folder, stem)
    parts = [stem + suffix + PART for suffix in parts_of(suffixes)]
    return [
        folder / name
        for name in dict.fromkeys((*names, *parts, *(stem + one for one in (JOURNAL, SEARCH, LOCK, LOCK + ".turn"))))
    ]


Inputs = Sequence[tuple[str, Path]]


def inputs_of(scene: Cube | None = None, **others: str | os.PathLike[str] | None) -> list[tuple[str, Path]]:
    """Return the files that a command reads, each with its role.

    Parameters
    ----------
    scene : Cube, optional
        The opened cube; its mask is included.
    **others
        Files by role: ``library``, ``target`` and so on. All files of a library are included; ``FILE:NAME`` stands for FILE.
    """
    inputs: list[tuple[str, Path]] = []
    if isinstance(scene, Window):
        inputs += [("cube", path) for path in files_of(scene.cube)]
        inputs += [(mask.option, path) for mask in scene.masks for path in files_of(mask.cube)]
    elif scene is not None:
        inputs += [("cube", path) for path in files_of(scene)]
    for role, spec in others.items():
        if spec is not None:
            path = file_of(spec)
            inputs += [(role, file) for file in (library_files(path) if role == "library" else [path])]
    return inputs


def file_of(spec: str | os.PathLike[str]) -> Path:
    """Return the file of ``FILE`` or ``FILE:NAME``."""
    return parted(spec)[0]


def inputs_of_run(stem: Path) -> list[tuple[str, Path]]:
    """Return the files of a finished run, as inputs of what is made of them."""
    return [("run", stem.with_name(name)) for name in listed(stem.parent, stem.name)]


def refuse_inputs(outputs: Iterable[Path], inputs: Inputs) -> None:
    """Raise `MethodError` if a file that may be written is also read, under any name: links are followed.

    The log files of this process count as written.
    """
    read = {identity: (role, path) for role, path in inputs if (identity := inode(path)) is not None}
    folders = [(role, path.absolute()) for role, path in inputs if is_folder(path) and role != "library"]
    logs = [
        Path(handler.baseFilename)
        for handler in logging.getLogger("unmix").handlers
        if isinstance(handler, logging.FileHandler)
    ]
    for path in (*outputs, *logs):
        role, source = read.get(inode(path) or (-1, -1), ("", path))
        inside = next((one for one in folders if one[1] in path.absolute().parents), None)
        if inside is not None:
            raise MethodError(f"{path}: lies in {inside[1]}, the {inside[0]} that is read; use `out_dir`")
        if role:
            raise MethodError(
                f"{path}: an output would replace {source}, a file of the {role} that is read; use `out_dir`, or another name"
            )


def refuse_headers_of_others(outputs: Iterable[Path]) -> None:
    """Raise `MethodError` if a header to be written already belongs to other data than what is written with it."""
    outputs = list(outputs)
    written = {inode(path) for path in outputs} - {None}
    for header in outputs:
        if header.suffix.lower() != ".hdr" or not header.exists():
            continue
        for ending in (*EXTENSIONS, *TIFF_EXTENSIONS):
            data = header.with_name(header.name[:-4] + ending)
            if data.is_file() and data not in outputs and inode(data) not in written:
                raise MethodError(f"{header}: is the header of {data.name} and would be overwritten; use another name")


def folder_for(out_dir: str | os.PathLike[str] | None, beside: Path | None = None) -> Path:
    """Return the folder for outputs on this machine: ``out_dir``, or the folder of ``beside``.

    Raises
    ------
    MethodError
        Where it would be on a server.
    """
    if out_dir is not None and is_remote(out_dir):
        raise MethodError(
            f"`out_dir` {located(out_dir)}: only `unmix run` and its like upload their maps; name a folder"
        )
    if out_dir is None and isinstance(beside, RemotePath):
        raise MethodError(f"{beside}: outputs cannot be written beside it; name a folder with `out_dir`")
    return Path(out_dir) if out_dir is not None else Path() if beside is None else beside.parent


def inode(path: Path) -> tuple[int | str, ...] | None:
    """Return device and inode of a file, the same for all its names, or its URL; None where it does not exist."""
    if isinstance(path, RemotePath):
        return (str(path),)
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino
