"""Many scenes over many workers: the bytes of `run`, whoever dies; and what is wrong with a cluster is said."""

import contextlib
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import PATIENCE, refused, write_cube
from test_cli import unmix as command

import unmix
from unmix.commands.synth import SyntheticScene, synthesise
from unmix.errors import CubeError, DeviceError, OutputError

distributed = pytest.importorskip("distributed")
from unmix_cli.main import cli  # noqa: E402

from unmix.features.cluster import worker as unit  # noqa: E402
from unmix.features.cluster.connection import Access, connected  # noqa: E402
from unmix.features.cluster.scheduling import Workers  # noqa: E402
from unmix.outputs.lock import Lock, SceneHeld  # noqa: E402
from unmix.runs.files.journal import read_resume_state  # noqa: E402

MAPS = ("abundance.img", "rmse.img", "certificate.img", "abundance.hdr", "endmembers.sli")
# What a record says of the maps, and not of the way to them.
SAME = (
    "asked",
    "pixels",
    "endmembers",
    "worst_kappa",
    "worst_delta",
    "steps",
    "digests",
    "certified",
    "passes",
    "abundances",
    "residual_by_band",
)
HOW = {"count": 4, "extract": "vca", "device": "cpu", "certificate": True, "memory": "4M"}
LONG = 4000
pytestmark = pytest.mark.skipif(
    os.environ.get("NUMBA_ENABLE_CUDASIM") == "1", reason="workers are processes of their own"
)


class Watcher:
    """Calls ``act`` once a scene is past a line."""

    def __init__(self, act, line):
        self.act, self.line, self.steps, self.acted = act, line, [], threading.Event()

    def scene(self, path):
        def report(step):
            self.steps.append(step)
            if step.done >= self.line and not self.acted.is_set():
                self.acted.set()
                self.act()

        return report


def bytes_of(folder, stem):
    return {name: (folder / f"{stem}_{name}").read_bytes() for name in MAPS}


def slow_down(client, seconds=0.02):
    """Let workers of a client take so long for each block, that something can happen meanwhile."""

    def wait_in_blocks(seconds):
        from unmix.features.cluster import worker
        from unmix.runs import unmix_scene

        def slowly(cube, options, executor, report, command):
            return unmix_scene(cube, options, executor, lambda step: (report(step), time.sleep(seconds)), command)

        worker.unmix_scene = slowly if seconds else unmix_scene

    client.run(wait_in_blocks, seconds)


@contextlib.contextmanager
def processes(folder, workers):
    """A scheduler and workers as a site runs them: processes of their own; yields the scheduler's file and process."""
    logs: list = []
    file, python = folder / "scheduler.json", [sys.executable, "-m", "distributed.cli.dask_scheduler"]
    began = [
        subprocess.Popen(
            [*python, "--port", "0", "--dashboard-address", ":0", "--scheduler-file", str(file)],
            stderr=subprocess.DEVNULL,
        )
    ]
    try:
        while not file.exists():
            assert began[0].poll() is None
            time.sleep(0.05)
        words = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(file), "--nthreads", "1"]
        logs = [folder / f"worker-{i}.log" for i in range(workers)]
        for log in logs:
            with log.open("w") as stderr:
                began.append(subprocess.Popen([*words, "--no-dashboard", "--no-nanny"], stderr=stderr, cwd=folder))
        yield str(file), began[0]
    except BaseException:
        for log in logs:
            print(log.read_text()[-4000:])  # pytest shows it: why a worker ended is in no other place
        raise
    finally:
        for process in began:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def four():
    """Four workers on this machine, one thread each, restarted when they die."""
    with distributed.LocalCluster(
        n_workers=4, threads_per_worker=1, dashboard_address=":0", memory_limit=0, silence_logs=50
    ) as cluster:
        yield cluster.scheduler_address


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    """A long scene and small ones, and what a run makes of them."""
    folder = tmp_path_factory.mktemp("archive")
    synthesise(folder / "long.hdr", SyntheticScene(LONG, 40, 50, 4, seed=1))
    for i in range(5):
        synthesise(folder / f"s{i}.hdr", SyntheticScene(30 + i, 20, 50, 4, seed=i + 2))
    paths = [folder / f"{stem}.hdr" for stem in ("s0", "long", "s1", "s2", "s3", "s4")]
    reports = {path.stem: unmix.run(path, out_dir=folder / "whole", **HOW) for path in paths}
    return folder, paths, {stem: bytes_of(folder / "whole", stem) for stem in reports}, reports


