"""Offsets of stored values: `offset` beside `scale`, and a constant of all pixels that nobody took off."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import refused, write_csv, write_cube
from unmix_cli.main import cli

import unmix
from unmix.commands.verify import verify
from unmix.io import Bands, Scene
from unmix.library import Endmembers
from unmix.runs.sum_to_one import beside_constant, cost_of_sum
from unmix.scene import ReadOptions, open_scene
from unmix.scene.constant import shared_constant
from unmix.scene.scale import scale_fault, unit_of_library

WAVES = [482.0, 561.0, 655.0, 865.0, 1609.0, 2201.0]
E = np.array(
    [
        [0.03, 0.08, 0.06],
        [0.06, 0.12, 0.05],
        [0.03, 0.18, 0.03],
        [0.4, 0.28, 0.01],
        [0.2, 0.38, 0.005],
        [0.09, 0.34, 0.003],
    ]
)
A = np.random.default_rng(5).dirichlet(np.ones(3), (9, 8))
AXIS = {"wavelength": WAVES, "wavelength_units": "Nanometers"}


@pytest.fixture
def shifted(tmp_path):
    """A cube of whole numbers (reflectance + 0.1) x 10000, with a pixel of fill, and its library."""
    stored = ((A @ E.T + 0.1) * 10000).round().astype(np.uint16)
    stored[2, 3] = 0
    write_csv(tmp_path / "lib.csv", E, WAVES)
    return write_cube(tmp_path / "s.hdr", stored, **AXIS), tmp_path / "lib.csv"


def test_a_run_with_an_offset(shifted, tmp_path):
    """The record has the offset, `verify` solves with it, and fill is compared as stored."""
    path, library = shifted
    how = {"scale": 10000, "offset": -0.1, "nodata": 0}
    report = unmix.run(
        path, endmembers=library, method="fcls", out_dir=tmp_path / "o", device="cpu", browse=False, **how
    )
    assert (report["gain"], report["offset"]) == (1e-4, -0.1) and report["options"]["offset"] == -0.1
    assert report["pixels"]["masked"] == 1
    found = np.moveaxis(np.asarray(unmix.read(tmp_path / "o/s").abundance), -1, -1)
    kept = np.ones((9, 8), bool)
    kept[2, 3] = False
    np.testing.assert_allclose(found[kept], A[kept], atol=2e-3)
    assert np.isnan(found[2, 3]).all() and verify(tmp_path / "o" / "s", everything=True).faults == []


@pytest.mark.parametrize("left_out", [0.1, 0.7])
def test_a_mask_hides_no_offset(shifted, tmp_path, left_out):
    """A mask of most pixels may be the wrong way round, and is doubted, unless the offset explains what it keeps."""
    path, library = shifted
    mask = np.ones(72, np.uint8)
    mask[: int(72 * left_out)] = 0
    write_cube(tmp_path / "m.hdr", mask.reshape(9, 8, 1))
    how = {"scale": 10000, "nodata": 0, "mask": str(tmp_path / "m.hdr"), "device": "cpu", "out_dir": tmp_path / "o"}
    said = " ".join(unmix.run(path, endmembers=library, method="fcls", **how)["warnings"])
    assert "an offset that was not taken off" in said and "mark what to leave out" not in said
    random = np.random.default_rng(0)
    write_cube(tmp_path / "other.hdr", random.uniform(2000, 9000, (9, 8, 6)).astype(np.int16))
    said = " ".join(unmix.run(tmp_path / "other.hdr", endmembers=library, method="fcls", **how)["warnings"])
    assert ("mark what to leave out" in said) == (left_out > 0.5)


def test_an_offset_alone_keeps_the_gain_of_the_file(tmp_path):
    stored = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    path = write_cube(tmp_path / "g.hdr", stored, data_gain_values="{0.5,0.5,0.5,0.5}", data_offset_values="{9,9,9,9}")
    bands = open_scene(path, ReadOptions(offset=-3.0)).bands
    assert bands.gain.tolist() == [0.5] * 4 and bands.offset.tolist() == [-3.0] * 4
    assert open_scene(path, ReadOptions(scale=4.0)).bands.offset.tolist() == [0.0] * 4
    refused(unmix.MethodError, "`offset` nan must be finite", open_scene, path, ReadOptions(offset=float("nan")))


def test_info_shows_what_a_run_would_take(shifted):
    told = CliRunner().invoke(cli, ["info", str(shifted[0]), "--scale", "10000", "--offset", "-0.1", "--json"])
    facts = json.loads(told.stdout)
    assert facts["gain"] == [1e-4] * 6 and facts["offset"] == [-0.1] * 6


def scene_with(Y, gain=1.0, offset=0.0):
    """A scene of which only the scale of its bands is asked."""

    class Cube:
        path, gain, offset = "s.img", None, None

    return Scene(Cube(), Bands(np.arange(6), np.full(6, gain), np.full(6, offset)), None)


@pytest.mark.parametrize(
    ("gain", "offset", "constant", "words"),
    [
        (1e-4, 0.0, 0.1, "`preset` sentinel-2"),
        (2.75e-5, 0.0, 0.2, "`preset` landsat-c2"),
        (1 / 36364, 0.0, 0.2, "`preset` landsat-c2"),
        (1e-4, 0.0, -0.03, "`offset` 0.03"),
        (1e-4, -0.1, 0.07, "`offset` -0.17"),
        (1.0, 0.0, 0.1, "`offset` -0.1"),
    ],
)
def test_a_constant_is_found_before_the_sum_is_blamed(gain, offset, constant, words):
    """Noise of 0.002, as in real data: the constant is that which was added, and no brightness."""
    Y = A.reshape(-1, 3) @ E.T + constant + np.random.default_rng(1).normal(0, 0.002, (72, 6))
    found = shared_constant(Y, E)
    assert found is not None and found.constant == pytest.approx(constant, abs=0.003)
    cost = beside_constant(cost_of_sum(Y, E), scene_with(Y, gain, offset), Y, E)
    assert cost.hurts and words in cost.constant


@pytest.mark.parametrize("kind", ["brightness", "a missing spectrum", "uniformly dark", "nothing", "only noise"])
def test_what_is_no_constant(kind):
    """Brightness, a missing spectrum and noise are not taken for a constant."""
    random, Y = np.random.default_rng(2), A.reshape(-1, 3) @ E.T
    changed = {
        "brightness": Y * random.uniform(0.3, 1.5, (72, 1)),
        "a missing spectrum": Y * 0.5 + 0.5 * random.uniform(0, 1, (72, 1)) * np.array([0.9, 0.8, 0.7, 0.6, 0.1, 0.1]),
        "uniformly dark": 0.6 * Y,
        "nothing": Y,
        "only noise": Y + random.normal(0, 0.05, Y.shape),
    }[kind]
    assert shared_constant(changed, E) is None


def test_the_refusal_names_scale_and_offset(shifted, tmp_path):
    """Its advice alone (a scale) gave maps that were off by 0.4."""
    library = Endmembers(("a", "b", "c"), E, np.array(WAVES), source="lib.csv")
    fault = scale_fault(open_scene(shifted[0], ReadOptions(nodata=0)), library)
    assert fault is not None and "an offset, too: `preset` sentinel-2 brings them together" in fault
    other = write_cube(tmp_path / "t.hdr", ((A @ E.T + 0.5) * 5000).round().astype(np.uint16), **AXIS)
    fault = scale_fault(open_scene(other), library)
    assert "an offset, too, so they are no reflectance: take (raw - dark) / (white - dark) of counts" in fault
    assert "`scale` 1 keeps them" in fault and "`scale` 5" not in fault
    plain = write_cube(tmp_path / "p.hdr", (A @ E.T * 10000).round().astype(np.uint16), **AXIS)
    assert "offset" not in scale_fault(open_scene(plain), library)


@pytest.mark.parametrize("seed", range(6))
def test_raw_counts_get_no_scale(tmp_path, seed):
    """Counts of a lamp and a detector whose bands differ: no scale makes them reflectance, so none is named."""
    random = np.random.default_rng(seed)
    spectra = random.uniform(0.1, 0.7, (40, 3))
    white = 3000 * np.exp(-(np.linspace(-1.5, 1.5, 40) ** 2)) + 200
    dark = random.uniform(50, 400, 40)
    counts = (random.dirichlet(np.ones(3), (30, 30)) @ spectra.T * white + dark).round().astype(np.uint16)
    library = Endmembers(("a", "b", "c"), spectra, None, source="lib.csv")
    fault = scale_fault(open_scene(write_cube(tmp_path / "raw.hdr", counts)), library)
    assert "take (raw - dark) / (white - dark) of counts" in fault and fault.count("`scale`") == 1
    plain = write_cube(tmp_path / "p.hdr", ((counts - dark) / white * 10_000).round().astype(np.uint16))
    assert "`scale` 10000" in scale_fault(open_scene(plain), library)


def test_one_spectrum_does_not_decide_the_unit_of_a_library(tmp_path):
    random = np.random.default_rng(3)
    spectra = random.uniform(0.1, 0.7, (40, 5))
    Y = (random.dirichlet(np.ones(5), (30, 30)) @ spectra.T * 10_000).round().astype(np.int16)
    scene = open_scene(write_cube(tmp_path / "s.hdr", Y, reflectance_scale_factor=10000))
    for change, expected in ((1.0, 10_000), (30.0, None)):
        E = spectra * 10_000 if expected else spectra.copy()
        E[:, 1] *= change
        library = Endmembers(tuple("abcde"), E, None, source="lib.csv")
        assert unit_of_library(scene, library, (None, None)) == expected


@pytest.mark.parametrize(("constant", "light"), [(0.1, 1.0), (0.0, 1.0), (0.0, 0.8)])
def test_the_default_names_an_offset_that_its_free_sum_hides(tmp_path, constant, light):
    """And neither a scene without one, nor one that is darker throughout."""
    random = np.random.default_rng(2)
    Y = light * random.dirichlet(np.ones(3), (20, 20)) @ E.T + constant + random.normal(0, 0.002, (20, 20, 6))
    path, library = write_cube(tmp_path / "s.hdr", Y, **AXIS), write_csv(tmp_path / "lib.csv", E, WAVES)
    report = unmix.run(path, endmembers=library, device="cpu", out_dir=tmp_path / "o")
    assert report["method"] == "nnls"
    assert ("`offset` -0.1 takes it off" in str(report["warnings"]) + "".join(report["warnings"])) == bool(constant)
    found = [one["message"] for one in unmix.check(path, endmembers=library)["findings"]]
    assert any("a constant of" in one for one in found) == bool(constant)


def test_an_offset_is_named_beside_nearly_as_many_spectra_as_bands(tmp_path):
    random = np.random.default_rng(3)
    more = np.column_stack([E, 1.3 * E[:, :2] + 0.02 * random.random((6, 2))])
    Y = random.dirichlet(np.full(5, 0.4), (20, 20)) @ more.T + 0.1 + random.normal(0, 0.0005, (20, 20, 6))
    path, library = write_cube(tmp_path / "s.hdr", Y, **AXIS), write_csv(tmp_path / "lib.csv", more, WAVES)
    report = unmix.run(path, endmembers=library, method="fcls", device="cpu", out_dir=tmp_path / "o")
    assert "a constant of 0.1 lies beside the endmembers" in str(report["warnings"])
