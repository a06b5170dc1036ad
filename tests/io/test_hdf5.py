"""Products in HDF5, written by `products` from their documentation and read as any cube."""

import subprocess
import sys
import zlib

import h5py
import numpy as np
import products
import pytest
from conftest import PATIENCE, refused, rest_slow, write_cube
from hypothesis import given
from hypothesis import strategies as st
from unmix_cli.info import describe

import unmix
from unmix.commands.verify import verify
from unmix.errors import CubeError, MethodError
from unmix.io import bytes_per_line, open_cube, spectra
from unmix.io.formats.array_files import open_array
from unmix.io.formats.chunks import Decoder
from unmix.io.formats.header import geotransform
from unmix.scene.bands import choose_bands

try:
    from isal import isal_zlib
except ImportError:
    isal_zlib = None

FORMATS = {"neon": "NEON AOP", "emit": "EMIT L2A", "aviris3": "AVIRIS-3", "prisma": "PRISMA L2D", "tanager": "Tanager"}


def read_all(cube, which="good"):
    """Spectra of all pixels (lines, samples, bands in use), and the bands."""
    bands = choose_bands(cube, which, None)
    buffer = np.empty(cube.lines * bytes_per_line(cube), np.uint8)
    whole = spectra(cube.read(slice(0, cube.lines), buffer), cube.interleave, bands)
    first = spectra(cube.read(slice(2, 3), buffer), cube.interleave, bands)
    np.testing.assert_array_equal(first, whole.reshape(cube.lines, cube.samples, -1)[2])
    return whole.reshape(cube.lines, cube.samples, -1), bands


@pytest.mark.parametrize("product", list(products.WRITERS))
def test_what_was_written_is_read(tmp_path, product):
    scene = products.truth()
    path = tmp_path / f"scene_{product}.h5"
    products.WRITERS[product](path, scene)
    cube = open_cube(path)
    assert (cube.format, cube.lines, cube.samples) == (FORMATS[product], *scene.fill.shape)
    Y, bands = read_all(cube)
    bad = {"emit": [4], "neon": [11, 16, 17]}.get(product, [])  # neon: 1367, 1797 and 1883 nm
    used = np.delete(np.arange(24), bad)
    np.testing.assert_allclose(cube.wavelengths[bands.index], scene.waves[used], atol=1e-3)
    np.testing.assert_allclose(cube.fwhm[bands.index], scene.fwhm[used], atol=1e-3)
    np.testing.assert_allclose(Y[~scene.fill], scene.Y[~scene.fill][:, used], atol=1e-7)
    if product in ("neon", "aviris3"):
        assert cube.fields["coordinate system string"] == products.WKT
    if product in ("neon", "aviris3", "prisma"):
        assert cube.fields["map info"].startswith("UTM, 1") and ", 11, North," in cube.fields["map info"]


def test_blocks_are_whole_chunks(tmp_path):
    """Where memory allows; where it does not, a warning says how often each is decompressed."""
    products.neon(tmp_path / "s.h5", products.truth(lines=40), chunks=(10, 5, 24))
    assert open_cube(tmp_path / "s.h5").lines_together == 10
    from unmix.blocks import plan_blocks

    assert plan_blocks(400, 1000, 150_000, 4, chunk=10).lines_per_block == 30
    assert plan_blocks(400, 1000, 20_000, 4, chunk=10).lines_per_block == 5
    assert plan_blocks(400, 2**20, 2**40, 4, chunk=7).lines_per_block % 7 == 0


def replace(file, name, value):
    """Another dataset in the place of one; None: a million million numbers that were never written."""
    del file[name]
    if value is None:
        file.create_dataset(name, (10**12,), np.float32, chunks=(1000,))
    else:
        file[name] = value


