"""One scene in every format gives one answer; and what each format says of itself is read."""

import contextlib
import gzip
import logging

import h5py
import numpy as np
import products
import pytest
import rasterio
import scipy.io
from conftest import read_values, refused, write_csv, write_cube

import unmix
from unmix.commands.verify import verify
from unmix.io import open_cube
from unmix.scene.bands import choose_bands

SCENE = products.truth(lines=40)
E = np.stack([0.4 + 0.3 * np.sin(SCENE.waves / 300.0 + k) for k in range(3)], axis=1)
ENVI_FIELDS = {"wavelength": "{" + ", ".join(map(repr, SCENE.waves.tolist())) + "}", "wavelength_units": "Nanometers"}


def envi(path, dtype="int16", interleave="bip", order="<"):
    """The scene as ENVI: int16 times 10000, or real with NaN."""
    scaled = dtype == "int16"
    stored = products.stored_as_int16(SCENE) if scaled else SCENE.filled(np.nan).astype(dtype)
    fields = {"reflectance_scale_factor": 10000, "data_ignore_value": -9999} if scaled else {}
    return write_cube(path.with_suffix(".hdr"), stored, interleave, order, **ENVI_FIELDS, **fields)


def packed(path):
    """The scene as gzip-compressed ENVI."""
    header = envi(path)
    header.write_text(header.read_text() + "file compression = 1\n")
    image = header.with_suffix(".img")
    image.write_bytes(gzip.compress(image.read_bytes()))
    return header


def written(folder, name):
    """The scene in a format, and the type that it stores."""
    if name.startswith("envi"):
        _, dtype, interleave, order = name.split("-")
        return envi(folder / "s", dtype, interleave, order), dtype
    if name == "gzip":
        return packed(folder / "s"), "int16"
    write, file = (products.ARCHIVES | {key: (each, "s.h5") for key, each in products.WRITERS.items()})[name]
    write(folder / file, SCENE)
    own = {"neon": "int16", "geotiff": "int16", "enmap": "int16", "emit": "float32", "aviris3": "float32"}
    return folder / file, own.get(name, "float64" if name.startswith("matlab") else None)


FORMATS = [
    "envi-int16-bip-<",
    "envi-int16-bsq->",
    "envi-float32-bil->",
    "envi-float64-bsq-<",
    "gzip",
    *products.ARCHIVES,
    *products.WRITERS,
]


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """The abundance file of the scene as ENVI bip, by the type stored."""
    folder = tmp_path_factory.mktemp("plain")
    write_csv(folder / "e.csv", E, SCENE.waves)
    found = {}
    for dtype in ("int16", "float32", "float64"):
        unmix.run(envi(folder / dtype, dtype), endmembers=folder / "e.csv", method="fcls", device="cpu", bands="all")
        found[dtype] = (folder / f"{dtype}_abundance.img").read_bytes()
    return found


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_bytes_from_every_format(tmp_path, answers, name):
    """Wherever the type allows; else (PRISMA in steps, Tanager scaled) within 1e-5 of float64's."""
    path, dtype = written(tmp_path, name)
    library = write_csv(tmp_path / "e.csv", E, SCENE.waves)
    bands = "all" if name in ("emit", "neon") else "good"  # some of their bands are not good; PRISMA has one twice
    report = unmix.run(path, method="fcls", endmembers=library, out_dir=tmp_path / "o", device="cpu", bands=bands)
    assert report["certified"] and report["pixels"]["rescued"] == 0
    assert report["pixels"]["masked"] == 2 and report["pixels"]["partly_nodata"] == 0
    found = (tmp_path / "o" / f"{path.stem}_abundance.img").read_bytes()
    if dtype is not None:
        assert found == answers[dtype]
    a, best = (np.frombuffer(one, np.float32) for one in (found, answers["float64"]))
    np.testing.assert_allclose(a, best, atol=1e-5)
    expected = unmix.solve(SCENE.Y, E, device="cpu").abundances
    np.testing.assert_allclose(
        best.reshape(40, 3, 19).transpose(0, 2, 1)[~SCENE.fill], expected[~SCENE.fill], atol=1e-6
    )


