"""Bands without a signal are named before spectra are extracted or matched; counts are no reflectance."""

import logging

import numpy as np
import pytest
from conftest import write_csv, write_cube

import unmix
from unmix.features.images.match import match
from unmix.scene.signal import dim_bands

WAVES = np.linspace(420, 2450, 80)
WET = ((WAVES > 1310) & (WAVES < 1490)) | ((WAVES > 1770) & (WAVES < 2050))


def scene(folder, change, count=4, noise=0.002):
    """Write a scene of smooth spectra whose values (30, 40, 80) are changed, and their library; return both."""
    random = np.random.default_rng(8)
    E = np.stack([0.35 + 0.25 * np.sin(WAVES / (200 + 90 * k) + k) for k in range(count)], axis=1)
    Y = random.dirichlet(np.full(count, 0.4), (30, 40)) @ E.T + noise * random.standard_normal((30, 40, 80))
    text = [f"{w:.2f}" for w in WAVES]
    axis = {"wavelength": "{" + ", ".join(text) + "}", "wavelength_units": "nanometers"}
    return write_cube(folder / "s.hdr", change(Y, random), **axis), write_csv(folder / "e.csv", E, text)


def noisy(where):
    """Return a change that leaves noise alone in some bands."""

    def change(Y, random):
        Y[..., where] = random.normal(0.1, 0.4, (*Y.shape[:2], where.sum()))
        return Y.astype(np.float32)

    return change


def constant(Y, _):
    """Leave one value in bands of water vapour."""
    Y[..., WET] = 0.0
    return Y.astype(np.float32)


def nearly_dead(Y, random):
    """Leave the noise of reading in two bands."""
    Y[..., 20:22] = random.normal(0, 0.002, (30, 40, 2))
    return Y.astype(np.float32)


def filled(Y, random):
    """Also leave fill that no header declares in some pixels."""
    Y = nearly_dead(Y, random)
    Y[:4] = -50.0
    return Y


SAID = {
    "nearly dead": (nearly_dead, "far below the bands on both sides: 21-22", "`bands` auto"),
    "water": (noisy(WET), "no other band explains", "`ignore_nm` water leaves them out"),
    "others": (
        noisy(np.isin(np.arange(80), [3, 40, 41])),
        "3 bands in use have values that no other band explains, noise as a rule: 4,41-42",
        "1-3,5-40",
    ),
    "one value": (constant, "in use with one value", "`bands` auto"),
    "none": (lambda Y, _: Y.astype(np.float32), "", ""),
}


@pytest.mark.parametrize("kind", SAID)
def test_bands_without_a_signal_are_named(tmp_path, caplog, kind):
    change, words, advice = SAID[kind]
    path, library = scene(tmp_path, change)
    calls = (
        lambda: unmix.run(path, count=4, out_dir=tmp_path / "o", device="cpu", browse=False),
        lambda: match(path, library, out_dir=tmp_path / "m", report=False),
    )
    for call in calls:
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            call()
        said = [one.getMessage() for one in caplog.records if " in use " in one.getMessage()]
        assert (len(said) == 1 and words in said[0] and advice in said[0]) or not words
        assert bool(words) == bool(said)
    found = [one for one in unmix.check(path)["findings"] if one["about"] == "bands" and one["severity"] == "warning"]
    assert len(found) == bool(words)


def test_a_dead_band_decides_no_depth_and_fill_is_named(tmp_path, caplog):
    path, _ = scene(tmp_path, filled)
    with caplog.at_level(logging.WARNING):
        unmix.features(path, feature=["x=800-1100"], bands="auto", nodata=-50, out_dir=tmp_path / "a")
        assert not caplog.records
        unmix.features(path, feature=["x=800-1100"], bands="auto", out_dir=tmp_path / "b")
    assert "-50 in every band" in caplog.text
    depth = np.fromfile(tmp_path / "a/s_features.img", "<f4").reshape(30, 2, 40)[4:, 0]
    assert depth.min() >= 0 and depth.max() < 0.5


@pytest.mark.parametrize("seed", range(3))
def test_bands_that_are_dim_are_found_and_no_others(seed):
    """One to three dead bands with noise among smooth spectra, some with a deep, wide absorption."""
    random = np.random.default_rng(seed)
    for _ in range(40):
        L = int(random.integers(20, 300))
        x = np.linspace(0, 1, L)
        rms = 0.3 + 0.25 * np.sin(x * random.uniform(2, 9) + random.uniform(0, 6))
        rms *= 1 - 0.99 * np.exp(-0.5 * ((x - random.uniform(0, 1)) / random.uniform(8 / L, 0.5)) ** 2)
        assert not dim_bands(rms).any()
        first, count = int(random.integers(3, L - 6)), int(random.integers(1, 4))
        if rms[first - 3 : first + 6].min() > 0.1:
            rms[first : first + count] = random.uniform(0, 0.002, count)
            assert np.flatnonzero(dim_bands(rms)).tolist() == list(range(first, first + count))


