"""Factorisation: against scikit-learn's order of updates written in numpy, on every device, and of scenes."""

import importlib
import json

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import refused, rest_slow, write_csv, write_cube
from hypothesis import given, settings
from hypothesis import strategies as st
from unmix_cli.main import cli

import unmix
from unmix.commands.verify import verify
from unmix.devices import simulated
from unmix.features.nmf.updates import column_on_simplex


def losses(X, E, A, loss):
    """In float64, of E (L, p) and A (N, p)."""
    M = A @ E.T
    if loss == "frobenius":
        return 0.5 * np.square(X - M).sum()
    return np.where(X > 0, X * np.log(np.where(X > 0, X, 1) / M), 0).sum() - X.sum() + M.sum()


def plain(X, E, A, loss, steps):
    """Lee and Seung's updates, abundances first, in float64; the loss after each."""
    found = []
    for _ in range(steps):
        if loss == "kl":
            A = A * ((X / (A @ E.T)) @ E) / E.sum(axis=0)
            E = E * ((X / (A @ E.T)).T @ A) / A.sum(axis=0)
        else:
            A = A * (X @ E) / (A @ (E.T @ E))
            E = E * (X.T @ A) / (E @ (A.T @ A))
        found.append(losses(X, E, A, loss))
    return E, A, found


def problem(N, L, p, seed=0):
    random = np.random.default_rng(seed)
    X = random.random((N, p)) ** 2 @ random.random((p, L)) ** 2 + 0.02 * random.random((N, L))
    return X.astype("f4"), (random.random((L, p)) + 0.1).astype("f4"), (random.random((N, p)) + 0.1).astype("f4")


SHAPES = (
    [(9, 5, 2), (40, 21, 3)]
    if simulated()
    else [(1, 3, 1), (431, 30, 3), (862, 10, 2), (9, 5, 2), (40, 21, 3), (200, 198, 5), (500, 130, 17), (700, 64, 33)]
)


