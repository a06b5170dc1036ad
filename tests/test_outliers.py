"""Pixels that are left out of the extraction: outliers, against each pixel's distance from all others, and those of a mask."""

import numpy as np
import pytest
from conftest import falsify_record, write_cube
from test_endmembers import moments_of
from test_nfindr import scene

import unmix
from unmix.endmembers.outliers import distances, whitening
from unmix.jobs.verify import verify


def distances_from_others(Y):
    """Take each pixel out in turn, and compare it with mean and covariance of the others."""
    found = []
    for n, y in enumerate(Y):
        others = np.delete(Y, n, axis=0)
        centred = y - others.mean(axis=0)
        C = np.cov(others.T, bias=True)
        found.append(np.sqrt(centred @ np.linalg.solve(C, centred) / len(y)))
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
    path = write_cube(tmp_path / "x.hdr", Y)
    moments = moments_of(path)
    Z = (Y.reshape(-1, 12) - moments.mean) @ whitening(moments)
    np.testing.assert_allclose(distances(Z, moments.pixels), expected, rtol=1e-9)
    for limit in (3.0, expected.max() * 0.99):
        quality = unmix.extract(path, count=3, outliers=limit).quality["outliers"]
        places = [divmod(int(n), 13) for n in np.flatnonzero(expected > limit)]
        assert quality == {"limit": limit, "pixels": len(places), "places": [list(place) for place in places]}


@pytest.mark.parametrize("dtype", ["float32", "int16", "uint8"])
@pytest.mark.parametrize("extract", ["vca", "nfindr", "spa", "sisal"])
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
    report = unmix.run(path, count=4, outliers=10, smooth=3, restarts=2, device="cpu", browse=False)
    assert report["pixels"]["solved"] == 14 * 13 and report["passes"] > 3
    assert report["endmembers"]["quality"]["outliers"]["places"] == [[3, 4]]
    assert report["endmembers"]["simplex"]["starts"] == 3
    assert verify(tmp_path / "x", everything=True).faults == []
    falsify_record(tmp_path / "x", lambda record: record["endmembers"]["quality"]["outliers"].update(pixels=2))
    assert any("outliers" in fault for fault in verify(tmp_path / "x", everything=True).faults)


def test_outliers_of_several_scenes_are_far_from_all(tmp_path):
    Y = spoiled(5, [(2, 5), (9, 1)])
    parts = [write_cube(tmp_path / f"{k}.hdr", part) for k, part in enumerate((Y[:7], Y[7:]))]
    whole = unmix.extract(write_cube(tmp_path / "x.hdr", Y), count=4, outliers=10)
    found = unmix.extract(parts, count=4, outliers=10)
    np.testing.assert_array_equal(found.matrix, whole.matrix)
    assert found.quality["outliers"]["places"] == [[0, 2, 5], [1, 2, 1]]


def test_more_restarts_never_find_a_smaller_simplex(tmp_path):
    path = write_cube(tmp_path / "x.hdr", np.random.default_rng(3).uniform(0, 1, (15, 16, 12)))
    for extract in ("vca", "nfindr"):
        few, more = (unmix.extract(path, count=8, extract=extract, restarts=n).simplex for n in (0, 12))
        assert few["starts"] == few["agree"] == 1 and more["starts"] == 13 and 1 <= more["agree"] <= 13
        assert more["log_volume"] >= few["log_volume"] - 1e-9
    default = unmix.extract(path, count=8, extract="nfindr").simplex
    assert default == unmix.extract(path, count=8, extract="nfindr", restarts=3).simplex


def test_a_mask_for_the_extraction(tmp_path):
    """Endmembers as of the masked scene, abundances of all pixels; the mask is an input like others."""
    Y = spoiled(3, [(1, 1)])
    path = write_cube(tmp_path / "x.hdr", Y)
    keep = np.zeros((14, 13, 1), np.uint8)
    keep[2:12, 3:] = 1
    mask = write_cube(tmp_path / "keep.hdr", keep)
    words = {"count": 3, "device": "cpu", "browse": False}
    report = unmix.run(path, extract_mask=str(mask), **words)
    masked = unmix.extract(path, count=3, mask=str(mask))
    library = unmix.load_library(tmp_path / "x_endmembers.csv")
    np.testing.assert_array_equal(library.matrix, masked.matrix)
    assert report["pixels"]["solved"] == 14 * 13
    assert verify(tmp_path / "x", everything=True).faults == []
    assert unmix.run(path, extract_mask=str(mask), skip_existing=True, **words)["skipped"]
    write_cube(tmp_path / "keep.hdr", 1 - keep)
    with pytest.raises(unmix.OutputError):
        unmix.run(path, extract_mask=str(mask), skip_existing=True, **words)
    with pytest.raises(unmix.MethodError, match="`extract_mask` is for endmembers that are extracted"):
        unmix.run(path, endmembers=tmp_path / "x_endmembers.csv", extract_mask=str(mask), overwrite=True)
    command = unmix.run(path, extract_mask=str(mask), out_dir=tmp_path / "part", lines="1:13", **words)
    assert command["pixels"]["solved"] == 12 * 13 and verify(tmp_path / "part/x", everything=True).faults == []


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"outliers": 1.5}, "`outliers` 1.5: must be at least 2"),
        ({"outliers": 2.0}, "these are no outliers"),
        ({"restarts": -1}, "`restarts` -1: must be from 0 to 1000"),
        ({"restarts": 2, "extract": "spa"}, "`restarts` is for exchanges"),
        ({"restarts": 2, "refine": False}, "`restarts` is for exchanges"),
    ],
)
def test_what_does_not_fit(tmp_path, words, text):
    """The scene is of two spectra, one of which a ninth of its pixels have: at a distance of √8."""
    Y = np.full((12, 12, 6), 0.3)
    Y[::3, ::3, 0] = 0.7
    with pytest.raises(unmix.UnmixError, match=text):
        unmix.extract(write_cube(tmp_path / "x.hdr", Y), count=2, **words)
