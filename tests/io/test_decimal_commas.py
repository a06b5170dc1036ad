"""Decimal commas: every table that the program reads takes them as decimals, or says that they may be; none is split in silence."""

import numpy as np
import pytest
from conftest import refused, write_cube

import unmix
from unmix.commands.regions import pixels_of_table
from unmix.errors import CubeError, InputError, LibraryError, UnmixError
from unmix.io.axis import axis_from_file
from unmix.io.text import decoded, list_rows, table_rows
from unmix.library import load
from unmix.library.classes import classified
from unmix.maps.derived.noise import read_numbers

WAVES = 420.58 + 70 * np.arange(6)
WIDTHS = 70.5 + np.arange(6)
NAMES = ("soil", "dry, grass")
VALUES = np.array([[0.1312, 0.2, 0.3456, 0.4, 0.5123, 0.6], [0.01, 0.0234, 0.5, 0.0461, 0.05, 1.25]])


def comma(number, digits=4):
    return f"{number:.{digits}f}".replace(".", ",")


SPLIT = {
    "semicolons": lambda w, f: f"{w};{f}",
    "tabs": lambda w, f: f"{w}\t{f}",
    "blanks": lambda w, f: f" {w}   {f}",
    "quotes": lambda w, f: f'"{w}","{f}"',
}


@pytest.mark.parametrize("heading", ["", "Wavelength;FWHM\n"])
@pytest.mark.parametrize("how", SPLIT)
def test_wavelengths(tmp_path, how, heading):
    """Two columns of decimals; the second line may be whole."""
    lines = [SPLIT[how](comma(w, 2), comma(f, 1)) for w, f in zip(WAVES, WIDTHS)]
    if how == "quotes":
        lines = [line.replace('","', '";"') for line in lines]
    (tmp_path / "w.csv").write_text(heading + "\n".join(lines) + "\n")
    waves, fwhm = axis_from_file(tmp_path / "w.csv", 6)
    np.testing.assert_allclose(waves, WAVES, rtol=1e-12)
    np.testing.assert_allclose(fwhm, WIDTHS, rtol=1e-12)


# Lists whose commas may be decimal, none of which says that they separate columns.
UNCLEAR = {
    "alone": "420,58\n490,58\n560,58\n",
    "one of them whole": "420,58\n490\n560,5\n",
    "below one name": "nm\n420,58\n490,58\n",
    "two of them": "420,58,70,5\n490,58,70,5\n",
    "counted": "1,420,58\n2,490,58\n3,560,58\n",
    "one digit": "1,9\n2,1\n2,1\n",
    "named": "B1,0,5\nB2,0,7\nB3,1,1\n",
    "leading zeros": "0,05\n0,07\n0,10\n",
}


@pytest.mark.parametrize("name", UNCLEAR)
def test_commas_that_may_be_decimal(tmp_path, name):
    path = tmp_path / "n.txt"
    path.write_text(UNCLEAR[name])
    words = r"line \d: '.*,.*' may be a number with a decimal comma; write points, or a heading that names every column"
    refused(InputError, words, read_numbers, path, "noise", "a band")
    refused(CubeError, words, axis_from_file, path, 3)


# Lists of points, or of whole numbers that are clearly in columns, and the last number of each line.
CLEAR = {
    "points": ("1.5\n2.5\n3\n", [1.5, 2.5, 3]),
    "two columns": ("400.0,10\n410.5,11\n", [10, 11]),
    "a heading": ("band,noise\n420,58\n430,57\n", [58, 57]),
    "a count": ("1,9\n2,1\n3,4\n", [9, 1, 4]),
    "from zero": ("0,9\n1,1\n", [9, 1]),
    "commas and blanks": ("400, 10\n410, 11\n", [10, 11]),
    "semicolons": ("B1;0,5\nB2;0,75\n", [0.5, 0.75]),
    "tabs": ("1\t2,5E-1\n2\t7\n", [0.25, 7]),
    "whole": ("400 10\n410 11\n", [10, 11]),
    "semicolons at ends": ("0,5;\n1,75;\n", [0.5, 1.75]),
    "named points": ("soil,0.5\nwater,2\n", [0.5, 2]),
}


@pytest.mark.parametrize("name", CLEAR)
def test_lists_that_are_clear(tmp_path, name):
    text, numbers = CLEAR[name]
    (tmp_path / "n.txt").write_text(text)
    assert read_numbers(tmp_path / "n.txt", "noise", "a band") == numbers


def library_of(separator, quote=False):
    rows = [["name", *(comma(w, 2) for w in WAVES)]]
    rows += [[name, *map(comma, values)] for name, values in zip(NAMES, VALUES)]
    return "".join(separator.join(f'"{cell}"' if quote else cell for cell in row) + "\n" for row in rows)


