"""Decide for every command which files that exist may be replaced: those that unmix wrote, and only where the user allows it.

A file is ours where a run's record beside it lists it, a table in its size, or where it says so itself: an ENVI header (which speaks
for its data too), a GeoTIFF, an HDF5 file, JSON, a PNG, a page. A table has no place to say so; it belongs to the header or JSON that
is written with it and whose name its own begins with. Commands recognise further files of their own: tables and arrays by what is in
them.
"""

import functools
import json
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import OutputError
from ..io.formats.written_by import STORE, says_unmix
from ..io.opening import read_plain
from .names import RECORD, SUFFIXES, listed

Identity = tuple[int, int, int, int]
# Files that speak for others of their set, and those that cannot say who wrote them.
WITNESSES, SILENT = (".hdr", ".json", ".nc"), (".csv", ".txt", ".png")
# A size that older versions did not record.
UNKNOWN = -1
# Data of an ENVI header.
DATA = (".img", ".sli", ".lib")


def identity_of(status: os.stat_result) -> Identity:
    """Return the identity of a file under any name; inodes alone are used again, at once by some file systems."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def nobody(path: Path) -> bool:
    """Recognise no further file."""
    return False


def replaceable(
    finals: Sequence[Path], overwrite: bool, elsewhere: str, recognise: Callable[[Path], bool] = nobody,
    allowing: str = "`overwrite`",
) -> dict[Path, Identity]:  # fmt: skip
    """Return the files of these names that exist and may be replaced, and what they are known by.

    Parameters
    ----------
    finals : sequence of Path
        All files that a command writes together.
    overwrite : bool
        Whether the user allows to replace those that unmix wrote.
    elsewhere : str
        The way to write elsewhere, for messages: "`out_dir`", "another name".
    recognise : callable
        Whether a file that does not say who wrote it may be replaced nevertheless: the command knows its own, or the user named it.
    allowing : str
        The options that allow to replace files.

    Raises
    ------
    OutputError
        Where a file exists and may not be replaced.
    """
    old = {}
    for final in finals:
        try:
            status = os.lstat(final)
        except (FileNotFoundError, NotADirectoryError):
            continue
        is_plain = stat.S_ISREG(status.st_mode)
        is_known = is_plain and (status.st_size == 0 or is_by_unmix(final, finals))
        is_known |= stat.S_ISDIR(status.st_mode) and final.suffix == STORE and is_by_unmix(final, finals)
        may_be_named = (is_plain or stat.S_ISLNK(status.st_mode)) and recognise(final)
        if not (is_known or may_be_named):
            raise OutputError(f"{final}: exists already, and unmix did not write it; use {elsewhere}, or move it away")
        if not overwrite:
            ways = f"{allowing} or {elsewhere}" if is_known else f"{elsewhere} or {allowing}"
            raise OutputError(f"{final}: exists already; use {ways}")
        old[final] = identity_of(status)
    return old


def is_by_unmix(path: Path, together: Sequence[Path] = ()) -> bool:
    """Return whether unmix wrote a file; ``together`` are the files that are written with it, which may speak for it."""
    suffix, recorded = path.suffix.lower(), recorded_size(path)
    if recorded is not None and suffix == ".csv":
        return recorded in (UNKNOWN, path.stat().st_size)  # else it was edited, and is the user's work
    if recorded is not None or says_unmix(path):
        return True
    if suffix in DATA:
        return says_unmix(path.with_suffix(".hdr"))
    return suffix in SILENT and any(
        one.suffix.lower() in WITNESSES and path.name.startswith(one.stem) and says_unmix(one) for one in together
    )


def recorded_size(path: Path) -> int | None:
    """Return the size that the record of a run beside a file gives it, `UNKNOWN` if none; None where no record lists it."""
    for suffix in SUFFIXES:
        if path.name.endswith(suffix):
            record = path.with_name(path.name.removesuffix(suffix) + RECORD)
            try:
                sizes = sizes_in(record, identity_of(os.stat(record)))
            except OSError:
                continue
            if path.name in sizes:
                return sizes[path.name]
    return None


@functools.lru_cache(maxsize=1)  # a dozen files of a run have one record, and reading it takes 3 ms
def sizes_in(record: Path, identity: Identity) -> dict[str, int]:
    """Return the sizes of the outputs that a record lists, `UNKNOWN` for those that it gives none; ``identity`` is that of its file."""
    names = listed(record.parent, record.name.removesuffix(RECORD))
    sizes = json.loads(read_plain(record)).get("sizes") if names else None
    known = sizes if isinstance(sizes, dict) else {}
    return {name: known[name] if isinstance(known.get(name), int) else UNKNOWN for name in names}
