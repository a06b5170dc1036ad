"""Write files in a private folder beside the outputs, and give them their final names once all are whole.

No file that exists is ever written to. A name is given by a link, which fails where the name is taken, so that a file
that appeared meanwhile stays as it is. A file that may be replaced is moved aside first, if it is still the same file,
and comes back where something fails. Headers are the last to go and the first to come: at no moment is one beside data
of another command.

This also decides for every command which existing files may be replaced: files that unmix wrote, and only where the
user allows it.

A file is ours where a run's record beside it lists it, a table in its size, or where it says so itself: an ENVI header
(which speaks for its data too), a GeoTIFF, an HDF5 file, JSON, a PNG, a page. A table has no place to say so; it
belongs to the header or JSON that is written with it and whose name its own begins with. Commands recognise further
files of their own: tables and arrays by what is in them.
"""

import contextlib
import errno
import fcntl
import functools
import json
import os
import re
import secrets
import signal
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ..errors import OutputError
from ..io.formats.written_by import STORE, says_unmix
from ..io.opening import open_plain, read_plain, write_new
from .digests import discard, empty, flush_tree, is_own_store, is_tree, opened_folder, read_own, remove_tree
from .names import RECORD, SUFFIXES, listed

Identity = tuple[int, int, int, int]
# Files that speak for others of their set, and files that cannot say who wrote them.
WITNESSES, SILENT = (".hdr", ".json", ".nc"), (".csv", ".txt", ".png")
# A size that older versions did not record.
UNKNOWN = -1
# Data of an ENVI header.
DATA = (".img", ".sli", ".lib")


def identity_of_status(status: os.stat_result) -> Identity:
    """Return the identity of a file under any name; inodes alone are used again, at once by some file systems."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def nobody(path: Path) -> bool:
    """Recognise no further file."""
    return False


def titled(*titles: Sequence[str]) -> Callable[[Path], bool]:
    """Return a function that recognises a command's own CSV tables, which name no writer, by their first titles."""
    heads = [",".join(some).encode() for some in titles]

    def is_own(path: Path) -> bool:
        try:
            with open_plain(path) as file:
                return file.read(max(map(len, heads))).startswith(tuple(heads))
        except OSError:
            return False

    return is_own


def replaceable(
    finals: Sequence[Path],
    overwrite: bool,
    elsewhere: str,
    recognise: Callable[[Path], bool] = nobody,
    allowing: str = "`overwrite`",
) -> dict[Path, Identity]:
    """Return the existing files of these names, with their identities; `OutputError` if one may not be replaced."""
    # ``recognise`` knows a command's own files that do not say who wrote them; ``elsewhere`` and ``allowing`` are ways
    # out, for messages.
    old = {}
    for final in finals:
        try:
            status = os.lstat(final)
        except (FileNotFoundError, NotADirectoryError):
            continue
        is_plain = stat.S_ISREG(status.st_mode)
        is_known = is_plain and (status.st_size == 0 or is_by_unmix(final, finals))
        is_known |= stat.S_ISDIR(status.st_mode) and final.suffix == STORE and is_store_of_ours(final)
        may_be_named = (is_plain or stat.S_ISLNK(status.st_mode)) and recognise(final)
        if not (is_known or may_be_named):
            raise OutputError(f"{final}: exists already, and unmix did not write it; use {elsewhere}, or move it away")
        if not overwrite:
            ways = f"{allowing} or {elsewhere}" if is_known else f"{elsewhere} or {allowing}"
            raise OutputError(f"{final}: exists already; use {ways}")
        old[final] = identity_of_status(status)
    return old


def is_store_of_ours(path: Path) -> bool:
    """Return whether a folder is a Zarr store of this user's unmix; records, which others may write, do not count."""
    with contextlib.suppress(OSError):
        folder = opened_folder(path)
        try:
            return is_own_store(folder)
        finally:
            os.close(folder)
    return False


def is_by_unmix(path: Path, together: Sequence[Path] = ()) -> bool:
    """Return whether unmix wrote a file; files that are written ``together`` with it may show it."""
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
    """Return a file's size in the record of a run beside it, `UNKNOWN` if it has none; None if no record lists it."""
    for suffix in SUFFIXES:
        if path.name.endswith(suffix):
            record = path.with_name(path.name.removesuffix(suffix) + RECORD)
            try:
                sizes = sizes_in_record(record, identity_of_status(os.stat(record)))
            except OSError:
                continue
            if path.name in sizes:
                return sizes[path.name]
    return None