@pytest.mark.sim
@pytest.mark.parametrize("loss", ["kl", "frobenius"])
@pytest.mark.parametrize("shape", SHAPES)
def test_steps_are_lee_and_seungs(device, shape, loss):
    X, E, A = problem(*shape)
    steps = 4 if simulated() else 20
    found = unmix.nmf(X, E, A, loss=loss, steps=steps, every=2, tol=0, device=device)
    own_E, own_A, every = plain(X.astype(float), E.astype(float), A.astype(float), loss, steps)
    assert (np.diff([cost for _, cost in found.costs]) <= 1e-5 * found.costs[0][1]).all()
    np.testing.assert_allclose([cost for _, cost in found.costs[1:]], every[1::2], rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(found.E, own_E, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(found.A, own_A, rtol=1e-3, atol=1e-5)
    assert [made for made, _ in found.costs] == list(range(0, steps + 1, 2)) and not found.converged


@pytest.mark.sim
@pytest.mark.parametrize("loss", ["kl", "frobenius"])
def test_the_loss_never_rises_with_the_sum_either(device, loss):
    X, E, _ = problem(12, 7, 3) if simulated() else problem(300, 40, 6)
    X[3] = 0  # a pixel of zeros has no abundances
    found = unmix.nmf(X, E, loss=loss, sum_to_one=True, steps=6 if simulated() else 60, every=1, tol=0, device=device)
    costs = np.array([cost for _, cost in found.costs])
    assert np.all(np.diff(costs) <= 1e-5 * costs[:-1]) and costs[-1] < 0.5 * costs[0]
    sums = found.A.sum(axis=1)
    assert sums[3] == 0 and np.abs(np.delete(sums, 3) - 1).max() < 1e-5 and found.A.min() >= 0
    assert losses(X.astype(float), found.E.astype(float), found.A.astype(float) + 1e-30, loss) == pytest.approx(
        costs[-1], rel=1e-4
    )


@settings(max_examples=2 * settings.default.max_examples)
@given(st.integers(1, 6), st.integers(0, 2**32 - 1), st.booleans())
def test_the_multiplier_of_the_sum_minimises_the_majorant(p, seed, divergence):
    """Against scipy on the same separable problem: Σ down a − grown log a, or Σ ½ (down / a0) a² − up a, on the simplex."""
    from scipy.optimize import minimize

    random = np.random.default_rng(seed)
    start, up, down = (random.random(p) ** 3 * 10 ** random.uniform(-2, 2, p) + 1e-3 for _ in range(3))
    start /= start.sum()
    found = start.copy()
    column_on_simplex(found, up, down, divergence)
    assert found.min() >= 0 and found.sum() == pytest.approx(1, abs=1e-9)

    def majorant(a):
        a = np.maximum(a, 1e-300)
        return (down * a - start * up * np.log(a)).sum() if divergence else (0.5 * down / start * a * a - up * a).sum()

    how = {"bounds": [(1e-12, 1)] * p}
    best = minimize(majorant, found, constraints={"type": "eq", "fun": lambda a: a.sum() - 1}, method="SLSQP", **how)
    assert majorant(found) <= best.fun + 1e-7 * (1 + abs(best.fun))
    assert majorant(found) <= majorant(start) + 1e-9 * (1 + abs(best.fun))


@pytest.mark.parametrize("loss", ["kl", "frobenius"])
@pytest.mark.parametrize("L", [10, 70])
def test_the_same_bytes_for_any_threads(loss, L):
    """More of them than tiles of bands, too."""
    X, E, A = problem(3000, L, 5)
    found = [unmix.nmf(X, E, A, loss=loss, steps=10, threads=threads) for threads in (1, 2, 5, 19)]
    for other in found[1:]:
        np.testing.assert_array_equal(found[0].A, other.A)
        np.testing.assert_array_equal(found[0].E, other.E)


def test_it_stops_when_the_loss_does():
    X, E, A = problem(200, 30, 3)
    found = unmix.nmf(X, E, A, steps=5000, every=10, tol=1e-3)
    fallen = -np.diff([cost for _, cost in found.costs]) / found.costs[0][1]
    assert found.converged and fallen[-1] < 1e-3 and np.all(fallen[:-1] >= 1e-3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"X": np.full((4, 3), -1.0)}, "X holds"),
        ({"E": np.full((3, 2), np.nan)}, "E holds"),
        ({"A": np.ones((4, 3))}, "not match"),
        ({"loss": "l1"}, "unknown loss"),
        ({"steps": 0}, "`steps`"),
        ({"tol": -1}, "`tol`"),
    ],
)
def test_what_is_wrong_is_said(change, words):
    arguments = {"X": np.ones((4, 3)), "E": np.ones((3, 2))} | change
    refused(unmix.UnmixError, words, unmix.nmf, **arguments)


@pytest.fixture
def wide_scene(tmp_path):
    """61 lines of 40 samples, int16, with two masked pixels and one below 0; its endmembers."""
    random = np.random.default_rng(1)
    E = np.abs(np.cumsum(random.standard_normal((24, 3)), axis=0)) + 0.2
    Y = random.dirichlet([0.3] * 3, (61, 40)) @ E.T * 2000
    cube = Y.astype("i2")
    cube[5, 7], cube[60, 39] = -999, -999
    cube[1, 1, 3] = -5
    return write_cube(tmp_path / "wide.hdr", cube, "bil", data_ignore_value=-999, reflectance_scale_factor=10000), E / 5


