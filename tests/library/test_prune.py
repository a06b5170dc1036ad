"""Pruning a library, against loops over single models."""

import json

import numpy as np
import pytest
from conftest import refused, write_csv
from test_cli import unmix as command

import unmix
from unmix.library import Endmembers, load
from unmix.library.prune import (
    by_ear,
    by_ies,
    by_masa,
    kappa_of_model,
    mean_of_others,
    prune,
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
    with pytest.raises(unmix.MethodError, match="there is ear, masa, ies"):
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
