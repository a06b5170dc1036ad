"""Spatial priors: abundances of an image that are alike between neighbours, their cost, and the bound that proves it least."""

import json
import tracemalloc

import numpy as np
import pytest
import scipy.optimize
from conftest import cut_off, falsify_record, mix, refused, rest_slow, verify_tells, write_csv, write_cube
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.neighbours import cost_of_field, least_cost, price, refund

import unmix
from unmix.arrays.spatial import Prior, SpatialImage, SpatialSearch, bytes_of_search
from unmix.commands.verify import verify
from unmix.errors import CubeError, MethodError, OutputError
from unmix.runs.files.finished import runs_below, state_of_run
from unmix.runs.files.output_set import Outputs
from unmix.runs.penalties.neighbours import windows_of_scene
from unmix.scene import ReadOptions, open_scene


def image(lines=9, samples=11, bands=8, p=3, seed=0, noise=0.05):
    """Patches of mixtures with noise: pixels and endmembers."""
    random = np.random.default_rng(seed)
    E = random.uniform(0.1, 1, (bands, p))
    A = random.dirichlet(np.ones(p), 4)[
        np.add.outer(np.arange(lines) * 2 // lines, np.arange(samples) * 2 // samples * 2)
    ]
    return A @ E.T + noise * random.standard_normal((lines, samples, bands)), E


def edges_of(A):
    """Both neighbours of every pair of an image (lines, samples, p): (pairs, p) each."""
    p = A.shape[2]
    pairs = (A[:, :-1], A[:, 1:]), (A[:-1], A[1:])
    return tuple(np.concatenate([pair[k].reshape(-1, p) for pair in pairs]) for k in range(2))


def total(Y, E, A, weight, smooth, l1=0.0):
    """The cost of an image's abundances, all pixels being there."""
    near, far = edges_of(A)
    return cost_of_field(Y.reshape(-1, len(E)), E, A.reshape(-1, A.shape[2]), l1) + price(
        near, far, np.full(len(near), weight), smooth
    )


def proved_bound(search, Y, E, smooth, l1=0.0, kind=float):
    """What no abundances cost less than, by the duals of a search, in numpy."""
    W, U = (np.stack(one, axis=2) for one in zip(*(search.duals(j, smooth) for j in range(E.shape[1]))))
    flat = lambda array: array.reshape(-1, array.shape[2])  # noqa: E731
    charges = -W - U + l1
    charges[:, 1:] += W[:, :-1]
    charges[1:] += U[:-1]
    X = search.optima((flat(Y @ E) - flat(charges)).T, search.abundances().reshape(E.shape[1], -1)).T
    weights = [one.ravel().astype(kind) for one in (search.image.across, search.image.down)]
    back = sum(refund(flat(dual).astype(kind), weight, smooth) for dual, weight in zip((W, U), weights))
    wide = [flat(one).astype(kind) for one in (Y, charges)]
    return least_cost(wide[0], E.astype(kind), X.astype(kind), wide[1], search.sum_to_one) - back


def searched(Y, E, prior, sum_to_one=False, l1=0.0, **how):
    """The result of a search, and the search."""
    image = SpatialImage.of(*Y.shape[:2], E.shape[1])
    image.fill(0, Y, np.isfinite(Y).all(axis=2), E, l1)
    image.connect(prior.weight)
    search = SpatialSearch(image, E, sum_to_one, **how)
    return search.run(prior), search


@pytest.mark.parametrize("sum_to_one", [False, True])
@pytest.mark.parametrize(
    ("kind", "weight", "l1"), [("tv", 0.05, 0.0), ("tv", 0.5, 0.02), ("laplacian", 0.3, 0.0), ("laplacian", 0.3, 0.02)]
)
def test_cost_and_bound_are_those_of_numpy(kind, weight, l1, sum_to_one):
    """In extended precision the cost is what is said, and the bound, for the same duals, is below it by no more than the gap."""
    Y, E = image()
    found, search = searched(Y, E, Prior(kind, weight), sum_to_one, l1)
    A = unmix.spatial(Y, E, **{kind: weight}, l1=l1, sum_to_one=sum_to_one).abundances
    smooth, wide = kind == "laplacian", np.longdouble
    exact = total(Y.astype(wide), E.astype(wide), A.astype(wide), weight, smooth, l1)
    assert abs(exact - found.objective) < 1e-12 * exact
    assert found.gap <= 1e-6 and (A >= 0).all()
    assert not sum_to_one or np.abs(A.sum(axis=2) - 1).max() < 1e-14
    bound = proved_bound(search, Y, E, smooth, l1, wide)
    assert -1e-14 * exact < exact - bound <= found.gap * exact * (1 + 1e-6) + 1e-13 * exact


@pytest.mark.night
@pytest.mark.slow
def test_half_the_squares_are_nonnegative_least_squares():
    """With the Laplacian the whole image is one problem that scipy solves."""
    Y, E = image(4, 5)
    n, p = 20, 3
    place = np.arange(n).reshape(4, 5)
    near, far = (one.ravel().astype(int) for one in edges_of(place[..., None]))
    D = np.zeros((len(near), n))
    D[np.arange(len(near)), near], D[np.arange(len(near)), far] = -1, 1
    stacked = np.vstack([np.kron(np.eye(n), E), np.sqrt(0.4) * np.kron(D, np.eye(p))])
    x, left = scipy.optimize.nnls(stacked, np.concatenate([Y.ravel(), np.zeros(len(near) * p)]))
    found = unmix.spatial(Y, E, laplacian=0.4, proven=1e-12)
    assert abs(found.objective - left**2 / 2) < 1e-11 * found.objective
    np.testing.assert_allclose(found.abundances.ravel(), x, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("sum_to_one", [False, True])
def test_a_conic_solver_agrees(sum_to_one):
    """Clarabel finds the same least cost of total variation."""
    clarabel = pytest.importorskip("clarabel")
    sparse = pytest.importorskip("scipy.sparse")
    Y, E = image(6, 7, 10, 4, seed=3)
    n, p, weight = 42, 4, 0.1
    near, far = (one.ravel().astype(int) for one in edges_of(np.arange(n).reshape(6, 7, 1)))
    m = len(near)
    D = sparse.coo_matrix((np.repeat([-1.0, 1.0], m), (np.tile(np.arange(m), 2), np.concatenate([near, far]))), (m, n))
    D = sparse.kron(D, sparse.eye(p))
    P = sparse.block_diag([sparse.kron(sparse.eye(n), E.T @ E), sparse.csc_matrix((m * p, m * p))]).tocsc()
    q = np.concatenate([-(Y.reshape(n, -1) @ E).ravel(), np.full(m * p, weight)])
    minus = -sparse.eye(m * p)
    rows = [
        sparse.hstack([D, minus]),
        sparse.hstack([-D, minus]),
        sparse.hstack([-sparse.eye(n * p), sparse.csc_matrix((n * p, m * p))]),
    ]
    right, cones = np.zeros(2 * m * p + n * p), [clarabel.NonnegativeConeT(2 * m * p + n * p)]
    if sum_to_one:
        rows.append(sparse.hstack([sparse.kron(sparse.eye(n), np.ones((1, p))), sparse.csc_matrix((n, m * p))]))
        right, cones = np.concatenate([right, np.ones(n)]), [*cones, clarabel.ZeroConeT(n)]
    options = clarabel.DefaultSettings()
    options.verbose = False
    answer = clarabel.DefaultSolver(
        sparse.triu(P).tocsc(), q, sparse.vstack(rows).tocsc(), right, cones, options
    ).solve()
    least = answer.obj_val + 0.5 * np.square(Y).sum()
    found = unmix.spatial(Y, E, tv=weight, sum_to_one=sum_to_one, proven=1e-8)
    assert abs(found.objective - least) < 1e-6 * least
    np.testing.assert_allclose(found.abundances.ravel(), np.array(answer.x)[: n * p], atol=1e-3)


@pytest.mark.parametrize("kind", ["tv", "laplacian"])
def test_threads_change_nothing(kind):
    Y, E = image(60, 7)
    found = [searched(Y, E, Prior(kind, 0.05), threads=threads)[0] for threads in (1, 2, 3)]
    for one in found[1:]:
        assert one.objective == found[0].objective and one.gap == found[0].gap
        np.testing.assert_array_equal(one.abundances, found[0].abundances)


@pytest.mark.slow
def test_memory_is_what_is_said(monkeypatch):
    """A search takes no more than the bytes by which a scene is refused, and not much less."""
    monkeypatch.setattr("unmix.arrays.spatial.PIXELS_TOGETHER", 2048)
    lines, samples, p = 200, 300, 6
    Y, E = image(lines, samples, 8, p)
    searched(Y[:4, :4], E, Prior("tv", 0.05))  # compiles
    tracemalloc.start()
    held = tracemalloc.get_traced_memory()[0]
    try:
        values = SpatialImage.of(lines, samples, p)
        for first in range(lines):
            values.fill(first, Y[first : first + 1], np.ones((1, samples), bool), E, 0.0)
        SpatialSearch(values, E, False).run(Prior("tv", 0.05), 0.8)
        size = tracemalloc.get_traced_memory()[1] - held
    finally:
        tracemalloc.stop()
    assert 0.8 * bytes_of_search(lines, samples, p) < size < 1.05 * bytes_of_search(lines, samples, p)


@settings(max_examples=40)
@given(st.data())
def test_any_image(data):
    """Of lines or columns alone, with pixels missing, more spectra than bands, of any size: the gap is proved, numpy's cost right."""
    draw = data.draw
    lines, samples, p, bands = (draw(st.integers(1, most)) for most in (5, 5, 4, 4))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    E = random.uniform(0.0, 1, (bands, p)) + 0.01
    Y = random.uniform(-0.2, 1, (lines, samples, bands)) * 10.0 ** draw(st.integers(-3, 3))
    lost = random.random((lines, samples)) < draw(st.sampled_from([0, 0.3]))
    weight = 10.0 ** draw(st.integers(-3, 1)) * np.abs(Y).max()
    kind, sum_to_one = draw(st.sampled_from(["tv", "laplacian"])), draw(st.booleans())
    Y[lost] = np.nan
    found = unmix.spatial(Y, E, **{kind: weight}, sum_to_one=sum_to_one, proven=1e-4)
    A = found.abundances
    assert np.isnan(A[lost]).all() and (A[~lost] >= 0).all()
    assert found.proved or found.steps >= 20_000
    if not lost.any():
        exact = total(Y, E, A, weight, kind == "laplacian")
        assert abs(exact - found.objective) <= 1e-9 * np.square(Y).sum() + 1e-9 * exact


@pytest.mark.parametrize("seed", rest_slow(range(4), 0))
def test_spectra_that_depend_on_each_other(seed):
    """With more spectra than bands charges make one take another's place, where least squares alone would not care."""
    _, E, Y = mix(seed, (5, 5), 6, 12, (0, 1), noise=0.02)
    for words in ({"l1": 0.05}, {"sum_to_one": True}, {}):
        found = unmix.spatial(Y, E, tv=0.05, **words)
        assert found.gap <= 1e-6 and found.steps < 3000


@pytest.mark.parametrize("sum_to_one", rest_slow([False, True], True))
def test_the_weight_of_duals_settles(sum_to_one):
    """Were it set anew every 8 steps, this search would go in circles about a gap of 1e-5."""
    Y, E = image(60, 90, 8, 6)
    assert searched(Y, E, Prior("tv", 0.05), sum_to_one)[0].steps < 700


def test_an_image_without_noise():
    """Where nothing is left of the pixels the search ends at a share of their squares; the gap is one of the cost, and true."""
    random = np.random.default_rng(2)
    E = random.uniform(0.1, 1, (8, 3))
    truth = np.kron(random.dirichlet(np.ones(3), (2, 2)), np.ones((4, 4, 1)))
    Y, gaps = truth @ E.T, []
    for words, most in (({"tv": 1e-5}, 1e-6), ({"laplacian": 1e-6}, 1e-5), ({"tv": 1e-9}, 1e-4), ({"tv": 1e-12}, 1e-3)):
        found = unmix.spatial(Y, E, **words, proven=most)
        gaps.append(found.gap)
        assert found.proved and found.objective >= 0
        least = total(Y, E, truth, *words.values(), "laplacian" in words)  # the optimum costs no more
        assert total(Y, E, found.abundances, *words.values(), "laplacian" in words) * (1 - found.gap) <= least * (
            1 + 1e-9
        )
    assert max(gaps) > 1e-3 and max(gaps) <= 1.0
    nothing = unmix.spatial(np.zeros((2, 3, 8)), E, tv=1.0)
    assert nothing.gap == 0.0 and nothing.proved


@pytest.mark.parametrize("kind", ["tv", "laplacian"])
def test_edges_are_weights_of_the_differences(kind):
    Y, E = image(5, 6)
    across, down = np.zeros((5, 5)), np.zeros((4, 6))
    down[:2] = 1.0  # of the first three lines alone
    found = unmix.spatial(Y, E, **{kind: 0.3}, edges=(across, down), proven=1e-9).abundances
    np.testing.assert_allclose(found[3:], unmix.solve(Y, E, method="nnls").abundances[3:], atol=1e-4)
    for sample in range(6):
        alone = unmix.spatial(Y[:3, [sample]], E, **{kind: 0.3}, proven=1e-9).abundances
        np.testing.assert_allclose(found[:3, [sample]], alone, atol=1e-3)


@pytest.mark.parametrize("height", [0.2, 0.7, 2.0])
def test_a_pixel_alone_keeps_what_pays(height):
    """Its difference from its neighbours, of 4 λ a unit, lowers the misfit by more, or is none."""
    E, Y, weight = np.ones((1, 1)), np.full((5, 5, 1), 5.0), 0.1
    Y[2, 2] += height
    a = unmix.spatial(Y, E, tv=weight, proven=1e-9).abundances[..., 0]
    kept = a[2, 2] - a[2, 3]
    gain = 0.5 * (Y[2, 2, 0] - a[2, 3]) ** 2 - 0.5 * (Y[2, 2, 0] - a[2, 2]) ** 2
    assert gain >= 4 * weight * kept - 1e-3 and (kept > 0.1) == (height > 0.5)


@pytest.mark.parametrize("proven", [np.nan, -1, 0, 1.5, np.inf, "1e-6", None])
def test_a_gap_that_cannot_be_proved(proven):
    Y, E = image()
    with pytest.raises(unmix.MethodError, match=r"proven .*: must be a number above 0, and at most 1"):
        unmix.spatial(Y, E, tv=1.0, proven=proven)


@pytest.mark.parametrize("size", [1e200, 1e-200, 1e40])
@pytest.mark.parametrize("words", [{}, {"sum_to_one": True}])
def test_spectra_whose_squares_are_no_numbers(size, words):
    Y, E = image()
    refused(unmix.LibraryError, "not between 1e-30 and 1e", unmix.spatial, Y, E * size, tv=1.0, **words)
    for call in (
        lambda Y, E, _: unmix.rows(Y, E),
        lambda Y, E, _: unmix.ranges(Y, E, within=0.1),
        lambda Y, E, _: unmix.solve(Y, E),
    ):
        refused(unmix.LibraryError, "not between 1e-30 and 1e", call, Y, E * size, 0.1)
    refused(CubeError, "so bright that the sum of their squares is no number", unmix.spatial, Y * 1e200, E, tv=1.0)


def test_what_no_image_is():
    Y, E = image()
    refused(CubeError, "neighbours are those of an image", unmix.spatial, Y[0], E, tv=1.0)
    for words, text in (
        ({}, "name one of"),
        ({"tv": 1.0, "laplacian": 1.0}, "name one of"),
        ({"tv": 0.0}, "must be above 0"),
        ({"laplacian": np.nan}, "must be above 0"),
    ):
        refused(MethodError, text, unmix.spatial, Y, E, **words)
    ones = np.ones((9, 10)), np.ones((8, 11))
    for words, text in (
        ({"l1": -5.0}, "`l1` -5.0: must be"),
        ({"l1": np.nan}, "`l1` nan: must be"),
        ({"l1": "auto"}, "`l1` auto: must be"),
        ({"edges": ones[::-1]}, "must be two arrays"),
        ({"edges": "guided"}, "must be two arrays"),
        ({"edges": ones[:1]}, "must be two arrays"),
        ({"edges": (ones[0], -ones[1])}, "must be finite, and not"),
        ({"edges": (ones[0] * np.nan, ones[1])}, "must be finite"),
    ):
        refused(MethodError, text, unmix.spatial, Y, E, tv=1.0, **words)
    with pytest.raises(MethodError, match="some mixture of the endmembers is zero"):
        unmix.spatial(Y, np.column_stack([E[:, 0], -E[:, 0]]), tv=1.0)


@pytest.fixture
def scene(tmp_path):
    """A scene with a masked pixel, and its library."""
    Y, E = image(12, 10, 16, 3, seed=5)
    Y[3, 4] = -7.0
    write_cube(tmp_path / "s.hdr", Y.astype(np.float32), data_ignore_value=-7)
    write_csv(tmp_path / "e.csv", E)
    return tmp_path, Y.astype(np.float32).astype(float), E


WORDS = {"device": "cpu", "browse": False}


@pytest.mark.parametrize(
    "words",
    [
        {"method": "nnls", "tv": 0.05},
        {"method": "fcls", "laplacian": 0.5},
        {"method": "pcls", "tv": "auto"},
        {"method": "nnls", "tv": 0.05, "l1": 0.01, "format": "hdf5", "residual": True},
    ],
    ids=["nnls", "fcls", "pcls", "l1"],
)
def test_a_run(scene, words):
    """The record has the gap, maps hold the optimum of `unmix.spatial`, and `verify` proves them."""
    folder, Y, E = scene
    report = unmix.run(folder / "s.hdr", endmembers=folder / "e.csv", out_dir=folder / "o", **words, **WORDS)
    about = json.loads((folder / "o/s_run.json").read_text())["spatial"]
    assert about == report["spatial"] and about["gap"] <= 1e-6 and report["certified"] is True
    assert "certified" not in report["pixels"] and report["pixels"]["masked"] == 1
    assert not list((folder / "o").glob("*.part"))
    assert verify(folder / "o/s", everything=True).faults == []
    assert unmix.run(
        folder / "s.hdr", endmembers=folder / "e.csv", out_dir=folder / "o", skip_existing=True, **words, **WORDS
    )["skipped"]
    if words["method"] == "pcls" or "format" in words:
        return
    Y[3, 4] = np.nan
    found = unmix.spatial(
        Y, E, tv=words.get("tv"), laplacian=words.get("laplacian"), sum_to_one=words["method"] == "fcls"
    )
    A = np.fromfile(folder / "o/s_abundance.img", "f4").reshape(12, 3, 10).transpose(0, 2, 1)
    np.testing.assert_allclose(A, np.nan_to_num(found.abundances, nan=-9999.0), atol=1e-6)


def test_a_false_map_is_found(scene):
    folder, *_ = scene
    unmix.run(folder / "s.hdr", endmembers=folder / "e.csv", method="nnls", tv=0.05, out_dir=folder / "o", **WORDS)
    falsify_record(
        folder / "o/s", lambda changed: changed["spatial"].update(objective=changed["spatial"]["objective"] * 1.001)
    )
    assert any("spatial: is" in fault for fault in verify(folder / "o/s", everything=True).faults)
    how = {"endmembers": folder / "e.csv"}
    unmix.run(folder / "s.hdr", method="nnls", tv=0.05, out_dir=folder / "o", overwrite=True, **how, **WORDS)
    verify_tells(
        folder / "o/s", "abundance", 12, lambda values: np.multiply(values, 1 + 1e-3 * (values > 0), out=values)
    )


def killed(path, **words):
    """End a run as kill -9 does, after it has recorded lines: the journal and its maps stay."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Outputs, "begins_anew", property(lambda _: False, lambda *_: None), raising=False)
        cut_off(path, 2, memory="20k", **words)


def test_a_run_that_is_cut_off_begins_anew(scene, monkeypatch):
    """Stopped in the search or afterwards, nothing is left; killed, the same command makes the bytes of a run that was not."""
    folder, *_ = scene
    words = {"endmembers": folder / "e.csv", "method": "nnls", "tv": 0.05, **WORDS}
    unmix.run(folder / "s.hdr", out_dir=folder / "whole", **words)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(SpatialSearch, "step", interrupt)
        unmix.run(folder / "s.hdr", out_dir=folder / "cut", **words)
    assert not (folder / "cut").exists()
    cut_off(folder / "s.hdr", 2, out_dir=folder / "cut", memory="20k", **words)
    assert not (folder / "cut").exists()
    killed(folder / "s.hdr", out_dir=folder / "cut", **words)
    (state,) = map(state_of_run, runs_below(folder / "cut"))
    assert state.name == "interrupted" and not (folder / "cut/s_run.json").exists()
    refused(OutputError, "asked tv", unmix.run, folder / "s.hdr", out_dir=folder / "cut", **words | {"tv": 0.06})
    again = unmix.run(folder / "s.hdr", out_dir=folder / "cut", memory="20k", threads=1, **words)
    assert again["resumed_from"] == 0 and not list((folder / "cut").glob("*.part"))
    for name in ("s_abundance.img", "s_rmse.img"):
        assert (folder / "cut" / name).read_bytes() == (folder / "whole" / name).read_bytes()
    assert verify(folder / "cut/s", everything=True).faults == []


def interrupt(*_):
    raise KeyboardInterrupt


def test_a_scene_above_memory_is_refused(scene, monkeypatch):
    folder, *_ = scene
    monkeypatch.setattr("unmix.runs.record.memory.group_limit", lambda: 20_000)
    with pytest.raises(
        CubeError, match=r"s.img: `tv` searches all pixels together, 0.0 GiB in memory, and there are 0.0: unmix"
    ):
        unmix.run(folder / "s.hdr", endmembers=folder / "e.csv", method="nnls", tv=0.05, out_dir=folder / "o", **WORDS)
    assert not (folder / "o").exists()


def test_a_choice_from_nothing(tmp_path):
    """Where there is no noise, `auto` asks for a number."""
    Y, E = image(12, 10, 16, 3)
    write_cube(tmp_path / "s.hdr", np.tile(Y[:1, :1], (12, 10, 1)).astype(np.float32))
    write_csv(tmp_path / "e.csv", E)
    words = {"endmembers": tmp_path / "e.csv", "method": "nnls", "out_dir": tmp_path / "o", **WORDS}
    refused(CubeError, "`tv` auto: the noise is 0; give a number", unmix.run, tmp_path / "s.hdr", tv="auto", **words)


@pytest.mark.slow
def test_the_choice_lowers_the_error():
    """λ by Stein's estimate is within a factor of four of the one with the least error of the fit, for both priors."""
    Y, E = image(32, 32, 20, 3, seed=2, noise=0.2)
    clean = image(32, 32, 20, 3, seed=2, noise=0.0)[0]
    from unmix.library import Endmembers
    from unmix.methods import choose
    from unmix.problem import plan_problem
    from unmix.runs.penalties.neighbours import NeighbourTrials

    problem = plan_problem(Endmembers(("a", "b", "c"), E, None), *choose("nnls"), warns=False)
    for kind, grid in (("tv", np.geomspace(0.01, 10, 13)), ("laplacian", np.geomspace(0.01, 100, 13))):
        trials = NeighbourTrials(kind, problem, Y, np.ones((32, 32), bool), np.array([31]), 0.2, None)
        risks = [trials.risk(float(weight)) for weight in grid[::-1]]
        errors = [
            np.square(unmix.spatial(Y, E, **{kind: weight}, proven=1e-4).abundances @ E.T - clean).sum()
            for weight in grid[::-1]
        ]
        assert abs(int(np.argmin(risks)) - int(np.argmin(errors))) <= 2
        assert errors[int(np.argmin(risks))] < 1.3 * min(errors) < 0.6 * errors[-1]


def test_windows_lie_where_pixels_have_values(tmp_path):
    """They are the diagonal's where all have; else the nearest in their lines with the most."""
    values = np.arange(128 * 128, dtype=np.float32).reshape(128, 128, 1) + 1.0
    whole = write_cube(tmp_path / "w.hdr", np.tile(values, (1, 1, 2)))
    swath = np.where(np.arange(128)[None, :, None] < 70, np.float32(0), values)
    cut = write_cube(tmp_path / "s.hdr", np.tile(swath, (1, 1, 2)), **{"data ignore value": 0})
    (Y, valid, ends), (Z, few, _) = (windows_of_scene(open_scene(path, ReadOptions()), 60) for path in (whole, cut))
    assert valid.all() and Y.shape == Z.shape and len(ends) > 1
    lines, lefts = np.divmod(Y[:: ends[0] + 1, 0, 0].astype(int) - 1, 128)
    assert lefts.tolist() == [19, 58, 58, 19]  # at a fifth, two fifths, … of both diagonals
    assert few.all() and (lefts[0] < 70) and len(set(lines)) == len(lines)
    found, moved = np.divmod(Z[:: ends[0] + 1, 0, 0].astype(int) - 1, 128)
    assert found.tolist() == lines.tolist() and moved.tolist() == np.maximum(lefts, 70).tolist()


@pytest.mark.parametrize("words", [{"tv": 0.1}, {"tv": 1e-5}, {"laplacian": 0.1}, {"laplacian": 100.0}])
@pytest.mark.parametrize("sum_to_one", rest_slow([False, True], False))
@pytest.mark.parametrize("shape", [(4, 5), (1, 5), (5, 1), (1, 1)])
def test_images_without_noise_end(words, sum_to_one, shape):
    """The optimum costs nothing, and no gap is below its rounding, whatever the bands: the search ends there."""
    random = np.random.default_rng(2)
    for bands, noise, bright in ((6, 0.0, 1.0), (250, 0.0, 1e4), (250, 1e-9, 1.0), (60, 0.0, 0.0)):
        E = np.abs(np.cumsum(random.standard_normal((bands, 5)), axis=0) * 0.1 + random.uniform(0.3, 1.5, 5)) + 0.05
        truth = random.dirichlet(np.ones(5))
        Y = bright * (np.broadcast_to(E @ truth, (*shape, bands)) + noise * random.standard_normal((*shape, bands)))
        found = unmix.spatial(Y, E, sum_to_one=sum_to_one, **words)
        assert found.proved and found.steps <= 200, (bands, noise, bright)
        if bright == 1 and noise == 0:
            np.testing.assert_allclose(found.abundances, np.broadcast_to(truth, found.abundances.shape), atol=1e-7)


def test_a_choice_beside_spectra_that_are_taken_out_asks_for_a_number(tmp_path):
    Y, E = image(12, 10, 16, 3)
    write_cube(tmp_path / "s.hdr", Y.astype(np.float32))
    write_csv(tmp_path / "e.csv", E)
    write_csv(tmp_path / "one.csv", np.ones((16, 1)))
    words = {"endmembers": tmp_path / "e.csv", "method": "nnls", "out_dir": tmp_path / "o", **WORDS}
    how = {"tv": "auto", "free": str(tmp_path / "one.csv")}
    refused(unmix.MethodError, "hide the noise", unmix.run, tmp_path / "s.hdr", **how, **words)
