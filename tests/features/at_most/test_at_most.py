"""At most K endmembers a pixel: an optimum on its support, which no addition and no exchange betters; and what runs make of it."""

import subprocess
import sys

import numpy as np
import pytest
from conftest import falsify_record, read_map, refused, verify_tells, write_csv, write_cube
from definitions import of_every_support
from hypothesis import given
from hypothesis import strategies as st
from reference.abundances import rmse as rmse_of
from reference.at_most import best_move
from test_cli import unmix as command
from test_many import library, scene

import unmix
from unmix.certificate import CERTIFIED
from unmix.commands.verify import verify
from unmix.errors import MethodError
from unmix.library import load_for
from unmix.scene import ReadOptions, open_scene
from unmix.scene.sample import sampled_spectra


def fault_of(E, y, most, found, i=None):
    """What is wrong with an answer, from its definition."""
    pick = (lambda values: values) if i is None else (lambda values: values[i])
    a, kappa, delta = pick(found.abundances), float(pick(found.kappa)), float(pick(found.delta))
    support = np.flatnonzero(a)
    if len(support) > most or len(support) != pick(found.steps) or a.min() < 0:
        return f"{len(support)} endmembers, {pick(found.steps)} steps"
    if not y.any():
        return None
    sizes, length = np.linalg.norm(E, axis=0), np.linalg.norm(y)
    best, moved = best_move(y / length, E / sizes, support, most)
    best *= length / sizes
    if not (kappa <= CERTIFIED and np.abs(a - best).max() <= max(delta, 1e-8 * np.abs(best).max(initial=1.0))):
        return f"not the optimum on its support: κ {kappa}, δ {delta}, off by {np.abs(a - best).max()}"
    return None if moved is None else f"{moved} is better than {support}"


@pytest.mark.slow
@pytest.mark.parametrize(("L", "p"), [(12, 6), (30, 25), (60, 48), (20, 60)])
@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_no_addition_and_no_exchange_betters_an_answer(L, p, most):
    random = np.random.default_rng([p, most])
    for E in (random.uniform(0, 1, (L, p)), library(random, L, p), random.standard_normal((L, p))):
        Y = scene(random, E, 7, 0.02)
        found = unmix.solve(Y, E, method="nnls", at_most=most)
        assert [fault_of(E, y, most, found, i) for i, y in enumerate(Y)] == [None] * len(Y)


