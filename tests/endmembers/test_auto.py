"""Auto, the default: which endmembers it takes, beside scenes with known spectra, the values from their definitions, and the record."""

import json
import subprocess
import sys

import numpy as np
import pytest
from conftest import falsify_record, refused, write_cube
from scipy.optimize import nnls
from test_cli import unmix as command
from test_cone import matched, shaded, shares

import unmix
from unmix.devices import simulated
from unmix.endmembers import extraction, sampled
from unmix.endmembers.passes import signal_of
from unmix.endmembers.plane import FLAT, Plane
from unmix.endmembers.sampled import Means
from unmix.errors import CubeError
from unmix.library import load
from unmix.scene import open_scene
from unmix.scene.bands import choose_bands

pytestmark = pytest.mark.skipif(simulated(), reason="nothing of it runs on a GPU")


def flat(random, noise=0.002):
    """A scene of 40 x 48 pixels whose brightness does not vary, no material being above 0.8 of any."""
    E = shaded(1, 3)[1] * [0.7, 1.0, 1.4]
    F = random.dirichlet(np.ones(3), 4000)
    F = F[F.max(axis=1) < 0.8][: 40 * 48]
    return (F @ E.T + noise * random.standard_normal((40 * 48, 30))).reshape(40, 48, 30), E, F


def test_a_scene_whose_brightness_does_not_vary(tmp_path):
    """Without a method it is unmixed by fcls with the corners of the smallest simplex; nnls with fractions is another run."""
    Y, E, F = flat(np.random.default_rng(1))
    path = write_cube(tmp_path / "s.hdr", Y)
    command("run", path, "-n", 3, tells=("brightness does not vary, but for noise: fcls", "endmembers by likely"))
    report = json.loads((tmp_path / "s_run.json").read_text())
    assert (report["method"], report["normalize"]) == ("fcls", "none") and report["endmembers"]["simplex"]["flat"]
    assert report["options"] == {"count": 3}
    found = load(tmp_path / "s_endmembers.csv").matrix
    A = unmix.solve(Y.reshape(-1, 30), matched(found, E)[0], method="fcls").abundances
    by_length = shares(Y, matched(unmix.extract(path, count=3, extract="vca").matrix, E)[0])
    assert np.sqrt(np.square(A - F).mean()) < 0.5 * np.sqrt(np.square(by_length - F).mean())
    command("verify", tmp_path / "s", "--all")
    assert "finished already" in command("run", path, "-n", 3, "--skip-existing")[1]
    again = ["--method", "nnls", "--normalize", "length", "--extract", "auto"]
    assert "method (left open, now nnls) differ" in command("run", path, "-n", 3, *again, "--skip-existing", code=1)[1]
    assert "finished already" in command("run", path, "--config", tmp_path / "s_run.json", "--skip-existing")[1]
    command("run", path, "--config", tmp_path / "s_run.json", "-o", tmp_path / "again")
    assert (tmp_path / "again/s_abundance.img").read_bytes() == (tmp_path / "s_abundance.img").read_bytes()


@pytest.mark.parametrize(
    ("words", "method", "normalize"),
    [
        ([], "fcls", "none"),
        (["--l1", "0.01"], "nnls", "sum"),
        pytest.param(["--at-most", "2"], "nnls", "sum", marks=pytest.mark.slow),
        (["--normalize", "length"], "nnls", "length"),
        pytest.param(["--solver", "active-set"], "nnls", "sum", marks=pytest.mark.slow),
        (["--extract", "vca"], "nnls", "length"),
        pytest.param(["--method", "pcls", "--extract", "auto"], "pcls", "none", marks=pytest.mark.slow),
    ],
)
def test_only_what_is_left_open_follows_the_brightness(tmp_path, words, method, normalize):
    path = write_cube(tmp_path / "s.hdr", flat(np.random.default_rng(1))[0])
    command("run", path, "-n", 3, "--no-browse", *words)
    report = json.loads((tmp_path / "s_run.json").read_text())
    assert (report["method"], report["normalize"]) == (method, normalize)
    command("verify", tmp_path / "s")


