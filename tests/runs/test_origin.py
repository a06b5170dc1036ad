"""Where a map comes from: acquisition, version, method, options and digests in the headers of every format."""

import json

import h5py
import numpy as np
import pytest
from conftest import falsify_record, mix, refused, write_csv, write_cube
from test_cli import unmix as command

import unmix
from unmix.commands.verify import verify
from unmix.io.formats.header import read_header

TIME = "2024-08-01T18:03:22.5Z"
TAGS = ["Site=Bad  Segeberg", "run id=7"]


@pytest.fixture
def scene(tmp_path):
    """A scene with a time and a sun, and a library."""
    _, E, Y = mix(1, (4, 5), 6, 3)
    write_csv(tmp_path / "library.csv", E, names=("e0", "e1", "e2"))
    path = write_cube(
        tmp_path / "x.hdr",
        Y,
        acquisition_time=TIME,
        sun_elevation="61.2",
        sensor_type="Unknown",
        wavelength="{400, 500, 600, 700, 800, 900}",
        wavelength_units="Nanometers",
        fwhm="{5, 5, 5, 5, 5, 5}",
    )
    return path, tmp_path / "library.csv"


def test_headers_say_where_a_map_comes_from(tmp_path, scene):
    path, library = scene
    texts = set()
    for turn, words in enumerate(({}, {"memory": "64K", "threads": 1, "streams": 2})):
        out = tmp_path / str(turn)
        how = {"endmembers": library, "method": "nnls"}
        report = unmix.run(path, max_delta=1e-5, out_dir=out, tag=["Site=Bad  Segeberg", "run id=7"], **how, **words)
        assert verify(out / "x", everything=True).faults == []
        fields = read_header(out / "x_abundance.hdr")
        texts.add((out / "x_abundance.hdr").read_text())
    assert len(texts) == 1 and str(tmp_path) not in texts.pop()
    assert fields["acquisition time"] == TIME and fields["sun elevation"] == "61.2"
    assert fields["sensor type"] == "Unknown"
    assert fields["tag site"] == "Bad Segeberg" and fields["tag run id"] == "7"
    assert fields["unmix version"] == unmix.__version__ and fields["unmix method"] == "nnls"
    assert fields["unmix input"] == f"x.img {report['identity']['data']['digest']}"
    assert fields["unmix options"] == "max_delta 1e-05"
    assert fields["unmix endmembers"] == unmix.library.load(out / "x_endmembers.csv").digest()
    assert report["asked"]["tag"] == TAGS


def test_another_input_or_library_is_seen(tmp_path, scene):
    path, library = scene
    unmix.run(path, endmembers=library, out_dir=tmp_path / "a")
    before = read_header(tmp_path / "a/x_rmse.hdr")
    library.write_text(library.read_text().replace("e1", "soil"))
    values = np.fromfile(path.with_suffix(".img"))
    values[0] += 0.01
    values.tofile(path.with_suffix(".img"))
    unmix.run(path, endmembers=library, out_dir=tmp_path / "b")
    after = read_header(tmp_path / "b/x_rmse.hdr")
    assert {key for key in before if before[key] != after[key]} == {"unmix input", "unmix endmembers"}


def test_every_format_has_them(tmp_path, scene):
    rasterio = pytest.importorskip("rasterio")
    path, library = scene
    for form in ("geotiff", "cog"):
        unmix.run(
            path, method="fcls", endmembers=library, residual=True, format=form, tag="site=A", out_dir=tmp_path / form
        )
        with rasterio.open(tmp_path / form / "x_residual.tif") as map_:
            tags = map_.tags()
            assert tags["ACQUISITION_TIME"] == TIME and tags["UNMIX_METHOD"] == "fcls" and tags["TAG_SITE"] == "A"
            assert map_.tags(2, ns="IMAGERY") == {"CENTRAL_WAVELENGTH_UM": "0.5", "FWHM_UM": "0.005"}
            assert map_.descriptions[1]
    for form, ending in (("hdf5", "h5"), ("netcdf", "nc")):
        unmix.run(path, method="fcls", endmembers=library, format=form, tag="site=A", out_dir=tmp_path / form)
        with h5py.File(tmp_path / form / f"x_rmse.{ending}") as file:
            assert file.attrs["acquisition_time"] == TIME.encode() and file.attrs["tag_site"] == b"A"
            assert file.attrs["unmix_options"] == b"none" and file.attrs["title"].startswith(b"RMSE")