@pytest.mark.slow
@given(
    seed=st.integers(0, 2**32 - 1),
    L=st.integers(1, 8),
    p=st.integers(1, 9),
    most=st.integers(1, 5),
    kind=st.sampled_from(["lattice", "orthogonal", "copies", "nearly", "mixtures", "exact"]),
)
def test_wild_problems(seed, L, p, most, kind):
    """Integers with ties, orthogonal spectra, copies and multiples, pairs that are nearly one, pixels without noise."""
    random, most = np.random.default_rng(seed), min(most, p)
    E = random.random((L, p)) + 0.05
    if kind == "lattice":
        E = random.integers(-1, 4, (L, p)).astype(float)
        E[0] += ~E.any(axis=0)
    if kind == "orthogonal":
        L = p = min(L, p)
        E, most = np.diag(random.integers(1, 4, p)).astype(float), min(most, p)
    if kind == "copies":
        E[:, p // 2 :] = 2.0 * E[:, : p - p // 2]
    if kind == "nearly":
        E[:, p // 2 :] = E[:, : p - p // 2] + 10.0 ** random.uniform(-9, -3) * random.standard_normal((L, p - p // 2))
    if kind == "mixtures":
        E[:, -1] = E[:, :-1].sum(axis=1) if p > 1 else E[:, -1]
    y = E @ random.integers(0, 3, p) if kind == "exact" else random.integers(-1, 5, L).astype(float)
    assert fault_of(E, y, most, unmix.solve(y, E, method="nnls", at_most=most)) is None


ENDED_EARLY = """
from importlib import import_module
import subprocess
import sys

import numpy as np
import unmix
random = np.random.default_rng(0)
E, Y = random.random((8, 5)), random.random((3, 8))
search = import_module("unmix.features.at_most.search")
for search.MOVES_FOR_EACH in (search.MOVES_FOR_EACH, 0):
    print(*unmix.solve(Y, E, method="nnls", at_most=2).kappa)
"""


def test_a_search_that_ended_before_proves_nothing():
    """In plain Python, whose functions see the bound on moves that is changed."""
    environment = {"NUMBA_DISABLE_JIT": "1", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", ENDED_EARLY], capture_output=True, text=True, env=environment, check=True
    )
    whole, none = (np.array(line.split(), float) for line in done.stdout.splitlines())
    assert (whole <= CERTIFIED).all() and np.isinf(none).all()


@pytest.mark.slow
def test_often_the_best_of_all_subsets_and_never_far_from_it():
    """Of 320 pixels 305 have the best support, and the RMSE is 2.5 % above the least in the mean."""
    best = left = total = 0
    for seed in range(8):
        random = np.random.default_rng(seed)
        E = library(random, 40, 12)
        Y = scene(random, E, 40, 0.02)
        for y, rmse in zip(Y, unmix.solve(Y, E, method="nnls", at_most=3).rmse):
            least = rmse_of(y[None], E, of_every_support(E, y, most=3)[None])[0]
            assert least * (1 - 1e-9) <= rmse
            best, left, total = best + (rmse <= least * (1 + 1e-9)), left + rmse / least, total + 1
    assert best >= 0.9 * total and left <= 1.03 * total


@pytest.mark.slow
def test_one_endmember_and_all_of_them():
    random = np.random.default_rng(3)
    E = random.random((40, 15)) + 0.1
    Y = scene(random, E, 50)
    one, unit = unmix.solve(Y, E, method="nnls", at_most=1), E / np.linalg.norm(E, axis=0)
    np.testing.assert_array_equal(one.abundances.argmax(axis=1), (Y @ unit).argmax(axis=1))
    every, plain = (unmix.solve(Y, E, method="nnls", **words) for words in ({"at_most": 15}, {}))
    np.testing.assert_allclose(every.abundances, plain.abundances, atol=1e-10)
    few = (plain.abundances > 0).sum(axis=1)
    bounded = unmix.solve(Y, E, method="nnls", at_most=6)
    np.testing.assert_allclose(bounded.abundances[few < 6], plain.abundances[few < 6], atol=1e-10)
    assert (bounded.rmse >= plain.rmse - 1e-12).all() and bounded.rmse.sum() <= one.rmse.sum()


@pytest.mark.slow
def test_dark_masked_and_noiseless_pixels():
    random = np.random.default_rng(5)
    E = library(random, 50, 80)
    A = np.zeros((33, 80))
    for row in A:
        row[random.choice(80, 3, replace=False)] = random.dirichlet(np.full(3, 5.0))
    Y = A @ E.T
    Y[0], Y[1, 3], Y[2] = 0.0, np.nan, -1.0
    found = unmix.solve(Y, E, method="nnls", at_most=4)
    assert found.steps[[0, 2]].tolist() == [0, 0] and not found.abundances[[0, 2]].any()
    assert found.valid.sum() == 32 and np.isnan(found.abundances[1]).all()
    assert found.kappa[found.valid].max() <= CERTIFIED and found.delta[found.valid].max() <= 1e-6
    exact = (
        found.rmse[3:] < 1e-8
    )  # in 12 dimensions 80 spectra have many mixtures that are the pixel, most of more than four
    assert exact.mean() > 0.8
    np.testing.assert_allclose(found.abundances[3:][exact], A[3:][exact], atol=1e-6)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"at_most": 0}, "at least 1"),
        ({"at_most": True}, "whole number"),
        ({"at_most": 2.0}, "whole number"),
        ({"at_most": "3"}, "whole number"),
        ({"at_most": 7}, "only 6 endmembers"),
        ({"at_most": 2, "method": "fcls"}, "for `method` nnls"),
        ({"at_most": 2, "method": "pcls"}, "for `method` nnls"),
        ({"at_most": 2, "solver": "inverse"}, "`solver` active-set"),
        ({"at_most": 2, "l1": 0.1}, "does not go with `l1`"),
        ({"at_most": 2, "device": "cuda"}, "on the CPU, not on cuda"),
    ],
)
def test_what_cannot_be(tmp_path, words, text):
    """In arrays and in runs, in one line; before anything is written."""
    E = np.eye(8)[:, :6] + 0.1
    refused(MethodError, text, unmix.solve, np.ones(8), E, **{"method": "nnls"} | words)
    path = write_cube(tmp_path / "s.hdr", np.ones((2, 3, 8)))
    write_csv(tmp_path / "e.csv", E)
    caught = refused(MethodError, text, unmix.run, path, **{"method": "nnls", "endmembers": tmp_path / "e.csv"} | words)
    assert "\n" not in str(caught.value) and not list(tmp_path.glob("s_*"))


@pytest.mark.parametrize(
    "words",
    [
        {"tv": 0.1},
        {"uncertainty": True},
        {"by": "class", "classes": "class", "average": "plain", "draws": 3},
        {"method": "mesma"},
    ],
)
def test_what_does_not_go_with_it(words):
    with pytest.raises(MethodError, match="`at_most`"):
        unmix.Options.of(**{"method": "nnls", "endmembers": "e.csv", "at_most": 2} | words)


@pytest.fixture
def folder(tmp_path):
    """A scene of five of 60 spectra a pixel, in two classes, one pixel dark and one masked."""
    random = np.random.default_rng(8)
    E = library(random, 30, 60)
    Y = scene(random, E, 63, 0.01).reshape(7, 9, 30)
    Y[0, 0], Y[0, 1] = 0.0, np.nan
    write_cube(tmp_path / "s.hdr", Y.astype(np.float32))
    write_csv(tmp_path / "e.csv", E, classes=["ab"[(j + 1) % 2] for j in range(60)])
    (tmp_path / "w.txt").write_text("\n".join(str(1 + band % 3) for band in range(30)))
    return tmp_path


