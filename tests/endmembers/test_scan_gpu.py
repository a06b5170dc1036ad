"""Sums and projections of a scene on a GPU are the bits of the CPU's, whatever the interleave, type, mask and block."""

import numpy as np
import pytest
from conftest import write_cube

from unmix.devices import choose_device, count_gpus, simulated
from unmix.endmembers.averaged import averaged
from unmix.endmembers.passes import Passes
from unmix.endmembers.scan import Gpu, View, threads, totals_of
from unmix.io import Scene, bytes_per_line, open_cube
from unmix.methods import Extraction
from unmix.scene.bands import choose_bands

pytestmark = [pytest.mark.sim, pytest.mark.skipif(not count_gpus(), reason="no CUDA GPU here; the simulator runs this")]
UNIT = 16
# Lines, samples, bands: in the simulator a block of threads takes a tenth of a second.
SHAPES = [(4, 9, 3)] if simulated() else [(5, 13, 3), (9, 40, 70), (3, 1, 130), (7, 200, 224)]


@pytest.fixture(autouse=True)
def small_units(monkeypatch):
    monkeypatch.setattr(threads, "UNIT", UNIT)
    monkeypatch.setattr(threads, "WORTH_A_GPU", 0.0)


@pytest.fixture
def gpu():
    device = choose_device("cuda:0")
    yield Gpu(device, 2**30)
    device.close()


def scene_of(tmp_path, shape, interleave, kind, seed):
    """Stored values of which some are equal to their neighbours and some are masked."""
    random = np.random.default_rng(seed)
    order, kind = kind[0] if isinstance(kind, str) else "<", np.dtype(kind).newbyteorder("=")
    Y = random.integers(1, 200, shape).astype(kind)
    Y[:, 1:][random.random((shape[0], shape[1] - 1)) < 0.2] = 5
    Y[random.random(shape[:2]) < 0.15, -1] = -9 if kind.kind != "u" else 0
    if kind.kind == "f":
        Y[0, 0, 0] = np.nan
    path = write_cube(tmp_path / "scene.hdr", Y, interleave, order, data_ignore_value=-9 if kind.kind != "u" else 0)
    cube = open_cube(path)
    return Scene(cube, choose_bands(cube, "all", None), cube.nodata)


CASES = (
    [("bip", np.int16), ("bil", np.float32), ("bsq", "averaged")]
    if simulated()
    else [
        (interleave, kind)
        for interleave in ("bip", "bil", "bsq")
        for kind in (np.int16, ">i2", np.uint8, np.float32, np.float64, "averaged")
    ]
)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("interleave", "kind"), CASES)
def test_sums_and_projections_are_the_same_bits(tmp_path, gpu, shape, interleave, kind):
    is_averaged = kind == "averaged"
    scene = scene_of(tmp_path, shape, interleave, np.float32 if is_averaged else kind, 3)
    scene = averaged(scene) if is_averaged else scene
    budget = 2 * threads.SLOTS * 2 * bytes_per_line(scene.cube)  # blocks of two lines, which end within units
    seen = {"cpu": [], "gpu": []}
    with np.errstate(invalid="ignore"):
        one = totals_of(scene, budget, 2, 2, lambda raw, lines: seen["cpu"].append(lines))
        other = totals_of(scene, budget, 2, 2, lambda raw, lines: seen["gpu"].append(lines), gpu)
    assert other[:2] == one[:2]
    for lines in seen.values():  # blocks of a GPU are larger
        assert [line for some in lines for line in range(some.start, some.stop)] == list(range(shape[0]))
    for left, right in zip(one[2:], other[2:]):
        np.testing.assert_array_equal(left, right)

    random, L = np.random.default_rng(0), shape[2]
    views = [
        View(random.standard_normal((L, d)), random.standard_normal(d), centre)
        for d, centre in ((2, None), (3, random.standard_normal(3)))
    ]
    one, other = (Passes([scene, scene], budget, 2, gpu=where).points(views, 2**20) for where in (None, gpu))
    with one as of_cpu, other as of_gpu:
        for left, right in zip(of_cpu, of_gpu):
            same_searches(left, right, random)


def same_searches(left, right, random):
    """Every search among the pixels of a CPU finds the places and the bits that a GPU's finds."""
    d = left.d
    assert type(right) is not type(left) and (right.pixels, right.d) == (left.pixels, d)
    if simulated():
        right.blocks = 1
    F = random.standard_normal((d + 1, 4))
    F[:, 3] = 0.0  # where all are equal the first is the best
    assert left.farthest_each(F) == right.farthest_each(F)
    inverse, limits = np.roll(F.T, 1, axis=1), np.abs(random.standard_normal(4))
    for one, other in zip(left.count_use(inverse, limits), right.count_use(inverse, limits)):
        np.testing.assert_array_equal(one, other)
    for count in (5,) if simulated() else (1, 5, left.pixels + 3):
        assert left.largest_along(F, count) == right.largest_along(F, count)
    for rows in (d - 1,) if simulated() else range(d):
        Q = np.linalg.qr(random.standard_normal((d + 1, d)))[0].T[:rows].copy()
        for constant in (1.5,) if simulated() else (0.0, 1.5):
            assert left.largest_residual(constant, Q) == right.largest_residual(constant, Q)
    for n in (0, left.pixels - 1):
        np.testing.assert_array_equal(left.row(n), right.row(n))
    np.testing.assert_array_equal(left.thinned(3), right.thinned(3))
    np.testing.assert_array_equal(left.rows([5, 0, 5, left.pixels - 1]), right.rows([5, 0, 5, left.pixels - 1]))
    pieces = (np.concatenate([rows for _, rows in some.pieces()]) for some in (left, right))
    np.testing.assert_array_equal(*pieces)


def test_a_gpu_serves_what_pays_and_fits(tmp_path, gpu, monkeypatch):
    scene = scene_of(tmp_path, (4, 9, 3), "bip", np.int16, 3)
    assert gpu.plan(scene, 2**20, 1) is not None
    assert gpu._replace(memory=100).plan(scene, 2**20, 1) is None
    monkeypatch.setattr(threads, "WORTH_A_GPU", 0.12)
    assert gpu.plan(scene, 2**20, 1) is None


@pytest.mark.skipif(simulated(), reason="takes minutes there")
@pytest.mark.parametrize("how", ["vca", "nfindr", "spa", "sisal", "auto"])
def test_the_same_pixels(tmp_path, gpu, how):
    from unmix.endmembers import extract_from

    random = np.random.default_rng(5)
    E, A = random.random((40, 4)) + 0.1, random.dirichlet(np.full(4, 0.5), (60, 50))
    Y = (A * random.uniform(0.5, 1.0, (60, 50, 1))) @ E.T + 0.002 * random.standard_normal((60, 50, 40))
    cube = open_cube(write_cube(tmp_path / "scene.hdr", Y.astype(np.float32), "bil"))
    scene = Scene(cube, choose_bands(cube, "all", None), cube.nodata)
    found = [extract_from([scene], Extraction(count=4, extract=how), 2**28, 2, where)[0] for where in (None, gpu)]
    np.testing.assert_array_equal(found[0].matrix, found[1].matrix)
    assert found[0].pixels == found[1].pixels
