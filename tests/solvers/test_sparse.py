"""Abundances with a penalty on their sum: against homotopy, against scipy, and against duality gaps in extended precision."""

import numpy as np
import pytest
from conftest import mix, refused, rest_slow, write_csv, write_cube
from definitions import gap, l1_path, on_path
from hypothesis import given
from hypothesis import strategies as st
from reference.abundances import l1 as by_scipy
from squares import SparseChoice, sparse_scene
from test_cli import unmix as command
from test_many import library, scene

import unmix
from unmix.certificate import CERTIFIED


@pytest.mark.sim
@pytest.mark.parametrize(("L", "p"), rest_slow([(12, 6), (30, 16), (30, 33), (20, 60)], (12, 6), (30, 16)))
def test_against_homotopy(device, L, p):
    """On every path of a CPU and a GPU the abundances are one point of the pixel's homotopy."""
    random = np.random.default_rng(p)
    E = random.uniform(0, 1, (L, p))
    Y = scene(random, E, 4, 0.02)
    paths = [l1_path(E, y) for y in Y]
    for l1 in (0.0, 0.01, 0.3, 2.0, 1e3):
        found = unmix.solve(Y, E, method="nnls", l1=l1, device=device)
        np.testing.assert_allclose(found.abundances, [on_path(path, l1) for path in paths], atol=1e-11)
        assert found.kappa.max() <= CERTIFIED and found.delta.max() <= 1e-6
        if l1 == 0.0:
            np.testing.assert_array_equal(found.abundances, unmix.solve(Y, E, method="nnls", device=device).abundances)
        if l1 == 1e3:
            assert not found.abundances.any()


@pytest.mark.parametrize("p", rest_slow([16, 48, 49, 150], 16, 150))
def test_against_scipy(p):
    random = np.random.default_rng(p)
    E = random.random((80, p)) + 0.1
    Y = scene(random, E, 30)
    sums = unmix.solve(Y, E, method="nnls").abundances.sum(axis=1)
    for l1 in (0.003, 0.1, 1.0):
        found = unmix.solve(Y, E, method="nnls", l1=l1)
        np.testing.assert_allclose(found.abundances, [by_scipy(E, y, np.full(p, l1)) for y in Y], atol=1e-9)
        assert (found.abundances.sum(axis=1) < sums).all()
        sums = found.abundances.sum(axis=1)


@pytest.mark.parametrize(
    ("L", "p"), rest_slow([(60, 30), (40, 40), (40, 90), (60, 300), (2, 80)], (40, 90), (60, 300), (2, 80))
)
def test_any_rank(L, p):
    """Duplicates, scaled duplicates, pixels of the scene and more spectra than bands: nothing is better."""
    random = np.random.default_rng([L, p])
    E = library(random, L, p)
    E[:, 1], E[:, 2] = E[:, 0], 2 * E[:, 0]
    Y = scene(random, E, 50)
    E[:, -1] = np.abs(Y[0])
    for l1 in (1e-6, 0.01, 0.5):
        found = unmix.solve(Y, E, method="nnls", l1=l1)
        assert found.kappa.max() <= CERTIFIED and found.abundances.min() >= 0
        assert max(gap(E, y, a, penalty=np.full(p, l1)) for y, a in zip(Y, found.abundances)) <= 1e-12


def test_of_a_spectrum_and_its_multiple_the_longer_one_takes_the_place():
    """It costs less, whatever their order."""
    _, E, Y = mix(2, 20, 30, 6, (0.1, 1.1))
    copies = np.hstack([E, 2 * E])
    for order in (np.arange(12), np.arange(12)[::-1]):
        found = unmix.solve(Y, copies[:, order], method="nnls", l1=0.02)
        back = found.abundances[:, np.argsort(order)]
        assert not back[:, :6].any() and back[:, 6:].any()
        assert found.kappa.max() <= CERTIFIED


