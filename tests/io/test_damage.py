"""What a review and an attack found: wrong numbers in silence, crashes of libraries, files that claim too much."""

import faulthandler
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor

import h5py
import numpy as np
import products
import pytest
import rasterio
import scipy.io
from conftest import patience, read_values, refused, write_csv, write_cube

import unmix
from unmix.io import open_cube, probe
from unmix.io.formats.header import geotransform
from unmix.library import Endmembers, load
from unmix.library.to_bands import spacing
from unmix.scene import open_scene
from unmix.scene.sample import sampled

Y = np.random.default_rng(0).random((6, 9, 8))


@pytest.mark.parametrize("kind", [0, 8, 10, 20, 99, 255, 65535])
def test_a_type_that_is_none_in_a_matlab_file(tmp_path, kind):
    """One byte; scipy's reader crashes on it, in a child."""
    scipy.io.savemat(tmp_path / "s.mat", {"cube": Y})
    raw = bytearray((tmp_path / "s.mat").read_bytes())
    at = raw.find(Y.tobytes("F")) - 8
    assert raw[at] == 9
    raw[at : at + 2] = kind.to_bytes(2, "little")
    (tmp_path / "s.mat").write_bytes(raw)
    with pytest.raises(unmix.CubeError, match="damaged"):
        unmix.run(tmp_path / "s.mat", count=2, extract="vca", device="cpu", out_dir=tmp_path / "o")
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("dtype", "compressed"),
    [(f"{kind}{bits}", bits > 16) for kind in ("int", "uint") for bits in (16, 32, 64)]
    + [("uint8", False), ("float32", False), ("float64", True)],
)
def test_matlab_files_of_scipy_are_read(tmp_path, dtype, compressed):
    """Byte for byte, of every type; text and cells beside it."""
    cube = (Y * 200).astype(dtype)
    words = np.array(["Tree", "Wässer", ""], object)
    values = {"s": {"a": 1}, "cube": cube, "names": words, "title": "two words", "z": np.arange(3.0)}
    values |= {"sp": scipy.sparse.eye(3)}
    scipy.io.savemat(tmp_path / "s.mat", values, do_compression=compressed)
    np.testing.assert_array_equal(read_values(tmp_path / "s.mat"), cube)
    from unmix.io.formats.matlab5 import Version5

    file = Version5(tmp_path / "s.mat")
    assert file.texts("names") == ["Tree", "Wässer", ""] and file.texts("title") == ["two words"]
    assert file.value("z").ravel().tolist() == [0, 1, 2]


def test_a_matlab_variable_of_another_size_than_it_says(tmp_path):
    scipy.io.savemat(tmp_path / "s.mat", {"cube": Y})
    raw = bytearray((tmp_path / "s.mat").read_bytes())
    at = raw.find(np.array(Y.shape, "<i4").tobytes())
    for lines in (5, 7):
        raw[at : at + 4] = lines.to_bytes(4, "little")
        (tmp_path / "o.mat").write_bytes(raw)
        refused(unmix.CubeError, "'cube' is damaged: cannot reshape array of size 432", read_values, tmp_path / "o.mat")


