"""`device` auto takes the CPU for scenes of few bytes, where the start of a GPU costs more than it saves, and says so."""

import logging

import numpy as np
import pytest
from conftest import write_cube

import unmix
from unmix import devices
from unmix.devices import choose_device
from unmix.errors import say_once
from unmix.runs import scene_run


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
    monkeypatch.setattr(devices, "Cuda", FakeGpu)
    say_once.cache_clear()
    yield
    say_once.cache_clear()


@pytest.mark.parametrize(("pays", "expected"), [(False, "cpu"), (True, "cuda:0")])
def test_the_choice(gpu, pays, expected):
    assert choose_device("auto", 16, pays).name == expected
    assert choose_device("cpu", 16, pays).name == "cpu"
    assert choose_device("cuda", 16, pays).name == "cuda:0"  # who names it gets it
    assert choose_device("auto", 16).name == "cuda:0"


def test_it_is_said_once(gpu, caplog):
    with caplog.at_level(logging.INFO, "unmix"):
        for _ in range(2):
            choose_device("auto", 2, False)
    said = [one.getMessage() for one in caplog.records]
    assert said == [
        "device: the CPU (a GPU would take longer to start than it saves; `device` cuda takes it all the same)"
    ]


@pytest.fixture
def scene(tmp_path):
    """A cube of 60 pixels of 12 bands, float64, and its library of three spectra."""
    random = np.random.default_rng(0)
    E = random.random((12, 3)) + 0.1
    cube = write_cube(tmp_path / "c.hdr", (random.dirichlet([1] * 3, 60) @ E.T).reshape(6, 10, 12))
    rows = [["name", *range(1, 13)], *([name, *spectrum] for name, spectrum in zip("abc", E.T))]
    (tmp_path / "e.csv").write_text("\n".join(",".join(map(str, row)) for row in rows) + "\n")
    return cube, tmp_path / "e.csv"


@pytest.mark.parametrize(
    ("changes", "size", "most", "expected"),
    [
        ({}, 60 * 12 * 8 + 1, 3, False),
        ({}, 60 * 12 * 8, 3, True),
        ({"reading": unmix.ReadOptions(lines="0:5")}, 60 * 12 * 8, 3, False),
        ({}, 10**9, 2, True),  # another search
        ({"count": 3, "endmembers": None, "extract": "vca"}, 10**9, 3, False),
        ({"count": 4, "endmembers": None, "extract": "vca"}, 10**9, 3, True),
        ({"uncertainty": True}, 10**9, 3, True),  # what goes beyond abundances
        ({"solver": "inverse"}, 10**9, 3, True),
    ],
)
def test_the_rule(scene, monkeypatch, changes, size, most, expected):
    """By the bytes of the pixels in use; all but the fast searches ask for the GPU, whatever their size."""
    monkeypatch.setattr(scene_run, "WORTH_A_GPU", size)
    monkeypatch.setattr(scene_run, "MOST_FAST", most)
    options = unmix.Options(**({"endmembers": scene[1], "method": "fcls"} | changes))
    executor = scene_run.Executor(options)
    run = scene_run.SceneRun(scene[0], options, executor, None, None, [])
    assert executor.pays == expected == scene_run.is_worth_a_gpu(run.scene, run.options, run.inputs.library)


def test_a_run_tells_where_it_was_solved(gpu, scene, tmp_path):
    assert unmix.run(scene[0], endmembers=scene[1], method="fcls", threads=2, out_dir=tmp_path / "o")["device"] == "cpu"