@pytest.mark.parametrize(
    ("name", "recognised"),
    [
        ("geotiff", "GeoTIFF"),
        ("enmap", "EnMAP L2A"),
        ("matlab5", "MATLAB v5"),
        ("matlab_flat", "MATLAB v5"),
        ("matlab73", "MATLAB v7.3"),
    ],
)
def test_what_is_said_is_read(tmp_path, name, recognised):
    cube = open_cube(written(tmp_path, name)[0])
    assert (cube.format, cube.lines, cube.samples, cube.bands) == (recognised, *SCENE.Y.shape)
    np.testing.assert_allclose(cube.wavelengths, SCENE.waves, atol=1e-9)
    if name != "matlab_flat":
        np.testing.assert_allclose(cube.fwhm, SCENE.fwhm, atol=1e-9)


@pytest.mark.parametrize("interleave", ["pixel", "band"])
@pytest.mark.parametrize("inflated", [0, 1, 1000, 6000, 2**30])  # bytes that are decoded at a time
def test_tiles_of_any_kind(tmp_path, monkeypatch, interleave, inflated):
    """By lines where the tiles of some fit together, else inflated once."""
    monkeypatch.setattr("unmix.io.formats.geotiff.MOST_TOGETHER", 0 if inflated else 2**30)
    monkeypatch.setattr("unmix.io.formats.geotiff.LARGEST_PIECE", inflated)
    products.geotiff(tmp_path / "s.tif", SCENE, interleave=interleave)
    cube = open_cube(tmp_path / "s.tif")
    assert cube.lines_together == (1 if inflated else 16)
    for lines in (slice(0, 40), slice(13, 17), slice(39, 40)):
        np.testing.assert_array_equal(read_values(cube, lines), products.stored_as_int16(SCENE)[lines])


def test_a_tiff_behind_an_envi_header(tmp_path):
    """Whichever of the two is named; the header knows the wavelengths, the scale and what is missing."""
    with rasterio.open(tmp_path / "s.tif", "w", driver="GTiff", height=40, width=19, count=24, dtype="int16") as file:
        file.write(products.stored_as_int16(SCENE).transpose(2, 0, 1))
    fields = {
        "samples": 19,
        "lines": 40,
        "bands": 24,
        "data type": 2,
        "interleave": "tif",
        "file type": "TIFF",
        "wavelength": ENVI_FIELDS["wavelength"],
        "reflectance scale factor": 10000,
        "data ignore value": -9999,
    }
    header = "ENVI\n" + "".join(f"{key} = {value}\n" for key, value in fields.items())
    (tmp_path / "s.hdr").write_text(header)
    for name in ("s.hdr", "s.tif"):
        cube = open_cube(tmp_path / name)
        assert cube.format == "GeoTIFF behind an ENVI header" and cube.nodata == -9999
        np.testing.assert_allclose(cube.wavelengths, SCENE.waves)
        np.testing.assert_allclose(cube.gain, 1e-4)
    (tmp_path / "s.hdr").write_text(header.replace("lines = 40", "lines = 41"))
    refused(unmix.CubeError, r"promises 41 x 19 x 24 .* but s.tif has 40 x 19 x 24", open_cube, tmp_path / "s.tif")
    (tmp_path / "s.tif").write_bytes(b"no tiff")
    refused(unmix.CubeError, "is not a TIFF, though its header says so", open_cube, tmp_path / "s.hdr")


TRANSFORMS = {
    "north up": (rasterio.Affine(30.0, 0.0, 257000.0, 0.0, -30.0, 4112000.0), "EPSG:32611"),
    "turned": (
        rasterio.Affine.translation(3e5, 4e6) @ rasterio.Affine.rotation(20) @ rasterio.Affine.scale(5, -5),
        "EPSG:32733",
    ),
    "degrees": (rasterio.Affine(0.01, 0.0, -117.0, 0.0, -0.01, 38.0), "EPSG:4326"),
    "not UTM": (rasterio.Affine(10.0, 0.0, 4e6, 0.0, -20.0, 3e6), "EPSG:3035"),
}


@pytest.mark.parametrize("name", list(TRANSFORMS))
def test_the_map_of_a_tiff_is_the_map_of_its_outputs(tmp_path, name):
    """GDAL reads the same from our header; and for a part, what GDAL itself says of the part."""
    transform, crs = TRANSFORMS[name]
    shape = {"height": 40, "width": 19, "count": 24, "dtype": "int16", "nodata": -9999}
    with rasterio.open(tmp_path / "s.tif", "w", driver="GTiff", crs=crs, transform=transform, **shape) as file:
        file.write(products.stored_as_int16(SCENE).transpose(2, 0, 1))
    options = {"count": 3, "extract": "vca", "device": "cpu", "scale": 10000}
    unmix.run(tmp_path / "s.tif", **options)
    with rasterio.open(tmp_path / "s_abundance.img") as found:
        assert found.transform.almost_equals(transform, 1e-6)
        assert found.crs.to_epsg() == int(crs[5:])
        assert found.nodata == -9999 and found.descriptions == ("endmember 1", "endmember 2", "endmember 3")
    unmix.run(tmp_path / "s.tif", **options, lines="7:20", samples="4:", out_dir=tmp_path / "part")
    with rasterio.open(tmp_path / "part/s_abundance.img") as found:
        assert found.transform.almost_equals(transform @ rasterio.Affine.translation(4, 7), 1e-6)


