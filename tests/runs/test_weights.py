"""Bands with weights: against the weighted problem put together by hand."""

import numpy as np
import pytest
from conftest import L, read_map, write_cube

import unmix
from unmix.commands.verify import verify


def run(folder, Y, *, name="x", **words):
    """Run a scene; return its maps, each (lines, samples, bands)."""
    write_cube(folder / "x.hdr", Y.astype(np.float64), data_ignore_value=-7)
    words = {"method": "nnls", "device": "cpu", "overwrite": True, "residual": True} | words
    unmix.run(folder / "x.hdr", endmembers=folder / "library.csv", out_dir=folder / name, **words)
    assert verify(folder / name / "x", everything=True).faults == []
    return {path.stem[2:]: read_map(folder / name / "x", path.stem[2:]) for path in (folder / name).glob("*.img")}


def weights_file(folder, values):
    (folder / "weights.txt").write_text("\n".join(map(repr, values.tolist())))
    return folder / "weights.txt"


@pytest.mark.parametrize("method", ["nnls", "fcls", "pcls", "ucls", "scls"])
def test_against_the_weighted_problem(setting, method):
    folder, E, Y, _ = setting
    random = np.random.default_rng(2)
    Y = Y + 0.03 * random.standard_normal(Y.shape)
    w = random.uniform(0.1, 30.0, L)
    maps = run(folder, Y, method=method, weights=weights_file(folder, w))
    w = w / np.sqrt(np.square(w).mean())
    expected = unmix.solve(Y * w, E * w[:, None], method=method)
    A = expected.abundances
    np.testing.assert_allclose(maps["abundance"][..., : A.shape[-1]], A, atol=1e-6)
    np.testing.assert_allclose(maps["rmse"][..., 0], expected.rmse, rtol=1e-5)
    residual = Y - A @ E.T
    np.testing.assert_allclose(maps["residual"], residual, atol=1e-5)
    np.testing.assert_allclose(maps["unweighted"][..., 0], np.sqrt(np.square(residual).mean(axis=-1)), rtol=1e-5)
    assert np.all(
        maps["unweighted"][..., 0] >= run(folder, Y, name="plain", method=method)["rmse"][..., 0] * (1 - 1e-6)
    )
    library = unmix.library.load(folder / "x/x_endmembers.csv")
    np.testing.assert_array_equal(library.matrix[:, : E.shape[1]], E)  # the spectra are written as they are


def test_weights_of_noise(setting):
    """The best linear estimate where bands differ in noise: nearer to the truth, and its own deviation says by how much."""
    folder, E, Y, _ = setting
    random = np.random.default_rng(5)
    sigma = np.where(np.arange(L) % 2, 0.1, 0.001)
    (folder / "noise.csv").write_text("\n".join(map(repr, sigma.tolist())))
    noisy = Y + sigma * random.standard_normal(Y.shape)
    words = {"method": "ucls", "noise": folder / "noise.csv", "uncertainty": True}
    weighted, plain = run(folder, noisy, weights="noise", **words), run(folder, noisy, name="plain", **words)
    truth = unmix.solve(Y, E, method="ucls").abundances
    off = {name: np.abs(maps["abundance"] - truth) for name, maps in (("weighted", weighted), ("plain", plain))}
    assert off["weighted"].mean() < 0.2 * off["plain"].mean()
    assert np.all(weighted["sigma"] < plain["sigma"])
    assert 0.5 < np.square(off["weighted"] / weighted["sigma"]).mean() < 1.6
    covariance = np.linalg.inv(E.T @ (E / sigma[:, None] ** 2))
    np.testing.assert_allclose(weighted["sigma"][0, 0], np.sqrt(np.diag(covariance)), rtol=1e-5)
    same = run(folder, noisy, name="named", **(words | {"weights": weights_file(folder, 1 / sigma)}))
    np.testing.assert_allclose(same["abundance"], weighted["abundance"], atol=1e-6)


@pytest.mark.parametrize("coding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_numbers_of_bands_in_any_encoding(setting, coding):
    """As spreadsheets and editors write them, with a heading that is no ASCII."""
    folder, _, Y, _ = setting
    w = np.linspace(0.5, 2, L)
    plain = run(folder, Y, weights=weights_file(folder, w))
    (folder / "other.txt").write_bytes(("Gewicht je µm\n" + "\n".join(map(repr, w.tolist()))).encode(coding))
    np.testing.assert_array_equal(run(folder, Y, weights=folder / "other.txt")["abundance"], plain["abundance"])


@pytest.mark.parametrize("odd", ["inf", "nan", "-1", "1e308", "1e400", "1e-320", "9" * 400])
@pytest.mark.parametrize("option", ["weights", "noise"])
def test_numbers_that_no_band_has(setting, option, odd):
    folder, _, Y, _ = setting
    (folder / "w.txt").write_text("\n".join(["1"] * (L - 1) + [odd]))
    with pytest.raises(unmix.InputError, match=r"of every band must be .*above 0, from 1e-100 to 1e.100"):
        run(folder, Y, method="ucls", **{option: folder / "w.txt", "uncertainty": True})
