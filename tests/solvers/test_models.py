"""MESMA against every model by least squares, one after the other, and against its own limits."""

import itertools
import json

import numpy as np
import pytest
from conftest import falsify_record, read_map, refused, verify_tells, write_csv, write_cube
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.models import EveryModel
from test_cli import unmix as command

import unmix
from unmix.commands.verify import verify
from unmix.library import ClassSums, load
from unmix.methods import ModelChoice, classes_in_order, counts_of_models
from unmix.solvers.pixels.mesma.tables import all_models


def library(random, L, sizes):
    """Spectra of as many classes as there are sizes, alike within each, and their classes."""
    kinds = [f"c{c}" for c, size in enumerate(sizes) for _ in range(size)]
    centres = random.uniform(0.1, 0.8, (L, len(sizes)))
    E = np.stack([centres[:, int(kind[1:])] + 0.1 * random.standard_normal(L) for kind in kinds], axis=1)
    return np.abs(E) + 0.01, kinds


def scene(random, E, kinds, N, noise=0.01):
    """Noisy mixtures of one spectrum of some classes, and shade."""
    names, Y = sorted(set(kinds)), []
    for _ in range(N):
        some = random.choice(names, random.integers(1, min(3, len(names)) + 1), replace=False)
        picked = [random.choice([j for j, kind in enumerate(kinds) if kind == name]) for name in some]
        share = random.dirichlet(np.ones(len(picked) + 1))[:-1]
        Y.append(E[:, picked] @ share + noise * random.standard_normal(len(E)))
    return np.array(Y)


def odd_scene(folder):
    """A cube with a masked pixel, one of the library's and a dark one; its library.csv, with classes; and both as arrays."""
    random = np.random.default_rng(3)
    E, kinds = library(random, 12, (3, 2, 3))
    Y = scene(random, E, kinds, 21).reshape(3, 7, 12)
    Y[0, 1], Y[1, 1], Y[2, 2] = -9.0, E[:, 4], 1e-3
    write_csv(folder / "library.csv", E, classes=kinds)
    return write_cube(folder / "x.hdr", Y, data_ignore_value=-9), E, kinds, Y


def compare(E, Y, kinds, **words):
    """All pixels against all models; how many are not all shade."""
    choice = ModelChoice(**words)
    found = unmix.mesma(Y, E, kinds, **words)
    modelled = 0
    models = EveryModel(E, kinds, choice)
    for y, a, steps, rmse in zip(Y, found.abundances, found.steps, found.rmse):
        least, expected = models.best(y)
        modelled += bool(expected.any())
        np.testing.assert_allclose(a, expected, atol=1e-9)
        assert not expected.any() or rmse == pytest.approx(least, rel=1e-9)
        assert steps == np.count_nonzero(a) or choice.limits == "viper"
    assert found.kappa.max() <= 1e-10
    return modelled


@pytest.mark.slow
@pytest.mark.parametrize("limits", ["exact", "viper"])
@pytest.mark.parametrize("rule", ["kept", "preceding"])
@pytest.mark.parametrize("levels", ["2-2", "2-3", "2-4", "3-4", "4-4", "3", "2-5", "5"])
def test_against_every_model(limits, rule, levels):
    random = np.random.default_rng([len(levels), len(rule)])
    E, kinds = library(random, 15, (3, 2, 3, 1))
    Y = scene(random, E, kinds, 8)
    Y[0] = 0.0
    for fusion in (None, 0.0, 0.004):
        modelled = compare(E, Y, kinds, levels=levels, limits=limits, fusion=fusion, fusion_rule=rule)
        assert modelled == 7 or limits == "viper"  # one is dark