def test_a_sheared_map_is_left_out_with_a_word(tmp_path):
    shape = {"height": 4, "width": 4, "count": 3, "dtype": "uint8", "crs": "EPSG:32611"}
    with rasterio.open(
        tmp_path / "s.tif", "w", driver="GTiff", transform=rasterio.Affine(30, 5, 3e5, 2, -30, 4e6), **shape
    ) as file:
        file.write(np.ones((3, 4, 4), np.uint8))
    cube = open_cube(tmp_path / "s.tif")
    assert "map info" not in cube.fields and "sheared" in cube.problems[0]


def scribbled(path):
    """A GeoTIFF, some bytes of which are others."""
    products.geotiff(path, SCENE)
    whole = path.read_bytes()
    path.write_bytes(whole[:8000] + b"\xff" * 500 + whole[8500:])


def of_complex(path):
    """A GeoTIFF of complex numbers."""
    with rasterio.open(path, "w", driver="GTiff", height=4, width=4, count=2, dtype="complex64") as file:
        file.write(np.ones((2, 4, 4), np.complex64))


def enmap(path, change):
    """A product of EnMAP whose metadata are changed."""
    products.enmap(path, SCENE)
    xml = path.with_name("A-METADATA.XML")
    xml.write_text(change(xml.read_text()))


ENMAP, MAT4 = (
    "A-SPECTRAL_IMAGE.TIF",
    b"MATLAB 5.0 MAT-file, Platform: posix".ljust(124) + b"\0\1IM" + b"\x0e\0\0\0\xff\xff\xff\x7f",
)
# Names of files with a fault, what makes them, and what is said of it.
FAULTS = {
    "scribbled": ("s.tif", scribbled, "cannot be read"),
    "no tiff": ("s.tif", lambda path: path.write_bytes(b"II*\0nonsense"), "cannot be read as TIFF"),
    "complex": ("s.tif", of_complex, "type complex64; cubes have one, whole or real"),
    "enmap": (
        ENMAP,
        lambda path: enmap(path, lambda text: text.replace("<bandID", "<bandIX", 1).replace("</bandID", "</bandIX", 1)),
        "describes 23 bands, but A-SPECTRAL_IMAGE.TIF has 24",
    ),
    "enmap xml": (ENMAP, lambda path: enmap(path, lambda _: "<level_X><a></level_X>"), "is not EnMAP's metadata"),
    "two cubes": (
        "s.mat",
        lambda path: scipy.io.savemat(path, {"a": np.ones((2, 3, 5)), "b": np.ones((2, 3, 6))}),
        "more than one variable could be the cube; name it with `dataset`: a (2, 3, 5), b (2, 3, 6)",
    ),
    "flat": (
        "s.mat",
        lambda path: scipy.io.savemat(path, {"Y": np.ones((5, 12)), "nRow": 3, "nCol": 5}),
        "'Y' has the shape (5, 12), but nRow x nCol is 3 x 5",
    ),
    "no mat": ("s.mat", lambda path: path.write_bytes(MAT4), "no variable begins here, or it is cut short"),
    "mat 4": ("s.mat", lambda path: path.write_bytes(bytes(30)), "is named like MATLAB, but does not begin like it"),
}


@pytest.mark.parametrize(("name", "write", "said"), FAULTS.values(), ids=FAULTS)
def test_faults_are_one_line(tmp_path, name, write, said):
    path = tmp_path / name
    write(path)
    how = {"count": 2, "extract": "vca", "device": "cpu", "out_dir": tmp_path / "o"}
    error = refused(unmix.CubeError, None, unmix.run, path, **how)
    assert said in str(error.value) and "\n" not in str(error.value) and path.stem[:2] in str(error.value)
    assert not (tmp_path / "o").exists()