def test_big_endian_and_cut_matlab_files(tmp_path):
    scipy.io.savemat(tmp_path / "s.mat", {"cube": Y}, do_compression=True)
    raw = (tmp_path / "s.mat").read_bytes()
    for cut in (100, 130, 200, len(raw) // 2, len(raw) - 3):
        (tmp_path / "c.mat").write_bytes(raw[:cut])
        refused(unmix.CubeError, r"c\.mat", read_values, tmp_path / "c.mat")
    for at in range(200, len(raw), len(raw) // 40):  # one bit: one in twenty was read as other numbers
        (tmp_path / "c.mat").write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
        refused(unmix.CubeError, r"c\.mat", read_values, tmp_path / "c.mat")
    head = bytearray(raw)
    head[126:128] = b"MI"
    (tmp_path / "b.mat").write_bytes(head)
    refused(unmix.CubeError, "damaged", read_values, tmp_path / "b.mat")


def test_matlab_variables_that_are_not_what_they_seem(tmp_path):
    scipy.io.savemat(tmp_path / "c.mat", {"cube": Y + 5j})
    refused(unmix.CubeError, "'cube' is complex", read_values, tmp_path / "c.mat")
    scipy.io.savemat(tmp_path / "a.mat", {"cube": Y})
    twice = (tmp_path / "a.mat").read_bytes()
    (tmp_path / "t.mat").write_bytes(twice + twice[128:])
    refused(unmix.CubeError, "'cube' is in it twice", open_cube, tmp_path / "t.mat")
    scipy.io.savemat(tmp_path / "f.mat", {"Y": np.arange(16.0).reshape(4, 4), "nRow": 2, "nCol": 2})
    found = read_values(tmp_path / "f.mat")  # bands by pixels, where both would fit
    np.testing.assert_array_equal(found[..., 0], [[0, 2], [1, 3]])
    scipy.io.savemat(tmp_path / "r.mat", {"Y": np.ones((4, 6)), "nRow": 2.5, "nCol": 3})
    refused(unmix.CubeError, "'nRow' is not a whole number", open_cube, tmp_path / "r.mat")


def test_values_in_other_files_are_refused(tmp_path):
    """MATLAB v7.3 and EMIT's tables, too: a circle of them crashes the library."""
    for a, b in (("vds", "other"), ("other", "vds")):
        with h5py.File(tmp_path / f"{a}.mat", "w", userblock_size=512) as file:
            layout = h5py.VirtualLayout((8, 9, 6), "f8")
            layout[:] = h5py.VirtualSource(str(tmp_path / f"{b}.mat"), "cube", (8, 9, 6))
            file.create_virtual_dataset("cube", layout)
        with open(tmp_path / f"{a}.mat", "r+b") as file:
            file.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\0\2IM")
    refused(unmix.CubeError, "values in other files", open_cube, tmp_path / "vds.mat")
    products.emit(tmp_path / "e.nc", products.truth())
    with h5py.File(tmp_path / "e.nc", "r+") as file:
        shape = file["location/glt_x"].shape
        del file["location/glt_x"]
        file["location"].create_dataset("glt_x", shape, "i4", external=[("/etc/passwd", 0, h5py.h5f.UNLIMITED)])
    refused(unmix.CubeError, "values in other files", open_cube, tmp_path / "e.nc")


def crash():
    """Crash, without the lines that pytest would print."""
    faulthandler.disable()
    os.abort()


def test_a_library_that_hangs_or_crashes_is_one_line(tmp_path):
    """In a child process; what it says otherwise is left to the parent."""
    probe.survives(tmp_path, lambda: None)
    probe.survives(tmp_path, lambda: 1 / 0)
    refused(unmix.CubeError, "crashes on reading it \\(signal 6\\)", probe.survives, tmp_path, crash)
    with pytest.raises(unmix.CubeError, match="does not come back"):
        probe.survives(tmp_path, lambda: sum(1 for _ in iter(int, 1)), 1)


def refuse():
    raise unmix.CubeError("in a child")


@pytest.mark.parametrize("name", ["s.h5", "s.nc", "s.mat"])
def test_a_child_opens_hdf5_first(tmp_path, monkeypatch, name):
    with h5py.File(tmp_path / name, "w", userblock_size=512 * (name == "s.mat")) as file:
        file["cube"] = np.ones((6, 5, 4))
    if name == "s.mat":
        with open(tmp_path / name, "r+b") as file:
            file.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\0\2IM")
    tried = []
    for module in ("matlab", "products"):
        where = f"unmix.io.formats.{module}.survives"
        monkeypatch.setattr(where, lambda path, _: tried.append(path.name) or refuse())
    refused(unmix.CubeError, "in a child", open_cube, tmp_path / name)
    assert tried == [name]


def test_a_slow_opening_is_no_proof_of_damage(tmp_path, monkeypatch):
    """A clock says nothing of a file: only a processor's time does. A child that waits for ever is given up."""
    probe.survives(tmp_path, lambda: time.sleep(1.1), 1)
    monkeypatch.setattr(probe, "LONGEST_WAIT", 0.2)
    probe.survives(tmp_path, lambda: time.sleep(60), 1)


@pytest.mark.slow
def test_threads_inside_the_library_do_not_matter_to_the_child(tmp_path):
    """Seen: pools that decode kept every file but the first from being tried."""
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file.create_dataset("x", data=np.arange(200_000), chunks=(20_000,), compression="gzip")

    def read() -> int:
        with h5py.File(tmp_path / "s.h5") as file:
            return int(file["x"][...].sum())

    with ThreadPoolExecutor(3) as pool:
        reading = [pool.submit(read) for _ in range(150)]
        for _ in range(20):
            probe.survives(tmp_path, read)
        refused(unmix.CubeError, "crashes on reading it", probe.survives, tmp_path, crash)
        assert {each.result() for each in reading} == {sum(range(200_000))}


def test_a_sample_is_spread_over_the_scene_whatever_its_chunks(tmp_path):
    """Seen: a scene in tall chunks, judged by its first one, which had no data."""
    cube = np.full((2000, 40, 4), 5, np.int16)
    cube[:70] = -9999
    cube[:, :, 1] = np.arange(2000)[:, None]
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file.create_dataset("c", data=cube, chunks=(64, 40, 4)).attrs["_FillValue"] = -9999
    scene, _, _ = open_scene(tmp_path / "s.h5", unmix.ReadOptions(dataset="/c:yxb"))
    seen = np.concatenate([part[..., 1].ravel() for part in sampled(scene)])
    assert len(seen) <= 100_000 and np.percentile(seen, 5) < 300 and np.percentile(seen, 95) > 1700
    csv = write_csv(tmp_path / "e.csv", np.random.default_rng(0).random((4, 2)) / 1000)
    with pytest.raises(unmix.CubeError, match="times as large as the endmembers"):
        unmix.run(tmp_path / "s.h5", dataset="/c:yxb", endmembers=csv, device="cpu", out_dir=tmp_path / "o")
    for shape, samples in (((3, 250_000, 2), 100_000), ((26_000, 4, 2), 100_000), ((1, 1, 2), 1)):
        part = open_cube(write_cube(tmp_path / "b.hdr", np.ones(shape, np.uint8)))
        assert 0.3 * samples <= sum(piece[..., 0].size for piece in sampled(part)) <= samples


def test_a_library_s_own_nodata(tmp_path):
    one = Endmembers(("a", "b"), np.array([[1.0, 2], [-9999, 3], [4, 5]]), None)
    one.write(None, tmp_path / "x.sli", tmp_path / "x.hdr")
    (tmp_path / "x.hdr").write_text((tmp_path / "x.hdr").read_text() + "data ignore value = -9999\n")
    assert np.isnan(load(tmp_path / "x.sli").matrix).tolist() == [[False, False], [True, False], [False, False]]


def test_spacing_of_bands_in_any_order():
    waves = np.arange(400.0, 900, 10)
    np.testing.assert_allclose(spacing(waves[np.random.default_rng(0).permutation(50)]), 10)
    overlapping = np.concatenate([np.arange(400.0, 700, 10), np.arange(652.0, 900, 12)])
    np.testing.assert_allclose(spacing(overlapping), [10] * 30 + [12] * 21)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("UTM, 1, 1, 5e5, 4e6, 30, 30, 11, North", (5e5, 30, 0, 4e6, 0, -30)),
        ("UTM, 3, 2, 5e5, 4e6, 10, 10, 33, North, rotation=90.0 degrees", (5e5 - 20, 0, 10, 4e6 + 10, 10, 0)),
        ("UTM, 1.5 , 1.5, 100, 200, 2, 2, rotation=", (99, 2, 0, 201, 0, -2)),
        ("UTM, 1, 1, x, 4e6, 30, 30", None),
        ("", None),
    ],
)
def test_map_infos_as_gdal_reads_them(tmp_path, words, expected):
    found = geotransform(words)
    assert (found is None) == (expected is None)
    if expected is not None:
        np.testing.assert_allclose(found, expected, atol=1e-9)
        write_cube(tmp_path / "m.hdr", np.ones((2, 2, 1), np.uint8), map_info="{" + words + "}")
        with rasterio.open(tmp_path / "m.img") as image:
            np.testing.assert_allclose(image.get_transform(), found, atol=1e-6)


