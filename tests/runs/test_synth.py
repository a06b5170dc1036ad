"""Synthetic scenes: what they promise is what they hold."""

import h5py
import naive
import numpy as np
import pytest
from conftest import read_map, refused
from reference.abundances import fcls
from test_cli import unmix as command

import unmix
from unmix.commands.synth import SyntheticScene, project_onto_simplex, synthesise
from unmix.io import open_cube
from unmix.library import load


def cube_of(path, scene):
    order = ">" if scene.byte_order == "big" else "<"
    raw = path.with_suffix(".img").read_bytes()
    shape = (scene.lines, scene.samples, scene.bands)
    return naive.read_envi(raw, *shape, np.dtype(scene.dtype), scene.interleave, order)


def truth_of(path, scene):
    values = np.fromfile(path.with_name(path.stem + "_truth_abundance.img"), "<f4")
    return values.reshape(scene.lines, scene.count, scene.samples).transpose(0, 2, 1)


@pytest.mark.parametrize(
    "dtype", ["uint8", "int16", "int32", "float32", "float64", "uint16", "uint32", "int64", "uint64"]
)
@pytest.mark.parametrize("interleave", ["bip", "bil", "bsq"])
def test_the_scene_is_its_truth(tmp_path, dtype, interleave):
    scene = SyntheticScene(9, 11, 13, 4, snr=None, dtype=dtype, interleave=interleave, byte_order="big")
    synthesise(tmp_path / "s.hdr", scene)
    E = load(tmp_path / "s_truth_endmembers.csv").matrix
    clean = truth_of(tmp_path / "s.hdr", scene) @ E.T
    stored = cube_of(tmp_path / "s.hdr", scene)
    np.testing.assert_allclose(stored / scene.scale, clean, atol=0.51 / scene.scale if scene.scale > 1 else 1e-6)
    cube = open_cube(tmp_path / "s.hdr")
    assert (cube.dtype, cube.interleave, cube.swapped) == (np.dtype(dtype), interleave, dtype != "uint8")


def test_the_same_bytes_for_any_memory(tmp_path):
    scene = SyntheticScene(50, 20, 30, 3, seed=4, interleave="bsq")
    synthesise(tmp_path / "a.hdr", scene, memory=1)
    synthesise(tmp_path / "b.hdr", scene)
    assert (tmp_path / "a.img").read_bytes() == (tmp_path / "b.img").read_bytes()
    synthesise(tmp_path / "b.hdr", SyntheticScene(50, 20, 30, 3, seed=5, interleave="bsq"), overwrite=True)
    assert (tmp_path / "a.img").read_bytes() != (tmp_path / "b.img").read_bytes()


def test_abundances_are_sparse_and_patchy(tmp_path):
    """Mostly 2 to 5 of 25, some 10 and more; the support equals the left neighbour's in about half of the pixels."""
    scene = SyntheticScene(150, 150, 30, 25, seed=1, snr=None)
    synthesise(tmp_path / "s.hdr", scene)
    A = truth_of(tmp_path / "s.hdr", scene)
    np.testing.assert_allclose(A.sum(axis=2), 1, atol=1e-6)
    assert A.min() >= 0
    sizes = (A > 0).sum(axis=2)
    assert np.mean((sizes >= 2) & (sizes <= 5)) > 0.5
    assert sizes.max() >= 10
    assert 0.4 < ((A[:, 1:] > 0) == (A[:, :-1] > 0)).all(axis=2).mean() < 0.95


def test_noise_is_what_was_asked_for(tmp_path):
    scene = SyntheticScene(60, 60, 50, 5, snr=30, dtype="float32")
    synthesise(tmp_path / "s.hdr", scene)
    E = load(tmp_path / "s_truth_endmembers.csv").matrix
    noise = cube_of(tmp_path / "s.hdr", scene) - truth_of(tmp_path / "s.hdr", scene) @ E.T
    assert 10 * np.log10(np.mean(E**2) / np.mean(noise**2)) == pytest.approx(30, abs=0.1)


def test_pure_pixels(tmp_path):
    scene = SyntheticScene(10, 10, 20, 7, pure=True)
    synthesise(tmp_path / "s.hdr", scene)
    assert np.all((truth_of(tmp_path / "s.hdr", scene) == 1).any(axis=(0, 1)))


def test_the_nearest_point_of_the_simplex():
    V = np.random.default_rng(0).standard_normal((50, 4)) * 2
    for v, a in zip(V, project_onto_simplex(V)):
        np.testing.assert_allclose(a, fcls(np.eye(4), v), atol=1e-12)


