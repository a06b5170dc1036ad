"""`unmix.run` from file to file: right, the same for every way of running, and whole or not there."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import naive
import numpy as np
import pytest
from conftest import read_map, refused, verify_tells, write_csv, write_cube
from reference.abundances import METHODS as METHODS_BY_SCIPY
from unmix_cli.outcomes import result_line

import unmix
from unmix.certificate import CERTIFIED
from unmix.commands.synth import SyntheticScene, synthesise
from unmix.commands.verify import verify
from unmix.devices import simulated
from unmix.library import load
from unmix.methods import METHODS
from unmix.runs import executor


def outputs(folder):
    """The bytes of everything that must not depend on how a run went."""
    return {
        path.name.split("_", 1)[1]: path.read_bytes()
        for path in sorted(Path(folder).iterdir())
        if path.suffix in (".img", ".hdr", ".sli") and "_certificate.img" not in path.name
    }


@pytest.fixture
def truth(scene):
    return scene.with_name("scene_truth_endmembers.csv")


@pytest.mark.sim
@pytest.mark.parametrize("method", list(METHODS))
def test_from_file_to_file(tmp_path, device, method):
    """Every output of a small run against naive readings."""
    random = np.random.default_rng(0)
    lines, samples = (2, 3) if simulated() else (3, 70)
    E = random.random((6, 3)) + 0.1
    cube = (random.dirichlet(np.ones(3), (lines, samples)) @ E.T * 1000).astype(np.int16)
    cube[1, 2, 3] = -1
    cube[0, 1] = -1
    path = write_cube(
        tmp_path / "x.hdr",
        cube,
        "bil",
        data_ignore_value=-1,
        reflectance_scale_factor=1000,
        bbl="{1, 1, 1, 1, 1, 0}",
        map_info="{UTM, 1, 1, 2, 3, 4, 5}",
    )
    report = unmix.run(
        path,
        method=method,
        endmembers=write_csv(tmp_path / "e.csv", E),
        device=device,
        residual=True,
        certificate=True,
        out_dir=tmp_path / "o",
    )
    pixels = lines * samples
    assert report["pixels"] == {
        "all": pixels,
        "solved": pixels - 2,
        "masked": 1,
        "partly_nodata": 1,
        "certified": pixels - 2,
        "fit_certified": 0,
        "failed": 0,
        "rescued": 0,
    }
    assert report["bands_used"] == [1, 2, 3, 4, 5]
    row = METHODS[method]
    abundance = read_map(tmp_path / "o/x", "abundance")
    rmse = read_map(tmp_path / "o/x", "rmse")[..., 0]
    residual = read_map(tmp_path / "o/x", "residual")
    proof = read_map(tmp_path / "o/x", "certificate")
    for line, sample in np.ndindex(lines, samples):
        if (line, sample) in ((1, 2), (0, 1)):
            for values in (abundance, rmse, residual, proof):
                assert np.all(values[line, sample] == -9999)
            continue
        y = cube[line, sample, :5] / 1000
        a = METHODS_BY_SCIPY[method](E[:5], y)
        np.testing.assert_allclose(abundance[line, sample, :3], a, atol=1e-6)
        if row.constraint.has_shade:
            np.testing.assert_allclose(abundance[line, sample, 3], 1 - a.sum(), atol=1e-6)
        np.testing.assert_allclose(rmse[line, sample], np.sqrt(np.mean((y - E[:5] @ a) ** 2)), rtol=1e-5, atol=1e-8)
        np.testing.assert_allclose(residual[line, sample], y - E[:5] @ a, atol=1e-6)
        assert proof[line, sample, 0] <= CERTIFIED
    assert verify(tmp_path / "o/x", everything=True).faults == []
    header = (tmp_path / "o/x_abundance.hdr").read_text()
    assert "map info = {UTM, 1, 1, 2, 3, 4, 5}" in header
    assert f"band names = {{em 1, em 2, em 3{', shade' * row.constraint.has_shade}}}" in header
    assert "data ignore value = -9999" in header
    assert str(tmp_path) not in header
    assert not list(tmp_path.glob("o/*.part"))


def test_extraction_is_repeatable_and_its_library_gives_the_same_bytes(tmp_path, scene):
    report = unmix.run(scene, method="fcls", count=4, device="cpu", out_dir=tmp_path / "a")
    unmix.run(scene, method="fcls", count=4, device="cpu", out_dir=tmp_path / "b", memory="50k", threads=1)
    assert outputs(tmp_path / "a") == outputs(tmp_path / "b")
    for name in ("csv", "sli", "hdr"):
        library = tmp_path / f"a/scene_endmembers.{name}"
        unmix.run(scene, method="fcls", endmembers=library, device="cpu", out_dir=tmp_path / "c", overwrite=True)
        assert outputs(tmp_path / "a") == outputs(tmp_path / "c")
    assert len(report["endmembers"]["pixels"]) == 4
    assert report["passes"] == 3  # moments; what VCA and its exchanges see; the solution


@pytest.mark.gpu
@pytest.mark.parametrize("interleave", ["bip", "bil", "bsq"])
@pytest.mark.parametrize("solver", ["active-set", "inverse", "delete-only"])
@pytest.mark.parametrize("method", ["nnls", "fcls"])
def test_cpu_against_gpu(tmp_path, method, solver, interleave):
    """Every output, with masked pixels, a bad band and a line that is no multiple of anything."""
    p = {"bip": 12, "bil": 5, "bsq": 30}[interleave]
    synthesise(tmp_path / "s.hdr", SyntheticScene(50, 93, 61, p, 5))
    cube = naive.read_envi((tmp_path / "s.img").read_bytes(), 50, 93, 61, np.int16, "bil", "<").copy()
    cube[7, 3:9, 5] = -77
    cube[9, 11] = -77
    path = write_cube(
        tmp_path / "c.hdr",
        cube,
        interleave,
        data_ignore_value=-77,
        reflectance_scale_factor=10000,
        bbl="{" + ", ".join(["1"] * 30 + ["0"] + ["1"] * 30) + "}",
    )
    E = np.delete(load(tmp_path / "s_truth_endmembers.csv").matrix, 30, axis=0)
    reports = {}
    for device in ("cpu", "cuda"):
        reports[device] = unmix.run(
            path,
            method=method,
            solver=solver,
            endmembers=write_csv(tmp_path / "e.csv", E),
            device=device,
            out_dir=tmp_path / device,
            memory="600k",
            residual=True,
        )
    assert reports["cpu"]["pixels"]["masked"] == reports["cuda"]["pixels"]["masked"] == 1
    assert reports["cpu"]["pixels"]["certified"] == reports["cuda"]["pixels"]["certified"]
    for name in ("abundance", "rmse", "residual"):
        a, b = (read_map(tmp_path / device / "c", name) for device in ("cpu", "cuda"))
        assert np.all(np.abs(a - b) <= 1e-6 * np.maximum(1, np.abs(a))), name
        if name == "abundance":
            assert np.mean((a > 0) == (b > 0)) > 0.9999


def masked(folder, *_):
    """A scene without a pixel."""
    return {"scene": write_cube(folder / "m.hdr", np.full((3, 4, 20), -1, np.int16), data_ignore_value=-1)}


def without_room(folder, scene, truth, patch):
    patch.setattr("unmix.runs.files.output_set.shutil.disk_usage", lambda _: shutil._ntuple_diskusage(9, 9, 0))


# What is done to a folder, a scene, its library or the system, which returns what is asked for instead; and what is
# said.
FAULTS = {
    "other bands": (
        lambda folder, scene, truth, _: {"endmembers": write_csv(folder / "e.csv", load(truth).matrix[:17])},
        unmix.LibraryError,
        "bands",
    ),
    "all masked": (masked, unmix.CubeError, "masked"),
    "all masked, extracted": (lambda folder, *_: masked(folder) | {"endmembers": None}, unmix.CubeError, "masked"),
    "no size": (lambda *_: {"memory": "much"}, unmix.MethodError, "is not a size"),
    "no place": (lambda folder, *_: (folder / "o").touch(), unmix.OutputError, "cannot write here"),
    "no space": (without_room, unmix.OutputError, "make room"),
    "truncated": (lambda folder, scene, *_: os.truncate(scene.with_suffix(".img"), 100), unmix.CubeError, "truncated"),
    "shrinks": (
        lambda folder, scene, truth, patch: truncate_after_opening(scene, patch),
        unmix.CubeError,
        "longer when it was opened",
    ),
    "full disk": (
        lambda folder, scene, truth, patch: patch.setattr("os.pwrite", full_disk),
        unmix.OutputError,
        "No space left",
    ),
}


@pytest.mark.parametrize("what", FAULTS)
def test_faults_leave_nothing_behind(tmp_path, scene, truth, what, monkeypatch):
    change, error, text = FAULTS[what]
    words = {"scene": scene, "endmembers": truth, "device": "cpu", "out_dir": tmp_path / "o"}
    words |= change(tmp_path, scene, truth, monkeypatch) or {}
    assert "\n" not in str(refused(error, text, unmix.run, words.pop("scene"), **words).value)
    assert what == "no place" or not (tmp_path / "o").exists() or not list((tmp_path / "o").iterdir())


def truncate_after_opening(scene, monkeypatch):
    """The input shrinks between the scale check and the reading of its last blocks."""
    from unmix.runs import scene_run

    check = scene_run.check_scale

    def then_shrink(*arguments):
        check(*arguments)
        os.truncate(scene.with_suffix(".img"), 7 * 70 * 20 * 2 - 1)

    monkeypatch.setattr(scene_run, "check_scale", then_shrink)


def full_disk(*arguments):
    raise OSError(28, "No space left on device")


def test_a_fault_while_overwriting_keeps_what_was_there(tmp_path, scene, truth, monkeypatch):
    unmix.run(scene, endmembers=truth, device="cpu")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr("os.pwrite", full_disk)
    refused(unmix.OutputError, None, unmix.run, scene, endmembers=truth, device="cpu", overwrite=True)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_dry_run_does_nothing(tmp_path, scene, truth):
    before = sorted(tmp_path.iterdir())
    report = unmix.run(scene, method="fcls", endmembers=truth, dry_run=True)
    assert report["bytes_to_read"] == 7 * 70 * 20 * 2
    assert sorted(tmp_path.iterdir()) == before
    assert report["bands"] == {"abundance": len(report["endmembers"]), "rmse": 1}
    assert report["bytes_to_write"] == 7 * 70 * 4 * sum(report["bands"].values())
    assert unmix.run(scene, method="fcls", dry_run=True)["bytes_to_write"] is None


def test_large_maps_are_announced(scene, truth, monkeypatch, caplog):
    monkeypatch.setattr("unmix.runs.executor.LARGE", 1000)
    with caplog.at_level("INFO", "unmix"):
        unmix.run(scene, endmembers=truth, device="cpu")
    assert "`top` writes the largest only" in caplog.text


def test_the_seconds_are_all_seconds(tmp_path, scene, monkeypatch, caplog):
    """Opening and extraction take time, too: it is in `elapsed`, in the log line, and on the page."""
    before = executor.extract

    def slowly(*arguments):
        time.sleep(0.3)
        return before(*arguments)

    monkeypatch.setattr(executor, "extract", slowly)
    began = time.perf_counter()
    report = unmix.run(scene, count=3, device="cpu", out_dir=tmp_path / "o")
    took, seconds = time.perf_counter() - began, report["seconds"]
    assert 0.3 < seconds["extracting"] < seconds["elapsed"] <= took
    assert seconds["elapsed"] >= seconds["extracting"] + seconds["compiling"] + seconds["total"] - 1e-3
    assert f"; {seconds['elapsed']:.2f} s; " in result_line(scene, report, None)
    assert f"{seconds['elapsed']:.3g} s" in unmix.report(tmp_path / "o/scene").read_text()


def test_run_json_tells(tmp_path, scene, truth):
    unmix.run(scene, endmembers=truth, device="cpu", command=["unmix", "run", "x"])
    report = json.loads((tmp_path / "scene_run.json").read_text())
    assert report["command"] == ["unmix", "run", "x"]
    assert report["certified"] is True and report["worst_kappa"] <= CERTIFIED and report["worst_delta"] < 1e-9
    assert sum(report["steps"].values()) == report["pixels"]["solved"] == 490
    assert report["input"]["bytes"] == 7 * 70 * 20 * 2
    stages = {"extracting", "compiling", "reading", "copying", "solving", "writing"}
    assert set(report["seconds"]) == stages | {"total", "elapsed"}


@pytest.mark.slow
def test_pixels_that_a_solver_misses_are_rescued(tmp_path, monkeypatch):
    """delete-only, taken for exact, fails its certificates; the safe path mends every one of them."""
    import dataclasses

    from unmix.methods import SOLVERS

    synthesise(tmp_path / "s.hdr", SyntheticScene(20, 70, 40, 8, 2, snr=15, dtype="float32"))
    library = tmp_path / "s_truth_endmembers.csv"
    settings = {"endmembers": library, "device": "cpu", "solver": "delete-only", "residual": True}
    first = unmix.run(tmp_path / "s.hdr", out_dir=tmp_path / "a", **settings)
    assert first["pixels"]["failed"] > 0 and first["pixels"]["rescued"] == 0 and not first["certified"]
    monkeypatch.setitem(SOLVERS, "delete-only", dataclasses.replace(SOLVERS["delete-only"], exact=True))
    second = unmix.run(tmp_path / "s.hdr", out_dir=tmp_path / "b", **settings)
    assert second["pixels"]["rescued"] == first["pixels"]["failed"]
    assert second["pixels"]["failed"] == 0 and second["certified"]
    unmix.run(tmp_path / "s.hdr", out_dir=tmp_path / "c", endmembers=library, device="cpu", residual=True)
    for name in ("abundance", "rmse", "residual"):
        b, c = (np.fromfile(tmp_path / f"{x}/s_{name}.img", "<f4") for x in "bc")
        np.testing.assert_allclose(b, c, atol=2e-7)


def test_verify_finds_any_flipped_byte(tmp_path, scene, truth):
    unmix.run(scene, method="fcls", endmembers=truth, device="cpu", residual=True, certificate=True)
    assert verify(tmp_path / "scene", sample=10).pixels == 10
    random = np.random.default_rng(0)
    files = [path for path in sorted(tmp_path.glob("scene_*")) if "truth" not in path.name and path.suffix != ".json"]
    assert len(files) == 12
    for path in files:
        good = path.read_bytes()
        for place in random.integers(0, len(good), 12):
            bad = bytearray(good)
            bad[place] ^= 1 << int(random.integers(8))
            path.write_bytes(bad)
            assert verify(tmp_path / "scene", sample=10).faults, (path, place)
        path.write_bytes(good)
    assert verify(tmp_path / "scene").faults == []
    verify_tells(tmp_path / "scene", "certificate", 7, lambda values: values.put(33, 1.0), fault="sample 33")


def test_verify_wants_a_finished_run(tmp_path, scene, truth):
    refused(unmix.OutputError, "no finished run", verify, tmp_path / "scene")
    unmix.run(scene, endmembers=truth, device="cpu")
    scene.with_suffix(".img").unlink()
    refused(unmix.CubeError, "`cube`", verify, tmp_path / "scene")


@pytest.mark.slow
@pytest.mark.parametrize(("words", "bound"), [("", 32), ("uncertainty=True", 128)])
def test_memory_is_bounded(tmp_path, words, bound):
    """A cube of 240 MB grows the process by little more than `--memory`."""
    synthesise(tmp_path / "s.hdr", SyntheticScene(2000, 600, 100, 5))
    script = """
