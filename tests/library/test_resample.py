"""Libraries from many formats, chosen from, and resampled: against numerical integration and measured responses."""

import json

import numpy as np
import pytest
import scipy.io
from click.testing import CliRunner
from conftest import read_values, refused, write_csv, write_cube
from hypothesis import given, settings
from hypothesis import strategies as st
from unmix_cli.main import cli

import unmix
from unmix.commands.verify import verify
from unmix.io import open_cube
from unmix.library import Endmembers, duplicates, fit, load, load_parts, resample, select
from unmix.library.to_bands import gaps_of

TO_SIGMA = 2 * np.sqrt(2 * np.log(2))


def by_sums(x, values, centre, fwhm):
    """A spectrum through a Gaussian response, by sums over a fine grid; straight lines between channels."""
    order = np.argsort(x)
    grid = np.linspace(x.min(), x.max(), 400_001)
    weight = np.exp(-0.5 * ((grid - centre) / (fwhm / TO_SIGMA)) ** 2)
    return (np.interp(grid, x[order], values[order]) * weight).sum() / weight.sum()


@pytest.mark.parametrize("fwhm", [3.0, 12.0, 60.0])
def test_resampling_is_the_integral(fwhm):
    random = np.random.default_rng(0)
    x = np.sort(random.uniform(400, 700, 60))
    x[[5, 30]] = x[[30, 5]]  # in no order
    library = Endmembers(("a", "b"), random.random((60, 2)), x, across_gaps=True)
    centres = np.linspace(x.min() + 1, x.max() - 1, 9)
    found = resample(library, centres, np.full(9, fwhm))
    for j in range(2):
        expected = [by_sums(x, library.matrix[:, j], c, fwhm) for c in centres]
        np.testing.assert_allclose(found[:, j], expected, rtol=2e-4)


@settings(max_examples=60)
@given(st.lists(st.floats(300, 900), min_size=3, max_size=40, unique=True), st.floats(0, 80), st.floats(-2, 2))
def test_a_straight_line_stays_one_within(x, fwhm, slope):
    """A constant is kept to the last digits whatever the response; nothing leaves the range of the values."""
    x = np.array(x)
    values = np.stack([np.full(len(x), 0.7), 1 + slope * (x - 600) / 1000], axis=1)
    centres = np.linspace(x.min(), x.max(), 5)
    found = resample(Endmembers(("c", "l"), values, x, across_gaps=True), centres, np.full(5, fwhm))
    np.testing.assert_allclose(found[:, 0], 0.7, rtol=1e-9)
    assert np.all(found[:, 1] >= values[:, 1].min() - 1e-9) and np.all(found[:, 1] <= values[:, 1].max() + 1e-9)
    if fwhm == 0:
        np.testing.assert_allclose(found[:, 1], 1 + slope * (centres - 600) / 1000, rtol=1e-9)


def with_a_gap(tmp_path):
    """A library of 7 nm with nothing between 599 and 840 nm, and a cube with bands there."""
    x = np.concatenate([np.arange(396.0, 600, 7), np.arange(840.0, 1008, 7)])
    spectra = np.stack([0.3 + 0.2 * np.sin(x / 40 + k) for k in range(3)])
    rows = [["name", *map(str, x)], *([f"s{k}", *map(repr, s.tolist())] for k, s in enumerate(spectra))]
    (tmp_path / "gap.csv").write_text("\n".join(",".join(row) for row in rows))
    waves = np.arange(400.0, 1000, 12)
    Y = np.random.default_rng(0).random((4, 5, len(waves)))
    field = "{" + ", ".join(map(str, waves)) + "}"
    return write_cube(tmp_path / "x.hdr", Y, wavelength=field), tmp_path / "gap.csv", waves, x, spectra


