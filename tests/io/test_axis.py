"""Wavelengths for cubes that have none: from a file of any kind, or from the names of bands."""

import json
import logging

import h5py
import numpy as np
import pytest
from click.testing import CliRunner
from conftest import refused, write_csv, write_cube
from products import geotiff, truth
from unmix_cli.main import cli

import unmix
from unmix.commands.verify import verify
from unmix.io import open_cube
from unmix.library import load

WAVES = 450.0 + 10 * np.arange(8)
FWHM = 9.0 + 0.1 * np.arange(8)
TEXTS = {
    "lines.txt": "".join(f"{w}\n" for w in WAVES),
    "micrometres.csv": "".join(f"{w / 1000:.3f}\n" for w in WAVES),
    "row.csv": ",".join(map(str, WAVES)) + "\n",
    "heading.csv": "wavelength_nm,fwhm\n" + "".join(f"{w},{f}\n" for w, f in zip(WAVES, FWHM)),
    "counted.txt": "".join(f"{i} {w / 1000:.4f} {f / 1000:.4f}\n" for i, (w, f) in enumerate(zip(WAVES, FWHM))),
    "comments.txt": "# of the maker\n" + "".join(f"{w}  # band\n" for w in WAVES),
    "library.sli.hdr": f"ENVI\nwavelength = {{{', '.join(map(str, WAVES))}}}\nfwhm = {{{', '.join(map(str, FWHM))}}}\n",
}
HAVE_FWHM = {"heading.csv", "counted.txt", "library.sli.hdr"}


@pytest.fixture
def cube(tmp_path):
    return write_cube(tmp_path / "c.hdr", np.random.default_rng(0).random((4, 5, 8)))


@pytest.mark.parametrize("name", list(TEXTS))
def test_from_a_file(tmp_path, cube, name):
    (tmp_path / name).write_text(TEXTS[name])
    found = open_cube(cube, wavelengths=str(tmp_path / name))
    np.testing.assert_allclose(found.wavelengths, WAVES, rtol=1e-12)
    if name in HAVE_FWHM:
        np.testing.assert_allclose(found.fwhm, FWHM, rtol=1e-12)
    else:
        assert found.fwhm is None


def test_by_the_data_file_of_a_library(tmp_path, cube):
    (tmp_path / "library.sli").write_bytes(b"")
    (tmp_path / "library.sli.hdr").write_text(TEXTS["library.sli.hdr"])
    np.testing.assert_array_equal(open_cube(cube, wavelengths=str(tmp_path / "library.sli")).wavelengths, WAVES)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("450\n460\n", "has 2 rows, but the cube has 8 bands"),
        ("450\nred\n", "line 2: 'red' is no wavelength"),
        ("1 2 3 4\n" * 8, "its lines have 4 columns"),
        ("5 450 9\n" * 8, "does not count the bands"),
        ("450\n" * 7 + "0\n", "not above 0"),
        ("450\n" * 7 + "nan\n", "not finite"),
        ("450 -1\n" * 8, "not above 0"),
        (b"\xff\xfe\x00\x81", "is no text"),
        (None, "no such file"),
    ],
)
def test_files_that_are_wrong(tmp_path, cube, text, words):
    path = tmp_path / "w.txt"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    refused(unmix.CubeError, words, open_cube, cube, wavelengths=str(path))


def test_of_every_format(tmp_path):
    """GeoTIFF; HDF5, where a path within it still is one; MATLAB, where a variable still is one."""
    import scipy.io

    scene = truth(bands=8)
    (tmp_path / "w.txt").write_text(TEXTS["lines.txt"])
    geotiff(tmp_path / "c.tif", scene)
    scipy.io.savemat(tmp_path / "c.mat", {"cube": scene.Y, "w": WAVES + 1})
    with h5py.File(tmp_path / "c.h5", "w") as file:
        file["y"], file["w"] = scene.Y, WAVES + 1
    for name, inside in (("c.tif", None), ("c.mat", "w"), ("c.h5", "/w")):
        dataset = {"c.h5": "/y:yxb", "c.mat": "cube"}.get(name)
        found = open_cube(tmp_path / name, dataset=dataset, wavelengths=str(tmp_path / "w.txt"))
        np.testing.assert_array_equal(found.wavelengths, WAVES)
        if inside is not None:
            found = open_cube(tmp_path / name, dataset=dataset, wavelengths=inside)
            np.testing.assert_array_equal(found.wavelengths, WAVES + 1)


