"""Collaborative sparse regression (`l21`): against proximal gradients, duality gaps in extended precision, and files."""

import json

import numpy as np
import pytest
from conftest import falsify, falsify_record, read_map, write_csv, write_cube
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

import unmix
from unmix.arrays.collaborative import abundances_of, choose_l21, largest_l21, search
from unmix.arrays.correlations import BLOCK_PIXELS, Correlations, blocks_of
from unmix.arrays.pixels import solve_pixels
from unmix.commands.verify import verify
from unmix.errors import InputError, MethodError
from unmix.methods import choose
from unmix.problem import plan_problem
from unmix.problem.steps import Costs
from unmix.reference.penalties import Rows
from unmix.solvers.pixels.rows import (
    DUAL_ERRORS,
    EXPLAINED,
    EXPLAINED_ERROR,
    EXPLAINED_TERMS,
    FREEDOM,
    LEFT,
    add_pixels,
    from_vectors,
    new_scratch,
    new_totals,
    regression_of,
)


def scene(random, L=30, p=20, N=60, used=3, noise=0.01):
    """Return a library of smooth spectra (L, p), and noisy mixtures (N, L) of some of them."""
    E = np.cumsum(random.standard_normal((L, p)), axis=0) * 0.1 + random.uniform(0.5, 2, p)
    E = np.abs(E) + 0.05
    A = np.zeros((N, p))
    A[:, random.choice(p, used, replace=False)] = random.dirichlet(np.ones(used), N)
    return E, A @ E.T + noise * random.standard_normal((N, L)), A


def pixels_of(Y, E, threads=None):
    return Correlations(blocks_of(Y), E, threads=threads)


def gap_of(E, Y, X, l21):
    """Return the duality gap over the cost, in extended precision."""
    E, Y, X = (values.astype(np.longdouble) for values in (E, Y, X))
    return Rows(E).add(Y, X).gap(l21)


def proximal(E, Y, l21, steps=20000):
    """Return abundances by accelerated proximal gradients, with restarts: the plainest method there is."""
    step = 1.0 / np.linalg.norm(E, 2) ** 2
    X = Z = np.zeros((len(Y), E.shape[1]))
    t = 1.0
    for _ in range(steps):
        new = np.maximum(Z - step * (Z @ E.T - Y) @ E, 0.0)
        lengths = np.sqrt(np.square(new).sum(axis=0))
        new *= np.maximum(1.0 - step * l21 / np.where(lengths > 0, lengths, np.inf), 0.0)
        if np.vdot(Z - new, new - X) > 0:
            t = 1.0
        s = 0.5 + np.sqrt(0.25 + t * t)
        X, Z, t = new, new + (t - 1) / s * (new - X), s
    return X


@pytest.mark.parametrize("share", [0.3, 0.03, 0.003])
def test_the_optimum_of_all_pixels(share):
    """Against proximal gradients: the same cost and rows; the gap by a plain formula."""
    random = np.random.default_rng(0)
    E, Y, _ = scene(random)
    l21 = share * largest_l21(pixels_of(Y, E, 1))
    found = unmix.collaborative(Y, E, l21)
    other = proximal(E, Y, l21)
    assert found.gap <= 1e-6 and gap_of(E, Y, found.abundances, l21) <= 1e-6
    assert Rows(E).add(Y, found.abundances).cost(l21) <= Rows(E).add(Y, other).cost(l21) * (1 + 1e-6)
    np.testing.assert_allclose(found.objective, Rows(E).add(Y, found.abundances).cost(l21), rtol=1e-9)
    np.testing.assert_allclose(found.abundances, other, atol=2e-3)
    np.testing.assert_allclose(found.scales, np.sqrt(np.square(found.abundances).sum(axis=0)), rtol=1e-2, atol=1e-3)
    kept = found.scales > 0
    assert 0 < kept.sum() < 20 and kept.sum() + found.absent <= 20
    assert not other[:, np.argsort(np.square(other).sum(axis=0))[: found.absent]].any()


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(2, 12), st.integers(1, 30), st.integers(1, 40), st.floats(1e-4, 1.5), st.floats(-6, 6)
)  # fmt: skip
def test_any_library(seed, L, p, N, share, size):
    """More spectra than bands, equal spectra, pixels that are zero or NaN, any unit: a gap, and no pixel below 0."""
    random = np.random.default_rng(seed)
    E, Y, _ = scene(random, L, p, N, used=min(p, 2))
    E, Y = E * 10**size, Y * 10**size
    if p > 2:
        E[:, 2] = E[:, 0]
    Y[random.random(N) < 0.1] = 0.0
    Y[random.random(N) < 0.1, 0] = np.nan
    good = np.isfinite(Y).all(axis=1)
    l21 = share * max(largest_l21(pixels_of(Y[good], E, 1)), 1e-9)
    found = unmix.collaborative(Y, E, l21)
    X = found.abundances
    assert (X[~good] == -9999).all() and (X[good] >= 0).all()
    if good.any() and Y[good].any():
        assert found.gap <= 1e-6 and abs(gap_of(E, Y[good], X[good], l21)) <= 1.1e-6
    assert share < 1 or not found.scales.any()


