"""SISAL: the smallest simplex around a scene, against linear programmes, the paper's own algorithm, and scenes with known corners."""

import json
import sys
import tracemalloc

import naive
import numpy as np
import pytest
from conftest import at_night, falsify_record, rest_slow, write_cube
from scipy.io import loadmat
from scipy.optimize import linprog
from test_cli import unmix as command
from test_cone import matched

import unmix
from unmix.commands.verify import verify
from unmix.devices import simulated
from unmix.endmembers.scan.points import Points

pytestmark = pytest.mark.skipif(simulated(), reason="nothing of it runs on a GPU")


def mixtures(seed, p, noise, lines=30, samples=40, L=20, largest=0.8):
    """Pixels none of which is pure: abundances up to `largest`. Returns the scene and the spectra (L, p)."""
    random = np.random.default_rng(seed)
    E = random.uniform(0.1, 0.9, (L, p))
    A = random.dirichlet(np.full(p, 0.8), 20 * lines * samples)
    A = A[A.max(axis=1) < largest][: lines * samples].reshape(lines, samples, p)
    return A @ E.T + noise * random.standard_normal((lines, samples, L)), E


def coordinates(Y, p):
    """h = (1, z) of all pixels (p, N), z the components over their deviations; and the way back to spectra."""
    flat = Y.reshape(-1, Y.shape[2])
    mean = flat.mean(axis=0)
    values, vectors = np.linalg.eigh((flat - mean).T @ (flat - mean) / len(flat))
    U, deviations = vectors[:, ::-1][:, : p - 1], np.sqrt(values[::-1][: p - 1])
    into = lambda some: np.vstack([np.ones(len(some)), U.T @ (some - mean).T / deviations[:, None]])  # noqa: E731
    return into(flat), into


@pytest.mark.parametrize(("p", "noise", "outside"), [(2, 0.01, 0.3), (3, 0.005, 0.1), (4, 0.01, 0.3), (5, 0.0, 0.05)])
def test_no_direction_makes_it_smaller(tmp_path, p, noise, outside):
    """To first order, and without smoothing: the best of all small changes, as a linear programme, changes nothing."""
    Y, _ = mixtures(p, p, noise, lines=12, samples=15)
    E = unmix.extract(write_cube(tmp_path / "s.hdr", Y), count=p, extract="sisal", outside=outside).matrix
    H, into = coordinates(Y, p)
    N, Q = H.shape[1], np.linalg.inv(into(E.T))
    tau = p * (p - 1) / (outside * N)
    # Variables: D (p, p) row by row, then s >= 0, s >= -(Q + D)h for each coordinate; the columns of D sum to 0.
    objective = np.concatenate([-np.linalg.inv(Q).T.ravel(), np.full(p * N, tau)])
    rows = np.hstack([-np.kron(np.eye(p), H.T), -np.eye(p * N)])
    sums = np.hstack([np.kron(np.ones((1, p)), np.eye(p)), np.zeros((p, p * N))])
    radius = 1.0
    best = linprog(
        objective,
        rows,
        (Q @ H).ravel(),
        sums,
        np.zeros(p),
        [(-radius, radius)] * (p * p) + [(0, None)] * (p * N),
        method="highs",
    )
    change = best.fun - tau * np.maximum(-Q @ H, 0).sum()
    assert -1e-6 * radius < change <= 1e-9


@pytest.mark.parametrize("seed", rest_slow(range(3), 0))
def test_as_small_as_by_the_algorithm_of_the_paper(tmp_path, seed):
    Y, _ = mixtures(seed, 3, 0.005)
    cube = write_cube(tmp_path / "s.hdr", Y)
    found = unmix.extract(cube, count=3, extract="sisal")
    H, into = coordinates(Y, 3)
    tau = 6 / (0.3 * H.shape[1])
    start = np.linalg.inv(into(unmix.extract(cube, count=3, extract="nfindr").matrix.T))
    theirs = naive.sisal_value(naive.sisal(H, start, tau), H, tau)
    ours = naive.sisal_value(np.linalg.inv(into(found.matrix.T)), H, tau)
    assert ours == pytest.approx(found.simplex["value"], abs=1e-9) and found.simplex["tau"] == pytest.approx(tau)
    assert ours <= theirs + 1e-9 and theirs - ours < 0.02
    assert found.simplex["below"] == pytest.approx(0.3, rel=0.2) and found.simplex["decrement"] < 1e-10


def test_corners_that_no_pixel_has(tmp_path):
    Y, truth = mixtures(1, 4, 0.0)
    cube = write_cube(tmp_path / "s.hdr", Y)
    E, angles = matched(unmix.extract(cube, count=4, extract="sisal", outside=0.01).matrix, truth)
    assert np.abs(E - truth).max() < 0.02
    assert angles.mean() < 0.2 * matched(unmix.extract(cube, count=4, extract="nfindr").matrix, truth)[1].mean()