@pytest.mark.slow
@settings(max_examples=30, derandomize=True)
@given(
    st.integers(0, 10_000),
    st.sampled_from(["2-2", "2-3", "2-4", "3-4"]),
    st.floats(-0.3, 0.0),
    st.floats(0.7, 1.3),
    st.floats(-0.5, 0.2),
    st.floats(0.3, 1.0),
    st.one_of(st.none(), st.floats(0.005, 0.1)),
    st.one_of(st.none(), st.floats(0, 0.02)),
    st.sampled_from(["exact", "viper"]),
)
def test_any_limits(seed, levels, low, high, least, most, rmse, fusion, limits):
    random = np.random.default_rng(seed)
    E, kinds = library(random, int(random.integers(4, 12)), random.integers(1, 4, int(random.integers(2, 5))))
    if levels == "3-4" and len(set(kinds)) < 2:
        return
    Y = scene(random, E, kinds, 4, 0.03)
    rejecting = {"min_fraction": low, "max_fraction": high, "min_shade": least, "max_shade": most}
    rejecting = rejecting if limits == "viper" else {}
    compare(E, Y, kinds, levels=levels, limits=limits, max_rmse=rmse, fusion=fusion, **rejecting)


@pytest.mark.slow
@pytest.mark.parametrize("limits", ["exact", "viper"])
@pytest.mark.parametrize(
    ("levels", "class_sets"),
    [("2-4", "c0+c1+c2"), ("auto", "c0+c1,c3"), ("2-4", "C2, c0+c3,c1+c2+c3"), ("3-4", "c1+c3"), ("2-3", "c3,c1")],
)
def test_only_sets_of_classes_that_are_named(limits, levels, class_sets):
    random = np.random.default_rng(11)
    E, kinds = library(random, 15, (3, 2, 3, 1))
    Y = scene(random, E, kinds, 20)
    named = [set(text.strip().lower().split("+")) for text in class_sets.split(",")]
    words = {"levels": levels, "limits": limits, "fusion": 0.001, "max_rmse": 0.3}
    compare(E, Y, kinds, class_sets=class_sets.lower().replace(" ", ""), **words)
    for a in unmix.mesma(Y, E, kinds, class_sets=class_sets, **words).abundances:
        used = {kinds[j] for j in np.flatnonzero(a)}
        assert used in named or (limits == "exact" and any(used <= one for one in named)) or not used


@pytest.mark.slow
@settings(max_examples=20, derandomize=True)
@given(st.integers(0, 10_000), st.floats(0.005, 0.05), st.integers(1, 12), st.sampled_from(["2-2", "2-4", "3-3"]))
def test_residuals_that_reach_a_limit_in_bands_after_each_other(seed, limit, bands, levels):
    random = np.random.default_rng(seed)
    E, kinds = library(random, 11, (3, 2, 3))
    words = {"levels": levels, "limits": "viper", "fusion": 0.002, "max_rmse": 0.3}
    compare(E, scene(random, E, kinds, 6), kinds, max_residual=limit, residual_bands=bands, **words)


@pytest.mark.slow
def test_a_limit_on_residuals_rejects_some_models_and_not_others():
    random = np.random.default_rng(1)
    E, kinds = library(random, 11, (3, 2, 3))
    Y = scene(random, E, kinds, 60)
    words = {"levels": "2-3", "limits": "viper", "fusion": 0.0, "max_rmse": 0.3}
    plain, limited, all_bands = (
        unmix.mesma(Y, E, kinds, **words, **more).abundances
        for more in ({}, {"max_residual": 0.015, "residual_bands": 2}, {"max_residual": 0.015, "residual_bands": 12})
    )
    assert 5 < (plain != limited).any(axis=1).sum() < 55 and np.array_equal(plain, all_bands)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"class_sets": "c0+soil"}, "no class 'soil'; it has c0, c1"),
        ({"class_sets": "c0+c1+c2", "levels": "2-3"}, "allow sets of 1 to 2 classes"),
        ({"class_sets": "c0+c0"}, "each named once"),
        ({"class_sets": "c0,"}, "no class ''"),
        ({"max_residual": 0.1}, "under `limits` viper"),
        ({"max_residual": 0.0, "limits": "viper"}, "above 0"),
        ({"residual_bands": 0, "limits": "viper"}, "at least 1"),
        ({"residual_bands": 3, "limits": "viper"}, "give that"),
    ],
)
def test_sets_and_limits_that_cannot_be(words, text):
    E, kinds = library(np.random.default_rng(1), 11, (3, 2, 3))
    refused(unmix.MethodError, text.replace("(", "[(]"), unmix.mesma, E.T, E, kinds, **words)