def test_pixels_of_a_part_are_named_by_their_place_in_the_scene(tmp_path, scene):
    report = unmix.run(
        scene, method="fcls", count=3, extract="vca", device="cpu", lines="2:6", samples="10:60", out_dir=tmp_path / "o"
    )
    raw, gain = read_values(scene), open_cube(scene).gain
    E = load(tmp_path / "o/scene_endmembers.csv").matrix
    for j, (line, sample) in enumerate(report["endmembers"]["pixels"]):
        assert 2 <= line < 6 and 10 <= sample < 60
        np.testing.assert_allclose(raw[line, sample] * gain, E[:, j])


@pytest.mark.slow
def test_one_place_in_every_format(tmp_path):
    """A turned map whose tie point is not the corner, feet, and a name with an accent; no WKT, too."""
    random = np.random.default_rng(0)
    system = (
        'PROJCS["Réunion / TM",GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS '
        '84",6378137,298.257223563]],PRIMEM["Greenwich",0],'
        'UNIT["degree",0.0174532925199433]],PROJECTION["Transverse_Mercator"],UNIT["foot",0.3048]]'
    )
    for turned, wkt in ((True, True), (False, True), (False, False)):
        place = f"UTM, 3, 2, 4e5, 5.8e6, 10, 10, 33, North, WGS-84, units={'Feet' if wkt else 'Meters'}"
        place += ", rotation=25" if turned else ""
        fields = {"map_info": "{" + place + "}"} | ({"coordinate_system_string": "{" + system + "}"} if wkt else {})
        path = write_cube(tmp_path / "c.hdr", random.random((6, 5, 4)), **fields)
        for form in ("geotiff", "hdf5"):
            unmix.run(path, count=2, extract="vca", device="cpu", format=form, out_dir=tmp_path / form, overwrite=True)
        with (
            rasterio.open(tmp_path / "geotiff/c_abundance.tif") as tif,
            h5py.File(tmp_path / "hdf5/c_abundance.h5") as file,
        ):
            numbers = [float(word) for word in file["spatial_ref"].attrs["GeoTransform"].split()]
            np.testing.assert_allclose(numbers, tif.get_transform(), rtol=1e-12, atol=1e-9)
            assert rasterio.crs.CRS.from_wkt(file["spatial_ref"].attrs["crs_wkt"].decode()) == tif.crs
            assert turned or file["x"].attrs["units"] == (b"ft" if wkt else b"m")


