"""Minimum noise fractions and the pixel purity index, against the same in plain numpy."""

import csv
import json

import numpy as np
import pytest
from conftest import mix, rest_slow, write_cube
from scipy.linalg import eigh
from test_cli import unmix as command
from test_export import values_of

import unmix
from unmix.devices import simulated

pytestmark = pytest.mark.skipif(simulated(), reason="nothing of it runs on a GPU")
MAP = "{UTM, 1, 1, 500000, 4000000, 30, 20, 11, North, WGS-84, units=Meters}"
WAVES = "{" + ", ".join(str(400 + 10 * b) for b in range(8)) + "}"


@pytest.fixture
def scene(tmp_path):
    """A scene whose neighbours in a line are alike but for noise that bands share, with masked pixels; and its spectra."""
    random = np.random.default_rng(2)
    E = random.uniform(0.1, 0.9, (8, 3))
    A = np.repeat(random.dirichlet(np.ones(3), (20, 6)), 5, axis=1)
    mixing = 0.02 * random.standard_normal((8, 8))
    Y = A @ E.T + random.standard_normal((20, 30, 8)) @ mixing
    Y[4, 5] = Y[11] = -1
    path = write_cube(
        tmp_path / "s.hdr", Y, data_ignore_value=-1, map_info=MAP, wavelength=WAVES, wavelength_units="nanometers"
    )
    return path, Y


def fractions(Y):
    """Ratios, axes and mean by scipy's generalised eigenvalues."""
    valid = Y[..., 0] != -1
    both = valid[:, 1:] & valid[:, :-1]
    D = (Y[:, 1:] - Y[:, :-1])[both]
    pixels = Y[valid]
    ratios, W = eigh(np.cov(pixels.T, bias=True), D.T @ D / (2 * len(D)))
    return ratios[::-1], W[:, ::-1], pixels.mean(axis=0), valid


def test_fractions_against_scipy(tmp_path, scene):
    path, Y = scene
    ratios, W, mean, valid = fractions(Y)
    found = unmix.mnf(path, count=3)
    np.testing.assert_allclose(found["ratio"], ratios, rtol=1e-6)
    np.testing.assert_allclose(found["coherence"], 1 - 1 / ratios, rtol=1e-5)
    cube, Z = values_of(tmp_path / "s_mnf.hdr")
    expected = (Y[valid] - mean) @ W[:, :3]
    signs = np.sign((expected * Z[valid]).sum(axis=0))
    np.testing.assert_allclose(Z[valid], expected * signs, atol=2e-5)
    assert (Z[~valid] == -9999).all() and cube.nodata == -9999 and "500000" in cube.fields["map info"]
    assert (W[np.abs(W).argmax(axis=0), range(8)] * np.append(signs, np.ones(5)) > 0)[:3].all()
    table = list(csv.DictReader((tmp_path / "s_mnf.csv").open()))
    np.testing.assert_allclose([float(row["ratio"]) for row in table], ratios, rtol=1e-6)


@pytest.mark.parametrize("count", [2, 8])
def test_the_spectra_again(tmp_path, scene, count):
    path, Y = scene
    _, W, mean, valid = fractions(Y)
    unmix.mnf(path, count=count, inverse=True)
    cube, again = values_of(tmp_path / "s_denoised.hdr")
    expected = mean + (Y[valid] - mean) @ W[:, :count] @ np.linalg.inv(W)[:count]
    np.testing.assert_allclose(again[valid], expected, atol=1e-6)
    assert cube.wavelengths.tolist() == [400 + 10 * b for b in range(8)]
    if count == 8:
        np.testing.assert_allclose(again[valid], Y[valid], atol=1e-6)


