"""Runs whose maps go to an object store: made in a folder of this machine, like all maps, then uploaded whole, the record last."""

import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import MethodError, OutputError
from ..io.remote import RemotePath, located
from ..io.remote.store import delete, there, upload
from ..options import Options
from ..outputs.completed import journal_of
from ..outputs.lock import Lock
from ..outputs.names import LOCK, RECORD, inputs_of, listed, refuse_inputs
from ..outputs.report import input_of

if TYPE_CHECKING:
    from .run import SceneRun


def unmix_and_upload(scene_run: "Callable[[Options], SceneRun]", options: Options) -> dict[str, Any]:
    """Unmix a scene whose ``out_dir`` is in an object store; return the report.

    If it is interrupted the same call continues: with the maps, whose journal is in the work folder, or with uploading them.

    Parameters
    ----------
    scene_run : callable
        Returns the run of the scene with other options.
    options : Options

    Raises
    ------
    MethodError
        Where the store is not one that can be written to, or an input would be replaced.
    OutputError
        Where outputs exist there and may not be replaced, or the store refuses them.
    """
    assert options.out_dir is not None
    target = located(options.out_dir)
    if not isinstance(target, RemotePath) or target.parts[0] != "s3:":
        raise MethodError(f"`out_dir` {target}: maps can be uploaded to s3://bucket/prefix, not over HTTP")
    work = work_folder(options.work_dir, target)
    job = scene_run(replace(options, out_dir=work, skip_existing=not options.overwrite))
    stem, finals = job.scene.stem, [target / (job.scene.stem + suffix) for suffix in job.suffixes]
    assert all(isinstance(final, RemotePath) for final in finals)
    refuse_inputs(finals, inputs_of(job.scene))
    if options.dry_run:
        job.folder = target
        return job.run()
    if options.skip_existing and job.asked().is_done(target, stem):
        return {"input": input_of(job.scene), "skipped": True}
    begun = journal_of(work, stem).exists() or (work / (stem + RECORD)).exists()
    existing = there([final for final in finals if isinstance(final, RemotePath)])
    if existing and not begun and not (options.overwrite or options.skip_existing):
        raise OutputError(f"{existing[0]}: exists already; use `overwrite`, `skip_existing` or `out_dir`")
    job.run()
    return send(work, target, stem)


def work_folder(work_dir: str | os.PathLike[str] | None, target: RemotePath) -> Path:
    """Return the folder on this machine for maps that go to ``target``: the same each time, and nobody else's.

    Raises
    ------
    OutputError
        Where it cannot be made, or another user can write to it.
    """
    folder = Path(tempfile.gettempdir()) / f"unmix-{os.getuid()}-uploads" if work_dir is None else Path(work_dir)
    try:
        folder.mkdir(mode=0o700, parents=work_dir is not None, exist_ok=True)
        status = os.lstat(folder) if work_dir is None else os.stat(folder)
        if work_dir is None and (
            not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077
        ):
            raise OutputError(f"{folder}: is not this user's alone; remove it, or name another folder with `work_dir`")
        own = folder / hashlib.sha256(str(target).encode()).hexdigest()[:16]
        own.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"{folder}: cannot write here: {error.strerror}; choose another place with `work_dir`"
        ) from None
    return own


def send(work: Path, target: RemotePath, stem: str) -> dict[str, Any]:
    """Upload a finished run, its record last, and delete it from this machine; return the report.

    Outputs of an older run that the new one does not have are deleted from the store, and its record before anything else: from then on
    it does not count as finished.
    """
    lock = Lock(work / (stem + LOCK))
    try:
        report: dict[str, Any] = json.loads((work / (stem + RECORD)).read_text())
        names = [*report["digests"], stem + RECORD]
        replaced = [name for name in listed(target, stem) if name not in names]
        delete(remote(target, stem + RECORD))
        for name in names:
            upload(work / name, remote(target, name))
        for name in replaced:
            delete(remote(target, name))
        for name in reversed(names):
            (work / name).unlink(missing_ok=True)
    except FileNotFoundError as error:
        raise OutputError(f"{error.filename}: was uploaded or removed by another process; look at {target}") from None
    finally:
        lock.release()
    with suppress(OSError):  # where other scenes are still at work
        work.rmdir()
    return report


def remote(target: RemotePath, name: str) -> RemotePath:
    """Return the place of an output in the store."""
    place = target / name
    assert isinstance(place, RemotePath)
    return place