@pytest.mark.parametrize("layout", rest_slow(["yxb", "ybx", "byx"], "ybx"))
@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"compression": "gzip"},
        {"compression": "gzip", "shuffle": True},
        {"compression": "lzf"},
        {"compression": "gzip", "shuffle": True, "fletcher32": True},
    ],
)
def test_chunks_of_whole_bands_are_inflated_once(tmp_path, monkeypatch, layout, filters):
    """The same values and the same maps as in one read, whatever the filters; no chunk is read twice."""
    scene = products.truth(lines=21)
    order = ["yxb".index(axis) for axis in layout]
    chunks = [{"y": 21, "x": 8, "b": 1}[axis] for axis in layout]  # three chunks across, the last cut off
    stored = np.round(scene.filled(-0.9999) * 10000).astype(">i2").transpose(order)
    with h5py.File(tmp_path / "s.h5", "w") as file:
        data = file.create_dataset("cube", data=stored, chunks=tuple(chunks), fillvalue=3, **filters)
        data.attrs["_FillValue"] = -9999
    dataset = f"/cube:{layout}"
    direct, _ = read_all(open_cube(tmp_path / "s.h5", dataset))
    monkeypatch.setattr("unmix.io.formats.hdf5.MOST_TOGETHER", 0)
    small, _ = read_all(open_cube(tmp_path / "s.h5", dataset))  # by the library, as all small chunks
    np.testing.assert_array_equal(small, direct)
    monkeypatch.setattr("unmix.io.formats.chunks.WORTHWHILE", 0)
    taken = []
    monkeypatch.setattr(Decoder, "values", lambda *a, call=Decoder.values: (taken.append(a[1]), call(*a))[1])
    cube = open_cube(tmp_path / "s.h5", dataset)
    assert (cube.interleave, cube.lines_together) == ("bsq", 1)
    found, _ = read_all(cube)
    np.testing.assert_array_equal(found, direct)
    is_ours = filters.get("compression") == "gzip" and "fletcher32" not in filters  # others the library reads
    assert len(taken) == len(set(taken)) == 24 * 3 * is_ours


@pytest.mark.parametrize(("beyond", "west"), [(-15.0, 256985.0), (0.0, 257000.0), (None, 256985.0)])
def test_corners_of_prisma_are_centres_of_pixels(tmp_path, beyond, west):
    """Unless they are as far apart as the outer edges; of 3 samples, where 2 are between the centres."""
    with h5py.File(tmp_path / "s.he5", "w") as file:
        for name in ("Vnir", "Swir"):
            file[f"HDFEOS/SWATHS/PRS_L2D_HCO/Data Fields/{name.upper()}_Cube"] = np.ones((2, 4, 3), np.uint16)
            file.attrs[f"List_Cw_{name}"] = np.array([400, 500, 600, 700], "f4") + 600 * (name == "Swir")
            file.attrs[f"List_Fwhm_{name}"] = np.full(4, 10, "f4")
            file.attrs[f"L2Scale{name}Min"], file.attrs[f"L2Scale{name}Max"] = np.float32(0), np.float32(1)
        file.attrs["Epsg_Code"] = np.int64(32611)
        file.attrs["Product_ULcorner_easting"], file.attrs["Product_ULcorner_northing"] = 257000.0, 4112000.0
        if beyond is not None:
            file.attrs["Product_LRcorner_easting"] = 257000.0 + 30 * 3 + 2 * beyond
    info = open_cube(tmp_path / "s.he5").fields["map info"].split(",")
    assert float(info[3]) == west and float(info[4]) == 4112000.0 + (257000.0 - west)


def test_chunks_that_were_never_written_hold_the_fill_value(tmp_path, monkeypatch):
    with h5py.File(tmp_path / "s.h5", "w") as file:
        data = file.create_dataset("cube", (6, 5, 4), np.int16, chunks=(6, 5, 1), compression="gzip", fillvalue=-7)
        data[:, :, 2] = np.arange(30).reshape(6, 5)
        expected = data[()]
    monkeypatch.setattr("unmix.io.formats.hdf5.MOST_TOGETHER", 0)
    found, _ = read_all(open_cube(tmp_path / "s.h5", "/cube:yxb"))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", ["12 of 16 bits", "edges", "damaged", "virtual"])
