"""Matching spectra with a library: against angles and divergences by their definitions, and SPy's; axes, holes, continua, names."""

import json

import numpy as np
import pytest
import spectral
from conftest import refused, write_csv, write_cube
from test_cli import unmix as command

import unmix
from unmix.devices import simulated
from unmix.library import Endmembers, load, match
from unmix.library.matching import names_of, without_continuum
from unmix.library.spectra import angles_between

pytestmark = pytest.mark.skipif(simulated(), reason="nothing of it runs on a GPU")
AXIS = np.linspace(400.0, 2400.0, 81)


def smooth(seed, axis=AXIS, count=6):
    """Reflectance spectra with absorptions, (L, count), as a function of wavelength."""
    random = np.random.default_rng(seed)
    x = (axis - 400) / 2000
    E = np.stack([0.3 + 0.2 * np.sin(random.uniform(1, 6) * x + random.uniform(0, 6)) for _ in range(count)], axis=1)
    for _ in range(4):
        centres, widths, depths = random.random(count), random.uniform(0.02, 0.1, count), random.uniform(0, 0.5, count)
        E *= 1 - depths * np.exp(-0.5 * ((x[:, None] - centres) / widths) ** 2)
    return E


def library(E, axis=AXIS, names="abcdef", classes=None):
    return Endmembers(tuple(names), E, axis, source="known.csv", classes=classes)


def test_angles_and_divergences(tmp_path):
    E, S = smooth(0), smooth(0) * 0.7 + 0.02 * smooth(1)
    spectra = Endmembers(tuple("uvwxyz"), S, AXIS, source="found.csv")
    by_angle, by_information = match(spectra, [library(E)]), match(spectra, [library(E)], "sid")
    theirs = angles_between(S, E)
    np.testing.assert_allclose(theirs, spectral.spectral_angles(S.T[None], E.T)[0], atol=1e-7)
    for i in range(6):
        assert [one.name for one in by_angle[i]] == ["abcdef"[j] for j in np.argsort(theirs[i])]
        np.testing.assert_allclose([one.distance for one in by_angle[i]], np.sort(theirs[i]), atol=1e-7)
        p, Q = S[:, i] / S[:, i].sum(), E / E.sum(axis=0)
        both = [np.sum(p * np.log(p / q)) + np.sum(q * np.log(q / p)) for q in Q.T]
        np.testing.assert_allclose([one.distance for one in by_information[i]], np.sort(both), rtol=1e-9, atol=1e-15)
    assert by_angle[2][0].name == "c" and match(library(E), [library(3.0 * E)])[4][0].distance < 1e-7
    assert angles_between(E, 3.0 * E)[4, 4] < 1e-15