@pytest.mark.slow
def test_the_bytes_and_the_counts_are_those_of_run(tmp_path, scenes, four):
    _, paths, whole, reports = scenes
    watch = Watcher(lambda: None, 0)
    found = dict(unmix.batch(paths, scheduler=four, watch=watch, out_dir=tmp_path, **HOW))
    assert set(found) == set(paths)
    for path, report in found.items():
        assert bytes_of(tmp_path, path.stem) == whole[path.stem], path
        assert {key: report[key] for key in SAME} == {key: reports[path.stem][key] for key in SAME}
        assert json.loads((tmp_path / f"{path.stem}_run.json").read_text())["digests"] == report["digests"]
    assert not list(tmp_path.glob("*.part")) and not list(tmp_path.glob("*.lock"))
    long = [step.done for step in watch.steps if step.total == LONG]
    assert len(long) > 20 and long == sorted(long) and long[-1] == LONG


@pytest.mark.slow
def test_one_scene_s_failure_is_its_own(tmp_path, scenes, four):
    folder, paths, _, _ = scenes
    synthesise(tmp_path / "short.hdr", SyntheticScene(30, 20, 50, 4, seed=9))
    os.truncate(tmp_path / "short.img", 999)
    library = folder / "s0_truth_endmembers.csv"
    (tmp_path / "none.hdr").write_text("ENVI\nsamples = many\n")
    how = {"endmembers": library, "device": "cpu", "memory": "4M", "out_dir": tmp_path / "o"}
    found = dict(
        unmix.batch([paths[0], tmp_path / "short.hdr", tmp_path / "none.hdr", paths[2]], scheduler=four, **how)
    )
    assert isinstance(found[tmp_path / "short.hdr"], CubeError) and isinstance(found[tmp_path / "none.hdr"], CubeError)
    assert found[paths[0]]["certified"] and found[paths[2]]["certified"]
    again = dict(unmix.batch([paths[0]], scheduler=four, **how))
    assert isinstance(again[paths[0]], OutputError) and "exists" in str(again[paths[0]])


