"""Sums, projections and numbers of all pixels of a scene, against loops in numpy: any shape, mask, interleave, block and thread."""

import itertools

import naive
import numpy as np
import pytest
from conftest import refused, write_cube
from hypothesis import given, settings
from hypothesis import strategies as st

from unmix.endmembers.passes import Passes
from unmix.endmembers.scan import View, numbers, projections, threads, totals_of
from unmix.io import Scene, bytes_per_line, open_cube
from unmix.scene.bands import choose_bands

UNIT = 64


@pytest.fixture(autouse=True, scope="module")
def small_units():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "UNIT", UNIT)
        yield


def wild(seed, lines, samples, L, masked):
    """Stored values, some equal to their neighbours, some masked in one band or in all."""
    random = np.random.default_rng(seed)
    Y = random.integers(1, 1000, (lines, samples, L)).astype(np.int16)
    Y[:, 1:][random.random((lines, samples - 1)) < 0.1] = 5
    lost = random.random((lines, samples)) < masked
    Y[lost, random.integers(0, L)] = -9
    Y[random.random((lines, samples)) < masked / 2] = -9
    return Y


def scene_of(path, Y, interleave="bip"):
    cube = open_cube(write_cube(path, Y, interleave, data_ignore_value=-9))
    return Scene(cube, choose_bands(cube, "all", None), cube.nodata)


SHAPES = st.tuples(st.integers(1, 9), st.sampled_from([1, 2, 3, 15, 16, 17, 33, 70, 200]), st.integers(1, 37))


@settings(max_examples=40)
@given(
    SHAPES,
    st.integers(0, 99),
    st.sampled_from([0.0, 0.1, 1.0]),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(1, 3),
)
def test_sums_of_any_scene(tmp_path_factory, shape, seed, masked, each, blocks, workers):
    """The same bits for every interleave, budget and number of threads."""
    Y = wild(seed, *shape, masked)
    valid = (Y != -9).all(axis=2)
    expected = naive.moments(Y.astype(float), valid, each)
    seen, before = [], None
    for interleave in ("bip", "bil", "bsq"):
        scene = scene_of(tmp_path_factory.mktemp("s") / "s.hdr", Y, interleave)
        for budget, count in ((2**30, 1), (blocks * bytes_per_line(scene.cube), workers)):
            found = totals_of(scene, budget, count, each, lambda raw, lines: seen.append(lines))
            assert (found.pixels, found.pairs) == (expected[0], expected[3])
            for one, other in (
                (found.total, expected[1]),
                (found.products, expected[2]),
                (found.differences, expected[4]),
            ):
                np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-9)
            if before is not None:
                assert all(np.array_equal(one, other) for one, other in zip(found, before))
            before = found
            assert seen[0].start == 0 and seen[-1].stop == len(Y)
            assert all(one.stop == other.start for one, other in itertools.pairwise(seen))
            seen.clear()


@settings(max_examples=40)
@given(
    SHAPES,
    st.integers(0, 99),
    st.sampled_from([0.0, 0.1, 1.0]),
    st.sampled_from(["bip", "bil", "bsq"]),
    st.integers(1, 3),
)
def test_numbers_of_all_pixels(tmp_path_factory, shape, seed, masked, interleave, workers):
    """Projections, distances, and numbers along a direction, in order, NaN where masked."""
    Y, L = wild(seed, *shape, masked), shape[2]
    scene = scene_of(tmp_path_factory.mktemp("s") / "s.hdr", Y, interleave)
    random = np.random.default_rng(seed)
    U, shift, mean = random.standard_normal((L, 3)), random.standard_normal(3), random.standard_normal(L)
    flat = np.where((Y == -9).any(axis=2, keepdims=True), np.nan, Y.astype(float)).reshape(-1, L)
    centred, budget = flat - mean, 3 * bytes_per_line(scene.cube) + 24 * shape[1]
    for expected, call in (
        (flat @ U - shift, lambda visit: projections(scene, budget, workers, U, shift, visit)),
        (centred @ U[:, 0], lambda visit: numbers(scene, budget, workers, mean, U[:, 0].copy(), visit)),
        (np.square(centred).sum(axis=1), lambda visit: numbers(scene, budget, workers, mean, np.empty(0), visit)),
    ):
        found = []
        call(lambda first, values, found=found: found.append((first, values.copy())))
        assert [first for first, _ in found] == np.cumsum([0, *(len(values) for _, values in found[:-1])]).tolist()
        np.testing.assert_allclose(np.concatenate([values for _, values in found]), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("budget", [2**30, 100])
def test_views_of_several_scenes(tmp_path, budget):
    """Two views in one pass, in memory or in scratch files, of pixels numbered over all scenes; one view is changed as it is made."""
    cubes = [wild(k, lines, 23, 11, 0.1) for k, lines in enumerate((7, 1, 12))]
    scenes = [scene_of(tmp_path / f"{k}.hdr", Y) for k, Y in enumerate(cubes)]
    passes, random = Passes(scenes, 2**20, 2), np.random.default_rng(0)
    U, V = random.standard_normal((11, 2)), random.standard_normal((11, 3))
    centre = np.array([0.5, -1.0, 0.25])
    flat = np.concatenate([Y.reshape(-1, 11) for Y in cubes]).astype(float)
    flat[(flat == -9).any(axis=1)] = np.nan
    sums = ((flat @ V - 1) @ centre)[:, None]
    both = flat @ U, np.where(sums > 0, (flat @ V - 1) / sums, np.nan)
    with passes.points([View(U, np.zeros(2)), View(V, np.ones(3), centre)], budget) as views:
        for points, expected in zip(views, both):
            assert (points.held is None) == (budget == 100)
            rows = np.concatenate([rows for _, rows in points.pieces()])
            np.testing.assert_allclose(rows, expected, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(points.row(5), expected[5], rtol=1e-9, atol=1e-9)
    assert passes.made == 1


def test_the_first_of_equal_rows_is_the_best(tmp_path, monkeypatch):
    """However many threads share the search."""
    Y = np.tile(np.arange(1, 14, dtype=np.int16)[:, None], (40, 1, 6))
    passes = Passes([scene_of(tmp_path / "s.hdr", Y)], 2**20, 3)
    for budget in (2**20, 0):
        with passes.points([View(np.eye(6), np.zeros(6))], budget) as (points,):
            monkeypatch.setattr(type(points), "FEWEST", 50)
            monkeypatch.setattr(type(points), "ROWS", 111)
            F = np.eye(7)[:, [0, 6]]
            assert points.farthest_each(F) == ([12, 0], [13.0, 1.0])
            assert points.farthest_each(F * np.nan) == ([0, 0], [-1.0, -1.0])
            assert points.largest_residual(2.0, np.eye(7)[1:6]) == (12, 13.0**2 + 4.0)
            assert points.largest_along(F, 3) == [[12, 25, 38], [0, 1, 2]]


def test_an_error_ends_the_pass(tmp_path):
    scene = scene_of(tmp_path / "s.hdr", wild(0, 40, 30, 5, 0.0))

    def fail(first, rows):
        raise OSError("full")

    refused(OSError, "full", projections, scene, 2**20, 2, np.eye(5), np.zeros(5), fail)
    refused(OSError, "full", lambda: Passes([scene], 2**20, 2).project(np.eye(5), np.zeros(5), fail))
    refused(OSError, "full", totals_of, scene, 2**20, 2, 1, fail)