def test_another_axis_and_holes():
    """A finer library is resampled; what it does not cover is left out, and a spectrum with too little of it as well."""
    fine = np.arange(380.0, 2000.0, 2.0)
    E, S = smooth(3, fine), smooth(3)
    E[100:150, 1] = np.nan
    E[: 3 * len(fine) // 4, 2] = np.nan
    found = match(Endmembers(tuple("uvwxyz"), S, AXIS, source="found.csv"), [library(E, fine)])
    assert [matches[0].name for matches in found] == ["a", "b", *[found[2][0].name], "d", "e", "f"]
    assert all(one.name != "c" for matches in found for one in matches)
    assert max(found[j][0].distance for j in (0, 1, 3, 4, 5)) < 0.01


def hull(x, y):
    """The upper convex hull by its definition: the largest of all chords over a point."""
    out = y.copy()
    for n in range(len(x)):
        for i in range(n):
            for j in range(n + 1, len(x)):
                out[n] = max(out[n], y[i] + (y[j] - y[i]) * (x[n] - x[i]) / (x[j] - x[i]))
    return out


def test_without_continuum():
    x, y = AXIS[::3], smooth(4)[::3, 0]
    np.testing.assert_allclose(without_continuum(x, y), y / hull(x, y), rtol=1e-12)
    mixed = np.random.default_rng(0).permutation(len(x))
    np.testing.assert_allclose(without_continuum(x[mixed], y[mixed]), (y / hull(x, y))[mixed], rtol=1e-12)
    # A slope changes the angle, but not the absorption under it.
    spectra = Endmembers(("u",), (smooth(4)[:, [2]] * np.linspace(0.3, 1.2, 81)[:, None]), AXIS, source="found.csv")
    plain, freed = (match(spectra, [library(smooth(4))], continuum=flag)[0] for flag in (False, True))
    assert freed[0].name == "c" and freed[0].distance < plain[0].distance


def test_what_cannot_be_compared():
    spectra = Endmembers(("u",), smooth(0)[:, :1], AXIS, source="found.csv")
    with pytest.raises(unmix.LibraryError, match=r"none of its spectra can be compared with 'u' of found\.csv"):
        match(spectra, [library(smooth(0), AXIS + 5000)])
    with pytest.raises(unmix.LibraryError, match=r"7 channels, but found\.csv has 81"):
        match(spectra, [library(smooth(0)[:7], None)])
    refused(unmix.MethodError, "there is sam and sid", lambda: match(spectra, [library(smooth(0))], "best"))
    with pytest.raises(unmix.MethodError, match="has no wavelengths"):
        match(Endmembers(("u",), smooth(0)[:, :1], None, source="found.csv"), [library(smooth(0))], continuum=True)


def test_the_command(tmp_path):
    E = smooth(5)
    E[:, 1] = E[:, 0] * (1 + 1e-4 * np.sin(AXIS))
    spectra = Endmembers(
        ("one", "two", "three"), np.column_stack([E[:, 0] + 0.01, E[:, 2], E[:, 2] * 1.1]), AXIS, source="x"
    )
    spectra.write(*(tmp_path / f"found.{ending}" for ending in ("csv", "sli", "hdr")))
    library(E, classes=tuple("rrsstt")).write(*(tmp_path / f"known.{ending}" for ending in ("csv", "sli", "hdr")))
    out, _ = command(
        "library", "match", tmp_path / "found.csv", tmp_path / "known.csv", "-n", "2", "-o", tmp_path / "named.csv"
    )
    lines = out.splitlines()
    assert lines[0] == "one ~" and lines[3] == "two" and lines[4].split() == ["0.000°", "c", "(s)"]
    assert load(tmp_path / "named.csv").names in (("a or b", "c", "c 2"), ("b or a", "c", "c 2"))
    found = json.loads(command("library", "match", tmp_path / "found.csv", tmp_path / "known.csv", "--json")[0])
    assert set(found) == {"one", "two", "three"} and len(found["two"]) == 5 and found["two"][0]["kind"] == "s"
    assert names_of(match(spectra, [library(E)])) == load(tmp_path / "named.csv").names
    first = found["one"][0]["distance"]
    limit = ["--max-distance", f"{first / 2}", "-o", tmp_path / "near.csv"]
    out, _ = command("library", "match", tmp_path / "found.csv", tmp_path / "known.csv", *limit)
    assert out.splitlines()[0].startswith("one: none within") and "b" not in out.splitlines()[1:2]
    assert load(tmp_path / "near.csv").names == ("one", "c", "c 2")
    assert (
        "exists"
        in command(
            "library", "match", tmp_path / "found.csv", tmp_path / "known.csv", "-o", tmp_path / "named.csv", code=1
        )[1]
    )


@pytest.mark.real
def test_endmembers_of_jasper_find_their_names(tmp_path, data):
    path = data / "jasper/jasper_truth_endmembers.csv"
    command("endmembers", data / "jasper/jasper.hdr", "-n", "4", "--smooth", "100", "-o", tmp_path)
    found = match(load(tmp_path / "jasper_endmembers.csv"), [load(path)])
    assert sorted(matches[0].name for matches in found) == sorted(load(path).names)


@pytest.mark.parametrize("scale", [1e-315, 1e-163, 1e155, 1e307])
@pytest.mark.parametrize("by", ["sam", "sid"])
def test_spectra_of_any_size(scale, by):
    """Of a pixel, of the library, or of both: the same order and distances."""
    E, S = smooth(0), smooth(0) * 0.7 + 0.02 * smooth(1)
    plain = match(Endmembers(tuple("uvwxyz"), S, AXIS), [library(E)], by)
    for known, spectra in ((E, S * scale), (E * scale, S), (E * scale, S * scale)):
        for continuum in (False, True):
            expected = match(Endmembers(tuple("uvwxyz"), S, AXIS), [library(E)], by, True) if continuum else plain
            found = match(Endmembers(tuple("uvwxyz"), spectra, AXIS), [library(known)], by, continuum)
            exact = 1e-5 if scale < 1e-300 else 1e-12  # 1e-315 has 8 digits
            for one, other in zip(found, expected):
                assert [m.name for m in one][:1] == [m.name for m in other][:1]
                np.testing.assert_allclose(
                    [m.distance for m in one], [m.distance for m in other], rtol=exact, atol=exact
                )


def test_a_scene_without_a_pixel_and_one_with_an_infinite_value(tmp_path):
    E = smooth(0)
    Y = np.tile(E.T, (2, 1, 1))
    Y[0, 0, 3], Y[0, 1] = np.inf, -9.0
    Y = np.concatenate([Y, np.full((1, *Y.shape[1:]), np.inf)])  # a line without a pixel
    cube = write_cube(tmp_path / "x.hdr", Y, wavelength=AXIS, data_ignore_value=-9)
    lib = write_csv(tmp_path / "lib.csv", E, wavelengths=AXIS)
    command("match", cube, "-e", lib, "--continuum")
    found = np.fromfile(tmp_path / "x_match.img", "<f4").reshape(3, 3, 6)[:, 0]
    assert np.all(found[2] == -9999)
    assert found[:2].tolist() == [[-9999, -9999, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6]]
    nothing = write_cube(
        tmp_path / "y.hdr",
        np.full((2, 3, len(AXIS)), -9.0),
        wavelength=AXIS,
        data_ignore_value=-9,
    )
    _, err = command("match", nothing, "-e", lib, code=3)
    assert "all 6 pixels are masked as nodata" in err and not list(tmp_path.glob("y_match*"))


def test_shade_of_a_run_is_not_compared(tmp_path):
    """The endmembers of a run with shade end with a spectrum that is zero: nothing is like it."""
    E = np.random.default_rng(0).uniform(0.1, 0.9, (3, 12))
    for name, rows in (("own", [*E, np.zeros(12)]), ("library", E[::-1])):
        names = ["a", "b", "c", "shade"] if name == "own" else ["x", "y", "z"]
        write_csv(tmp_path / f"{name}.csv", np.transpose(rows), range(400, 520, 10), names=names)
    found = json.loads(command("library", "match", tmp_path / "own.csv", tmp_path / "library.csv", "--json")[0])
    assert {name: matches[0]["name"] for name, matches in found.items()} == {"a": "z", "b": "y", "c": "x"}


def test_a_map_of_classes(tmp_path):
    """Names and colours of the spectra that are found, in the order of the library; windows of wavelengths; read by GDAL."""
    rasterio = pytest.importorskip("rasterio")
    E = smooth(0)
    Y = np.stack([E.T[[0, 2, 2, 5]], E.T[[5, 5, 0, 0]]])
    Y[1, 3] = -9.0
    cube = write_cube(tmp_path / "x.hdr", Y, wavelength=AXIS, data_ignore_value=-9)
    lib = write_csv(tmp_path / "lib.csv", E, wavelengths=AXIS, names=list("uvwxyz"))
    command("match", cube, "-e", lib, "--class-map")
    with rasterio.open(tmp_path / "x_match_class.img") as found:
        assert found.read(1).tolist() == [[1, 2, 2, 3], [3, 3, 1, 0]]
        assert found.colormap(1)[1][:3] == (0, 120, 156) and found.dtypes == ("uint8",)
    header = (tmp_path / "x_match_class.hdr").read_text()
    assert "class names = {unclassified, u, w, z}" in " ".join(header.split()) and "classes = 4" in header
    command("match", cube, "-e", lib, "--class-map", "--overwrite", "--only-nm", f"{AXIS[2]}-{AXIS[-3]}")
    expected = [[1, 3, 3, 6], [6, 6, 1, -9999]]
    assert np.fromfile(tmp_path / "x_match.img", "<f4").reshape(2, 3, 4)[:, 0].tolist() == expected
    command("match", cube, "-e", lib, "--overwrite")
    assert not list(tmp_path.glob("x_match_class*"))  # which would be of the older map
    many = write_csv(tmp_path / "many.csv", np.random.default_rng(0).random((len(AXIS), 300)), wavelengths=AXIS)
    values = np.loadtxt(many, delimiter=",", skiprows=1, usecols=range(1, len(AXIS) + 1)).reshape(20, 15, -1)
    large = write_cube(tmp_path / "m.hdr", values, wavelength=AXIS)
    assert "46 in all, are one" in command("match", large, "-e", many, "--class-map")[1]
    classes = np.fromfile(tmp_path / "m_match_class.img", np.uint8)
    numbers = np.fromfile(tmp_path / "m_match.img", "<f4").reshape(20, 3, 15)[:, 0].ravel()
    assert sorted(numbers) == list(range(1, 301)) and np.bincount(classes)[1:].tolist() == [1] * 254 + [46]
    assert (classes == np.minimum(numbers, 255)).all()  # of equal counts the first
    assert "em 254, others}" in " ".join((tmp_path / "m_match_class.hdr").read_text().split())
