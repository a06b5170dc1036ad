"""MESMA's ranges: the least and the largest fraction over the mixtures of all models, against scipy, model by model."""

import itertools

import numpy as np
import pytest
from conftest import falsify, read_map, write_csv, write_cube
from reference.models import EveryModel
from reference.ranges import largest_of_models
from test_cli import unmix as command
from test_models import library, odd_scene, scene

import unmix
from unmix.commands.verify import verify
from unmix.methods import ModelChoice

# Its own compiled loops over all models take 25 s where nothing is compiled yet.
pytestmark = pytest.mark.slow
KINDS = ("c0", "c1", "c2")


@pytest.fixture
def cube(tmp_path):
    """See `odd_scene`."""
    return odd_scene(tmp_path)


def limit_of(y, rmse, within):
    """Half of the largest squared error of a mixture that fits."""
    return 0.5 * ((rmse + within) ** 2 * len(y) + 1e-11 * y @ y)


@pytest.mark.parametrize(
    ("within", "normalized", "words"),
    [
        (0.003, False, {}),
        (0.05, False, {}),
        (None, True, {}),
        (0.05, True, {"class_sets": "c0+c1,c1+c2"}),
        (0.01, False, {"levels": "2-3", "max_rmse": 0.02}),
    ],
)
def test_against_scipy(tmp_path, cube, within, normalized, words):
    path, E, kinds, Y = cube
    words = {"levels": "2-4"} | words
    report = unmix.run(
        path,
        endmembers=tmp_path / "library.csv",
        method="mesma",
        uncertainty=True,
        ranges="class",
        within=within,
        shade_normalize=normalized,
        **words,
    )
    models = EveryModel(E, kinds, ModelChoice(**words), normalized)
    names = ", ".join(f"{kind} {end}" for kind in KINDS for end in ("lower", "upper"))
    assert f"band names = {{{names}}}" in (tmp_path / "x_range.hdr").read_text()
    found, spread, fraction = (read_map(tmp_path / "x", name) for name in ("range", "spread", "fraction"))
    rmse, within = read_map(tmp_path / "x", "rmse")[..., 0], 0.0035 if within is None else within
    limits = f"all mixtures within {within:g} of the RMSE of the chosen model"
    assert report["ranges"]["limit"] == limits and limits in (tmp_path / "x_range.hdr").read_text()
    for line, sample in np.ndindex(3, 7):
        y, row = Y[line, sample].astype(np.float32).astype(float), found[line, sample].reshape(3, 2)
        rho = limit_of(y, float(rmse[line, sample]), within)
        rho = min(rho, 0.5 * len(y) * words.get("max_rmse", np.inf) ** 2)
        is_dark = normalized and fraction[line, sample, 0] == -9999
        if (line, sample) == (0, 1) or is_dark or not spread[line, sample, 1] > 0:
            assert (row == -9999).all()
            continue
        if normalized and 0.5 * y @ y <= rho:
            assert (row == (0, 1)).all()
            continue
        truth = [[sign * largest_of_models(models, y, kind, sign, rho) for sign in (-1.0, 1.0)] for kind in KINDS]
        np.testing.assert_allclose(row, truth, atol=2e-6)
        of_models = spread[line, sample, 2:].reshape(4, 4)[:3, 2:]
        assert (row[:, 0] <= of_models[:, 0] + 1e-6).all() and (row[:, 1] >= of_models[:, 1] - 1e-6).all()


@pytest.mark.parametrize("normalized", [False, True])
def test_no_mixture_of_a_model_that_fits_is_outside(tmp_path, cube, normalized):
    """Random mixtures of random models, many of which fit: near the optimum of each, inside of the limits."""
    path, E, kinds, Y = cube
    within, random = 0.02, np.random.default_rng(5)
    unmix.run(
        path,
        endmembers=tmp_path / "library.csv",
        method="mesma",
        levels="2-4",
        ranges="class",
        within=within,
        shade_normalize=normalized,
        certificate=True,
    )
    found, rmse = read_map(tmp_path / "x", "range"), read_map(tmp_path / "x", "rmse")[..., 0]
    number = np.array([KINDS.index(kind) for kind in kinds])
    sets = [
        one
        for k in (1, 2, 3)
        for one in itertools.combinations(range(len(kinds)), k)
        if len(set(number[list(one)])) == k
    ]
    fitted = 0
    for line, sample in ((0, 0), (0, 5), (1, 1), (1, 4), (2, 6)):
        y, row = Y[line, sample].astype(np.float32).astype(float), found[line, sample].reshape(3, 2)
        most = (float(rmse[line, sample]) + within) ** 2 * len(y)
        for one in sets:
            A = E[:, one]
            best = np.linalg.lstsq(A, y, rcond=None)[0]
            x = best + random.normal(0, 10.0 ** random.uniform(-3, 0, (400, 1)), (400, len(one)))
            x = np.abs(x)
            x = x / np.maximum(1.0, x.sum(axis=1, keepdims=True))
            x = x[np.square(y - x @ A.T).sum(axis=1) <= most]
            fitted += len(x)
            shares = np.zeros((len(x), 3))
            shares[:, number[list(one)]] = x / x.sum(axis=1, keepdims=True) if normalized else x
            assert (shares >= row[:, 0]).all() and (shares <= row[:, 1]).all()
    assert fitted > 2000


