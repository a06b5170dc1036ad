"""Libraries as text that spectrometers and spreadsheets write: USGS splib07, spectra in columns; others are named for what they are."""

import os

import numpy as np
import pytest
from conftest import refused, write_cube

import unmix
from unmix.errors import LibraryError
from unmix.library import files_of, is_library, load, load_parts

ASD, BECK = np.arange(0.35, 0.5001, 0.001), np.linspace(0.2, 3.0, 48)
DELETED = -1.23e34


def test_texts_that_are_not_read_are_said(tmp_path, caplog):
    """A column of classes by another name was lost without a word; names, classes and colours are none."""
    caplog.set_level("INFO", "unmix")
    for heading, lost in (("name,class,color", ""), ("name,Klasse,source", "Klasse"), (",name,class", "")):
        (tmp_path / "t.csv").write_text(f"{heading},400,500\n1,b,red,0.1,0.2\n2,d,blue,0.2,0.3\n")
        caplog.clear()
        load(tmp_path / "t.csv")
        assert (f"the texts of column '{lost}' are read by `classes` {lost}" in caplog.text) == bool(lost)
        (tmp_path / "t.csv").unlink()


def axis_file(folder, word, waves, more=""):
    path = folder / f"splib07a_Wavelengths_{word}_{waves[0]:g}-{waves[-1]:g}_microns{more}.txt"
    path.write_text(f" splib07a Record=1: Wavelengths {word}\n" + "".join(f"   {one:.7E}\n" for one in waves))
    return path


def spectrum_file(folder, title, values, record=100):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"splib07a_{title.replace(' ', '_')}.txt"
    name, spectrometer = title.split(" ", 1)
    path.write_text(
        f" splib07a Record={record}: {name}   {spectrometer}\n" + "".join(f"  {one:.7E}\n" for one in values)
    )
    return path


@pytest.fixture
def splib07(tmp_path):
    """A root with the files of wavelengths, two chapters, widths of bands and errors, which are no spectra."""
    root = tmp_path / "ASCIIdata_splib07a"
    root.mkdir()
    axis_file(root, "ASD", ASD), axis_file(root, "BECK", BECK, "_Beckman")
    spectrum_file(root, "Bandpass_(FWHM) ASDFR", np.full(len(ASD), 0.001))
    soil = np.linspace(0.1, 0.2, len(ASD))
    soil[:5] = DELETED
    spectrum_file(root / "ChapterM_Minerals", "Soil X1 ASDFRa AREF", soil)
    spectrum_file(root / "ChapterM_Minerals", "Alunite GDS84 BECKb AREF", np.linspace(0.3, 0.5, len(BECK)))
    spectrum_file(root / "ChapterV_Vegetation", "Aspen YNP ASDNGa AREF", np.linspace(0.5, 0.6, len(ASD)))
    spectrum_file(root / "errorbars", "Soil X1 ASDFRa errorbars", np.zeros(len(ASD)))
    (root / ".cache").mkdir()
    spectrum_file(root / ".cache", "Hidden ASDFRa", soil)
    return root


def test_splib07(splib07):
    """From the root, a chapter and a file; spectra of a spectrometer are on its axis, deleted values are NaN."""
    asd, beck = sorted(load_parts(splib07), key=lambda part: len(part.names), reverse=True)
    assert asd.names == ("Soil X1 ASDFRa AREF", "Aspen YNP ASDNGa AREF") and beck.names == ("Alunite GDS84 BECKb AREF",)
    assert asd.classes == ("Soil", "Aspen") and asd.source == "ASCIIdata_splib07a"
    np.testing.assert_allclose(asd.wavelengths, ASD * 1000, rtol=1e-6)
    np.testing.assert_allclose(beck.wavelengths, BECK * 1000, rtol=1e-6)
    np.testing.assert_allclose(asd.matrix[5:, 0], np.linspace(0.1, 0.2, len(ASD))[5:], rtol=1e-6)
    assert np.isnan(asd.matrix[:5, 0]).all() and asd.valid.sum() == 2 * len(ASD) - 5
    chapter = splib07 / "ChapterM_Minerals"
    expected = ["Alunite GDS84 BECKb AREF", "Soil X1 ASDFRa AREF"]
    assert sorted(name for part in load_parts(chapter) for name in part.names) == expected
    one = load(chapter / "splib07a_Soil_X1_ASDFRa_AREF.txt")
    assert one.names == asd.names[:1] and is_library(chapter / "splib07a_Soil_X1_ASDFRa_AREF.txt")
    assert is_library(splib07)