import sys, unmix
from pathlib import Path
here = Path(sys.argv[1])
def peak():  # of this program alone: ru_maxrss would begin with that of the process which started it
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024
settings = dict(device="cpu", endmembers=here / "s_truth_endmembers.csv", overwrite=True, threads=2, WORDS)
unmix.run(here / "small.hdr", **settings)
before = peak()
unmix.run(here / "s.hdr", memory="BOUNDM", **settings)
print(peak() - before)
"""
    synthesise(tmp_path / "small.hdr", SyntheticScene(2, 600, 100, 5))
    words = [sys.executable, "-c", script.replace("WORDS", words).replace("BOUND", str(bound)), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert int(done.stdout) < bound + 32


def test_the_disk_is_not_asked_for_what_is_not_read(scene, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("unmix.io.formats.envi.announce", lambda path, stretches: asked.append(path))
    settings = {"out_dir": tmp_path, "device": "cpu", "count": 3}
    unmix.run(scene, dry_run=True, **settings)
    assert asked == []
    unmix.run(scene, **settings)
    assert len(asked) == 1
    unmix.run(scene, skip_existing=True, **settings)
    assert len(asked) == 1


@pytest.mark.parametrize("top", [2, 9])
def test_only_the_largest(tmp_path, scene, truth, top):
    """Values and whose they are, against the full maps; masked pixels stay masked; verified."""
    mask = np.ones((7, 70, 1), np.uint8)
    mask[2, 3:9] = 0
    write_cube(tmp_path / "m.hdr", mask)
    options = {"endmembers": truth, "device": "cpu", "mask": str(tmp_path / "m.hdr")}
    unmix.run(scene, out_dir=tmp_path / "all", **options)
    report = unmix.run(scene, out_dir=tmp_path / "top", top=top, **options)
    kept = min(top, 4)
    a = read_map(tmp_path / "all/scene", "abundance")
    values, index = (read_map(tmp_path / "top/scene", name) for name in ("abundance", "index"))
    assert np.all(values[2, 3:9] == -9999) and np.all(index[2, 3:9] == -9999)
    for line, sample in np.argwhere(mask[..., 0]):
        best = np.sort(a[line, sample])[::-1][:kept]
        assert values[line, sample].tolist() == best.tolist()
        for value, which in zip(values[line, sample], index[line, sample].astype(int)):
            assert (which == 0) == (value == 0) and (which == 0 or a[line, sample, which - 1] == value)
    header = (tmp_path / "top/scene_abundance.hdr").read_text()
    assert "band names = {value 1" in header and report["top"] == top
    assert verify(tmp_path / "top/scene", everything=True).faults == []
    raw = np.fromfile(tmp_path / "top/scene_index.img", np.float32)
    assert set(np.unique(raw)) <= {-9999.0, 0.0, 1.0, 2.0, 3.0, 4.0}
