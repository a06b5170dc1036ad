"""The number of components of tables, whose neighbours tell nothing, by what is held out."""

import numpy as np
import pytest
import scipy.ndimage
from conftest import write_cube

import unmix
from unmix.endmembers.held_out import errors_of_block, held_out
from unmix.endmembers.resampled import thinned
from unmix.scene import open_scene


def table(seed):
    """A table of mixtures (N, L) with white, relative or Poisson noise, and the number of its components."""
    random = np.random.default_rng(seed)
    p, N, L = random.integers(2, 6), random.integers(15, 60), random.integers(60, 400)
    steps = random.standard_normal((L, p))
    E = np.abs(np.cumsum(steps, 0)) if random.random() < 0.5 else np.exp(1.5 * steps)
    Y = random.dirichlet(np.ones(p), N) @ E.T
    kind = seed % 3
    if kind == 0:
        return Y + Y.std() * 10 ** random.uniform(-3, -1.3) * random.standard_normal(Y.shape), int(p)
    if kind == 1:
        return Y * np.exp(random.uniform(0.01, 0.1) * random.standard_normal(Y.shape)), int(p)
    return random.poisson(Y * random.uniform(200, 5000) / Y.mean()).astype(float), int(p)


def test_tables_are_counted():
    off = np.array([held_out(Y) - p for Y, p in map(table, range(60))])
    assert (off == 0).mean() >= 0.9 and np.abs(off).max() <= 1


def test_errors_are_those_of_the_pseudo_inverse():
    Y, _ = table(3)
    rows, columns = (np.random.default_rng(4).random(size) < 0.4 for size in Y.shape)
    U, values, V = np.linalg.svd(Y[np.ix_(~rows, ~columns)], full_matrices=False)
    for k, found in enumerate(errors_of_block(Y, rows, columns, 5), 1):
        inverse = np.linalg.pinv((U[:, :k] * values[:k]) @ V[:k])
        rest = Y[np.ix_(rows, columns)] - Y[np.ix_(rows, ~columns)] @ inverse @ Y[np.ix_(~rows, columns)]
        np.testing.assert_allclose(found, np.square(rest).sum(), rtol=1e-8)


@pytest.mark.parametrize("Y", [np.ones((3, 3)), np.zeros((50, 40)), np.ones((50, 40)), np.full((40, 40), np.inf)])
def test_what_cannot_be_counted_is_one(Y):
    with np.errstate(invalid="ignore"):
        assert held_out(Y) == 1


def test_a_table_is_never_its_number_of_pixels(tmp_path):
    for seed in range(6):
        Y, p = table(seed)
        scene = write_cube(tmp_path / "t.hdr", Y[None])
        assert abs(unmix.extract(scene, count="auto").counted["auto"] - p) <= 1
        assert len(unmix.run(scene, out_dir=tmp_path, overwrite=True)["endmembers"]["names"]) < p + 2


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "least", "most"), [("carbs", 3, 3), ("shen33", 2, 4), ("simdata", 3, 3), ("eels", 3, 3)]
)
def test_public_tables(data, tmp_path, name, least, most):
    assert least <= len(unmix.run(data / f"{name}/{name}.hdr", out_dir=tmp_path)["endmembers"]["names"]) <= most


@pytest.mark.parametrize("factor", [1.3, 2, 3])
def test_interpolated_pixels_are_counted_apart(tmp_path, factor, caplog):
    """Neighbours share noise there, and planes of it passed for materials: 40 for three."""
    random = np.random.default_rng(5)
    E = random.uniform(0.1, 0.9, (60, 3))
    fields = np.stack([scipy.ndimage.gaussian_filter(random.standard_normal((60, 60)), 4) for _ in range(3)], axis=-1)
    F = np.exp(30 * fields)
    Y = F / F.sum(axis=2, keepdims=True) @ E.T + 0.01 * random.standard_normal((60, 60, 60))
    with caplog.at_level("INFO", "unmix"):
        assert unmix.extract(write_cube(tmp_path / "a.hdr", Y), count="auto").counted["auto"] == 3
        assert "neighbours share noise" not in caplog.text
        Z = scipy.ndimage.zoom(Y, (factor, factor, 1), order=1)
        Z[5, 7:60] = np.nan
        assert unmix.extract(write_cube(tmp_path / "b.hdr", Z), count="auto").counted["auto"] == 3
        assert "neighbours share noise" in caplog.text


def test_moments_of_thinned_pixels(tmp_path):
    Y = np.random.default_rng(6).random((9, 11, 4))
    Y[3, 4] = np.nan
    found = thinned(open_scene(write_cube(tmp_path / "a.hdr", Y)), 2)
    part = Y[::2, ::2].reshape(-1, 4)
    assert found.pixels == len(part) and found.pairs == 25
    np.testing.assert_allclose(found.mean, part.mean(axis=0))
    np.testing.assert_allclose(found.covariance, np.cov(part.T, bias=True), atol=1e-15)
    D = np.diff(Y[::2, ::2], axis=1).reshape(-1, 4)
    np.testing.assert_allclose(found.differences, D.T @ D / 50)