@pytest.mark.parametrize(
    "scene",
    [
        SyntheticScene(lines=0),
        SyntheticScene(bands=3, count=4),
        SyntheticScene(dtype="complex64"),
        SyntheticScene(1, 2, 9, 3, pure=True),
    ],
)
def test_impossible_scenes(tmp_path, scene):
    refused(unmix.MethodError, None, synthesise, tmp_path / "s.hdr", scene)
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten_unasked(tmp_path):
    synthesise(tmp_path / "s.hdr", SyntheticScene(3, 3, 5, 2))
    refused(unmix.OutputError, "exists already", lambda: synthesise(tmp_path / "s.hdr", SyntheticScene(3, 3, 5, 2)))


def test_a_granule_like_those_of_emit(tmp_path):
    """What it says of itself is what a run finds: fractions by class, noise, mask, place; and a seed gives the same bytes."""
    for name in "ab":
        command("synth", tmp_path / f"{name}.nc", "--like", "emit", "--lines", 24, "--samples", 30, "--seed", 3)
    kinds = (".nc", "_uncertainty.nc", "_mask.nc", "_library.csv", "_truth_fraction.img", "_truth_fraction.hdr")
    for kind in kinds:
        assert (tmp_path / f"a{kind}").read_bytes() == (tmp_path / f"b{kind}").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}{kind}" for name in "ab" for kind in kinds}
    truth = np.fromfile(tmp_path / "a_truth_fraction.img", "<f4").reshape(24, 30, 4)
    assert np.allclose(truth.sum(axis=2), 1, atol=1e-6) and truth.min() >= 0 and truth[..., 3].min() >= 0.05
    report = unmix.run(
        tmp_path / "a.nc",
        endmembers=tmp_path / "a_library.csv",
        method="pcls",
        by="class",
        ortho=True,
        mask_out=f"{tmp_path / 'a_mask.nc'}:Cloud flag",
        out_dir=tmp_path / "out",
    )
    found = read_map(tmp_path / "out/a", "fraction")
    clear = found[..., 0] != -9999
    assert report["pixels"]["masked"] == (~clear).sum() > 0 and report["acquisition"]["sensor type"] == "EMIT"
    assert np.abs(found[clear][:, :4] - truth[clear]).max() < 0.05 and len(report["bands_used"]) < 260
    assert report["fit"]["relative_rmse"]["maximum"] < 0.03
    with h5py.File(tmp_path / "a.nc") as file, h5py.File(tmp_path / "a_uncertainty.nc") as noise:
        x, y, lon, lat = (file[f"location/{key}"][()] for key in ("glt_x", "glt_y", "lon", "lat"))
        _, across, _, _, _, down = transform = file.attrs["geotransform"]
        good = file["sensor_band_parameters/good_wavelengths"][()] != 0
        assert file["reflectance"][()][clear][:, good].min() > -0.05
        assert np.all(file["reflectance"][()][..., ~good] == np.float32(-0.01))
        assert noise["reflectance_uncertainty"][()].min() > 0
    rows, columns = np.nonzero(x)
    assert (
        len(np.unique(x[rows, columns] * 1000 + y[rows, columns])) > 0.75 * 24 * 30
    )  # nearly every pixel is on the map
    at = y[rows, columns] - 1, x[rows, columns] - 1
    assert np.abs(lon[at] - transform[0] - across * (columns + 0.5)).max() < 0.75 * across
    assert np.abs(lat[at] - transform[3] - down * (rows + 0.5)).max() < 0.75 * -down


def test_a_granule_is_netcdf_by_its_name(tmp_path):
    out, _ = command("synth", tmp_path / "plain", "--like", "emit", "--lines", "12", "--samples", "10")
    assert str(tmp_path / "plain.nc") in out.splitlines()


def test_a_granule_that_cannot_be(tmp_path):
    said = command("synth", tmp_path / "a.nc", "--like", "emit", "--bands", 9, code=2)[1]
    assert "--bands is not for --like emit" in said
    assert "ends in .nc" in command("synth", tmp_path / "a.hdr", "--like", "emit", code=2)[1]
    assert "at least 1" in command("synth", tmp_path / "a.nc", "--like", "emit", "--lines", 0, code=2)[1]
    assert not list(tmp_path.iterdir())
    (tmp_path / "a_mask.nc").write_text("mine")
    assert "a_mask.nc: exists already" in command("synth", tmp_path / "a.nc", "--like", "emit", "--lines", 3, code=1)[1]
    assert [path.name for path in tmp_path.iterdir()] == ["a_mask.nc"]


@pytest.mark.parametrize(("ending", "option"), [("_mask.nc", "--mask-out"), ("_uncertainty.nc", "--noise")])
def test_what_belongs_to_a_granule_is_no_scene(tmp_path, ending, option):
    command("synth", tmp_path / "a.nc", "--like", "emit", "--lines", "20", "--samples", "20")
    for words in (("run", "-n", "3"), ("count",), ("endmembers", "-n", "3"), ("check",)):
        _, err = command(words[0], tmp_path / f"a{ending}", *words[1:], code=3)
        assert f"no scene; it belongs to one, with {option}" in err
    assert command("info", tmp_path / f"a{ending}")[0]