def test_memory_and_threads_do_not_change_a_byte(tmp_path, monkeypatch):
    module = sys.modules["unmix.endmembers.sisal"]  # the package has the function by this name

    monkeypatch.setattr(module, "TOGETHER", 256)
    monkeypatch.setattr(module, "MOST_FIRST_PIXELS", 300)
    monkeypatch.setattr(module, "FEWEST_PIXELS_PER_ENDMEMBER", 10)
    monkeypatch.setattr(module.Points, "ROWS", 512)
    Y, _ = mixtures(2, 3, 0.01)
    Y[3, 5] = Y[20] = -1
    cube = write_cube(tmp_path / "s.hdr", Y, data_ignore_value=-1)
    one = unmix.extract(cube, count=3, extract="sisal")
    other = unmix.extract(cube, count=3, extract="sisal", memory="20k", threads=1)
    np.testing.assert_array_equal(one.matrix, other.matrix)
    assert one.simplex == other.simplex and one.quality == other.quality
    monkeypatch.setattr(module, "MOST_FIRST_PIXELS", 10**6)  # all at once: the same minimum
    np.testing.assert_allclose(unmix.extract(cube, count=3, extract="sisal").matrix, one.matrix, atol=1e-6)


def test_a_run_and_its_proof(tmp_path):
    Y, _ = mixtures(4, 3, 0.01)
    cube = write_cube(tmp_path / "s.hdr", Y)
    command("run", cube, "-n", "3", "--extract", "sisal", "--outside", "0.2", "-o", tmp_path)
    record = json.loads((tmp_path / "s_run.json").read_text())
    assert record["endmembers"]["pixels"] is None and record["endmembers"]["simplex"]["below"] == pytest.approx(
        0.2, rel=0.2
    )
    assert record["options"]["outside"] == 0.2 and verify(tmp_path / "s", everything=True).faults == []
    for change in ({"value": 1.0}, {"tau": record["endmembers"]["simplex"]["tau"] * 2}):
        falsify_record(tmp_path / "s", lambda record, change=change: record["endmembers"]["simplex"].update(change))
        assert "is not what is found again" in " ".join(verify(tmp_path / "s", everything=True).faults)
        falsify_record(tmp_path / "s", lambda one: one["endmembers"].update(simplex=record["endmembers"]["simplex"]))


@pytest.mark.slow
@pytest.mark.parametrize("count", at_night([12, 18], 12))
def test_many_corners_and_few_pixels_outside(tmp_path, count):
    """Where τ is large, so are slopes: a minimum is known by what a step would gain."""
    Y, _ = mixtures(7, 16, 0.002, lines=40, samples=50, L=30, largest=1.0)
    cube = write_cube(tmp_path / "s.hdr", Y.astype(np.float32))
    unmix.run(cube, count=count, extract="sisal", outside=0.01, out_dir=tmp_path)
    assert verify(tmp_path / "s", everything=True).faults == []


def test_a_band_without_signal_is_not_negative(tmp_path, caplog):
    Y, _ = mixtures(1, 3, 0.0)
    Y[..., 4] = 0
    unmix.extract(write_cube(tmp_path / "s.hdr", Y), count=2, extract="sisal")
    assert "negative" not in caplog.text


def test_negative_spectra_are_named(tmp_path, caplog):
    """Where the darkest material is in every pixel, its corner may lie beyond zero."""
    Y, _ = mixtures(6, 3, 0.0, largest=0.6)
    Y -= Y.min(axis=(0, 1)) * 0.98
    unmix.extract(write_cube(tmp_path / "s.hdr", Y), count=3, extract="sisal", outside=0.01)
    assert "is negative in" in caplog.text


def test_fewer_spectra_than_corners(tmp_path):
    with pytest.raises(unmix.CubeError, match="only 2 distinct spectra"):
        Y = np.broadcast_to(np.array([[1.0, 2, 3, 4], [4.0, 3, 2, 1]])[np.arange(30) % 2], (3, 30, 4)).copy()
        unmix.extract(write_cube(tmp_path / "s.hdr", Y), count=3, extract="sisal")


@pytest.mark.real
@pytest.mark.parametrize(("snr", "most", "nearest"), [(30, 0.015, 0.05), (40, 0.005, 0.05), (60, 0.001, 0.05)])
def test_a_scene_without_pure_pixels(data, tmp_path, snr, most, nearest):
    """sim1 with noise: the RMSE of abundances, and that of N-FINDR's for comparison."""
    scene, truth, abundances = (
        loadmat(data / "sim1_synth" / f"{name}.mat")[name] for name in ("Y_clean", "E", "A_true")
    )
    random = np.random.default_rng(0)
    Y = scene + np.sqrt(np.square(scene).mean() / 10 ** (snr / 10)) * random.standard_normal(scene.shape)
    cube = write_cube(tmp_path / "s.hdr", Y)
    errors = []
    for name in ("sisal", "nfindr"):
        E = matched(unmix.extract(cube, count=6, extract=name).matrix, truth)[0]
        errors.append(np.sqrt(np.square(unmix.solve(Y, E, method="fcls").abundances - abundances).mean()))
    assert errors[0] <= most and errors[1] > nearest


def test_every_nth_pixel_of_a_scratch_file_takes_the_memory_of_one_piece():
    points = Points(2**20, 4, budget=0)
    try:
        for first in range(0, points.pixels, 2**16):
            points.put(first, np.full((2**16, 4), float(first)))
        tracemalloc.start()
        few = points.thinned(512)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    finally:
        points.close()
    assert few.shape == (2048, 4) and peak < 3 * Points.ROWS * 4 * 8
