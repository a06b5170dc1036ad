"""Averages weighted by likelihood: against models one after the other, integrals on a grid, and truths that are drawn."""

import itertools

import numpy as np
import pytest
from conftest import read_map, refused, write_csv, write_cube
from reference import averages as definition
from test_models import library

import unmix
from unmix.commands.verify import verify
from unmix.devices import count_gpus
from unmix.features.average.likely import Likely, equal_prior
from unmix.features.average.models import chosen_spectra, normal_steps, sets_of_classes, tabulate
from unmix.methods import counts_of_models


def scene(random, E, kinds, N, noise, shaded=0.5):
    """Mixtures of one spectrum of each of one to all classes, with shade in some, all evenly drawn; and their fractions."""
    classes = sorted(set(kinds))
    Y, A = np.empty((N, len(E))), np.zeros((N, len(classes) + 1))
    for n in range(N):
        some = random.choice(len(classes), random.integers(1, len(classes) + 1), replace=False)
        is_shaded = random.random() < shaded
        share = random.dirichlet(np.ones(len(some) + is_shaded))
        picked = [random.choice(np.flatnonzero(np.array(kinds) == classes[c])) for c in some]
        A[n, some] = share[: len(some)]
        A[n, -1] = 1 - A[n, :-1].sum()
        Y[n] = E[:, picked] @ share[: len(some)] + noise * random.standard_normal(len(E))
    return Y, A


def likely_of(E, kinds, shade, variance):
    numbers = np.array([sorted(set(kinds)).index(kind) for kind in kinds])
    table = tabulate(E, numbers, shade)
    return Likely(E, table, numbers.max() + 1, equal_prior(table), variance), numbers


@pytest.mark.parametrize("shade", [True, False])
@pytest.mark.parametrize("sizes", [(2, 1), (2, 3, 1)])
def test_against_models_one_after_the_other(shade, sizes):
    random = np.random.default_rng(len(sizes))
    E, kinds = library(random, 9, sizes)
    Y, _ = scene(random, E, kinds, 4, 0.02)
    likely, numbers = likely_of(E, kinds, shade, 0.02**2)
    likely.alike = 1.7
    likely.prior = random.dirichlet(np.ones(likely.prior.size)).reshape(-1, 2) * [float(shade), 1.0]
    found = likely.of(Y)
    for n, y in enumerate(Y):
        mean, deviation = definition.averages(y, E, numbers, likely.table, likely.prior, 0.02**2, 1.7)
        np.testing.assert_allclose(found.mean[n], mean, atol=1e-10)
        np.testing.assert_allclose(found.deviation[n], deviation, atol=1e-7)


@pytest.mark.parametrize("noise", [0.01, 0.1])
def test_against_integrals_on_a_grid(noise):
    """The mean over all fractions, evenly spread before light is known, of three spectra in two classes."""
    random = np.random.default_rng(5)
    E, kinds = library(random, 6, (2, 1))
    Y, _ = scene(random, E, kinds, 6, noise)
    likely, numbers = likely_of(E, kinds, True, noise**2)
    found, prior = likely.of(Y), likely.prior
    points = (np.arange(1500) + 0.5) / 1500
    one, other = np.meshgrid(points, points, indexing="ij")
    inside = one + other <= 1
    for n, y in enumerate(Y):
        best = definition.least_square(y, E, numbers, True)
        variance = noise**2 if best / 6 <= noise**2 * (1 + 3 / 3**0.5) else best / 6
        weight, mean = 0.0, np.zeros(2)
        for s, columns in [(0, (0,)), (0, (1,)), (1, (2,)), (2, (0, 2)), (2, (1, 2))]:
            share = prior[s] / {0: 2, 1: 1, 2: 2}[s]
            plain = [points] if len(columns) == 1 else [one[inside], other[inside]]
            lines = [np.ones(1)] if len(columns) == 1 else [points, 1 - points]
            for values, part in ((plain, 0), (lines, 1)):
                left = y[:, None] - sum(E[:, [j]] * x for j, x in zip(columns, values))
                w = np.exp(-(np.sum(left**2, axis=0) - best) / (2 * variance))
                w *= share[part] / len(w)
                weight += w.sum()
                for j, x in zip(columns, values):
                    mean[numbers[j]] += w @ x
        error = found.deviation[n, :2] / np.sqrt(found.models[n])
        assert np.all(np.abs(found.mean[n, :2] - mean / weight) <= 4 * error + 2e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "L", "noise"), [((3, 4, 3), 12, 0.01), ((40, 20, 8), 10, 0.02), ((5, 5, 5, 5), 30, 0.02)]
)
@pytest.mark.parametrize("is_known", [True, False])
def test_intervals_hold_truths(sizes, L, noise, is_known):
    random = np.random.default_rng(sum(sizes) + is_known)
    E, kinds = library(random, L, sizes)
    Y, A = scene(random, E, kinds, 1500, noise)
    found = unmix.average(Y, E, kinds, noise=noise if is_known else None)
    off, reach = np.abs(found.mean[:, :-1] - A), 1.645 * found.deviation[:, :-1]
    assert 0.86 <= np.mean(off <= reach + 1e-9) <= 0.97
    best = unmix.mesma(Y, E, kinds, fusion=0.0).abundances
    sums = np.stack([best[:, [kind == name for kind in kinds]].sum(axis=1) for name in sorted(set(kinds))], axis=1)
    assert np.mean(off[:, :-1] ** 2) < np.mean((sums - A[:, :-1]) ** 2)


