"""`rows`: against all subsets and the solver of pixels, with copies and ties, and in files."""

import itertools
import re

import numpy as np
import pytest
from conftest import cut_off, refused, rest_slow, write_csv, write_cube
from exchanges import exchanges, wrongness
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter
from test_cli import unmix as command

import unmix
from unmix.commands.verify import verify
from unmix.errors import InputError, LibraryError, MethodError
from unmix.features.rows.bound import Bound
from unmix.features.rows.search import Search
from unmix.features.rows.subsets import Subsets, with_row, without
from unmix.features.rows.windows import of_scene
from unmix.methods import METHODS
from unmix.scene import ReadOptions, open_scene

METHODS_OF_ROWS = ("nnls", "fcls", "pcls")


def scene(random, L=30, p=15, N=60, used=3, noise=0.01):
    """Return a library of smooth spectra (L, p), noisy mixtures (N, L) of some of them, and which."""
    E = np.cumsum(random.standard_normal((L, p)), axis=0) * 0.1 + random.uniform(0.5, 2, p)
    E = np.abs(E) + 0.05
    rows = np.sort(random.choice(p, used, replace=False))
    Y = random.dirichlet(np.ones(used), N) @ E[:, rows].T
    return E, Y + noise * random.standard_normal((N, L)), rows


def cost(Y, E, rows, method):
    """The cost of some rows, by the solver of pixels."""
    return float(np.square(unmix.solve(Y, E[:, list(rows)], method=method).rmse).sum() * len(E))


def net_cost(Y, E, rows, method, variance):
    """The cost, and σ² for each degree of freedom of it."""
    A = unmix.solve(Y, E[:, list(rows)], method=method).abundances[:, : len(rows)]
    bound = (method != "nnls") & np.isclose(A.sum(axis=1), 1, rtol=0, atol=1e-10)
    return cost(Y, E, rows, method) + variance * (np.count_nonzero(A) - np.count_nonzero(bound))


def subsets_of(Y, E, method, threads=1):
    shaded = np.column_stack([E, np.zeros(len(E))]) if method == "pcls" else E
    return Subsets(Y, shaded, METHODS[method].constraint, threads)


@pytest.mark.parametrize(
    ("method", "seed"), rest_slow(itertools.product(METHODS_OF_ROWS, range(4)), ("fcls", 1), ("pcls", 2))
)
def test_the_best_of_all_subsets(method, seed):
    """Where the gap is 0 no subset is better; the bound is never above the best."""
    random = np.random.default_rng(seed)
    count = 1 + seed % 3
    E, Y, _ = scene(random, L=12, p=9, N=25, used=count, noise=(0.0, 0.02)[seed % 2])
    E[:, 8] = E[:, 1]
    found = unmix.rows(Y, E, count, method=method, seconds=60.0)
    best = min(cost(Y, E, rows, method) for rows in itertools.combinations(range(9), count))
    rounding = 1e-9 * np.square(Y).sum()
    assert found.gap == 0 and cost(Y, E, found.rows, method) <= best + rounding


def uneven(random, E, kind):
    """Scale spectra, or return by how much pixels are scaled: by up to 1e6."""
    if kind == "one bright":
        E[:, random.integers(E.shape[1])] *= 10.0 ** random.uniform(3, 6)
    if kind == "any":
        E *= 10.0 ** random.uniform(-6, 6, E.shape[1])
    return {"dark": 1e-5, "pixels": 10.0 ** random.uniform(-3, 3, (25, 1))}.get(kind, 1.0)


UNEVEN = itertools.product(METHODS_OF_ROWS, ["one bright", "any", "dark", "pixels"])
QUICKLY = ("nnls", "any"), ("pcls", "pixels")