@pytest.mark.slow
def test_more_corners_than_materials_are_those_of_a_simplex(tmp_path):
    """Amounts of area stay amounts of area; with fewer corners the brightness of the plane's rest varies."""
    path = write_cube(tmp_path / "s.hdr", flat(np.random.default_rng(1))[0])
    found = [unmix.extract(path, count=p).simplex for p in (2, 3, 4)]
    assert ["flat" in simplex for simplex in found] == [False, True, True]
    assert unmix.extract(path).matrix.shape[1] == 3


def test_a_material_that_is_not_counted_is_no_noise(tmp_path):
    """Each pixel mixed anew, and of another brightness: in fewer dimensions the rest of the fourth is not taken for noise."""
    random = np.random.default_rng(5)
    E = shaded(1, 4)[1]
    Y = random.dirichlet(np.ones(4), (40, 48)) @ E.T * random.uniform(0.9, 1.1, (40, 48, 1))
    path = write_cube(tmp_path / "s.hdr", Y + 0.002 * random.standard_normal(Y.shape))
    assert not any("flat" in unmix.extract(path, count=p).simplex for p in (2, 3, 4))


@pytest.mark.parametrize("what", ["shade", "spectra", "neighbours"])
def test_brightness_that_varies_is_seen(tmp_path, what):
    """Slowly over the scene, from pixel to pixel, or as each material's own."""
    random = np.random.default_rng(2)
    Y, E, F = flat(random, 0.0)
    size = {
        "shade": np.linspace(0.9, 1.1, 48)[:, None],
        "neighbours": random.uniform(0.9, 1.1, (40, 48, 1)),
        "spectra": 1.0,
    }
    Y *= size[what]
    if what == "spectra":
        Y += 0.1 * random.standard_normal((40, 1, 1)) * F[:, :1].reshape(40, 48, 1) * E[:, 0]
    path = write_cube(tmp_path / "s.hdr", Y + 0.002 * random.standard_normal(Y.shape))
    assert "flat" not in unmix.extract(path, count=3).simplex