def test_counts_are_neither_out_of_range_nor_noisy(tmp_path):
    """Peaks of X-ray lines stand above 1.2 counts in few bands, and scatter by their roots."""
    random = np.random.default_rng(2)
    peaks = np.exp(-0.5 * np.square((np.arange(300)[:, None] - [40, 120, 200]) / 2.5)) * 12 + 0.3
    counts = random.poisson(random.dirichlet(np.ones(3), (60, 60)) @ peaks.T)
    path = write_cube(tmp_path / "c.hdr", counts.astype(np.uint16))
    assert not [one for one in unmix.check(path)["findings"] if one["about"] == "bands"]
    as_real = write_cube(tmp_path / "r.hdr", counts.astype(np.float32))
    assert "out of physical range" not in str(unmix.check(as_real)["findings"])


def test_low_counts_lack_nothing(tmp_path):
    """Their noise is skewed, and so are residuals: nothing is missing where the fit is at the noise."""
    random = np.random.default_rng(5)
    E = np.exp(-0.5 * np.square((np.arange(200)[:, None] - [30, 90, 150]) / 12)) + 0.02
    counts = random.poisson(random.dirichlet(np.ones(3), (60, 60)) @ E.T * 1.5)
    np.savetxt(tmp_path / "n.txt", np.sqrt(np.maximum(counts.mean(axis=(0, 1)), 1e-3)))
    report = unmix.run(
        write_cube(tmp_path / "c.hdr", counts.astype(np.float32)),
        endmembers=write_csv(tmp_path / "e.csv", E),
        method="nnls",
        weights="noise",
        noise=tmp_path / "n.txt",
        device="cpu",
        browse=False,
    )
    assert not [one for one in report["warnings"] if "missing" in one or "poor" in one], report["warnings"]


def test_matches_far_from_all_are_said(tmp_path, caplog):
    _, library = scene(tmp_path, lambda Y, _: Y.astype(np.float32))
    known = unmix.load_library(library)
    other = write_csv(tmp_path / "o.csv", known.matrix[::-1].copy(), [f"{w:.2f}" for w in WAVES])
    from unmix.library import match as matched

    matched(known, [known])
    assert "names are unlikely" not in caplog.text
    matched(unmix.load_library(other), [known])
    assert "over 10° from all of e.csv: names are unlikely" in caplog.text


def test_letters_before_small_numbers_name_bands(tmp_path):
    """As Sentinel-2's, in a table of R: no wavelengths, and B8A is a band."""
    bands = ["B2", "B3", "B4", "B5", "B6", "B7", "B8", "B8A", "B11", "B12"]
    rows = [",".join(f'"{one}"' for one in ["", *bands]), *(f'"{n}",' + ",".join(["0.5"] * 10) for n in ("a", "b"))]
    (tmp_path / "e.csv").write_text("\n".join(rows))
    found = unmix.load_library(tmp_path / "e.csv")
    assert found.matrix.shape == (10, 2) and found.wavelengths is None and found.names == ("a", "b")
    (tmp_path / "w.csv").write_text("name,X420,X430.5,X2400\na,1,2,3\n")
    assert unmix.load_library(tmp_path / "w.csv").wavelengths.tolist() == [420, 430.5, 2400]


def test_a_scale_that_one_value_decides_is_none(tmp_path):
    """Bands of one value are named in place of a scale; counts are pointed to their references."""

    def filled(Y, _):
        Y[..., [0, 7]] = 65535
        return Y.astype(np.float32)

    path, library = scene(tmp_path, filled)
    with pytest.raises(unmix.CubeError, match="one value is in all pixels of bands 1,8: leave out with `bands` auto"):
        unmix.run(path, endmembers=library, out_dir=tmp_path / "o", device="cpu")
    path, library = scene(tmp_path, lambda Y, _: (Y * 900).clip(0).astype(np.uint16))
    with pytest.raises(unmix.CubeError, match=r"of raw counts take \(raw - dark\) / \(white - dark\)"):
        unmix.run(path, endmembers=library, out_dir=tmp_path / "o", device="cpu")
