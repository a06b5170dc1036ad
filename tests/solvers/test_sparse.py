"""Abundances with a penalty on their sum: against homotopy, against scipy, and against duality gaps in extended precision."""

import logging
import re

import numpy as np
import pytest
from conftest import falsify, rest_slow, write_csv, write_cube
from definitions import gap, l1_path, on_path
from hypothesis import given
from hypothesis import strategies as st
from test_cli import unmix as command
from test_many import library, scene

import unmix
from unmix.certificate import CERTIFIED
from unmix.commands.verify import verify
from unmix.reference.abundances import l1 as by_scipy


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
def test_weights_against_scipy(p):
    random = np.random.default_rng(p)
    E = random.random((80, p)) + 0.1
    Y, w = scene(random, E, 30), random.uniform(0.1, 3, p)
    for l1 in (0.003, 0.1, 1.0):
        found = unmix.solve(Y, E, method="nnls", l1=l1, l1_weights=w)
        np.testing.assert_allclose(found.abundances, [by_scipy(E, y, l1 * w) for y in Y], atol=1e-9)


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
        for w in (np.ones(p), random.choice([0.0, 1.0, 2.0], p)):
            found = unmix.solve(Y, E, method="nnls", l1=l1, l1_weights=w)
            assert found.kappa.max() <= CERTIFIED and found.abundances.min() >= 0
            assert max(gap(E, y, a, penalty=l1 * w) for y, a in zip(Y, found.abundances)) <= 1e-12


def test_a_dependent_spectrum_with_a_smaller_weight_takes_the_place():
    """Of two equal spectra the one that costs less is the answer, whatever their order; of a multiple, the longer one."""
    random = np.random.default_rng(2)
    E = random.random((30, 6)) + 0.1
    Y = random.dirichlet(np.ones(6), 20) @ E.T
    for copies, weights in ((np.hstack([E, E]), np.repeat([1.0, 0.5], 6)), (np.hstack([E, 2 * E]), np.ones(12))):
        for order in (np.arange(12), np.arange(12)[::-1]):
            found = unmix.solve(Y, copies[:, order], method="nnls", l1=0.02, l1_weights=weights[order])
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
    w = random.choice([0.0, 1.0, 3.0], p)
    l1 = 2.0**exponent * unit**2
    found = unmix.solve(Y, E, method="nnls", l1=l1, l1_weights=w)
    for y, a, kappa in zip(Y, found.abundances, found.kappa):
        r = y.astype(np.longdouble) - E.astype(np.longdouble) @ a.astype(np.longdouble)
        v = E.astype(np.longdouble).T @ r - l1 * w
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
    """Written, verified, repeated, told apart from another penalty; the weights' file is an input."""
    path, lib, _ = files_of(tmp_path)
    (tmp_path / "w.txt").write_text("".join(f"{0.5 + j % 3}\n" for j in range(16)))
    words = {"endmembers": lib, "method": "nnls", "device": "cpu", "browse": False}
    report = unmix.run(path, l1=0.05, l1_weights=tmp_path / "w.txt", **words)
    assert report["asked"]["l1"] == {"lambda": 0.05, "weights": [0.5 + j % 3 for j in range(16)]}
    about = report["l1"]
    assert about["lambda"] == 0.05 < about["largest"] and 1 < about["above_1_percent"] < 10
    assert report["pixels"]["certified"] == 6 * 17 - 1
    found = verify(tmp_path / "x", everything=True)
    assert found.faults == [] and found.worst_abundance < 1e-6
    again = unmix.run(path, l1=0.05, l1_weights=tmp_path / "w.txt", skip_existing=True, **words)
    assert again["skipped"]
    (tmp_path / "w.txt").write_text("1\n" * 16)
    with pytest.raises(unmix.OutputError):
        unmix.run(path, l1=0.05, l1_weights=tmp_path / "w.txt", skip_existing=True, **words)

    def other(values):
        values[:17] *= 1.01

    falsify(tmp_path / "x", "abundance", 6, other)
    assert any("does not match the cube" in fault for fault in verify(tmp_path / "x", everything=True).faults)


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


@pytest.mark.parametrize(
    ("weights", "text"),
    [(np.ones((4, 1)), r"shape \(4, 1\)"), ([1, np.nan, 1, 1], "from 0 on"), ([1e300, 1, 1, 1], "below 1e\\+30")],
)
def test_weights_that_are_none(weights, text):
    with pytest.raises(unmix.MethodError, match=text):
        unmix.solve(np.ones(6), np.eye(6)[:, :4] + 0.1, method="nnls", l1=1.0, l1_weights=weights)


@pytest.mark.parametrize(("materials", "p", "dense"), [(15, 16, True), (3, 10, False)])
def test_what_came_of_auto_is_said(tmp_path, caplog, materials, p, dense):
    """How many spectra the median pixel has; where these are many, a λ that is typed as it is printed leaves at most eight."""
    random = np.random.default_rng(4)
    E = random.uniform(0.1, 0.9, (60, p))
    A = np.zeros((400, p))
    A[:, :materials] = random.dirichlet(np.full(materials, 4.0), 400)
    path = write_cube(tmp_path / "s.hdr", (A @ E.T + 1e-3 * random.standard_normal((400, 60))).reshape(20, 20, 60))
    write_csv(tmp_path / "e.csv", E)
    how = {"endmembers": tmp_path / "e.csv", "method": "nnls", "device": "cpu", "overwrite": True}

    def count(l1):
        report = unmix.run(path, l1=l1, **how)
        held = np.fromfile(tmp_path / "s_abundance.img", "<f4").reshape(20, p, 20) > 0
        return report, float(np.median(held.sum(axis=1)))

    with caplog.at_level(logging.INFO, "unmix"):
        report, median = count("auto")
    said = [record for record in caplog.records if " by auto, from noise of" in record.getMessage()]
    text = said[0].getMessage()
    assert len(said) == 1 and f"{median:g} of {p} spectra in the median pixel" in text
    assert report["l1"]["median_count"] == median and (median > 8) == dense
    assert (said[0].levelname == "WARNING") == ("not sparse" in text) == (text in report["warnings"]) == dense
    _, without = count(0.0)
    assert f"{without:g} without a penalty" in text
    if dense:
        _, median = count(float(re.search(r"`l1` (\S+) leaves at most 8", text)[1]))
        assert median <= 8
