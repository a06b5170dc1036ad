"""Write files under `.part` names and rename them once they are complete and flushed; compute their digests."""

import contextlib
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from ..errors import OutputError
from ..io.opening import write_new

log = logging.getLogger("unmix")


@contextlib.contextmanager
def named_together(finals: list[Path], overwrite: bool, where: Path, help: str) -> Iterator[list[Path]]:
    """Yield `.part` paths to write to; at the end they are flushed and renamed together, or all deleted after an error.

    Raises
    ------
    OutputError
        Where a file exists and may not be replaced (``help`` names the parameter to use), or cannot be written. Where the system
        names no file, the message names ``where``.
    """
    assert len(set(finals)) == len(finals)
    parts = [final.with_name(final.name + ".part") for final in finals]
    for final in finals:
        if final.exists() and not overwrite:
            raise OutputError(f"{final}: exists already; use {help}")
    try:
        yield parts
        for part in parts:
            flush(part)
        with signals_held():
            for part, final in zip(parts, finals):
                os.replace(part, final)
    except OSError as error:
        raise OutputError(f"{error.filename or where}: writing failed: {error.strerror or error}") from None
    finally:
        for part in parts:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)


def write_whole(files: dict[Path, bytes], overwrite: bool) -> list[Path]:
    """Write small files of one folder, all or none, and return the paths. The caller checks that none is an input.

    Raises
    ------
    OutputError
        Where a file exists and may not be replaced, or cannot be written.
    """
    folder = next(iter(files)).parent
    with named_together(list(files), overwrite, folder, "`overwrite` or `out_dir`") as parts:
        folder.mkdir(parents=True, exist_ok=True)
        for part, content in zip(parts, files.values()):
            write_new(part, content)
    return list(files)


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Delay signals that stop the program, so that a few renames are done together."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def flush(path: Path) -> None:
    """Flush a file or a folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