@functools.lru_cache(maxsize=1)  # a dozen files of a run have one record, and reading it takes 3 ms
def sizes_in_record(record: Path, identity: Identity) -> dict[str, int]:
    """Return the sizes of a record's outputs, `UNKNOWN` if not recorded; ``identity``, the record's, keys the cache."""
    names = listed(record.parent, record.name.removesuffix(RECORD))
    sizes = json.loads(read_plain(record)).get("sizes") if names else None
    known = sizes if isinstance(sizes, dict) else {}
    return {name: known[name] if isinstance(known.get(name), int) else UNKNOWN for name in names}


WORKPLACE = re.compile(r"unmix-[0-9a-f]{8}\.part")
# The file in a workplace that says that it is one, and which: a folder of the user's that another user gave such a name
# has none.
MARK = "unmix workplace"
# Most attempts to make a workplace: another process removes one only in the microseconds before it is locked.
MOST_TRIES = 100


class Workplace:
    """A new folder in the folder of the outputs, which this process has locked and nobody else may enter.

    Where the system has /proc, ``path`` leads to it by its descriptor: whoever may write to the folder of the outputs
    can give its name to another folder, but then nothing is written there.

    Parameters
    ----------
    folder : Path
        The folder of the outputs. Workplaces in it whose processes were killed are removed.

    Raises
    ------
    OSError
        Where a folder cannot be made there.
    """

    def __init__(self, folder: Path) -> None:
        tidy(folder.absolute())
        self.folder = folder
        for _ in range(MOST_TRIES):
            self.name = folder / f"unmix-{secrets.token_hex(4)}.part"
            try:
                os.mkdir(self.name, 0o700)
                self.descriptor = opened_folder(self.name)
            except FileExistsError:
                continue
            except OSError as error:
                if isinstance(error, FileNotFoundError) and folder.is_dir():
                    continue  # another process removed it before it was locked
                error.filename = os.fspath(folder)
                raise
            if lock(self.descriptor) is not False and self.is_in_place():
                break
            os.close(self.descriptor)
        else:
            raise OSError(errno.EBUSY, "a folder that was made here is another one at once", os.fspath(folder))
        try:
            mark = os.open(MARK, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=self.descriptor)
            with os.fdopen(mark, "wb") as file:
                file.write(mark_of(self.descriptor))
        except BaseException:  # without its mark nobody would remove it later
            self.remove()
            raise
        by_descriptor = Path(f"/proc/self/fd/{self.descriptor}")
        self.path = by_descriptor if by_descriptor.is_dir() else self.name

    def is_in_place(self) -> bool:
        """Return whether its name still leads to it, and it is empty."""
        try:
            same = os.path.samestat(os.fstat(self.descriptor), os.lstat(self.name))
        except FileNotFoundError:
            return False
        return same and not os.listdir(self.descriptor)

    def named(self, text: str) -> str:
        """Return a message or a path with the final names of files in place of their names in it."""
        return text.replace(f"{self.path}{os.sep}", f"{self.folder}{os.sep}")

    def status(self, name: str) -> os.stat_result:
        """Return the status of a file in it."""
        return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)

    def publish(self, finals: Sequence[Path], old: dict[Path, Identity]) -> None:
        """Give the files that are named as ``finals`` these names; on an error restore all, also ``old`` ones."""
        in_order = sorted(finals, key=lambda final: final.suffix.lower() not in WITNESSES)
        # A file alone is replaced in one step, and at no moment missing.
        if len(finals) == 1 and old and not is_tree(self.path / finals[0].name):
            refuse_new(finals[0], old[finals[0]])
            os.rename(finals[0].name, finals[0], src_dir_fd=self.descriptor)
            return
        own = {final: identity_of_status(self.status(final.name)) for final in finals}
        aside: dict[Path, str] = {}
        try:
            for final in reversed([final for final in in_order if final in old]):
                if os.path.lexists(final):
                    refuse_new(final, old[final])
                    aside[final] = f"replaced {len(aside)}"
                    os.rename(final, aside[final], dst_dir_fd=self.descriptor)
                    if identity_of_status(self.status(aside[final])) != old[final]:
                        raise OutputError(appeared(final))
            for final in in_order:
                give_name(final.name, final, self.descriptor)
        except BaseException:
            for final in in_order:
                with contextlib.suppress(FileNotFoundError):
                    if identity_of_status(os.lstat(final)) == own[final]:
                        discard(final)
            for final, name in aside.items():
                with contextlib.suppress(OSError, OutputError):
                    give_name(name, final, self.descriptor)
            raise

    def remove(self) -> None:
        """Remove the folder and all that is left in it."""
        empty(self.descriptor, MARK)
        with contextlib.suppress(OSError):
            os.rmdir(self.name)
        with contextlib.suppress(OSError):  # all have their names by then, or an error is on its way
            os.close(self.descriptor)