@pytest.mark.slow
def test_faces_make_the_constrained_optimum():
    """Under the limits `exact` no model of the level, fitted with a >= 0 and a sum of at most one, is better."""
    random = np.random.default_rng(3)
    E, kinds = library(random, 20, (4, 3, 4))
    Y = scene(random, E, kinds, 30) * random.uniform(0.3, 2.0, (30, 1))
    found = unmix.mesma(Y, E, kinds, levels="4-4", fusion=0)
    assert found.abundances.min() >= 0 and found.abundances.sum(axis=1).max() <= 1 + 1e-12
    members = [[j for j, kind in enumerate(kinds) if kind == name] for name in sorted(set(kinds))]
    for model in itertools.product(*members):
        assert np.all(found.rmse <= unmix.solve(Y, E[:, list(model)], method="pcls").rmse + 1e-12)


@pytest.mark.slow
def test_duplicates_and_pixels_of_the_library():
    """The first of equal models is chosen, and the choice is not called proved."""
    E, kinds = library(np.random.default_rng(4), 12, (3, 3))
    E[:, 2] = E[:, 0]
    Y = np.stack([0.6 * E[:, 0] + 0.3 * E[:, 4], E[:, 5], 0.5 * E[:, 1]])
    found = unmix.mesma(Y, E, kinds, levels="2-3", fusion=0.001)
    assert found.abundances[0, 0] == pytest.approx(0.6) and found.abundances[0, 2] == 0
    assert np.isinf(found.delta[0]) and np.isfinite(found.delta[1:]).all() and found.steps.tolist() == [2, 1, 1]


@pytest.mark.slow
def test_models_of_different_sizes_that_fit_as_well():
    """Two spectra fit as well as three others: under the limits `exact` both are models of level 4, and neither is proved."""
    for seed in range(20):
        random = np.random.default_rng(seed)
        a, c, d, f = random.uniform(0.1, 0.8, (4, 10))
        y = 0.3 * c + 0.3 * d + 0.2 * f
        E = np.stack([a, (y - 0.4 * a) / 0.4, c, d, f], axis=1)
        outside = np.linalg.svd(E)[0][:, 4:] @ random.standard_normal(6)  # not all: the two models span four directions
        assert np.isinf(unmix.mesma(y + 0.02 * outside, E, list("ABCDF"), levels="4").delta)


