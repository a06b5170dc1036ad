"""Cone: endmembers of scenes whose brightness varies, against scenes with known spectra, scipy, and finite differences."""

import itertools
import json

import numpy as np
import pytest
from conftest import falsify_record, write_cube
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment, nnls
from test_cli import unmix as command

import unmix
from unmix.devices import simulated
from unmix.endmembers import directions, fitted
from unmix.endmembers.auto import smallest
from unmix.endmembers.auto.choice import value_of
from unmix.endmembers.auto.means import means
from unmix.endmembers.passes import Passes
from unmix.endmembers.sampled import Sampled
from unmix.io import Scene
from unmix.library import load
from unmix.scene.bands import choose_bands

pytestmark = pytest.mark.skipif(simulated(), reason="nothing of it runs on a GPU")


def shaded(seed, p, noise=0.0, lines=40, samples=40, L=30, pure=True):
    """A scene whose pixels are mixtures at brightnesses from 0.4 to 1.6, smooth spectra of unit length (L, p), and true shares."""
    random = np.random.default_rng(seed)
    x = np.linspace(0, 1, L)[:, None]
    E = 0.2 + np.exp(-np.square((x - random.uniform(0, 1, p)) / random.uniform(0.1, 0.3, p)))
    E /= np.linalg.norm(E, axis=0)
    F = random.dirichlet(np.full(p, 0.5), lines * samples)
    if pure:
        F[: 10 * p] = np.eye(p)[np.arange(10 * p) % p]
    Y = random.uniform(0.4, 1.6, (lines * samples, 1)) * (F @ E.T)
    Y += noise * random.standard_normal(Y.shape)
    return Y.reshape(lines, samples, L), E, F


def matched(E, truth):
    """The spectra in the order of the truth, and their angles to it."""
    unit = E / np.linalg.norm(E, axis=0)
    angles = np.arccos(np.clip((truth / np.linalg.norm(truth, axis=0)).T @ unit, -1, 1))
    rows, columns = linear_sum_assignment(angles)
    return E[:, columns], angles[rows, columns]


def shares(Y, E):
    """Fractions of nnls on spectra of unit length."""
    A = np.array([nnls(E / np.linalg.norm(E, axis=0), y)[0] for y in Y.reshape(-1, Y.shape[2])])
    return A / A.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_pure_pixels_of_any_brightness(tmp_path, p):
    """Without noise the spectra are near those of the pure pixels: a mean of pixels with three quarters and more is
    never one of them."""
    Y, E, _ = shaded(p, p)
    found = unmix.extract(write_cube(tmp_path / "s.hdr", Y), count=p, extract="cone")
    assert matched(found.matrix, E)[1].max() < 0.13 and len(found.pixels) == p
    assert [len(some) for some in found.simplex["purest"]] == found.simplex["near_pure"]


@pytest.mark.slow
@pytest.mark.parametrize("pure", [True, False])
def test_fractions_are_nearer_to_the_truth_than_those_of_vca(tmp_path, pure):
    errors = {"cone": [], "vca": []}
    for seed in range(5):
        Y, E, F = shaded(seed, 4, 0.003, pure=pure)
        path = write_cube(tmp_path / f"{seed}.hdr", Y)
        for extract, found in errors.items():
            spectra = matched(unmix.extract(path, count=4, extract=extract).matrix, E)[0]
            found.append(np.sqrt(np.square(shares(Y, spectra) - F).mean()))
    assert np.mean(errors["cone"]) < 0.6 * np.mean(errors["vca"])


def test_brightness_changes_nothing_but_the_noise(tmp_path):
    """The same directions at other lengths, by powers of two so that no value is rounded: the same places, and spectra
    of equal direction."""
    Y, _, _ = shaded(5, 3)
    factors = 2.0 ** np.random.default_rng(1).integers(-1, 2, Y.shape[:2])
    one, other = (
        unmix.extract(write_cube(tmp_path / f"{k}.hdr", cube), count=3, extract="cone")
        for k, cube in enumerate((Y, Y * factors[..., None]))
    )
    assert matched(other.matrix, one.matrix)[1].max() < 0.02


