"""Means of 3 x 3 pixels, from which endmembers are extracted where noise is strong."""

from itertools import permutations

import numpy as np
import pytest
from conftest import read_map, write_cube
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter, gaussian_filter1d

import unmix
from unmix.commands.verify import verify
from unmix.endmembers.averaged import averaged
from unmix.io import read_lines
from unmix.scene import open_scene


def means_of(Y):
    """Take the mean of each pixel's neighbourhood in turn; NaN is missing, and stays so."""
    found = np.full(Y.shape, np.nan)
    for line, sample in np.argwhere(np.isfinite(Y).all(axis=2)):
        near = Y[max(0, line - 1) : line + 2, max(0, sample - 1) : sample + 2].reshape(-1, Y.shape[2])
        found[line, sample] = near[np.isfinite(near).all(axis=1)].mean(axis=0)
    return found


@given(
    st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 6), st.sampled_from(["bip", "bil", "bsq"]), st.booleans()
)
def test_means_are_of_neighbours_with_values_in_any_blocks(tmp_path_factory, seed, lines, samples, interleave, gaps):
    random = np.random.default_rng(seed)
    Y = random.uniform(0.1, 0.9, (lines, samples, 3)).astype("f4")
    Y[random.random((lines, samples)) < 0.3 * gaps] = -9999
    path = write_cube(tmp_path_factory.mktemp("x") / "x.hdr", Y, interleave=interleave, data_ignore_value=-9999)
    scene = averaged(open_scene(path))
    whole = [scene.read(line) for line in range(lines)]
    expected = means_of(np.where(Y == -9999, np.nan, Y.astype(float)))
    for (found, masked), mean in zip(whole, expected):
        np.testing.assert_array_equal(masked, np.isnan(mean).any(axis=1))
        np.testing.assert_allclose(found[~masked], mean[~masked], rtol=1e-14)
    together = scene.spectra(read_lines(scene.cube, slice(0, lines)))
    np.testing.assert_array_equal(together, np.concatenate([one for one, _ in whole]))


def noisy(seed, decibels=20):
    """Mixtures of three smooth spectra under light that varies, with white noise, and the fractions."""
    random = np.random.default_rng(seed)
    E = 0.3 + 0.1 * gaussian_filter1d(random.standard_normal((60, 3)), 6, axis=0) * np.sqrt(6)
    F = np.exp(40 * np.stack([gaussian_filter(random.standard_normal((60, 60)), 5) for _ in range(3)], -1))
    F /= F.sum(axis=2, keepdims=True)
    Y = F @ E.T * (1 + 4 * gaussian_filter(random.standard_normal((60, 60, 1)), (8, 8, 0))).clip(0.5)
    return (Y + Y.std() * 10 ** (-decibels / 20) * random.standard_normal(Y.shape)).astype("f4"), F


def error(found, F):
    """Return the RMSE of fractions, whose materials are in the best order."""
    return min(np.sqrt(np.square(found[..., list(some)] - F).mean()) for some in permutations(range(3)))


def test_strong_noise_is_averaged_before_endmembers_are_extracted(tmp_path, monkeypatch):
    errors = np.zeros((2, 6))
    for seed in range(6):
        Y, F = noisy(seed)
        path = write_cube(tmp_path / "x.hdr", Y)
        for k, alone in enumerate((False, True)):
            with monkeypatch.context() as patch:
                if alone:
                    patch.setattr("unmix.endmembers.extraction.is_noisy", lambda *_: False)
                report = unmix.run(path, count=3, device="cpu", browse=False, overwrite=True)
            assert ("averaged" in report["endmembers"]["quality"]) is not alone
            if not alone and seed == 0:
                assert verify(tmp_path / "x", everything=True).faults == []
            errors[k, seed] = error(read_map(tmp_path / "x", "abundance"), F)
    assert errors[0].mean() < 0.8 * errors[1].mean()


@pytest.mark.parametrize("how", ["clean", "shuffled", "few", "asked"])
def test_other_scenes_are_not_averaged(tmp_path, how):
    Y, _ = noisy(4, 60 if how == "clean" else 20)
    if how == "shuffled":  # neighbours are no more alike than others
        Y = np.random.default_rng(0).permutation(Y.reshape(-1, 60)).reshape(Y.shape)
    path = write_cube(tmp_path / "x.hdr", Y[:3, :30] if how == "few" else Y)
    found = unmix.extract(path, count=3, extract="nfindr" if how == "asked" else "auto")
    assert "averaged" not in found.quality


def test_neighbours_beyond_the_part_that_is_read_are_left_out(tmp_path):
    Y, _ = noisy(5)
    path = write_cube(tmp_path / "x.hdr", Y)
    found = unmix.extract(path, count=3, extract="auto", lines="4:56", samples="2:58")
    alone = unmix.extract(write_cube(tmp_path / "y.hdr", Y[4:56, 2:58]), count=3, extract="auto")
    assert found.quality["averaged"] == 3
    np.testing.assert_array_equal(found.matrix, alone.matrix)