def test_what_the_library_alone_can_tell_is_left_to_it(tmp_path, monkeypatch, kind):
    """Integers of 12 bits in 16 and unfiltered edges read right; a flipped bit under a checksum, and links, are refused."""
    monkeypatch.setattr("unmix.io.formats.hdf5.MOST_TOGETHER", 0)
    values = np.arange(7 * 5 * 4, dtype=np.int16).reshape(7, 5, 4) - 60
    path = tmp_path / "s.h5"
    with h5py.File(path, "w") as file:
        if kind == "12 of 16 bits":
            inner = h5py.h5t.STD_I16LE.copy()
            inner.set_precision(12)
            inner.set_offset(2)
            properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            properties.set_chunk((7, 5, 1))
            properties.set_deflate(4)
            made = h5py.h5d.create(file.id, b"cube", inner, h5py.h5s.create_simple((7, 5, 4)), properties)
            made.write(h5py.h5s.ALL, h5py.h5s.ALL, values)
        elif kind == "virtual":
            layout = h5py.VirtualLayout((7, 5, 4), np.int16)
            layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "cube", (7, 5, 4))
            file.create_virtual_dataset("cube", layout)
        else:
            chunks = (4, 5, 2) if kind == "edges" else (7, 5, 1)
            file.create_dataset("cube", data=values, chunks=chunks, compression=None, fletcher32=kind == "damaged")
    if kind == "damaged":
        raw = bytearray(path.read_bytes())
        raw[raw.index(values[:, :, 1].tobytes()) + 3] ^= 4
        path.write_bytes(raw)
    if kind in ("damaged", "virtual"):
        with pytest.raises(CubeError, match="inflated" if kind == "damaged" else "other files"):
            read_all(open_cube(path, "/cube:yxb"))
        return
    found, _ = read_all(open_cube(path, "/cube:yxb"))
    np.testing.assert_array_equal(found, values)


def test_no_room_to_inflate(tmp_path, monkeypatch):
    products.neon(tmp_path / "s.h5", products.truth(), chunks=(7, 19, 1))
    monkeypatch.setattr("unmix.io.formats.hdf5.MOST_TOGETHER", 0)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: type("Usage", (), {"free": 100}))
    cube = open_cube(tmp_path / "s.h5")
    refused(CubeError, "set TMPDIR", cube.read, slice(0, 1), np.empty(10**5, np.uint8))


def test_what_is_wrong_is_said(tmp_path):
    scene = products.truth()
    products.neon(tmp_path / "a.h5", scene)
    whole = (tmp_path / "a.h5").read_bytes()
    (tmp_path / "cut.h5").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.h5").write_text("no HDF5 at all")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["deep/cube"] = np.zeros((2, 3, 4))
    products.aviris3(tmp_path / "count.h5", scene)
    with h5py.File(tmp_path / "count.h5", "a") as file:
        del file["reflectance/wavelength"]
        file["reflectance/wavelength"] = np.arange(5.0)
    products.neon(tmp_path / "scale.h5", scene)
    with h5py.File(tmp_path / "scale.h5", "a") as file:
        file["SJER/Reflectance/Reflectance_Data"].attrs["Scale_Factor"] = 0.0
    with h5py.File(tmp_path / "flat.h5", "w") as file:
        file["reflectance/reflectance"] = np.zeros((2, 3))
    with h5py.File(tmp_path / "words.h5", "w") as file:
        file["reflectance/reflectance"] = np.full((2, 3, 4), b"abc")
    changes = {
        "good": ("emit", lambda file: replace(file, "sensor_band_parameters/good_wavelengths", np.ones((24, 3)))),
        "endless": ("neon", lambda file: replace(file, "SJER/Reflectance/Metadata/Spectral_Data/Wavelength", None)),
        "loop": (
            "aviris3",
            lambda file: replace(file, "reflectance/reflectance", h5py.SoftLink("/reflectance/reflectance")),
        ),
        "place": ("neon", lambda file: replace(file, "SJER/Reflectance/Metadata/Coordinate_System", 5)),
        "group": (
            "prisma",
            lambda file: (
                file.move("HDFEOS/SWATHS/PRS_L2D_HCO/Data Fields/SWIR_Cube", "x/y")
                or file.create_group("HDFEOS/SWATHS/PRS_L2D_HCO/Data Fields/SWIR_Cube")
            ),
        ),
        "none": (
            "neon",
            lambda file: file["SJER/Reflectance/Reflectance_Data"].attrs.create("Scale_Factor", np.empty(0)),
        ),
    }
    for name, (product, change) in changes.items():
        products.WRITERS[product](tmp_path / f"{name}.h5", scene)
        with h5py.File(tmp_path / f"{name}.h5", "a") as file:
            change(file)
    assert open_cube(tmp_path / "place.h5").fields == {}
    for name, says in (
        ("good", "72 good_wavelengths for 24 bands"),
        ("endless", "1000000000000 wavelengths for 24 bands"),
        ("loop", "damaged"),
        ("group", "is not uint16"),
        ("none", "damaged"),
        ("cut", "cannot be read as HDF5"),
        ("text", "does not begin like HDF5"),
        ("other", "/deep/cube (2, 3, 4)"),
        ("count", "5 wavelengths for 24 bands"),
        ("scale", "give `scale`"),
        ("flat", "three axes"),
        ("words", "of type"),
    ):
        refused(CubeError, says.replace("(", r"\(").replace(")", r"\)"), open_cube, tmp_path / f"{name}.h5")