def test_purity_against_numpy(tmp_path, scene):
    path, Y = scene
    valid = Y[..., 0] != -1
    found = unmix.ppi(path, skewers=700, seed=3)
    random = np.random.Generator(np.random.PCG64(3))
    counts = np.where(valid.ravel(), 0, -1)
    numbers = np.flatnonzero(valid.ravel())
    for u in random.standard_normal((700, 8)):
        along = (Y[valid] - Y[valid].mean(axis=0)) @ u
        counts[numbers[along.argmax()]] += 1
        counts[numbers[along.argmin()]] += 1
    cube, image = values_of(tmp_path / "s_ppi.hdr")
    np.testing.assert_array_equal(image[..., 0].ravel(), counts)
    assert image.sum() + (~valid).sum() == 1400 and cube.nodata == -1 and image.dtype == np.int32
    rows = list(csv.DictReader((tmp_path / "s_ppi.csv").open()))
    assert [[int(row[key]) for key in ("line", "sample", "count")] for row in rows] == found["pixels"]
    assert sorted((row[2] for row in found["pixels"]), reverse=True) == [row[2] for row in found["pixels"]]
    assert [float(rows[0]["x"]), float(rows[0]["y"])] == [
        500000 + 30 * (int(rows[0]["sample"]) + 0.5),
        4000000 - 20 * (int(rows[0]["line"]) + 0.5),
    ]


@pytest.mark.parametrize("interleave", ["bip", "bsq"])
def test_memory_threads_and_interleave_do_not_change_a_byte(tmp_path, scene, interleave):
    path, Y = scene
    (tmp_path / "o").mkdir()
    fields = {"data_ignore_value": -1, "map_info": MAP, "wavelength": WAVES, "wavelength_units": "nanometers"}
    other = write_cube(tmp_path / "o/s.hdr", Y, interleave, **fields)
    for call, names in (
        (unmix.mnf, ("s_mnf.img", "s_mnf.hdr", "s_mnf.csv")),
        (unmix.ppi, ("s_ppi.img", "s_ppi.hdr", "s_ppi.csv")),
    ):
        words = {"skewers": 300} if call is unmix.ppi else {}
        call(path, **words, threads=1, out_dir=tmp_path / "a")
        call(other, **words, memory="130k", threads=3, out_dir=tmp_path / "b")
        for name in names:
            assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_part_has_the_places_of_the_whole(tmp_path, scene):
    path, _ = scene
    part = unmix.ppi(path, skewers=50, lines="2:9", samples="4:20", out_dir=tmp_path / "p")
    assert all(2 <= line < 9 and 4 <= sample < 20 for line, sample, _ in part["pixels"])
    rows = list(csv.DictReader((tmp_path / "p/s_ppi.csv").open()))
    assert float(rows[0]["x"]) == 500000 + 30 * (int(rows[0]["sample"]) + 0.5)


def test_on_the_command_line(tmp_path, scene):
    path, _ = scene
    out, _ = command("mnf", path, "-n", "2", "-o", tmp_path / "o")
    assert out.splitlines()[3].endswith("not kept") and out.splitlines()[-1].endswith("s_mnf.csv")
    assert json.loads(command("mnf", path, "-n", "2", "-o", tmp_path / "o", "--overwrite", "--json")[0])["count"] == 2
    assert "exists already" in command("mnf", path, "-o", tmp_path / "o", code=1)[1]
    command("ppi", path, "--skewers", "20", "-o", tmp_path / "o", says="an extreme of 20 directions")
    out, _ = command("mnf", path, "--inverse", "-o", tmp_path / "o")  # beside the fractions
    assert out.splitlines()[-1].endswith("s_denoised.csv")
    assert "must be from 1 to 8" in command("mnf", path, "-n", "9", code=2)[1]
    before = sorted(tmp_path.iterdir())
    write_cube(tmp_path / "t.hdr", np.ones((1, 3, 8)))
    assert (
        "0 pairs of neighbours in a line differ, too few for the noise" in command("mnf", tmp_path / "t.hdr", code=3)[1]
    )
    assert [one for one in sorted(tmp_path.iterdir()) if one not in before] == [tmp_path / "t.hdr", tmp_path / "t.img"]


