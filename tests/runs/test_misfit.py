"""Misfit over noise: one where noise alone is left, however large; above it where neighbours share what is left."""

import json
import re

import numpy as np
import pytest
from conftest import write_csv, write_cube
from test_cli import unmix as command

import unmix
from unmix.runs.record.misfit import misfit_beside_noise


def scene(snr, change=lambda F: F, size=(60, 70), L=40, seed=3):
    """A scene of smooth fractions and noise (lines, samples, L), and its spectra (L, 3)."""
    random = np.random.default_rng(seed)
    E = 0.2 + random.random((L, 3))
    x, y = np.meshgrid(np.linspace(0, 3, size[1]), np.linspace(0, 2, size[0]))
    F = np.exp(np.stack([np.sin(x + y), np.cos(2 * x), np.sin(3 * y)], -1))
    Y = change(F / F.sum(axis=-1, keepdims=True) @ E.T)
    sigma = np.sqrt(np.square(Y).mean() / 10 ** (snr / 10))
    return Y + sigma * random.standard_normal(Y.shape), E, sigma


def rectangle(Y):
    """The scene with another material in a sixth of it."""
    Y = Y.copy()
    Y[10:35, 20:48] = 0.6 * Y[10:35, 20:48] + 0.3 * (1 + np.sin(np.arange(Y.shape[2])))
    return Y


@pytest.mark.parametrize("method", ["nnls", "fcls", "ucls"])
@pytest.mark.parametrize("snr", [10, 25, 60])
@pytest.mark.parametrize("size", [(60, 70), (20, 400), (300, 30)])
def test_noise_alone_is_called_noise(tmp_path, method, snr, size):
    Y, E, sigma = scene(snr, size=size)
    words = {"endmembers": write_csv(tmp_path / "e.csv", E), "method": method, "device": "cpu", "browse": False}
    report = unmix.run(write_cube(tmp_path / "s.hdr", Y), out_dir=tmp_path / "out", **words)
    found = report["misfit_over_noise"]
    assert not found["striped"] and found["is_noise"] and 0.97 < found["over_noise"] < 1.03 and found["above"] < 0.02
    assert 0.95 < found["noise"] / sigma < 1.05
    assert not any("missing" in one or "poor" in one for one in report["warnings"])
    page = unmix.report(tmp_path / "out/s").read_text()
    assert '<div class="verdict">' in page and "well, to within their noise" in page


@pytest.mark.parametrize("snr", [25, 40])
@pytest.mark.parametrize("size", [(60, 70), (20, 400)])
def test_stripes_are_no_noise(tmp_path, snr, size):
    Y, E, sigma = scene(snr, size=size)
    Y += 2 * sigma * np.random.default_rng(0).standard_normal((1, *Y.shape[1:]))
    report = unmix.run(write_cube(tmp_path / "s.hdr", Y), endmembers=write_csv(tmp_path / "e.csv", E), device="cpu")
    found = report["misfit_over_noise"]
    assert found["striped"] and not found["is_noise"] and 0.93 < found["noise"] / sigma < 1.05
    assert found["over_noise"] == pytest.approx(5**0.5, rel=0.1) and "stripes" in found["said"]
    assert '<div class="verdict">' not in unmix.report(tmp_path / "s").read_text()


@pytest.mark.parametrize("snr", [25, 40, 60])
@pytest.mark.parametrize("size", [(60, 70), (60, 300)])
def test_no_green_bar_over_a_rectangle(tmp_path, snr, size):
    Y, E, _ = scene(snr, rectangle, size)
    library = write_csv(tmp_path / "e.csv", E)
    path = write_cube(tmp_path / "s.hdr", Y)
    report = unmix.run(path, endmembers=library, out_dir=tmp_path / "out", device="cpu", browse=False)
    assert not report["misfit_over_noise"]["is_noise"]
    (said,) = [one for one in report["warnings"] if one.startswith("s: something is missing in")]
    assert report["missing"]["is_clear"] and re.search("lines 1|samples (19|2)", said)
    page = unmix.report(tmp_path / "out/s").read_text()
    assert '<div class="verdict poor">' in page and "something is missing in" in page
    checked = unmix.check(path, library)
    assert any("something is missing in" in one["message"] for one in checked["findings"])


def test_a_bright_scene_by_fcls_is_no_noise(tmp_path):
    """The price of the sum to one is part of the misfit."""
    Y, E, _ = scene(40, lambda Y: Y * np.linspace(0.6, 1.4, 60)[:, None, None])
    words = {"endmembers": write_csv(tmp_path / "e.csv", E), "device": "cpu", "browse": False, "overwrite": True}
    path = write_cube(tmp_path / "s.hdr", Y)
    found = [unmix.run(path, method=method, **words)["misfit_over_noise"] for method in ("nnls", "fcls")]
    assert [one["is_noise"] for one in found] == [True, False]


