"""Start the program: handlers of signals first, then all that takes time to import.

A signal ends the process at once until the work begins and again when it is over, since nothing is lost then. During
the work it is an exception, `Stopped`, so that temporary files and locks are cleaned up. An exception of a handler may
be swallowed: by Python in destructors and callbacks, by libraries in imports. So a timer raises it again until `main`
has it.
"""

import gc
import os
import signal
import sys
import time
from types import FrameType

# Signals that stop the program, and what they are called; the exit code is 128 + the number.
STOPPING = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}
# Functions in which no exception is raised, since it would leave their beginning or cleaning up half done; and the most
# seconds that Ctrl-C waits for them to end. It waits for imports too, whose modules would stay half made, and for
# llvmlite, whose objects free memory of LLVM (a process ended with SIGSEGV once).
UNDISTURBED, MOST_WAITING = ("__enter__", "__exit__", "__del__"), 3.0
OF_LLVM = os.sep + "llvmlite" + os.sep
# Seconds until the exception is raised again, where it could not be raised or was swallowed.
RETRY_SECONDS = 0.05
# Seconds in which several signals are one: timeout(1) sends two.
TOGETHER = 1.0


class Stopped(BaseException):
    """A signal during the work, as an exception."""


class SignalState:
    """The first signal and its time, whether the work goes on, and whether a later signal wants no more waiting."""

    number: int | None = None
    came = 0.0
    is_working = False
    again = False


def program() -> None:
    """Run the command line and end the process; see `unmix_cli.main.program`."""
    prepare()
    handle_signals()
    from . import main

    main.program()


def prepare() -> None:
    """Set what has to be set before NumPy and Numba are imported."""
    # The threads of numpy's BLAS wait busily beside ours: a run by defaults took 72 s of 16 cores' time with them, and
    # 14 without.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # PROJ asks no server for grids either, whatever system a file names.
    os.environ["PROJ_NETWORK"] = "OFF"
    # Python looks for cycles of objects after every 700 new ones: a tenth of a small run, whose imports make 140 000
    # that stay.
    gc.set_threshold(100_000)
    # Numba imports it wherever it is installed, for a report that nobody asks for: 40 ms.
    sys.modules.setdefault("coverage", None)  # type: ignore[arg-type]


def handle_signals() -> None:
    """Let signals end the process at once; SIGHUP that is ignored, as by nohup, stays so."""
    SignalState.number, SignalState.is_working, SignalState.again = None, False, False
    for number in STOPPING:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, on_signal)


def begin_work() -> None:
    """Let signals raise `Stopped` from now on."""
    SignalState.is_working = True


def end_work() -> int | None:
    """Let signals end the process at once from now on; return an earlier signal, even if its exception was lost."""
    SignalState.is_working = False
    if SignalState.number is not None:  # Python's own end would let a late alarm end the process with another code
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
    return SignalState.number


def message(number: int) -> str:
    """Return the message that a signal stopped the program."""
    return f"stopped by {STOPPING[signal.Signals(number)]}; unfinished outputs have not taken their final names"


def on_signal(number: int, frame: FrameType | None) -> None:
    """Stop for the first signal; note a later one, which ends only processes that are waited for."""
    if not SignalState.is_working:
        try:
            os.write(2, f"unmix: {message(number)}\n".encode())
        finally:
            os._exit(128 + number)
    if SignalState.number is None:
        SignalState.number, SignalState.came = number, time.monotonic()
        signal.signal(signal.SIGALRM, on_alarm)
        sys.unraisablehook = say_unless_stopped
        stop(frame)
    # An exception would interrupt the cleaning up.
    elif time.monotonic() - SignalState.came > TOGETHER:
        SignalState.again = True


def on_alarm(_: int, frame: FrameType | None) -> None:
    """Raise the exception again if it was swallowed."""
    if SignalState.is_working and SignalState.number is not None:
        stop(frame)


def say_unless_stopped(what: "sys.UnraisableHookArgs") -> None:
    """Keep quiet about a `Stopped` that Python swallowed: it is raised again."""
    if not isinstance(what.exc_value, Stopped):
        sys.__unraisablehook__(what)


def stop(frame: FrameType | None) -> None:
    """Raise `Stopped`, unless it is under way or would do harm here; try again after `RETRY_SECONDS`."""
    signal.setitimer(signal.ITIMER_REAL, RETRY_SECONDS)
    error = sys.exception()
    while error is not None:
        if isinstance(error, Stopped):
            return
        error = error.__context__
    if not is_held() and (time.monotonic() - SignalState.came > MOST_WAITING or not is_undisturbed(frame)):
        raise Stopped


def is_held() -> bool:
    """Return whether the main thread blocks the stopping signals, for renames that belong together."""
    # Without this, other threads would take the signals instead.
    return not signal.pthread_sigmask(signal.SIG_BLOCK, ()).isdisjoint(STOPPING)


def is_undisturbed(frame: FrameType | None) -> bool:
    """Return whether the stack of a frame has a function in which no exception is raised."""
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        if code.co_name in UNDISTURBED or file.startswith("<frozen importlib") or OF_LLVM in file:
            return True
        frame = frame.f_back
    return False
