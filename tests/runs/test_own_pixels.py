"""Pixels of counts, as `unmix.poisson` has them, and bands that are weighed by a cube of noise."""

import numpy as np
import pytest
from conftest import LINES, SAMPLES, read_map, refused, write_csv, write_cube

import unmix
from unmix.commands.verify import verify

pytestmark = pytest.mark.slow


def run(folder, Y, out, **words):
    """Run a scene; return its record and maps, each (lines, samples, bands)."""
    cube = write_cube(folder / "x.hdr", Y)
    words = {"method": "nnls", "device": "cpu", "residual": True, "certificate": True} | words
    report = unmix.run(cube, endmembers=folder / "library.csv", out_dir=folder / out, overwrite=True, **words)
    return report, {path.stem[2:]: read_map(folder / out / "x", path.stem[2:]) for path in (folder / out).glob("*.img")}


@pytest.fixture
def counts(setting):
    """Spectra of counts, a background and pixels: one negative, one with counts where nothing has any, one without any."""
    folder, E, *_ = setting
    random = np.random.default_rng(3)
    spectra = 40.0 * np.abs(E)
    spectra[2] = 0.0
    background = random.random(len(E)) * 20
    background[2] = 0.0
    X = random.random((LINES, SAMPLES, E.shape[1])) * (random.random((LINES, SAMPLES, E.shape[1])) < 0.7)
    values = random.poisson(X @ spectra.T + background).astype(np.int16)
    values[0, 0, 0] = -1
    values[0, 1, 2] = 3
    values[0, 2] = 0
    write_csv(folder / "library.csv", spectra)
    (folder / "b.txt").write_text("".join(f"{one!r}\n" for one in background.tolist()))
    return folder, spectra, background, values


def test_counts(counts):
    folder, E, background, values = counts
    report, found = run(folder, values, "o", likelihood="poisson", background=folder / "b.txt")
    assert report["certified"] and report["pixels"]["partly_nodata"] == 2
    good = np.ones((LINES, SAMPLES), bool)
    good[0, :2] = False
    assert (found["abundance"][~good] == -9999).all() and (found["abundance"][0, 2] == 0).all()
    answer = unmix.poisson(values[good], E, background=background)
    np.testing.assert_allclose(found["abundance"][good], answer.x, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(
        found["residual"][good], values[good] - background - answer.x @ E.T, rtol=1e-5, atol=1e-4
    )
    np.testing.assert_allclose(
        found["rmse"][good][:, 0],
        np.sqrt(np.square(values[good] - background - answer.x @ E.T).mean(axis=1)),
        rtol=1e-5,
    )
    assert (found["certificate"][good][:, 0] <= 1e-10).all() and (found["certificate"][good][:, 1] <= 1e-4).all()


def test_what_is_sampled_is_without_the_background(counts):
    """The residual of each band, and what a run says of its fit."""
    folder, E, background, _ = counts
    random = np.random.default_rng(7)
    X = random.random((40, 30, E.shape[1])) * 20
    peak = background + 2000.0 * (np.arange(len(E)) == 4)
    (folder / "b.txt").write_text("".join(f"{one!r}\n" for one in peak.tolist()))
    report, found = run(
        folder, random.poisson(X @ E.T + peak).astype(np.int32), "o", likelihood="poisson", background=folder / "b.txt"
    )
    left = found["residual"].reshape(-1, len(E)).astype(float)
    np.testing.assert_allclose(report["residual_by_band"]["mean"], left.mean(axis=0), atol=0.2 * left.std())
    # But that nothing is in its third band.
    assert not any(("band" in text and "far below" not in text) or "in common" in text for text in report["warnings"])


def test_counts_beside_a_large_background(counts):
    """`verify` agrees where the curvature is small."""
    folder, E, _, _ = counts
    background = np.full(len(E), 1e7)
    (folder / "b.txt").write_text("".join(f"{one!r}\n" for one in background.tolist()))
    values = np.random.default_rng(1).poisson(
        np.random.default_rng(0).random((LINES, SAMPLES, E.shape[1])) * 50 @ E.T + background
    )
    run(folder, values.astype(np.int32), "o", likelihood="poisson", background=folder / "b.txt", scale=1)
    assert verify(folder / "o/x", everything=True).faults == []


@pytest.mark.parametrize("words", [{"method": "nnls"}, {"method": "fcls", "by": "class", "uncertainty": True}])
def test_bands_are_weighed_by_the_median_noise_of_a_cube(setting, noise_cube, words):
    """As by a table of these medians."""
    folder, _, Y, _ = setting
    path, noise = noise_cube
    noisy = (Y + np.nan_to_num(noise) * np.random.default_rng(2).standard_normal(Y.shape)).astype(np.float32)
    known = np.isfinite(noise).all(axis=-1) & (noise > 0).all(axis=-1)
    (folder / "one.csv").write_text("".join(f"{v!r}\n" for v in np.median(noise[known], axis=0).tolist()))
    report, found = run(folder, noisy, "cube", weights="noise", noise=path, **words)
    _, expected = run(folder, noisy, "table", weights="noise", noise=folder / "one.csv", **words)
    assert report["certified"] and report["pixels"]["solved"] == LINES * SAMPLES
    np.testing.assert_allclose(found["abundance"], expected["abundance"], rtol=1e-5, atol=1e-6)
    assert verify(folder / "cube/x", everything=True).faults == []
    refused(unmix.MethodError, "are for unmix.solve", run, folder, noisy, "o", weights=path)