@pytest.mark.parametrize(("method", "kind"), rest_slow(UNEVEN, *QUICKLY))
def test_the_best_of_all_subsets_of_uneven_spectra(method, kind):
    """No spectrum is so bright that others, or losses in σ² a pixel, are rounding beside it."""
    for seed in range(4):
        random = np.random.default_rng(seed)
        E = random.uniform(0.1, 0.9, (20, 7))
        used, factor = np.sort(random.choice(7, 3, replace=False)), uneven(random, E, kind)
        Y = factor * random.dirichlet(np.ones(3), 25) @ E[:, used].T
        sigma = (0, 1e-6, 1e-3, 1e-2)[seed] * np.median(Y)
        Y += sigma * random.standard_normal(Y.shape)
        found = unmix.rows(Y, E, 3, method=method, noise=sigma, seconds=60.0)
        costs = {rows: cost(Y, E, rows, method) for rows in itertools.combinations(range(7), 3)}
        least = min(costs.values()) * (1 + 1e-6) + 1e-20 * np.square(Y).sum()
        assert found.gap == 0 and costs[tuple(found.rows)] <= least, (seed, found.rows, used)
        if sigma:
            net = [net_cost(Y, E, np.setdiff1d(found.rows, rest), method, sigma**2) for rest in (*found.rows, [])]
            np.testing.assert_allclose(
                found.losses, (np.array(net[:-1]) - net[-1]) / (sigma**2 * 25), rtol=1e-5, atol=0.1
            )


@given(
    seed=st.integers(0, 2**32 - 1),
    method=st.sampled_from(METHODS_OF_ROWS),
    count=st.integers(1, 6),
    copies=st.booleans(),
)
@settings(max_examples=25)
def test_costs_and_bounds(seed, method, count, copies):
    """Costs are those of the solver of pixels, from any start; no addition gains more than its bound."""
    random = np.random.default_rng(seed)
    E, Y, _ = scene(random, L=10, p=8, N=12, noise=float(random.choice([0, 0.01, 0.3])))
    if copies:
        E[:, 3], E[:, 5] = E[:, 0], 0.5 * (E[:, 1] + E[:, 2])
    subsets, size = subsets_of(Y, E, method), np.square(Y).sum()
    rows = tuple(sorted(random.choice(8, count, replace=False).tolist()))
    truth = cost(Y, E, rows, method)
    assert abs(subsets.fit(rows).cost - truth) <= 1e-8 * size
    bounds = subsets.bounds(rows)
    for k in set(range(8)) - set(rows):
        assert abs(subsets.cost(with_row(rows, k), rows) - cost(Y, E, with_row(rows, k), method)) <= 1e-8 * size
        assert truth - cost(Y, E, with_row(rows, k), method) <= bounds[k] * (1 + 1e-6) + 1e-8 * size
    if count > 1:
        assert abs(subsets.cost(without(rows, rows[0]), rows) - cost(Y, E, rows[1:], method)) <= 1e-8 * size


@pytest.mark.parametrize("method", METHODS_OF_ROWS)
def test_the_rows_of_a_scene_and_no_better_exchange(method):
    """The number is found; no exchange, loss or addition is better, and the table says what each costs."""
    E, Y, rows = scene(np.random.default_rng(5), L=40, p=15, N=300, used=4)
    found = unmix.rows(Y, E, method=method)
    np.testing.assert_array_equal(found.rows, rows)
    variance, unit = found.sigma**2, found.sigma**2 * len(Y)
    net = lambda kept: net_cost(Y, E, kept, method, variance)  # noqa: E731
    now = net(rows)
    for i, j in enumerate(rows):
        rest = [k for k in rows if k != j]
        assert found.losses[i] == pytest.approx((net(rest) - now) / unit, rel=1e-6)
        assert found.rmse[i] == pytest.approx(np.sqrt(cost(Y, E, rest, method) / Y.size), rel=1e-6)
        others = [net(sorted([*rest, k])) for k in set(range(15)) - set(rows)]
        assert min(others) >= now
        assert found.exchanges[i] == pytest.approx((min(others) - now) / unit, rel=1e-6)
    numbers = dict(found.numbers)
    assert numbers[4] == pytest.approx(found.losses.min()) and numbers[5] < 0.3 < numbers[4]
    assert found.sigma == pytest.approx(0.01, rel=0.05) and found.gap is None


