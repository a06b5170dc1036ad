"""Unmix into a folder of this machine, then upload the maps whole to an object store, the record last."""

import hashlib
import logging
import os
import stat
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import MethodError, OutputError
from ..io.remote import RemotePath, located
from ..io.remote.put import delete, refuse_unwritable, upload
from ..io.remote.store import endpoint_of, there
from ..options import Options
from ..outputs.lock import Lock
from ..outputs.names import LOCK, RECORD, listed, read_record
from .files.completed import CompletedRun, journal_of
from .record.report import input_of

if TYPE_CHECKING:
    from .scene_run import SceneRun

log = logging.getLogger("unmix")
# Suffix of the empty object that tests write permission.
TRIAL = "_upload.tmp"


def unmix_and_upload(scene_run: "Callable[[Options, Path], SceneRun]", options: Options) -> dict[str, Any]:
    """Unmix a scene whose ``out_dir`` is in an object store; the same call continues an interrupted one."""
    # ``scene_run`` returns the run of the scene with other options, whose outputs are uploaded to a place in a store.
    assert options.out_dir is not None
    target = located(options.out_dir)
    if not isinstance(target, RemotePath) or target.parts[0] != "s3:":
        raise MethodError(f"`out_dir` {target}: maps can be uploaded to s3://bucket/prefix, not over HTTP")
    if options.form.is_folder:
        raise MethodError(f"`out_dir` {target}: a map in `format` {options.form.name} is a folder; use cog or netcdf")
    work = work_folder(options.work_dir, target)
    job = scene_run(replace(options, out_dir=work, work_dir=None, skip_existing=not options.overwrite), target)
    stem = job.cube.stem
    if options.dry_run:
        job.folder = target
        return job.run()
    asked = job.asked()
    try:
        if options.skip_existing and asked.is_done(target, stem):
            clear(work, stem)
            return {"input": input_of(job.cube), "skipped": True}
        refuse_existing(target, work, stem, job.suffixes, options)
        if not is_waiting(asked, work, stem):
            make_room(target, work, stem, options.overwrite)
            run_in_work_folder(job)
        return send(work, target, stem)
    except OSError as error:
        raise OutputError(f"{error.filename or target}: {error.strerror or error}") from None
    finally:
        with suppress(OSError):  # where there is something to go on with, or other scenes are at work
            work.rmdir()


def run_in_work_folder(job: "SceneRun") -> None:
    """Unmix the scene; where the work folder is at fault, the message names the option that moves it."""
    try:
        job.run()
    except OutputError as error:
        raise type(error)(str(error).replace("`out_dir`", "`work_dir`")) from None


def work_folder(work_dir: str | os.PathLike[str] | None, target: RemotePath) -> Path:
    """Return the folder on this machine for maps that go to ``target``, the same each time and this user's alone."""
    folder = Path(tempfile.gettempdir()) / f"unmix-{os.getuid()}-uploads" if work_dir is None else Path(work_dir)
    try:
        folder.mkdir(mode=0o700, parents=work_dir is not None, exist_ok=True)
        status = os.lstat(folder) if work_dir is None else os.stat(folder)
    except OSError as error:
        raise OutputError(
            f"{folder}: cannot write here: {error.strerror}; choose another place with `work_dir`"
        ) from None
    if work_dir is None and (
        not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077
    ):
        raise OutputError(f"{folder}: is not this user's alone; remove it, or name another folder with `work_dir`")
    place = f"{endpoint_of(str(target))} {target}"
    return folder.absolute() / hashlib.sha256(place.encode()).hexdigest()[:16]


def refuse_existing(target: RemotePath, work: Path, stem: str, suffixes: Iterable[str], options: Options) -> None:
    """Raise `OutputError` if outputs in the store may not be replaced."""
    if options.overwrite:
        return
    found = there([target / (stem + suffix) for suffix in suffixes])
    finished = [path for path in found if path.name == stem + RECORD]
    # Outputs without a record are of an upload that was cut off: it may go on from this work folder, and
    # `skip_existing` begins it anew.
    begun = journal_of(work, stem).exists() or (work / (stem + RECORD)).exists()
    if found and not options.skip_existing and (finished or not begun):
        ways = "`skip_existing`, `overwrite` or `out_dir`" if finished else "`out_dir`, `skip_existing` or `overwrite`"
        raise OutputError(f"{found[0]}: exists already; use {ways}")


def is_waiting(asked: CompletedRun, work: Path, stem: str) -> bool:
    """Return whether finished maps of this very request are in the work folder, to be uploaded."""
    try:
        return asked.is_done(work, stem)
    except OutputError:
        return False


def make_room(target: RemotePath, work: Path, stem: str, overwrite: bool) -> None:
    """Make the work folder; raise `OutputError` if other maps wait there or the store cannot be written to."""
    waiting = listed(work, stem)
    if waiting and not overwrite:
        raise OutputError(
            f"{target}: maps of {stem} from other options or another input wait in {work} to be uploaded there; run "
            "that command "
            "again, or discard them with `overwrite`"
        )
    refuse_unwritable(target, stem + TRIAL)
    work.mkdir(mode=0o700, exist_ok=True)
    if waiting and not (target / (stem + RECORD)).exists():  # no record lists the files that the earlier upload left
        for name in waiting:
            delete(target / name)


def send(work: Path, target: RemotePath, stem: str) -> dict[str, Any]:
    """Upload a finished run, its record last, and delete it from this machine; return the report."""
    with Lock(work / (stem + LOCK)):
        try:
            report = read_record(work / (stem + RECORD))
        except FileNotFoundError:
            raise OutputError(f"{target}: another process has uploaded {stem}, or is about to") from None
        names = [*report["digests"], stem + RECORD]
        log.info(f"{target}: uploading {len(names)} files")
        # Outputs that only the older run has go first, then its record: it no longer counts as finished, and no file
        # remains without a record that lists it.
        if (target / (stem + RECORD)).exists():
            for name in [*(name for name in listed(target, stem) if name not in names), stem + RECORD]:
                delete(target / name)
        for name in names:
            upload(work / name, target / name)
        remove(work, names)
    return report


def clear(work: Path, stem: str) -> None:
    """Remove maps from the work folder that are in the store too, if a process was cut off after uploading them."""
    names = listed(work, stem)
    if names:
        with suppress(OutputError), Lock(work / (stem + LOCK)):  # where another process is at work they are not ours
            remove(work, names)


def remove(work: Path, names: Iterable[str]) -> None:
    """Remove files, the record last: it lists the other files."""
    for name in names:
        (work / name).unlink(missing_ok=True)
