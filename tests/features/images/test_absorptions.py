"""Depths and centres of absorptions, against the formula typed out pixel by pixel, and of Gaussians whose centre is known."""

import numpy as np
import pytest
from conftest import read_values, write_cube
from test_cli import unmix as command

import unmix
from unmix.features.images.features import depth_and_centre
from unmix.library.matching import without_continuum

WAVES = np.linspace(2000.0, 2450.0, 46)


def scene(folder, dtype=np.float32):
    """Absorptions of many depths and centres on slopes; a masked pixel, one without any, and one below 0."""
    random = np.random.default_rng(4)
    depth, centre = random.uniform(0.05, 0.5, (6, 7)), random.uniform(2170, 2220, (6, 7))
    Y = (0.3 + 0.2 * (WAVES - 2000) / 450) * (1 - depth[..., None] * np.exp(-(((WAVES - centre[..., None]) / 20) ** 2)))
    Y[0, 1], Y[1, 2], Y[2, 3] = -9999, 0.4, -0.1
    path = write_cube(folder / "s.hdr", Y.astype(dtype), data_ignore_value=-9999, wavelength=WAVES)
    return path, read_values(path).astype(float), depth, centre


def slowly(y):
    """Return depth and centre of one spectrum between 2120 and 2250 nm."""
    inside = np.flatnonzero((WAVES >= 2120) & (WAVES <= 2250))
    x, y = WAVES[inside], y[inside]
    line = np.interp(x, [x[0], x[-1]], [y[0], y[-1]])
    if (line <= 0).any():
        return -9999, -9999
    q = y / line
    k = int(q.argmin())
    if k in (0, len(q) - 1) or q[k] >= 1:
        return 0.0, -9999
    a, b, _ = np.polyfit(x[k - 1 : k + 2] - x[k], q[k - 1 : k + 2], 2)
    return 1 - q[k], x[k] - b / (2 * a)


def test_against_the_formula(tmp_path):
    path, Y, depth, centre = scene(tmp_path)
    found = unmix.features(path, feature=["al-oh", "own=2300-2400"], continuum=True, out_dir=tmp_path / "o")
    assert [one["name"] for one in found["features"]] == ["al-oh", "own"]
    values = read_values(tmp_path / "o/s_features.hdr")
    for i, j in np.ndindex(6, 7):
        if (i, j) == (0, 1):
            assert (values[i, j] == -9999).all()
            continue
        np.testing.assert_allclose(values[i, j, :2], slowly(Y[i, j]), rtol=1e-5, atol=1e-5)
    ordinary = np.ones((6, 7), bool)
    ordinary[0, 1] = ordinary[1, 2] = ordinary[2, 3] = False
    assert np.abs(values[..., 1] - centre)[ordinary].max() < 2 and np.abs(values[..., 0] - depth)[ordinary].max() < 0.04
    quotients = read_values(tmp_path / "o/s_continuum.hdr")
    np.testing.assert_allclose(quotients[3, 3], without_continuum(WAVES, Y[3, 3]), rtol=1e-6)
    assert (quotients[0, 1] == -9999).all()


def test_known_ones_that_the_bands_cover(tmp_path):
    path, *_ = scene(tmp_path)
    out, _ = command("features", path, "-o", tmp_path / "o")
    assert [line.split()[0] for line in out.splitlines()[:3]] == ["al-oh", "mg-oh", "carbonate"]
    assert "chlorophyll" not in out
    assert not list((tmp_path / "o").glob("*continuum*"))
    command("features", path, "-o", tmp_path / "o", code=1, tells="exists already")


def test_unsorted_bands_and_three_points():
    found = depth_and_centre(np.array([0.0, 1.0, 3.0]), np.array([[1.0, 0.5, 1.0], [1.0, 1.0, 1.0], [1.0, 2.0, 1.0]]))
    a, b, _ = np.polyfit([0.0, 1.0, 3.0], [1.0, 0.5, 1.0], 2)
    np.testing.assert_allclose(found[0], [0.5, -b / (2 * a)])
    assert found[1, 0] == found[2, 0] == 0 and np.isnan(found[1:, 1]).all()


@pytest.mark.parametrize("text", ["x", "x=1-", "x=a-b", "x=2120-2121"])
def test_what_is_refused(tmp_path, text):
    path, *_ = scene(tmp_path)
    _, err = command("features", path, "--feature", text, "-o", tmp_path / "o", code=2)
    assert f"--feature {text}: " in err and not (tmp_path / "o").exists()


def test_without_wavelengths(tmp_path):
    with pytest.raises(unmix.CubeError, match="has no wavelengths"):
        unmix.features(write_cube(tmp_path / "n.hdr", np.ones((2, 2, 5), np.float32)))


def test_a_dead_band_is_said(tmp_path, caplog):
    path, Y, *_ = scene(tmp_path)
    Y[..., 20] = 0.0
    unmix.features(write_cube(path, Y.astype(np.float32), wavelength=WAVES), feature=["al-oh"], out_dir=tmp_path / "o")
    assert "1 band in use with one value: 21; `bands` auto leaves such bands out" in caplog.text


@pytest.mark.parametrize(("last", "is_cut"), [(2250, False), (2240, False), (2225, True)])
def test_shoulders_beyond_the_bands_are_said(tmp_path, last, is_cut, caplog):
    path, *_ = scene(tmp_path)
    unmix.features(path, feature="al-oh", ignore_nm=f"{last + 1}-2460", out_dir=tmp_path / "o")
    assert ("its shoulders are 2120 and 2250 nm" in caplog.text) == is_cut


def test_known_ones_of_too_few_bands_are_left_out(tmp_path):
    waves = np.arange(2000.0, 2501.0, 50.0)
    Y = 0.3 + 0.01 * np.random.default_rng(1).random((4, 5, len(waves)))
    found = unmix.features(write_cube(tmp_path / "s.hdr", Y, wavelength=waves), out_dir=tmp_path / "o")
    assert [one["name"] for one in found["features"]] == ["al-oh", "carbonate"]
