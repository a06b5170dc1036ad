"""The path over λ: every breakpoint of a pixel against a plain homotopy, and what λ makes of a scene."""

import json

import flint
import numpy as np
import pytest
from conftest import rest_slow, write_csv, write_cube
from definitions import l1_path
from exact import distance
from hypothesis import given
from hypothesis import strategies as st
from lattices import lasso, rational
from test_cli import unmix as command
from test_many import library, scene

import unmix
from unmix.arrays.penalties import RULES, Trials, by_risk
from unmix.commands.synth.squares import BACKGROUND, fractions_dc1
from unmix.commands.verify import verify
from unmix.library import Endmembers
from unmix.methods import CHOSEN_BY, choose
from unmix.problem import plan_problem


@pytest.mark.parametrize(("L", "p"), rest_slow([(30, 6), (60, 60), (40, 90)], (30, 6)))
def test_every_breakpoint(L, p):
    random = np.random.default_rng(p)
    E, w = random.uniform(0, 1, (L, p)), random.uniform(0.2, 2, p)
    for y in scene(random, E, 8, 0.02):
        found, expected = unmix.path(y, E, w), l1_path(E, y, w)
        np.testing.assert_allclose(found.lambdas, [l1 for l1, _ in expected], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found.abundances, [a for _, a in expected], atol=1e-9)
        assert found.kappa.max() < 1e-12
        for l1 in (0.0, 0.3 * found.lambdas[0], found.lambdas[2], 2 * found.lambdas[0]):
            solved = unmix.solve(y, E, method="nnls", l1=l1, l1_weights=w)
            np.testing.assert_allclose(found.at(l1), solved.abundances, atol=1e-9)


@given(seed=st.integers(0, 2**32 - 1), L=st.integers(1, 9), p=st.integers(1, 12), copies=st.booleans())
def test_the_path_is_optimal_everywhere(seed, L, p, copies):
    """Also of dependent spectra and copies, and of pixels that no spectrum is like."""
    random = np.random.default_rng(seed)
    E = random.normal(size=(L, p)) * 10.0 ** random.integers(-1, 2, p)
    E = np.hstack([E, E[:, :1]]) if copies else E
    found = unmix.path(random.normal(size=L), E)
    assert found.kappa.max() < 1e-8
    assert found.lambdas[-1] == 0.0 and np.all(np.diff(found.lambdas) < 0)


def optimum_on(used, E, y, costs):
    """Return the optimum on some endmembers, and the largest dual of all, in rational numbers."""
    columns = flint.fmpq_mat([[rational(value) for value in column] for column in E.T.tolist()])
    G, f = columns * columns.transpose(), columns * flint.fmpq_mat([[rational(value)] for value in y.tolist()])
    f = [f[j, 0] - costs[j] for j in range(len(costs))]
    x = flint.fmpq_mat([[G[i, j] for j in used] for i in used]).solve(flint.fmpq_mat([[f[i]] for i in used]))
    best = [flint.fmpq(0)] * len(f)
    for i, j in enumerate(used):
        best[j] = x[i, 0]
    return best, max(f[j] - sum((G[j, i] * best[i] for i in used), flint.fmpq(0)) for j in range(len(f)))


def test_no_point_is_farther_than_its_delta():
    """In rational numbers, λ times a weight included: its rounding alone moved abundances by more than δ."""
    random, compared = np.random.default_rng(3), 0
    for _ in range(60):
        L, p = int(random.integers(3, 8)), int(random.integers(2, 5))
        E, w = random.random((L, p)), random.uniform(0.1, 1.1, p)
        if random.random() < 0.3:
            E[:, 1] = E[:, 0] + 1e-4 * random.standard_normal(L)
        y = E @ random.dirichlet(np.ones(p)) + 0.05 * random.standard_normal(L)
        found = unmix.path(y, E, w)
        for l1, a, delta in zip(found.lambdas, found.abundances, found.delta):
            used = [j for j in range(p) if a[j] > 0]
            if used and np.isfinite(delta):
                costs = [rational(l1) * rational(value) for value in w.tolist()]
                best, dual = optimum_on(used, E, y, costs)
                if min(best) >= 0 and dual <= 0:  # it is the optimum of all
                    assert distance(a, best) <= delta
                    compared += 1
    assert compared > 60