def test_a_row_in_use_is_not_called_absent():
    """The gap rounds to 0, and the length of the dual to just below λ."""
    found = unmix.collaborative(np.array([[8.0], [7], [0]]), np.array([[4.0]]), 33.21459732531239)
    assert found.absent == 0 and found.scales[0] > 0


def test_few_pixels_and_more_spectra_than_bands():
    """One to seven pixels, λ down to a millionth: 49 of 250 ended at gaps of up to 0.98, and three were no numbers."""
    random = np.random.default_rng(0)
    for turn in range(60):
        N, L = int(random.integers(1, 8)), int(random.integers(1, 7))
        p = int(random.integers(L + 1, L + 14))
        E = random.random((L, p)) if turn % 2 else random.integers(1, 3, (L, p)).astype(float)
        Y = random.random((N, L)) if turn % 3 else random.integers(0, 4, (N, L)) + np.eye(N, L)
        l21 = largest_l21(pixels_of(Y, E, 1)) * 10.0 ** random.uniform(-6, -0.05)
        found = unmix.collaborative(Y, E, l21, threads=1)
        assert found.gap <= 1e-6 and gap_of(E, Y, found.abundances, l21) <= 1.1e-6


def test_rows_that_are_not_at_their_optimum_say_so(monkeypatch, caplog):
    E, Y, _ = scene(np.random.default_rng(0))
    monkeypatch.setattr("unmix.arrays.collaborative.MOST_PASSES", 2)
    found = unmix.collaborative(Y, E, 0.01 * largest_l21(pixels_of(Y, E, 1)))
    assert found.gap > 1e-6 and "is not at its optimum: after 2 passes" in caplog.text


@pytest.mark.parametrize("scale", [2.0**-900, 2.0**-500, 2.0**500, 2.0**900])
def test_rows_of_any_size(scale):
    E, Y, _ = scene(np.random.default_rng(0))
    l21 = 0.05 * largest_l21(pixels_of(Y, E, 1))
    plain, found = unmix.collaborative(Y, E, l21), unmix.collaborative(Y * scale, E, l21 * scale)
    np.testing.assert_array_equal(found.scales, plain.scales * scale)
    np.testing.assert_array_equal(found.abundances, plain.abundances * scale)
    assert found.absent == plain.absent and found.gap == plain.gap
    with pytest.raises(InputError, match="whose squares `l21` cannot add up"):
        largest_l21(pixels_of(Y * scale, E, 1))


def test_a_choice_that_keeps_nothing_is_of_the_scene(tmp_path):
    """Exit code 3, not 2: nobody typed a wrong λ."""
    random = np.random.default_rng(0)
    cube = write_cube(tmp_path / "x.hdr", -0.1 - 0.01 * random.random((6, 7, 20)))
    library = write_csv(tmp_path / "e.csv", random.random((20, 4)) + 0.1)
    with pytest.raises(InputError, match=r"`l21` auto keeps no endmember .* give a number below"):
        unmix.run(cube, endmembers=library, method="nnls", l21="auto", device="cpu")
    with pytest.raises(MethodError, match="no endmember"):
        unmix.run(cube, endmembers=library, method="nnls", l21=0.5, device="cpu")


def test_few_are_enough_for_all():
    """The rows of a noisy scene's optimum are nearer to the truth than those of each pixel alone."""
    random = np.random.default_rng(4)
    E, Y, A = scene(random, 40, 60, 400, noise=0.02)
    l21 = choose_l21(pixels_of(Y, E), 0.02**2)
    together = unmix.collaborative(Y, E, l21).abundances
    alone = [unmix.solve(Y, E, method="nnls", l1=l1).abundances for l1 in (0.0, 1e-3, 1e-2, 1e-1)]
    assert np.square(together - A).sum() < 0.7 * min(np.square(each - A).sum() for each in alone)
    assert choose_l21(pixels_of(Y, E, 1), 0.02**2) == l21


