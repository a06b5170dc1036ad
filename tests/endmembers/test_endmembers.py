"""HySime and VCA: recovery, repeatability, and a plain reading beside."""

import os

import naive
import numpy as np
import pytest
from conftest import mix, refused, write_cube

import unmix
from unmix import io
from unmix.commands.synth import SyntheticScene, synthesise
from unmix.commands.verify import verify
from unmix.endmembers import count_endmembers, extract_from
from unmix.endmembers.counts import noise_regression
from unmix.endmembers.scan.points import Points
from unmix.endmembers.statistics import merged, moments
from unmix.io import open_cube
from unmix.library import load
from unmix.methods import METHODS, Extraction
from unmix.scene.bands import choose_bands


def extract(path, p, seed=0, budget=2**30, threads=2, name="vca", refine=False, **words):
    cube = open_cube(path)
    how = Extraction(p, name, refine, seed=seed, **words)
    return extract_from([io.Scene(cube, choose_bands(cube, "good", None), cube.nodata)], how, budget, threads)[0]


def moments_of(path, budget=2**30, threads=2):
    cube = open_cube(path)
    return moments(io.Scene(cube, choose_bands(cube, "good", None), cube.nodata), budget, threads)


@pytest.mark.parametrize(("dtype", "limit"), [("float32", 1e-6), ("float64", 1e-6), ("int16", 3e-4)])
@pytest.mark.parametrize("p", [3, 6, 12])
def test_pure_pixels_of_a_noise_free_scene_are_found(tmp_path, dtype, limit, p):
    scene = SyntheticScene(lines=50, samples=70, bands=120, count=p, seed=p, snr=None, pure=True, dtype=dtype)
    synthesise(tmp_path / "s.hdr", scene)
    truth = load(tmp_path / "s_truth_endmembers.csv").matrix
    for seed in range(3):
        found = extract(tmp_path / "s.hdr", p, seed)
        for j in range(p):
            assert min(naive.angle(truth[:, j], found.matrix[:, i]) for i in range(p)) < limit


def test_moments_against_numpy(scene):
    path = scene
    cube = open_cube(path)
    raw = path.with_suffix(".img").read_bytes()
    Y = naive.read_envi(raw, 7, 70, 20, np.int16, "bil", "<").reshape(-1, 20) / 1e4
    found = moments_of(path)
    assert found.pixels == 490
    np.testing.assert_allclose(found.mean, Y.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.second, Y.T @ Y / 490, rtol=1e-12)
    d = np.diff(Y.reshape(7, 70, 20), axis=1).reshape(-1, 20)
    d = d[(d != 0).any(axis=1)]
    assert found.pairs == len(d)
    np.testing.assert_allclose(found.differences, d.T @ d / (2 * len(d)), rtol=1e-12)
    assert cube.bands == 20


@pytest.mark.parametrize("offset", [1e3, 1e5, 1e7, -1e7])
@pytest.mark.parametrize("empty", [0, 1, 6])
def test_moments_of_an_offset(tmp_path, offset, empty):
    """An offset of all values, or lines of zeros, takes no digit of the covariance; the mean of two scenes is about their own."""
    random = np.random.default_rng(3)
    X = random.standard_normal((9, 40, 6)) @ (random.standard_normal((6, 6)) * 10.0 ** -np.arange(0, 3, 0.5)[:, None])
    Y = offset + X
    Y[:empty] = 0
    path = write_cube(tmp_path / "s.hdr", Y, data_ignore_value=0)
    exact = Y[empty:].reshape(-1, 6).astype(np.longdouble)
    centred = exact - exact.mean(axis=0)
    W = np.linalg.inv(np.linalg.cholesky((centred.T @ centred / len(exact)).astype(float)))
    found = moments_of(path)
    # in units of the weakest direction
    np.testing.assert_allclose(W @ found.covariance @ W.T, np.eye(6), rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.mean, exact.mean(axis=0).astype(float), rtol=1e-15)
    parts = [write_cube(tmp_path / f"{k}.hdr", part) for k, part in enumerate((Y[empty : empty + 1], Y[empty + 1 :]))]
    np.testing.assert_allclose(
        W @ merged([moments_of(part) for part in parts]).covariance @ W.T, np.eye(6), rtol=0, atol=1e-6
    )


def test_the_same_bytes_for_any_blocks_threads_and_interleave(tmp_path, scene):
    reference = moments_of(scene)
    picked = extract(scene, 4)
    cube = naive.read_envi(scene.with_suffix(".img").read_bytes(), 7, 70, 20, np.int16, "bil", "<")
    for interleave in ("bip", "bil", "bsq"):
        path = write_cube(tmp_path / f"{interleave}.hdr", cube, interleave, reflectance_scale_factor=10000)
        for budget, threads in ((6000, 1), (19000, 3), (2**30, 2)):
            found = moments_of(path, budget, threads)
            np.testing.assert_array_equal(found.second, reference.second)
            np.testing.assert_array_equal(found.mean, reference.mean)
            np.testing.assert_array_equal(found.differences, reference.differences)
            again = extract(path, 4, 0, budget, threads)
            assert again.pixels == picked.pixels
            np.testing.assert_array_equal(again.matrix, picked.matrix)