@pytest.mark.parametrize("method", METHODS_OF_ROWS)
def test_a_row_of_few_pixels_and_one_of_none(method):
    """A material in 12 of 900 pixels is kept, and none that fits noise, though all abundances are small beside their errors."""
    random = np.random.default_rng(12)
    E, _, _ = scene(random, L=40, p=15)
    A = random.dirichlet([4, 4, 4], 900) @ np.eye(4)[:3]
    A[::75] = 0.6 * A[::75] + 0.4 * np.eye(4)[3]
    for few, noise in ((A, 0.01), (A[:, :3] / A[:, :3].sum(axis=1, keepdims=True), 0.05)):
        rows = [2, 7, 11, 14][: few.shape[1]]
        Y = few @ E[:, rows].T + noise * random.standard_normal((900, 40))
        assert unmix.rows(Y, E, method=method).rows.tolist() == rows


def test_simulated_pixels_are_those_of_the_fit():
    """They differ from the fit by noise of the variance that was asked for, and are the same at each call."""
    E, Y, rows = scene(np.random.default_rng(13), N=500)
    subsets, kept = subsets_of(Y, E, "fcls"), tuple(rows.tolist())
    one, two = (subsets.simulated(kept, 0.02**2) for _ in range(2))
    np.testing.assert_array_equal(one.F, two.F)
    assert one.cost(kept) / (500 * (30 - 2)) == pytest.approx(0.02**2, rel=0.05)
    assert abs(subsets.cost(kept) - cost(Y, E, rows, "fcls")) <= 1e-8 * np.square(Y).sum()


@pytest.mark.parametrize("method", METHODS_OF_ROWS)
def test_a_library_that_is_wrong(method):
    """Errors of 3 % make no row of their own; no exchange is better for smaller ones."""
    random = np.random.default_rng(14)
    E, _, rows = scene(random, L=40, p=15, used=4)
    factor = gaussian_filter(random.standard_normal((40, 4)), (6, 0))
    M = E[:, rows] * (1 + 0.03 * factor / factor.std(axis=0))
    Y = random.dirichlet(np.full(4, 0.7), 900) @ M.T
    Y += 0.01 * random.standard_normal(Y.shape)
    found = unmix.rows(Y, E, method=method)
    np.testing.assert_array_equal(found.rows, rows)
    assert exchanges(Y, E, rows.tolist(), method, found.sigma**2, True)[0] is None
    subsets, A = subsets_of(Y, E, method), unmix.solve(Y, E[:, rows], method=method).abundances[:, :4]
    ours = subsets.wrongness(tuple(rows.tolist()), 1e-4)
    np.testing.assert_allclose(ours, wrongness(E[:, rows], Y - A @ E[:, rows].T, A, 1e-4), rtol=1e-5)
    assert subsets.corrected(tuple(rows.tolist())).cost(tuple(rows.tolist())) < 0.7 * cost(Y, E, rows, method)


@pytest.mark.parametrize("method", METHODS_OF_ROWS)
def test_kept_supports_change_nothing(method, monkeypatch):
    """Abundances are those of the search without them, from any other rows, and where a spectrum depends on others."""
    from unmix.features.rows import costs

    E, Y, rows = scene(np.random.default_rng(16), L=12, p=14, N=300, used=5, noise=0.1)
    E[:, 13] = 0.5 * (E[:, rows[0]] + E[:, rows[1]])
    kept, few = tuple(range(10)), tuple(range(3, 9))
    found = []
    for most in (costs.MOST_SWEPT, 0):
        monkeypatch.setattr(costs, "MOST_SWEPT", most)
        subsets = subsets_of(Y, E, method)
        found.append([subsets.fit(kept), subsets.fit(few, kept), subsets.fit(with_row(few, 1), few)])
        assert subsets.cost(tuple(range(14)), kept) <= subsets.cost(kept) * (1 + 1e-9)
    for one, other in zip(*found):
        assert one.freedom == other.freedom and one.cost == pytest.approx(other.cost, rel=1e-11)
        np.testing.assert_allclose(one.abundances, other.abundances, atol=1e-9)