@pytest.mark.parametrize("ratio", [2.0, 3.0, 1.7])
def test_points_of_collinear_pairs_are_optimal(ratio):
    """Where the optimum is not unique δ is infinite, but the point is still an optimum: it used to be anything, such as zeros."""
    random = np.random.default_rng(1)
    for _ in range(10):
        E, w = random.random((5, 3)), random.uniform(0.3, 1, 3)
        E[:, 1] = ratio * E[:, 0]
        y = E @ random.dirichlet(np.ones(3)) + 0.02 * random.standard_normal(5)
        found = unmix.path(y, E, w)
        for l1, a in zip(found.lambdas, found.abundances):
            v = E.T @ (y - E @ a) - l1 * w
            assert v.max() <= 1e-10 and np.abs(v[a > 0]).max(initial=0.0) <= 1e-10


def test_a_penalty_and_its_weights_are_paid_for():
    """The same of `unmix.solve`, of spectra that are so alike that it proves them in double-double."""
    random = np.random.default_rng(2)
    E = random.random((6, 2))
    E[:, 1] = E[:, 0] + 1e-5 * random.standard_normal(6)
    for l1 in (1e-4, 3e-4, 7e-4):
        w = random.uniform(0.1, 1.1, 2)
        w[1] = w[0] * (E[:, 1] @ E[:, 0]) / (E[:, 0] @ E[:, 0])
        y = E @ [0.5, 0.5] + 1e-3 * random.standard_normal(6)
        found = unmix.solve(y, E, method="nnls", l1=l1, l1_weights=w)
        used = [j for j in range(2) if found.abundances[j] > 0]
        best, dual = optimum_on(used, E, y, [rational(l1) * rational(value) for value in w.tolist()])
        assert dual <= 0 and distance(found.abundances, best) <= float(found.delta) < 1e-6


def test_endmembers_that_enter_together():
    found = unmix.path(np.array([2.0, 2, 1]), np.eye(3))
    np.testing.assert_array_equal(found.lambdas, [2, 1, 0])
    np.testing.assert_array_equal(found.abundances, [[0, 0, 0], [1, 1, 0], [2, 2, 1]])


def test_spectra_that_are_alike():
    """Pairs alike to 1e-9 leave each other within 1e-9 of a λ: δ holds at each breakpoint, and the line between them too."""
    random = np.random.default_rng(1)
    known = []
    for _ in range(40):
        L, p = int(random.integers(4, 12)), int(random.integers(2, 5))
        E = random.random((L, p))
        E[:, -1] = E[:, 0] + 10.0 ** random.uniform(-9, -1) * random.standard_normal(L)
        y = E @ random.dirichlet(np.ones(p)) + 0.02 * random.standard_normal(L)
        found = unmix.path(y, E)
        middles = 0.3 * found.lambdas[1:] + 0.7 * found.lambdas[:-1]
        for l1, a, delta in (
            *zip(found.lambdas, found.abundances, found.delta),
            *((l1, found.at(l1), 1e-8) for l1 in middles),
        ):
            best = lasso(E, y, [rational(l1)] * p).optimum(a)
            assert distance(a, best) <= delta
            known.append(delta < 1e-6)
    assert np.mean(known) > 0.9


