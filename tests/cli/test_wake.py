"""A process that starts and ends quickly: the GPU's driver on a thread, and no clean-up that the system does anyway."""

import os
import subprocess
import sys
import threading

import pytest

from unmix.wake import make_context, wake


@pytest.mark.parametrize("device", ["auto", "cuda", "cuda:1", "cuda:all", "cuda:7,8", "nonsense"])
def test_no_gpu_is_no_error(device, monkeypatch):
    monkeypatch.delenv("NUMBA_ENABLE_CUDASIM", raising=False)
    before = threading.active_count()
    wake(device)
    for thread in threading.enumerate():
        if thread.name.endswith("(make_context)"):
            thread.join()
    assert threading.active_count() == before


def test_the_cpu_and_the_simulator_need_no_driver(monkeypatch):
    started = []
    monkeypatch.setattr(threading.Thread, "start", lambda self: started.append(self))
    wake("cpu")
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    wake("cuda")
    assert not started


@pytest.mark.parametrize(
    ("uses_it", "called"), [(True, ["cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain"]), (False, ["cuInit"])]
)
def test_a_process_that_may_have_nothing_to_do_takes_no_gpu(uses_it, called, monkeypatch):
    calls = []

    class Driver:
        def __getattr__(self, name):
            return lambda *_: calls.append(name) or 0

    monkeypatch.setattr("ctypes.CDLL", lambda name: Driver())
    make_context(0, uses_it)
    assert calls == called


def test_a_broken_driver_is_left_to_others(tmp_path, monkeypatch):
    """A library that is none, or lacks a function, is found again, and reported, by the device."""
    (tmp_path / "libcuda.so.1").write_bytes(b"none")
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    make_context(0)
    monkeypatch.undo()
    environment = os.environ | {"LD_LIBRARY_PATH": str(tmp_path)}
    words = [sys.executable, "-c", "from unmix.wake import make_context; make_context(0); print('fine')"]
    assert subprocess.run(words, env=environment, capture_output=True, text=True).stdout == "fine\n"


@pytest.mark.parametrize(
    "ends", ["", "import threading, time; threading.Thread(target=lambda: (time.sleep(0.3), print('late'))).start(); "]
)
def test_a_process_ends_at_once_unless_it_has_threads(ends):
    """What was printed arrives, the code is kept, and a thread of somebody else's is waited for."""
    script = (
        f"import sys; from unmix_cli.main import program; {ends}sys.argv = ['unmix', 'info', '/nowhere.hdr']; program()"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.returncode == 3 and "/nowhere.hdr" in ran.stderr
    assert ran.stdout == ("late\n" if ends else "")


def test_threads_that_wait_for_work_do_not_keep_a_process():
    """Python's own end, which such a run once took, would call what is registered."""
    script = (
        "import atexit, sys; from unmix_cli.main import program; from unmix.io.read import readers; "
        "assert readers().submit(int).result() == 0; atexit.register(print, 'slow'); sys.argv = ['unmix', "
        "'--version']; program()"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.returncode == 0 and "unmix" in ran.stdout and "slow" not in ran.stdout