@pytest.fixture
def cube(tmp_path):
    """A scene, and a library of three classes in a CSV."""
    random = np.random.default_rng(7)
    E, kinds = library(random, 14, (3, 4, 2))
    Y = scene(random, E, kinds, 40).reshape(4, 10, 14).astype(np.float32)
    Y[1, 2] = -9.0
    write_csv(tmp_path / "library.csv", E, names=[f"s{j}" for j in range(len(kinds))], classes=kinds)
    return write_cube(tmp_path / "x.hdr", Y, data_ignore_value=-9), E, kinds, Y


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [{}, {"limits": "viper", "fusion_rule": "preceding"}, {"shade_normalize": True, "max_rmse": 0.012}]
)
def test_from_file_to_file(tmp_path, cube, words):
    path, E, kinds, Y = cube
    report = unmix.run(
        path, endmembers=tmp_path / "library.csv", method="mesma", levels="2-4", fusion=0.002, residual=True, **words
    )
    found = unmix.mesma(
        Y, E, kinds, levels="2-4", fusion=0.002, **{k: v for k, v in words.items() if k != "shade_normalize"}
    )
    read = {name: read_map(tmp_path / "x", name) for name in ("model", "fraction", "rmse", "residual")}
    assert "band names = {c0, c1, c2, shade, brightness}" in (tmp_path / "x_fraction.hdr").read_text()
    for line, sample in np.ndindex(4, 10):
        if (line, sample) == (1, 2):
            assert all(np.all(values[line, sample] == -9999) for values in read.values())
            continue
        a = found.abundances[line, sample]
        for c, name in enumerate(("c0", "c1", "c2")):
            members = [j for j, kind in enumerate(kinds) if kind == name]
            chosen = [j + 1 for j in members if a[j] != 0]
            assert read["model"][line, sample, c] == (chosen[0] if chosen else 0)
            expected = a[members].sum()
            if "shade_normalize" in words:
                expected = expected / a.sum() if a.sum() > 0 else -9999
            assert read["fraction"][line, sample, c] == pytest.approx(expected, abs=1e-6)
        np.testing.assert_allclose(read["fraction"][line, sample, 3:], [1 - a.sum(), a.sum()], atol=1e-6)
        assert read["rmse"][line, sample, 0] == pytest.approx(found.rmse[line, sample], rel=1e-6)
        np.testing.assert_allclose(read["residual"][line, sample], Y[line, sample] - E @ a, atol=1e-6)
    assert report["without_spectrum"] == int((found.steps[found.valid & (Y[..., 0] != -9)] == 0).sum())
    assert not (tmp_path / "x_abundance.img").exists()
    assert verify(tmp_path / "x", everything=True).faults == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        {"class_sets": "c0+c1,c2"},
        {
            "limits": "viper",
            "max_residual": 0.012,
            "residual_bands": 2,
            "max_rmse": 0.2,
        },
    ],
)
def test_sets_and_limits_from_file_to_file(tmp_path, cube, words):
    path, E, kinds, Y = cube
    report = unmix.run(path, endmembers=tmp_path / "library.csv", method="mesma", **words)
    found = unmix.mesma(Y, E, kinds, **words).rmse
    written = np.fromfile(tmp_path / "x_rmse.img", "<f4").reshape(4, 10)
    assert np.allclose(written, np.where(Y[..., 0] == -9, -9999, found), rtol=1e-6)
    assert verify(tmp_path / "x", everything=True).faults == []
    assert set(report["asked"]["choice"]) >= set(words)
    if "class_sets" in words:  # another order of the same sets is the same run
        again = unmix.run(
            path, endmembers=tmp_path / "library.csv", method="mesma", class_sets=" c2, c1+c0", skip_existing=True
        )
        assert again["skipped"]
    change = {"class_sets": None, "max_residual": None, "residual_bands": 7}
    falsify_record(tmp_path / "x", lambda record: record["options"].update(change))
    assert any("does not match the cube" in fault for fault in verify(tmp_path / "x", everything=True).faults)


@pytest.mark.slow
@pytest.mark.parametrize("limits", ["exact", "viper"])
def test_another_shade_than_zero(tmp_path, cube, limits):
    path, E, kinds, Y = cube
    shade = 0.05 + 0.02 * np.sin(np.arange(14))
    write_csv(tmp_path / "shade.csv", shade[:, None])
    words = {"levels": "2-3", "limits": limits, "fusion": 0.001}
    report = unmix.run(
        path, endmembers=tmp_path / "library.csv", method="mesma", shade=tmp_path / "shade.csv", residual=True, **words
    )
    maps = {name: read_map(tmp_path / "x", name) for name in ("fraction", "model", "rmse", "residual")}
    models = EveryModel(E - shade[:, None], kinds, ModelChoice(**words))
    for line, sample in np.ndindex(4, 10):
        if (line, sample) == (1, 2):
            continue
        a = models.best(Y[line, sample] - shade)[1]
        fractions = [a[[j for j, kind in enumerate(kinds) if kind == name]].sum() for name in ("c0", "c1", "c2")]
        np.testing.assert_allclose(maps["fraction"][line, sample, :4], [*fractions, 1 - a.sum()], atol=2e-6)
        left = Y[line, sample] - E @ a - (1 - a.sum()) * shade
        np.testing.assert_allclose(maps["residual"][line, sample], left, atol=1e-6)
        assert maps["rmse"][line, sample, 0] == pytest.approx(np.sqrt(np.mean(left**2)), rel=1e-5)
    written = load(tmp_path / "x_endmembers.csv")
    assert written.names[-1] == "shade" and np.array_equal(written.matrix[:, :-1], E) and report["asked"]["shade"]
    assert verify(tmp_path / "x", everything=True).faults == []