def test_variables_by_name(tmp_path):

    values = {"a": np.ones((2, 3, 5)), "b": np.full((2, 3, 6), 2.0), "axis": np.arange(400.0, 1000.0, 100.0)}
    scipy.io.savemat(tmp_path / "s.mat", values)
    cube = open_cube(tmp_path / "s.mat", "b", "axis")
    assert cube.bands == 6 and cube.wavelengths[-1] == 900
    refused(unmix.CubeError, "'axis' is no variable of 5 wavelengths", open_cube, tmp_path / "s.mat", "a", "axis")
    refused(unmix.CubeError, "has no variable 'c'", open_cube, tmp_path / "s.mat", "c")


@pytest.mark.parametrize("options", [{}, {"chunks": (1, 19, 40)}, {"chunks": (24, 5, 7), "compression": "gzip"}])
def test_version_73_however_it_is_stored(tmp_path, options):
    products.matlab73(tmp_path / "s.mat", SCENE, **options)
    np.testing.assert_array_equal(read_values(tmp_path / "s.mat"), SCENE.filled(np.nan))


def test_without_rasterio_a_tiff_is_one_line(tmp_path, monkeypatch):
    import sys

    products.geotiff(tmp_path / "s.tif", SCENE)
    monkeypatch.setitem(sys.modules, "rasterio", None)
    refused(unmix.CubeError, r"GeoTIFF needs rasterio: pip install 'unmix\[geo\]'", open_cube, tmp_path / "s.tif")


MAP = "{UTM, 1.000, 1.000, 257000.0, 4112000.0, 30.0, 30.0, 11, North, WGS-84, units=Meters}"


@pytest.fixture
def finished(tmp_path):
    """The scene on a map, and what a run in each format writes."""
    path = envi(tmp_path / "s")
    from rasterio.crs import CRS

    system = CRS.from_epsg(32611).to_wkt()
    path.write_text(path.read_text() + f"map info = {MAP}\ncoordinate system string = {{{system}}}\n")
    library = write_csv(tmp_path / "e.csv", E, SCENE.waves)

    def run(form, **options):
        settings = {
            "endmembers": library,
            "method": "fcls",
            "device": "cpu",
            "residual": True,
            "certificate": True,
        } | options
        return unmix.run(path, format=form, **{"out_dir": tmp_path / form} | settings)

    return run


