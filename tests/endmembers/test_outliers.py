"""Pixels that are left out of the extraction: outliers, against each pixel's distance from all others, and those of a mask."""

import numpy as np
import pytest
from conftest import falsify_record, refused, write_cube
from test_endmembers import moments_of
from test_nfindr import scene

import unmix
from unmix.commands.verify import verify
from unmix.endmembers.outliers import distances, whitening


def distances_from_others(Y):
    """Take each pixel out in turn, and compare it with mean and covariance of the others."""
    found = []
    for n, y in enumerate(Y):
        others = np.delete(Y, n, axis=0)
        centred = y - others.mean(axis=0)
        found.append(np.sqrt(centred @ np.linalg.solve(np.cov(others.T, bias=True), centred) / len(y)))
    return np.array(found)


def spoiled(seed, places):
    """A scene of noise enough for a covariance of full rank, with some hot pixels."""
    Y = scene(seed, 4, lines=14) + 0.002 * np.random.default_rng(seed).standard_normal((14, 13, 12))
    for k, (line, sample) in enumerate(places):
        Y[line, sample, 3 + k] += 4.0
    return Y


def test_distances_are_those_from_all_other_pixels(tmp_path):
    Y = spoiled(1, [(2, 5), (9, 1)])
    expected = distances_from_others(Y.reshape(-1, 12))
    usual = expected[expected < 3]
    assert len(usual) == len(expected) - 2 and 0.9 < np.sqrt(np.square(usual).mean()) < 1.1
    path = write_cube(tmp_path / "x.hdr", Y)
    moments = moments_of(path)
    Z = (Y.reshape(-1, 12) - moments.mean) @ whitening(moments)
    np.testing.assert_allclose(distances(Z, moments.pixels), expected, rtol=1e-9)
    for limit in (3.0, expected.max() * 0.99):
        quality = unmix.extract(path, count=3, outliers=limit).quality["outliers"]
        places = [divmod(int(n), 13) for n in np.flatnonzero(expected > limit)]
        assert quality == {"limit": limit, "pixels": len(places), "places": [list(place) for place in places]}


@pytest.mark.parametrize(
    ("dtype", "extract"),
    [
        ("float32", "vca"),
        ("int16", "vca"),
        ("uint8", "vca"),
        ("float32", "nfindr"),
        ("int16", "spa"),
        ("uint8", "sisal"),
    ],
)
def test_hot_pixels_change_nothing(tmp_path, dtype, extract):
    """The same as of the scene without them, whatever type has to hold a mask."""
    Y = np.round(spoiled(4, [(0, 0), (13, 12), (7, 3)]) * 50).astype(dtype)
    keep = np.ones((14, 13, 1), np.uint8)
    keep[[0, 13, 7], [0, 12, 3]] = 0
    path = write_cube(tmp_path / "x.hdr", Y, "bil")
    write_cube(tmp_path / "keep.hdr", keep)
    words = {"count": 4, "extract": extract}
    found = unmix.extract(path, outliers=8, memory="20k", **words)
    masked = unmix.extract(path, mask=f"{tmp_path}/keep.hdr", **words)
    assert found.quality["outliers"]["places"] == [[0, 0], [7, 3], [13, 12]]
    np.testing.assert_array_equal(found.matrix, masked.matrix)
    assert found.pixels == masked.pixels
    assert extract == "sisal" or set(unmix.extract(path, **words).pixels) & {(0, 0), (7, 3), (13, 12)}


def test_a_run_leaves_them_out_of_the_extraction_alone(tmp_path):
    path = write_cube(tmp_path / "x.hdr", spoiled(2, [(3, 4)]))
    report = unmix.run(path, count=4, outliers=10, smooth=3, device="cpu", browse=False)
    assert report["pixels"]["solved"] == 14 * 13 and report["passes"] > 3
    assert report["endmembers"]["quality"]["outliers"]["places"] == [[3, 4]]
    assert report["endmembers"]["simplex"]["starts"] == 1
    assert verify(tmp_path / "x", everything=True).faults == []
    falsify_record(tmp_path / "x", lambda record: record["endmembers"]["quality"]["outliers"].update(pixels=2))
    assert any("quality of the endmembers" in fault for fault in verify(tmp_path / "x", everything=True).faults)


def test_outliers_of_several_scenes_are_far_from_all(tmp_path):
    Y = spoiled(5, [(2, 5), (9, 1)])
    parts = [write_cube(tmp_path / f"{k}.hdr", part) for k, part in enumerate((Y[:7], Y[7:]))]
    whole = unmix.extract(write_cube(tmp_path / "x.hdr", Y), count=4, outliers=10)
    found = unmix.extract(parts, count=4, outliers=10)
    np.testing.assert_allclose(found.matrix, whole.matrix, rtol=1e-9)
    assert found.quality["outliers"]["places"] == [[0, 2, 5], [1, 2, 1]]