@pytest.fixture
def noisy(tmp_path):
    """A scene and a library on disk, with a masked pixel."""
    random = np.random.default_rng(7)
    E, Y, A = scene(random, 40, 25, 30 * 20, noise=0.01)
    cube = Y.reshape(30, 20, 40).astype("f4")
    cube[3, 4, 5] = np.nan
    return write_cube(tmp_path / "c.hdr", cube, "bil"), write_csv(tmp_path / "lib.csv", E), E, cube.astype(float), A


WORDS = {"method": "nnls", "browse": False, "device": "cpu"}


def test_a_run_keeps_few_endmembers(tmp_path, noisy):
    """Only the kept are written, each pixel is certified, RMSE is of the bands alone; verify finds the optimum of all, and faults."""
    cube, library, E, Y, _ = noisy
    report = unmix.run(
        cube, endmembers=library, l21=0.5, residual=True, certificate=True, out_dir=tmp_path / "out", **WORDS
    )
    about, record = report["l21"], json.loads((tmp_path / "out/c_run.json").read_text())
    assert about == record["l21"] and about["of"] == 25 and 0 < about["kept"] < 12 and about["gap"] <= 1e-6
    assert report["certified"] is True
    maps = unmix.open_cube(tmp_path / "out/c_abundance.hdr"), unmix.open_cube(tmp_path / "out/c_residual.hdr")
    assert (maps[0].bands, maps[1].bands) == (about["kept"], 40)
    kept = unmix.load_library(tmp_path / "out/c_endmembers.csv").matrix
    A = read_map(tmp_path / "out/c", "abundance").astype(float)
    rmse = np.fromfile(tmp_path / "out/c_rmse.img", "f4").reshape(30, 20)
    good = rmse != -9999
    assert (~good).sum() == 1
    R = Y[good] - A[good] @ kept.T
    np.testing.assert_allclose(rmse[good], np.sqrt(np.square(R).mean(axis=1)), rtol=1e-5)
    residual = read_map(tmp_path / "out/c", "residual")
    np.testing.assert_allclose(residual[good], R, atol=1e-6)
    found = unmix.collaborative(Y, E, 0.5)
    np.testing.assert_allclose(A[good], found.abundances[good][:, found.scales > 0], atol=1e-4)
    assert gap_of(E, Y[good], found.abundances[good], 0.5) <= 1e-6
    assert not verify(tmp_path / "out/c", everything=True).faults
    falsify_record(tmp_path / "out/c", lambda changed: changed["l21"].update({"lambda": 0.52}))
    assert any("the rows are no optimum" in fault for fault in verify(tmp_path / "out/c", everything=True).faults)
    falsify(tmp_path / "out/c", "rmse", 30, lambda values: np.multiply(values, 1.001, out=values))
    assert any("does not match" in fault for fault in verify(tmp_path / "out/c").faults)


@pytest.mark.sim
def test_costs_of_squares_on_any_device(device):
    """The costs of squares are bands that no file holds, against the same least squares written out."""
    random = np.random.default_rng(2)
    E, Y, _ = scene(random, L=7, p=3, N=5)
    costs = np.array([0.1, 1.0, 10.0])
    library = unmix.Endmembers(("a", "b", "c"), E, None, source="E")
    problem = plan_problem(library, *choose("nnls"), steps=[Costs(costs)])
    found = solve_pixels(Y, problem, 3, device, 1)
    truth = [nnls(np.vstack([E, np.diag(np.sqrt(costs))]), np.append(y, np.zeros(3)))[0] for y in Y]
    np.testing.assert_allclose(found.abundances, truth, atol=1e-12)
    assert (found.kappa <= 1e-10).all() and (found.delta < 1e-6).all()


