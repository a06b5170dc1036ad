"""Spectra of any sign beside the endmembers, against scipy's bounded least squares and the conditions of an optimum."""

import numpy as np
import pytest
from conftest import read_map, refused, write_csv, write_cube
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import lsq_linear

import unmix
from unmix.commands.verify import verify

L, LINES, SAMPLES = 20, 6, 7


@pytest.fixture
def scene(tmp_path):
    """Mixtures of three spectra with an offset and a slope of any sign; their library, the free spectra, and all as arrays."""
    random = np.random.default_rng(3)
    E = random.uniform(0.1, 0.8, (L, 3))
    B = np.stack([np.ones(L), np.linspace(-1, 1, L)], axis=1)
    A, C = random.dirichlet([1, 1, 1], (LINES, SAMPLES)), random.uniform(-0.3, 0.3, (LINES, SAMPLES, 2))
    Y = A @ E.T + C @ B.T + 0.002 * random.standard_normal((LINES, SAMPLES, L))
    Y[1, 2] = -9.0
    write_csv(tmp_path / "e.csv", E, names=["a", "b", "c"], classes=["x", "x", "y"])
    write_csv(tmp_path / "free.csv", B, names=["offset", "slope"])
    write_cube(tmp_path / "x.hdr", Y, data_ignore_value=-9)
    return tmp_path, E, B, Y


def solve(folder, method, **words):
    words = {"endmembers": folder / "e.csv", "free": folder / "free.csv", "scale": 1.0, "overwrite": True} | words
    report = unmix.run(folder / "x.hdr", method=method, **words)
    maps = [read_map(folder / "x", name) for name in ("abundance", "free", "rmse")]
    return (report, *maps)


@pytest.mark.parametrize("method", ["nnls", "fcls", "pcls", "ucls"])
def test_against_bounded_least_squares(scene, method):
    folder, E, B, Y = scene
    report, abundance, free, rmse = solve(folder, method)
    assert report["pixels"]["certified"] == LINES * SAMPLES - 1
    assert "band names = {offset, slope}" in (folder / "x_free.hdr").read_text()
    assert not any("both sides of 0" in text for text in report["warnings"])
    assert (free[1, 2] == -9999).all() and (abundance[1, 2] == -9999).all()
    for place in np.ndindex(LINES, SAMPLES):
        if place == (1, 2):
            continue
        y, a, c = Y[place], abundance[place][:3].astype(float), free[place].astype(float)
        r = y - E @ a - B @ c
        np.testing.assert_allclose(B.T @ r, 0, atol=1e-5)
        assert rmse[place][0] == pytest.approx(np.sqrt(np.mean(r**2)), rel=1e-3)
        w, held = E.T @ r, method == "fcls" or (method == "pcls" and a.sum() > 1 - 1e-6)
        level = w[a > 1e-5].mean() if held else 0.0
        np.testing.assert_allclose(w[(a > 1e-5) | (method == "ucls")], level, atol=1e-5)
        assert method == "ucls" or (w <= level + 1e-5).all()
        if method == "nnls":
            bounds = [0] * 3 + [-np.inf] * 2, np.inf
            np.testing.assert_allclose([*a, *c], lsq_linear(np.hstack([E, B]), y, bounds).x, atol=1e-5)
        if method == "fcls":
            assert a.sum() == pytest.approx(1, abs=1e-6)
    assert verify(folder / "x", everything=True).faults == []


@settings(max_examples=15, derandomize=True, deadline=None)
@given(st.integers(0, 10_000))
def test_any_free_spectra(tmp_path_factory, seed):
    random, folder = np.random.default_rng(seed), tmp_path_factory.mktemp("free")
    bands, p, q = int(random.integers(8, 30)), int(random.integers(1, 5)), int(random.integers(1, 4))
    E, B = random.uniform(0.1, 1, (bands, p)), random.standard_normal((bands, q)) * 10.0 ** random.integers(-3, 3)
    Y = random.uniform(-1, 1, (2, 3, bands))
    write_csv(folder / "e.csv", E)
    write_csv(folder / "free.csv", B)
    write_cube(folder / "x.hdr", Y)
    _, abundance, free, _ = solve(folder, "nnls")
    for place in np.ndindex(2, 3):
        bounds = [0] * p + [-np.inf] * q, np.inf
        best = lsq_linear(np.hstack([E, B]), Y[place], bounds, tol=1e-14).x
        np.testing.assert_allclose(abundance[place], best[:p], atol=1e-5)
        np.testing.assert_allclose(free[place], best[p:], atol=1e-5 / np.linalg.norm(B, axis=0).min() + 1e-5)