@pytest.mark.parametrize(
    ("axes", "order", "said"), [("yxb", (0, 1, 2), True), ("ybx", (0, 2, 1), True), ("byx", (2, 0, 1), False)]
)
def test_any_dataset_by_name(tmp_path, axes, order, said):
    """With its axes said, or found by the number of wavelengths; the run remembers, and verify finds it again."""
    scene = products.truth()
    with h5py.File(tmp_path / "mine.h5", "w") as file:
        stored = scene.filled(-1.0).astype(np.float32).transpose(order)
        file.create_dataset("a/cube", data=stored).attrs["_FillValue"] = -1.0
        file["a/waves"] = scene.waves / 1000  # µm
    where = {"dataset": "/a/cube" + (f":{axes}" if said else ""), "wavelengths": "/a/waves"}
    cube = open_cube(tmp_path / "mine.h5", **where)
    np.testing.assert_allclose(cube.wavelengths, scene.waves)
    Y, _ = read_all(cube)
    np.testing.assert_allclose(Y[~scene.fill], scene.Y[~scene.fill], atol=1e-7)
    report = unmix.run(tmp_path / "mine.h5", count=3, extract="vca", out_dir=tmp_path, device="cpu", **where)
    assert report["pixels"]["masked"] == 2
    assert verify(tmp_path / "mine", None, True, 1).faults == []


def test_a_dataset_that_is_not_there(tmp_path):
    products.neon(tmp_path / "a.h5", products.truth())
    refused(CubeError, "has no dataset '/b'; of three axes there are: /SJER", open_cube, tmp_path / "a.h5", "/b")
    with pytest.raises(MethodError, match=r"one of yxb, ybx, byx, .*, not 'xxb'"):
        open_cube(tmp_path / "a.h5", "/SJER/Reflectance/Reflectance_Data:xxb")
    refused(MethodError, "goes with `dataset`", open_cube, tmp_path / "a.h5", None, "/waves")
    (tmp_path / "x.hdr").write_text("ENVI\n")
    refused(MethodError, "`dataset` is for HDF5, Zarr and MATLAB files", open_cube, tmp_path / "x.hdr", "/b")


@pytest.mark.real
def test_the_real_neon_sample(data):
    cube = open_cube(data / "neon_aop/neonhs_ex.h5")
    assert (cube.format, cube.lines, cube.samples, cube.bands) == ("NEON AOP", 30, 30, 426)
    assert cube.nodata == -9999 and cube.gain[0] == 1e-4
    assert cube.wavelengths[0] == pytest.approx(383.534, abs=1e-3)
    Y, _ = read_all(cube)
    with h5py.File(data / "neon_aop/neonhs_ex.h5") as file:
        np.testing.assert_allclose(Y, file["SJER/Reflectance/Reflectance_Data"][()] / 10000.0)