@pytest.mark.parametrize("scale", [1e-300, 1e-165, 1e165, 1e300])
def test_a_path_of_any_size(scale):
    E = np.random.default_rng(0).random((5, 3))
    y = E @ [0.2, 0.5, 0.1]
    plain, found = unmix.path(y, E), unmix.path(y * scale, E)
    np.testing.assert_allclose(found.lambdas / scale, plain.lambdas, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(found.abundances / scale, plain.abundances, rtol=1e-9, atol=1e-12)
    assert np.all(found.delta / scale < 1e-12) and found.kappa.max() < 1e-12


def test_rules_have_the_names_of_the_options():
    assert tuple(RULES) == CHOSEN_BY


def test_those_that_stay_longest():
    E = np.eye(4)
    found = unmix.path(np.array([0.2, 0.9, 0.0, 0.5]), E)
    assert found.last(2).tolist() == [1, 3] and found.last(9).tolist() == [1, 3, 0]
    with pytest.raises(unmix.MethodError, match="must not be negative"):
        found.at(-1.0)
    assert not unmix.path(-np.ones(4), E).abundances.any()


@pytest.mark.parametrize(
    ("y", "E", "weights", "text"),
    [
        ([1, 2], np.eye(3), None, "must be"),
        ([1, np.nan, 2], np.eye(3), None, "finite"),
        ([1, 2, 3], np.diag([1, 0, 1]), None, "endmember 2 is zero"),
        ([1, 2, 3], np.eye(3), [1, 1], "2 numbers"),
        ([1, 2, 3], np.eye(3), [1, 0, 1], "above 0"),
    ],
)
def test_what_has_no_path(y, E, weights, text):
    with pytest.raises(unmix.UnmixError, match=text):
        unmix.path(np.array(y, float), E, weights)


@pytest.fixture
def noisy(tmp_path):
    """A scene of a library of 30 spectra and noise of 0.01, with a pixel masked, and the library."""
    random = np.random.default_rng(4)
    E = library(random, 60, 30)
    Y = scene(random, E, 30 * 20, 0.01).reshape(30, 20, 60)
    Y[3, 4] = -9
    cube = write_cube(tmp_path / "x.hdr", Y.astype("float32"), data_ignore_value=-9)
    return cube, write_csv(tmp_path / "lib.csv", E), Y.reshape(-1, 60), E


def test_a_penalty_by_discrepancy(tmp_path, noisy):
    """What is left of the median pixel is the noise: given, or as the scene shows it."""
    cube, lib, Y, E = noisy
    (tmp_path / "noise.txt").write_text("0.0105\n" * 60)
    words = {"endmembers": lib, "method": "nnls", "device": "cpu", "browse": False}
    given = unmix.run(cube, l1="discrepancy", noise=tmp_path / "noise.txt", **words)
    l1 = given["l1"]["lambda"]
    assert l1 > 0 and given["asked"]["l1"]["lambda"] == "discrepancy"
    valid = Y[Y[:, 0] != -9]
    left = [np.median(unmix.solve(valid, E, method="nnls", l1=share * l1).rmse) for share in (0.97, 1.03)]
    assert left[0] < 0.0105 < left[1]
    assert verify(tmp_path / "x", everything=True).faults == []
    assert unmix.run(cube, l1="discrepancy", noise=tmp_path / "noise.txt", skip_existing=True, **words)["skipped"]
    (tmp_path / "low.txt").write_text("1e-4\n" * 60)
    none = unmix.run(cube, l1="discrepancy", noise=tmp_path / "low.txt", overwrite=True, **words)
    assert none["l1"]["lambda"] == 0.0


@pytest.mark.slow
def test_a_penalty_by_its_expected_error(tmp_path, noisy):
    """The least of Stein's estimate over a grid, which is also near the least true error of the fit."""
    cube, lib, Y, E = noisy
    words = {"endmembers": lib, "method": "nnls", "device": "cpu", "browse": False}
    (tmp_path / "noise.txt").write_text("0.01\n" * 60)
    l1 = unmix.run(cube, l1="auto", noise=tmp_path / "noise.txt", **words)["l1"]["lambda"]
    valid = Y[Y[:, 0] != -9].astype("float32").astype(float)

    def risk(l1):
        A = unmix.solve(valid, E, method="nnls", l1=l1).abundances
        return (np.square(valid - A @ E.T).sum(axis=1) / 1e-4 + 2 * (A > 0).sum(axis=1)).mean()

    assert risk(l1) <= min(risk(other) for other in [0.0, *np.geomspace(1e-5, 10, 60)]) + 0.05
    own = unmix.run(cube, l1="auto", overwrite=True, memory="100k", **words)["l1"]["lambda"]
    assert own > 0 and own == unmix.run(cube, l1="auto", overwrite=True, threads=1, **words)["l1"]["lambda"]
    assert verify(tmp_path / "x", everything=True).faults == []


def test_no_penalty_is_better_than_any(tmp_path):
    """Of a library of one spectrum, that every pixel has: nothing is to be left out."""
    E = np.linspace(0.2, 0.8, 40)[:, None]
    Y = np.random.default_rng(0).uniform(0.5, 1, (400, 1)) @ E.T + 0.001 * np.random.default_rng(1).normal(
        size=(400, 40)
    )
    cube = write_cube(tmp_path / "x.hdr", Y.reshape(20, 20, 40))
    report = unmix.run(cube, endmembers=write_csv(tmp_path / "e.csv", E), method="nnls", l1="auto", device="cpu")
    assert report["l1"]["lambda"] < 1e-3 * report["l1"]["largest"]


def test_foreign_pixels_do_not_choose():
    """Clouds that no mixture is like leave the choice where it was."""
    random = np.random.default_rng(0)
    E = library(random, 60, 30)
    Y = scene(random, E, 300, 0.01)
    clouds = np.vstack([Y, 3 + random.normal(size=(30, 60))])
    problem = plan_problem(Endmembers(tuple(map(str, range(30))), E, None), *choose("nnls"), warns=False)
    few, many = (by_risk(Trials(problem, pixels, None, None), 60e-4) for pixels in (Y, clouds))
    assert 0.2 < many / few < 5


def test_the_path_of_a_scene(noisy, tmp_path):
    cube, lib, Y, E = noisy
    out, _ = command("path", cube, "-e", lib, "-n", "6", "--json")
    found = json.loads(out)
    assert found["pixels"] == 599 and len(found["path"]) == 7
    valid = Y[Y[:, 0] != -9].astype("float32").astype(float)
    for point in found["path"]:
        solved = unmix.solve(valid, E, method="nnls", l1=point["lambda"])
        assert point["rmse"] == pytest.approx(np.median(solved.rmse), rel=1e-6)
        clear = (solved.abundances > 0.01).sum(axis=1).mean()
        assert point["above_1_percent"] == pytest.approx(clear, rel=1e-3)
        assert point["endmembers"] == pytest.approx((solved.abundances > 0).sum(axis=1).mean(), rel=1e-3)
    assert 0.3 < found["path"][0]["zero"] < 0.7
    assert 0.005 < found["noise"]["regression"] < 0.02 < found["noise"]["spatial"]
    assert found["auto"] == unmix.run(cube, endmembers=lib, method="nnls", l1="auto", device="cpu")["l1"]["lambda"]
    text, _ = command("path", cube, "-e", lib, "-n", "3", "-q")
    assert len(text.splitlines()) == 6 and "--l1 auto" in text


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("run", "--l1", "some"), 2, "'some' is no number, nor auto or discrepancy"),
        (("run", "--l1", "auto", "--noise", "none"), 2, "nothing would vary"),
        (("run", "--l1", "0.1", "--noise", "noise.txt"), 2, "`noise`|--noise"),
        (("path", "-n", "1"), 2, "1 is not in the range"),
        (("path", "--l1-weights", "missing.txt"), 3, "no such file"),
        (("path", "--library-scale", "10000"), 3, "times as large as the endmembers"),
    ],
)
def test_wrong_words(noisy, tmp_path, words, code, text):
    cube, lib, _, _ = noisy
    name, *rest = words
    more = ("--method", "nnls") if name == "run" else ()
    _, err = command(name, cube, "-e", lib, *more, *rest, code=code)
    assert any(part in err for part in text.split("|"))