def test_a_gap_in_the_channels_is_an_error(tmp_path):
    cube, lib, waves, x, spectra = with_a_gap(tmp_path)
    text = "no channel between 599 and 840 nm, and so no value at bands 18-37 (604 to 832 nm)"
    words = {"method": "nnls", "device": "cpu", "browse": False}
    error = refused(unmix.LibraryError, None, unmix.run, cube, endmembers=lib, **words)
    assert text in str(error.value) and "`across_gaps`" in str(error.value)
    for command in (
        ["run", cube, "-e", lib],
        ["mesma", cube, "-e", lib],
        ["nmf", cube, "-e", lib],
        ["library", "resample", lib, cube, tmp_path / "r.csv"],
        ["check", cube, "-e", lib],
    ):
        result = CliRunner().invoke(cli, list(map(str, command)), standalone_mode=False)
        assert text in f"{result.output} {result.exception}"
    assert not unmix.check(cube, lib)["sound"]
    # Bands that are left out ask for nothing; the others are what they were.
    left = (waves < 600) | (waves > 840)
    unmix.run(cube, endmembers=lib, ignore_nm="600-840", **words)
    kept = load(tmp_path / "x_endmembers.csv").matrix
    unmix.run(cube, endmembers=lib, across_gaps=True, overwrite=True, **words)
    across = load(tmp_path / "x_endmembers.csv").matrix
    np.testing.assert_allclose(across[left], kept, atol=0.01)  # at the gap's ends a response of 12 nm reaches into it
    np.testing.assert_allclose(
        across[~left], np.stack([np.interp(waves[~left], x, s) for s in spectra], axis=1), atol=0.02
    )
    asked = list(map(str, ["library", "resample", lib, cube, tmp_path / "r.csv", "--across-gaps"]))
    assert CliRunner().invoke(cli, asked, standalone_mode=False).exception is None
    np.testing.assert_allclose(load(tmp_path / "r.csv").matrix, across, rtol=1e-15)
    # The cube's values are not used; the library keeps its own.
    assert "`scale`" in str(
        CliRunner().invoke(cli, [*asked, "--scale", "100", "--overwrite"], standalone_mode=False).exception
    )
    assert unmix.check(cube, lib, across_gaps=True)["findings"] is not None
    refused(unmix.MethodError, "`across_gaps` resamples a library", unmix.run, cube, across_gaps=True)


def test_a_match_leaves_a_gap_out(tmp_path):
    cube, lib, _, _, _ = with_a_gap(tmp_path)
    assert sum(one["pixels"] for one in unmix.match(cube, lib)["spectra"]) == 20
    narrow = np.fromfile(tmp_path / "x_match.img", "<f4")
    unmix.match(cube, lib, across_gaps=True, overwrite=True)
    assert not np.array_equal(narrow, np.fromfile(tmp_path / "x_match.img", "<f4"))


def test_steps_and_overlaps_of_spectrometers_are_no_gaps():
    fine, coarse = np.arange(350.0, 1000, 1.5), np.arange(1000.0, 2500, 12.0)
    overlap = np.sort(np.concatenate([np.arange(400.0, 1260, 9.6), np.arange(1252.4, 2500, 9.9)]))
    rising = np.cumsum(np.linspace(1, 40, 200))
    few = np.array([443.0, 490, 560, 665, 705, 740, 783, 842, 865, 945, 1375, 1610, 2190])
    for x in (np.concatenate([fine, coarse]), overlap, rising, few, np.array([500.0])):
        assert not gaps_of(x).any()
    assert gaps_of(np.delete(overlap, slice(20, 26))).sum() == 1


def test_a_library_s_own_width_is_taken_off():
    """A Gaussian line seen through 6 nm and then resampled to 10 is the line seen through 10."""
    x = np.arange(400.0, 600.0, 0.5)
    line = lambda width: np.exp(-0.5 * ((x - 500) / (width / TO_SIGMA)) ** 2) / width  # noqa: E731
    seen = Endmembers(("a",), line(np.hypot(8, 6))[:, None], x, fwhm=np.full(len(x), 6.0))
    centres = np.arange(470.0, 530.0, 5)
    expected = np.interp(centres, x, line(np.hypot(8, 10)))
    np.testing.assert_allclose(resample(seen, centres, np.full(len(centres), 10.0))[:, 0], expected, atol=1e-4)
    coarse = Endmembers(("a",), seen.matrix, x, fwhm=np.full(len(x), 12.0))  # wider than the band: interpolation
    np.testing.assert_allclose(
        resample(coarse, centres, np.full(len(centres), 10.0))[:, 0], np.interp(centres, x, seen.matrix[:, 0])
    )


