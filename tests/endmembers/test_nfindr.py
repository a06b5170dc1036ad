"""N-FINDR: the simplex that no exchange enlarges, against every exchange one after the other; and VCA refined by it."""

import itertools

import numpy as np
import pytest
from conftest import falsify_record, mix, write_cube
from test_cli import unmix as command
from test_cone import matched
from test_endmembers import extract

import unmix
from unmix.commands.verify import verify
from unmix.devices import simulated
from unmix.library import load

pytestmark = pytest.mark.skipif(simulated(), reason="nothing of it runs on a GPU")


def scene(seed, p, lines=9, samples=13, L=12, noise=0.02):
    """Mixtures without pure pixels, (lines, samples, L)."""
    return mix(seed, (lines, samples), L, p, (0, 1), noise, 0.7)[2]


def coordinates(Y, p):
    """(1, z) of all pixels in rows: the p - 1 principal components."""
    flat = Y.reshape(-1, Y.shape[2])
    centred = flat - flat.mean(axis=0)
    V = np.linalg.svd(centred, full_matrices=False)[2][: p - 1]
    return np.column_stack([np.ones(len(flat)), centred @ V.T])


def volume(H, places):
    return abs(np.linalg.det(H[list(places)]))


@pytest.mark.parametrize("p", [2, 3, 4, 6])
@pytest.mark.parametrize(("name", "refine"), [("nfindr", True), ("vca", True)])
def test_no_exchange_enlarges_the_simplex(tmp_path, name, refine, p):
    for seed in range(4):
        Y = scene(seed, p)
        found = extract(write_cube(tmp_path / f"{seed}.hdr", Y), p, name=name, refine=refine)
        H = coordinates(Y, p)
        places = [line * 13 + sample for line, sample in found.pixels]
        own = volume(H, places)
        largest = max(volume(H, [*places[:k], n, *places[k + 1 :]]) for k in range(p) for n in range(len(H)))
        assert largest <= own * (1 + 1e-8)
        assert found.simplex["omega"] <= 1 + 1e-9 and found.simplex["log_volume"] == pytest.approx(
            np.log(own), abs=1e-8
        )
        np.testing.assert_array_equal(found.matrix, Y.reshape(-1, 12)[places].T)


def test_the_largest_of_all_simplices(tmp_path):
    """Of three pixels of a small scene, where all can be tried."""
    for seed in range(5):
        Y = scene(seed, 3, lines=4, samples=6)
        found = extract(write_cube(tmp_path / f"{seed}.hdr", Y), 3, name="nfindr", refine=True)
        H = coordinates(Y, 3)
        largest = max(volume(H, places) for places in itertools.combinations(range(24), 3))
        assert np.exp(found.simplex["log_volume"]) == pytest.approx(largest, rel=1e-8)


def test_refined_vca_never_ends_smaller_and_often_larger(tmp_path):
    gains = []
    for seed in range(6):
        Y = scene(seed, 5)
        path, H = write_cube(tmp_path / f"{seed}.hdr", Y), coordinates(Y, 5)
        plain, better = (extract(path, 5, seed, refine=refine) for refine in (False, True))
        sizes = [volume(H, [line * 13 + sample for line, sample in found.pixels]) for found in (plain, better)]
        assert sizes[1] >= sizes[0] * (1 - 1e-12) and plain.simplex is None
        gains.append(sizes[1] / sizes[0])
    assert max(gains) > 1.1


@pytest.mark.parametrize("name", ["nfindr", "vca"])
def test_the_same_pixels_for_any_blocks_threads_and_units(tmp_path, name):
    Y = scene(1, 7)
    reference = extract(write_cube(tmp_path / "x.hdr", Y), 7, name=name, refine=True)
    for interleave, budget, threads in (("bsq", 3000, 1), ("bil", 20_000, 3)):
        again = extract(write_cube(tmp_path / f"{interleave}.hdr", Y, interleave), 7, 0, budget, threads, name, True)
        assert again.pixels == reference.pixels and again.simplex["exchanges"] == reference.simplex["exchanges"]
    assert extract(write_cube(tmp_path / "y.hdr", 4096.0 * Y), 7, name=name, refine=True).pixels == reference.pixels