@settings(max_examples=40)
@given(st.integers(1, 6), st.integers(0, 2**32 - 1), st.booleans())
def test_amounts_are_those_of_scipy(p, seed, ties):
    random = np.random.default_rng(seed)
    W = random.integers(-3, 4, (p, p)).astype(float) if ties else random.standard_normal((p, p))
    if np.linalg.cond(W) > 1e6:
        return
    T = random.integers(-3, 4, (20, p)).astype(float) if ties else random.standard_normal((20, p))
    expected = np.array([nnls(W / np.linalg.norm(W, axis=0), t)[0] for t in T])
    data = fitted.Weighed(T, np.zeros(20), np.ones(20))
    near = np.array([nnls(W + 0.05 * random.standard_normal((p, p)), t)[0] for t in T])
    any_of_them = random.uniform(0.0, 1.0, (20, p)) * random.integers(0, 2, (20, p))
    # without a guess; with right, nearly right, and wrong ones of the edges that are used
    for before in (None, expected, near, any_of_them, np.zeros((20, p))):
        found = fitted.fitted(data, W, before).A
        assert np.abs(found - expected).max() <= 1e-8 * (1 + np.abs(expected).max())


@pytest.mark.parametrize("n", [1, 2, 20, 21, 512])
def test_quantiles_are_those_of_numpy(n):
    X = np.random.default_rng(n).random((n, 3))
    for share in (0.0, 0.3, 0.95, 1.0):
        np.testing.assert_allclose(smallest.quantile(X, share), np.quantile(X, share, axis=0), rtol=1e-14)


def test_a_fit_keeps_nothing_of_the_edges_before():
    """All directions use all edges, in both fits."""
    random = np.random.default_rng(2)
    W = np.eye(3) + 0.1 * random.random((3, 3))
    T = random.uniform(1.0, 2.0, (40, 3)) @ W.T
    tiles, room = fitted.Weighed(T, np.zeros(40), np.ones(40)).tiles, fitted.room_for(3)
    one = fitted.room_of_results(tiles, W)
    for edges in (W, W + 0.05 * random.random((3, 3))):
        one.W[:] = edges / np.linalg.norm(edges, axis=0)
        one.A[:] = 1.0
        fitted.fit_in(room, tiles, True, one)
        np.testing.assert_allclose(fitted.Fitted(one, 40).A, np.linalg.solve(one.W, T.T).T, rtol=1e-9)


@given(st.integers(2, 20), st.integers(0, 2**32 - 1), st.sampled_from([1e-9, 1e-3, 1.0]))
def test_two_amounts_are_those_of_scipy(n, seed, apart):
    random = np.random.default_rng(seed)
    X = random.uniform(0.1, 10.0, (n, 1)) * (1.0 + apart * random.uniform(0.0, 1.0, (n, 2)))
    left = X @ directions.two_amounts(X) - 1.0
    assert np.linalg.norm(left) <= nnls(X, np.ones(n))[1] + 1e-9
    assert min(directions.two_amounts(X)) >= 0.0


def test_steps_follow_the_slope_and_never_raise_the_value():
    random = np.random.default_rng(3)
    A = random.dirichlet(np.ones(3), 400)
    T = A @ np.array([[1.0, 0.2, 0.1], [0.1, 1, 0.3], [0.2, 0.1, 1]]) + 0.02 * random.standard_normal((400, 3))
    T /= np.linalg.norm(T, axis=1, keepdims=True)
    weights = random.uniform(0.5, 1.5, 400)
    data = fitted.Weighed(T, np.full(400, 1e-4), weights / weights.mean())
    begin = T[[0, 1, 2]].T
    costs = [smallest.cost_of(smallest.narrowed(data, begin, most)) for most in (0, 1, 3, 10, 60)]
    values = []
    for most in (0, 1, 3, 10, 60):
        one = smallest.narrowed(data, begin, most)
        soft = smallest.LARGEST_SQUARED_PART**2 * np.median(fitted.fitted(data, begin).squares)
        values.append(2 * np.log(np.sqrt(one.squares + soft).mean()) + smallest.PRICE * smallest.solid_angle(one.W))
    assert all(after <= before for before, after in itertools.pairwise(values)) and np.isfinite(costs).all()
    lonely = (1 - np.quantile(one.fractions, 0.95, axis=0)).sum()
    expected = (
        2 * np.log(np.sqrt(one.squares).mean())
        + 0.1 * np.log(np.linalg.det(one.W.T @ one.W + 0.003 * np.eye(3)))
        + 0.6 * lonely
    )
    assert costs[-1] == pytest.approx(expected, rel=1e-9)
    # At the end no small change of an edge lowers the value.
    W = smallest.narrowed(data, begin, 60).W
    value = lambda V: (  # noqa: E731
        2 * np.log(np.sqrt(fitted.fitted(data, V).squares + soft).mean())
        + smallest.PRICE * smallest.solid_angle(V / np.linalg.norm(V, axis=0))
    )
    for _ in range(20):
        assert value(W + 1e-3 * random.standard_normal(W.shape)) > value(W) - 1e-3


