"""A signal at any moment ends the program with its code, cleanly, and is never lost."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import PATIENCE, at_night
from test_cli import process
from test_cli import unmix as command

from unmix.outputs import lock

DATA = Path(__file__).parents[2] / "data"
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# In the quick tier one of them; their handler is the same.
ONE_AND_ALL = (
    signal.SIGTERM,
    *(pytest.param(number, marks=pytest.mark.slow) for number in (signal.SIGINT, signal.SIGHUP)),
)
# The program, which says when its handlers stand: before, a signal is Python's own business.
PROGRAM = """
import os, sys
from unmix_cli import start
handle = start.handle_signals
def announce():
    handle()
    start.handle_signals = handle
    os.write(2, b"ready\\n")
start.handle_signals = announce
start.program()
"""


def started(*words: object, program: str = PROGRAM, **how: object) -> subprocess.Popen:
    """Start the program and return when its handlers stand."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **how,
    )
    assert process.stderr is not None and process.stderr.readline() == "ready\n"
    return process


def check_moment(folder: Path, number: signal.Signals, delay: float) -> int:
    """Stop a run after some seconds, and check what is left; return its exit code."""
    process = started(
        "run", DATA / "demo.hdr", "-e", DATA / "demo_truth_endmembers.csv", "-o", folder, "--device", "cpu"
    )
    time.sleep(delay)
    process.send_signal(number)
    _, told = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in told and "this should not happen" not in told and "Exception ignored" not in told, told
    left = {path.name for path in folder.iterdir()} if folder.exists() else set()
    if process.returncode == 0:  # all was done by then
        assert "demo_run.json" in left and not any(".part" in name for name in left)
    else:
        assert process.returncode == 128 + number, (process.returncode, told)
        assert "stopped by" in told
    assert "demo_run.lock" not in left
    assert "demo_run.json" in left or all(".part" in name for name in left), left
    return process.returncode


@pytest.mark.parametrize("number", ONE_AND_ALL, ids=lambda number: number.name)
def test_a_signal_while_it_starts(tmp_path: Path, number: signal.Signals) -> None:
    """Imports take most of the first 0.3 s."""
    for k, delay in enumerate((0.0, 0.06, 0.2)):
        check_moment(tmp_path / str(k), number, delay)


@pytest.mark.slow
@pytest.mark.parametrize("number", at_night(STOPPING, signal.SIGTERM), ids=lambda number: number.name)
def test_a_signal_at_any_moment(tmp_path: Path, number: signal.Signals) -> None:
    moments = random.Random(int(number))
    codes = [check_moment(tmp_path / str(k), number, moments.uniform(0, 1.5)) for k in range(14)]
    assert 128 + number in codes


# Work that swallows the first exception in one of the ways of Python and its libraries, and then would go on for long.
SWALLOWING = {
    "bare except": "try:\n    time.sleep(30)\nexcept BaseException:\n    pass\n",
    "destructor": "class Last:\n    def __del__(self):\n        time.sleep(30)\nLast()\n",
    "callback": "import ctypes\nctypes.CFUNCTYPE(None)(lambda: time.sleep(30))()\n",
    "handler of errors": (
        "try:\n    raise ValueError\nexcept ValueError:\n    try:\n        time.sleep(30)\n    except BaseException:\n "
        "       pass\n"
    ),
}


@pytest.mark.parametrize("number", ONE_AND_ALL, ids=lambda number: number.name)
@pytest.mark.parametrize(
    "way",
    [pytest.param(way, marks=[pytest.mark.slow] * (way == "destructor")) for way in SWALLOWING],  # it takes 3 s
)
def test_an_exception_that_is_swallowed_is_raised_again(number: signal.Signals, way: str) -> None:
    work = SWALLOWING[way] + "time.sleep(30)\n"
    program = (
        f"import time\nfrom unmix_cli import main\nmain.cli.main = lambda **_: exec({work!r}, globals())\n" + PROGRAM
    )
    process = started(program=program)
    time.sleep(0.3)
    process.send_signal(number)
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + number and "stopped by" in told, told


def test_cleaning_up_is_not_interrupted() -> None:
    """Neither by further signals nor by the timer; an entry and an import come to their ends first."""
    work = """
class Entered:
    def __enter__(self):
        time.sleep(0.6); print("entered", flush=True)
    def __exit__(self, *_):
        time.sleep(0.6); print("left", flush=True)
try:
    with Entered():
        time.sleep(30)
finally:
    time.sleep(0.6)
    print("cleaned", flush=True)
"""
    program = (
        f"import time\nfrom unmix_cli import main\nmain.cli.main = lambda **_: exec({work!r}, globals())\n" + PROGRAM
    )
    process = started(program=program)
    for _ in range(12):
        time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
    said, told = process.communicate(timeout=PATIENCE)
    assert said.split() == ["entered", "left", "cleaned"], told
    assert process.returncode == 143


@pytest.mark.parametrize("name", ["Event", "Thread"])
def test_a_lock_that_a_signal_stops_in_the_making_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """One of 120 random moments came between the lock's file and its heartbeat, whose parts its release asked for."""

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(lock.threading, name, stop)
        lock.Lock(tmp_path / "s_run.lock")
    lock.release_all()
    assert not lock.HELD and not list(tmp_path.iterdir())


@pytest.mark.slow
def test_no_hang_up_under_nohup(tmp_path: Path) -> None:
    """SIGHUP that is ignored stays so."""
    process = started(
        "run",
        DATA / "demo.hdr",
        "-e",
        DATA / "demo_truth_endmembers.csv",
        "-o",
        tmp_path / "o",
        "--device",
        "cpu",
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    while process.poll() is None:
        process.send_signal(signal.SIGHUP)
        time.sleep(0.05)
    assert process.returncode == 0, process.communicate()[1]
    assert (tmp_path / "o/demo_run.json").exists()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("NUMBA_NUM_THREADS", "0", "has to be a number from 1 on"),
        ("NUMBA_NUM_THREADS", "many", "has to be a number from 1 on"),
        ("NUMBA_OPT", "x", "which Numba cannot read"),
        ("NUMBA_CPU_FEATURES", "bar", "names 'bar'"),
    ],
)
def test_an_environment_that_numba_cannot_read(
    name: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    words = "info", DATA / "demo.hdr"
    told = (
        command(*words, code=2)[1] if name == "NUMBA_NUM_THREADS" else process(*words, code=2)[1]
    )  # Numba is loaded here
    assert told.count("\n") == 1 and name in told and message in told, told


def test_a_stack_in_which_nothing_is_compiled() -> None:
    """Python itself begins with 80 KiB, and with 96 code was compiled into a SIGSEGV."""
    words = ["sh", "-c", 'ulimit -s 96; exec "$@"', "sh", sys.executable, "-m", "unmix", "info", str(DATA / "demo.hdr")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 2 and "ulimit -s 8192" in done.stderr and done.stderr.count("\n") == 1, done.stderr
