"""`run --ranges`: the map is what `unmix.ranges` finds, verified by scipy, the same for any memory, and in the record."""

import json

import numpy as np
import pytest
from conftest import read_map, refused, verify_tells, write_csv, write_cube
from reference.uncertainty import pooled_by_definition
from scipy.stats import norm

import unmix
from unmix.commands.verify import verify
from unmix.errors import LibraryError
from unmix.features.ranges.calibration import Calibration
from unmix.io.fields import NODATA

# Their compiled search takes half a minute where nothing is compiled yet.
pytestmark = pytest.mark.slow

L, KINDS = 24, ("soil", "plant", "plant", "rock")
WORDS = {"browse": False, "device": "cpu", "classes": "kind"}


@pytest.fixture
def scene(tmp_path):
    """A scene of 9 by 11 pixels, a masked one among them, and a library of four spectra in three classes."""
    random = np.random.default_rng(5)
    E = random.uniform(0.1, 1, (L, 4))
    A = random.dirichlet(np.full(4, 0.7), (9, 11))
    Y = (A * random.uniform(0.6, 1, (9, 11, 1))) @ E.T + 0.01 * random.standard_normal((9, 11, L))
    Y = Y.astype("f4")
    Y[2, 3, 4] = np.nan
    nm = [400 + 10 * b for b in range(L)]
    lines = [",".join(["name", "kind", *map(str, nm)])]
    lines += [",".join([f"s{j}", KINDS[j], *map(repr, map(float, E[:, j]))]) for j in range(4)]
    (tmp_path / "e.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "noise.txt").write_text("\n".join(f"{0.008 + 0.0005 * b:.5f}" for b in range(L)))
    cube = write_cube(
        tmp_path / "c.hdr", Y, "bil", wavelength=f"{{{','.join(map(str, nm))}}}", wavelength_units="Nanometers"
    )
    return cube, tmp_path / "e.csv", Y.astype(float), E


def ends_in(stem):
    """Return lower and upper ends (pixels, k) of the pixels that have any."""
    values = read_map(stem, "range").astype(float)
    values = values[values[..., 0] != NODATA]
    return values[:, 0::2], values[:, 1::2]


CASES = [
    ({"method": "nnls", "ranges": "class", "within": 0.01}, {"within": 0.01}, True),
    ({"method": "fcls", "ranges": "each", "within": 0.01}, {"within": 0.01}, False),
    ({"method": "pcls", "ranges": "class", "confidence": 0.9, "noise": "noise.txt"}, {"confidence": 0.9}, True),
    (
        {"method": "nnls", "normalize": "length", "ranges": "class", "within": 0.01},
        {"within": 0.01, "normalize": "length"},
        True,
    ),
    (
        {"method": "nnls", "ranges": "each", "confidence": 0.05, "simultaneous": True, "noise": "noise.txt"},
        {"confidence": 0.05, "simultaneous": True},
        False,
    ),
]


@pytest.mark.parametrize(("words", "asked", "is_by_class"), CASES)
def test_a_map_of_ranges(tmp_path, scene, words, asked, is_by_class):
    cube, library, Y, E = scene
    noise = np.loadtxt(tmp_path / "noise.txt")
    words = words | ({"noise": tmp_path / "noise.txt"} if "noise" in words else {})
    report = unmix.run(cube, endmembers=library, out_dir=tmp_path / "o", **WORDS, **words)
    given = {"noise": noise} if "noise" in words else {}
    found = unmix.ranges(Y, E, KINDS if is_by_class else None, method=words["method"], **asked, **given)
    known = np.isfinite(found.lower[..., 0])
    lower, upper = ends_in(tmp_path / "o/c")
    assert len(lower) == known.sum() and (known.sum() == 98) == ("simultaneous" not in asked)
    lower64, upper64 = found.lower[known], found.upper[known]
    np.testing.assert_allclose(lower, lower64, atol=2e-6)
    np.testing.assert_allclose(upper, upper64, atol=2e-6)
    assert (lower <= lower64 + 1e-9).all() and (upper >= upper64 - 1e-9).all()  # rounded outwards
    names = ("soil", "plant", "rock") if is_by_class else ("s0", "s1", "s2", "s3")
    about = json.loads((tmp_path / "o/c_run.json").read_text())["ranges"]
    assert about == report["ranges"] and [one["name"] for one in about["each"]] == list(names)
    header = (tmp_path / "o/c_range.hdr").read_text()
    assert f"band names = {{{', '.join(f'{name} {end}' for name in names for end in ('lower', 'upper'))}}}" in header
    np.testing.assert_allclose([one["width"] for one in about["each"]], (upper - lower).mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose([one["absent"] for one in about["each"]], (lower == 0).mean(axis=0))
    verify_tells(
        tmp_path / "o/c",
        "range",
        9,
        lambda values: np.multiply(values, 1.05, out=values, where=values > 0),
        fault="its range does not match",
    )


def test_ranges_as_integers_are_rounded_outwards(tmp_path, scene):
    cube, library, *_ = scene
    words = {"endmembers": library, "method": "nnls", "ranges": "class", "within": 0.01, **WORDS}
    unmix.run(cube, out_dir=tmp_path / "o", **words)
    unmix.run(cube, out_dir=tmp_path / "q", quantize=0.003, **words)
    lower, upper = ends_in(tmp_path / "o/c")
    narrow = ends_in(tmp_path / "q/c")
    for moved in (lower - narrow[0], narrow[1] - upper):
        assert (moved >= -1e-6).all() and (moved <= 0.003 + 1e-6).all()
    verify_tells(
        tmp_path / "q/c",
        "range",
        9,
        lambda values: np.add(values, 20, out=values, where=values < 60_000),
        "<u2",
        fault="its range does not match",
    )


def test_noise_of_the_residual_and_shade_taken_out(tmp_path, scene):
    """`noise` auto is the residual's; pcls with `shade_normalize` has ranges of fractions, verified by scipy."""
    cube, library, *_ = scene
    words = {"method": "pcls", "by": "class", "shade_normalize": True, "ranges": "class", "confidence": 0.95}
    unmix.run(cube, endmembers=library, out_dir=tmp_path / "o", **WORDS, **words)
    lower, upper = ends_in(tmp_path / "o/c")
    sums = read_map(tmp_path / "o/c", "fraction").astype(float)
    sums = sums[sums[..., 0] != NODATA][:, :3]
    assert ((lower <= sums + 1e-6) & (sums <= upper + 1e-6)).all() and (upper - lower).max() < 0.9
    assert not verify(tmp_path / "o/c", sample=25).faults  # scipy takes 0.1 s for each of these


@pytest.mark.parametrize("method", ["nnls", "fcls"])
def test_noise_of_each_pixel(tmp_path, scene, method, monkeypatch):
    """A cube of noise: each pixel as `unmix.ranges` has it alone with its noise; without a range where that is missing.

    By one limit for both: that of a run is simulated with the same noise in all bands.
    """
    cube, library, Y, E = scene
    noise = np.random.default_rng(1).uniform(0.005, 0.02, Y.shape).astype("f4")
    noise[1, 1, 3] = 0.0
    words = {"method": method, "ranges": "class", "confidence": 0.9}
    words |= {"noise": write_cube(tmp_path / "n.hdr", noise, "bil")}
    monkeypatch.setattr(Calibration, "limits", lambda self, A, *_: np.full(len(A), 2.7))
    unmix.run(cube, endmembers=library, out_dir=tmp_path / "o", **WORDS, **words)
    found = read_map(tmp_path / "o/c", "range").astype(float)
    assert (found[1, 1] == NODATA).all() and (found[2, 3] == NODATA).all()
    for line, sample in ((0, 0), (4, 7), (8, 10)):
        alone = unmix.ranges(Y[line, sample], E, KINDS, method=method, confidence=0.9, noise=noise[line, sample])
        np.testing.assert_allclose(found[line, sample, 0::2], alone.lower, atol=2e-6)
        np.testing.assert_allclose(found[line, sample, 1::2], alone.upper, atol=2e-6)
    monkeypatch.undo()
    unmix.run(cube, endmembers=library, out_dir=tmp_path / "o", overwrite=True, **WORDS, **words)
    verify_tells(
        tmp_path / "o/c",
        "range",
        9,
        lambda values: np.multiply(values, 1.05, out=values, where=values > 0),
        fault="its range does not match",
    )


def test_classes_that_cannot_be_told_apart(tmp_path):
    """Two nearly equal spectra of two classes: the record names them."""
    random = np.random.default_rng(2)
    E = random.uniform(0.2, 1, (L, 2))
    E = np.column_stack([E, E[:, 1] + 1e-4 * random.standard_normal(L)])
    Y = random.dirichlet(np.ones(2), (4, 5)) @ E[:, :2].T + 0.005 * random.standard_normal((4, 5, L))
    cube, library = write_cube(tmp_path / "c.hdr", Y.astype("f4")), write_csv(tmp_path / "e.csv", E)
    how = {"endmembers": library, "method": "nnls"}
    report = unmix.run(cube, ranges="each", confidence=0.95, browse=False, device="cpu", out_dir=tmp_path / "o", **how)
    pair = report["ranges"]["alike"][0]
    assert pair["names"] == ["em 2", "em 3"] and pair["share"] > 0.5
    assert "cannot be told apart: em 2 and em 3" in report["ranges"]["said"]


def test_a_library_without_classes_or_bounds(tmp_path, scene):
    cube, *_, E = scene
    plain = write_csv(tmp_path / "plain.csv", E)
    words = {"browse": False, "device": "cpu", "within": 0.1, "out_dir": tmp_path / "o"}
    refused(LibraryError, "have no classes", unmix.run, cube, endmembers=plain, method="nnls", ranges="class", **words)
    opposite = write_csv(tmp_path / "opposite.csv", np.column_stack([E, -2 * E[:, :1]]))
    with pytest.raises(LibraryError, match="may have no bound"):
        unmix.run(cube, endmembers=opposite, method="nnls", ranges="each", **words)
    assert not list((tmp_path / "o").glob("*_range*"))


@pytest.mark.parametrize(("method", "bands"), [("nnls", 4), ("fcls", 6)])
def test_noise_of_few_bands_is_pooled_over_the_scene(tmp_path, method, bands):
    """Ends of pixels that are sure of all abundances are as far as Student's t allows; one deviation is 68 %."""
    random = np.random.default_rng(bands)
    E = random.uniform(0.1, 0.9, (bands, 3))
    Y = (E @ random.dirichlet(np.full(3, 60), (12, 10, 1)).swapaxes(2, 3))[..., 0] + 0.002 * random.standard_normal(
        (12, 10, bands)
    )
    words = {"endmembers": write_csv(tmp_path / "e.csv", E), "method": method, "ranges": "each", "browse": False}
    unmix.run(write_cube(tmp_path / "c.hdr", Y), confidence=2 * norm.cdf(1) - 1, device="cpu", **words)
    A, held = unmix.solve(Y, E, method=method).abundances.reshape(-1, 3), int(method == "fcls")
    squares = np.square(Y.reshape(-1, bands) - A @ E.T).sum(axis=1)
    noise = pooled_by_definition(squares, np.full(len(squares), bands - 3 + held))
    lower, upper = ends_in(tmp_path / "c")
    sizes = np.array([noise(square, bands - 3 + held) for square in squares])
    M = np.linalg.pinv(E[:, 1:] - E[:, :1] if held else E)
    M = np.vstack([-M.sum(axis=0), M]) if held else M
    away = sizes[:, None] * np.sqrt(np.square(M).sum(axis=1))
    sure = (8 * away < A).all(axis=1)
    assert sure.sum() > 20
    np.testing.assert_allclose(upper[sure], (A + away)[sure], rtol=1e-5)
    np.testing.assert_allclose(lower[sure], (A - away)[sure], rtol=1e-5)
