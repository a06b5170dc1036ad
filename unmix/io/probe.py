"""Open an HDF5 file in a child process first, because a damaged one can make the library loop for ever, or crash.

Of 10 000 damaged inputs one never returned from reading an attribute, and nothing in this process could have stopped
it: the library holds Python's lock. A fork costs 5 ms.
"""

import contextlib
import math
import os
import resource
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import CubeError

# Seconds of a processor, not of a clock: on a loaded machine, or from a slow disk, a sound file takes as long as it
# takes.
MOST_CHILD_SECONDS = 20
# Seconds after which a child ends itself, and the file is opened without this proof: who waits so long proves nothing.
LONGEST_WAIT = 600.0


def survives(path: Path, function: Callable[[], Any], seconds: float = MOST_CHILD_SECONDS, what: str = "HDF5") -> None:
    """Run a function in a child process first; `CubeError` where it crashes, or uses a processor for too long."""
    if not hasattr(os, "fork") or (sys.platform == "darwin" and threading.active_count() > 1):
        return
    # The child lacks all other threads, and needs none: h5py holds its own lock during a fork, so that no
    # thread is inside the library then. Python 3.12 warns all the same.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU, signal.SIGALRM):
                signal.signal(number, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), resource.getrlimit(resource.RLIMIT_CPU)[1]))
            signal.setitimer(signal.ITIMER_REAL, LONGEST_WAIT)
            function()
        os._exit(0)
    try:
        _, status = os.waitpid(child, 0)
    except BaseException:  # Ctrl-C
        with contextlib.suppress(OSError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        raise
    ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if ended_by == signal.SIGXCPU:
        raise CubeError(
            f"{path}: is damaged: the {what} library does not come back from reading it ({seconds:.0f} s of a processor)"
        )
    if ended_by == signal.SIGKILL:
        raise CubeError(f"{path}: the process that reads it was killed; is there too little memory?")
    if ended_by not in (0, signal.SIGALRM):
        raise CubeError(f"{path}: is damaged: the {what} library crashes on reading it (signal {ended_by})")