def test_masked_pixels_are_left_out(tmp_path):
    _, _, Y = mix(0, (8, 9), 10, 3, (0.1, 1.1))
    cube = Y.astype(np.float32)
    dirty = cube.copy()
    dirty[2, 3] = np.nan
    dirty[4, 5, 7] = -9999
    dirty[0, 0] = 1e30
    dirty[0, 0, 1] = np.inf
    path = write_cube(tmp_path / "x.hdr", dirty, data_ignore_value=-9999)
    good = np.delete(cube.reshape(-1, 10), [2 * 9 + 3, 4 * 9 + 5, 0], axis=0).astype(np.float64)
    found = moments_of(path)
    assert found.pixels == 69
    np.testing.assert_allclose(found.second, good.T @ good / 69, rtol=1e-6)
    assert not {(2, 3), (4, 5), (0, 0)} & set(extract(path, 3).pixels)


def test_a_plain_reading_picks_the_same_pixels(tmp_path):
    for snr in (15, 60):  # below and above VCA's threshold
        synthesise(tmp_path / "s.hdr", SyntheticScene(30, 40, 60, 4, snr=snr, dtype="float64"), overwrite=True)
        cube = naive.read_envi((tmp_path / "s.img").read_bytes(), 30, 40, 60, np.float64, "bil", "<")
        places, projected = naive.vca(cube.reshape(-1, 60), 4, 7)
        found = extract(tmp_path / "s.hdr", 4, 7)
        # The signs of eigenvectors are anybody's choice and the random directions live in their coordinates, so pixels
        # may differ where corners are rounded by noise; in the quiet scene they are the corners.
        if snr == 60:
            for n in range(4):
                assert min(naive.angle(found.matrix[:, n], projected[:, i]) for i in range(4)) < 0.1
        assert len(set(found.pixels)) == len(set(places)) == 4