@pytest.mark.slow
def test_more_names_than_an_attribute_holds(tmp_path):
    path = write_cube(tmp_path / "c.hdr", np.random.default_rng(0).random((3, 4, 5000)).astype(np.float32))
    csv = write_csv(tmp_path / "e.csv", np.random.default_rng(1).random((5000, 2)))
    unmix.run(path, endmembers=csv, device="cpu", format="hdf5", residual=True)
    with h5py.File(tmp_path / "c_residual.h5") as file:
        assert len(file["band_name"]) == 5000


def test_maps_of_an_enmap_scene_are_not_taken_for_it(tmp_path):
    path = tmp_path / "ENMAP01-X-SPECTRAL_IMAGE.TIF"
    products.enmap(path, products.truth())
    unmix.run(path, count=3, extract="vca", device="cpu", format="geotiff", residual=True)
    assert open_cube(tmp_path / "ENMAP01-X-SPECTRAL_IMAGE_residual.tif").gain is None
    from unmix.commands.verify import verify

    assert verify(tmp_path / "ENMAP01-X-SPECTRAL_IMAGE").faults == []


@pytest.mark.parametrize("what", ["twice", "none", "units"])
def test_enmap_and_tiff_that_contradict_themselves(tmp_path, what):
    if what == "units":
        path = tmp_path / "s.tif"
        products.geotiff(path, products.truth())
        with rasterio.open(path, "r+") as file:
            file.update_tags(3, wavelength_units="Micrometers")
    else:
        path = tmp_path / "A-SPECTRAL_IMAGE.TIF"
        products.enmap(path, products.truth())
        xml = tmp_path / "A-METADATA.XML"
        words = xml.read_text()
        xml.write_text(
            words.replace('number="2"', 'number="1"') if what == "twice" else words.replace('number="', 'no="')
        )
    refused(
        unmix.CubeError, "different units" if what == "units" else "not numbered one after the other", open_cube, path
    )


def test_what_claims_too_much_is_refused(tmp_path):
    """Before memory is asked for."""
    header = "ENVI\nsamples = 2000000000\nlines = 4\nbands = 1\nfile type = ENVI Spectral Library\ndata type = 5\n"
    (tmp_path / "big.hdr").write_text(header)
    (tmp_path / "big.sli").write_bytes(b"")
    refused(unmix.LibraryError, "more than a library can hold", load, tmp_path / "big.sli")
    (tmp_path / "wide.csv").write_text("name," + ",".join(map(str, range(400, 40400))) + "\n" + "a\n" * 40000)
    refused(unmix.LibraryError, "a row is too short", load, tmp_path / "wide.csv")
    (tmp_path / "p.txt").write_text("ENVI ASCII Plot File\nColumn 1: a" + " " * 300000 + "b\n1 2\n")
    with patience("a search for columns is quadratic"), pytest.raises(unmix.LibraryError):
        load(tmp_path / "p.txt")
    (tmp_path / "u.txt").write_text("Name: x\nX Units: Wavelength" + "(" * 300000 + "\nY Units: y\n1 2\n")
    with patience("a search for units is quadratic"), pytest.raises(unmix.LibraryError):
        load(tmp_path / "u.txt")
    scipy.io.savemat(tmp_path / "b.mat", {"cube": np.ones((2, 2, 20000))})
    refused(unmix.CubeError, "20000 bands", open_cube, tmp_path / "b.mat")