def test_files_of_splib07(splib07):
    """Those of the wavelengths are read, too: another axis is another library."""
    axes = set(splib07.glob("*Wavelengths*"))
    chapter = splib07 / "ChapterM_Minerals"
    assert axes < set(files_of(chapter)) and axes < set(files_of(next(chapter.glob("*Soil*"))))
    assert {*axes, *splib07.glob("Chapter*/*.txt")} < set(files_of(splib07))


def test_axes_of_one_length(splib07):
    """The spectrometer decides; without its word a length that two files have is not settled."""
    axis_file(splib07, "HYDICE", BECK + 1)
    chapter = splib07 / "ChapterM_Minerals"
    np.testing.assert_allclose(load(next(chapter.glob("*Alunite*"))).wavelengths, BECK * 1000, rtol=1e-6)
    other = spectrum_file(chapter, "Calcite X2 NEWa AREF", np.ones(len(BECK)))
    refused(LibraryError, r"several files splib07.* beside it or in the folder above have 48 wav", load, other)
    alone = spectrum_file(chapter, "Calcite X3 NEWa AREF", np.ones(len(ASD)))
    np.testing.assert_allclose(load(alone).wavelengths, ASD * 1000, rtol=1e-6)
    lost = spectrum_file(chapter, "Calcite X4 ASDa AREF", np.ones(7))
    refused(LibraryError, r"no file .* has 7 wavelengths", load, lost)
    lost.write_text(lost.read_text() + "x\n")
    refused(LibraryError, "no complete file of USGS splib07", load, lost)


WAVES = np.arange(420.0, 700.0, 70.0)
VALUES = np.random.default_rng(0).random((4, 3)).round(4)
HEADS = {
    "nm": ("wavelength", WAVES),
    "µm": ("Wavelength (µm)", WAVES / 1000),
    "um": ("wavelength_um", WAVES / 1000),
    "guessed": ("x", WAVES / 1000),
    "descending": ("Wavelength (nm)", WAVES[::-1]),
    "long": ("wavelength (micrometers)", WAVES / 1000),
}


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("how", HEADS)
def test_spectra_in_columns(tmp_path, how, separator):
    """A first column of wavelengths, a column a spectrum below its name; with decimal commas, where others separate."""
    head, axis = HEADS[how]
    rows = [[head, "soil", "7", "water"] if head != "x" else [head, "soil", "tree", "water"]]
    rows += [[repr(float(wave)), *map(str, values)] for wave, values in zip(axis, VALUES)]
    text = "\n".join(separator.join(row) for row in rows)
    (tmp_path / "c.csv").write_text(text if separator == "," else text.replace(".", ","))
    library = load(tmp_path / "c.csv")
    assert library.names == tuple(rows[0][1:])
    np.testing.assert_allclose(library.wavelengths, WAVES[::-1] if how == "descending" else WAVES, rtol=1e-12)
    np.testing.assert_array_equal(library.matrix, VALUES)


def test_widths_and_counts_in_columns(tmp_path):
    (tmp_path / "w.csv").write_text("wavelength,fwhm,soil\n0.42,0.01,0.1\n0.49,0.02,0.2\n")
    library = load(tmp_path / "w.csv")
    np.testing.assert_allclose(library.fwhm, [10, 20])
    assert library.names == ("soil",)
    (tmp_path / "n.csv").write_text("channel,soil\n1,0.1\n2,0.2\n3,nan\n")
    assert load(tmp_path / "n.csv").wavelengths is None and load(tmp_path / "n.csv").valid.sum() == 2
    (tmp_path / "b.csv").write_text("wavelength,soil,tree\n420,0.1,NA\n430,,0.2\n440,0.3,0.3\n")
    np.testing.assert_array_equal(load(tmp_path / "b.csv").valid, [[1, 0], [0, 1], [1, 1]])
    (tmp_path / "b.csv").write_text("wavelength,soil\n420,0.1\n430,-x-\n440,0.3\n")
    with pytest.raises(LibraryError, match="row 3, column 2: '-x-' is not a number; write nan where there is no value"):
        load(tmp_path / "b.csv")
    (tmp_path / "r.csv").write_text("wavelength,420,430\nsoil,0.1,0.2\ntree,0.3,0.4\n")
    assert load(tmp_path / "r.csv").names == ("soil", "tree")