@given(
    seed=st.integers(0, 2**32 - 1),
    L=st.integers(1, 12),
    p=st.integers(1, 14),
    exponent=st.integers(-12, 4),
    unit=st.sampled_from([1e-6, 1.0, 1e6]),
)
def test_optimality_conditions(seed, L, p, exponent, unit):
    """In extended precision, of whatever spectra: no slope leads down."""
    random = np.random.default_rng(seed)
    E = random.normal(size=(L, p)) * unit * 10.0 ** random.integers(-2, 3, p)
    E = np.abs(E) if p > L else E  # where a mixture of spectra is zero, there is no dual point for the gap
    Y = random.normal(size=(5, L)) * unit
    l1 = 2.0**exponent * unit**2
    found = unmix.solve(Y, E, method="nnls", l1=l1)
    for y, a, kappa in zip(Y, found.abundances, found.kappa):
        r = y.astype(np.longdouble) - E.astype(np.longdouble) @ a.astype(np.longdouble)
        v = E.astype(np.longdouble).T @ r - l1
        size = np.linalg.norm(E, axis=0) * max(np.linalg.norm(y), (np.linalg.norm(E, axis=0) * a).sum())
        assert np.all(v <= 1e-9 * size) and np.all(np.abs(v[a > 0]) <= 1e-9 * size[a > 0])
        assert np.all(a >= 0) and kappa <= CERTIFIED


def test_the_proof_covers_the_penalty():
    """δ is above the distance to the optimum, found by homotopy, of answers that are moved away from it; κ rejects them."""
    from test_certificate import certificates

    random = np.random.default_rng(5)
    E = random.random((30, 8)) + 0.1
    Y, penalty = scene(random, E, 40, 0.02), np.full(8, 0.05)
    best = np.array([on_path(l1_path(E, y), 0.05) for y in Y])
    for step in (0.0, 1e-9, 1e-5, 1e-2):
        A = np.maximum(best + step * random.standard_normal(best.shape) * (best > 0), 0.0)
        _, kappa, delta = certificates(E, Y, A, "nnls", penalty=penalty).T
        off = np.linalg.norm(A - best, axis=1)
        assert np.all(delta >= off - 1e-14)
        assert np.all(kappa <= CERTIFIED) if step == 0 else step < 1e-8 or np.all(kappa[off > 0] > CERTIFIED)
    plain = certificates(E, Y, best, "nnls")[:, 1]
    assert np.all(plain > CERTIFIED)  # without the penalty these are no optima


def files_of(tmp_path, p=16):
    random = np.random.default_rng(1)
    E = random.uniform(0.1, 0.9, (30, p))
    Y = scene(random, E, 6 * 17).reshape(6, 17, 30)
    Y[2, 3] = -9
    names = [f"mineral {j}" for j in range(p)]
    return (
        write_cube(tmp_path / "x.hdr", Y.astype("float32"), data_ignore_value=-9),
        write_csv(tmp_path / "lib.csv", E),
        names,
    )


def test_a_run(tmp_path):
    """Written, and told apart from another penalty; the rest is in tests/runs/test_features.py."""
    path, lib, _ = files_of(tmp_path)
    words = {"endmembers": lib, "method": "nnls", "device": "cpu", "browse": False}
    report = unmix.run(path, l1=0.05, **words)
    assert report["asked"]["l1"] == {"lambda": 0.05}
    about = report["l1"]
    assert about["lambda"] == 0.05 < about["largest"] and 1 < about["above_1_percent"] < 10
    assert report["pixels"]["certified"] == 6 * 17 - 1
    refused(unmix.OutputError, None, unmix.run, path, l1=0.06, skip_existing=True, **words)


