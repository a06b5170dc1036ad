"""Synthetic scenes: what they promise is what they hold."""

import naive
import numpy as np
import pytest

import unmix
from unmix.io import open_cube
from unmix.jobs.synth import Scene, project_onto_simplex, synthesise
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
    scene = Scene(9, 11, 13, 4, snr=None, dtype=dtype, interleave=interleave, byte_order="big")
    synthesise(tmp_path / "s.hdr", scene)
    E = load(tmp_path / "s_truth_endmembers.csv").matrix
    clean = truth_of(tmp_path / "s.hdr", scene) @ E.T
    stored = cube_of(tmp_path / "s.hdr", scene)
    np.testing.assert_allclose(stored / scene.scale, clean, atol=0.51 / scene.scale if scene.scale > 1 else 1e-6)
    cube = open_cube(tmp_path / "s.hdr")
    assert (cube.dtype, cube.interleave, cube.swapped) == (np.dtype(dtype), interleave, dtype != "uint8")


def test_the_same_bytes_for_any_memory(tmp_path):
    scene = Scene(50, 20, 30, 3, seed=4, interleave="bsq")
    synthesise(tmp_path / "a.hdr", scene, memory=1)
    synthesise(tmp_path / "b.hdr", scene)
    assert (tmp_path / "a.img").read_bytes() == (tmp_path / "b.img").read_bytes()
    synthesise(tmp_path / "b.hdr", Scene(50, 20, 30, 3, seed=5, interleave="bsq"), overwrite=True)
    assert (tmp_path / "a.img").read_bytes() != (tmp_path / "b.img").read_bytes()


def test_abundances_are_sparse_and_patchy(tmp_path):
    """Mostly 2 to 5 of 25, some 10 and more; the support equals the left neighbour's in about half of the pixels."""
    scene = Scene(150, 150, 30, 25, seed=1, snr=None)
    synthesise(tmp_path / "s.hdr", scene)
    A = truth_of(tmp_path / "s.hdr", scene)
    np.testing.assert_allclose(A.sum(axis=2), 1, atol=1e-6)
    assert A.min() >= 0
    sizes = (A > 0).sum(axis=2)
    assert np.mean((sizes >= 2) & (sizes <= 5)) > 0.5
    assert sizes.max() >= 10
    same = ((A[:, 1:] > 0) == (A[:, :-1] > 0)).all(axis=2)
    assert 0.4 < same.mean() < 0.95


def test_noise_is_what_was_asked_for(tmp_path):
    scene = Scene(60, 60, 50, 5, snr=30, dtype="float32")
    synthesise(tmp_path / "s.hdr", scene)
    E = load(tmp_path / "s_truth_endmembers.csv").matrix
    noise = cube_of(tmp_path / "s.hdr", scene) - truth_of(tmp_path / "s.hdr", scene) @ E.T
    assert 10 * np.log10(np.mean(E**2) / np.mean(noise**2)) == pytest.approx(30, abs=0.1)


def test_pure_pixels(tmp_path):
    scene = Scene(10, 10, 20, 7, pure=True)
    synthesise(tmp_path / "s.hdr", scene)
    A = truth_of(tmp_path / "s.hdr", scene)
    assert np.all((A == 1).any(axis=(0, 1)))


def test_the_nearest_point_of_the_simplex():
    random = np.random.default_rng(0)
    V = random.standard_normal((50, 4)) * 2
    for v, a in zip(V, project_onto_simplex(V)):
        np.testing.assert_allclose(a, naive.constrained(np.eye(4), v, True), atol=1e-12)


@pytest.mark.parametrize(
    "scene", [Scene(lines=0), Scene(bands=3, count=4), Scene(dtype="complex64"), Scene(1, 2, 9, 3, pure=True)]
)
def test_impossible_scenes(tmp_path, scene):
    with pytest.raises(unmix.MethodError):
        synthesise(tmp_path / "s.hdr", scene)
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten_unasked(tmp_path):
    synthesise(tmp_path / "s.hdr", Scene(3, 3, 5, 2))
    with pytest.raises(unmix.OutputError, match="exists already"):
        synthesise(tmp_path / "s.hdr", Scene(3, 3, 5, 2))