@pytest.mark.parametrize("name", ["nfindr", "vca"])
def test_means_of_the_purest_pixels(tmp_path, name):
    """Against barycentric coordinates of all pixels; the places are in the record, and the corners stay where they are."""
    Y = scene(6, 4)
    Y[2, 3] = -9.0
    path = write_cube(tmp_path / "x.hdr", Y, data_ignore_value=-9)
    plain = extract(path, 4, name=name, refine=True)
    report = unmix.run(path, count=4, extract=name, smooth=7, device="cpu", browse=False)
    library = unmix.library.load(tmp_path / "x_endmembers.csv")
    valid = np.flatnonzero(Y[..., 0].ravel() != -9)
    H = np.full((9 * 13, 4), np.nan)
    H[valid] = coordinates(Y.reshape(1, -1, 12)[:, valid], 4)
    places = [line * 13 + sample for line, sample in plain.pixels]
    B = H @ np.linalg.inv(H[places])
    for k in range(4):
        nearest = valid[np.argsort(-B[valid, k], kind="stable")[:7]]
        assert report["endmembers"]["simplex"]["purest"][k] == [[int(n) // 13, int(n) % 13] for n in nearest]
        np.testing.assert_allclose(library.matrix[:, k], Y.reshape(-1, 12)[nearest].mean(axis=0), rtol=1e-12)
    assert report["endmembers"]["pixels"] == [list(pixel) for pixel in plain.pixels]
    assert "means of the 7 purest pixels" in report["endmembers"]["source"]
    assert verify(tmp_path / "x", everything=True).faults == []
    small = unmix.run(
        path, count=4, extract=name, smooth=7, device="cpu", memory="20k", out_dir=tmp_path / "s", browse=False
    )
    assert small["endmembers"]["simplex"] == report["endmembers"]["simplex"]


def test_masked_pixels_are_never_picked(tmp_path):
    Y = scene(2, 4)
    Y[0], Y[4, 5] = -9.0, np.nan
    found = extract(write_cube(tmp_path / "x.hdr", Y, data_ignore_value=-9), 4, name="nfindr", refine=True)
    assert all(line > 0 and (line, sample) != (4, 5) for line, sample in found.pixels)


def test_scenes_of_too_few_spectra(tmp_path):
    Y = np.tile(scene(3, 2, lines=1, samples=2), (6, 5, 1))  # two spectra
    path = write_cube(tmp_path / "x.hdr", Y)
    with pytest.raises(unmix.CubeError, match="distinct spectra by nfindr, not 4; lower `count`"):
        extract(path, 4, name="nfindr", refine=True)
    assert len(extract(path, 1, name="nfindr", refine=True).pixels) == 1


@pytest.mark.parametrize("name", ["nfindr", "vca"])
@pytest.mark.parametrize("kind", ["<f4", "<f8"])
def test_more_endmembers_than_the_scene_has_materials(tmp_path, name, kind):
    """Mixtures of four without noise but rounding: a fifth corner would be of rounding."""
    path = write_cube(tmp_path / "x.hdr", scene(1, 4, L=40, noise=0.0).astype(kind))
    with pytest.raises(unmix.CubeError, match=f"has only 4 distinct spectra by {name}, not 6"):
        extract(path, 6, 3, name=name, refine=True)
    assert len(extract(path, 4, name=name, refine=True).pixels) == 4


def test_exchanges_end_where_rounding_rules(tmp_path):
    """Of a thin simplex beside a large offset the ratios are rounding, and exchanges by them alone never ended."""
    for seed in range(6):
        random = np.random.default_rng(seed)
        Y = random.dirichlet(np.full(3, 0.5), (8, 8)) @ random.random((17, 3)).T + 1e8
        path = write_cube(tmp_path / f"{seed}.hdr", Y)
        for name in ("nfindr", "vca"):
            try:
                assert len(extract(path, 6, name=name, refine=True).pixels) == 6
            except unmix.CubeError as error:
                assert "distinct spectra" in str(error)


def test_a_hot_pixel_hides_no_other(tmp_path):
    Y = scene(8, 5, lines=20, samples=23, L=30)
    Y[3, 3] = 1e6
    found = extract(write_cube(tmp_path / "x.hdr", Y), 4, name="nfindr", refine=True)
    assert found.quality["odd"] == {"pixels": 1, "places": [[3, 3]]} and len({*found.pixels, (3, 3)}) == 5


@pytest.mark.parametrize(
    "change",
    [
        lambda simplex, found: simplex.update(omega=0.3),
        lambda simplex, found: simplex.update(log_volume=3.0),
        lambda simplex, found: simplex["purest"][0].reverse(),
        lambda simplex, found: found["pixels"].__setitem__(1, [99, 99]),
    ],
)
def test_verify_checks_all_that_is_said_of_the_simplex(tmp_path, change):
    path = write_cube(tmp_path / "x.hdr", scene(5, 4))
    report = unmix.run(path, count=4, extract="vca", smooth=5, device="cpu", browse=False)
    assert report["endmembers"]["simplex"]["omega"] <= 1 + 1e-9
    assert verify(tmp_path / "x", everything=True).faults == []
    falsify_record(tmp_path / "x", lambda record: change(record["endmembers"]["simplex"], record["endmembers"]))
    assert "is not what is found again" in verify(tmp_path / "x", everything=True).faults[0]


def test_the_command(tmp_path):
    path = write_cube(tmp_path / "x.hdr", scene(5, 4))
    command("run", path, "-n", "4", "--extract", "vca", "--device", "cpu")
    err = command("run", path, "-n", "4", "--device", "cpu", "--no-refine", "--skip-existing", code=1)[1]
    assert "is of another run: refine (True, now None)" in err  # VCA's own pixels are another run
    command("endmembers", path, "-n", "4", "--extract", "nfindr", "-o", tmp_path / "n")
    assert (tmp_path / "n/x_endmembers.csv").exists()


@pytest.mark.real
@pytest.mark.parametrize(("name", "least", "smoothed"), [("jasper", 0.165, 0.07), ("samson", 0.075, 0.05)])
def test_angles_to_the_reference(data, name, least, smoothed):
    E = load(data / name / f"{name}_truth_endmembers.csv").matrix
    for algorithm, seed, smooth in (("nfindr", 0, 0), ("vca", 0, 0), ("vca", 1, 0), ("vca", 2, 100)):
        found = extract(
            data / name / f"{name}.hdr", E.shape[1], seed, name=algorithm, refine=True, smooth=smooth
        ).matrix
        assert matched(found, E)[1].mean() < (smoothed if smooth else least)