SVC = b"/*** Spectra Vista SIG Data ***/\nname= leaf\ndata= \n350 1 2 3\n"


@pytest.mark.parametrize(
    ("name", "head", "words"),
    [
        ("l.asd", b"as7\0" + bytes(480), "is an ASD file; export it as text"),
        ("l.asd", b"ASD" + bytes(480), "is an ASD file; export it as text"),
        ("l.sig", SVC, "is an SVC file; export it as a table"),
        ("l.txt", SVC, "is an SVC file; export it as a table"),
        (
            "l.sed",
            b"Comment: x\nVersion: 2.1\nFile Name: l.sed\n",
            "is a Spectral Evolution file; export it as a table",
        ),
        ("l.xlsx", b"PK\x03\x04" + bytes(60), "is a workbook; save the sheet as CSV"),
    ],
)
def test_files_of_others_are_named(tmp_path, name, head, words):
    (tmp_path / name).write_bytes(head)
    refused(LibraryError, words + ".*: docs/formats.md lists what is read", load, tmp_path / name)


ECOSTRESS = "Name: Soil\nX Units: Wavelength (micrometers)\nY Units: Reflectance (percentage)\n\n  0.42 10\n  0.43 20\n"


@pytest.mark.parametrize("name", [".", "./", "../eco"])
def test_a_folder_by_its_place(tmp_path, monkeypatch, name, caplog):
    """Messages had no name for it."""
    (tmp_path / "eco").mkdir()
    (tmp_path / "eco/soil.spectrum.txt").write_text(ECOSTRESS)
    monkeypatch.chdir(tmp_path / "eco")
    assert unmix.load_library(name).source == "eco"
    monkeypatch.chdir(tmp_path)
    os.makedirs(tmp_path / "eco/in")
    monkeypatch.chdir(tmp_path / "eco/in")
    assert unmix.load_library("..").source == "eco"


def test_folders_in_a_folder(tmp_path):
    """Chapters of any text; a folder with spectra of its own is read alone."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "s.spectrum.txt").write_text(ECOSTRESS)
    assert load(tmp_path).names == ("Soil", "Soil 2")
    (tmp_path / "s.spectrum.txt").write_text(ECOSTRESS)
    assert load(tmp_path).names == ("Soil",)
    write_cube(tmp_path / "a/in/c.hdr", np.ones((2, 2, 2))) if (tmp_path / "a/in").mkdir() is None else None
    with pytest.raises(
        LibraryError, match="no file in this folder, or in the folders in it, is a USGS or ECOSTRESS spec"
    ):
        load(tmp_path / "a/in")


def test_comments_before_the_header(tmp_path):
    """Lines that begin with # before a header are left out; a header that begins so is kept, and faults keep their rows' numbers."""
    table = "wavelength\tsoil\tleaf\n400\t0.1\t0.2\n500\t0.3\t0.4\n"
    for name, text in (("plain", table), ("comment", "# June, mean of 10\n# ASD\n" + table), ("header", "#" + table)):
        (tmp_path / f"{name}.txt").write_text(text)
        found = load(tmp_path / f"{name}.txt")
        assert found.names == ("soil", "leaf") and found.matrix.tolist() == [[0.1, 0.2], [0.3, 0.4]], name
        np.testing.assert_array_equal(found.wavelengths, [400, 500])
    (tmp_path / "rows.csv").write_text("# a library\nname,400,500\nsoil,0.1,x\n")
    refused(LibraryError, "row 3", load, tmp_path / "rows.csv")


def test_wavelengths_of_detectors_that_overlap(tmp_path):
    (tmp_path / "e.csv").write_text("wavelength_nm,a,b\n900,0.1,0.2\n950,0.3,0.4\n940,0.5,0.6\n")
    np.testing.assert_array_equal(load(tmp_path / "e.csv").wavelengths, [900, 950, 940])
