"""Bands less the first one of their window, in pixels and library, against the same done by hand."""

import numpy as np
import pytest
from conftest import falsify_record, read_map, refused, write_csv, write_cube
from test_cli import unmix as command

import unmix
from unmix.commands.verify import verify
from unmix.library import load
from unmix.scene import ReadOptions, open_scene

WAVES = np.linspace(400, 2400, 21)
WINDOWS = "650-900,2000-2300"  # 700, 800, 900; 2000 to 2300
FIRST = {4: 3, 5: 3, 17: 16, 18: 16, 19: 16}


@pytest.fixture(params=["bip", "bil", pytest.param("bsq", marks=pytest.mark.slow)])
def tied(request, tmp_path):
    """A scene of stored numbers with a scale, and a library on a finer axis; the tied pixels and spectra, by hand."""
    random = np.random.default_rng(3)
    fine = np.linspace(380, 2420, 103)
    centres = random.uniform(400, 2400, (4, 6))
    E = np.stack([0.1 + 0.5 * np.exp(-(((fine[:, None] - one) / 300) ** 2)).sum(axis=1) for one in centres], axis=1)
    write_csv(tmp_path / "library.csv", E, fine, names=[f"e{j}" for j in range(4)], classes=[*"aabb"])
    A = random.dirichlet(np.ones(4), (6, 9))
    at = np.stack([np.interp(WAVES, fine, E[:, j]) for j in range(4)], axis=1)
    offsets = random.uniform(-0.1, 0.1, (6, 9, 1))  # what tying takes away within a window
    stored = np.round((A @ at.T + offsets + 0.003 * random.standard_normal((6, 9, 21))) * 10000).astype(np.int16)
    stored[2, 3] = -9999
    stored[4, 1, 3] = -9999  # the first band of a window
    bad = np.ones(21, int)
    bad[[2, 10]] = 0
    path = write_cube(
        tmp_path / "x.hdr",
        stored,
        request.param,
        data_ignore_value=-9999,
        reflectance_scale_factor=10000,
        wavelength="{" + ", ".join(f"{w:g}" for w in WAVES) + "}",
        wavelength_units="nanometers",
        bbl="{" + ", ".join(map(str, bad)) + "}",
    )
    return path, tmp_path / "library.csv", stored


def by_hand(values):
    """Bands in use (..., 21) less the first one of their window."""
    kept = [b for b in range(21) if b not in (2, 10, 3, 16)]
    return np.stack([values[..., b] - (values[..., FIRST[b]] if b in FIRST else 0.0) for b in kept], axis=-1)


def test_bands_are_tied_in_pixels_and_library(tied):
    path, library, stored = tied
    scene, bands, nodata = open_scene(path, ReadOptions(tie=WINDOWS))
    assert nodata is None and bands.index.tolist() == [b for b in range(21) if b not in (2, 10, 3, 16)]
    plain = open_scene(path)[0]
    given = unmix.library.fit(load(library), plain, np.arange(21)).matrix
    fitted = unmix.library.fit(load(library), scene, bands.index)
    np.testing.assert_allclose(fitted.matrix, by_hand(given.T).T, atol=1e-12)
    np.testing.assert_allclose(fitted.wavelengths, WAVES[bands.index])
    for lines in (slice(0, 6), slice(2, 3)):
        raw = scene.read(lines, np.empty(6 * 9 * 21 * 8, np.uint8))
        values = unmix.io.cube.by_pixel(raw, scene.interleave)[..., bands.index]
        expected = by_hand(np.where(stored == -9999, np.nan, stored * 1e-4)[lines])
        np.testing.assert_allclose(values, expected, atol=1e-12)


@pytest.mark.parametrize(
    ("tied", "method"),
    [
        *((interleave, method) for interleave in ("bip", "bil", "bsq") for method in ("fcls", "nnls")),
        *(pytest.param(interleave, "mesma", marks=pytest.mark.slow) for interleave in ("bip", "bil", "bsq")),
    ],
    indirect=["tied"],
)
def test_from_file_to_file(tied, tmp_path, method):
    path, library, stored = tied
    words = {"residual": True} | ({"levels": "2-3", "limits": "viper", "max_rmse": 0.5} if method == "mesma" else {})
    out = tmp_path / "out"
    report = unmix.run(path, endmembers=library, method=method, tie=WINDOWS, out_dir=out, **words)
    written = load(out / "x_endmembers.csv")  # as the library is: for another run, tied or not
    assert len(written.matrix) == 19
    whole = np.full((4, 21), np.nan)
    whole[:, [b for b in range(21) if b not in (2, 10)]] = written.matrix.T
    E = by_hand(whole).T
    Y = by_hand(stored * 1e-4)
    if method == "mesma":
        found = unmix.mesma(Y, E, list("aabb"), levels="2-3", limits="viper", max_rmse=0.5)
    else:
        found = unmix.solve(Y, E, method=method)
    masked = np.zeros((6, 9), bool)
    masked[2, 3] = masked[4, 1] = True
    rmse = np.fromfile(out / "x_rmse.img", "<f4").reshape(6, 9)
    np.testing.assert_allclose(rmse, np.where(masked, -9999, found.rmse), rtol=1e-5)
    residual = read_map(out / "x", "residual")
    np.testing.assert_allclose(residual[~masked], (Y - found.abundances @ E.T)[~masked], atol=1e-6)
    assert report["reading"]["tie"] == WINDOWS and report["pixels"]["masked"] + report["pixels"].get("partly", 0) >= 1
    assert verify(out / "x", everything=True).faults == []
    falsify_record(out / "x", lambda record: record["reading"].update({"tie": "650-900"}))
    refused(unmix.OutputError, "damaged", verify, out / "x", everything=True)


@pytest.mark.parametrize("method", ["pcls", pytest.param("mesma", marks=pytest.mark.slow)])
@pytest.mark.parametrize("shade", [False, True])
def test_shade_is_tied_as_well(tied, tmp_path, shade, method):
    path, library, _ = tied
    spectrum = load(library)
    dark = np.column_stack([spectrum.wavelengths, 0.03 + 1e-5 * spectrum.wavelengths])
    rows = [["name", *(f"{w:g}" for w in dark[:, 0])], ["dark", *map(repr, map(float, dark[:, 1]))]]
    (tmp_path / "dark.csv").write_text("\n".join(",".join(row) for row in rows))
    words = {"shade": tmp_path / "dark.csv"} if shade else {}
    unmix.run(path, tie=WINDOWS, endmembers=library, method=method, out_dir=tmp_path / "out", **words)
    assert ("shade" in load(tmp_path / "out/x_endmembers.csv").names) == (shade or method == "pcls")
    assert verify(tmp_path / "out/x", everything=True).faults == []


@pytest.mark.slow
def test_draws_of_spectra_alone(tied, tmp_path):
    words = {"by": "class", "average": "plain", "draws": 5, "draw_spectra": 2, "noise": "none", "method": "pcls"}
    unmix.run(tied[0], endmembers=tied[1], tie=WINDOWS, out_dir=tmp_path / "out", **words)
    assert verify(tmp_path / "out/x", everything=True).faults == []


def test_on_the_command_line(tied, tmp_path):
    path, library, _ = tied
    command("run", path, "-e", library, "--tie", WINDOWS, "-o", tmp_path / "out")
    assert "52 pixels hold the conditions" in command("verify", tmp_path / "out/x")[0]
    refused(unmix.MethodError, "nmf cannot factor", unmix.nmf_scene, path, tie=WINDOWS)
    command("check", path, "-e", library, "--tie", WINDOWS)