def test_the_same_bytes_in_any_blocks_and_classes(scene):
    folder, *_ = scene
    first = {}
    for memory, threads in (("40K", 1), ("1G", 3)):
        solve(folder, "nnls", by="class", memory=memory, threads=threads)
        files = {path.name: path.read_bytes() for path in folder.glob("x_*.img")}
        assert not first or files == first
        first = files


def test_refusals_and_another_file(scene):
    folder, E, B, _ = scene
    write_csv(folder / "same.csv", np.column_stack([E, 0.5 - 2.0 * np.linspace(-1, 1, L)]), names=[*"abcd"])
    refused(
        unmix.LibraryError,
        "d is a mixture of spectra that are `free`",
        solve,
        folder,
        "nnls",
        endmembers=folder / "same.csv",
    )
    refused(unmix.MethodError, "`free` is for `endmembers`", solve, folder, "nnls", endmembers=None, count=3)
    refused(unmix.MethodError, "`free` does not go with `weights`", solve, folder, "nnls", weights="w.txt")
    refused(
        unmix.MethodError, "`free` does not go with `noise`", solve, folder, "nnls", uncertainty=True, noise="n.txt"
    )
    write_csv(folder / "twice.csv", np.column_stack([B, B[:, :1]]))
    refused(unmix.LibraryError, "mixture of the others", solve, folder, "nnls", free=folder / "twice.csv")
    write_csv(folder / "many.csv", np.eye(L)[:, 1:])
    refused(unmix.CubeError, "leave nothing beside", solve, folder, "nnls", free=folder / "many.csv")
    solve(folder, "nnls")
    write_csv(folder / "free.csv", B[:, :1])
    words = {"endmembers": folder / "e.csv", "free": folder / "free.csv", "scale": 1.0, "skip_existing": True}
    refused(unmix.UnmixError, "free", unmix.run, folder / "x.hdr", method="nnls", **words)


@pytest.mark.parametrize("method", ["nnls", "ucls", "fcls"])
def test_deviations_and_ranges_know_of_backgrounds(tmp_path, method):
    """Of ten bands two have no noise left: 68 and 95 % of the truths are held, where 61 and 91 would be."""
    random, x = np.random.default_rng(3), np.linspace(0, 1, 10)[:, None]
    E, B = np.abs(np.sin(7 * x * random.uniform(0.5, 1.5, 3) + random.uniform(0, 6, 3))) + 0.1, np.hstack([x**0, x])
    A = random.dirichlet(np.full(3, 3.0), (50, 60))
    Y = A @ E.T + random.normal(0, 0.3, (50, 60, 2)) @ B.T + 0.01 * random.standard_normal((50, 60, 10))
    write_cube(tmp_path / "x.hdr", Y)
    write_csv(tmp_path / "e.csv", E)
    write_csv(tmp_path / "free.csv", B)
    ranges = {} if method == "ucls" else {"ranges": "each", "confidence": 0.95}
    solve(tmp_path, method, uncertainty=True, device="cpu", browse=False, **ranges)
    off = np.abs(read_map(tmp_path / "x", "abundance")[..., :3] - A) / read_map(tmp_path / "x", "sigma")[..., :3]
    assert 0.66 < np.mean(off < 1) < 0.71 and 0.94 < np.mean(off < 1.96) < 0.965
    if ranges:
        found = read_map(tmp_path / "x", "range")
        held = (found[..., 0:6:2] <= A + 1e-6) & (found[..., 1:6:2] >= A - 1e-6)
        assert 0.94 < held.mean() < 0.965