def test_exact_mixtures_are_found():
    random = np.random.default_rng(1)
    E, kinds = library(random, 12, (3, 4, 3))
    Y, A = scene(random, E, kinds, 100, 0.0)
    np.testing.assert_allclose(unmix.average(Y, E, kinds).mean[:, :-1], A, atol=1e-5)


def test_noise_is_learned():
    random = np.random.default_rng(2)
    E, kinds = library(random, 20, (3, 4, 3))
    for noise in (0.003, 0.03):
        Y, _ = scene(random, E, kinds, 256, noise)
        likely, _ = likely_of(E, kinds, True, 0.0)
        likely.learn(Y, False)
        assert likely.variance**0.5 == pytest.approx(noise, rel=0.35)


def test_any_library_pixel_and_argument():
    """One spectrum, one pixel, tiny units, classes of so many spectra that their models have no number; wrong arguments."""
    random = np.random.default_rng(8)
    E, kinds = library(random, 10, (3, 2))
    found = unmix.average(0.5 * E[:, 0], E, kinds)
    assert found.mean.shape == (4,) and found.models.shape == () and found.models >= 1
    assert unmix.average(E[:, :1].T, E[:, :1], ["a"]).models == pytest.approx(1, abs=0.1)
    Y, _ = scene(random, E, kinds, 20, 0.01)
    plain, tiny = unmix.average(Y, E, kinds), unmix.average(Y * 2.0**-400, E * 2.0**-400, kinds)
    np.testing.assert_allclose(tiny.mean, plain.mean, atol=1e-9)
    many = [np.arange(300 * c, 300 * (c + 1)) for c in range(8)]
    assert chosen_spectra(many, 50, random).shape == (50, 8)
    for words, text in (({"noise": [1, 2, 3]}, "noise"), ({"seed": -1}, "seed"), ({"device": "gpu"}, "device")):
        refused(unmix.UnmixError, text, unmix.average, Y, E, kinds, **words)


@pytest.mark.slow
def test_enough_models_are_enough():
    """Means of some models of many are near those of all; both are the same where few share the weight."""
    random = np.random.default_rng(9)
    E, kinds = library(random, 10, (60, 50, 40))
    Y, _ = scene(random, E, kinds, 40, 0.15)
    likely, _ = likely_of(E, kinds, True, 0.15**2)
    assert likely.table.enough == 300 and likely.table.begin[-1] > 100_000
    some = likely.of(Y)
    likely.table = likely.table._replace(enough=np.inf)
    every = likely.of(Y)
    off = np.abs(some.mean - every.mean) / np.maximum(every.deviation, 1e-6)
    assert off.max() < 0.35 and np.sqrt(np.mean(off**2)) < 0.08 and every.models.max() > 600


def test_misfits_that_are_alike_in_bands():
    """Errors of a library that change slowly from band to band count as few; white noise counts as it is."""
    random = np.random.default_rng(6)
    E, kinds = library(random, 60, (4, 4, 4))
    Y, A = scene(random, E, kinds, 300, 0.01)
    wave = np.linspace(0, 1, 60)
    errors = sum(random.standard_normal((300, 1)) * np.cos(np.pi * k * wave + random.uniform(0, 6)) for k in range(3))
    inside = []
    for pixels in (Y, Y + 0.02 * errors):
        likely, _ = likely_of(E, kinds, True, 0.0)
        likely.learn(pixels, False)
        found = likely.of(pixels)
        inside.append(np.mean(np.abs(found.mean[:, :-1] - A) <= 1.645 * found.deviation[:, :-1]))
        assert likely.alike < 1.2 if pixels is Y else likely.alike > 5
    assert min(inside) > 0.8


def test_models_that_are_drawn():
    assert counts_of_models([2, 3], 2) == [2 + 3, 6] and sets_of_classes([2, 3]) == [(0,), (1,), (0, 1)]
    random = np.random.default_rng(0)
    members = [np.arange(40), np.arange(40, 70), np.arange(70, 75)]
    some = chosen_spectra(members, 500, random)
    assert len(set(map(tuple, some.tolist()))) == 500
    assert all(np.isin(some[:, c], members[c]).all() and len(set(some[:, c].tolist())) > 4 for c in range(3))
    every = chosen_spectra(members[1:], 500, random)
    assert sorted(map(tuple, every.tolist())) == list(itertools.product(range(40, 70), range(70, 75)))
    steps = normal_steps(4000, 3, random)
    np.testing.assert_allclose(np.cov(steps.T), np.eye(3), atol=0.05)
    refused(unmix.LibraryError, "more than 255", sets_of_classes, [1] * 9)