@pytest.mark.parametrize(
    "text",
    [library_of(";"), library_of("\t"), library_of(",", True), library_of(";", True), "sep=;\n" + library_of(";")],
    ids=["semicolons", "tabs", "quoted", "both", "told"],
)
@pytest.mark.parametrize("coding", ["utf-8", "utf-16"])
def test_libraries(tmp_path, text, coding):
    path = tmp_path / "l.csv"
    path.write_bytes(text.encode(coding))
    library = load(path)
    np.testing.assert_allclose(library.wavelengths, WAVES, rtol=1e-12)
    np.testing.assert_array_equal(library.matrix, VALUES.T)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name,420,58,490,58\nsoil,0,1312,0,2\n", "'420,58' may be a number with a decimal comma"),
        (
            "name,420.58,490.58\nsoil,0,1312,0,2\n",
            "row 2 has 5 cells, the first row 3: some of its commas may be decimal",
        ),
        ("name,420.58,490.58\nsoil, dry,0.1,0.2\n", "row 2 has 4 cells, the first row 3"),
    ],
)
def test_libraries_that_are_split_too_often(tmp_path, text, words):
    (tmp_path / "l.csv").write_text(text)
    refused(LibraryError, words, load, tmp_path / "l.csv")


def test_libraries_of_whole_numbers_are_read(tmp_path):
    """Those that ascend, and two detectors that overlap."""
    (tmp_path / "a.csv").write_text("name,400,410,420,430\nsoil,1000,2000,3000,4000\n")
    (tmp_path / "b.csv").write_text("name,400,500,600,450,550,650\nsoil,0,1,2,3,4,5\n")
    assert load(tmp_path / "a.csv").wavelengths.tolist() == [400, 410, 420, 430]
    assert load(tmp_path / "b.csv").wavelengths.tolist() == [400, 500, 600, 450, 550, 650]


def test_text_files_of_spectra(tmp_path):
    """ECOSTRESS and ENVI's plots, as a program in such a language wrote them: 0,45 was a wavelength of 0."""
    rows = [f"{comma(w / 1000, 5)}\t {comma(v, 3)}" for w, v in zip(WAVES, VALUES[0] * 100)]
    head = "Name: Soil\nX Units: Wavelength (micrometers)\nY Units: Reflectance (percentage)\n\n"
    (tmp_path / "s.spectrum.txt").write_text(head + "\n".join(rows) + "\n")
    (tmp_path / "p.txt").write_text("ENVI ASCII Plot File\nColumn 1: Wavelength\nColumn 2: Soil\n" + "\n".join(rows))
    for name, unit in (("s.spectrum.txt", 100), ("p.txt", 1)):
        library = load(tmp_path / name)
        np.testing.assert_allclose(library.wavelengths, WAVES, rtol=1e-12)
        np.testing.assert_allclose(library.matrix[:, 0] * unit, VALUES[0] * 100, rtol=1e-12)


def test_tables_of_text_and_numbers(tmp_path):
    """Classes, pixels: semicolons separate; the number of a row in messages is its line."""
    (tmp_path / "l.csv").write_text(library_of(";"))
    (tmp_path / "k.csv").write_text("name;kind\nsoil;dark\ndry, grass;bright\n")
    (part,) = classified([load(tmp_path / "l.csv")], f"{tmp_path}/k.csv:kind", tmp_path / "l.csv")
    assert part.classes == ("dark", "bright")
    cube = unmix.open_cube(write_cube(tmp_path / "c.hdr", np.ones((3, 4, 2))))
    (tmp_path / "p.csv").write_text("line;sample;class\n1;2;a\n2;0;b\n")
    numbers = pixels_of_table(tmp_path / "p.csv", cube, "class").numbers
    assert numbers[1, 2] == 1 and numbers[2, 0] == 2 and (numbers > 0).sum() == 2


def test_columns_are_blamed_where_columns_are_at_fault(tmp_path):
    (tmp_path / "w.txt").write_text("1 420.5 70 3\n" * 6)
    refused(CubeError, "its lines have 4 columns", axis_from_file, tmp_path / "w.txt", 6)
    (tmp_path / "v.txt").write_text("420.5\n490.5 70\n")
    refused(CubeError, "its lines have 1 or 2 columns", axis_from_file, tmp_path / "v.txt", 2)
    (tmp_path / "r.txt").write_text("420.5 490.5 560.5 600.5\n")
    refused(CubeError, "has 4 wavelengths in a row, but the cube has 6 bands", axis_from_file, tmp_path / "r.txt", 6)


def test_text_is_decoded():
    assert decoded("µ;1".encode("latin-1")) == "µ;1" == decoded("\ufeffµ;1".encode()) == decoded("µ;1".encode("utf-16"))
    assert table_rows("", "x", UnmixError) == [] == list_rows("# nothing\n", "x", UnmixError)