def test_what_a_number_of_edges_costs(tmp_path):
    """By distances and fractions of scipy."""
    Y, E, _ = shaded(2, 3, 0.003, lines=12, samples=15)
    cube = unmix.open_cube(write_cube(tmp_path / "s.hdr", Y))
    sampled = Sampled.of(Passes([Scene(cube, choose_bands(cube, "good", None), None)], 2**30, 1))
    value, misfit, *_ = value_of(sampled, sampled.seen(3)[0].T @ E)
    units = Y.reshape(-1, 30) / np.linalg.norm(Y.reshape(-1, 30), axis=1)[:, None]
    left = np.mean([nnls(E, y)[1] for y in units])
    lonely = (1 - np.quantile(shares(Y, E), 0.95, axis=0)).sum()
    assert misfit == pytest.approx(left, rel=1e-4) and value == pytest.approx(2 * np.log(left) + 0.8 * lonely, rel=1e-4)


def test_means_are_those_of_near_pure_pixels(tmp_path):
    """Four times over, with fractions of scipy."""
    Y, _, _ = shaded(2, 3, 0.01, lines=15, samples=20)
    cube = unmix.open_cube(write_cube(tmp_path / "s.hdr", Y))
    sampled = Sampled.of(Passes([Scene(cube, choose_bands(cube, "good", None), None)], 2**30, 1))
    units = Y.reshape(-1, 30) / np.linalg.norm(Y.reshape(-1, 30), axis=1)[:, None]
    members = [np.array([row]) for row in sampled.cloud.corners(3)[-1]]
    for _ in range(4):
        U = np.stack([units[some].mean(axis=0) for some in members], axis=1)
        members = [np.flatnonzero(share >= 0.8) for share in shares(Y, U).T]
    U = np.stack([units[some].mean(axis=0) for some in members], axis=1)
    assert matched(means(sampled, 3).spectra, U)[1].max() < 1e-3


def test_noise_of_directions_falls_with_brightness(tmp_path):
    random = np.random.default_rng(0)
    direction = np.full(40, 40**-0.5)
    lengths = np.repeat(random.uniform(0.2, 2, (60, 6)), 10, axis=1)
    Y = lengths[..., None] * direction + 0.01 * random.standard_normal((60, 60, 40))
    cube = unmix.open_cube(write_cube(tmp_path / "s.hdr", Y))
    sample = directions.sampled_directions(Passes([Scene(cube, choose_bands(cube, "good", None), None)], 2**30, 1))
    found = directions.noise_of_directions(sample) * np.square(sample.lengths)
    assert abs(np.median(found) - 39 * 1e-4) < 1e-3  # the noise along the direction changes its length alone