@pytest.mark.parametrize(
    ("start", "where"),
    [
        ("vca", "cpu"),
        *(pytest.param(start, "cpu", marks=pytest.mark.slow) for start in ("spa", "nfindr")),
        ("random", "cpu"),
        pytest.param("vca", "cuda", marks=pytest.mark.gpu),
    ],
)
def test_a_scene_held_or_read_once_a_step(tmp_path, wide_scene, start, where):
    header, _ = wide_scene
    reports = []
    for memory in ("1G", "150K"):
        out = tmp_path / memory
        reports.append(
            unmix.nmf_scene(header, count=3, start=start, steps=30, every=10, out_dir=out, device=where, memory=memory)
        )
        A = np.fromfile(out / "wide_abundance.img", "<f4").reshape(61, 3, 40)
        assert np.all(A[5, :, 7] == -9999) and np.all(A[60, :, 39] == -9999) and (A == -9999).sum() == 6
        verdict = verify(out / "wide", everything=True)
        assert not verdict.faults and verdict.pixels == 2438
        assert json.loads((out / "wide_run.json").read_text())["pixels"] == {"all": 2440, "solved": 2438, "masked": 2}
    assert [report["held"] for report in reports] == [True, False]
    np.testing.assert_allclose(reports[0]["costs"], reports[1]["costs"], rtol=1e-4)
    maps = [np.fromfile(tmp_path / memory / "wide_abundance.img", "<f4") for memory in ("1G", "150K")]
    np.testing.assert_allclose(*maps, rtol=2e-3, atol=1e-4)


def test_a_changed_byte_is_found(tmp_path, wide_scene):
    header, _ = wide_scene
    unmix.nmf_scene(header, count=3, steps=5, out_dir=tmp_path / "o", device="cpu")
    path = tmp_path / "o/wide_rmse.img"
    values = np.fromfile(path, "<f4")
    values[17] += 0.01
    values.tofile(path)
    assert verify(tmp_path / "o/wide").faults


def test_the_command(tmp_path, wide_scene):
    header, _ = wide_scene
    words = ["nmf", str(header), "-n", "3", "-o", str(tmp_path / "o"), "--device", "cpu", "--json", "--steps", "40"]
    words += ["--sum-to-one"]
    found = json.loads(CliRunner().invoke(cli, words, standalone_mode=False).stdout)
    assert found["steps"] <= 40 and found["sum_to_one"] and found["method"] == "nmf"
    A = np.fromfile(tmp_path / "o/wide_abundance.img", "<f4").reshape(61, 3, 40)
    np.testing.assert_allclose(A.sum(axis=1)[A[:, 0] != -9999], 1, atol=1e-5)
    again = CliRunner().invoke(cli, words)
    assert isinstance(again.exception, unmix.OutputError) and "exists already" in str(again.exception)
    missing = CliRunner().invoke(cli, [*words[:2], "-e", str(tmp_path / "no.csv"), "-o", str(tmp_path / "p")])
    assert isinstance(missing.exception, unmix.InputError) and not (tmp_path / "p").exists()


def test_an_abundance_that_had_all_but_vanished_grows_again():
    """The multiplier is within 1e-20 of −3 then: counted from 0 it rounds to −3 itself, and the sum to infinity."""
    a = np.array([1.0, 1e-20])
    column_on_simplex(a, np.array([5.0, 1.0]), np.array([10.0, 3.0]), True)
    np.testing.assert_allclose(a, [5 / 7, 2 / 7])


