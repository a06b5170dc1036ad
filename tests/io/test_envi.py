"""ENVI in: every type, order and interleave, headers as they are in the wild, and what is refused."""

import gzip
import os
from pathlib import Path

import naive
import numpy as np
import pytest
import spectral.io.envi
from conftest import read_values, refused, write_cube
from hypothesis import given, settings
from hypothesis import strategies as st

import unmix
from unmix.errors import CubeError
from unmix.io import bytes_per_line, open_cube
from unmix.io.fields import DTYPES
from unmix.io.formats.header import format_header, parse, read_header
from unmix.io.read import read_parts
from unmix.scene.bands import choose_bands


def whole_cube(cube):
    """All stored values as (lines, samples, bands), read in two blocks."""
    blocks = slice(0, cube.lines // 2), slice(cube.lines // 2, cube.lines)
    return np.concatenate([read_values(cube, lines) for lines in blocks if lines.stop > lines.start])


@pytest.mark.parametrize("dtype", list(DTYPES.values()), ids=str)
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("interleave", ["bip", "bil", "bsq"])
def test_every_type_order_and_interleave(tmp_path, dtype, order, interleave):
    random = np.random.default_rng(0)
    values = random.integers(0, 256, (5, 4, 3, dtype.itemsize), np.uint8).view(dtype)[..., 0]
    if dtype.kind in "iu" and dtype.itemsize == 8:
        values >>= 11  # what float64 holds
    path = write_cube(tmp_path / "x.hdr", values, interleave, order, header_offset=13)
    cube = open_cube(path)
    assert (cube.lines, cube.samples, cube.bands, cube.dtype, cube.interleave) == (5, 4, 3, dtype, interleave)
    np.testing.assert_array_equal(whole_cube(cube), values)
    raw = path.with_suffix(".img").read_bytes()
    np.testing.assert_array_equal(values, naive.read_envi(raw, 5, 4, 3, dtype, interleave, order, 13))


@pytest.mark.parametrize("name", ["x", "x.img", "x.dat", "x.raw", "x.bin", "x.BSQ", "x.bil", "x.bip", "x.sli", "x.IMG"])
def test_the_data_file_under_its_usual_names(tmp_path, name):
    path = write_cube(tmp_path / "x.hdr", np.ones((2, 2, 2), np.int16))
    path.with_suffix(".img").rename(tmp_path / name)
    for named in (path, tmp_path / name):
        cube = open_cube(named)
        assert cube.path == tmp_path / name
        assert cube.stem == "x"


def test_a_header_named_after_the_whole_data_file(tmp_path):
    path = write_cube(tmp_path / "x.hdr", np.ones((2, 2, 2), np.int16))
    path.with_suffix(".img").rename(tmp_path / "x.dat")
    path.rename(tmp_path / "x.dat.hdr")
    for named in ("x.dat", "x.dat.hdr"):
        assert open_cube(tmp_path / named).path.name == "x.dat"


def test_scale_gain_offset_bad_bands_and_nodata(tmp_path):
    cube = open_cube(
        write_cube(
            tmp_path / "x.hdr",
            np.arange(8, dtype=np.float32).reshape(2, 2, 2),
            data_gain_values="{2, 3}",
            data_offset_values="{10, 20}",
            reflectance_scale_factor=100,
            bbl="{0, 1.0}",
            data_ignore_value="-1.23e34",
            wavelength="{0.5,\n 2.4}",
            fwhm="{0.01, 0.02}",
        )
    )
    bands = choose_bands(cube, "good", None)
    assert (bands.index, bands.gain, bands.offset) == (1, 0.03, 0.2)
    assert cube.nodata == float(np.float32(-1.23e34)) != -1.23e34
    np.testing.assert_allclose(cube.wavelengths, [500, 2400])
    np.testing.assert_allclose(cube.fwhm, [10, 20])
    assert choose_bands(cube, "all", 4).gain.tolist() == [0.25, 0.25]
    assert choose_bands(cube, "2,1-1", None).index.tolist() == [0, 1]
    for wrong in ("3", "0", "2-1", "a", "1,,2", ""):
        with pytest.raises(unmix.MethodError, match="`bands`"):
            choose_bands(cube, wrong, None)


def test_units_of_wavelengths(tmp_path):
    for units, expected in {
        "Nanometers": 0.5,
        "Micrometers": 500,
        "µm": 500,
        "um": 500,
        "": 500,
        "Unknown": 500,
    }.items():
        path = write_cube(tmp_path / "x.hdr", np.ones((1, 1, 2), np.int16), wavelength="{0.5, 1.5}")
        path.write_bytes(path.read_bytes() + f"wavelength units = {units}\n".encode("latin-1"))
        assert open_cube(path).wavelengths[0] == expected, units


def test_a_nodata_value_that_cannot_occur_is_said(tmp_path):
    cube = open_cube(write_cube(tmp_path / "x.hdr", np.ones((1, 1, 2), np.uint16), data_ignore_value=-9999))
    assert cube.nodata is None
    assert "cannot occur" in cube.problems[0]


WKT = 'PROJCS["UTM, 33N",GEOGCS["WGS 84",DATUM["D",SPHEROID["S",6378137.0,298.257]]]]'


def test_map_information_is_kept_to_the_letter(tmp_path):
    cube = open_cube(
        write_cube(tmp_path / "x.hdr", np.ones((1, 1, 2), np.int16), coordinate_system_string=f"{{{WKT}}}")
    )
    assert cube.fields["coordinate system string"] == WKT


# What is wrong: a part of the header and what stands there instead (after it, where there is no part), or what is done
# to the header and the data file, which returns the file to name where it is not the header; and what is said of it.
FAULTS = {
    "truncated": (
        lambda path, image: image.write_bytes(image.read_bytes()[:-1]),
        "truncated: 239 bytes, but x.hdr promises 240",
    ),
    "no data": (lambda path, image: image.unlink(), "no data file beside it"),
    "no header": (lambda path, image: path.unlink() or image, "no header beside it"),
    "two candidates": (lambda path, image: image.with_suffix(".dat").write_bytes(b""), "x.dat, x.img"),
    "esri": (
        lambda path, image: path.write_text("BYTEORDER I\nLAYOUT BIL\nNROWS 4\nNCOLS 5\nNBANDS 6\nNBITS 16\n"),
        "ESRI",
    ),
    "not a header": (lambda path, image: path.write_bytes(b"\xff\xd8\xff" + bytes(100)), "not an ENVI header"),
    "tiff": (lambda path, image: image.write_bytes(b"II*\0" + image.read_bytes()), "is a TIFF, though x.hdr says"),
    "tif by name": (("interleave = bip", "interleave = tif"), "no data file beside it (looked for x.tif"),
    "gzip": (("", "file compression = 1\n"), "not gzip-compressed, though x.hdr says so"),
    "complex": (("data type = 2", "data type = 6"), "data type 6 (complex)"),
    "type 99": (("data type = 2", "data type = 99"), "data type 99 (unknown)"),
    "absurd": (("lines = 4", "lines = 99999999999999999999"), "truncated"),
    "zero": (("lines = 4", "lines = 0"), "must be at least 1"),
    "words": (("lines = 4", "lines = four"), "'lines = four' is not a whole number"),
    "missing key": (("bands = 6\n", ""), "no 'bands'"),
    "open brace": (("", "wavelength = {1, 2,\n3\n"), "'wavelength' on line 8 is never closed"),
    "wavelengths": (("", "wavelength = {1, 2, 3}\n"), "'wavelength' has 3 entries for 6 bands"),
    "interleave": (("interleave = bip", "interleave = bsx"), "is not bip, bil or bsq"),
    "offset": (("", "header offset = -8\n"), "negative"),
    "frames": (("", "minor frame offsets = {0, 16}\n"), "has 'minor frame offsets'"),
    "folder": (lambda path, image: path.parent, "is a folder"),
    "nothing": (lambda path, image: path.with_name("nothing.hdr"), "no such file"),
}


@pytest.mark.parametrize("what", FAULTS)
def test_faults_are_named_in_one_line(tmp_path, what):
    path, (change, said) = write_cube(tmp_path / "x.hdr", np.ones((4, 5, 6), np.int16)), FAULTS[what]
    text, named = path.read_text(), None
    if callable(change):
        named = change(path, path.with_suffix(".img"))
    else:
        path.write_text(text.replace(*change) if change[0] else text + change[1])
    error = refused(unmix.CubeError, None, open_cube, named if isinstance(named, Path) else path)
    assert said in str(error.value) and "\n" not in str(error.value) and str(tmp_path) in str(error.value)


def test_frames_of_no_bytes_and_maps_of_classes(tmp_path):
    path = write_cube(tmp_path / "x.hdr", np.ones((4, 5, 6), np.int16), major_frame_offsets=[0, 0])
    assert open_cube(path).bands == 6
    path = write_cube(path, np.ones((4, 5, 1), np.uint8), file_type="ENVI Classification")
    assert open_cube(path).bands == 1
    refused(unmix.CubeError, "is a map of classes, and no scene", unmix.run, path, count=1)


def test_only_regular_files_are_read(tmp_path):
    """A pipe would be waited for, and a folder of outputs is no data file."""
    path = write_cube(tmp_path / "x.hdr", np.ones((1, 1, 2), np.int16))
    (tmp_path / "x").mkdir()
    assert open_cube(path).path.name == "x.img"
    path.with_suffix(".img").unlink()
    os.mkfifo(tmp_path / "x.img")
    with pytest.raises(unmix.CubeError, match=r"x: is no file"):
        open_cube(path)
    os.mkfifo(tmp_path / "y.hdr")
    with pytest.raises(unmix.CubeError, match="not a regular file"):
        open_cube(tmp_path / "y.hdr")


def test_a_header_of_the_data_file_is_not_taken_for_pixels(tmp_path):
    path = write_cube(tmp_path / "x.hdr", np.ones((3, 4, 2), np.int16), header_offset=100)
    os.truncate(path.with_suffix(".img"), 100 + 47)
    with pytest.raises(CubeError, match=r"is truncated: 147 bytes, but x\.hdr promises 148"):
        open_cube(path)


def test_reads_that_end_early_go_on(tmp_path, monkeypatch):
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda file, into, where: preadv(file, [memoryview(into[0])[:7]], where))
    (tmp_path / "x").write_bytes(bytes(range(200)))
    part = np.zeros(150, np.uint8)
    read_parts(tmp_path / "x", [(part, 20)])
    assert part.tolist() == list(range(20, 170))