def test_scenes_like_dc1_and_dc2(tmp_path):
    """Squares of one to five materials in equal parts on their background; the truth has a band for each spectrum."""
    A = fractions_dc1()
    np.testing.assert_allclose(A.sum(axis=2), 1)
    np.testing.assert_allclose(A[0, 0], np.array(BACKGROUND) / sum(BACKGROUND))
    for row in range(5):
        for column in range(5):
            middle = A[15 * row + 7, 15 * column + 7]
            np.testing.assert_allclose(np.sort(middle)[::-1], [1 / (row + 1)] * (row + 1) + [0] * (4 - row))
    random = np.random.default_rng(0)
    write_csv(tmp_path / "lib.csv", library(random, 50, 30), wavelengths=np.linspace(400, 2400, 50))
    for like, side, count in (("dc1", 75, 5), ("dc2", 100, 9)):
        command("synth", tmp_path / like, "--like", like, "-e", tmp_path / "lib.csv", "--snr", "none")
        cube = unmix.open_cube(tmp_path / f"{like}.hdr")
        assert (cube.lines, cube.samples, cube.bands) == (side, side, 50)
        report = unmix.run(cube.path, endmembers=tmp_path / "lib.csv", method="nnls", device="cpu", certificate=True)
        truth = np.fromfile(tmp_path / f"{like}_truth_abundance.img", "<f4").reshape(side, 30, side)
        assert (truth.sum(axis=(0, 2)) > 0).sum() == count
        np.testing.assert_allclose(truth.sum(axis=1), 1, atol=1e-6)
        assert report["fit"]["relative_rmse"]["maximum"] < 1e-5
    _, err = command("synth", tmp_path / "x", "--like", "dc1", code=2)
    assert "name it with -e" in err
    _, err = command("synth", tmp_path / "x", "--like", "dc1", "-e", tmp_path / "lib.csv", "--lines", "9", code=2)
    assert "--lines is not for --like dc1" in err
    write_csv(tmp_path / "few.csv", library(random, 50, 4))
    _, err = command("synth", tmp_path / "x", "--like", "dc1", "-e", tmp_path / "few.csv", code=3)
    assert "4 spectra; dc1 is of 5" in err
    _, err = command("synth", tmp_path / "x", "-e", tmp_path / "lib.csv", code=2)
    assert "-e is for --like dc1 and dc2" in err