def test_windows_of_neon_are_bad_bands(tmp_path):
    """As the file's own list: left out of `good`, used by `all`, shown by info."""
    path = tmp_path / "n.h5"
    products.neon(path, products.truth())
    cube = open_cube(path)
    assert np.flatnonzero(~cube.good_bands).tolist() == [11, 16, 17] and not cube.problems
    assert len(choose_bands(cube, "good", None).index) == 21 and len(choose_bands(cube, "all", None).index) == 24
    assert describe(cube)["bad_bands"] == [12, 17, 18]


@pytest.mark.parametrize(
    ("windows", "bad", "says"),
    [
        ([[1.0, 2.0], [1790.0, 1955.0]], [16, 17], False),
        ([[1.0, 2.0], "1340, 1445"], None, True),
        ([], None, False),
        ([[1340.0], [1790.0, 1955.0]], [16, 17], True),
        ([[1.0, 2.0], [2000.0, 1900.0]], None, True),
    ],
)
def test_windows_of_neon_as_they_may_be(tmp_path, windows, bad, says):
    products.neon(tmp_path / "n.h5", products.truth())
    with h5py.File(tmp_path / "n.h5", "a") as file:
        attributes = file["SJER/Reflectance"].attrs
        attributes.clear()
        for number, window in enumerate(windows, 1):
            attributes[f"Band_Window_{number}_Nanometers"] = window
    cube = open_cube(tmp_path / "n.h5")
    assert (None if cube.good_bands is None else np.flatnonzero(~cube.good_bands).tolist()) == bad
    assert any("is not understood" in problem for problem in cube.problems) == says


@pytest.mark.real
def test_the_real_neon_sample_with_its_windows(data, tmp_path):
    """The sample has lost these attributes; with them the median misfit falls from 50 % to under 10 %."""
    path = tmp_path / "n.h5"
    path.write_bytes((data / "neon_aop/neonhs_ex.h5").read_bytes())
    how = {"device": "cpu", "out_dir": tmp_path, "overwrite": True}
    before = unmix.run(path, **how)["fit"]["relative_rmse"]["median"]
    with h5py.File(path, "a") as file:
        for number, window in enumerate(products.NEON_WINDOWS, 1):
            file["SJER/Reflectance"].attrs[f"Band_Window_{number}_Nanometers"] = np.array(window)
    after = unmix.run(path, **how)["fit"]["relative_rmse"]["median"]
    assert before > 0.4 and after < 0.1


def test_a_grid_of_tanager_is_on_the_map(tmp_path, monkeypatch):
    products.tanager(tmp_path / "g.h5", products.truth(), "GRIDS")
    cube = open_cube(tmp_path / "g.h5")
    assert cube.format == "Tanager"
    assert geotransform(cube.fields["map info"]) == (257000, 30, 0, 4112000, 0, -30)
    assert "11, North" in cube.fields["map info"]
    monkeypatch.setattr(products, "STRUCT", products.STRUCT.replace("ZoneCode=11", "ZoneCode=99"))
    products.tanager(tmp_path / "h.h5", products.truth(), "GRIDS")
    assert "map info" not in open_cube(tmp_path / "h.h5").fields


@pytest.mark.parametrize("block", [512, 2048])
def test_hdf5_behind_a_user_block(tmp_path, block):
    with h5py.File(tmp_path / "u.h5", "w", userblock_size=block) as file:
        file["cube"] = np.arange(24.0).reshape(2, 3, 4)
    assert open_cube(tmp_path / "u.h5", "/cube:yxb").bands == 4


def test_chunks_that_are_too_small(tmp_path, monkeypatch):
    """Read some at a time; refused where one line alone has too many."""
    values = np.random.default_rng(0).integers(0, 99, (9, 8, 7)).astype(np.int16)
    with h5py.File(tmp_path / "c.h5", "w") as file:
        file.create_dataset("y", data=values, chunks=(2, 1, 1))
        file.create_dataset("b", data=values.transpose(2, 0, 1), chunks=(1, 2, 1))
    monkeypatch.setattr("unmix.io.formats.hdf5.MOST_CHUNKS", 60)
    for name in ("/y:yxb", "/b:byx"):
        found, _ = read_all(open_cube(tmp_path / "c.h5", name))
        np.testing.assert_array_equal(found, values)
    monkeypatch.setattr("unmix.io.formats.hdf5.MOST_CHUNKS", 55)
    refused(CubeError, r"chunks of \(2, 1, 1\): too small", open_cube, tmp_path / "c.h5", "/y:yxb")