def test_a_longer_file_is_a_warning(tmp_path):
    path = write_cube(tmp_path / "x.hdr", np.ones((1, 1, 2), np.int16))
    with open(path.with_suffix(".img"), "ab") as file:
        file.write(b"more")
    assert "4 more than x.hdr promises" in open_cube(path).problems[0]


@settings(max_examples=5 * settings.default.max_examples)
@given(st.text(max_size=300).map(lambda text: "ENVI\n" + text))
def test_any_text_parses_or_is_refused(text):
    try:
        parse(text, "x.hdr")
    except unmix.CubeError as error:
        assert "\n" not in str(error)


NAMES = st.text(
    st.characters(codec="utf-8", exclude_characters="{}\r\n\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), max_size=20
)


@settings(max_examples=3 * settings.default.max_examples)
@given(
    st.dictionaries(
        st.text(st.characters(categories=["Ll", "Nd"]), min_size=1, max_size=8),
        st.one_of(NAMES.map(str.strip), st.integers(0, 10**9), st.lists(NAMES.map(str.strip), min_size=1, max_size=5)),
        max_size=8,
    )
)
def test_a_header_that_we_write_reads_back(fields):
    back = parse(format_header(fields), "x.hdr")
    assert set(back) == set(fields)
    for key, value in fields.items():
        if isinstance(value, int):
            assert back[key] == str(value)
        elif isinstance(value, str):
            assert back[key] == value
        else:
            assert len(back[key].split(",")) == len(value)


@pytest.mark.real
def test_against_spectral_on_every_real_header(data):
    """Sizes, type, interleave, wavelengths and map information as `spectral` reads them, wherever it can."""
    compared = 0
    for path in sorted(data.rglob("*.hdr")):
        try:
            theirs = spectral.io.envi.read_envi_header(str(path))
        except Exception:
            continue
        ours = read_header(path)
        for key in ("samples", "lines", "bands", "data type", "interleave", "header offset", "byte order"):
            if key in theirs:
                assert ours[key].strip() == theirs[key].strip(), (path, key)
        for key in ("wavelength", "fwhm", "bbl"):
            if key in theirs:
                mine = [float(value) for value in ours[key].strip().rstrip(",").split(",")]
                assert mine == [float(value) for value in theirs[key] if value], (path, key)
        compared += 1
    assert compared >= 20


@pytest.mark.real
def test_every_real_pair_opens_or_is_refused_in_a_line(data):
    """Opened: sizes times type fit the file; refused: for the reason that the table gives."""
    refused = {
        "ort_glt.hdr": "ESRI",
        "ort_img.hdr": "ESRI",
        "fake_refl.hdr": "no data file",
        "SpecLib_Berlin_Urban_Gradient_2009.hdr": "library",
        "SpecLib_Berlin_Urban_Gradient_2009_244bands.hdr": "library",
        "SpecLib_SynthMix.hdr": "library",
        "DLR_HySU_HS_library.hdr": "library",
        "DLR_HySU_SVC.hdr": "library",
        "EnMAP.hdr": "library",
        "library_berlin.hdr": "library",
        "s06av95a_envi.hdr": "library",
        "vegSpec.sli.hdr": "library",
    }
    opened = 0
    for path in sorted(data.rglob("*.hdr")):
        if path.name in refused:
            with pytest.raises(unmix.CubeError, match=refused[path.name]) as error:
                open_cube(path)
            assert "\n" not in str(error.value)
        else:
            cube = open_cube(path)
            if cube.format != "ENVI":  # HySU's TIFFs
                continue
            wanted = cube.skip + cube.lines * cube.samples * cube.bands * cube.dtype.itemsize
            assert cube.path.stat().st_size >= wanted or cube.packed
            opened += 1
    assert opened >= 20


@pytest.mark.parametrize("interleave", ["bip", "bil", "bsq"])
@pytest.mark.parametrize("piece", [1, 7, 64, 4096])
def test_pieces_in_flight_make_the_block(tmp_path, cube_writer, monkeypatch, interleave, piece):
    monkeypatch.setattr("unmix.io.read.PIECE", piece)
    values = np.random.default_rng(3).integers(-999, 999, (6, 5, 4)).astype(np.int16)
    cube = open_cube(cube_writer(tmp_path / "x.hdr", values, interleave))
    raw = cube.read(slice(1, 5), np.empty(4 * bytes_per_line(cube), np.uint8))
    axes = {"bip": (0, 1, 2), "bil": (0, 2, 1), "bsq": (2, 0, 1)}[interleave]
    assert np.array_equal(raw, values[1:5].transpose(axes))
    cube.path.write_bytes(cube.path.read_bytes()[:-9])
    with pytest.raises(CubeError, match="ends at byte 231; it was longer"):
        cube.read(slice(2, 6), np.empty(4 * bytes_per_line(cube), np.uint8))


@pytest.mark.parametrize("interleave", ["bip", "bil", "bsq"])
def test_gzip_compressed_data(tmp_path, cube_writer, interleave):
    """Inflated once, the same values; what is cut short or damaged is said."""
    values = np.random.default_rng(3).integers(-999, 999, (6, 5, 4)).astype(np.int16)
    header = cube_writer(tmp_path / "x.hdr", values, interleave)
    plain = open_cube(header)
    buffer = np.empty(6 * bytes_per_line(plain), np.uint8)
    expected = plain.read(slice(1, 5), buffer).copy()
    raw = plain.path.read_bytes()
    header.write_text(header.read_text() + "file compression = 1\n")
    plain.path.write_bytes(gzip.compress(raw))
    cube = open_cube(header)
    assert cube.packed
    np.testing.assert_array_equal(cube.read(slice(1, 5), buffer), expected)
    flipped = bytearray(gzip.compress(raw, 0))
    flipped[60] ^= 1
    for damaged, says in (
        (bytes(flipped), "cannot be inflated"),  # its checksum comes last
        (gzip.compress(raw[:-9]), "inflates to 231 bytes, but its header promises 240"),
        (gzip.compress(raw)[:40], "cannot be inflated"),
    ):
        plain.path.write_bytes(damaged)
        with pytest.raises(CubeError, match=says):
            open_cube(header).read(slice(0, 6), buffer)


@pytest.mark.real
def test_a_real_compressed_cube_is_its_plain_twin(data):
    plain, packed = open_cube(data / "gdal_envi/aea.hdr"), open_cube(data / "gdal_envi/aea_compressed.hdr")
    whole = slice(0, plain.lines)
    buffers = [np.empty(plain.lines * bytes_per_line(plain), np.uint8) for _ in range(2)]
    np.testing.assert_array_equal(plain.read(whole, buffers[0]), packed.read(whole, buffers[1]))


@pytest.mark.parametrize(
    "units, stored, fwhm, waves, widths",
    [
        ("Wavenumber", "{20000, 10000, 5000}", "{20, 10, 5}", [500, 1000, 2000], [0.5, 1, 2]),
        (
            "GHz",
            "{599584.916, 299792.458, 149896.229}",
            "{599.584916, 299.792458, 149.896229}",
            [500, 1000, 2000],
            [0.5, 1, 2],
        ),
        ("MHz", "{599584916, 299792458, 149896229}", None, [500, 1000, 2000], None),
        ("Wavenumber", "{20000, 0, 5000}", None, None, None),
        ("Index", "{500, 1000, 2000}", "{1, 1, 1}", None, None),
        ("Index", "{1, 2, 3}", None, None, None),
        ("Unknown", "{500, 1000, 2000}", "{1, 1, 1}", [500, 1000, 2000], [1, 1, 1]),
        ("Unknown", "{1, 2, 3}", None, None, None),
        ("Unknown", "{0.5, 1, 2}", "{.01, .01, .01}", [500, 1000, 2000], [10, 10, 10]),
        ("Angstroms", "{5000, 10000, 20000}", None, [500, 1000, 2000], None),
        ("Ells", "{500, 1000, 2000}", None, [500, 1000, 2000], None),
        ("Unknown", "{1.12, 30, 216}", "{.1, 3, 20}", [1120, 30000, 216000], [100, 3000, 20000]),
        ("", "{1.12, 30, 216}", None, [1120, 30000, 216000], None),
        ("", "{0, 500, 1000}", None, [0, 500, 1000], None),
        ("", "{1, 2, 3}", None, None, None),
        ("", "{99, 500, 1000}", None, None, None),  # of two units
        ("", "{99, 200, 250}", None, [99000, 200000, 250000], None),
        ("", "{28571, 10000, 5000}", None, None, None),  # too long for nm
        ("eV", "{1, 2, 3}", None, [1239.8419843320026, 619.9209921660013, 413.28066144400086], None),
        ("", "{100.5, 500, 1000}", None, [100.5, 500, 1000], None),
        ("Wavelength (nm)", "{500, 1000, 2000}", None, [500, 1000, 2000], None),
        ("micrometer [um]", "{0.5, 1, 2}", None, [500, 1000, 2000], None),
        ("Wavenumber (cm-1)", "{20000, 10000, 5000}", None, [500, 1000, 2000], None),
        ("Wavenumbers (cm⁻¹)", "{20000, 10000, 5000}", None, [500, 1000, 2000], None),
        ("Raman shift (cm-1)", "{500, 1000, 2000}", "{1, 1, 1}", None, None),
        ("Raman Shift", "{500, 1000, 2000}", None, None, None),
    ],
)
def test_what_is_no_wavelength_is_not_taken_for_nm(tmp_path, units, stored, fwhm, waves, widths):
    fields = {"wavelength": stored, "wavelength_units": units} | ({} if fwhm is None else {"fwhm": fwhm})
    path = write_cube(tmp_path / "x.hdr", np.ones((1, 1, 3), np.int16))
    path.write_text(
        path.read_text() + "".join(f"{key.replace('_', ' ')} = {value}\n" for key, value in fields.items()), "utf-8"
    )
    cube = open_cube(path)
    for found, expected in ((cube.wavelengths, waves), (cube.fwhm, widths)):
        assert (found is None) == (expected is None)
        if expected is not None:
            np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert bool(cube.problems) == (waves is None or units == "Ells") and all("x.hdr" in one for one in cube.problems)


def test_a_library_fits_a_cube_in_wavenumbers(tmp_path):
    """Its bands descend in wavelength, like those of any spectrometer in another order."""
    waves = np.linspace(500, 2000, 40)
    library = unmix.Endmembers(("a", "b"), np.stack([waves / 2000, 1 - waves / 4000], axis=1), waves)
    numbers = np.linspace(6000, 18000, 9)
    fields = {"wavelength": "{" + ", ".join(map(repr, numbers.tolist())) + "}", "wavelength_units": "Wavenumber"}
    truth = np.stack([1e7 / numbers / 2000, 1 - 1e7 / numbers / 4000], axis=1)
    write_cube(tmp_path / "x.hdr", (truth @ [0.25, 0.75]).reshape(1, 1, 9).repeat(4, 0), **fields)
    unmix.run(tmp_path / "x.hdr", endmembers=library, device="cpu")
    found = np.fromfile(tmp_path / "x_abundance.img", "<f4")
    np.testing.assert_allclose(found.reshape(4, 2), [[0.25, 0.75]] * 4, atol=2e-3)


@pytest.mark.parametrize(
    "dtype, value, fine",
    [
        ("int64", 2**53, True),
        ("int64", -(2**53), True),
        ("int64", 2**60, True),
        ("int64", -(2**63), True),
        ("int64", 2**53 + 1, False),
        ("int64", -(2**53) - 1, False),
        ("int64", 2**63 - 1, False),
        ("uint64", 2**63, True),
        ("uint64", 2**53 + 1, False),
        ("uint64", 2**64 - 1, False),
    ],
)
@pytest.mark.parametrize("interleave", ["bip", "bsq"])
def test_whole_numbers_that_float64_rounds(tmp_path, dtype, value, fine, interleave):
    """Refused where they are read, and only these: fill values of a power of 2 are not."""
    values = np.ones((4, 3, 2), dtype)
    values[2, 1, 1] = value
    cube = open_cube(write_cube(tmp_path / "x.hdr", values, interleave, ">"))
    if fine:
        np.testing.assert_array_equal(whole_cube(cube), values)
        return
    with pytest.raises(CubeError, match=f"holds {value}, a whole number above 2..53"):
        whole_cube(cube)
    E = unmix.Endmembers(("a",), np.ones((2, 1)), None)
    with pytest.raises(CubeError, match="would round"):
        unmix.run(tmp_path / "x.hdr", endmembers=E, device="cpu", lines="1:4", samples="1:3")
    assert not list(tmp_path.glob("*.part")) and not list(tmp_path.glob("*_*"))