@pytest.mark.parametrize("unit", [1.0, 1e4])
@pytest.mark.parametrize(("L", "p"), rest_slow([(6, 16), (20, 30), (20, 60)], (6, 16), (20, 30)))
@pytest.mark.parametrize("share", [1e-10, 1e-8, 1e-6, 1e-3])
def test_the_reference_of_verify_is_the_optimum(unit, L, p, share):
    """In any unit and for the smallest penalties: scipy's tolerance is absolute."""
    random = np.random.default_rng(0)
    E = random.random((L, p)) * unit
    Y = random.dirichlet(np.full(p, 0.2), 30) @ E.T + 0.01 * unit * random.normal(size=(30, L))
    l1 = share * float((Y @ E).max())
    found = unmix.solve(Y, E, method="nnls", l1=l1)
    assert (found.delta < 1e-3).all()
    for y, a, delta in zip(Y, found.abundances, found.delta):
        np.testing.assert_allclose(by_scipy(E, y, np.full(p, l1)), a, atol=1e-8 + 2 * delta)


def test_a_poor_fit_may_be_the_penalty(tmp_path):
    path, lib, _ = files_of(tmp_path)
    report = unmix.run(path, endmembers=lib, method="nnls", l1=3.0, device="cpu", browse=False)
    assert any("a smaller `l1` fits better" in text for text in report["warnings"])
    _, err = command("run", path, "--method", "fcls", "-e", lib, "--l1", "1", "--overwrite", code=2)
    assert "--l1 is for --method nnls, not fcls" in err


def test_ways_that_there_were_name_what_serves(tmp_path):
    path, lib, _ = files_of(tmp_path)
    for words, said in (
        (
            ["run", path, "-e", lib, "--method", "nnls", "--l1", "auto"],
            "--l1 auto is no more: --rows auto keeps the few",
        ),
        (["run", path, "-e", lib, "--method", "nnls", "--l1-weights", lib], "--l1-weights is no more"),
        (["path", path, "-e", lib], "unmix path is no more: unmix run with some --l1 shows the same"),
    ):
        command(*words, code=2, tells=said)
    for value in ({"l1": "discrepancy"}, {"l1_weights": lib}):
        refused(unmix.UnmixError, "is no more", unmix.run, path, endmembers=lib, method="nnls", **value)


def test_the_truth_of_a_library_is_compared_by_name(tmp_path):
    """Its maps are nearly all zero, and its spectra alike: by abundances they were paired at random."""
    E = library(np.random.default_rng(0), 50, 30)
    names = [f"mineral {chr(97 + j // 10)}{j % 10} x" for j in range(30)]
    write_csv(tmp_path / "lib.csv", E, names=names)
    Y, A = sparse_scene(unmix.load_library(tmp_path / "lib.csv"), SparseChoice("dc1", seed=2))
    write_cube(tmp_path / "s.hdr", Y, "bil")
    write_cube(tmp_path / "s_truth_abundance.hdr", A, "bil", band_names=names)
    unmix.run(tmp_path / "s.hdr", endmembers=tmp_path / "lib.csv", method="nnls", l1=0.05, device="cpu", browse=False)
    found = unmix.compare(tmp_path / "s", tmp_path / "s_truth_abundance.hdr")
    assert found["matched_by"] == "name" and all(pair["a"] == pair["b"] for pair in found["pairs"])
    maps = [np.fromfile(tmp_path / f"s_{name}.img", "<f4") for name in ("abundance", "truth_abundance")]
    assert found["rmse"] == pytest.approx(float(np.sqrt(np.square(maps[0] - maps[1]).mean())), rel=1e-5)


def test_channels_taken_by_number_are_said(tmp_path, caplog):
    E = library(np.random.default_rng(0), 20, 4)
    cube = write_cube(tmp_path / "x.hdr", np.tile(E[:, 0], (5, 6, 1)))
    lib = write_csv(tmp_path / "lib.csv", E, wavelengths=np.linspace(400, 2400, 20))
    report = unmix.run(cube, endmembers=lib, method="nnls", device="cpu", browse=False)
    assert any("taken for its bands by number" in text for text in report["warnings"])