@pytest.mark.parametrize(
    ("interleave", "step"), [("bip", 1), ("bil", 1), ("bsq", 1), ("bip", 16), ("bil", 16), ("bsq", 16)]
)
def test_sample_of_a_large_scene(tmp_path, monkeypatch, interleave, step):
    """Stretches of neighbours from all over the scene, the same spectra as in the file, without masked pixels.

    Each row of chunks is read once: line by line each would be inflated as often as it has lines.
    """
    Y = np.random.default_rng(2).uniform(0.1, 1, (70, 50, 6)).astype("float32")
    Y[::3, 7] = -1
    cube = unmix.open_cube(write_cube(tmp_path / "s.hdr", Y, interleave, data_ignore_value=-1))
    monkeypatch.setattr(directions, "MOST_PIXELS", 800)
    passes = Passes([Scene(cube, choose_bands(cube, "good", None), cube.nodata)], 2**30, 1)
    read, own = [], cube.read
    cube.lines_together, cube.read = step, lambda lines, out: read.append(lines.start) or own(lines, out)
    sample = directions.sampled_directions(passes)
    assert len(read) == len(set(read)) <= 70 // step + 1
    assert 600 < len(sample.places) <= 900 and len(set(sample.places.tolist())) == len(sample.places)
    np.testing.assert_array_equal(sample.spectra, Y.reshape(-1, 6)[sample.places])
    assert (sample.spectra > 0).all() and len(set(sample.places // 50 // 10)) == 7
    follows = np.flatnonzero(sample.follows)
    assert len(follows) > 500 and (np.diff(sample.places)[follows - 1] == 1).all()


def test_run_with_cone(tmp_path):
    """A whole run: the same bytes whatever threads and memory, verified, with the places of the pixels each spectrum is made of."""
    Y, _, _ = shaded(4, 3, 0.003)
    x, random = np.linspace(0, 7, Y.shape[2]), np.random.default_rng(4)
    Y *= 1 + 0.1 * np.sin(x + random.uniform(0, 7, (*Y.shape[:2], 1)))  # spectra vary within a material
    path = write_cube(tmp_path / "s.hdr", Y.astype("float32"))
    for name, more in (("a", ["--threads", "1"]), ("b", ["--threads", "2", "--memory", "2M"])):
        command("run", path, "-n", 3, "--method", "nnls", "--extract", "cone", "-o", tmp_path / name, *more)
    for name in ("s_abundance.img", "s_endmembers.csv"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    report = json.loads((tmp_path / "a/s_run.json").read_text())
    assert report["endmembers"]["source"] == "cone (seed 0)" and report["endmembers"]["simplex"]["pixels"] == 1600
    simplex = report["endmembers"]["simplex"]
    assert [len(some) for some in simplex["purest"]] == simplex["near_pure"] and not simplex["sharp"]
    command("verify", tmp_path / "a/s", "--all")
    falsify_record(tmp_path / "a/s", lambda record: record["endmembers"]["simplex"]["purest"][0].reverse())
    told = command("verify", tmp_path / "a/s", "--all", code=1)[1]
    assert "simplex of the endmembers is not what is found again" in told


def test_edges_are_the_spectra_where_these_do_not_vary(tmp_path):
    """Neighbours that are mixed alike tell that pixels leave the cone by no more than noise; verified by making it again."""
    random = np.random.default_rng(1)
    E = shaded(1, 3)[1]
    F = np.repeat(random.dirichlet(np.full(3, 0.4), (40, 8)), 6, axis=1)
    Y = (F @ E.T) * random.uniform(0.5, 1.5, (40, 48, 1)) + 0.002 * random.standard_normal((40, 48, 30))
    path = write_cube(tmp_path / "s.hdr", Y)
    report = unmix.run(path, count=3, extract="cone", device="cpu", browse=False)
    assert (
        report["endmembers"]["simplex"]["sharp"]
        and matched(load(tmp_path / "s_endmembers.csv").matrix, E)[1].max() < 0.02
    )
    command("verify", tmp_path / "s", "--all")


def test_too_few_directions_are_one_line(tmp_path):
    Y = np.outer(np.linspace(1, 2, 400), np.linspace(0.1, 1, 9)).reshape(20, 20, 9)
    path = write_cube(tmp_path / "s.hdr", Y)
    _, told = command("endmembers", path, "-n", 3, "--extract", "cone", "-o", tmp_path / "o", code=3)
    assert "only 1 distinct spectra" in told and told.count("\n") == 1
    command("run", path, "-n", 2, "--extract", "cone", "--smooth", 5, "-o", tmp_path / "o", code=2, tells="smooth")