def test_a_repeated_run_has_the_tags_too(tmp_path, scene):
    path, library = scene
    command("run", path, "-e", library, "--tag", "site=A", "--tag", "b c=1=2; 3", "-o", tmp_path / "a")
    command("run", path, "--config", tmp_path / "a/x_run.json", "-o", tmp_path / "b")
    headers = [(tmp_path / name / "x_rmse.hdr").read_text() for name in "ab"]
    assert headers[0] == headers[1] and "tag b c = 1=2; 3" in headers[0]
    assert json.loads((tmp_path / "b/x_run.json").read_text())["options"]["tag"] == ["site=A", "b c=1=2; 3"]
    falsify_record(tmp_path / "a/x", lambda record: record["asked"].pop("tag"))
    said = command("run", path, "-e", library, "--tag", "site=A", "-o", tmp_path / "a", "--skip-existing", code=1)[1]
    assert "differ" in said


@pytest.mark.parametrize(
    "tag", ["site", "=A", "site=", "1site=A", "a=x{y", "a=x,y", "a-b=c", "ä=c", "a=1\n2\0", "a=" + "é" * 1001]
)
def test_tags_that_cannot_be(scene, tag):
    refused(unmix.MethodError, "write KEY=VALUE", unmix.run, scene[0], endmembers=scene[1], tag=[tag])
    with pytest.raises(unmix.MethodError, match="is given twice"):
        unmix.run(scene[0], endmembers=scene[1], tag=["my site=A", "My_Site=B"])


@pytest.mark.parametrize("form", ["envi", "geotiff", "cog", "hdf5"])
def test_no_tag_changes_how_a_map_is_read(tmp_path, scene, form):
    """Words of ENVI, GDAL and CF as keys are keys of our own."""
    rasterio = pytest.importorskip("rasterio")
    keys = ("byte_order", "header offset", "map_info", "reflectance scale factor", "data gain values", "bands")
    keys += ("tifftag_software",)
    words = [
        f"{key}=1" for key in (*keys, "area_or_point", "title", "Conventions", "acquisition time", "unmix version")
    ]
    for name, tag in (("plain", ()), ("tagged", words)):
        unmix.run(scene[0], endmembers=scene[1], format=form, tag=tag, out_dir=tmp_path / name)
        assert verify(tmp_path / name / "x", everything=True).faults == []
    if form == "hdf5":
        with h5py.File(tmp_path / "plain/x_rmse.h5") as plain, h5py.File(tmp_path / "tagged/x_rmse.h5") as tagged:
            assert plain.attrs["title"] == tagged.attrs["title"] and np.array_equal(plain["rmse"], tagged["rmse"])
        return
    ending = "img" if form == "envi" else "tif"
    with (
        rasterio.open(tmp_path / f"plain/x_rmse.{ending}") as plain,
        rasterio.open(tmp_path / f"tagged/x_rmse.{ending}") as tagged,
    ):
        assert np.array_equal(plain.read(), tagged.read()) and plain.transform == tagged.transform
        assert plain.tags().get("AREA_OR_POINT") == tagged.tags().get("AREA_OR_POINT")


def test_maps_of_nmf_have_them_too(tmp_path, scene):
    unmix.nmf_scene(scene[0], count=3, steps=20, out_dir=tmp_path)
    fields = read_header(tmp_path / "x_abundance.hdr")
    assert fields["unmix method"] == "nmf" and fields["unmix solver"] == "kl" and "steps 20" in fields["unmix options"]
    assert fields["acquisition time"] == TIME and fields["unmix input"].startswith("x.img ")


def test_time_and_sensor_of_emit(tmp_path):
    with h5py.File(tmp_path / "e.nc", "w") as file:
        file["reflectance"] = np.full((3, 4, 5), 0.2, np.float32)
        file["sensor_band_parameters/wavelengths"] = np.arange(5) * 100.0 + 400
        file["sensor_band_parameters/fwhm"] = np.full(5, 8.0)
        file.attrs["time_coverage_start"], file.attrs["instrument"] = "2023-08-11T19:04:49+0000", "EMIT"
    cube = unmix.open_cube(tmp_path / "e.nc")
    assert cube.fields["acquisition time"] == "2023-08-11T19:04:49+0000" and cube.fields["sensor type"] == "EMIT"
