"""How many endmembers a scene has: each criterion by its definition, and what must not change a count."""

import naive
import numpy as np
import pytest
import scipy.ndimage
from conftest import refused, write_cube
from test_cli import unmix as command

import unmix
from unmix import io
from unmix.commands.synth import SyntheticScene, synthesise
from unmix.devices import simulated
from unmix.endmembers import count_endmembers
from unmix.endmembers.auto.choice import Edges
from unmix.endmembers.counts import Counts, capped, noise_fractions
from unmix.endmembers.statistics import PAIRS_A_BAND, moments
from unmix.io import open_cube
from unmix.scene import open_scene
from unmix.scene.bands import choose_bands

pytestmark = pytest.mark.skipif(simulated(), reason="nothing of it runs on a GPU")


def scene(seed=0, p=4, lines=40, samples=45, L=30, snr=35.0):
    """Patchy mixtures with white noise, (lines, samples, L)."""
    random = np.random.default_rng(seed)
    E = random.random((L, p))
    coarse = random.standard_normal((p, lines // 5 + 1, samples // 5 + 1)) * 3
    A = np.exp(
        np.kron(coarse, np.ones((1, 5, 5)))[:, :lines, :samples] + 0.1 * random.standard_normal((p, lines, samples))
    )
    A /= A.sum(axis=0)
    Y = np.einsum("lp,pij->ijl", E, A)
    return Y + np.sqrt(np.square(Y).mean() / 10 ** (snr / 10)) * random.standard_normal(Y.shape)


def counts_of(path):
    cube = open_cube(path)
    return count_endmembers(io.Scene(cube, choose_bands(cube, "good", None), cube.nodata), 2**30)


def moments_of(path):
    cube = open_cube(path)
    return moments(io.Scene(cube, choose_bands(cube, "good", None), cube.nodata), 2**30, 2)


def test_each_criterion_is_its_definition(tmp_path):
    Y = scene()
    found = moments_of(write_cube(tmp_path / "x.hdr", Y))
    flat, d = Y.reshape(-1, 30), np.diff(Y, axis=1).reshape(-1, 30)
    noise, C = d.T @ d / (2 * len(d)), np.cov(flat.T, bias=True)
    ratios = np.sort(np.linalg.eigvals(np.linalg.solve(noise, C)).real)[::-1]
    np.testing.assert_allclose(noise_fractions(found)[0], ratios, rtol=1e-5)
    R, diagonal = flat.T @ flat / len(flat), np.diag(np.diag(noise))
    signal = R - diagonal
    V = np.linalg.eigh(signal)[1]
    floor = np.trace(signal) / 30 / 1e5 * np.eye(30)
    spatial = sum(v @ R @ v > 2 * v @ (diagonal + floor) @ v for v in V.T)
    counts = Counts.of(found)
    assert counts.by == {
        "hysime": naive.hysime(flat),
        "hysime-spatial": spatial,
        "mnf": 1 + int((ratios > 2).sum()),
        "plane": 4,
    }
    assert counts.auto == counts.by["mnf"] == 4


def test_noise_that_neighbouring_bands_share_is_no_signal(tmp_path):
    """HySime counts nearly all bands of it: they predict one another."""
    random = np.random.default_rng(3)
    Y = scene(L=60, snr=300.0)
    noise = 0.02 * random.standard_normal(Y.shape)
    Y = Y + (np.roll(noise, 1, 2) + noise + np.roll(noise, -1, 2)) / np.sqrt(3)
    counts = counts_of(write_cube(tmp_path / "x.hdr", Y))
    assert counts.by["hysime"] > 20 and counts.auto == 4 and counts.by["mnf"] == 4


@pytest.mark.parametrize("change", ["units", "tiled", "turned"])
def test_what_must_not_change_a_count(tmp_path, change):
    Y = scene(seed=5, p=5)
    other = {"units": Y * 12_345.0, "tiled": np.tile(Y, (2, 2, 1)), "turned": Y[::-1, ::-1, ::-1]}[change]
    one, two = counts_of(write_cube(tmp_path / "x.hdr", Y)), counts_of(write_cube(tmp_path / "y.hdr", other))
    assert one.all == two.all and one.auto == 5


def test_pairs_across_a_mask_and_of_equal_pixels_are_left_out(tmp_path):
    Y = scene(seed=7)
    Y[3, 10:20], Y[:, 30] = -9.0, Y[:, 29]
    found = moments_of(write_cube(tmp_path / "x.hdr", Y, data_ignore_value=-9))
    d = np.array([Y[i, j + 1] - Y[i, j] for i in range(40) for j in range(44) if Y[i, j, 0] != -9 != Y[i, j + 1, 0]])
    d = d[(d != 0).any(axis=1)]
    assert found.pairs == len(d) == 40 * 44 - 11 - 40
    np.testing.assert_allclose(found.differences, d.T @ d / (2 * len(d)), rtol=1e-9, atol=1e-18)


def test_some_lines_are_enough(tmp_path):
    """Of 200 pairs a band and more, every so many lines; which ones does not depend on blocks."""
    Y = scene(lines=700, samples=10, L=4, p=2)
    path = write_cube(tmp_path / "x.hdr", Y)
    each = 700 * 9 // (PAIRS_A_BAND * 4)
    d = np.diff(Y[::each], axis=1).reshape(-1, 4)
    found = moments_of(path)
    assert each == 7 and found.pairs == len(d)
    np.testing.assert_allclose(found.differences, d.T @ d / (2 * len(d)), rtol=1e-12)
    cube = open_cube(path)
    again = moments(io.Scene(cube, choose_bands(cube, "good", None), None), 3000, 1)
    np.testing.assert_array_equal(again.differences, found.differences)


def test_a_scene_without_neighbours_falls_back_on_hysime(tmp_path):
    path = write_cube(tmp_path / "x.hdr", scene().reshape(-1, 1, 30))
    counts = counts_of(path)
    assert counts.by["mnf"] is counts.by["hysime-spatial"] is None and counts.auto == counts.by["hysime"]
    assert command("count", path)[0].strip() == str(counts.auto)
    assert "too few neighbouring pixels for mnf" in command("count", path, "--criterion", "mnf", code=3)[1]


def test_the_command(tmp_path):
    path = write_cube(tmp_path / "x.hdr", scene())
    table = dict(line.split() for line in command("count", path, "--criterion", "all")[0].splitlines())
    assert table["auto"] == "4" and set(table) == {
        "plane",
        "cone",
        "hysime",
        "hysime-spatial",
        "mnf",
        "auto",
        "possible",
    }
    assert command("count", path)[0] == "4\n" and '"auto": 4' in command("count", path, "--json")[0]


def test_a_run_says_what_it_counted(tmp_path):
    synthesise(tmp_path / "s.hdr", SyntheticScene(40, 50, 60, 5, seed=2, snr=40))
    report = unmix.run(tmp_path / "s.hdr", device="cpu", browse=False)
    counted = report["endmembers"]["counted"]
    assert counted["auto"] == len(report["endmembers"]["names"]) == Counts(counted).auto
    least, most = counted["interval"]
    assert least <= counted["auto"] <= most


@pytest.mark.parametrize(
    ("hysime", "spatial", "mnf", "plane", "cone", "misfit", "auto"),
    [
        (43, 5, 23, None, 3, 0.04, 3),
        (18, 5, 19, None, 4, 0.1, 4),
        (12, 9, 12, None, 4, 0.02, 5),
        (12, 9, 12, None, 4, 0.2, 6),
        (9, 4, 11, None, 3, 0.01, 2),
        (12, 3, 9, None, 6, 0.03, 3),
        (9, 8, 9, None, 3, 0.02, 4),
        (5, 5, 6, 6, None, None, 6),
        (6, 6, 6, None, 1, 0.01, 2),
        (40, 13, 1, None, 2, 0.1, 13),
        (8, 8, 1, None, 3, 0.1, 8),
        (7, None, None, None, None, None, 7),
        (62, 4, None, None, None, None, 4),
        (4, 1, 4, None, 1, 0.1, 1),
        (5, 5, 5, None, 5, 0.0, 5),
        (12, 11, 12, None, 10, 0.0, 9),
    ],
)
def test_what_is_made_of_the_criteria(hysime, spatial, mnf, plane, cone, misfit, auto):
    by = {"hysime": hysime, "hysime-spatial": spatial, "mnf": mnf, "plane": plane, "cone": cone}
    assert Counts(by, misfit).auto == auto


@pytest.mark.parametrize(
    ("plane", "held", "spatial", "cone", "interval"),
    [
        (None, None, 5, 3, (2, 5)),
        (None, None, 9, 4, (4, 9)),
        (None, None, 1, 1, (1, 2)),
        (4, None, 9, None, (4, 4)),
        (4, 6, 9, None, (4, 6)),
        (None, 3, None, None, (2, 4)),
        (None, None, None, None, (11, 13)),
    ],
)
def test_which_numbers_are_possible(plane, held, spatial, cone, interval):
    by = {"hysime": 12, "hysime-spatial": spatial, "mnf": None if held else 12, "plane": plane, "cone": cone}
    assert Counts(by | {"held-out": held}, 0.04).interval == interval


def test_fractions_of_the_possible_numbers_are_compared(tmp_path):
    """Where two of four edges are one direction in two halves, three hold what they hold together."""
    U, F = np.eye(3), np.random.default_rng(0).dirichlet(np.ones(3), 50)
    four = np.column_stack([U, U[:, 2] + [0.01, 0.0, 0.0]])
    split = np.column_stack([F[:, :2], F[:, 2] * 0.25, F[:, 2] * 0.75])
    assert Edges(0.0, 0.0, four, split).differ(Edges(0.0, 0.0, U, F)) == pytest.approx(0.0, abs=1e-15)
    moved = F + 0.1 * np.array([1.0, -1.0, 0.0])
    assert Edges(0.0, 0.0, U, moved).differ(Edges(0.0, 0.0, U, F)) == pytest.approx(0.2 / 3)
    assert Edges(np.inf, np.inf).differ(Edges(0.0, 0.0, U, F)) is None


@pytest.mark.parametrize(("cone", "is_said"), [(9, False), (6, False), (4, True)])
def test_criteria_that_disagree_are_said(caplog, cone, is_said):
    capped("s", Counts({"hysime": 12, "hysime-spatial": 9, "mnf": 12, "plane": None, "cone": cone}, 0.02))
    assert ("is not clear" in caplog.text) == is_said


def test_pixels_in_no_order_are_counted_by_hysime(tmp_path):
    """Where neighbours are no more alike than others, their differences are not noise."""
    Y = scene().reshape(-1, 30)[np.random.default_rng(0).permutation(1800)].reshape(40, 45, 30)
    counts = counts_of(write_cube(tmp_path / "x.hdr", Y))
    assert counts.by["mnf"] == 1 and counts.auto == counts.by["hysime"] == 4


@pytest.mark.real
@pytest.mark.parametrize(("name", "p"), [("jasper", 4), ("samson", 3), ("salinas_a", 6)])
def test_real_scenes_within_a_factor_of_1_7(data, name, p):
    counts = counts_of(data / name / f"{name}.hdr")
    assert p / 1.7 <= counts.auto <= p * 1.7 and counts.by["hysime"] > 1.9 * p


@pytest.mark.parametrize("L", [1, 2, 3, 4, 6])
def test_no_more_endmembers_than_bands(tmp_path, L):
    path = write_cube(tmp_path / "x.hdr", scene(seed=24, p=L + 2, L=L, lines=60, samples=70))
    assert counts_of(path).auto <= L
    if L > 1:
        unmix.run(path, method="nnls", device="cpu", browse=False)
    else:
        refused(unmix.CubeError, "has one band in use", unmix.run, path, device="cpu")


def test_texture_of_the_size_of_pixels(tmp_path):
    """Materials that are patchy beside others that change from pixel to pixel: MNF counts the first alone, the others agree."""
    from scipy.ndimage import gaussian_filter

    random = np.random.default_rng(4)
    fields = [gaussian_filter(random.standard_normal((60, 60)), 8 if j < 3 else 0.5) for j in range(8)]
    A = np.exp(np.stack([2 * field / field.std() for field in fields]))
    Y = np.einsum("lp,pij->ijl", random.random((60, 8)), A / A.sum(axis=0))
    counts = counts_of(write_cube(tmp_path / "x.hdr", Y + 0.003 * random.standard_normal(Y.shape)))
    assert counts.by["mnf"] < 6 and counts.auto == 8


def test_a_masked_first_line_of_a_wide_scene(tmp_path):
    Y = scene(lines=200, samples=1000, L=4, p=3)
    Y[0] = -9.0
    assert counts_of(write_cube(tmp_path / "x.hdr", Y, data_ignore_value=-9)).by["mnf"] is not None


@pytest.mark.parametrize("seed", range(4))
def test_stripes_of_a_flat_scene_are_no_materials(tmp_path, seed):
    """Columns differ by an offset of each band: directions with signal, which neighbours do not share."""
    random = np.random.default_rng(seed)
    p = 3 + seed
    x = np.linspace(0, 1, 100)[:, None]
    E = 0.3 + 0.2 * np.sin(8 * x * random.uniform(0.3, 1.5, p) + random.uniform(0, 6, p))
    A = scipy.ndimage.gaussian_filter(random.standard_normal((60, 60, p)), (3, 3, 0))
    A = np.exp(12 * A) / np.exp(12 * A).sum(axis=2, keepdims=True)
    Y = A @ E.T + 0.004 * random.standard_normal((60, 60, 100)) + 0.003 * random.standard_normal((1, 60, 100))
    path = write_cube(tmp_path / "s.hdr", Y.astype(np.float32))
    counts = count_endmembers(open_scene(path), 2**28)
    assert abs(counts.auto - p) <= 2, counts.all