@pytest.mark.parametrize("form", ["geotiff", "cog", "hdf5", "netcdf"])
def test_other_formats_hold_what_the_work_file_held(tmp_path, finished, form):
    """Values, names, nodata, place and wavelengths; read by GDAL and by us; verified; nothing else left behind."""
    finished("envi")
    report = finished(form)
    ending = {"geotiff": ".tif", "cog": ".tif", "hdf5": ".h5", "netcdf": ".nc"}[form]
    names = ["abundance", "rmse", "residual", "certificate"]
    expected = {f"s_{name}{ending}" for name in names} | {
        "s_endmembers.csv",
        "s_endmembers.sli",
        "s_endmembers.hdr",
        "s_browse.png",
        "s_run.json",
    }
    assert {path.name for path in (tmp_path / form).iterdir()} == expected
    assert set(report["digests"]) == expected - {"s_run.json"}
    for name in names:
        plain, other = tmp_path / f"envi/s_{name}.img", tmp_path / f"{form}/s_{name}{ending}"
        with rasterio.open(plain) as one:
            if ending == ".tif":
                with rasterio.open(other) as two:
                    np.testing.assert_array_equal(two.read(), one.read())
                    assert (two.crs, two.transform, two.nodata) == (one.crs, one.transform, -9999)
                    assert two.descriptions == tuple(word.partition(" (")[0] for word in one.descriptions)
                    assert form == "geotiff" or two.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
            else:
                import h5py

                with h5py.File(other) as two:
                    np.testing.assert_array_equal(two[name], one.read())
                    assert list(two[name].attrs["band_names"]) == [word.partition(" (")[0] for word in one.descriptions]
                    numbers = [float(word) for word in two["spatial_ref"].attrs["GeoTransform"].split()]
                    assert numbers == list(one.get_transform())
                    assert two[name].attrs["_FillValue"] == -9999
                    np.testing.assert_allclose(two["x"][:2], [257015, 257045])
    if form == "geotiff":
        np.testing.assert_allclose(open_cube(tmp_path / "geotiff/s_residual.tif").wavelengths, SCENE.waves)
    if form == "netcdf":
        with (
            rasterio.open(f"netcdf:{tmp_path}/netcdf/s_abundance.nc:abundance") as two,
            rasterio.open(tmp_path / "envi/s_abundance.img") as one,
        ):
            np.testing.assert_array_equal(two.read(), one.read())
            assert two.crs == one.crs and two.transform.almost_equals(one.transform) and two.nodata == -9999
    assert verify(tmp_path / form / "s", everything=True).faults == []
    other = tmp_path / form / f"s_abundance{ending}"
    damaged = bytearray(other.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    other.write_bytes(damaged)
    assert "is not what the run wrote" in verify(tmp_path / form / "s").faults[0]


@pytest.mark.parametrize("form", ["geotiff", "hdf5"])
def test_a_map_that_is_read_back_wrong_is_no_map(tmp_path, finished, form, monkeypatch):
    """A library that writes something else, in silence: a full disk that is only noticed on closing, or not at all."""
    import h5py

    import unmix.io.export.geotiff as export

    opened, put = export.work_dataset, h5py.Dataset.__setitem__

    @contextlib.contextmanager
    def other(work):
        with opened(work) as source:
            with rasterio.open(
                tmp_path / "x.tif", "w", **source.profile | {"driver": "GTiff", "interleave": "band"}
            ) as wrong:
                wrong.write(source.read() + np.float32(1))
            with rasterio.open(tmp_path / "x.tif") as wrong:
                yield wrong

    monkeypatch.setattr(export, "work_dataset", other)
    monkeypatch.setattr(h5py.Dataset, "__setitem__", lambda self, key, values: put(self, key, values + np.float32(1)))
    refused(unmix.OutputError, "what was read back is not what was written", finished, form)
    left = sorted(path.name for path in (tmp_path / form).iterdir())  # work files alone, to go on from
    assert left and all(name.endswith((".img.part", ".journal.part")) for name in left)
    monkeypatch.undo()
    assert finished(form)["resumed_from"] > 0 and not list((tmp_path / form).glob("*.part"))


def test_spectral_reads_our_maps(tmp_path, finished):
    import spectral.io.envi

    finished("envi")
    image = spectral.io.envi.open(str(tmp_path / "envi/s_abundance.hdr"), str(tmp_path / "envi/s_abundance.img"))
    assert image.metadata["band names"] == ["em 1", "em 2", "em 3"]
    assert float(image.metadata["data ignore value"]) == -9999 and image.metadata["map info"][0] == "UTM"
    raw = np.fromfile(tmp_path / "envi/s_abundance.img", np.float32).reshape(40, 3, 19).transpose(0, 2, 1)
    np.testing.assert_array_equal(np.array(image.load()), raw)


def test_spectral_and_gdal_write_what_we_read(tmp_path):
    """The other half of a round trip."""
    import spectral.io.envi

    stored = products.stored_as_int16(SCENE)
    metadata = {"wavelength": SCENE.waves.tolist(), "wavelength units": "Nanometers", "data ignore value": -9999}
    spectral.io.envi.save_image(str(tmp_path / "p.hdr"), stored, metadata=metadata, interleave="bil")
    shape = {"height": 40, "width": 19, "count": 24, "dtype": "int16", "nodata": -9999}
    with rasterio.open(
        tmp_path / "g.img", "w", driver="ENVI", crs="EPSG:32611", transform=TRANSFORMS["north up"][0], **shape
    ) as file:
        file.write(stored.transpose(2, 0, 1))
    for name in ("p.hdr", "g.hdr"):
        cube = open_cube(tmp_path / name)
        np.testing.assert_array_equal(read_values(cube), stored)
        assert cube.nodata == -9999


def placed(swath, lines=40, samples=19):
    """What `products.emit`'s lookup table makes of a swath (lines, bands, samples); in loops."""
    out = np.full((lines + 2, swath.shape[1], samples + 3), -9999, np.float32)
    for i in range(lines + 2):
        for j in range(samples + 3):
            y, x = lines - i, samples - (j or 1)
            if 0 <= y < lines and 0 <= x < samples:
                out[i, :, j] = swath[y, :, x]
    return out


@pytest.mark.parametrize("form", ["envi", "geotiff"])
def test_a_swath_is_placed_on_its_map(tmp_path, form):
    products.emit(tmp_path / "s.nc", SCENE)
    library = write_csv(tmp_path / "e.csv", E, SCENE.waves)
    options = {"endmembers": library, "device": "cpu", "bands": "all", "ortho": True, "residual": True}
    options |= {"out_dir": tmp_path / "o"}
    unmix.run(tmp_path / "s.nc", format=form, memory=200_000, **options)
    ending = {"envi": "img", "geotiff": "tif"}[form]
    for name in ("abundance", "rmse", "residual"):
        files = [tmp_path / f"o/s_{name}{which}.{ending}" for which in ("", "_ortho")]
        with rasterio.open(files[0]) as swath, rasterio.open(files[1]) as on_map:
            np.testing.assert_array_equal(on_map.read().transpose(1, 0, 2), placed(swath.read().transpose(1, 0, 2)))
            assert on_map.transform.almost_equals(rasterio.Affine(0.00054, 0, -117.0, 0, -0.00054, 38.0), 1e-9)
            assert on_map.descriptions == swath.descriptions and on_map.nodata == -9999
    assert verify(tmp_path / "o/s", everything=True).faults == []


def test_a_place_that_is_wrong_is_found(tmp_path, monkeypatch):
    """With digests that were made of it, as a fault of ours would."""
    products.emit(tmp_path / "s.nc", SCENE)
    monkeypatch.setattr(
        "unmix.io.placement.Placement.place",
        lambda self, swath, lines, fill: np.zeros(
            (lines.stop - lines.start, swath.shape[1], self.shape[1]), np.float32
        ),
    )
    unmix.run(tmp_path / "s.nc", count=2, extract="vca", device="cpu", ortho=True, out_dir=tmp_path / "o")
    faults = verify(tmp_path / "o/s").faults
    assert len(faults) >= 20 and "not what the lookup table makes of abundance" in faults[0]


def test_a_part_of_a_swath_is_placed_where_it_lies(tmp_path):
    products.emit(tmp_path / "s.nc", SCENE)
    library = write_csv(tmp_path / "e.csv", E, SCENE.waves)
    options = {"endmembers": library, "device": "cpu", "bands": "all", "ortho": True}
    unmix.run(tmp_path / "s.nc", **options, out_dir=tmp_path / "all")
    unmix.run(tmp_path / "s.nc", **options, out_dir=tmp_path / "part", lines="10:20", samples="3:")
    with rasterio.open(tmp_path / "all/s_abundance.img") as whole:
        values = whole.read().transpose(1, 0, 2)
    values[:10] = values[20:] = values[:, :, :3] = -9999
    with rasterio.open(tmp_path / "part/s_abundance_ortho.img") as on_map:
        np.testing.assert_array_equal(on_map.read().transpose(1, 0, 2), placed(values))


def test_without_a_table_nothing_is_placed(tmp_path):
    with pytest.raises(unmix.MethodError, match="has no lookup table"):
        unmix.run(envi(tmp_path / "s"), count=3, ortho=True, device="cpu")


@pytest.mark.parametrize("old", [True, False])
def test_the_full_value_of_a_matlab_file_is_its_unit(tmp_path, caplog, old):
    """Whole numbers are divided by the maxValue beside them, unless `scale` is given; real ones are not."""
    Y = np.arange(40, dtype=np.uint16).reshape(5, 8)
    values = {"Y": Y, "nRow": 2, "nCol": 4, "maxValue": 5000}
    if old:
        scipy.io.savemat(tmp_path / "s.mat", values)
    else:
        with h5py.File(tmp_path / "s.mat", "w", userblock_size=512) as file:
            for name, value in values.items():
                file[name] = np.atleast_2d(value).T
        with open(tmp_path / "s.mat", "r+b") as file:
            file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\0\2IM")
    with caplog.at_level(logging.INFO, "unmix"):
        cube = open_cube(tmp_path / "s.mat")
    assert cube.gain.tolist() == [1 / 5000] * 5 and "divided by its maxValue, 5000" in caplog.text
    assert choose_bands(cube, "all", 10.0).gain.tolist() == [0.1] * 5
    scipy.io.savemat(tmp_path / "r.mat", values | {"Y": Y / 5000})
    assert open_cube(tmp_path / "r.mat").gain is None


@pytest.mark.parametrize("name", ["nodata", "no_data_value", "FillValue"])
def test_a_variable_says_what_a_matlab_file_has_for_no_data(tmp_path, name):
    Y = np.random.default_rng(0).integers(1, 99, (4, 5, 3)).astype("f4")
    Y[1, 2] = -99
    scipy.io.savemat(tmp_path / "x.mat", {"cube": Y, name: -99.0, "other": -99.0})
    assert unmix.scene.open_scene(tmp_path / "x.mat").read(1)[1].tolist() == [False, False, True, False, False]