@pytest.mark.parametrize("where", ["cube", "wavelengths", "group", "beside"])
def test_links_into_other_files_are_refused(tmp_path, where):
    """What is there may change, and the scene would be known again by its own file."""
    products.neon(tmp_path / "other.h5", products.truth())
    products.neon(tmp_path / "s.h5", products.truth())
    with h5py.File(tmp_path / "s.h5", "r+") as file:
        site = next(iter(file))
        name = {
            "cube": f"{site}/Reflectance/Reflectance_Data",
            "wavelengths": f"{site}/Reflectance/Metadata/Spectral_Data/Wavelength",
            "group": f"{site}/Reflectance/Metadata/Spectral_Data",
            "beside": "nobody/asks",
        }[where]
        if where != "beside":
            del file[name]
        file[name] = h5py.ExternalLink("other.h5", f"/{name}")
    refused(CubeError, rf"s\.h5: '{name}' is a link into another file", open_cube, tmp_path / "s.h5")
    with pytest.raises(CubeError, match="is a link into another file"):
        open_cube(tmp_path / "s.h5", f"/{site}/Reflectance/Reflectance_Data")


def test_links_within_a_file_and_out_of_matlab(tmp_path):
    """A soft link is followed; MATLAB's files and arrays for `solve` are looked at, too."""
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["x/cube"] = np.ones((3, 3, 4))
        file["cube"] = h5py.SoftLink("/x/cube")
    assert open_cube(tmp_path / "s.h5", "/cube:yxb").bands == 4
    with h5py.File(tmp_path / "m.mat", "w", userblock_size=512) as file:
        file["cube"] = h5py.ExternalLink("s.h5", "/x/cube")
        file["own"] = np.ones((4, 3, 3))
    with open(tmp_path / "m.mat", "r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\0\2IM")
    refused(CubeError, "'cube' is a link into another file", open_cube, tmp_path / "m.mat", "own")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a"] = np.eye(3)
        file["g/b"] = h5py.ExternalLink("s.h5", "/x")
    refused(unmix.InputError, "'g/b' is a link into another file", open_array, f"{tmp_path}/a.h5:/a")


INFLATERS = {"zlib": zlib} | ({"isal": isal_zlib} if isal_zlib is not None else {})