def test_alike_and_dark_spectra_make_no_models():
    random = np.random.default_rng(3)
    E, _ = library(random, 9, (3, 3))
    E[:, 1], E[:, 4] = E[:, 3], 0.0
    table = tabulate(E, np.array([0, 0, 0, 1, 1, 1]), True)
    pairs = table.spectra[table.spectra_at[2] :].reshape(-1, 2).tolist()
    assert [1, 3] not in pairs and not any(4 in pair for pair in pairs) and [0, 3] in pairs
    refused(unmix.LibraryError, "all spectra are zero", tabulate, 0 * E, np.array([0, 0, 0, 1, 1, 1]), True)


@pytest.fixture
def cube(tmp_path):
    random = np.random.default_rng(7)
    E, kinds = library(random, 14, (3, 4, 2))
    Y, A = scene(random, E, kinds, 130, 0.01)
    Y = Y.reshape(10, 13, 14).astype(np.float32)
    Y[1, 2] = -9.0
    write_csv(tmp_path / "library.csv", E, classes=kinds)
    (tmp_path / "noise.csv").write_text("0.01\n" * 14)
    return write_cube(tmp_path / "x.hdr", Y, data_ignore_value=-9), E, kinds, Y, A


@pytest.mark.parametrize(
    "words", [{"method": "pcls", "by": "class"}, {"method": "fcls", "by": "class"}, {"method": "mesma"}]
)
def test_from_file_to_file(tmp_path, cube, words):
    path, E, kinds, Y, _ = cube
    how = {"endmembers": tmp_path / "library.csv", "average": "likelihood", "device": "cpu", **words}
    report = unmix.run(path, **how)
    found = read_map(tmp_path / "x", "average")
    names = ["c0", "c1", "c2", *["shade"] * (words["method"] != "fcls"), "brightness"]
    bands = ", ".join(f"{what} of {name}" for what in ("mean", "deviation") for name in names)
    assert f"band names = {{{bands}}}" in (tmp_path / "x_average.hdr").read_text()
    assert (found[1, 2] == -9999).all()
    good = np.ones((10, 13), bool)
    good[1, 2] = False
    direct = unmix.average(Y[good], E, kinds, shade=words["method"] != "fcls")
    half = len(names)
    if words["method"] != "fcls":  # of a scene with shade, which pixels learn from has no other effect
        assert np.abs(found[good][:, :3] - direct.mean[:, :3]).max() < 0.1  # their samples differ by a pixel
    assert np.all(found[good][:, half:] >= 0)
    entry = report["average"]
    assert entry["models"] == 3 + 4 + 2 + 12 + 6 + 8 + 24 and 0.004 < entry["noise"] < 0.2
    assert sum(one["share"] for one in entry["sets"]) == pytest.approx(1) and "all 59 models" in entry["said"]
    assert verify(tmp_path / "x", everything=True).faults == []
    first = (tmp_path / "x_average.img").read_bytes()
    unmix.run(path, overwrite=True, memory="1M", threads=1, **how)
    assert (tmp_path / "x_average.img").read_bytes() == first


def test_noise_that_is_given(tmp_path, cube):
    path, *_ = cube
    how = {"endmembers": tmp_path / "library.csv", "method": "pcls", "by": "class", "average": "likelihood"}
    report = unmix.run(path, noise=tmp_path / "noise.csv", **how)
    assert report["average"]["noise"] is None and "of `noise`" in report["average"]["said"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"method": "nnls", "by": "class"}, "is for `method` fcls, pcls"),
        ({"method": "pcls", "by": "class", "shade_normalize": True}, "sums as they are"),
        ({"method": "pcls"}, "is for `by` class or mesma"),
        ({"method": "mesma", "limits": "viper"}, "are of models"),
    ],
)
def test_refusals(tmp_path, cube, words, text):
    refused(
        unmix.MethodError, text, unmix.run, cube[0], endmembers=tmp_path / "library.csv", average="likelihood", **words
    )


@pytest.mark.sim
@pytest.mark.skipif(count_gpus() == 0, reason="neither a GPU nor the simulator")
def test_on_a_gpu():
    random = np.random.default_rng(4)
    E, kinds = library(random, 8, (2, 2))
    Y, _ = scene(random, E, kinds, 3, 0.02)
    one, other = (unmix.average(Y, E, kinds, noise=0.02, device=device) for device in ("cpu", "cuda"))
    for a, b in zip(one, other):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