@pytest.mark.sim
@pytest.mark.parametrize("every", [1, 4])
def test_sums_of_a_pass_on_any_device(device, every):
    """Against NumPy, a matrix for each pixel: with what the search found, which is none of the sums' business."""
    random = np.random.default_rng(5)
    E, Y, _ = scene(random, L=9, p=7, N=13)
    used, l21 = np.array([0, 2, 3, 6]), 0.3
    scales, X = np.zeros(7), np.zeros((13, 7))
    scales[used] = random.uniform(0.1, 2, 4)
    X[:, used] = random.random((13, 4)) * (random.random((13, 4)) < 0.6)
    G, W = E.T @ E, (Y - X @ E.T) @ E
    pixels = pixels_of(Y, E, 1)
    shared = regression_of(pixels.G, 9, scales, l21)
    block, own = pixels.block_of(Y), np.ascontiguousarray(X[:, used])
    if device == "cpu":
        found = new_totals(7, 4)
        add_pixels(block.F, block.squares, own, every, shared, new_scratch(7, 4), found)
        sums = found.totals, found.rows, from_vectors(found.duals, 1, 7)[0], from_vectors(found.curvature, 4, 4)
    else:
        from unmix.compiled.cuda import to_gpu
        from unmix.solvers.pixels.cuda_many.rows import RowsOnGpu

        work = RowsOnGpu(shared, 7, 13)
        work.take(own)
        sums = work.sums(to_gpu(block.F), to_gpu(block.squares), every)
    freedom, curvature = 0.0, np.zeros((7, 7))
    for x, w in zip(X[::every], W[::every]):
        S = np.flatnonzero(x)
        D, GS = np.diag(scales[S]), G[np.ix_(S, S)]
        M = GS @ np.linalg.inv(l21 * np.eye(len(S)) + D @ GS)
        freedom += every * np.trace(D @ M)
        curvature[np.ix_(S, S)] += every * np.multiply.outer(w[S], w[S]) * M
    left, explained = np.square(Y - X @ E.T).sum(), (X * W).sum()
    np.testing.assert_allclose(sums[0][[LEFT, EXPLAINED, FREEDOM]], [left, explained, freedom], rtol=1e-9)
    np.testing.assert_allclose(sums[0][EXPLAINED_TERMS], np.abs(X * W).sum(), rtol=1e-9)
    reach = (X @ np.linalg.norm(E, axis=0)).sum()
    most = 60 * 2.0**-53 * (np.linalg.norm(Y) + reach)
    assert 0 < sums[0][DUAL_ERRORS] < most**2 and 0 < sums[0][EXPLAINED_ERROR] < most * reach
    np.testing.assert_allclose(sums[1], np.square(own).sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(sums[2], np.square(np.maximum(W, 0)).sum(axis=0), rtol=1e-9)
    np.testing.assert_allclose(sums[3], curvature[np.ix_(used, used)], rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("batches", [0, 1, 1.5, 2, 3])
def test_memory_changes_nothing(batches):
    """Batches of which none, some or all are kept: the last is so short that it would fit where the one before does not."""
    E, Y, _ = scene(np.random.default_rng(3), L=12, p=20, N=2 * 4 * BLOCK_PIXELS + 100)
    plain = pixels_of(Y, E)
    l21 = 0.1 * largest_l21(plain)
    truth = search(plain, l21)
    pixels = Correlations(blocks_of(Y), E, budget=int(batches * 4 * 8 * BLOCK_PIXELS * 32))
    found = search(pixels, l21)
    assert (pixels.batch, pixels.has_all, pixels.count) == (4, batches == 3, len(Y)) and len(pixels.kept) == min(
        int(batches), 3
    )
    assert found.scales.tobytes() == truth.scales.tobytes() and found.objective == truth.objective
    assert abundances_of(pixels, found.scales, l21).tobytes() == abundances_of(plain, truth.scales, l21).tobytes()


def test_the_search_on_any_device(device):
    """As the CPU finds it; on a GPU batches hold several blocks, and are made anew where they are not kept."""
    E, Y, _ = scene(np.random.default_rng(1), L=40, p=70, N=9000, used=40)
    for share in (0.5, 0.03, 1e-3):
        plain = pixels_of(Y, E)
        l21 = share * largest_l21(plain)
        truth = search(plain, l21)
        for kept in (True, False):
            pixels = Correlations(blocks_of(Y), E, device=device, budget=None if kept else 0)
            pixels.room = pixels.room if kept else 0
            found = search(pixels, l21)
            assert found.gap <= 1e-6 and found.objective <= truth.objective * (1 + 1e-6) and pixels.has_all == kept
            np.testing.assert_allclose(found.scales, truth.scales, rtol=1e-2, atol=1e-3 * truth.scales.max())
            X = abundances_of(pixels, found.scales, l21)
            assert gap_of(E, Y, X, l21) <= 1.1e-6


@pytest.mark.parametrize("l21", ["auto", 1e-3, 1e-5])
def test_small_penalties_are_verified(tmp_path, noisy, l21):
    """The rounding of maps moves the duals by more than a small λ; a wrong map is found all the same."""
    cube, library, *_ = noisy
    unmix.run(cube, endmembers=library, l21=l21, out_dir=tmp_path / "out", **WORDS)
    assert not verify(tmp_path / "out/c", everything=True).faults
    falsify(tmp_path / "out/c", "abundance", 30, lambda values: np.multiply(values, 1.01, out=values, where=values > 0))
    assert any("rows" in fault for fault in verify(tmp_path / "out/c", everything=True).faults)


def test_a_colour_that_is_not_kept(tmp_path, noisy):
    """A name of the library that the penalty drops is a warning; one that is not in it, an error before the work."""
    cube, library, *_ = noisy
    words = {"endmembers": library, "l21": 1.0, "out_dir": tmp_path / "out"} | WORDS | {"browse": True}
    report = unmix.run(cube, **words)
    kept = unmix.load_library(tmp_path / "out/c_endmembers.csv").names
    dropped = next(name for name in unmix.load_library(library).names if name not in kept)
    again = unmix.run(cube, rgb=f"{kept[0]},{dropped}", overwrite=True, **words)
    assert any(f"keeps no {dropped}" in text for text in again["warnings"]) and report["l21"] == again["l21"]
    with pytest.raises(MethodError, match="no 'gold'"):
        unmix.run(cube, rgb="gold", overwrite=True, **words)


def test_on_any_device(tmp_path, noisy, device):
    """The same rows, and the same abundances to the duality gap."""
    cube, library, *_ = noisy
    words = {"endmembers": library, "l21": 0.5, "lines": "0:6"} | WORDS
    maps = []
    for one in ("cpu", device):
        report = unmix.run(cube, out_dir=tmp_path / one, overwrite=True, **words | {"device": one})
        assert report["certified"] is True
        maps.append([np.fromfile(tmp_path / one / f"c_{name}.img", "f4") for name in ("abundance", "rmse")])
    for mine, other in zip(*maps):
        np.testing.assert_allclose(mine, other, atol=1e-6)


def test_a_resumed_run_keeps_its_rows(tmp_path, noisy, monkeypatch):
    """A run that is cut off goes on with the scales it found, without another pass for them."""
    cube, library, *_ = noisy
    from unmix.runs.penalties.rows import Rows

    whole = unmix.run(cube, endmembers=library, l21=0.5, out_dir=tmp_path / "whole", **WORDS)
    words = {"endmembers": library, "l21": 0.5, "memory": "60k", "out_dir": tmp_path / "cut", **WORDS}
    done = []

    def stop(step):
        done.append(step)
        if len(done) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        unmix.run(cube, progress=stop, **words)
    monkeypatch.setattr(Rows, "of_scene", None)  # must not be called
    resumed = unmix.run(cube, **words)
    assert resumed["resumed_from"] > 0 and resumed["l21"] == whole["l21"]
    assert (tmp_path / "cut/c_abundance.img").read_bytes() == (tmp_path / "whole/c_abundance.img").read_bytes()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"method": "fcls"}, "`l21` is for `method` nnls"),
        ({"solver": "qr"}, "`l21` is for `method` nnls and `solver` active-set, not nnls qr"),
        ({"l21": 0.0}, "`l21` 0: must be above 0"),
        ({"l21": float("nan")}, "`l21` nan: must be above 0"),
        ({"l21": "best"}, "`l21` 'best': must be a number, or auto"),
        ({"l1": 0.1}, "`l21` does not go with `l1`"),
        ({"uncertainty": True}, "`l21` does not go with `uncertainty`"),
        ({"l21": 1e9}, "no endmember of .* is left; from .* on all abundances are 0"),
        ({"endmembers": None}, "`l21` chooses from a library"),
        ({"l21": 1e-12}, "`l21` 1e-12: is below 1e-09 of"),
    ],
)
def test_what_rows_do_not_go_with(tmp_path, noisy, words, text):
    cube, library, *_ = noisy
    with pytest.raises((MethodError, InputError), match=text):
        unmix.run(cube, **{"endmembers": library, "l21": 0.5, "out_dir": tmp_path / "out", **WORDS, **words})
    assert not list((tmp_path / "out").glob("*")) if (tmp_path / "out").exists() else True