def test_deleted_channels_are_holes():
    """A band whose centre lies in one has no value; beside it, the response is taken over what is there."""
    x = np.arange(400.0, 500.0, 2)
    values = np.tile(0.5 + (x - 400)[:, None] / 1000, (1, 2))
    values[20:25, 1] = -1.23e34
    found = resample(Endmembers(("a", "b"), values, x), np.array([420.0, 437, 444, 452]), np.full(4, 4.0))
    assert np.isnan(found).tolist() == [[False, False], [False, False], [False, True], [False, False]]
    np.testing.assert_allclose(found[0, 1], found[0, 0])
    assert abs(found[1, 1] - found[1, 0]) < 2e-3


def test_nothing_is_extrapolated():
    library = Endmembers(("a",), np.ones((5, 1)), np.linspace(500, 540, 5), source="lib")
    with pytest.raises(
        unmix.LibraryError, match="covers 500 to 540 nm, and not 499 nor 541 nm; 2 of 4 bands are outside"
    ):
        resample(library, np.array([520.0, 499, 541, 540.4]), np.full(4, 5.0))


def cube_of(folder, waves, fwhm):
    fields = {"wavelength": waves, "wavelength_units": "nm"}
    fields["fwhm"] = "{" + ", ".join([str(fwhm)] * len(waves)) + "}"
    return open_cube(write_cube(folder / "c.hdr", np.ones((2, 2, len(waves)), np.float32), **fields))


@pytest.mark.parametrize("step", [1.0, 2.0, 4.0, 10.0])
def test_a_band_a_little_beyond_is_equal_whatever_the_library_s_spacing(tmp_path, step):
    """Within a tenth of the FWHM it is the library's last channel; beyond that an error that names the band."""
    x = np.arange(400.0, 501, step)
    values = np.random.default_rng(0).random((len(x), 1))
    waves = np.array([399.97, *range(410, 500, 10), 500.03])
    at_the_ends = np.clip(waves, 400, 500)
    found = fit(Endmembers(("a",), values, x), cube_of(tmp_path, waves, 6.0), np.arange(11)).matrix
    expected = fit(Endmembers(("a",), values, x), cube_of(tmp_path, at_the_ends, 6.0), np.arange(11)).matrix
    np.testing.assert_array_equal(found, expected)
    for beyond, band in ((399.39, 1), (500.61, 11)):
        waves[band - 1] = beyond
        with pytest.raises(unmix.LibraryError, match=rf"not {beyond:g} nm \(band {band} of the cube\)"):
            fit(Endmembers(("a",), values, x, source="lib"), cube_of(tmp_path, waves, 6.0), np.arange(11))
        waves[band - 1] = at_the_ends[band - 1]


def test_a_finer_library_is_resampled_and_an_equal_one_is_not(tmp_path):
    """Every band of a library of 1 nm has a channel within a tenth of its FWHM, which yet is not what the band sees."""
    cube = cube_of(tmp_path, np.arange(420.0, 600, 10), 10.0)
    x = np.arange(400.0, 620.0)
    rough = np.random.default_rng(0).random((len(x), 1))
    found = fit(Endmembers(("a",), rough, x), cube, np.arange(18)).matrix
    np.testing.assert_allclose(found[:, 0], [by_sums(x, rough[:, 0], c, 10.0) for c in cube.wavelengths], rtol=1e-4)
    equal = Endmembers(("a",), rough[20:200:10], x[20:200:10] + 0.4)
    np.testing.assert_array_equal(fit(equal, cube, np.arange(18)).matrix, equal.matrix)
    used = np.array([1, 2, 9])
    np.testing.assert_array_equal(fit(equal, cube, used).matrix, equal.matrix[used])