def test_shade_that_is_in_the_library(tmp_path, cube):
    path, E, _, _ = cube
    write_csv(tmp_path / "shade.csv", E[:, [4]])
    with pytest.raises(unmix.LibraryError, match="s4 is the spectrum of `shade`"):
        unmix.run(path, endmembers=tmp_path / "library.csv", method="mesma", shade=tmp_path / "shade.csv")


@pytest.mark.slow
def test_a_limit_that_only_the_library_s_own_pixels_meet(tmp_path, cube):
    path, E, _, Y = cube
    Y[0, :3] = E[:, :3].T.astype(np.float32)
    write_csv(tmp_path / "own.csv", Y[0, :6].T, names=[f"s{j}" for j in range(6)], classes=[*"ababab"])
    write_cube(path, Y, data_ignore_value=-9)
    how = {"endmembers": tmp_path / "own.csv"}
    report = unmix.run(path, method="mesma", limits="viper", max_rmse=0.0, min_shade=-0.1, max_shade=1.0, **how)
    assert report["pixels"]["failed"] == 0 and verify(tmp_path / "x", everything=True).faults == []


@pytest.mark.slow
def test_masked_pixels_have_no_class(tmp_path):
    random = np.random.default_rng(1)
    E, kinds = library(random, 8, (2, 2))
    Y = scene(random, E, kinds, 6, 0.01).reshape(2, 3, -1).astype(np.float32)
    Y[1, 1] = -7
    write_csv(tmp_path / "library.csv", E, classes=kinds)
    path = write_cube(tmp_path / "x.hdr", Y, data_ignore_value=-7)
    unmix.run(path, endmembers=tmp_path / "library.csv", method="mesma", class_map=True)
    verify_tells(
        tmp_path / "x", "class", 2, lambda values: values.put(4, 2), np.uint8, fault="its class does not match the cube"
    )


def test_a_dry_run_counts_models(tmp_path, cube):
    report = unmix.run(cube[0], endmembers=tmp_path / "library.csv", method="mesma", levels="2-4", dry_run=True)
    sizes = [len(members) for members in ClassSums.of(load(tmp_path / "library.csv"), False).members]
    a, b, c = sizes
    expected = {"2 endmembers": a + b + c, "3 endmembers": a * b + a * c + b * c, "4 endmembers": a * b * c}
    assert report["models"] == expected
    assert set(report["bands"]) == {"model", "fraction", "rmse"}
    assert unmix.run(cube[0], endmembers=tmp_path / "library.csv", dry_run=True)["models"] is None


@pytest.mark.slow
@pytest.mark.sim
def test_a_gpu_keeps_to_sets_and_residuals(device):
    random = np.random.default_rng(2)
    E, kinds = library(random, 12, (2, 2, 3))
    Y = scene(random, E, kinds, 8, 0.03)
    words = {"limits": "viper", "levels": "2-4", "max_rmse": 0.1, "max_residual": 0.03, "residual_bands": 2}
    words |= {"class_sets": "c0+c1+c2,c1"}
    found = unmix.mesma(Y, E, kinds, device=device, **words)
    np.testing.assert_allclose(found.abundances, unmix.mesma(Y, E, kinds, device="cpu", **words).abundances, atol=1e-12)
    assert 0 < (found.steps > 0).sum() < 8


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.parametrize("limits", ["exact", "viper"])
def test_a_gpu_chooses_the_same(limits, device):
    """A thread has one pixel, a vector of the CPU many."""
    random = np.random.default_rng(5)
    E, kinds = library(random, 12, (3, 2, 11))
    bright = 1.4 * scene(random, E, kinds, 5)  # the sum of one holds
    Y = np.vstack([scene(random, E, kinds, 6), bright, E[:, :2].T, np.zeros((1, 12))])
    found = unmix.mesma(Y, E, kinds, limits=limits, levels="2-4", device=device)
    models = EveryModel(E, kinds, ModelChoice(limits=limits, levels="2-4"))
    np.testing.assert_allclose(found.abundances, [models.best(y)[1] for y in Y], atol=1e-9)
    assert limits == "viper" or np.isclose(found.abundances.sum(axis=1), 1.0).sum() > 3