def smooth_scene(random, weak, noise, side=45):
    """Return a library (40, 15), an image of smooth mixtures of four of its spectra, of which one is ``weak``, in a corner; which."""
    E, _, rows = scene(random, L=40, p=15, used=4)
    fields = np.stack(
        [gaussian_filter(random.standard_normal((side, side)), 8, mode="wrap") for _ in range(3)], axis=-1
    )
    A = np.exp(fields / fields.std())
    A = np.dstack([A / A.sum(axis=-1, keepdims=True), np.zeros((side, side))])
    A[:15, :15] = (1 - weak) * A[:15, :15] + weak * np.eye(4)[3]
    return E, A @ E[:, rows].T + noise * random.standard_normal((side, side, 40)), rows


def means_of(Y):
    """The means of windows of 3 x 3 pixels that are all finite, one at a time."""
    corners = itertools.product(range(0, len(Y) - 2, 3), range(0, Y.shape[1] - 2, 3))
    windows = (Y[i : i + 3, j : j + 3].reshape(9, -1) for i, j in corners)
    return np.array([window.mean(axis=0) for window in windows if np.isfinite(window).all()])


@pytest.mark.parametrize(
    ("method", "weak", "noise"),
    rest_slow([("nnls", 0.2, 0.1), ("fcls", 0.1, 0.2), ("pcls", 0.2, 0.1)], ("fcls", 0.1, 0.2)),
)
def test_means_of_neighbours(method, weak, noise):
    """A row too weak for pixels is found in means of neighbours, of which no exchange is better; masked pixels leave windows out."""
    E, Y, rows = smooth_scene(np.random.default_rng(20), weak, noise)
    assert set(unmix.rows(Y.reshape(-1, 40), E, method=method).rows) < set(rows)
    Y[3, 4, 5] = np.nan
    found, W = unmix.rows(Y, E, method=method), means_of(Y)
    np.testing.assert_array_equal(found.rows, rows)
    assert (found.side, found.pixels) == (3, 224) and found.sigma == pytest.approx(noise / 3, rel=0.05)
    variance = found.sigma**2
    net = lambda kept: net_cost(W, E, kept, method, variance)  # noqa: E731
    for i, j in enumerate(rows):
        rest = [k for k in rows if k != j]
        assert found.losses[i] == pytest.approx((net(rest) - net(rows)) / (variance * len(W)), rel=1e-6)
        assert min(net(sorted([*rest, k])) for k in set(range(15)) - set(rows)) >= net(rows)


def test_pixels_decide():
    """Where a material is in single pixels, and where spectra are wrong: windows would keep the errors as rows."""
    random = np.random.default_rng(21)
    E, Y, rows = smooth_scene(random, 0.0, 0.1)
    Y[::15, ::9] += 0.3 * (E[:, rows[3]] - Y[::15, ::9])
    single = unmix.rows(Y, E)
    np.testing.assert_array_equal(single.rows, rows)
    assert set(unmix.rows(means_of(Y), E).rows) < set(rows)
    factor = gaussian_filter(random.standard_normal((40, 15)), (6, 0))
    wrong = unmix.rows(
        smooth_scene(np.random.default_rng(21), 0.3, 0.01)[1], E * (1 + 0.03 * factor / factor.std(axis=0))
    )
    assert (single.side, wrong.side) == (1, 1)


@pytest.mark.parametrize("interleave", ["bip", "bil", "bsq"])
def test_windows_of_a_file(tmp_path, interleave):
    """They are those of the image, of a large scene some of each block of lines."""
    Y = np.random.default_rng(22).uniform(0.1, 0.9, (31, 44, 5)).astype(np.float32)
    Y[7, 40, 2] = -7.0
    cube = open_scene(write_cube(tmp_path / "c.hdr", Y, interleave, data_ignore_value=-7), ReadOptions())
    Y[7, 40] = np.nan
    whole = means_of(Y.astype(float))
    pixels, found = of_scene(cube)
    np.testing.assert_allclose(found, whole, rtol=1e-12)
    assert len(found) == 139 and len(pixels) == 31 * 44 - 1
    few = of_scene(cube, 30)[1]
    assert 10 <= len(few) <= 30 and all(np.isclose(one, whole).all(axis=1).any() for one in few)


