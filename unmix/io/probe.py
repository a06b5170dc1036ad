"""A damaged HDF5 file can make its library turn in circles for ever, or crash; so a child process opens it first.

(10 000 damaged inputs: one never came back from reading an attribute. Nothing in this process could have stopped it: the library
holds Python's lock.) A fork costs 5 ms, and is left out where there are threads already, which would not be in the child.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import CubeError

PATIENCE = 20.0


def survives(path: Path, function: Callable[[], Any]) -> None:
    """Run something in a child process and forget what it says.

    Raises
    ------
    CubeError
        Where the child does not end within 20 s, or crashes.
    """
    if threading.active_count() > 1 or not hasattr(os, "fork"):
        return
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            for each in (signal.SIGINT, signal.SIGTERM):
                signal.signal(each, signal.SIG_DFL)
            function()
        os._exit(0)
    status = wait_for(child)
    if status is None:
        raise CubeError(f"{path}: is damaged: the HDF5 library does not come back from opening it")
    if os.WIFSIGNALED(status):
        raise CubeError(f"{path}: is damaged: the HDF5 library crashes on opening it (signal {os.WTERMSIG(status)})")


def wait_for(child: int) -> int | None:
    """The status of a child process, or None where it had to be killed; killed also where this process is to stop."""
    end, pause = time.monotonic() + PATIENCE, 5e-4
    try:
        while time.monotonic() < end:
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                return status
            time.sleep(pause)
            pause = min(0.02, 1.5 * pause)
    except BaseException:
        end = 0.0
        raise
    finally:
        if time.monotonic() >= end:
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
    return None