def mark_of(folder: int) -> bytes:
    """Return the content of the mark of an open workplace."""
    return f"{os.fstat(folder).st_ino}\n".encode()


def is_abandoned(folder: int) -> bool:
    """Return whether an open folder is a workplace of this user that no process holds."""
    try:
        return read_own(folder, MARK) == mark_of(folder) and lock(folder) is True
    except OSError:
        return False


def give_name(name: str, final: Path, folder: int) -> None:
    """Give a file in the folder with this descriptor its final name; `OutputError` where another file has it."""
    try:
        os.link(name, final, src_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        if os.path.samestat(os.stat(name, dir_fd=folder, follow_symlinks=False), os.lstat(final)):
            return  # a process that was killed gave it the name
        raise OutputError(appeared(final)) from None
    except OSError:  # a file system without links (FAT), or without links between folders (AFS)
        if os.path.lexists(final):
            raise OutputError(appeared(final)) from None
        os.rename(name, final, src_dir_fd=folder)


def refuse_new(final: Path, known: Identity) -> None:
    """Raise `OutputError` where a name no longer leads to the file that was known."""
    with contextlib.suppress(FileNotFoundError):
        if identity_of_status(os.lstat(final)) != known:
            raise OutputError(appeared(final))


def appeared(final: Path) -> str:
    """Return the message about a file that was not there when the command began."""
    return f"{final}: another file appeared under this name during the run; move it away and run again"


def lock(folder: int) -> bool | None:
    """Lock an open folder until it is closed; False if another process has it, None if no locks are supported."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


@functools.cache
def tidy(folder: Path) -> None:
    """Do `remove_abandoned` once in the life of this process: it may write a thousand scenes to one folder."""
    remove_abandoned(folder)


def remove_abandoned(folder: Path) -> None:
    """Remove the workplaces that processes left when they were killed: nobody holds their locks."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for name in [entry.path for entry in entries if WORKPLACE.fullmatch(entry.name)]:
            with contextlib.suppress(OSError):
                remove_tree(name, is_abandoned, last=MARK)


@contextlib.contextmanager
def workplace(folder: Path) -> Iterator[Workplace]:
    """Make a `Workplace`, and remove it at the end; errors are raised with the final names of its files."""
    place = Workplace(folder)
    try:
        yield place
    except OutputError as error:
        raise OutputError(place.named(str(error))) from None
    except OSError as error:
        names = [name for name in (error.filename, error.filename2) if isinstance(name, str | os.PathLike)]
        if names:  # of a renaming there are two, one of them within the folder
            error.filename = place.named(
                os.fspath(next((name for name in names if os.sep in os.fspath(name)), names[0]))
            )
        raise
    finally:
        place.remove()


@contextlib.contextmanager
def named_together(
    finals: Sequence[Path], overwrite: bool, elsewhere: str, recognise: Callable[[Path], bool] = nobody
) -> Iterator[list[Path]]:
    """Yield paths for the files of one folder; at the end flush and name all, or remove all; see `replaceable`."""
    folder = finals[0].parent
    assert len(set(finals)) == len(finals) and all(final.parent == folder for final in finals)
    old = replaceable(finals, overwrite, elsewhere, recognise)
    is_new, done = not folder.exists(), False
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with workplace(folder) as place:
            parts = [place.path / final.name for final in finals]
            yield parts
            for part in parts:
                (flush_tree if is_tree(part) else flush)(part)
            with signals_held():
                place.publish(finals, old)
                done = True
    except OSError as error:
        raise OutputError(f"{error.filename or folder}: writing failed: {error.strerror or error}") from None
    finally:
        if is_new and not done:
            with contextlib.suppress(OSError):
                folder.rmdir()


def write_whole(
    files: dict[Path, bytes], overwrite: bool, elsewhere: str = "`out_dir`", recognise: Callable[[Path], bool] = nobody
) -> list[Path]:
    """Write small files of one folder as `named_together`; the caller checks that none is an input."""
    with named_together(list(files), overwrite, elsewhere, recognise) as parts:
        for part, content in zip(parts, files.values()):
            write_new(part, content)
    return list(files)


@contextlib.contextmanager
def signals_held(*signals: int) -> Iterator[None]:
    """Delay signals, by default the signals to stop the program, so that a few renames are done together."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals or {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def flush(path: Path) -> None:
    """Flush a file or a folder to disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