def test_copies_and_threads_change_nothing():
    """Of copies the first is kept, and the other said to cost nothing; the answer does not depend on threads."""
    E, Y, rows = scene(np.random.default_rng(6), N=700)
    E = np.column_stack([E, E[:, rows[0]]])
    one, three = (unmix.rows(Y, E, threads=threads) for threads in (1, 3))
    np.testing.assert_array_equal(one.rows, rows)
    assert one.others[0] == 15 and one.exchanges[0] == 0
    for name in ("rows", "losses", "others", "exchanges", "numbers"):
        np.testing.assert_array_equal(getattr(one, name), getattr(three, name))


@pytest.mark.parametrize("scale", [2.0**-40, 2.0**40])
def test_any_unit(scale):
    E, Y, _ = scene(np.random.default_rng(7))
    plain, scaled = unmix.rows(Y, E), unmix.rows(Y * scale, E * scale)
    np.testing.assert_array_equal(plain.rows, scaled.rows)
    np.testing.assert_allclose(plain.losses, scaled.losses, rtol=1e-9)
    assert scaled.sigma == pytest.approx(plain.sigma * scale)


@pytest.mark.parametrize("method", METHODS_OF_ROWS)
def test_dark_pixels(method):
    """A row is kept where no pixel has light, and nothing is divided by 0."""
    found = unmix.rows(np.zeros((9, 30)), scene(np.random.default_rng(17))[0], method=method)
    assert len(found.rows) == 1 and np.isfinite(found.rmse[found.losses < np.inf]).all()


def test_more_spectra_than_bands_without_noise():
    E, Y, rows = scene(np.random.default_rng(8), L=12, noise=0.0)
    np.testing.assert_array_equal(unmix.rows(Y, E, 3, seconds=1.0).rows, rows)


def test_a_bound_that_is_cut_off():
    """Without time the bound is that of all rows, and the gap says so."""
    E, Y, _ = scene(np.random.default_rng(9), noise=0.05)
    search = Search(subsets_of(Y, E, "fcls"), 0.0, 2)
    bound = Bound(search, search.proved(search.run(np.ones(15))))
    bound.run(0.0)
    assert bound.low == pytest.approx(cost(Y, E, range(15), "fcls"), rel=1e-8) and 0 < bound.gap < 1