@pytest.mark.slow
@pytest.mark.sim
@pytest.mark.parametrize("limits", ["exact", "viper"])
@pytest.mark.parametrize("alike", [0.0, 1e-6, 1e-4])
def test_a_gpu_chooses_the_same_where_spectra_are_alike(limits, alike, device):
    """Models with spectra of two classes that are alike are refused; of duplicates one is taken, and not proved."""
    random = np.random.default_rng(6)
    E, kinds = library(random, 12, (2, 2, 9))
    E[:, 12] = E[:, 0] * (1.0 + alike * random.standard_normal(12))  # of other classes
    E[:, 11] = E[:, 4] * (1.0 + alike * random.standard_normal(12))  # of one class
    Y = np.vstack([scene(random, E, kinds, 12), E[:, [0, 4, 12]].T])
    ours, theirs = (unmix.mesma(Y, E, kinds, limits=limits, levels="2-4", device=name) for name in (device, "cpu"))
    proved = np.isfinite(theirs.delta)
    assert np.array_equal(np.isfinite(ours.delta), proved)
    np.testing.assert_allclose(ours.abundances[proved], theirs.abundances[proved], atol=1e-9)
    np.testing.assert_allclose(ours.rmse, theirs.rmse, atol=1e-9)
    assert np.isinf(ours.delta).any() == (alike < 1e-4)  # with 1e-6 errors differ by 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("levels", ["2-2", "3-3", "4-4", "2-4"])
def test_a_spectrum_of_the_library_as_pixel_is_proved(levels):
    """Models with one spectrum more, whose abundance is rounding, are the same model; a duplicate of the spectrum is another."""
    E = np.random.default_rng(7).uniform(0.05, 0.9, (30, 12))
    found = unmix.mesma(E.T, E, list("aaabbbcccddd"), levels=levels, fusion=0.0)
    np.testing.assert_allclose(found.abundances, np.eye(12), atol=1e-9)
    assert found.delta.max() < 1e-9 and found.kappa.max() <= 1e-10
    E[:, 4] = E[:, 3]
    found = unmix.mesma(E.T, E, list("aaabbbcccddd"), levels=levels, fusion=0.0)
    assert np.isinf(found.delta).nonzero()[0].tolist() == [3, 4]


@pytest.mark.slow
def test_the_command(tmp_path, cube):
    out, _ = command("mesma", cube[0], "-e", tmp_path / "library.csv", "--levels", "2-4", "--json", "-q")
    assert json.loads(out)["method"] == "mesma"
    command("mesma", cube[0], "--overwrite", code=2, tells="needs a library with classes; give one with --endmembers")


@pytest.mark.real
def test_jasper(tmp_path, data):
    """A real scene with sixty spectra of three classes: the choice of all pixels proved, some of them fitted again."""
    report = unmix.run(
        data / "jasper/jasper.hdr",
        endmembers=data / "libraries/spectral_library_jasperRidge.mat",
        method="mesma",
        levels="2-4",
        select="Tree ?,Tree 1?,Dirt ?,Dirt 1?,Road ?,Road 1?",
        out_dir=tmp_path,
    )
    assert report["pixels"]["certified"] >= 9_990 and report["pixels"]["failed"] == 0
    assert verify(tmp_path / "jasper", sample=100).faults == []


