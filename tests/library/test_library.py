"""Libraries in and out, and how they are brought to a cube's bands."""

import logging
from pathlib import Path

import numpy as np
import pytest
import spectral.io.envi
from conftest import refused, write_csv, write_cube
from test_cli import unmix as command

import unmix
from unmix.commands.verify import verify
from unmix.errors import LibraryError
from unmix.io import open_cube
from unmix.library import Endmembers, fit, load, select
from unmix.library.spectra import make
from unmix.runs.files.endmembers import save_library as save


@pytest.fixture
def spectra():
    random = np.random.default_rng(0)
    return Endmembers(("a", "b c"), random.random((4, 2)), np.array([400.1, 500.2, 600.3, 700.4]), ((1, 2), (3, 4)))


def test_written_libraries_read_back_to_the_last_bit(tmp_path, spectra):
    for path in save(spectra, tmp_path, "x", overwrite=False):
        back = load(path)
        assert back.names == spectra.names
        assert back.pixels == spectra.pixels
        np.testing.assert_array_equal(back.matrix, spectra.matrix)
        np.testing.assert_array_equal(back.wavelengths, spectra.wavelengths)
    refused(unmix.OutputError, "exists already", save, spectra, tmp_path, "x", overwrite=False)
    expected = ["x_endmembers.csv", "x_endmembers.hdr", "x_endmembers.sli"]
    assert sorted(path.name for path in tmp_path.iterdir()) == expected


def test_spectral_reads_our_library(tmp_path, spectra):
    save(spectra, tmp_path, "x", overwrite=False)
    theirs = spectral.io.envi.open(str(tmp_path / "x_endmembers.hdr"), str(tmp_path / "x_endmembers.sli"))
    np.testing.assert_array_equal(theirs.spectra, spectra.matrix.T)
    assert list(theirs.names) == list(spectra.names)
    np.testing.assert_array_equal(theirs.bands.centers, spectra.wavelengths)


def incomplete_library(path, holes):
    """A CSV of six spectra on eight channels, of two classes; ``holes`` are (spectrum, channel)."""
    random = np.random.default_rng(6)
    E = random.uniform(0.2, 0.8, (8, 6))
    rows = [["name", "class", *(str(400 + 10 * b) for b in range(8))]]
    for j in range(6):
        values = ["-1.23e34" if (j, b) in holes else repr(float(E[b, j])) for b in range(8)]
        rows.append([f"s{j}", "ab"[j % 2], *values])
    path.write_text("\n".join(",".join(row) for row in rows) + "\n")
    A = random.dirichlet(np.ones(6), (9, 7))
    axis = {"wavelength": "{" + ", ".join(str(400 + 10 * b) for b in range(8)) + "}", "wavelength_units": "nm"}
    return write_cube(path.parent / "c.hdr", A @ E.T, **axis)


def test_complete_leaves_out_what_has_no_value_in_use(tmp_path, caplog):
    """The same bytes as the others chosen by name; bands that are not in use may be missing; how many are left out is said."""
    cube, library = incomplete_library(tmp_path / "l.csv", {(1, 3), (4, 0), (4, 7), (2, 5)}), tmp_path / "l.csv"
    how = {
        "endmembers": library,
        "method": "nnls",
        "device": "cpu",
        "overwrite": True,
        "bands": "1-5,7-8",
    }  # not (2, 5)
    maps = []
    for more, said in (({"select": "!s1,!s4"}, False), ({"complete": True}, True)):
        caplog.clear()
        with caplog.at_level(logging.INFO, "unmix"):
            report = unmix.run(cube, **how, **more)
        assert report["endmembers"]["names"] == ["s0", "s2", "s3", "s5"]
        assert any("2 of 6 spectra left out (`complete`)" in r.getMessage() for r in caplog.records) == said
        maps.append((tmp_path / "c_abundance.img").read_bytes())
    assert maps[0] == maps[1] and report["options"]["complete"] is True
    assert verify(tmp_path / "c", everything=True).faults == []
    assert unmix.run(cube, **{**how, "overwrite": False}, complete=True, skip_existing=True)["skipped"]
    tied = unmix.run(cube, **how | {"tie": "400-425", "out_dir": tmp_path / "t"}, complete=True)
    assert tied["endmembers"]["names"] == ["s0", "s2", "s3", "s5"]
    findings = [one["message"] for one in unmix.check(cube, library, complete=True, bands="1-5,7-8")["findings"]]
    assert any("2 of 6 spectra left out" in message for message in findings)
    (message,) = [one["message"] for one in unmix.check(cube, library)["findings"] if one["severity"] == "error"]
    assert "3 of 6 spectra) have no value" in message and "; leave such spectra out with `complete`, or keep" in message


@pytest.mark.slow
def test_complete_leaves_out_of_models(tmp_path):
    cube = incomplete_library(tmp_path / "l.csv", {(1, 3), (4, 0)})
    models = unmix.run(cube, endmembers=tmp_path / "l.csv", method="mesma", complete=True, bands="1-5,7-8")
    assert models["endmembers"]["names"] == ["s0", "s2", "s3", "s5"]