@pytest.mark.parametrize(
    "case", ["classes share a spectrum", "nearly equal", "three dependent", "a class of one", "four classes"]
)
def test_odd_libraries(tmp_path, case):
    random = np.random.default_rng(11)
    sizes = {"a class of one": (1, 1), "four classes": (2, 2, 1, 2)}.get(case, (2, 2, 2))
    E, kinds = library(random, 12, sizes)
    if case == "classes share a spectrum":
        E[:, 3], E[:, 5] = E[:, 0], 2.0 * E[:, 1]
    elif case == "nearly equal":
        E[:, 4] = E[:, 0] + 1e-3 * random.standard_normal(12)
    elif case == "three dependent":
        E[:, 5] = 0.4 * E[:, 1] + 0.6 * E[:, 3] + 1e-3 * random.standard_normal(12)
    path = write_cube(tmp_path / "x.hdr", scene(random, E, kinds, 6).reshape(2, 3, 12))
    unmix.run(
        path,
        endmembers=write_csv(tmp_path / "e.csv", E, classes=kinds),
        method="mesma",
        levels=f"2-{min(4, len(sizes) + 1)}",
        ranges="class",
        within=0.01,
        scale=1.0,
        shade_normalize=case == "nearly equal",
    )
    assert verify(tmp_path / "x", everything=True).faults == []
    ends, fractions = read_map(tmp_path / "x", "range"), read_map(tmp_path / "x", "fraction")[..., : len(sizes)]
    assert (ends[..., 0::2] <= fractions).all() and (ends[..., 1::2] >= fractions).all()


def test_a_share_whose_ellipsoid_has_mixtures_of_sum_zero(tmp_path):
    """A dark spectrum beside a bright one: the least share is where a plane touches, though without limits shares have no least."""
    E = np.array(
        [
            [0.52990016, 0.67706361, 0.34062529, 0.59452508, 0.65884013, 0.96106732],
            [0.12417947, 0.04032522, 0.00722241, 0.10733036, 0.03089678, 0.13912109],
        ]
    ).T
    y = np.array([0.38343236, 0.56717961, 0.28093236, 0.42922535, 0.52184134, 0.74786396])
    unmix.run(
        write_cube(tmp_path / "x.hdr", y[None, None]),
        endmembers=write_csv(tmp_path / "e.csv", E, classes=["a", "b"]),
        method="mesma",
        fusion=0.0,
        ranges="class",
        within=0.003,
        shade_normalize=True,
        scale=1.0,
    )
    rmse = float(read_map(tmp_path / "x", "rmse")[0, 0, 0])
    x = np.stack(np.meshgrid(np.linspace(0, 1, 1500), np.linspace(0, 1, 1500)), axis=-1).reshape(-1, 2)
    G, c, square = E.T @ E, E.T @ y, y @ y
    fits = (np.einsum("nj,jk,nk->n", x, G, x) - 2 * x @ c + square <= (rmse + 0.003) ** 2 * 6) & (x.sum(axis=1) <= 1)
    shares = x[fits, 0] / x[fits].sum(axis=1)
    np.testing.assert_allclose(read_map(tmp_path / "x", "range")[0, 0, :2], [shares.min(), shares.max()], atol=2e-3)
    assert verify(tmp_path / "x", everything=True).faults == []


def test_command_quantized_and_verified(tmp_path, cube):
    """Steps contain what floats say, and `verify` finds an end that is moved."""
    words = ["mesma", cube[0], "-e", tmp_path / "library.csv", "--levels", "2-4", "--ranges", "class"]
    words += ["--within", "0.01"]
    assert "zero cannot be excluded of" in command(*words, "-o", tmp_path / "floats")[1]
    command(*words, "--quantize", "1e-3", "-o", tmp_path / "steps")
    floats, steps = (read_map(tmp_path / folder / "x", "range") for folder in ("floats", "steps"))
    known = floats[..., 0] != -9999
    assert (steps[known][:, 0::2] <= floats[known][:, 0::2] + 1e-7).all()
    assert (steps[known][:, 1::2] >= floats[known][:, 1::2] - 1e-7).all()
    assert (np.abs(steps - floats)[known] < 1.1e-3).all()
    for folder in ("floats", "steps"):
        assert verify(tmp_path / folder / "x", everything=True).faults == []

    def move(values):
        values.reshape(3, 6, 7)[0, 1, 0] += 0.02

    falsify(tmp_path / "floats/x", "range", 3, move)
    faults = verify(tmp_path / "floats/x", everything=True).faults
    assert len(faults) == 1 and "its range does not match the cube" in faults[0]


def test_refused_models_are_said_and_a_pixel_of_zeros_has_any_fractions(tmp_path, caplog):
    """Mixtures of spectra that depend on each other are not looked at; of a pixel without light nothing is known, but 0 to 1."""
    random = np.random.default_rng(3)
    E = random.uniform(0.1, 1, (12, 4))
    E[:, 2] = 1.3 * E[:, 0]
    Y = random.dirichlet(np.ones(4), (3, 4)) @ E.T
    Y[1, 2] = 0.0
    path = write_cube(tmp_path / "x.hdr", Y)
    library = write_csv(tmp_path / "e.csv", E, classes=["a", "a", "b", "c"])
    for normalized in (True, False):
        words = {"method": "mesma", "levels": "2-3", "ranges": "class", "within": 0.01, "scale": 1.0, "device": "cpu"}
        words |= {"overwrite": True}
        report = unmix.run(path, endmembers=library, out_dir=tmp_path, shade_normalize=normalized, **words)
        assert any("mixtures of 1 models are not in `ranges`" in text for text in report["warnings"])
        ends = read_map(tmp_path / "x", "range")[1, 2]
        assert ends[0::2].max() == 0 and (ends[1::2] == 1 if normalized else ends[1::2] < 0.1).all()
        assert verify(tmp_path / "x", everything=True).faults == []
    E[:, 2] = random.uniform(0.1, 1, 12)
    report = unmix.run(
        path, endmembers=write_csv(tmp_path / "e.csv", E, classes=["a", "a", "b", "c"]), out_dir=tmp_path, **words
    )
    assert not any("not in `ranges`" in text for text in report["warnings"])