def test_the_truth_of_a_library_is_compared_by_name(tmp_path):
    """Its maps are nearly all zero, and its spectra alike: by abundances they were paired at random."""
    random = np.random.default_rng(0)
    E = library(random, 50, 30)
    names = [f"mineral {chr(97 + j // 10)}{j % 10} x" for j in range(30)]
    write_csv(tmp_path / "lib.csv", E, names=names)
    command("synth", tmp_path / "s", "--like", "dc1", "-e", tmp_path / "lib.csv", "--seed", "2")
    unmix.run(tmp_path / "s.hdr", endmembers=tmp_path / "lib.csv", method="nnls", l1=0.05, device="cpu", browse=False)
    found = unmix.compare(tmp_path / "s", tmp_path / "s_truth_abundance.hdr")
    assert found["matched_by"] == "name" and all(pair["a"] == pair["b"] for pair in found["pairs"])
    maps = [np.fromfile(tmp_path / f"s_{name}.img", "<f4") for name in ("abundance", "truth_abundance")]
    assert found["rmse"] == pytest.approx(float(np.sqrt(np.square(maps[0] - maps[1]).mean())), rel=1e-5)
    head = (tmp_path / "s_truth_abundance.hdr").read_text()
    assert "true abundances; there are mineral" in head


def test_channels_taken_by_number_are_said(tmp_path, caplog):
    E = library(np.random.default_rng(0), 20, 4)
    cube = write_cube(tmp_path / "x.hdr", np.tile(E[:, 0], (5, 6, 1)))
    lib = write_csv(tmp_path / "lib.csv", E, wavelengths=np.linspace(400, 2400, 20))
    report = unmix.run(cube, endmembers=lib, method="nnls", device="cpu", browse=False)
    assert any("taken for its bands by number" in text for text in report["warnings"])
