"""`run --jobs`: scenes in processes of their own are the same bytes, a process that dies costs one scene, and no process is left."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from conftest import PATIENCE, patience, wait_until, write_csv, write_cube
from test_cli import unmix as command
from unmix_cli import jobs, start
from unmix_cli.progress import Board

# Scenes of the folder below.
COUNT = 5


@pytest.fixture
def scenes(tmp_path):
    """A folder of scenes, one of them broken, and the options of their run."""
    random = np.random.default_rng(4)
    E = random.uniform(0.1, 0.9, (6, 3))
    write_csv(tmp_path / "e.csv", E)
    for k in range(COUNT - 1):
        write_cube(tmp_path / f"s{k}.hdr", random.dirichlet(np.ones(3), (4, 5 + k)) @ E.T)
    (tmp_path / f"s{COUNT - 1}.hdr").write_text("no header\n")
    return tmp_path, [tmp_path / f"s{k}.hdr" for k in range(COUNT)]


def settings_in(folder):
    return {"endmembers": folder / "e.csv", "method": "fcls", "device": "cpu", "out_dir": folder / "o"}


def test_the_same_maps_and_outcomes(scenes):
    folder, cubes = scenes
    options = ("-e", "e.csv", "--method", "fcls", "--device", "cpu", "--json")
    said = {}
    for n in (1, 3):
        out, log = command("run", *cubes, *options, "-o", f"o{n}", "--jobs", n, cwd=folder, code=4)
        said[n] = {one["scene"]: one for one in map(json.loads, out.splitlines())}
        assert f"{COUNT} scenes: {COUNT - 1} done, 1 failed" in log and log.count("not an ENVI header") == 1
    assert said[1].keys() == said[3].keys()
    for cube, one in said[1].items():
        assert one.get("digests") == said[3][cube].get("digests") and one.get("error") == said[3][cube].get("error")
    assert all("digests" in one or "error" in one for one in said[1].values())
    # A job that is asked for one scene, or for a plan, needs no further process.
    out, _ = command("run", cubes[0], *options, "-o", "plan", "--jobs", 4, "--dry-run", cwd=folder)
    assert json.loads(out)["dry_run"] and not (folder / "plan").exists()


@pytest.mark.slow
def test_a_process_that_dies_costs_its_scene(scenes, monkeypatch):
    folder, cubes = scenes
    workers, begin = [], jobs.SceneProcess.begin

    def begin_and_die(worker, cube):
        begin(worker, cube)
        workers.append(worker)
        if cube == cubes[1]:
            worker.process.kill()

    monkeypatch.setattr(jobs.SceneProcess, "begin", begin_and_die)
    monkeypatch.chdir(folder)
    (folder / "click.py").write_text("raise SystemExit\n")  # of an archive, whose folder is no place for programs
    with Board("none", COUNT) as board:
        found = dict(jobs.side_by_side(cubes, 2, settings_in(folder), ["unmix"], board))
    assert set(found) == set(cubes)
    assert "SIGKILL" in str(found[cubes[1]]) and "not an ENVI header" in str(found[cubes[4]])
    assert all(found[cube]["certified"] for cube in (cubes[0], cubes[2], cubes[3]))
    assert all(worker.process.poll() is not None for worker in workers)  # none is left behind


def test_nothing_is_left_where_the_reader_stops(scenes):
    folder, cubes = scenes
    with Board("none", COUNT) as board:
        results = jobs.side_by_side(cubes, 2, settings_in(folder), ["unmix"], board)
        next(results)
        results.close()
    done = sorted(path.name for path in (folder / "o").glob("*_run.json"))
    assert done and not list((folder / "o").glob("*.lock"))


def test_each_job_has_one_of_several_gpus(monkeypatch):
    monkeypatch.setattr("unmix.devices.count_gpus", lambda: 4)
    monkeypatch.setattr("unmix.devices.kind_of", lambda name: "cuda")
    assert jobs.devices_in("cuda:all") == ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]
    assert jobs.devices_in("cuda:1,3") == ["cuda:1", "cuda:3"]
    assert [jobs.devices_in(name) for name in ("cpu", "auto", "cuda")] == [["cpu"], ["auto"], ["cuda"]]


def stuck():
    """A process that no SIGTERM ends."""
    worker = jobs.SceneProcess.__new__(jobs.SceneProcess)
    worker.pipe, its_end = jobs.Pipe()
    its_end.close()
    words = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(9999)"
    worker.process = subprocess.Popen([sys.executable, "-c", words], stdout=subprocess.PIPE)
    worker.process.stdout.read(1)
    return worker


@pytest.mark.parametrize("how", ["in time", "at once", "stopped"])
def test_a_process_that_does_not_end_is_killed(monkeypatch, how):
    """After its time for cleaning up, or at once where a second signal came."""
    monkeypatch.setattr(jobs, "CLEANING_UP", 1e9 if how == "at once" else 0.2)
    monkeypatch.setattr(start.SignalState, "again", how == "at once")
    worker = stuck()
    if how == "stopped":
        os.kill(worker.process.pid, signal.SIGSTOP)
    with patience(how):
        worker.end()
    assert worker.process.returncode == -signal.SIGKILL


def test_a_second_signal_is_one_of_impatience(monkeypatch):
    """timeout(1) sends one to the process and one to its group at the same time: these are one."""
    monkeypatch.setattr(start, "stop", lambda frame: None)
    for name, value in (("number", None), ("came", 0.0), ("is_working", True), ("again", False)):
        monkeypatch.setattr(start.SignalState, name, value)
    before = signal.getsignal(signal.SIGALRM)
    start.on_signal(signal.SIGTERM, None)
    start.on_signal(signal.SIGTERM, None)
    assert start.SignalState.number == signal.SIGTERM and not start.SignalState.again
    start.SignalState.came -= 2 * start.TOGETHER
    start.on_signal(signal.SIGINT, None)
    assert start.SignalState.again and start.SignalState.number == signal.SIGTERM
    signal.signal(signal.SIGALRM, before)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_signals_end_all_processes(scenes, number):
    folder, _ = scenes
    random = np.random.default_rng(5)
    cubes = [folder / f"large{k}.hdr" for k in range(6)]
    for cube in cubes:
        write_cube(cube, random.uniform(0.1, 0.9, (300, 300, 6)))
    options = ("-e", folder / "e.csv", "--device", "cpu", "-o", folder / "o", "--jobs", "2", "--method", "fcls")
    call = [sys.executable, "-m", "unmix", "run", *map(str, (*cubes, *options))]
    process = subprocess.Popen(call, start_new_session=True, stderr=subprocess.DEVNULL)
    wait_until(lambda: list((folder / "o").glob("*_run.json")))
    os.kill(process.pid, number)
    assert process.wait(PATIENCE) in (0, -number if number == signal.SIGKILL else 128 + number)
    wait_until(lambda: not members_of(process.pid))  # what is left of its session


def members_of(session):
    listed = subprocess.run(["ps", "-o", "pid=", "--sid", str(session)], capture_output=True, text=True)
    return listed.stdout.split()