def test_starts_from_more_pixels_above_six_endmembers(tmp_path):
    path = write_cube(tmp_path / "x.hdr", np.random.default_rng(3).uniform(0, 1, (15, 16, 12)))
    few, more = (unmix.extract(path, count=count, extract="nfindr", seed=2**63 - 1).simplex for count in (6, 8))
    assert few["starts"] == few["agree"] == 1 and more["starts"] == 4 and 1 <= more["agree"] <= 4


def test_a_mask_for_the_extraction(tmp_path):
    """Endmembers as of the masked scene, abundances of all pixels; the mask is an input like others."""
    path = write_cube(tmp_path / "x.hdr", spoiled(3, [(1, 1)]))
    keep = np.zeros((14, 13, 1), np.uint8)
    keep[2:12, 3:] = 1
    mask = write_cube(tmp_path / "keep.hdr", keep)
    words = {"count": 3, "device": "cpu", "browse": False}
    report = unmix.run(path, extract_mask=str(mask), **words)
    masked = unmix.extract(path, count=3, mask=str(mask))
    np.testing.assert_array_equal(unmix.load_library(tmp_path / "x_endmembers.csv").matrix, masked.matrix)
    assert report["pixels"]["solved"] == 14 * 13
    assert verify(tmp_path / "x", everything=True).faults == []
    assert unmix.run(path, extract_mask=str(mask), skip_existing=True, **words)["skipped"]
    write_cube(tmp_path / "keep.hdr", 1 - keep)
    refused(unmix.OutputError, None, unmix.run, path, extract_mask=str(mask), skip_existing=True, **words)
    with pytest.raises(unmix.MethodError, match="`extract_mask` does not go with `endmembers`"):
        unmix.run(path, endmembers=tmp_path / "x_endmembers.csv", extract_mask=str(mask), overwrite=True)
    command = unmix.run(path, extract_mask=str(mask), out_dir=tmp_path / "part", lines="1:13", **words)
    assert command["pixels"]["solved"] == 12 * 13 and verify(tmp_path / "part/x", everything=True).faults == []


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"outliers": 1.5}, "`outliers` 1.5: must be 0 or a number from 2 on"),
        ({"outliers": 2.0}, "these are no outliers"),
        ({"outliers": float("inf")}, "must be 0 or a number from 2 on"),
    ],
)
def test_what_does_not_fit(tmp_path, words, text):
    """The scene is of two spectra, one of which a ninth of its pixels have: at a distance of √8."""
    Y = np.full((12, 12, 6), 0.3)
    Y[::3, ::3, 0] = 0.7
    refused(unmix.UnmixError, text, lambda: unmix.extract(write_cube(tmp_path / "x.hdr", Y), count=2, **words))


def test_too_few_pixels_to_tell(tmp_path):
    path = write_cube(tmp_path / "x.hdr", np.random.default_rng(0).random((4, 5, 30)))
    with pytest.raises(unmix.CubeError, match="20 valid pixels in 19 dimensions are too few to tell outliers"):
        unmix.extract(path, count=3, outliers=10)


def test_a_seed_beyond_the_last(tmp_path):
    path = write_cube(tmp_path / "x.hdr", scene(3, 4))
    refused(unmix.MethodError, "seed", unmix.extract, path, count=4, seed=2**63)


def test_a_mask_for_the_extraction_is_refused_where_nothing_is_extracted(tmp_path):
    path = write_cube(tmp_path / "x.hdr", spoiled(3, [(1, 1), (1, 2)]))  # of which none is odd
    keep = np.ones((14, 13, 1), np.uint8)
    keep[1, 1:3] = 0
    mask = str(write_cube(tmp_path / "keep.hdr", keep))
    refused(unmix.MethodError, "`extract_mask` is for the extraction", unmix.mnf, path, extract_mask=mask)
    unmix.nmf_scene(path, count=3, start="nfindr", extract_mask=mask, steps=1, out_dir=tmp_path / "n")
    unmix.nmf_scene(path, count=3, start="nfindr", steps=1, out_dir=tmp_path / "m")
    masked, whole = (unmix.load_library(tmp_path / f"{folder}/x_endmembers.csv").matrix for folder in "nm")
    assert np.abs(masked - whole).max() > 0.1  # after one step of the factorisation, which is of all pixels
    nothing = str(write_cube(tmp_path / "none.hdr", 0 * keep))
    refused(unmix.CubeError, "left out by `extract_mask`", unmix.run, path, count=3, extract_mask=nothing, device="cpu")
