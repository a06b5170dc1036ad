"""`device` auto takes the CPU where the start of a GPU costs more than it saves, and says so."""

import logging

import numpy as np
import pytest
from conftest import write_cube

import unmix
from unmix import devices
from unmix.devices import MOST_FAST, START, Job, choose_device
from unmix.errors import say_once

SMALL = Job(10_000, 200, 9, False, True)


class FakeGpu:
    name, solves, count = "cuda:0", True, 1

    def __init__(self, index):
        assert index == 0

    def close(self):
        pass


@pytest.fixture
def gpu(monkeypatch):
    """A machine that seems to have a GPU."""
    monkeypatch.setattr(devices, "count_gpus", lambda: 1)
    monkeypatch.setattr(devices.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(devices, "simulated", lambda: False)
    monkeypatch.setattr(devices, "gpu", FakeGpu)
    monkeypatch.setattr(devices, "SCENES", [1])
    say_once.cache_clear()
    yield
    say_once.cache_clear()


@pytest.mark.parametrize(
    ("work", "threads", "expected"),
    [
        (SMALL, 2, "cpu"),
        (SMALL, 16, "cpu"),
        (SMALL._replace(pixels=2_000_000), 16, "cpu"),  # 1.4 s on an H100, 0.8 to 1.1 on its host
        (SMALL._replace(pixels=2_000_000), 2, "cuda:0"),
        (SMALL._replace(pixels=2_000_000, extracts=True), 16, "cuda:0"),  # 2.5 to 3.2 and 3.8 to 3.9 s
        (SMALL._replace(pixels=10_000_000), 16, "cuda:0"),
        (SMALL._replace(endmembers=MOST_FAST + 1), 16, "cuda:0"),  # another search
        (SMALL._replace(is_plain=False), 16, "cuda:0"),
        (None, 16, "cuda:0"),
    ],
)
def test_the_rule(gpu, work, threads, expected):
    assert choose_device("auto", threads, work).name == expected
    assert choose_device("cpu", threads, work).name == "cpu"
    assert choose_device("cuda", threads, work).name == "cuda:0"  # who names it gets it


def test_more_pixels_bands_endmembers_and_fewer_threads_save_more():
    for more in ({"pixels": 5_000_000}, {"bands": 300}, {"endmembers": 20}, {"extracts": True}, {"endmembers": None}):
        few, some = SMALL._replace(pixels=2_000_000, endmembers=5), SMALL._replace(pixels=2_000_000, endmembers=5)
        assert few.saved(16) < some._replace(**more).saved(16) < some._replace(**more).saved(2)
    assert 0.0 == SMALL.saved(2) < START


def test_scenes_of_one_command_share_the_start(gpu):
    """Unless each is so small that a GPU saves nothing."""
    scene = SMALL._replace(pixels=1_000_000)
    assert choose_device("auto", 16, scene).name == "cpu"
    devices.expect_scenes(100)
    assert choose_device("auto", 16, scene).name == "cuda:0" and choose_device("auto", 16, SMALL).name == "cpu"


def test_it_is_said_once(gpu, caplog):
    with caplog.at_level(logging.DEBUG, "unmix"):
        for _ in range(2):
            choose_device("auto", 2, SMALL)
    said = [one.getMessage() for one in caplog.records if one.levelno == logging.INFO]
    assert said == [
        "device: the CPU (a GPU would take longer to start than it saves; `device` cuda takes it all the same)"
    ]
    details = [one.getMessage() for one in caplog.records if one.levelno == logging.DEBUG]
    assert len(details) == 2
    assert all("a GPU saves 0 s, its start takes 0.9 s: the CPU is used" in one for one in details)


def test_a_run_tells_of_its_job(gpu, tmp_path, monkeypatch):
    """A small scene is solved on the CPU, and its record says so; what goes beyond abundances asks for the GPU."""
    asked, random = [], np.random.default_rng(0)
    monkeypatch.setattr(Job, "saved", lambda self, threads: asked.append((self, threads)) or 0.0)
    E = random.random((12, 3)) + 0.1
    cube = write_cube(tmp_path / "c.hdr", (random.dirichlet([1] * 3, 60) @ E.T).reshape(6, 10, 12))
    rows = [["name", *range(1, 13)], *([name, *spectrum] for name, spectrum in zip("abc", E.T))]
    (tmp_path / "e.csv").write_text("\n".join(",".join(map(str, row)) for row in rows) + "\n")
    run = unmix.run(cube, endmembers=tmp_path / "e.csv", method="fcls", threads=2, out_dir=tmp_path / "o")
    assert run["device"] == "cpu" and asked == [(Job(60, 12, 3, False, True), 2)]
    unmix.run(cube, count=3, extract="vca", method="fcls", threads=2, out_dir=tmp_path / "p", uncertainty=True)
    assert asked[-1] == (Job(60, 12, 3, True, False), 2)
    unmix.run(cube, threads=1, out_dir=tmp_path / "q")
    assert asked[-1] == (Job(60, 12, None, True, True), 1)
