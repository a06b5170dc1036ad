"""Pruning a library, against loops over single models."""

import json
from dataclasses import replace

import numpy as np
import pytest
from conftest import refused, write_csv, write_cube
from test_cli import unmix as command

import unmix
from unmix.library import Endmembers, load
from unmix.library.prune import (
    Near,
    by_amuses,
    by_ear,
    by_ies,
    by_masa,
    kappa_of_model,
    mean_of_others,
    prune,
    separability,
    square,
)

LOW, HIGH, MOST = -0.05, 1.05, 0.06


def library(seed, sizes=(6, 5, 7), L=12):
    """Spectra that scatter about one of each class, and their classes."""
    random = np.random.default_rng(seed)
    kinds = [f"c{c}" for c, size in enumerate(sizes) for _ in range(size)]
    centres = random.uniform(0.2, 0.6, (L, len(sizes)))
    E = np.stack([centres[:, int(kind[1:])] * random.uniform(0.6, 1.4) for kind in kinds], axis=1)
    return np.abs(E + 0.05 * random.standard_normal(E.shape)) + 0.01, kinds


def model(E, i, j):
    """RMSE of spectrum j by spectrum i and shade, and whether the model is within the limits."""
    f = np.linalg.lstsq(E[:, [i]], E[:, j], rcond=None)[0][0]
    held = min(max(f, LOW), HIGH)
    rmse = np.sqrt(np.mean((E[:, j] - held * E[:, i]) ** 2))
    return rmse, held == f and rmse <= MOST


@pytest.mark.parametrize("seed", range(4))
def test_measures(seed):
    E, kinds = library(seed)
    E[:, 3] = E[:, 1]  # equal spectra do not count for each other
    table, N = square(E, LOW, HIGH, MOST), len(kinds)
    for i in range(N):
        others = [j for j in range(N) if kinds[j] == kinds[i] and not np.array_equal(E[:, j], E[:, i])]
        ear = np.mean([model(E, i, j)[0] for j in others])
        angles = [
            np.arccos(min(1, E[:, i] @ E[:, j] / np.linalg.norm(E[:, i]) / np.linalg.norm(E[:, j]))) for j in others
        ]
        assert mean_of_others(table.rmse, table, kinds)[i] == pytest.approx(ear, rel=1e-9)
        assert mean_of_others(table.angle, table, kinds)[i] == pytest.approx(np.mean(angles), rel=1e-6)
        for j in range(N):
            assert table.models[i, j] == (i == j or model(E, i, j)[1])
    assert by_ear(table, kinds, None)[0] == min(
        range(6), key=lambda j: (mean_of_others(table.rmse, table, kinds)[j], j)
    )
    assert len(by_masa(table, kinds, 2)) == 6


def naive_kappa(E, kinds, chosen):
    """Cohen's κ of the library classified by some of its spectra, from the confusion matrix."""
    names = sorted(set(kinds))
    confusion = np.zeros((len(names) + 1, len(names) + 1))
    for j, kind in enumerate(kinds):
        good = [(model(E, i, j)[0] if i != j else 0.0, i) for i in chosen if i == j or model(E, i, j)[1]]
        confusion[names.index(kind), names.index(kinds[min(good)[1]]) if good else len(names)] += 1
    agree, chance = np.trace(confusion) / len(kinds), confusion.sum(axis=0) @ confusion.sum(axis=1) / len(kinds) ** 2
    return (agree - chance) / (1 - chance)


@pytest.mark.parametrize("seed", range(4))
def test_iterative_selection(seed):
    E, kinds = library(seed, (4, 3, 5))
    table = square(E, LOW, HIGH, MOST)
    chosen, best = [], -np.inf
    while True:
        before = best
        added = {i: naive_kappa(E, kinds, sorted([*chosen, i])) for i in range(len(kinds)) if i not in chosen}
        if added and max(added.values()) > best + 1e-12:
            best = max(added.values())
            chosen = sorted([*chosen, min(i for i in added if added[i] >= best - 1e-12)])
        fewer = {i: naive_kappa(E, kinds, [j for j in chosen if j != i]) for i in chosen} if len(chosen) > 1 else {}
        if fewer and max(fewer.values()) > best + 1e-12:
            best = max(fewer.values())
            chosen.remove(min(i for i in fewer if fewer[i] >= best - 1e-12))
        if best == before:
            break
    assert by_ies(table, kinds, None) == chosen
    refused(unmix.MethodError, "ies chooses how many", by_ies, table, kinds, 2)