@given(data=st.data())
def test_chunks_are_decoded_as_the_library_does(tmp_path_factory, data):
    """Any part of any dataset, whatever its filters, among them edges and chunks that were never written."""
    draw = data.draw
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=3, max_size=3)))
    chunks = tuple(draw(st.integers(1, length)) for length in shape)
    dtype = np.dtype(draw(st.sampled_from(["<i2", ">i2", "u1", "<f4", ">f8"])))
    wanted = []
    for length in shape:
        first = draw(st.integers(0, length - 1))
        wanted.append(slice(first, draw(st.integers(first + 1, length))))
    values = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 200, shape).astype(dtype)
    path = tmp_path_factory.mktemp("d") / "s.h5"
    with h5py.File(path, "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk(chunks)
        properties.set_fill_value(np.array(7, dtype))
        for kind in draw(st.lists(st.sampled_from(["shuffle", "deflate", "fletcher32"]), max_size=3)):
            getattr(properties, f"set_{kind}")(*([draw(st.integers(0, 9))] if kind == "deflate" else []))
        low = h5py.h5d.create(file.id, b"x", h5py.h5t.py_create(dtype), h5py.h5s.create_simple(shape), properties)
        written = draw(st.integers(0, shape[0]))
        h5py.Dataset(low)[:written] = values[:written]
    with h5py.File(path) as file, pytest.MonkeyPatch.context() as patch:
        for module in INFLATERS.values():
            patch.setattr("unmix.io.formats.chunks.deflate", module)
            out = np.zeros(tuple(one.stop - one.start for one in wanted), dtype.newbyteorder("="))
            Decoder.of(file["x"]).fill(wanted, out)
            np.testing.assert_array_equal(out, file["x"][tuple(wanted)])


@pytest.mark.parametrize("layout", ["yxb", "ybx", "byx"])
@pytest.mark.parametrize("inflater", INFLATERS)
def test_a_damaged_chunk_is_an_error(tmp_path, monkeypatch, layout, inflater):
    """In a chunk in the middle, and in one at the edge, which the library is asked about too; others are read."""
    monkeypatch.setattr("unmix.io.formats.chunks.WORTHWHILE", 0)
    monkeypatch.setattr("unmix.io.formats.chunks.deflate", INFLATERS[inflater])
    values = np.random.default_rng(0).integers(0, 999, (10, 10, 10)).astype(np.int16)
    path = tmp_path / "s.h5"
    with h5py.File(path, "w") as file:
        made = file.create_dataset("cube", data=values, chunks=(4, 4, 4), compression="gzip", shuffle=True)
        axis = layout.index("y")
        places = {}
        made.id.chunk_iter(lambda one: places.update({one.chunk_offset[axis]: one.byte_offset}))
    whole = open_cube(path, f"/cube:{layout}")
    out = np.empty(2000, np.uint8)
    lines = slice(4, 8)
    expected = whole.read(lines, np.empty(800, np.uint8)).copy()
    np.testing.assert_array_equal(expected, np.take(values, range(4, 8), axis))
    raw = bytearray(path.read_bytes())
    for first in (0, 8):
        for k in range(6):
            raw[places[first] + 4 + k] ^= 0xFF
    path.write_bytes(raw)
    damaged = open_cube(path, f"/cube:{layout}")
    for first in (0, 8):
        refused(CubeError, f"lines {first + 1} to", damaged.read, slice(first, min(first + 4, 10)), out)
    np.testing.assert_array_equal(damaged.read(lines, np.empty(800, np.uint8)), expected)


@pytest.mark.parametrize("form", rest_slow(["h5", "hdr"], "h5"))
def test_a_forked_process_has_pools_of_its_own(tmp_path, form):
    """Seen: the child of a process that had read a scene waited for ever for its parent's threads."""
    values = np.random.default_rng(0).random((200, 100, 30)).astype(np.float32)
    if form == "h5":
        with h5py.File(tmp_path / "s.h5", "w") as file:
            file.create_dataset("cube", data=values, chunks=(20, 100, 30), compression="gzip")
    else:
        write_cube(tmp_path / "s.hdr", values, "bsq")
    script = f"""
import os, signal, numpy as np
from pathlib import Path
from unmix.io import open_cube
cube = open_cube(Path({str(tmp_path)!r}, "s.{form}"), {"/cube:yxb" if form == "h5" else None!r})
def read():
    return cube.read(slice(0, 200), np.empty(200 * 100 * 30 * 4, np.uint8)).sum()
total = read()
child = os.fork()
if child == 0:
    signal.alarm({PATIENCE})
    os._exit(0 if read() == total else 1)
raise SystemExit(os.waitpid(child, 0)[1])
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_filters_in_another_order_are_the_library_s(tmp_path):
    """Shuffle after deflate leaves the last bytes where they are, which the usual order never needs."""
    values = np.random.default_rng(0).random((5, 61, 37)).astype(">f4")
    with h5py.File(tmp_path / "s.h5", "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk(values.shape)
        properties.set_deflate(4)
        properties.set_shuffle()
        space = h5py.h5s.create_simple(values.shape)
        low = h5py.h5d.create(file.id, b"x", h5py.h5t.py_create(values.dtype), space, properties)
        h5py.Dataset(low)[...] = values
        assert low.get_chunk_info(0).size % 4
        out = np.empty(values.shape, np.float32)
        Decoder.of(file["x"]).fill([slice(0, 5)], out)
    np.testing.assert_array_equal(out, values)