@pytest.mark.slow
def test_a_scene_goes_on_where_its_worker_was_killed(tmp_path, scenes, four):
    """SIGKILL in the middle, of two of four: the same bytes."""
    _, paths, whole, _ = scenes
    with distributed.Client(four) as client:
        before = client.run(os.getpid)

        def kill():
            for _, pid in sorted(before.items())[:2]:  # the first has the scene
                os.kill(pid, signal.SIGKILL)

        slow_down(client)

        watch = Watcher(kill, LONG // 3)
        ((_, report),) = unmix.batch([paths[1]], scheduler=four, watch=watch, out_dir=tmp_path, **HOW)
        assert watch.acted.is_set() and report["certified"]
        client.wait_for_workers(4, timeout=PATIENCE)
        assert not set(client.run(os.getpid).values()) & {pid for _, pid in sorted(before.items())[:2]}
        slow_down(client, 0)
    assert bytes_of(tmp_path, "long") == whole["long"]


@pytest.mark.slow
def test_a_device_that_fails_is_left_out(tmp_path, monkeypatch, scenes, four):
    """A worker whose device fails gets no more; the others do its work."""
    _, paths, whole, _ = scenes

    def break_it(broken):
        from unmix.errors import DeviceError
        from unmix.features.cluster import worker
        from unmix.runs import Executor

        def none(options):
            raise DeviceError("cuda:0: failed: an illegal address")

        worker.Executor = none if broken else Executor

    with distributed.Client(four) as client:
        client.run(break_it, True, workers=[min(client.nthreads())])
        try:
            ((_, report),) = unmix.batch([paths[1]], scheduler=four, out_dir=tmp_path / "o", **HOW)
            client.run(break_it, True)
            monkeypatch.setattr(importlib.import_module("unmix.features.cluster.scheduling"), "GRACE", 0.0)
            with pytest.raises(DeviceError, match="no worker is left"):
                list(unmix.batch([paths[1]], scheduler=four, out_dir=tmp_path / "p", **HOW))
        finally:
            client.run(break_it, False)
    assert report["certified"] and bytes_of(tmp_path / "o", "long") == whole["long"]


@pytest.mark.night
@pytest.mark.slow
def test_a_scheduler_that_is_lost(tmp_path, scenes):
    """An error at once, nothing under a final name; what was done is kept, and `run` goes on from it."""
    _, paths, whole, _ = scenes
    with processes(tmp_path, 2) as (file, scheduler):
        with distributed.Client(scheduler_file=file) as client:
            client.wait_for_workers(2, timeout=PATIENCE)
            slow_down(client)
        watch = Watcher(scheduler.kill, LONG // 3)
        began = time.monotonic()
        with pytest.raises(DeviceError, match="scheduler does not answer"):
            how = HOW | {"patience": 10 * PATIENCE, "watch": watch, "out_dir": tmp_path / "o"}
            list(unmix.batch([paths[1], paths[0]], scheduler_file=file, **how))
        assert time.monotonic() - began < PATIENCE
        while list((tmp_path / "o").glob("*.lock")):  # the worker is at its block
            assert time.monotonic() - began < PATIENCE
            time.sleep(0.05)
    assert not list((tmp_path / "o").glob("long_*.img")) and not list((tmp_path / "o").glob("*.lock"))
    past = read_resume_state(tmp_path / "o" / "long_run.journal.part")
    assert past.lines >= LONG // 3
    report = unmix.run(paths[1], out_dir=tmp_path / "o", **HOW)
    assert report["resumed_from"] == past.lines and bytes_of(tmp_path / "o", "long") == whole["long"]


@pytest.mark.night
@pytest.mark.slow
def test_a_scheduler_that_is_frozen_is_lost(tmp_path, monkeypatch, scenes):
    """It is there, and says nothing: an error after a while, not a wait for ever."""
    monkeypatch.setattr(importlib.import_module("unmix.features.cluster.scheduling"), "FROZEN", 2.0)
    _, paths, _, _ = scenes
    with processes(tmp_path, 1) as (file, scheduler):
        with distributed.Client(scheduler_file=file) as client:
            client.wait_for_workers(1, timeout=PATIENCE)
            slow_down(client, 0.1)
        watch = Watcher(lambda: scheduler.send_signal(signal.SIGSTOP), LONG // 3)
        with pytest.raises(DeviceError, match="scheduler does not answer"):
            list(unmix.batch([paths[1]], scheduler_file=file, watch=watch, out_dir=tmp_path / "o", **HOW))


@pytest.mark.slow
def test_workers_that_stand_elsewhere(tmp_path, monkeypatch):
    """A mask, a scene and a folder by relative paths: workers see those of the caller, and use the threads they were given."""
    monkeypatch.chdir(tmp_path)
    synthesise(tmp_path / "s.hdr", SyntheticScene(30, 20, 50, 4, seed=2))
    for where, value in ((tmp_path, 1), (tmp_path / "elsewhere", 0)):
        where.mkdir(exist_ok=True)
        mask = np.ones((30, 20), np.uint8)
        mask[: 10 if value else 25] = 0
        mask.tofile(where / "m.img")
        (where / "m.hdr").write_text("ENVI\nsamples = 20\nlines = 30\nbands = 1\ndata type = 1\ninterleave = bsq\n")
    how = HOW | {"mask": "m.hdr", "threads": 3}

    def note_threads():
        from unmix.features.cluster import worker
        from unmix.runs import Executor

        def noting(options):
            worker.THREADS = options.threads
            return Executor(options)

        worker.Executor = noting

    alone = unmix.run("s.hdr", out_dir="one", **how)
    with processes(tmp_path / "elsewhere", 1) as (file, _), distributed.Client(scheduler_file=file) as client:
        client.wait_for_workers(1, timeout=PATIENCE)
        client.run(note_threads)
        ((_, report),) = unmix.batch(["s.hdr"], scheduler_file=file, out_dir="two", **how)
        assert list(client.run(lambda: unit.THREADS).values()) == [3]
    assert report["pixels"] == alone["pixels"] and alone["pixels"]["masked"] == 200
    assert bytes_of(tmp_path / "two", "s") == bytes_of(tmp_path / "one", "s")


@pytest.mark.night
@pytest.mark.slow
def test_stopped_and_given_again(tmp_path, scenes):
    """The command line with workers of its own, stopped by a signal to the whole group; again, and it ends."""
    _, paths, whole, _ = scenes
    program = [sys.executable, "-m", "unmix_cli.main", "batch", str(paths[1]), str(paths[0])]
    words = [*program, "-n", "4", "--extract", "vca", "--device", "cpu"]
    words += ["--certificate", "--memory", "4M", "--workers", "2", "-o", str(tmp_path)]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, start_new_session=True)
    image = tmp_path / "long_rmse.img.part"
    while process.poll() is None and not (image.exists() and image.stat().st_size > 4 * 40 * 300):
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    error = process.communicate(timeout=PATIENCE)[1].decode()
    assert process.returncode == 130, error
    assert "Traceback" not in error and not list(tmp_path.glob("long_*.img")) and not list(tmp_path.glob("*.lock"))
    past = read_resume_state(tmp_path / "long_run.journal.part")
    assert 0 < past.lines < LONG
    done = subprocess.run([*words, "--json", "--skip-existing"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = {line["input"]["name"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert lines["long.img"]["resumed_from"] >= past.lines
    assert bytes_of(tmp_path, "long") == whole["long"] and bytes_of(tmp_path, "s0") == whole["s0"]


@pytest.mark.night
@pytest.mark.slow
def test_a_worker_that_was_started_again_hears_no_ctrl_c():
    """It would die of it before the batch has said what to do with its scene."""
    with connected(Access(workers=1)) as client:
        (pid,) = client.run(os.getpid).values()
        os.kill(pid, signal.SIGKILL)
        while not (after := list(client.run(os.getpid, on_error="ignore").values())) or after == [pid]:
            time.sleep(0.1)
        assert list(client.run(lambda: signal.getsignal(signal.SIGINT) == signal.SIG_IGN).values()) == [True]


class Scheduler:
    address = "tcp://nowhere:1"


class Client:
    """As much of a client as `Workers` asks."""

    status, scheduler = "running", Scheduler()

    def __init__(self, answers):
        self.answers = answers

    def nthreads(self, callback_timeout):
        return self.answers

    def run(self, *_, **__):
        return self.answers


def asked(version=unit.BUILD):
    return unit.Asked(unmix.Options(device="cpu"), None, "topic", 0, os.getcwd(), unit.this_process(), version)


@pytest.mark.parametrize(
    "answers, words",
    [
        ({"a": "cpu", "b": "cuda"}, "some workers have a GPU and some have none"),
        ({"a": DeviceError("cuda: no CUDA GPU here")}, "a: cuda: no CUDA GPU"),
        ({"a": ModuleNotFoundError("No module named 'unmix'")}, "a: cannot run unmix: ModuleNotFoundError"),
        ({}, "no worker for 0 s"),
    ],
)
def test_what_is_wrong_with_workers_is_said(answers, words):
    refused(DeviceError, words, lambda: Workers(Client(answers), 0.0).kind(asked()))


def test_another_version_is_refused():
    refused(DeviceError, r"has unmix .*, but this is 0\.0\.1; install one", lambda: unit.kind_here(asked("0.0.1")))


def test_who_is_broken_gets_no_scene(monkeypatch):
    """Until it is another; where all are, for a while, that is an error."""
    monkeypatch.setattr(importlib.import_module("unmix.features.cluster.scheduling"), "GRACE", 0.0)
    client = Client({"a": 1, "b": 1})
    workers = Workers(client, 1000.0)
    assert workers.present() == {"a", "b"}
    workers.broken.add("a")
    assert workers.present() == {"b"}
    client.answers = {}  # both are gone for a moment: nobody gives up
    assert workers.present() == set()
    client.answers = {"a": 1}
    assert workers.present() == {"a"}
    workers.broken.add("a")
    refused(DeviceError, "no worker is left", workers.present)


def test_the_lock_of_a_dead_worker_is_waited_for(tmp_path, scene):
    """Another host's lock looks held until it is old; a scene that was given on waits for it, and nobody else does."""
    options, lock = unmix.Options.of(count=2, device="cpu", out_dir=tmp_path), Lock(tmp_path / f"{scene.stem}_run.lock")
    refused(SceneHeld, "another run", unit.unmix_when_free, scene, options, lambda step: None, None, 0.0)
    threading.Timer(0.5, lock.release).start()
    assert unit.unmix_when_free(scene, options, lambda step: None, None, time.monotonic() + PATIENCE)["certified"]


@pytest.mark.parametrize(
    "words, code, text",
    [
        (["--scheduler", "tcp://127.0.0.1:1", "--scheduler-file", "f"], 2, "name two clusters"),
        (["--scheduler", "tcp://127.0.0.1:1", "--workers", "2"], 2, "on this machine"),
        (["--scheduler", "nonsense://x"], 5, "no scheduler answers"),
        (["--scheduler-file", "none.json", "--patience", "0"], 5, "none.json: no scheduler wrote"),
        (["--unit", "1G"], 2, "--unit is no more: a worker takes a scene at a time; cut a huge one by --lines"),
        (["--shard", "0/3"], 2, "I from 1 to N"),
        (["--shard", "4/3"], 2, "I from 1 to N"),
    ],
)
def test_command_lines_that_are_wrong(tmp_path, scene, words, code, text):
    _, told = command("batch", scene, *words, code=code, cwd=tmp_path)
    assert text in told and len(told.splitlines()) == 1


def test_patience_bounds_connecting(scene):
    """Something listens, and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        began = time.monotonic()
        with pytest.raises(DeviceError, match="no scheduler answers"):
            list(unmix.batch([scene], scheduler=f"tcp://127.0.0.1:{server.getsockname()[1]}", patience=0.3, count=2))
        assert time.monotonic() - began < PATIENCE


def test_two_of_one_stem_are_refused_in_every_shard(tmp_path):
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        synthesise(tmp_path / name / "s.hdr", SyntheticScene(10, 10, 20, 3))
    words = [str(tmp_path / name / "s.hdr") for name in ("x", "y")]
    result = CliRunner().invoke(
        cli, ["run", *words, "--shard", "1/2", "-o", str(tmp_path / "o")], standalone_mode=False
    )
    assert "have one stem" in str(result.exception)


def test_shards_are_all_and_disjoint(tmp_path):
    """Each array job takes its own; together they are the list."""
    paths = [write_cube(tmp_path / f"s{i}.hdr", np.ones((2, 3, 4))) for i in range(6)]
    (tmp_path / "list").write_text("".join(f"{path}\n" for path in paths))
    seen = []
    for i in range(1, 5):
        words = ["run", "--list", str(tmp_path / "list"), "--shard", f"{i}/4", "--dry-run", "--json", "--device", "cpu"]
        result = CliRunner().invoke(cli, words, standalone_mode=False)
        assert result.exception is None
        seen.append([json.loads(line)["input"]["name"] for line in result.stdout.splitlines()])
    assert sorted(name for each in seen for name in each) == sorted(f"{path.stem}.img" for path in paths)
    assert [len(each) for each in seen] == [2, 2, 1, 1]