def test_complete_on_the_command_line(tmp_path):
    """convert leaves out what lacks any channel, resample what lacks a band in use; both then serve as they are."""
    cube, library = incomplete_library(tmp_path / "l.csv", {(1, 3), (4, 0), (2, 5)}), tmp_path / "l.csv"
    command("library", "convert", library, tmp_path / "whole.csv", "--complete")
    assert load(tmp_path / "whole.csv").names == ("s0", "s3", "s5")
    assert load(tmp_path / "whole.csv").classes == ("a", "b", "b")
    command("library", "resample", library, cube, tmp_path / "fit.csv", "--complete", "--bands", "1-5,7-8")
    assert load(tmp_path / "fit.csv").names == ("s0", "s2", "s3", "s5")
    command("library", "prune", library, tmp_path / "p.csv", "--rule", "ear", "--complete")
    assert set(load(tmp_path / "p.csv").names) <= {"s0", "s3", "s5"}
    assert "such spectra out with --complete" in command("run", cube, "-e", library, code=3)[1]
    assert "--complete leaves out spectra of a library" in command("run", cube, "--complete", code=2)[1]
    assert "--complete leaves out spectra of a library" in command("check", cube, "--complete", code=2)[1]


def test_complete_where_nothing_is(tmp_path):
    """An error where no spectrum is left; spectra on an axis that does not reach the bands are left out with the others."""
    cube = open_cube(incomplete_library(tmp_path / "l.csv", {(j, j) for j in range(6)}))
    with pytest.raises(LibraryError, match="none of its 6 spectra has a value at every band in use"):
        fit(load(tmp_path / "l.csv"), cube, np.arange(8), complete=True)
    waves = 400.0 + 10 * np.arange(8)
    whole, short = (Endmembers((name,), np.ones((n, 1)), waves[:n]) for name, n in (("whole", 8), ("short", 5)))
    assert fit([short, whole], cube, np.arange(8), complete=True).names == ("whole",)
    assert fit([short, whole], cube, np.arange(4), complete=True).names == ("short", "whole")
    for complete, parts in ((False, [short, whole]), (True, [short])):
        refused(LibraryError, "covers 400 to 440 nm", fit, parts, cube, np.arange(8), complete)


def cube_of(tmp_path, bands, waves=None, **fields):
    if waves is not None:
        fields["wavelength"] = "{" + ", ".join(map(str, waves)) + "}"
    return open_cube(write_cube(tmp_path / "c.hdr", np.ones((1, 1, bands), np.int16), **fields))


def test_matching_by_wavelength(tmp_path, spectra):
    cube = cube_of(tmp_path, 3, [400, 600, 700], fwhm="{10, 10, 10}", wavelength_units="nm")
    np.testing.assert_array_equal(fit(spectra, cube, np.arange(3)).matrix, spectra.matrix[[0, 2, 3]])
    np.testing.assert_array_equal(fit(spectra, cube, np.array([1])).matrix, spectra.matrix[[2]])
    cube = cube_of(tmp_path, 3, [400, 550, 750], fwhm="{10, 10, 10}", wavelength_units="nm")
    with pytest.raises(unmix.LibraryError, match=r"covers 400.1 to 700.4 nm, and not 750 nm \(band 3 of the cube\)"):
        fit(spectra, cube, np.arange(3))


def test_matching_by_number(tmp_path, spectra):
    cube = cube_of(tmp_path, 4)
    np.testing.assert_array_equal(fit(spectra, cube, np.array([0, 3])).matrix, spectra.matrix[[0, 3]])
    cube = cube_of(tmp_path, 6)
    np.testing.assert_array_equal(fit(spectra, cube, np.array([0, 1, 2, 5])).matrix, spectra.matrix)
    refused(unmix.LibraryError, "4 bands, but the cube has 6", fit, spectra, cube, np.arange(6))


def test_the_order_of_a_cube_is_kept_even_where_wavelengths_overlap(tmp_path):
    """Jasper Ridge's spectrometers overlap: 675.0, then 654.17."""
    waves = np.array([640.0, 675.0, 654.17, 663.71])
    library = Endmembers(("a",), np.array([[1.0], [2], [3], [4]]), waves)
    cube = cube_of(tmp_path, 4, waves, wavelength_units="nm")
    assert fit(library, cube, np.arange(4)).matrix.ravel().tolist() == [1, 2, 3, 4]
    assert fit(library, cube, np.array([0, 2])).matrix.ravel().tolist() == [1, 3]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "no spectra"),
        ("name,400,500\n", "no spectra"),
        ("name,a,b\nx,1,2\n", "no wavelengths"),
        ("name,400,500\nx,1\n", "row 2, column 3"),
        ("0.1,0.2\n0.3,0.4\n", "all numbers"),
        ("name,400,500\nx,1,none\n", "'none' is not a number"),
    ],
)
def test_faulty_csv(tmp_path, text, fault):
    path = tmp_path / "e.csv"
    path.write_text(text)
    refused(unmix.LibraryError, fault, load, path)


