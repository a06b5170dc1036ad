"""Remove the compiled code of versions that are used no more: 20 MB of each."""

import contextlib
import functools
import re
import time
from pathlib import Path

from .folders import given_folder

# Days without a process that looks for code in a folder; seconds in one.
UNUSED, DAY = 90, 86400.0
# Form of what `key_of` returns; suffixes of code and, in older versions, indices.
KEY, CODE = re.compile("[0-9a-f]{16}"), (".nbc", ".nbi")


@functools.cache
def remove_unused(cache: Path) -> None:
    """Remove unused code from a cache, once a process; nothing else that may lie there, and nothing that cannot be removed.

    A cache that ``UNMIX_CACHE_DIR`` names is left alone: an administrator may have compiled there for others, whose processes leave
    no trace.
    """
    given = given_folder()
    if given is not None and cache == given:
        return
    with contextlib.suppress(OSError):
        for folder in list(cache.iterdir()):
            is_code = KEY.fullmatch(folder.name) and folder.is_dir() and not folder.is_symlink()
            if is_code and time.time() - folder.stat().st_mtime > UNUSED * DAY:
                remove(folder)


def remove(folder: Path) -> None:
    """Remove the code in a folder, and the folder where it is empty then."""
    with contextlib.suppress(OSError):
        for inner in [path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()]:
            for file in [path for path in inner.iterdir() if path.suffix in CODE]:
                file.unlink(missing_ok=True)
            inner.rmdir()
        folder.rmdir()