def test_values_too_large_for_float64(tmp_path):
    path = write_cube(tmp_path / "c.hdr", np.full((3, 4, 5), 1e200))
    csv = write_csv(tmp_path / "e.csv", np.random.default_rng(1).random((5, 2)))
    refused(unmix.CubeError, "too large for float64", unmix.run, path, endmembers=csv, device="cpu")
    assert not unmix.check(path, csv)["sound"]


def test_no_memory_is_one_line(scene, monkeypatch, capsys):
    from unmix_cli.main import main

    def none(*_, **__):
        raise MemoryError

    monkeypatch.setattr("unmix.run", none)
    monkeypatch.setattr("sys.argv", ["unmix", "run", str(scene)])
    stopped = refused(SystemExit, None, main)
    assert stopped.value.code == 1 and "not enough memory" in capsys.readouterr().err


@pytest.mark.parametrize("first", [True, False], ids=["directory first", "directory last"])
@pytest.mark.parametrize("big", ["NO", "YES"])
def test_a_tiff_that_is_cut_short_is_said_to_be(tmp_path, first, big):
    """Before anything is written, with the size it has and the least it should have."""
    how = {"height": 40, "width": 30, "count": 8, "dtype": "float32", "BIGTIFF": big}
    how |= {"COMPRESS": "DEFLATE" if not first else "NONE"}
    with rasterio.open(tmp_path / "s.tif", "w", driver="GTiff", **how) as file:
        file.write(np.random.default_rng(2).random((8, 40, 30), np.float32))
        if not first:  # a longer directory is moved to the end
            file.update_tags(about="x" * 5000)
    content = (tmp_path / "s.tif").read_bytes()
    (tmp_path / "cut.tif").write_bytes(content[: int(0.6 * len(content))])
    said = f"cut.tif: is cut short: it has {int(0.6 * len(content))} bytes and should have "
    with pytest.raises(unmix.CubeError, match=said) as error:
        unmix.run(tmp_path / "cut.tif", count=3, device="cpu", out_dir=tmp_path / "out")
    assert int(0.6 * len(content)) < int(str(error.value).split(" should have ")[1].split()[0]) <= len(content)
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())
    assert open_cube(tmp_path / "s.tif").lines == 40


def test_bands_that_cannot_be_matched_are_told_in_whole_sentences(tmp_path):
    axis = "{" + ", ".join(map(str, range(400, 480, 10))) + "}"
    for name, fields, library, said in (
        (
            "a",
            {"wavelength": axis},
            None,
            "and no wavelengths to match them by, but the cube has 8 bands (8 in use): add its",
        ),
        ("b", {}, None, "5 bands, but the cube has 8 bands (8 in use) and no wavelengths to match them by; name its"),
    ):
        path = write_cube(tmp_path / f"{name}.hdr", Y, **fields)
        csv = write_csv(tmp_path / "e.csv", np.random.default_rng(0).random((5, 2)), library)
        with pytest.raises(unmix.LibraryError, match=re.escape(said)):
            unmix.run(path, endmembers=csv, device="cpu", out_dir=tmp_path / "o")


def test_a_band_without_values_is_why_nothing_is_solved(tmp_path):
    cube = Y.copy()
    cube[..., 3] = np.nan
    path, csv = (
        write_cube(tmp_path / "s.hdr", cube),
        write_csv(tmp_path / "e.csv", np.random.default_rng(0).random((8, 2))),
    )
    with pytest.raises(
        unmix.CubeError, match="all 54 pixels are masked as nodata, 54 for some bands alone: `bands` auto leaves out"
    ):
        unmix.run(path, endmembers=csv, device="cpu")
    assert unmix.run(path, endmembers=csv, device="cpu", bands="auto")["pixels"]["solved"] == 54


def test_matlab_objects_beside_a_cube_are_left_out(tmp_path):
    """As of a string: scipy lists no variable of a file that holds one."""
    scipy.io.savemat(tmp_path / "s.mat", {"cube": Y})
    flags = (6).to_bytes(4, "little") + (8).to_bytes(4, "little") + (17).to_bytes(4, "little") + bytes(4)
    names = b"".join(
        (1).to_bytes(4, "little") + (8).to_bytes(4, "little") + word
        for word in (b"text\0\0\0\0", b"MCOS\0\0\0\0", b"string\0\0")
    )
    body = flags + names
    whole = (tmp_path / "s.mat").read_bytes()
    opaque = (14).to_bytes(4, "little") + len(body).to_bytes(4, "little") + body
    (tmp_path / "o.mat").write_bytes(whole + opaque)
    np.testing.assert_array_equal(read_values(tmp_path / "o.mat"), Y)
    (tmp_path / "c.mat").write_bytes(whole[:-40])
    refused(unmix.CubeError, "cut short", open_cube, tmp_path / "c.mat")