def test_a_flat_scene_goes_on_where_it_was_cut_off(tmp_path, monkeypatch):
    """The method of a resumed run is that of its first lines."""
    path = write_cube(tmp_path / "s.hdr", flat(np.random.default_rng(1))[0])
    unmix.run(path, count=3, device="cpu", memory="64K", out_dir=tmp_path / "whole")
    monkeypatch.setattr("unmix.runs.scene_run.report_of", lambda *_: 1 / 0)
    refused(ZeroDivisionError, None, unmix.run, path, count=3, device="cpu", memory="64K", out_dir=tmp_path / "cut")
    monkeypatch.undo()
    report = unmix.run(path, count=3, device="cpu", memory="64K", out_dir=tmp_path / "cut")
    assert report["resumed_from"] > 0 and report["method"] == "fcls"
    for name in ("s_abundance.img", "s_endmembers.csv"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes()


def moments_of(path):
    return signal_of(open_scene(path), 2**30, 1)


@pytest.mark.parametrize("vary", [0.0, 0.1])
def test_excess_is_its_definition(tmp_path, vary):
    """By the residuals of the pixels themselves; a plane of as many materials as there are leaves the noise of one dimension more."""
    random = np.random.default_rng(4)
    Y, _, _ = flat(random)
    Y = Y * random.uniform(1 - vary, 1 + vary, (40, 48, 1))
    plane, rows = Plane(moments_of(write_cube(tmp_path / "s.hdr", Y))), Y.reshape(-1, 30)
    for p in range(2, 7):
        left = []
        for some, d in ((rows, p), (rows - rows.mean(axis=0), p - 1)):
            axes = np.linalg.svd(some, full_matrices=False)[2][:d]
            left.append(np.square(some - some @ axes.T @ axes).sum())
        assert plane.excess(p) == pytest.approx((left[1] - left[0]) / (left[0] / (30 - p)), rel=1e-6)
    assert plane.excess(3) < FLAT if vary == 0 else plane.excess(3) > 2 * FLAT


def test_what_counts_on_a_plane(tmp_path):
    clean, varied = flat(np.random.default_rng(1), 0.0)[0], flat(np.random.default_rng(1))[0]
    for number, Y in enumerate((clean, clean * 1e-6, varied)):
        plane = Plane(moments_of(write_cube(tmp_path / f"{number}.hdr", Y)))
        assert plane.count(6) == 3 and plane.is_flat(3) and plane.is_flat(4) and not plane.is_flat(2)
        assert plane.count(2) is None and not plane.is_flat(1) and not plane.is_flat(30)


def test_pure_pixels_of_a_flat_scene_are_corners(tmp_path):
    """The most likely simplex has its corners at pixels that are pure; verified."""
    random = np.random.default_rng(2)
    E = shaded(2, 3)[1] * [0.7, 1.0, 1.4]
    F = random.dirichlet(np.ones(3), 40 * 48)
    F[::4] = np.eye(3)[random.integers(0, 3, 480)]
    Y = (F @ E.T + 0.004 * random.standard_normal((40 * 48, 30))).reshape(40, 48, 30)
    report = unmix.run(write_cube(tmp_path / "s.hdr", Y), count=3, device="cpu", browse=False)
    assert report["method"] == "fcls" and report["endmembers"]["simplex"]["by"] == "likely"
    assert matched(load(tmp_path / "s_endmembers.csv").matrix, E)[1].max() < 0.02
    command("verify", tmp_path / "s", "--all")


def test_one_pixel_may_be_the_purest_of_two_means(tmp_path, monkeypatch):
    Y, E, _ = flat(np.random.default_rng(1))
    found = Means(np.ascontiguousarray(E), [[5, 6], [5], [7]], 100)
    monkeypatch.setitem(extraction.EXTRACTORS, ("cone", True), lambda *_: found)
    library = unmix.extract(write_cube(tmp_path / "s.hdr", Y), count=3, extract="cone")
    assert library.pixels[0] == library.pixels[1] and np.array_equal(library.matrix, E)


def spread(seed=3):
    """A scene with one large, varied material and two smaller ones near each other: a cone parts the large one."""
    random = np.random.default_rng(seed)
    x = np.linspace(0, 1, 40)[:, None]
    E = 0.2 + np.exp(-np.square((x - [0.2, 0.7, 0.78]) / 0.2))
    E /= np.linalg.norm(E, axis=0)
    labels = np.zeros((40, 50), int)
    labels[:, 36:43], labels[:, 43:] = 1, 2
    F = np.eye(3)[labels]
    F[:, 35] = F[:, 36] = [0.5, 0.5, 0.0]
    Y = F @ E.T * random.uniform(0.6, 1.4, (40, 50, 1))
    Y += 0.06 * F[..., :1] * random.standard_normal((40, 50, 1)) * np.sin(5 * x[:, 0])
    return Y + 0.002 * random.standard_normal(Y.shape), E, F


def test_the_better_of_two_sets_is_taken_and_the_other_is_told(tmp_path):
    """The values are their definitions, by scipy; the record says how far fractions of the other set are."""
    Y = spread()[0]
    path = write_cube(tmp_path / "s.hdr", Y)
    _, told = command("run", path, "-n", 3)
    simplex = json.loads((tmp_path / "s_run.json").read_text())["endmembers"]["simplex"]
    other = next(name for name in simplex["sets"] if name != simplex["by"])
    assert set(simplex["sets"]) == {"cone", "means"} and f"those by {other}" in told
    cone = unmix.extract(path, count=3, extract="cone").matrix
    fractions = {}
    for name, found in (("cone", cone), (simplex["by"], load(tmp_path / "s_endmembers.csv").matrix)):
        units, U = (
            Y.reshape(-1, 40) / np.linalg.norm(Y.reshape(-1, 40), axis=1)[:, None],
            found / np.linalg.norm(found, axis=0),
        )
        fractions[name] = A = shares(units[:, None], found)
        misfit = np.linalg.norm(units - np.array([nnls(U, y)[0] for y in units]) @ U.T, axis=1).mean()
        amplification = np.sqrt(np.trace(np.linalg.inv(U.T @ U)) / 3)
        numbers = (misfit, -(A * np.log(np.maximum(A, 1e-300))).sum(axis=1).mean(), amplification, A.mean(axis=0).min())
        said = simplex["sets"][name]
        assert [said[key] for key in ("misfit", "entropy", "amplification", "least_share")] == pytest.approx(
            numbers, rel=1e-4
        )
        value = numbers[0] * numbers[1] * numbers[2] ** 0.15 / (numbers[3] + 1e-3) ** 0.1
        assert said["value"] == pytest.approx(value, rel=1e-4)
    assert simplex["sets"][simplex["by"]]["value"] == min(one["value"] for one in simplex["sets"].values())
    if simplex["by"] == "means":
        order = matched(cone, load(tmp_path / "s_endmembers.csv").matrix)[0]
        moved = np.abs(shares(Y, order) - fractions["means"]).mean()
        assert simplex["differ"] == pytest.approx(moved, abs=1e-3)
    assert f"Another set of spectra, by {other}," in unmix.report(tmp_path / "s").read_text()
    command("verify", tmp_path / "s", "--all")
    falsify_record(tmp_path / "s", lambda record: record["endmembers"]["simplex"].update(flat=True))
    assert "is not what is found again" in command("verify", tmp_path / "s", "--all", code=1)[1]


@pytest.mark.parametrize("count", [3, 4])
def test_damage_that_only_the_sample_met_ends_the_extraction(tmp_path, monkeypatch, count):
    """GDAL tells of a damaged block once, and reads zeros after that: so damage is said, and not that spectra are too few."""

    def damaged(_):
        raise CubeError("a damaged block")

    path = write_cube(tmp_path / "s.hdr", shaded(7, 3)[1].T[np.arange(400) % 3].reshape(20, 20, -1))
    monkeypatch.setattr(sampled, "sampled_directions", damaged)
    refused(CubeError, "damaged", unmix.extract, path, count=count, extract="auto")


@pytest.mark.parametrize("value", [0.0, -9.0])
def test_a_sample_without_pixels_warns_of_nothing(tmp_path, value):
    """Not even with threads that look ahead."""
    path = write_cube(tmp_path / "x.hdr", np.full((20, 30, 12), value, np.float32), data_ignore_value=-9)
    call = [sys.executable, "-m", "unmix", "endmembers", str(path), "--threads", "8"]
    ran = subprocess.run(call, capture_output=True, text=True)
    assert ran.returncode != 0 and "Warning" not in ran.stderr


def test_the_same_whatever_threads_and_memory(tmp_path):
    path = write_cube(tmp_path / "s.hdr", spread()[0].astype("float32"))
    ways = {"a": ["--threads", "1"], "b": ["--threads", "2", "--memory", "2M"], "c": ["--threads", "8"]}
    for name, more in ways.items():
        command("run", path, "--no-browse", "-o", tmp_path / name, *more)
    for name in ("s_abundance.img", "s_endmembers.csv"):
        assert len({(tmp_path / way / name).read_bytes() for way in ways}) == 1


@pytest.mark.real
@pytest.mark.parametrize(("name", "p", "most"), [("samson", 3, 0.025), ("jasper", 4, 0.036), ("moffett", 3, 0.085)])
def test_real_scenes(data, name, p, most):
    """The mean over materials of the RMSE of fractions beside the reference; fcls of VCA's endmembers has 0.31 and 0.16."""
    path = data / name / f"{name}.hdr"
    truth = unmix.library.load(data / name / f"{name}_truth_endmembers.csv").matrix
    cube, reference = unmix.open_cube(path), unmix.open_cube(data / name / f"{name}_truth_abundance.hdr")
    E = matched(unmix.extract(path, count=p).matrix, truth)[0]
    read = lambda some: unmix.io.spectra(  # noqa: E731
        some.read(slice(0, some.lines), np.empty(unmix.io.bytes_per_line(some) * some.lines, np.uint8)),
        some.interleave,
        choose_bands(some, "good", None),
    )
    A = unmix.solve(read(cube), E / np.linalg.norm(E, axis=0), method="nnls").abundances
    error = A / A.sum(axis=1, keepdims=True) - read(reference)
    assert np.sqrt(np.square(error).mean(axis=0)).mean() < most