@pytest.mark.parametrize(
    "snr", [pytest.param(20, marks=pytest.mark.slow), 35, pytest.param(50, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("p", [2, 5, 9])
def test_hysime_against_its_definition(tmp_path, p, snr):
    synthesise(tmp_path / "s.hdr", SyntheticScene(30, 40, 60, p, seed=p, snr=snr, dtype="float64"))
    cube = open_cube(tmp_path / "s.hdr")
    Y = naive.read_envi((tmp_path / "s.img").read_bytes(), 30, 40, 60, np.float64, "bil", "<").reshape(-1, 60)
    assert count_endmembers(io.Scene(cube, choose_bands(cube, "good", None), None), 2**30).by["hysime"] == naive.hysime(
        Y
    )


@pytest.mark.parametrize("p", [2, 4, 6])
def test_hysime_counts_what_a_clear_scene_is_made_of(tmp_path, p):
    synthesise(tmp_path / "s.hdr", SyntheticScene(60, 60, 100, p, seed=1, snr=50, pure=True, dtype="float32"))
    cube = open_cube(tmp_path / "s.hdr")
    counts = count_endmembers(io.Scene(cube, choose_bands(cube, "good", None), None), 2**30)
    assert counts.by["hysime"] == counts.by["mnf"] == counts.auto == p


def test_the_noise_regression_is_least_squares(tmp_path):
    synthesise(tmp_path / "s.hdr", SyntheticScene(20, 20, 12, 3, snr=30, dtype="float64"))
    Y = naive.read_envi((tmp_path / "s.img").read_bytes(), 20, 20, 12, np.float64, "bil", "<").reshape(-1, 12)
    rest = np.eye(12) - noise_regression(moments_of(tmp_path / "s.hdr").second)
    expected = np.square(naive.noise_of_bands(Y)).mean(axis=0)
    np.testing.assert_allclose(np.square(Y @ rest).mean(axis=0), expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("count", "name", "fault"), [(99, "vca", "from 1 to 20"), (0, "vca", "from 1"), (3, "magic", "vca")]
)
def test_unfit_requests(scene, count, name, fault):
    cube = open_cube(scene)
    with pytest.raises(unmix.MethodError, match=fault):
        extract_from([io.Scene(cube, choose_bands(cube, "good", None), None)], Extraction(count, name), 2**30)


def test_scenes_without_signal_or_variety(tmp_path):
    zero = open_cube(write_cube(tmp_path / "zero.hdr", np.zeros((3, 4, 9), np.int16)))
    flat = open_cube(write_cube(tmp_path / "flat.hdr", np.full((3, 4, 9), 7, np.int16)))
    bands = choose_bands(zero, "good", None)
    refused(unmix.CubeError, "all zero", lambda: extract_from([io.Scene(zero, bands, None)], Extraction(2), 2**30))
    refused(unmix.CubeError, "all zero", lambda: count_endmembers(io.Scene(zero, bands, None), 2**30))
    refused(unmix.CubeError, "distinct", lambda: extract_from([io.Scene(flat, bands, None)], Extraction(2), 2**30))


def test_one_endmember_is_the_brightest_valid_pixel(tmp_path):
    cube = np.arange(1, 5, dtype=np.float32).reshape(2, 2, 1) * np.array([1, 2, 3], np.float32)
    cube[0, 0] = np.nan
    assert extract(write_cube(tmp_path / "x.hdr", cube), 1).pixels == ((1, 1),)


def test_more_bands_than_their_second_moment_has_room_for(tmp_path, cube_writer):
    header = cube_writer(tmp_path / "x.hdr", np.ones((1, 1, 6000), np.int16), "bip")
    with pytest.raises(unmix.CubeError, match="6000 bands: their second moment takes"):
        unmix.run(header, count=2, memory="64M", device="cpu", out_dir=tmp_path)


@pytest.mark.parametrize("interleave", ["bip", "bil", "bsq"])
def test_spa_is_the_plain_reading(tmp_path, interleave):
    """In all bands, centred, with a constant; pure pixels are found, one in the shade of all others too; masked ones never."""
    random = np.random.default_rng(4)
    E = random.random((40, 5)) + 0.1
    E[:, 2] *= 0.01  # shade
    A = random.dirichlet([0.5] * 5, 30 * 25)
    pure = random.choice(np.arange(1, 30 * 25), 5, replace=False)
    A[pure] = np.eye(5)
    Y = A @ E.T + 1e-4 * random.standard_normal((30 * 25, 40))
    expected = naive.spa(Y[1:], 5)
    Y[0] = -9999.0
    cube = open_cube(write_cube(tmp_path / "c.hdr", Y.reshape(30, 25, 40), interleave))
    bands = choose_bands(cube, "all", None)
    for seed, memory, threads in ((0, 2**30, 1), (1, 12_000, 3)):
        found, passes = extract_from([io.Scene(cube, bands, -9999.0)], Extraction(5, "spa", seed=seed), memory, threads)
        assert [line * 25 + sample - 1 for line, sample in found.pixels] == expected and passes == 6
    assert sorted(place + 1 for place in expected) == sorted(pure) and found.source == "spa"


def test_spa_of_fewer_spectra_than_asked_for(tmp_path):
    Y = np.repeat(np.random.default_rng(0).random((3, 9)), 4, axis=0)
    cube = open_cube(write_cube(tmp_path / "c.hdr", Y.reshape(3, 4, 9)))
    with pytest.raises(unmix.CubeError, match="only 3 distinct spectra by spa, not 4"):
        extract_from([io.Scene(cube, choose_bands(cube, "all", None), None)], Extraction(4, "spa"), 2**30)
    assert (
        len(extract_from([io.Scene(cube, choose_bands(cube, "all", None), None)], Extraction(3, "spa"), 2**30)[0].names)
        == 3
    )


def test_spa_of_a_scene_of_one_spectrum(tmp_path):
    cube = open_cube(write_cube(tmp_path / "c.hdr", np.ones((3, 4, 9))))
    bands = choose_bands(cube, "all", None)
    assert extract_from([io.Scene(cube, bands, None)], Extraction(1, "spa"), 2**30)[0].pixels == ((0, 0),)
    with pytest.raises(unmix.CubeError, match="only 1 distinct"):
        extract_from([io.Scene(cube, bands, None)], Extraction(2, "spa"), 2**30)


@pytest.mark.parametrize("name", ["nfindr", "vca", "sisal"])
def test_two_passes(tmp_path, name):
    """And 8 (p − 1) bytes a pixel, in memory or a scratch file."""
    _, _, Y = mix(0, (20, 30), 12, 8, (0, 1), noise=0.01)
    cube = open_cube(write_cube(tmp_path / "c.hdr", Y))
    scene = io.Scene(cube, choose_bands(cube, "all", None), None)
    assert extract_from([scene], Extraction(8, name, True), 2**30)[1] == 2
    assert Points(600, 7, 2**20).held.nbytes == 8 * 7 * 600
    without_memory = Points(600, 7, 0)
    assert os.fstat(without_memory.scratch.fileno()).st_nlink == 0  # nobody can open it by a name
    without_memory.close()


@pytest.mark.parametrize(
    ("method", "extract"), [*((method, "vca") for method in METHODS), ("pcls", "sisal"), ("pcls", "cone")]
)
def test_every_method_takes_what_was_extracted(tmp_path, method, extract):
    """Also one with shade, which lies at no pixel."""
    random = np.random.default_rng(2)
    Y = random.dirichlet(np.full(3, 0.3), (12, 14)) @ (random.random((3, 9)) + 0.1)
    path = write_cube(tmp_path / "s.hdr", Y + 1e-3 * random.standard_normal(Y.shape))
    report = unmix.run(path, count=3, method=method, extract=extract, device="cpu", browse=False)
    assert report["pixels"]["certified"] == 168 and verify(tmp_path / "s", everything=True).faults == []
    assert unmix.run(path, count=3, method=method, extract=extract, device="cpu", browse=False, skip_existing=True)[
        "skipped"
    ]