@pytest.mark.parametrize("interleave", rest_slow(["bip", "bil", "bsq"], "bil"))
@pytest.mark.parametrize(("by", "continuum"), [("sam", False), ("sid", False), ("sam", True)])
def test_every_pixel_by_name(tmp_path, interleave, by, continuum):
    """As `library match` of all pixels as spectra, which its own tests hold to plain formulas; masked and far pixels have no name."""
    from unmix.library import Endmembers, match

    _, E, Y = mix(5, (7, 9), 8, 4, alpha=0.5)
    Y[2, 3] = -1
    cube = write_cube(
        tmp_path / "s.hdr", Y, interleave, data_ignore_value=-1, wavelength=WAVES, wavelength_units="nanometers"
    )
    waves = np.array([400.0 + 10 * b for b in range(8)])
    library = Endmembers(("a", "b", "c", "d"), E, waves, classes=("x", "x", "y", "y"))
    library.write(tmp_path / "l.csv", None, None)
    most = 5.0 if by == "sam" else 0.02
    found = unmix.match(
        cube, tmp_path / "l.csv", distance=by, continuum=continuum, max_distance=most, memory="40k", threads=2
    )
    _, image = values_of(tmp_path / "s_match.hdr")
    assert (image[2, 3] == -9999).all()
    unit = np.degrees(1) if by == "sam" else 1
    counts = dict.fromkeys(("a", "b", "c", "d"), 0)
    for line, sample in np.argwhere(Y[..., 0] != -1):
        (ranked,) = match(Endmembers(("p",), Y[line, sample][:, None], waves), [library], by, continuum)
        number, distance, following = image[line, sample]
        np.testing.assert_allclose(
            [distance, following], [ranked[0].distance * unit, ranked[1].distance * unit], rtol=1e-5, atol=1e-6
        )
        is_near = ranked[0].distance * unit <= most
        assert number == ("abcd".index(ranked[0].name) + 1 if is_near else 0)
        counts[ranked[0].name] += is_near
    assert {one["name"]: one["pixels"] for one in found["spectra"]} == counts
    assert found["none"] == 62 - sum(counts.values())
    assert [one["class"] for one in found["spectra"]] == ["x", "x", "y", "y"]


def test_match_on_the_command_line(tmp_path, scene):
    path, _ = scene
    (tmp_path / "l.csv").write_text(
        "name," + ",".join(str(400 + 10 * b) for b in range(8)) + "\n" + "a" + ",0.5" * 8 + "\n"
    )
    out, _ = command("match", path, "-e", tmp_path / "l.csv", "-o", tmp_path / "o")
    assert "569     1  a" in out and out.splitlines()[-1].endswith("s_match.csv")
    assert "above 0" in command("match", path, "-e", tmp_path / "l.csv", "--max-distance", "0", code=2)[1]
    command("match", path, "-e", tmp_path / "none.csv", code=3, tells="no such file")
    (tmp_path / "s_match.csv").write_text((tmp_path / "l.csv").read_text())
    assert "would replace" in command("match", path, "-e", tmp_path / "s_match.csv", "--overwrite", code=2)[1]


def test_noise_of_each_band(tmp_path):
    """Against least squares of each band on all others, and the noise that was added; a band that is bad stands out."""
    random = np.random.default_rng(9)
    sigma = random.uniform(0.002, 0.01, 12)
    sigma[7] = 0.1
    E = random.uniform(0.1, 0.9, (12, 3))
    Y = random.dirichlet(np.ones(3), (60, 50)) @ E.T + sigma * random.standard_normal((60, 50, 12))
    path = write_cube(tmp_path / "s.hdr", Y, wavelength="{" + ", ".join(str(500 + 10 * b) for b in range(12)) + "}")
    found = unmix.mnf(path, bands="1-10,12")["noise"]
    kept = [*range(10), 11]
    flat = Y.reshape(-1, 12)[:, kept]
    for b in range(11):
        others = np.delete(flat, b, axis=1)
        left = flat[:, b] - others @ np.linalg.lstsq(others, flat[:, b], rcond=None)[0]
        assert found["by_bands"][b] == pytest.approx(np.sqrt((left**2).sum() / (len(flat) - 10)), rel=1e-4)
    assert 0.9 < np.median(np.array(found["by_bands"]) / sigma[kept]) < 1.4
    assert int(np.argmax(found["by_bands"])) == 7 and min(found["by_neighbours"]) > 0.02
    rows = list(csv.DictReader((tmp_path / "s_mnf_noise.csv").open()))
    assert [(row["band"], row["nm"]) for row in rows[-2:]] == [("10", "590"), ("12", "610")]
    assert float(rows[7]["by_bands"]) == pytest.approx(found["by_bands"][7], rel=1e-4)