@pytest.mark.real
def test_gaussians_see_what_enmaps_own_responses_see(data):
    """Real spectra of 1 nm through the 218 measured responses, and through Gaussians of their centre and width."""
    responses = load(data / "libraries/EnMAP.hdr")
    x, R = responses.wavelengths, responses.matrix
    centres = (x @ R) / R.sum(axis=0)
    sigma = np.sqrt((np.square(x[:, None] - centres) * R).sum(axis=0) / R.sum(axis=0))
    fine_ones = load_parts(data / "libraries")[1].take([0, 1, 2, 3, 5])
    for library in (fine_ones, load(data / "emit_unmix/data/basic_endmember_library.csv")):
        good = (centres > 401) & (centres < min(2440, library.wavelengths.max()))
        order = np.argsort(library.wavelengths)
        fine = np.stack([np.interp(x, library.wavelengths[order], spectrum[order]) for spectrum in library.matrix.T])
        seen = (fine @ R) / R.sum(axis=0)
        found = resample(library, centres[good], sigma[good] * TO_SIGMA).T
        size = np.abs(seen).max(axis=1, keepdims=True)
        assert np.abs(found - seen[:, good]).max() / size.max() < 2e-3
        assert np.median(np.abs(found - seen[:, good]) / size) < 1e-4


USGS = """USGS Digital Spectral Library splib06a
text
----------------------------------------------------
Asphalt_Shingle GDS366 Tan   W1R1Fa AREF
copy of sprlf02a r 932
       0.400000       0.10      0.0
       0.410000      -1.23e34   0.0
       0.420000       0.30      0.0
"""
ECOSTRESS = """Name: Rhyolite\r
Class: Igneous\r
X Units: Wavelength (micrometers)\r
Y Units: Reflectance (percent)\r
First X Value: 0.42\r
\r
 0.420\t 30.0\r
 0.410\t 20.0\r
 0.400\t 10.0\r
"""
PLOT = "ENVI ASCII Plot File [x]\nColumn 1: Wavelength\nColumn 2: Grass~~1\nColumn 3: Soil~~2\n 0.4 1 2\n 0.5 3 4\n"


def test_libraries_as_text(tmp_path):
    (tmp_path / "a.asc").write_text(USGS)
    one = load(tmp_path / "a.asc")
    assert one.names == ("Asphalt_Shingle GDS366 Tan W1R1Fa AREF",) and one.classes == ("Asphalt_Shingle",)
    np.testing.assert_allclose(one.wavelengths, [400, 410, 420])
    assert one.valid.ravel().tolist() == [True, False, True]
    (tmp_path / "b.spectrum.txt").write_text(ECOSTRESS)
    two = load(tmp_path / "b.spectrum.txt")
    np.testing.assert_allclose(two.wavelengths, [400, 410, 420])
    np.testing.assert_allclose(two.matrix.ravel(), [0.1, 0.2, 0.3])
    (tmp_path / "c.txt").write_text(PLOT)
    three = load(tmp_path / "c.txt")
    assert three.names == ("Grass", "Soil") and three.matrix.tolist() == [[1, 2], [3, 4]]
    (tmp_path / "d.asc").write_text(USGS.replace("0.420000", "0.430000"))
    (tmp_path / "readme.md").write_text("no spectrum")
    parts = load_parts(tmp_path)
    assert [part.matrix.shape for part in parts] == [(3, 2), (3, 1)]
    assert [name for part in parts for name in part.names][-1].endswith("AREF 2")
    refused(unmix.LibraryError, "on 2 different axes", load, tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("a.asc", USGS.replace("0.30 ", "x "), "line 8: '0.420000 x"),
        ("a.asc", USGS.split("---")[0], "its text ends before the data"),
        (
            "a.txt",
            ECOSTRESS.replace("Wavelength (micrometers)", "Wavenumber (cm-1)"),
            "wavelengths in nm or µm are read",
        ),
        ("a.txt", ECOSTRESS.split("\r\n 0.42")[0], "no table of wavelengths"),
        ("a.txt", PLOT.replace("Column 3: Soil~~2\n", ""), "names 2 columns, but its table has 3"),
        ("a.sli", "x", "no library that is known"),
        ("a.mat", "MATLAB 5.0 MAT-file", "its first 128 bytes are damaged"),
    ],
)
def test_faulty_libraries(tmp_path, name, text, fault):
    (tmp_path / name).write_bytes(text.encode())
    assert "\n" not in str(refused(unmix.LibraryError, fault, load, tmp_path / name).value)