@pytest.mark.slow
def test_more_levels_than_classes():
    random = np.random.default_rng(6)
    E, kinds = library(random, 9, (3, 2))
    compare(E, scene(random, E, kinds, 10), kinds, levels="2-9", fusion=0.001)
    refused(unmix.MethodError, "from 2 to 9", unmix.mesma, np.ones(9), E, kinds, levels="2-10")
    refused(unmix.LibraryError, "4 classes for 5 spectra", unmix.mesma, np.ones(9), E, kinds[:4])


def test_classes_whose_names_differ_in_case_alone():
    """Their order is that of their names, not that of a set, which differs from process to process."""
    orders = {tuple(classes_in_order(kinds)) for kinds in (("a", "A", "b", "B"),) * 5}
    assert orders == {("A", "a", "B", "b")}


def test_models_are_ordered_by_class_sets_then_by_the_library():
    number = np.array([1, 0, 2, 1, 0])
    assert all_models(number, 1, None).tolist() == [[1], [4], [0], [3], [2]]
    expected = [[1, 0], [1, 3], [4, 0], [4, 3], [1, 2], [4, 2], [0, 2], [3, 2]]
    assert all_models(number, 2, None).tolist() == expected
    assert all_models(number, 2, {(0, 2), (1,)}).tolist() == [[1, 2], [4, 2]]
    assert all_models(number, 3, None).tolist() == [[i, j, 2] for i in (1, 4) for j in (0, 3)]
    assert [len(all_models(np.repeat(range(9), 2), k, None)) for k in range(1, 9)] == counts_of_models([2] * 9, 8)


@pytest.mark.slow
def test_a_spectrum_of_the_library_is_within_limits_that_it_meets():
    E, kinds = library(np.random.default_rng(8), 16, (40, 40))
    found = unmix.mesma(E.T, E, kinds, levels="2", limits="viper")
    assert np.all(found.steps == 1) and found.rmse.max() < 1e-8


@pytest.mark.parametrize(
    "words",
    [
        {"max_rmse": 1e200},
        {"levels": "2-²"},
        {"limits": "viper", "min_fraction": float("nan")},
        {"limits": "viper", "min_shade": 1.0, "max_shade": 0.0},
        {"fusion": np.inf},
    ],
)
def test_thresholds_that_make_no_sense(words):
    refused(unmix.MethodError, None, ModelChoice, **words)


@pytest.mark.slow
def test_a_library_may_be_a_list():
    E = [[0.1, 0.2, 0.5], [0.3, 0.2, 0.4], [0.2, 0.6, 0.1]]
    assert unmix.mesma([[0.3, 0.35, 0.15]], E, ["soil", "soil", "tree"]).abundances.shape == (1, 3)
    for wrong in (E[0], 3.0):
        refused(unmix.LibraryError, None, unmix.mesma, [[0.3, 0.35, 0.15]], wrong, ["soil", "soil", "tree"])


def test_pixels_brighter_than_the_library_are_named(tmp_path, caplog):
    random = np.random.default_rng(4)
    E = 0.2 + 0.3 * np.abs(np.sin(np.linspace(0, 9, 40)[:, None] * np.arange(1, 5)))
    Y = random.dirichlet(np.ones(4), (30, 30)) @ E.T + random.normal(0, 0.002, (30, 30, 40))
    library = write_csv(tmp_path / "e.csv", E, classes=["a", "a", "b", "c"])
    for name, light, words in (("even", 1.0, ""), ("bright", 1.5, "pixels are brighter than the library")):
        caplog.clear()
        path = write_cube(tmp_path / f"{name}.hdr", light * Y)
        report = unmix.run(path, endmembers=library, method="mesma", device="cpu", out_dir=tmp_path)
        assert words in caplog.text and ("brighter" in str(report["warnings"])) == bool(words)