def test_numbers_are_those_of_loops():
    random = np.random.default_rng(1)
    L, p, lines, samples = 12, 3, np.repeat(np.arange(5), 20), np.tile(np.arange(20), 5)
    left = random.standard_normal((100, L)) + 0.5 * random.standard_normal(L)
    rmse = np.sqrt(np.square(left).mean(axis=1)) * random.uniform(1, 1.6, 100)
    pairs = [(k, k + 1) for k in range(99) if lines[k] == lines[k + 1]]
    apart = [np.square(left[a] - left[b]).sum() / 2 for a, b in pairs]
    middle = np.median(apart)
    by_noise = middle / 9 * (p + 3 * p**0.5)
    prices = [np.mean([rmse[k] ** 2 * L - np.square(left[k]).sum() for k in pair]) - by_noise for pair in pairs]
    whole = [np.square(left[a] + left[b]).sum() / 2 + 2 * max(0, price) for (a, b), price in zip(pairs, prices)]
    limit = (2 * 1.25**2 - 1) * middle
    lengths = 5.0 * np.sqrt(L) * rmse * np.where(np.arange(100) < 20, 1, 10)
    found = misfit_beside_noise(left, p, (lines, samples), rmse, lengths)
    dark = [k for k in range(20) if rmse[k] <= 1.5 * np.sqrt(middle / 9)]
    assert found.faint == len(dark) / 20
    np.testing.assert_allclose(found.noise, np.sqrt(middle / 9), rtol=1e-12)
    np.testing.assert_allclose(found.over_noise, np.sqrt(np.median(np.add(whole, apart) / 2) / middle), rtol=1e-12)
    share, chance = np.mean(np.array(whole) > limit), np.mean(np.array(apart) > limit)
    assert share - chance > 3 * np.sqrt((share + chance) / 95) and np.isclose(found.above, share - chance)
    assert misfit_beside_noise(left, 11, (lines, samples), rmse, lengths) is None
    assert misfit_beside_noise(left, p, (lines, 2 * samples), rmse, lengths) is None


def test_the_log_says_it(tmp_path):
    Y, E, _ = scene(30)
    write_cube(tmp_path / "s.hdr", Y)
    _, err = command("run", tmp_path / "s.hdr", "-e", write_csv(tmp_path / "e.csv", E), "-o", tmp_path / "out")
    record = json.loads((tmp_path / "out/s_run.json").read_text())
    assert f", {record['misfit_over_noise']['over_noise']:.2f} times the noise; " in err


@pytest.mark.parametrize("relative", [0.0, 0.01])
@pytest.mark.parametrize("dark", [0.05, 0.01])
def test_even_brightness_is_said_where_noise_grows_with_the_signal(tmp_path, relative, dark):
    """For certain, or as hidden by noise, where a dark endmember leaves the sums unknown; never where light varies."""
    random = np.random.default_rng(7)
    E = 0.2 + 0.8 * random.random((40, 3))
    E[:, 2] *= dark
    A = random.dirichlet(np.ones(3), (60, 70))
    light = random.uniform(0.6, 1.4, (60, 70, 1))
    for given in (A, A * light):
        Y = given @ E.T
        Y += (0.004 + relative * Y) * random.standard_normal(Y.shape)
        words = {"endmembers": write_csv(tmp_path / "e.csv", E), "device": "cpu", "overwrite": True}
        report = unmix.run(write_cube(tmp_path / "s.hdr", Y), out_dir=tmp_path / "out", **words)
        said = [one for one in report["warnings"] if "errs less" in one and "noise alone moves" not in one]
        if given is A:
            answers = (unmix.solve(Y.reshape(-1, 40), E, method=method).abundances for method in ("nnls", "fcls"))
            free, held = (np.abs(found - A.reshape(-1, 3)).mean() for found in answers)
            assert len(said) == 1 and held < 0.5 * free
        else:
            assert not said or "(±0.4" in said[0]  # which hides it


@pytest.mark.parametrize(("part", "words"), [(0.0, ""), (0.3, "2.5 times worse than nine in ten")])
def test_a_few_pixels_that_miss_a_spectrum_are_named_beside_noise(tmp_path, part, words):
    Y, E, _ = scene(30)
    Y[20:22, 30:36] = (1 - part) * Y[20:22, 30:36] + part * (1 + np.sin(np.arange(Y.shape[2])))
    library = write_csv(tmp_path / "e.csv", E)
    report = unmix.run(write_cube(tmp_path / "s.hdr", Y), endmembers=library, device="cpu", out_dir=tmp_path / "o")
    assert words in str(report["warnings"]) and ("much worse" in report["misfit_over_noise"]["said"]) == bool(words)
    page = unmix.report(tmp_path / "o/s", tmp_path / "a.html")
    assert ("to within their noise" in page.read_text()) != bool(words)


@pytest.mark.parametrize("bend", [0.0, 0.05])
def test_deviations_of_a_few_pixels_say_where_neighbouring_bands_are_alike(tmp_path, bend):
    """A table of a laboratory, too small to tell noise, with a bent baseline that no spectrum has."""
    random = np.random.default_rng(5)
    E, baseline = 0.2 + random.random((80, 3)), np.sin(np.linspace(0, 3, 80))
    Y = random.dirichlet(np.ones(3), (1, 12)) @ E.T + bend * random.random((1, 12, 1)) * baseline
    path = write_cube(tmp_path / "s.hdr", Y + 0.003 * random.standard_normal(Y.shape))
    words = {"endmembers": write_csv(tmp_path / "e.csv", E), "device": "cpu", "out_dir": tmp_path / "o"}
    said = str(unmix.run(path, uncertainty=True, **words)["warnings"])
    assert ("residuals of neighbouring bands are correlated" in said) == bool(bend)