def test_kappa_of_no_agreement_and_of_all():
    kinds = np.array([0, 0, 1, 1])
    assert kappa_of_model(kinds, np.array([[0, 0, 1, 1], [1, 1, 0, 0], [2, 2, 2, 2]]), 2).tolist() == [1.0, -1.0, 0.0]


def test_libraries_that_cannot_be_pruned():
    E, kinds = library(0)
    names = tuple(map(str, range(E.shape[1])))
    refused(unmix.LibraryError, "have no classes", lambda: prune(Endmembers(names, E, None), "ear"))
    with pytest.raises(unmix.MethodError, match="there is ear, masa, ies, amuses"):
        prune(Endmembers(names, E, None, classes=tuple(kinds)), "music")
    E[:, 4] = 0
    refused(unmix.LibraryError, "'4' is zero", lambda: prune(Endmembers(names, E, None, classes=tuple(kinds)), "ear"))


def test_the_command(tmp_path):
    E, kinds = library(1)
    write_csv(tmp_path / "l.csv", 100 * E, range(400, 412), names=[f"s{j}" for j in range(len(kinds))], level_1=kinds)
    words = ("library", "prune", tmp_path / "l.csv", tmp_path / "o.csv", "--rule", "ear", "-n", 2)
    words += ("--classes", "level_1", "--library-scale", 100)
    command(*words, says="c0: 2 of 6: ")
    kept = load(tmp_path / "o.csv")
    assert kept.classes == ("c0", "c0", "c1", "c1", "c2", "c2") and kept.matrix.max() < 2
    facts = json.loads(command(*words, "--overwrite", "--json")[0])
    assert [fact["name"] for fact in facts if fact["kept"]] == list(kept.names)
    assert (
        "no classes" in command("library", "prune", tmp_path / "l.csv", tmp_path / "p.csv", "--rule", "ies", code=3)[1]
    )
    assert not (tmp_path / "p.csv").exists()


def test_jasper(data):
    """Each class keeps some of its spectra, and classifies the library better than one spectrum of each does."""
    whole = load(data / "libraries/spectral_library_jasperRidge.mat")
    kept = {by: prune(whole, by)[0] for by in ("ear", "masa", "ies")}
    assert [len(one.names) for one in kept.values()] == [4, 4, 24]
    assert all(set(one.classes) == {"Tree", "Water", "Dirt", "Road"} for one in kept.values())


def scene_of(tmp_path, E, held, noise=1e-3):
    """A scene of mixtures of some spectra, and a library of all of them."""
    random = np.random.default_rng(4)
    A = random.dirichlet(np.ones(len(held)), (30, 40))
    Y = A @ E[:, held].T + noise * random.standard_normal((30, 40, len(E)))
    waves = np.linspace(400, 2400, len(E))
    text = [f"{w:.3f}" for w in waves]
    names, kinds = zip(*((f"s{j}", "ab"[j % 2]) for j in range(E.shape[1])))
    write_csv(tmp_path / "l.csv", E, text, names=names, classes=kinds)
    wavelength = "{" + ", ".join(text) + "}"
    return write_cube(tmp_path / "x.hdr", Y, wavelength=wavelength, wavelength_units="nanometers")