def test_values_that_cannot_be_used(tmp_path):
    cube = cube_of(tmp_path, 3)
    for value, fault in ((-1.23e34, "no value at band 2"), (np.nan, "no value at band 2")):
        library = Endmembers(("a",), np.array([[1.0], [value], [1.0]]), None)
        refused(unmix.LibraryError, fault, fit, library, cube, np.arange(3))
        assert fit(library, cube, np.array([0, 2])).matrix.shape == (2, 1)
    assert not fit(Endmembers(("shade",), np.zeros((3, 1)), None), cube, np.arange(3)).matrix.any()


def test_columns_beside_the_spectra_and_repeated_names(tmp_path):
    path = tmp_path / "e.csv"
    path.write_text('name,class,0.4,0.5\nx,soil,1,2\nx,"wet, dark",3,4\n')
    library = load(path)
    assert library.names == ("x", "x 2")
    np.testing.assert_array_equal(library.matrix, [[1, 3], [2, 4]])
    np.testing.assert_allclose(library.wavelengths, [400, 500])
    assert load(write_csv(tmp_path / "n.csv", np.ones((3, 1)))).wavelengths is None


@pytest.mark.parametrize("fields", [{"fwhm": "{nan, nan}"}, {"fwhm": "{10, 10}", "wavelength_units": "Ells"}])
def test_odd_widths_do_not_let_any_library_in(tmp_path, fields):
    cube = cube_of(tmp_path, 2, [500, 600], **fields)
    library = Endmembers(("a",), np.ones((2, 1)), np.array([550.0, 650.0]))
    refused(unmix.LibraryError, "and not 500 nm", fit, library, cube, np.arange(2))


def test_names_of_libraries(tmp_path):
    """A library by its header, with a longer name beside it, and one whose name is a pattern."""
    for stem in ("lib", "lib_two", "m[1]"):
        one = Endmembers((stem,), np.ones((3, 1)), None)
        one.write(tmp_path / f"{stem}.csv", tmp_path / f"{stem}.sli", tmp_path / f"{stem}.hdr")
    for stem in ("lib", "m[1]"):
        assert load(tmp_path / f"{stem}.hdr").matrix.shape == (3, 1)
    path = tmp_path / "same.csv"
    path.write_text("name,1,2\na,1,2\na,3,4\na 2,5,6\n")
    assert len(set(load(path).names)) == 3


@pytest.mark.parametrize("what", ["missing.csv", "missing.sli", "missing.hdr"])
def test_missing_libraries(tmp_path, what):
    refused(unmix.LibraryError, what, load, tmp_path / what)


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("libraries/s06av95a_envi.sli", (224, 1365)),
        ("libraries/library_berlin.sli", (177, 75)),
        ("libraries/vegSpec.sli", None),
        ("berlin/SpecLib_SynthMix.sli", (177, 1031)),
        ("jasper/jasper_truth_endmembers.csv", (198, 4)),
        ("paper_endmembers/salinas_25.csv", (224, 25)),
    ],
)
def test_real_libraries(data, name, shape):
    library = load(Path(data, name))
    assert shape is None or library.matrix.shape == shape
    assert len(set(library.names)) == library.matrix.shape[1]


@pytest.mark.parametrize("word", ["!oak", "oak", "a,!oak"])
def test_a_word_that_selects_or_leaves_out_nothing(word):
    """`!oak` passed for a wish that was fulfilled."""
    library = Endmembers(("a", "b"), np.eye(2), None, source="two.csv", classes=("soil", "veg"))
    refused(LibraryError, r"two.csv: no name or class is 'oak'; there is ", select, [library], word)
    assert select([library], "!SOIL")[0].names == ("b",)


def test_a_word_that_is_no_class_is_answered_with_the_classes():
    names = tuple(f"{kind} {j}" for kind in ("npv", "pv", "soil") for j in range(4))
    library = Endmembers(names, np.ones((3, 12)), None, classes=tuple(name.split()[0] for name in names))
    with pytest.raises(LibraryError, match="no name or class is 'green'; there is npv, pv, soil, npv 0, npv 1"):
        select([library], "soil,green")


def test_a_library_in_python(tmp_path):
    (tmp_path / "l.csv").write_text("name,class,500,600\noak,tree,0.1,40\nash,tree,0.3,40\nsand,soil,50,60\n")
    library = unmix.load_library(tmp_path / "l.csv", wanted="tree", scale=100)
    assert library.names == ("oak", "ash") and library.classes == ("tree", "tree")
    np.testing.assert_array_equal(library.matrix, [[0.001, 0.003], [0.4, 0.4]])
    assert library.wavelengths.tolist() == [500, 600]
    refused(unmix.LibraryError, "no such file", unmix.load_library, tmp_path / "none.csv")


def test_names_with_control_characters_are_said(caplog):
    with caplog.at_level(logging.INFO):
        assert make(["a\x80b"], np.ones((2, 1)), None, Path("l.csv")).names == ("ab",)
    assert r"commas, braces or control characters: 'a" in caplog.text