@pytest.mark.parametrize(
    ("count", "words", "text"),
    [
        (0, {}, "`rows` 0: the library has 15 different spectra"),
        (16, {}, "`rows` 16: the library has 15"),
        ("best", {}, "`rows` 'best': must be a whole number, or auto"),
        (2, {"method": "ucls"}, "is for `method` nnls, fcls, pcls"),
        (2, {"noise": -1.0}, "`noise` -1.0: must be"),
        (2, {"noise": np.full(30, 0.1)}, "must be one standard deviation"),
    ],
)
def test_what_is_refused(count, words, text):
    E, Y, _ = scene(np.random.default_rng(10))
    refused(MethodError, text, unmix.rows, Y, E, count, **words)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A scene on disk of three of 15 spectra, with a masked pixel, and its library."""
    folder = tmp_path_factory.mktemp("rows")
    random = np.random.default_rng(11)
    E, Y, rows = scene(random, N=240)
    Y = Y.reshape(12, 20, -1)
    Y[2, 3] = -7.0
    write_cube(folder / "c.hdr", Y.astype(np.float32), data_ignore_value=-7)
    write_csv(folder / "lib.csv", E, classes=[*"abcd" * 5][:15])
    np.savetxt(folder / "weights.txt", random.uniform(0.9, 1.1, len(E)))
    names = unmix.load_library(folder / "lib.csv").names
    return folder, [names[j] for j in rows]


WORDS = {"method": "fcls", "rows": "auto", "device": "cpu", "browse": False}


@pytest.mark.parametrize(
    "words",
    [
        {},
        {"method": "nnls", "normalize": "sum"},
        {"method": "pcls", "rows": 3},
        {"seconds": 0.2},
        {"tv": 0.01},
        {"weights": "weights.txt"},
        {"method": "pcls", "rows": 3, "shade": "shade.csv"},
        {"by": "class"},
    ],
    ids=["fcls", "fractions", "shade", "bound", "tv", "weights", "own shade", "classes"],
)
def test_a_run(tmp_path, files, words, monkeypatch):
    """The rows of the scene are written, recorded, said, and shown."""
    folder, names = files
    monkeypatch.chdir(folder)
    write_csv(folder / "shade.csv", np.full((30, 1), 0.001))
    report = unmix.run("c.hdr", endmembers="lib.csv", out_dir=tmp_path, **WORDS | words)
    assert [row["name"] for row in report["rows"]["rows"]] == names
    written = unmix.load_library(tmp_path / "c_endmembers.csv").names
    assert list(written[:3]) == names and len(written) == 3 + (words.get("method") == "pcls")
    assert verify(tmp_path / "c", everything=True).faults == []
    page = unmix.report(tmp_path / "c")
    text = (tmp_path / "c_report.html").read_text()
    _, _, section = text.partition("The rows of the library that the scene needs")
    assert '<div class="scroll"><table>' in section and 'class="stats"' not in text, page
    assert all("viewBox" in tag for tag in re.findall("<svg[^>]*>", text))


def test_a_run_that_looks_at_windows(tmp_path):
    """It keeps a row that is too weak for pixels, and says so."""
    E, Y, rows = smooth_scene(np.random.default_rng(20), 0.1, 0.2)
    write_cube(tmp_path / "c.hdr", Y.astype(np.float32))
    write_csv(tmp_path / "lib.csv", E)
    report = unmix.run(tmp_path / "c.hdr", endmembers=tmp_path / "lib.csv", **WORDS)["rows"]
    assert [row["index"] for row in report["rows"]] == rows.tolist() and (report["side"], report["pixels"]) == (3, 225)
    assert "from means of 3 × 3 pixels" in report["said"][0]
    assert verify(tmp_path / "c", everything=True).faults == []


def test_a_resumed_run_keeps_its_rows(tmp_path, files, monkeypatch):
    """A run that is cut off goes on with the rows that it chose."""
    folder, _ = files
    from unmix.features.rows import scene as of_scene

    whole = unmix.run(folder / "c.hdr", endmembers=folder / "lib.csv", out_dir=tmp_path / "whole", **WORDS)
    words = {"endmembers": folder / "lib.csv", "memory": "12k", "out_dir": tmp_path / "cut", **WORDS}
    cut_off(folder / "c.hdr", 4, **words)
    monkeypatch.setattr(of_scene, "chosen", None)  # must not be called
    resumed = unmix.run(folder / "c.hdr", **words)
    assert resumed["resumed_from"] > 0 and resumed["rows"] == whole["rows"]
    assert (tmp_path / "cut/c_abundance.img").read_bytes() == (tmp_path / "whole/c_abundance.img").read_bytes()


def test_a_colour_that_is_not_kept(tmp_path, files):
    """A name of the library that is not kept is a warning; one that is not in it, an error before the work."""
    folder, names = files
    words = {"endmembers": folder / "lib.csv", "out_dir": tmp_path} | WORDS | {"browse": True}
    dropped = next(name for name in unmix.load_library(folder / "lib.csv").names if name not in names)
    report = unmix.run(folder / "c.hdr", rgb=f"{names[0]},{dropped}", **words)
    assert any(f"`rows` keeps no {dropped}" in text for text in report["warnings"])
    refused(MethodError, "no 'gold'", unmix.run, folder / "c.hdr", rgb="gold", overwrite=True, **words)


@pytest.mark.sim
def test_the_rows_on_any_device(tmp_path, files, device):
    """The same rows, and abundances to rounding."""
    folder, _ = files
    maps = []
    for one in ("cpu", device):
        words = WORDS | {"device": one, "lines": "0:3", "out_dir": tmp_path / one, "overwrite": True}
        report = unmix.run(folder / "c.hdr", endmembers=folder / "lib.csv", **words)
        maps.append(np.fromfile(tmp_path / one / "c_abundance.img", "f4"))
        assert report["certified"] is True
    np.testing.assert_allclose(*maps, atol=1e-6)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"method": "ucls"}, "`rows` is for `method` nnls, fcls"),
        ({"solver": "inverse"}, "for `solver` active-set, not inverse"),
        ({"rows": 0}, "`rows` 0: must be a whole number"),
        ({"rows": 2.5}, "`rows` 2.5: must be a whole number"),
        ({"rows": "best"}, "`rows` 'best': must be"),
        ({"method": "nnls", "l1": 0.1}, "`rows` does not go with `l1`"),
        ({"method": "nnls", "at_most": 2}, "`rows` does not go with `at_most`"),
        ({"rows": None, "seconds": 1.0}, "add that"),
        ({"seconds": 0.0}, "`seconds` 0: must be above 0"),
        ({"endmembers": None}, "`rows` chooses spectra of a library"),
        ({"rows": 21}, "the library has 15 different spectra"),
        ({"method": "nnls", "likelihood": "poisson"}, "does not go with"),
    ],
)
def test_what_rows_do_not_go_with(tmp_path, files, words, text):
    folder, _ = files
    with pytest.raises((MethodError, InputError, LibraryError), match=text):
        unmix.run(folder / "c.hdr", **{"endmembers": folder / "lib.csv", "out_dir": tmp_path / "out", **WORDS, **words})
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").glob("*.img"))


def test_the_option_that_is_gone(files):
    """It says what serves in its place, in Python and on the command line."""
    folder, _ = files
    with pytest.raises(MethodError, match="`l21` is no more: `rows` auto keeps"):
        unmix.run(folder / "c.hdr", endmembers=folder / "lib.csv", l21="auto")
    words = ["run", folder / "c.hdr", "-e", folder / "lib.csv", "--l21", "auto"]
    told = command(*words, code=2)[1]
    assert "--l21 is no more: --rows auto keeps" in told and len(told.strip().splitlines()) == 1


def test_options_by_position_stay():
    assert unmix.Options("nnls", "inverse").method == "nnls" and unmix.Options("nnls").rows is None


def test_one_set_for_many_scenes(tmp_path, files, monkeypatch):
    """The rows that any of the scenes needs are written, and solve each; what cannot be is one line."""
    folder, names = files
    whole = unmix.load_library(folder / "lib.csv")
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(15)
    others = [j for j, name in enumerate(whole.names) if name not in names][:2]
    Y = random.dirichlet(np.ones(2), 150) @ whole.matrix[:, others].T + 0.01 * random.standard_normal((150, 30))
    write_cube(tmp_path / "b.hdr", Y.reshape(10, 15, -1).astype(np.float32))
    write_cube(tmp_path / "other.hdr", Y[:, :9].reshape(10, 15, -1).astype(np.float32))
    write_cube(tmp_path / "counts.hdr", (10000 * Y).reshape(10, 15, -1).astype(np.float32))
    (tmp_path / "scenes.txt").write_text(f"{folder}/c.hdr\nb.hdr\n")
    words = ["rows", "--list", "scenes.txt", "-e", folder / "lib.csv"]
    out, told = command(*words)
    few = unmix.load_library("scenes_endmembers.csv")
    assert set(few.names) == {*names, *(whole.names[j] for j in others)} and "scenes_endmembers.csv" in out
    assert "scenes: rows auto keeps 5 of 15 spectra" in told
    for cube, kept in ((folder / "c.hdr", names), ("b.hdr", [whole.names[j] for j in others])):
        report = unmix.run(cube, endmembers="scenes_endmembers.csv", out_dir="out", **WORDS)
        assert sorted(row["name"] for row in report["rows"]["rows"]) == sorted(kept)
    for more, text, code in (
        ((), "overwrite", 1),
        (("--rows", "16"), "has 15 different spectra", 2),
        (("other.hdr",), "other.img has 9; scenes of one set", 3),
        (("counts.hdr",), "counts.img: pixels are ", 3),
    ):
        told = command(*words, *["--overwrite"] * bool(more), *more, code=code)[1]
        assert text in told and len(told.strip().splitlines()) == 1
    assert set(unmix.load_library("scenes_endmembers.csv").names) == set(few.names)