def test_amuses_leaves_out_what_the_scene_does_not_hold_and_near_duplicates(tmp_path):
    random = np.random.default_rng(3)
    E = random.uniform(0.1, 0.9, (60, 12))
    held = [0, 1, 4, 5, 8, 9]
    E[:, 10] = E[:, 0] * 1.3 + 0.001 * random.standard_normal(60)
    E[:, 11] = E[:, 0] * 1.3 + 0.15 * random.standard_normal(60)
    path = scene_of(tmp_path, E, held)
    words = ("library", "prune", tmp_path / "l.csv", tmp_path / "o.csv", "--rule", "amuses", "--scene", path)
    words += ("--dimensions", 6)
    facts = json.loads(command(*words, "--json", "--nearest", 8 / 12)[0])
    kept = {fact["name"] for fact in facts if fact["kept"]}
    distance = np.array([fact["distance"] for fact in facts])
    basis = np.linalg.svd(np.fromfile(tmp_path / "x.img").reshape(-1, 60), full_matrices=False)[2][:6].T
    expected = [np.linalg.norm(e - basis @ (basis.T @ e)) / np.linalg.norm(e) for e in E.T]
    np.testing.assert_allclose(distance, expected, atol=1e-7)
    assert distance[[0, 1, 4, 5, 8, 9, 10]].max() < 0.05 < distance[11] < 0.4 < distance[[2, 3, 6, 7]].min()
    assert len(kept & {"s0", "s10"}) == 1 and kept - {"s0", "s10"} == {"s1", "s4", "s5", "s8", "s9", "s11"}
    one_each = json.loads(command(*words, "--json", "-n", 1, "--overwrite")[0])
    assert sorted(fact["class"] for fact in one_each if fact["kept"]) == ["a", "b"]
    assert load(tmp_path / "o.csv").matrix.shape == (60, 2)


def test_amuses_against_a_loop_over_pairs():
    """The published rule, written out: Degerickx et al. 2017; of 90 % of the spectra, in the order of their distances."""
    E, _ = library(5, (20, 20), L=30)
    distance = np.random.default_rng(1).uniform(0, 1, 40)
    order = np.argsort(distance)[:36]
    some = distance[order][2:]
    kept = []
    for k, j in enumerate(order):
        threshold = 0.002 + (0.01 * (distance[j] - some.min()) / (some.max() - some.min()) if k >= 2 else 0.0)
        alike = False
        for i in kept:
            x, y = E[:, j], E[:, i]
            matusita = np.sqrt(np.sum((np.sqrt(x / x.sum()) - np.sqrt(y / y.sum())) ** 2))
            angle = np.arccos(x @ y / np.sqrt(x @ x * (y @ y)))
            alike |= matusita * np.tan(angle) < threshold
        kept += [] if alike else [j]
    table = replace(square(E), near=Near(distance, 0.9, (0.002, 0.01)))
    assert by_amuses(table, ["a"] * 40, None) == sorted(kept) and 5 < len(kept) < 30


def test_amuses_needs_a_scene_and_others_none(tmp_path):
    path = scene_of(tmp_path, np.random.default_rng(3).uniform(0.1, 0.9, (20, 6)), [0, 1, 2])
    words = ("library", "prune", tmp_path / "l.csv", tmp_path / "o.csv", "--rule")
    assert "--scene" in command(*words, "amuses", code=2)[1]
    assert "--scene" in command(*words, "ear", "--scene", path, code=2)[1]
    assert not (tmp_path / "o.csv").exists()


def test_amuses_where_distances_would_be_rounding(tmp_path):
    """As many dimensions as bands hold every spectrum; so does a spectrum that is zero in the bands in use have no distance."""
    E = np.random.default_rng(3).uniform(0.1, 0.9, (20, 6))
    E[:15, 5] = 0.0
    path = scene_of(tmp_path, E, [0, 1, 2])
    words = ("library", "prune", tmp_path / "l.csv", tmp_path / "o.csv", "--rule", "amuses", "--scene", path)
    assert "hold every spectrum" in command(*words, "--dimensions", 20, "--select", "!s5", code=2)[1]
    assert "'s5' is zero in all bands in use" in command(*words, "--bands", "1-12", code=3)[1]
    facts = json.loads(command(*words, "--select", "!s5", "--bands", "1-12", "--json")[0])
    assert max(fact["distance"] for fact in facts[:3]) < 0.02 < min(fact["distance"] for fact in facts[3:])
    assert "are for --rule amuses" in command(*words[:4], "--rule", "ear", "--nearest", 0.5, "--overwrite", code=2)[1]


def test_spectra_beyond_a_right_angle_are_separable():
    a = np.random.default_rng(1).standard_normal(30)
    found = separability(a, np.column_stack([-a, a, a + 1e-3, np.abs(a)]))
    assert np.isinf(found[0]) and found[1] == 0 and 0 < found[2] < 1e-3 and found[3] > 0.1