def words_for(folder, **further):
    own = {"endmembers": folder / "e.csv", "method": "nnls", "at_most": 3, "scale": 1, "out_dir": folder / "o"}
    return own | {"certificate": True} | further


@pytest.mark.slow
def test_a_run_and_its_record(folder):
    report = unmix.run(folder / "s.hdr", **words_for(folder, device="auto"))
    A, held = read_map(folder / "o/s", "abundance"), report["at_most"]["pixels"]
    there = (A > 0).sum(axis=2)
    there[0, 1] = -1
    assert report["device"] == "cpu" and report["path"] == "at_most" and report["asked"]["at_most"] == 3
    assert report["at_most"]["most"] == 3 and held == [int((there == k).sum()) for k in range(4)]
    assert report["pixels"]["certified"] == report["pixels"]["solved"] == sum(held) == 62
    scene = open_scene(folder / "s.hdr", ReadOptions(scale=1))
    Y = scene.spectra(scene.cube.read(slice(0, 7), np.empty(7 * 9 * 30 * 4, np.uint8)))
    E = load_for(folder / "e.csv", scene, None, None, None).matrix
    own = unmix.solve(Y, E, method="nnls", at_most=3)
    np.testing.assert_allclose(A.reshape(63, 60)[own.valid], own.abundances[own.valid], atol=1e-7)
    np.testing.assert_array_equal(
        read_map(folder / "o/s", "certificate")[..., 2].ravel()[own.valid], own.steps[own.valid]
    )
    assert verify(folder / "o/s", everything=True).faults == []
    assert unmix.run(folder / "s.hdr", skip_existing=True, **words_for(folder)).get("skipped")
    assert "at most 3 endmembers a pixel" in unmix.report(folder / "o/s").read_text()
    _, told = command("run", folder / "s.hdr", "-e", folder / "e.csv", "--method", "nnls", "--at-most", "61", code=2)
    assert "--at-most 61: there are only 60 endmembers" in told.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "further",
    [
        {"top": 2},
        {"top": 3},
        {"quantize": 1e-2},
        {"weights": "w.txt", "residual": True},
        # each of these compiles a search of its own, half a minute
        *(
            pytest.param(words, marks=pytest.mark.slow)
            for words in (
                {"normalize": "length"},
                {"normalize": "sum", "top": 2, "quantize": 1e-3},
                {"by": "class", "class_map": True, "shade_normalize": True},
            )
        ),
    ],
)
def test_verify_of_all_that_it_goes_with(folder, further):
    if "weights" in further:
        further = further | {"weights": folder / "w.txt"}
    unmix.run(folder / "s.hdr", **words_for(folder, **further))
    assert verify(folder / "o/s", everything=True).faults == []


@pytest.mark.slow
def test_verify_finds_a_worse_support_and_a_wrong_count(folder):
    unmix.run(folder / "s.hdr", **words_for(folder))

    def exchange(values):
        A = values.reshape(7, 60, 9)
        support = np.flatnonzero(A[3, :, 4])
        other = next(j for j in range(60) if j not in support)
        A[3, other, 4], A[3, support[0], 4] = A[3, support[0], 4], 0.0

    verify_tells(folder / "o/s", "abundance", 7, exchange, fault="line 3")
    unmix.run(folder / "s.hdr", overwrite=True, **words_for(folder))

    def one_more(report):
        report["at_most"]["pixels"][0] += 1

    falsify_record(folder / "o/s", one_more)
    assert any("at_most" in fault for fault in verify(folder / "o/s", everything=True).faults)


@pytest.mark.real
@pytest.mark.parametrize("most", [1, 4, 8])
def test_usgs_on_jasper_ridge(data, most):
    """498 spectra, 198 bands: certified, by definition, and within a few per cent of nnls, which has up to 17."""
    scene = open_scene(data / "jasper/jasper.hdr", ReadOptions())
    E = load_for(data / "libraries/USGS_1995_Library.mat", scene, None, None, None, True, True).matrix
    Y = sampled_spectra(scene, 2000)[0]
    found = unmix.solve(Y, E, method="nnls", at_most=most)
    assert found.kappa.max() <= CERTIFIED and found.delta.max() <= 1e-6 and found.steps.max() <= most
    some = np.random.default_rng(0).choice(len(Y), 4, replace=False)
    assert [fault_of(E, Y[i], most, found, i) for i in some] == [None] * 4
    plain = unmix.solve(Y, E, method="nnls").rmse
    assert (found.rmse >= plain * (1 - 1e-9)).all()
    assert found.rmse.mean() <= {1: 1.5, 4: 1.05, 8: 1.01}[most] * plain.mean()