def test_a_file_beside_a_library_is_not_the_library(tmp_path):
    """Seen: an HDF5 file with the stem of a library's header, which was read as its values."""
    Endmembers(("a", "b"), np.ones((3, 2)), None).write(None, tmp_path / "x.sli", tmp_path / "x.hdr")
    (tmp_path / "x.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    (tmp_path / "x.png").write_bytes(bytes(100))
    refused(unmix.LibraryError, "is HDF5", load, tmp_path / "x.h5")
    refused(unmix.LibraryError, "header of another file", load, tmp_path / "x.png")


@pytest.mark.parametrize(
    ("unit", "low", "high"), [("cm-1", 90, 4000), ("nm", 380, 2500), ("um", 0.2, 60), ("nm", 20, 90)]
)
def test_a_table_that_was_written_is_read_with_the_same_axis(tmp_path, unit, low, high):
    """Also where its numbers in nm look like another unit's."""
    random = np.random.default_rng(1)
    for k in range(10):
        axis = np.sort(random.uniform(low, high, int(random.integers(3, 40))))
        rows = "".join(f"{x!r},{x / high!r},0.5\n" for x in axis.tolist())
        (tmp_path / f"{k}.csv").write_text(f"wavelength ({unit}),a,b\n{rows}")
        first = load(tmp_path / f"{k}.csv")
        (tmp_path / "again.csv").write_text(first.as_csv())
        again = load(tmp_path / "again.csv")
        np.testing.assert_allclose(again.wavelengths, first.wavelengths, rtol=1e-12)
        np.testing.assert_array_equal(again.matrix, first.matrix)


def test_each_spectrum_of_columns_is_a_class_of_its_name(tmp_path):
    (tmp_path / "e.csv").write_text("wavelength (nm),a,b\n400,0.1,0.2\n500,0.2,0.3\n600,0.3,0.3\n")
    assert unmix.load_library(tmp_path / "e.csv", classes="name").classes == ("a", "b")


def test_libraries_of_matlab(tmp_path):
    names = np.array(
        [[ord(c) for c in word.ljust(9)] for word in ("Wavelength"[:9], "Res", "Channel", "quartz", "mica")]
    )
    table = np.array([[0.5, 0.01, 1, 0.1, 0.2], [0.4, 0.01, 2, 0.3, -1.23e34], [0.6, 0.01, 3, 0.5, 0.6]])
    scipy.io.savemat(tmp_path / "u.mat", {"names": names.astype(float), "datalib": table})
    usgs = load(tmp_path / "u.mat")
    assert usgs.names == ("quartz", "mica") and usgs.valid.sum() == 5
    np.testing.assert_allclose(usgs.wavelengths, [500, 400, 600])
    np.testing.assert_allclose(usgs.fwhm, 10)
    cell = np.array(["Tree", "Soil"], object)
    values = {"A": np.arange(12.0).reshape(4, 3), "lib1": np.ones((4, 2)), "lib2": np.ones((4, 1))}
    values |= {"material_names": cell}
    scipy.io.savemat(tmp_path / "m.mat", values)
    bundle = load(tmp_path / "m.mat")
    assert bundle.classes == ("Tree", "Tree", "Soil") and bundle.names == ("Tree", "Tree 2", "Soil")
    scipy.io.savemat(tmp_path / "two.mat", {"one": np.ones((3, 2)), "other": np.ones((3, 2))})
    refused(unmix.LibraryError, "more than one variable could be spectra", load, tmp_path / "two.mat")


def test_choosing():
    names = ("Oak leaf", "Pine needle", "Clay", "Loam")
    library = Endmembers(
        names, np.arange(8.0).reshape(2, 4), None, source="lib", classes=("plant", "plant", "soil", "soil")
    )
    assert select([library], "PLANT")[0].names == names[:2]
    assert select([library], "clay, oak*")[0].names == ("Oak leaf", "Clay")
    assert select([library], "soil")[0].matrix.tolist() == [[2, 3], [6, 7]]
    refused(unmix.LibraryError, "no name or class is 'plnt'; there is plant", select, [library], "clay,plnt")
    refused(unmix.LibraryError, "names no spectrum", select, [library], ",")


def test_the_same_spectra():
    a, b = np.random.default_rng(0).random((2, 20))
    holed = np.where(np.arange(20) < 5, np.nan, 3 * a)
    library = Endmembers(("a", "b", "c", "d"), np.stack([a, b, 2 * a, holed], axis=1), None)
    assert duplicates(library) == [("a", "c"), ("a", "d"), ("c", "d")]


def test_the_commands(tmp_path):
    """info, convert there and back, resample; and a run with the chosen spectra is a run with the resampled file."""
    run = CliRunner().invoke
    x = np.arange(400.0, 700.0)
    matrix = np.stack([0.3 + 0.2 * np.sin(x / 40 + k) for k in range(3)], axis=1)
    library = Endmembers(("oak", "clay", "loam"), matrix, x, classes=("plant", "soil", "soil"))
    library.write(None, tmp_path / "fine.sli", tmp_path / "fine.hdr")
    facts = json.loads(run(cli, ["library", "info", str(tmp_path / "fine.sli"), "--json"]).stdout)
    assert facts[0]["classes"] == {"plant": 1, "soil": 2} and facts[0]["channels"] == 300
    text = run(cli, ["library", "info", str(tmp_path / "fine.sli"), "--select", "soil"]).stdout
    assert "clay, loam" in text and "soil (2)" in text
    for out in ("fine.csv", "again.sli"):
        found = run(cli, ["library", "convert", str(tmp_path / "fine.sli"), str(tmp_path / out)])
        assert found.exit_code == 0 and found.stdout.splitlines()[0] == str(tmp_path / out)
        back = load(tmp_path / out)
        assert back.names == library.names and back.classes == library.classes
        np.testing.assert_array_equal(back.matrix, matrix)
    again = run(cli, ["library", "convert", str(tmp_path / "fine.sli"), str(tmp_path / "fine.csv")])
    assert isinstance(again.exception, unmix.OutputError)
    wrong = run(cli, ["library", "convert", str(tmp_path / "fine.sli"), str(tmp_path / "fine.xlsx")])
    assert isinstance(wrong.exception, unmix.MethodError)
    cube_of(tmp_path, np.arange(410.0, 690, 10), 10.0)
    stored = np.random.default_rng(0).dirichlet(np.ones(2), (4, 5)) @ matrix[10:290:10, 1:].T
    write_cube(tmp_path / "c.hdr", stored.astype(np.float32), wavelength=range(410, 690, 10))
    words = ["library", "resample", str(tmp_path / "fine.sli"), str(tmp_path / "c.hdr"), str(tmp_path / "coarse.csv")]
    words += ["--select"]
    assert run(cli, [*words, "soil"]).exit_code == 0
    unmix.run(tmp_path / "c.hdr", endmembers=tmp_path / "fine.sli", select="soil", device="cpu", out_dir=tmp_path / "a")
    unmix.run(tmp_path / "c.hdr", endmembers=tmp_path / "coarse.csv", device="cpu", out_dir=tmp_path / "b")
    one, two = ((tmp_path / f"{k}/c_abundance.img").read_bytes() for k in "ab")
    assert one == two
    assert not list(tmp_path.glob("*.part"))


def test_what_a_new_user_stumbled_on(tmp_path, caplog):
    """The scale that brings both together, whichever is the larger; names and bands that are missing; spectra left out."""
    waves = np.arange(500.0, 1100, 100)
    E = np.stack([0.3 + 0.1 * np.sin(waves / 200 + k) for k in range(3)], axis=1)
    stored = np.random.default_rng(0).dirichlet(np.ones(3), (4, 5)) @ E.T
    axis = "{" + ", ".join(map(str, waves)) + "}"
    write_cube(tmp_path / "small.hdr", stored, wavelength=axis)
    write_cube(tmp_path / "scaled.hdr", stored * 1e4, wavelength=axis, reflectance_scale_factor=10000)
    large = Endmembers(("a", "b", "c"), E * 1e4, waves)
    with pytest.raises(unmix.CubeError, match=r"`library_scale` 10000 .or `scale` 0\.0001. brings them"):
        unmix.run(tmp_path / "small.hdr", endmembers=large, device="cpu", out_dir=tmp_path / "no")
    for name, scale in (("small", "0.0001"), ("scaled", "1")):
        unmix.run(tmp_path / f"{name}.hdr", endmembers=large, device="cpu", scale=float(scale), out_dir=tmp_path / name)
    one, two = (np.fromfile(tmp_path / f"{name}/{name}_abundance.img", np.float32) for name in ("small", "scaled"))
    np.testing.assert_allclose(one, two, atol=1e-5)
    for scale in (1.0, 2.0):  # said, though it was meant; a scale of 1 is the answer to it
        caplog.clear()
        unmix.run(tmp_path / "small.hdr", endmembers=large, device="cpu", scale=scale, out_dir=tmp_path / f"{scale}")
        assert ("times as large" in caplog.text) == (scale != 1)
    holed = Endmembers(("a", "b", "c"), np.where(np.arange(6)[:, None] < 2, [[1.0, np.nan, np.nan]], E), waves)
    with pytest.raises(unmix.LibraryError, match=r"'b', 'c' \(2 of 3 spectra\) have no value at bands 1-2; leave such"):
        unmix.run(tmp_path / "small.hdr", endmembers=holed, device="cpu", scale=1.0, out_dir=tmp_path / "no")
    assert select([holed], "!b,!c")[0].names == ("a",) and select([holed], "a,b,!b")[0].names == ("a",)
    refused(unmix.LibraryError, "leaves no spectrum", select, [holed], "a,!a")
    caplog.clear()
    unmix.run(tmp_path / "small.hdr", count=2, device="cpu", ignore_nm="1.3-1.4", out_dir=tmp_path / "nm")
    assert "no band of" in caplog.text


def test_a_library_in_another_unit_than_a_file_that_says_its_own(tmp_path, caplog):
    """It is divided, and that is said: as with `library_scale`, of `check` and `detect`, too; skipped and repeated as any run."""
    waves = np.arange(500.0, 1100, 100)
    E = np.stack([0.3 + 0.1 * np.sin(waves / 200 + k) for k in range(3)], axis=1)
    A = np.random.default_rng(0).dirichlet(np.ones(3), (4, 5))
    axis = "{" + ", ".join(map(str, waves)) + "}"
    path = write_cube(tmp_path / "s.hdr", A @ E.T * 1e4, wavelength=axis, reflectance_scale_factor=10000)
    how = {"method": "fcls", "device": "cpu"}
    for unit in (100, 10_000):
        percent, out = write_csv(tmp_path / f"{unit}.csv", unit * E, waves), tmp_path / f"o{unit}"
        with caplog.at_level("INFO", "unmix"):
            report = unmix.run(path, endmembers=percent, out_dir=out, **how)
        assert caplog.text.count(f"{unit}.csv: its values are divided by {unit:g}") == 1
        given = unmix.run(path, endmembers=percent, out_dir=tmp_path / f"g{unit}", library_scale=unit, **how)
        assert report["asked"] == given["asked"] and report["options"]["library_scale"] == unit
        np.testing.assert_allclose(read_values(out / "s_abundance.hdr"), A, atol=1e-6)
        assert unmix.run(path, endmembers=percent, out_dir=out, skip_existing=True, **how)["skipped"]
        assert verify(out / "s").faults == []
        found = unmix.check(path, percent, method="fcls")
        assert found["sound"] and any(f"divided by {unit:g}" in one["message"] for one in found["findings"])
        assert unmix.detect(path, percent, out_dir=tmp_path / f"d{unit}")["targets"]
        with pytest.raises(unmix.CubeError, match="brings them together"):
            unmix.run(path, endmembers=percent, out_dir=tmp_path / "no", library_scale=1.0, **how)
        caplog.clear()


def test_spacings_that_differ_little(tmp_path):
    """Every third band has a channel of its own: all are resampled alike, by widths that are the spacings of both."""
    fine, coarse = np.arange(400.0, 1603, 3), np.arange(400.0, 1601, 4)
    lines = np.exp(-0.5 * ((fine[:, None] - [1000, 1004, 1008]) / 4) ** 2)
    cube = open_cube(write_cube(tmp_path / "s.hdr", np.ones((2, 2, len(coarse))), wavelength=list(coarse)))
    found = fit(Endmembers(("a", "b", "c"), lines, fine), cube, np.arange(len(coarse))).matrix
    truth = np.exp(-0.5 * ((coarse[:, None] - [1000, 1004, 1008]) / 4) ** 2)
    peaks = found.max(axis=0)  # at a channel of its own, and between two
    assert np.ptp(peaks) < 0.05 and np.abs(found - truth).max() < 0.12


@pytest.mark.parametrize("seed", range(5))
def test_the_cubes_own_channels_serve_in_any_order(tmp_path, seed):
    """Sorted channels of detectors that overlap lie between each other, and are as they are all the same."""
    random = np.random.default_rng(seed)
    waves = np.concatenate([np.arange(400, 1010, 7.3), np.arange(900 + random.random(), 1500, 9.7)])
    cube = open_cube(
        write_cube(tmp_path / "s.hdr", random.random((2, 2, len(waves))), wavelength=waves, fwhm=0 * waves + 9)
    )
    order, library = random.permutation(len(waves)) if seed else np.argsort(waves), random.random((len(waves), 2))
    found = fit(Endmembers(("a", "b"), library[order], waves[order]), cube, np.arange(len(waves)))
    assert np.array_equal(found.matrix, library)


@pytest.mark.parametrize("step", [10.0, 1.0])
def test_bands_beside_a_gap_are_as_wide_as_the_others(tmp_path, step):
    """Of a cube without FWHM whose bands of water vapour were cut out, and of a finer library."""
    centres, own = np.arange(1000, 2500, 10.0), np.arange(980, 2520, step)
    keep = (np.abs(centres - 1390) > 55) & (np.abs(centres - 1875) > 85)
    spectra = 0.5 + 0.3 * np.sin(own[:, None] / [30.0, 55.0, 90.0])
    library = load(write_csv(tmp_path / "e.csv", spectra, own))
    found = {}
    for name, fwhm in (("without", {}), ("with", {"fwhm": "{" + ", ".join(["10"] * int(keep.sum())) + "}"})):
        axis = {"wavelength": "{" + ", ".join(f"{w:g}" for w in centres[keep]) + "}", "wavelength_units": "nm"}
        cube = open_cube(write_cube(tmp_path / f"{name}.hdr", np.ones((1, 1, keep.sum())), **axis, **fwhm))
        found[name] = fit(library, cube, np.arange(keep.sum())).matrix
    np.testing.assert_allclose(found["without"], found["with"], atol=0.01)


def test_a_library_in_a_sensor_s_bands_is_as_it_is_for_some_of_them(tmp_path):
    centres = np.array([492.0, 560, 665, 704, 741, 783, 833, 865, 1614, 2202])
    spectra = np.random.default_rng(0).uniform(0.1, 0.9, (10, 3))
    library = load(write_csv(tmp_path / "e.csv", spectra, centres))
    for some in ([0, 1, 2, 6], [1, 2, 6, 8, 9], [2, 6]):
        axis = {"wavelength": "{" + ", ".join(f"{w:g}" for w in centres[some]) + "}", "wavelength_units": "nm"}
        cube = open_cube(write_cube(tmp_path / f"{len(some)}.hdr", np.ones((1, 1, len(some))), **axis))
        np.testing.assert_array_equal(fit(library, cube, np.arange(len(some))).matrix, spectra[some])


@pytest.mark.parametrize("own", ["two grids", "a gap"])
def test_channels_of_a_finer_library_are_no_bands(tmp_path, own):
    """Though each band's centre is a channel: of detectors with steps of 1 and 2 nm, or without water vapour."""
    x = np.r_[350:1000, 1000:2500:2] if own == "two grids" else np.r_[350:1350, 1410:2501]
    x = np.array(x, float)
    library = load(write_csv(tmp_path / "e.csv", (0.5 + 0.3 * np.sin(x / 2.0))[:, None], x))
    centres = np.arange(400, 1000, 10.0)
    axis = {"wavelength": "{" + ", ".join(f"{w:g}" for w in centres) + "}", "wavelength_units": "nm"}
    axis["fwhm"] = "{" + ", ".join(["10"] * len(centres)) + "}"
    cube = open_cube(write_cube(tmp_path / "s.hdr", np.ones((1, 1, len(centres))), **axis))
    found = fit(library, cube, np.arange(len(centres))).matrix
    assert np.ptp(found) < 0.1  # smoothed, where single channels differ by 0.6