@pytest.mark.sim
@pytest.mark.parametrize("loss", ["kl", "frobenius"])
@pytest.mark.parametrize("scale", rest_slow([1e-12, 1e-7, 1e-3, 60000.0], 1e-12, 60000.0))
def test_units_do_not_matter(device, loss, scale):
    """What updates divide by has a floor of 1e-7; pixels are brought well above it, by a power of two."""
    X, E, A = problem(30, 8, 2)
    settings = {"loss": loss, "steps": 3 if simulated() else 40, "tol": 0, "device": device}
    settings |= {"sum_to_one": loss == "frobenius"}
    usual = unmix.nmf(X, E, A, **settings)
    found = unmix.nmf(X * scale, E * scale, A, **settings)
    np.testing.assert_allclose(found.A, usual.A, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(found.E / scale, usual.E, rtol=1e-3, atol=1e-5)
    assert found.costs[-1][1] == pytest.approx(usual.costs[-1][1] * scale ** (1 if loss == "kl" else 2), rel=1e-3)


def test_fill_that_nobody_declared_is_an_error(tmp_path, wide_scene):
    X, E, _ = problem(20, 6, 2)
    X[3, 2] = 9.97e36
    refused(unmix.InputError, "too large", unmix.nmf, X, E)
    Y = np.full((5, 6, 8), 0.3, np.float32) + np.random.default_rng(0).random((5, 6, 8)).astype("f4")
    Y[2, 2] = 9.97e36
    with pytest.raises(unmix.CubeError, match="`nodata`"):
        unmix.nmf_scene(write_cube(tmp_path / "f.hdr", Y), count=2, out_dir=tmp_path / "o", device="cpu")
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("where", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_budgets_of_a_scene(tmp_path, wide_scene, where):
    """What does not fit is said with the option that helps, and the size that does suffices; a GPU's is for GPUs."""
    header, _ = wide_scene
    settings = {"count": 3, "steps": 2, "device": where, "overwrite": True, "out_dir": tmp_path / "o"}
    memory = 1024
    for _ in range(6):  # extraction wants less than the steps do
        try:
            assert not unmix.nmf_scene(header, memory=memory, **settings)["held"]
            break
        except unmix.MethodError as error:
            assert f"`memory` {memory} bytes is too small: one line of this scene needs" in str(error)
            memory = int(str(error).split()[-1])
    else:
        raise AssertionError("no size that it named was enough")
    if where == "cuda":
        assert not unmix.nmf_scene(header, gpu_memory="200K", **settings)["held"]
    else:
        assert unmix.nmf_scene(header, gpu_memory="1K", **settings)["held"]


@pytest.mark.sim
def test_an_infinite_divergence_is_said_to_be_infinite(device, caplog):
    """A value above 0 where all endmembers are 0, which they stay; half the squared distance is finite there."""
    X, E, A = problem(9, 5, 2)
    E[3] = 0
    found = unmix.nmf(X, E, A, steps=4, every=2, tol=0, device=device)
    assert [cost for _, cost in found.costs] == [np.inf] * 3 and not found.E[3].any()
    assert "9 values above 0 have a model of 0" in caplog.text
    caplog.clear()
    X[:, 3] = 0
    found = unmix.nmf(X, E, A, steps=4, every=2, tol=0, device=device)
    assert np.isfinite([cost for _, cost in found.costs]).all() and not caplog.records
    found = unmix.nmf(X + 1, E, A, loss="frobenius", steps=4, every=2, tol=0, device=device)
    assert np.isfinite([cost for _, cost in found.costs]).all()


def test_an_infinite_divergence_of_a_scene_is_null(tmp_path, monkeypatch):
    """It still stops where what is left of it does not fall any more."""
    monkeypatch.setattr(
        importlib.import_module("unmix.features.nmf.scene"), "FLOOR", 0.0
    )  # or zeros of a start are lifted
    X, E, _ = problem(60, 8, 2)
    cube = write_cube(tmp_path / "c.hdr", X.reshape(6, 10, 8))
    E[2] = 0
    write_csv(tmp_path / "e.csv", E)
    words = ["nmf", str(cube), "-e", str(tmp_path / "e.csv"), "--device", "cpu", "--json", "--overwrite"]
    words += ["--steps", "400"]
    found = CliRunner().invoke(cli, words, catch_exceptions=False, standalone_mode=False)
    assert "the loss is infinite: 60 values" in found.output and "loss infinity to infinity" in found.output
    report = json.loads((tmp_path / "c_run.json").read_text())
    assert all(cost is None for _, cost in report["costs"]) and report["converged"]


@pytest.mark.parametrize("E", [3, np.ones(4), np.ones((2, 6, 4)), np.ones((5, 2)), np.ones((4, 0))], ids=np.shape)
def test_endmembers_of_another_shape(E):
    refused(unmix.InputError, r"they must be \(N, L\) and \(L, p\)", unmix.nmf, np.ones((6, 4)), E)
    refused(unmix.InputError, r"it must be \(N, p\)", unmix.nmf, np.ones((6, 4)), np.ones((4, 2)), np.ones((6, 3)))