@pytest.mark.slow
def test_in_every_command(tmp_path, cube, monkeypatch):
    """A library is resampled to them, they are kept by their whole path, and `verify` finds them from anywhere."""
    (tmp_path / "w.txt").write_text(TEXTS["lines.txt"])
    fine = np.arange(440, 540.0, 2)
    library = write_csv(tmp_path / "e.csv", np.random.default_rng(1).random((50, 3)) + 0.1, fine)
    monkeypatch.chdir(tmp_path)
    common = ["--wavelengths", "w.txt"]

    def said(*words):
        return (
            CliRunner().invoke(cli, [*map(str, words), *common], catch_exceptions=False, standalone_mode=False).stdout
        )

    assert json.loads(said("info", cube, "--json"))["wavelengths_nm"] == WAVES.tolist()
    assert "450 to 520 nm" in said("check", cube, "-e", library)
    said("count", cube, "--ignore-nm", "480-490")
    said("endmembers", cube, "-n", 2, "-o", tmp_path / "e")
    assert "450.0" in (tmp_path / "e/c_endmembers.csv").read_text().splitlines()[0]
    said("bands", cube, "-m", 2, "-o", tmp_path / "b")
    assert set(json.loads((tmp_path / "b/c_bands.json").read_text())["wavelengths"]) <= set(WAVES)
    said("nmf", cube, "-n", 2, "-o", tmp_path / "n", "--steps", 2)
    said("run", cube, "-e", library, "-o", tmp_path / "o", "--device", "cpu")
    report = json.loads((tmp_path / "o/c_run.json").read_text())
    assert report["reading"]["wavelengths"] == str(tmp_path / "w.txt")
    monkeypatch.chdir("/")
    assert verify(tmp_path / "o/c").faults == []


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("Band 1 (0.4500 Micrometers), Band 2 (0.4600 Micrometers), Band 3 (1.25 Micrometers)", [450, 460, 1250]),
        ("450.3 nm, 460.1nm, 470 Nanometers", [450.3, 460.1, 470]),
        ("450.3 nm, 460.1 nm, rmse", None),
        ("450.3 nm, 450.3 nm, 470 nm", None),  # one twice
        ("1 nm, 2 nm, 3 nm", None),  # no spectrometer's
        ("ratio 450 nm 470 nm, 460 nm, 470 nm", None),  # which of them?
        ("Band 450, Band 460, Band 470", None),
        ("x450 nm, 460 nm, 470 nm", None),
    ],
)
def test_from_the_names_of_bands(tmp_path, caplog, names, expected):
    caplog.set_level(logging.INFO, "unmix")
    header = write_cube(tmp_path / "c.hdr", np.ones((2, 2, 3)), band_names=f"{{{names}}}")
    found = open_cube(header).wavelengths
    if expected is None:
        assert found is None and not caplog.records
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        assert len(caplog.records) == 1 and "from the band names" in caplog.text
        own = write_cube(
            tmp_path / "d.hdr", np.ones((2, 2, 3)), band_names=f"{{{names}}}", wavelength="{500, 510, 520}"
        )
        assert open_cube(own).wavelengths[0] == 500


@pytest.mark.parametrize(
    ("unit", "stored", "says"),
    [
        ("Unknown", "500, 600", None),
        ("Ells", "0.5, 0.6", None),
        ("Index", "500, 600", "'Index', which is no unit"),
        ("Raman shift (cm-1)", "500, 600", "no unit of wavelengths"),
        ("", "1, 2", "only count its bands"),
        ("nm", "0, 600", "not above 0"),
    ],
)
def test_headers_whose_unit_is_odd(tmp_path, unit, stored, says):
    cube = write_cube(tmp_path / "c.hdr", np.ones((2, 2, 2), np.float32))
    (tmp_path / "w.hdr").write_text(f"ENVI\nwavelength = {{{stored}}}\nwavelength units = {unit}\n")
    if says is None:
        assert open_cube(cube, wavelengths=str(tmp_path / "w.hdr")).wavelengths.tolist() == [500, 600]
        return
    refused(unmix.CubeError, says, open_cube, cube, wavelengths=str(tmp_path / "w.hdr"))


def test_a_missing_fwhm_is_said(tmp_path, caplog):
    """Of one band of a GeoTIFF, of a table of spectra and of an ENVI library: all are ignored, and a warning says so."""
    rasterio = pytest.importorskip("rasterio")
    how = {"driver": "GTiff", "width": 3, "height": 2, "count": 4, "dtype": "float32"}
    with rasterio.open(tmp_path / "c.tif", "w", **how) as file:
        for b in range(1, 5):
            file.update_tags(b, wavelength=400 + 10 * b, wavelength_units="nm", **({"fwhm": 9} if b != 2 else {}))
    cube = unmix.open_cube(tmp_path / "c.tif")
    assert cube.fwhm is None and cube.wavelengths[0] == 410 and "an fwhm is missing" in cube.problems[0]
    (tmp_path / "e.csv").write_text("nm,fwhm,a\n410,9,0.1\n420,nan,0.2\n430,9,0.3\n")
    assert load(tmp_path / "e.csv").fwhm is None and "e.csv: an fwhm is missing" in caplog.text
