"""Zarr stores, as zarr and xarray write them: the same bytes as from ENVI, here and on a server; and our maps, read by both."""

import contextlib
import json
import os
import pickle
import re
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
from conftest import read_values, refused, rest_slow, write_csv
from object_server import serving
from test_cli import unmix as command
from test_formats import SCENE, E, answers, envi, finished  # noqa: F401 - fixtures

import unmix
from unmix.commands.verify import verify
from unmix.io import open_cube
from unmix.runs.files import output_set

zarr, xarray = pytest.importorskip("zarr"), pytest.importorskip("xarray")
from stores import STORES, dataset, geozarr, xarray_v2, xarray_v3  # noqa: E402


def read_all(cube) -> np.ndarray:
    """The values of a cube, scaled, (lines, samples, bands)."""
    values = read_values(cube).astype(float)
    return values * (1.0 if cube.gain is None else cube.gain) + (0.0 if cube.offset is None else cube.offset)


@pytest.mark.parametrize("name", rest_slow(STORES, "GeoZarr"))
def test_the_same_maps_from_every_store(tmp_path, answers, name):  # noqa: F811
    write, file = STORES[name]
    write(tmp_path / file, SCENE)
    library = write_csv(tmp_path / "e.csv", E, SCENE.waves)
    how = {"scale": 10000, "nodata": 0} if name == "OME-Zarr" else {}
    report = unmix.run(tmp_path / file, method="fcls", endmembers=library, device="cpu", **how)
    assert report["certified"] and report["pixels"]["masked"] == 2
    found = np.frombuffer((tmp_path / "s_abundance.img").read_bytes(), np.float32)
    np.testing.assert_allclose(found, np.frombuffer(answers["float64"], np.float32), atol=1e-5)
    if name.startswith("xarray"):
        assert (tmp_path / "s_abundance.img").read_bytes() == answers["int16"]
    assert verify(tmp_path / "s").faults == []
    text = (tmp_path / "s_abundance.hdr").read_text()
    assert name == "OME-Zarr" or ("257000" in text and re.search("WGS_1984_UTM_Zone_11N|32611", text))


@pytest.mark.parametrize("name", STORES)
def test_wavelengths_and_widths(tmp_path, name):
    write, file = STORES[name]
    write(tmp_path / file, SCENE)
    cube = open_cube(tmp_path / file)
    assert (cube.stem, cube.format, cube.lines, cube.samples, cube.bands) == ("s", "Zarr", *SCENE.Y.shape)
    np.testing.assert_allclose(cube.wavelengths, SCENE.waves, rtol=1e-5)
    assert name == "OME-Zarr" or np.allclose(cube.fwhm, SCENE.fwhm)
    assert cube.problems == []


@pytest.mark.parametrize("axes", rest_slow(["yxb", "ybx", "byx", "xyb", "xby", "bxy"], "yxb", "xby"))
@pytest.mark.parametrize("together", [0, 2**30])
def test_axes_in_any_order(tmp_path, monkeypatch, axes, together):
    """Without names, and with chunks that hold many lines, which are inflated once."""
    monkeypatch.setattr("unmix.io.formats.zarr.store.MOST_TOGETHER", together)
    monkeypatch.setattr("unmix.io.scratch.MOST_OF_A_STRIP", 4000)
    values = SCENE.Y.transpose(["yxb".index(axis) for axis in axes])
    array = zarr.create_group(tmp_path / "s.zarr").create_array(
        "a/c", shape=values.shape, dtype="float64", chunks=[7] * 3
    )
    array[...] = values
    with pytest.raises(unmix.CubeError, match=r"the axes of /a/c .* are without names; say their order with"):
        open_cube(tmp_path / "s.zarr")
    cube = open_cube(tmp_path / "s.zarr", f"/a/c:{axes}")
    assert (cube.scratch is not None) == (together == 0)
    np.testing.assert_array_equal(read_all(cube), SCENE.Y)
    np.testing.assert_array_equal(read_values(cube, slice(5, 17)), SCENE.Y[5:17])
    refused(unmix.MethodError, "the axes must be one of", open_cube, tmp_path / "s.zarr", "/a/c:yyb")
    np.testing.assert_array_equal(read_all(open_cube(tmp_path / "s.zarr/a", f"c:{axes}")), SCENE.Y)


def test_several_cubes_are_listed(tmp_path):
    whole = dataset(SCENE)
    whole.assign(radiance=whole.reflectance * 2).to_zarr(tmp_path / "s.zarr", consolidated=False)
    with pytest.raises(
        unmix.CubeError, match=r"name its cube with `dataset`.*/radiance \(float64 \(40, 19, 24\)\), /reflectance"
    ):
        open_cube(tmp_path / "s.zarr")
    np.testing.assert_array_equal(
        read_all(open_cube(tmp_path / "s.zarr", "/radiance"))[~SCENE.fill], 2 * SCENE.Y[~SCENE.fill]
    )
    with pytest.raises(unmix.CubeError, match=r"has no array or group '/no'; there are: /radiance"):
        open_cube(tmp_path / "s.zarr", "/no")
    with pytest.raises(unmix.CubeError, match="there are: none"):
        zarr.create_group(tmp_path / "empty.zarr")
        open_cube(tmp_path / "empty.zarr")


class Planted:
    """What runs when it is read by pickle."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return (open, (str(self.trace), "w"))


PICKLE = {"id": "pickle", "protocol": 4}


@pytest.mark.parametrize(
    "about",
    [
        {"dtype": "<f8", "filters": [PICKLE]},
        {"dtype": "<f8", "compressor": PICKLE},
        {"dtype": "|O", "filters": [{"id": "vlen-utf8"}, PICKLE]},
        {"dtype": "|O", "filters": [{"id": "vlen-utf8"}], "compressor": PICKLE},
    ],
)
@pytest.mark.parametrize("place", ["cube", "names"])
def test_what_could_run_code_does_not(tmp_path, about, place):
    """A filter of pickle, of the cube or of names beside it; `numcodecs` up to 0.16.1 lets it run."""
    xarray_v2(tmp_path / "s.zarr", SCENE)
    (tmp_path / "s.zarr/.zmetadata").unlink()
    name, shape = ("reflectance", [40, 19, 24]) if place == "cube" else ("band_name", [24])
    folder = tmp_path / "s.zarr" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    plain = {"zarr_format": 2, "shape": shape, "chunks": shape, "compressor": None, "filters": None}
    plain |= {"fill_value": None, "order": "C"}
    (folder / ".zarray").write_text(json.dumps(plain | about))
    (folder / ".zattrs").write_text(
        json.dumps({"_ARRAY_DIMENSIONS": ["y", "x", "band"] if place == "cube" else ["band"]})
    )
    (folder / ".".join("0" for _ in shape)).write_bytes(pickle.dumps(Planted(tmp_path / "trace")))
    with contextlib.suppress(unmix.UnmixError):
        read_all(open_cube(tmp_path / "s.zarr", None if place == "names" else "/reflectance"))
    assert not (tmp_path / "trace").exists()


def two_levels(path):
    """The angles of EOPF's Sentinel-2, higher up in the tree than the reflectance."""
    STORES["EOPF"][0](path, SCENE)
    group = zarr.open_group(path)["conditions/geometry"]
    group.create_array("sun_angles", shape=(2, 5, 6), dtype="float64").attrs["_ARRAY_DIMENSIONS"] = ["angle", "y", "x"]


def test_cubes_of_all_levels_are_listed(tmp_path):
    two_levels(tmp_path / "s.zarr")
    with pytest.raises(
        unmix.CubeError, match=r"/conditions/geometry/sun_angles .*/measurements/reflectance/r30m \(24 arrays"
    ):
        open_cube(tmp_path / "s.zarr")
    assert open_cube(tmp_path / "s.zarr", "/measurements").bands == 24


def test_bands_that_are_arrays_are_in_the_order_of_their_numbers(tmp_path):
    """What lies beside them in an order of its own is not theirs."""
    root = zarr.create_group(tmp_path / "s.zarr")
    for k in range(12):
        one = root.create_array(f"b{k + 1}", shape=(4, 5), dtype="float32", dimension_names=["y", "x"])
        one[...] = k + 1
        one.attrs["wavelength"] = 400.0 + 10 * k
    root.create_array("wavelength", shape=(12,), dtype="float64", dimension_names=["band"])[...] = np.arange(12) + 900.0
    cube = open_cube(tmp_path / "s.zarr")
    assert read_all(cube)[0, 0].tolist() == list(range(1, 13))
    assert cube.wavelengths.tolist() == [400.0 + 10 * k for k in range(12)]


def changed(path, **about):
    """A store by xarray whose coordinates are stored otherwise."""
    whole = dataset(SCENE)
    encoding = {name: {"dtype": "int16", "_FillValue": -1} | one for name, one in about.items()}
    whole.to_zarr(path, consolidated=False, encoding=encoding)
    return open_cube(path)


def test_coordinates_that_are_scaled(tmp_path):
    cube = changed(
        tmp_path / "s.zarr",
        wavelength={"scale_factor": 1e-4},
        x={"scale_factor": 30.0, "add_offset": 257015.0},
        y={"scale_factor": -30.0, "add_offset": 4111985.0},
    )
    np.testing.assert_allclose(cube.wavelengths, SCENE.waves, atol=0.06)
    assert cube.fields["map info"].startswith("UTM, 1, 1, 257000.0, 4112000.0, 30.0, 30.0, 11")


MAPPED = {
    "turned": ({"GeoTransform": "257000 30 1 4112000 1 -30"}, {}, None, "its map is turned"),
    "turned too": (
        {"GeoTransform": "257000 30 1 4112000 1 -30"},
        {"x": np.arange(19.0), "y": -np.arange(40.0)},
        None,
        "turned",
    ),
    "stale": (
        {"GeoTransform": "254000 30 0 4112000 0 -30"},
        {},
        (257000.0, 4112000.0, 30.0),
        "are elsewhere than its transform",
    ),
    "the same": ({"GeoTransform": "257000 30 0 4112000 0 -30"}, {}, (257000.0, 4112000.0, 30.0), None),
    "with commas": ({"GeoTransform": "257000, 30, 0, 4112000, 0, -30"}, {}, (257000.0, 4112000.0, 30.0), None),
    "no transform": ({"GeoTransform": None}, {}, (257000.0, 4112000.0, 30.0), None),
    "north": ({}, {"y": 4110815.0 + 30 * np.arange(40)}, None, "do not run south"),
    "km": (
        {},
        {"x": 257.015 + 0.03 * np.arange(19), "y": 4111.985 - 0.03 * np.arange(40)},
        (257000.0, 4112000.0, 30.0),
        None,
    ),
}


@pytest.mark.parametrize(("said", "is_known"), [("EPSG:32611", True), ("local", False)])
def test_a_system_that_the_root_names(tmp_path, said, is_known):
    whole = dataset(SCENE).drop_vars("spatial_ref")
    for one in whole.variables.values():
        one.attrs.pop("grid_mapping", None), one.encoding.pop("grid_mapping", None)
    whole.assign_attrs(crs=said).to_zarr(tmp_path / "s.zarr", consolidated=False)
    place = open_cube(tmp_path / "s.zarr").fields.get("map info", "")
    assert place.startswith("UTM, 1, 1, 257000, 4112000, 30, 30, 11") == is_known


@pytest.mark.parametrize("name", MAPPED)
def test_places(tmp_path, name):
    mapping, axes, expected, said = MAPPED[name]
    whole = dataset(SCENE)
    whole = whole.assign_coords(
        {axis: (axis, values, {"units": "km"} if name == "km" else {}) for axis, values in axes.items()}
    )
    whole.spatial_ref.attrs.update(mapping)
    whole.to_zarr(tmp_path / "s.zarr", consolidated=False)
    cube = open_cube(tmp_path / "s.zarr")
    assert (said is None and not cube.problems) or said in cube.problems[0]
    if expected is None:
        assert "map info" not in cube.fields
        return
    found = [float(word) for word in cube.fields["map info"].split(",")[3:6]]
    np.testing.assert_allclose(found, expected, atol=1e-6)


ATTRIBUTES = {
    "ome": "abc",
    "multiscales": [1],
    "stac_discovery": None,
    "omero": {"channels": 3},
    "_eopf_attrs": {"scale_factor": None},
    "grid_mapping": 7,
    "spatial:transform": None,
    "map_info": "see the website",
    "band_names": 5,
    "proj:epsg": "x",
}


@pytest.mark.parametrize("name", rest_slow(ATTRIBUTES, "ome", "multiscales", "grid_mapping", "proj:epsg"))
def test_odd_attributes_change_nothing(tmp_path, name):
    xarray_v3(tmp_path / "s.zarr", SCENE)
    before = open_cube(tmp_path / "s.zarr")
    for node in (zarr.open_group(tmp_path / "s.zarr"), zarr.open_group(tmp_path / "s.zarr")["reflectance"]):
        node.attrs[name] = ATTRIBUTES[name]
    cube = open_cube(tmp_path / "s.zarr")
    np.testing.assert_array_equal(read_all(cube), read_all(before))
    assert cube.fields["map info"] == before.fields["map info"] and cube.nodata == -9999


def test_scales_of_each_band_and_odd_fills(tmp_path):
    root = zarr.create_group(tmp_path / "s.zarr")
    about = {"scale_factor": [1.0, 2.0, 3.0], "add_offset": [0, 0, 1], "_FillValue": None, "missing_value": -1}
    array = root.create_array("c", shape=(4, 5, 3), dtype="int16", dimension_names=["y", "x", "band"], attributes=about)
    array[...] = 1
    cube = open_cube(tmp_path / "s.zarr")
    assert read_all(cube)[0, 0].tolist() == [1.0, 2.0, 4.0] and cube.nodata == -1
    array.attrs["scale_factor"] = [1.0, 2.0]
    refused(unmix.CubeError, "no finite number", open_cube, tmp_path / "s.zarr")


def test_damaged_neighbours_and_odd_files_are_left_out(tmp_path):
    """A sibling that is no array, a pipe, links that lead nowhere and in a circle; chunks behind a link count."""
    xarray_v3(tmp_path / "s.zarr", SCENE)
    folder = tmp_path / "s.zarr"
    (folder / "bad").mkdir()
    (folder / "bad/zarr.json").write_text("{")
    os.mkfifo(folder / "pipe")
    (folder / "nowhere").symlink_to("none")
    (folder / "circle").symlink_to(folder)
    (folder / "reflectance/c").rename(folder / "chunks")
    (folder / "reflectance/c").symlink_to(folder / "chunks")
    from unmix.io.identity import Watch

    watch = Watch(open_cube(folder))
    assert watch.scene.problems == [] and watch.changed() is None
    next(path for path in (folder / "chunks").rglob("*") if path.is_file()).write_bytes(b"other")
    assert watch.changed() == folder


def test_a_folder_of_chunks_that_is_a_link_out_of_the_store(tmp_path):
    """All files that are opened for a store lie below it, links followed: the chunks may be a private file of the reader's."""
    xarray_v3(tmp_path / "s.zarr", SCENE)
    (tmp_path / "s.zarr/reflectance/c").rename(tmp_path / "chunks")
    (tmp_path / "s.zarr/reflectance/c").symlink_to(tmp_path / "chunks")
    refused(unmix.CubeError, "link out of the store", lambda: read_all(open_cube(tmp_path / "s.zarr")))


def test_outputs_within_the_store_are_refused(tmp_path):
    xarray_v3(tmp_path / "s.zarr", SCENE)
    library = write_csv(tmp_path / "e.csv", E, SCENE.waves)
    for out in (tmp_path / "s.zarr", tmp_path / "s.zarr/reflectance"):
        with pytest.raises(unmix.MethodError, match="lies in"):
            unmix.run(tmp_path / "s.zarr", endmembers=library, out_dir=out, device="cpu")


def test_a_folder_in_an_archive(tmp_path):
    xarray_v3(tmp_path / "s.zarr", SCENE)
    shutil.make_archive(str(tmp_path / "t.zarr"), "zip", tmp_path, "s.zarr")
    np.testing.assert_array_equal(
        read_all(open_cube(tmp_path / "t.zarr.zip")), read_all(open_cube(tmp_path / "s.zarr"))
    )
    np.savez(tmp_path / "a.npz", a=np.ones(3))
    refused(unmix.CubeError, "is a ZIP archive without a Zarr store in it", open_cube, tmp_path / "a.npz")


def test_masks_of_one_plane(tmp_path):
    xarray_v3(tmp_path / "s.zarr", SCENE)
    flag = zarr.create_group(tmp_path / "m.zarr").create_array(
        "good", shape=(40, 19), dtype=bool, dimension_names=["y", "x"]
    )
    flag[...] = np.broadcast_to(np.arange(19) < 10, (40, 19))
    library = write_csv(tmp_path / "e.csv", E, SCENE.waves)
    report = unmix.run(tmp_path / "s.zarr", endmembers=library, mask=str(tmp_path / "m.zarr"), device="cpu")
    assert report["pixels"]["solved"] == 400 - SCENE.fill[:, :10].sum()


BROKEN = {
    "metadata": lambda folder: (folder / "reflectance/zarr.json").write_text("{"),
    "no metadata": lambda folder: (folder / "zarr.json").unlink(),
    "chunk": lambda folder: next((folder / "reflectance/c").rglob("0/0/0")).write_bytes(b"nonsense"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_damage_is_one_clear_error(tmp_path, how):
    xarray_v3(tmp_path / "s.zarr", SCENE)
    BROKEN[how](tmp_path / "s.zarr")
    library = write_csv(tmp_path / "e.csv", E, SCENE.waves)
    refused(unmix.CubeError, r"s\.zarr: ", unmix.run, tmp_path / "s.zarr", endmembers=library, device="cpu")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.csv", "s.zarr"]


def test_missing_chunks_are_said(tmp_path, caplog):
    """Where the value that stands for them is data; where it is that of no data they are masked."""
    values = np.ascontiguousarray(SCENE.Y, np.float32)
    for blank in (0.0, -9999.0):
        folder = tmp_path / f"{blank:g}.zarr"
        array = zarr.create_array(
            folder,
            shape=values.shape,
            dtype="float32",
            chunks=(8, 19, 24),
            fill_value=blank,
            attributes={"_FillValue": -9999.0},
        )
        array[...] = values
        shutil.rmtree(folder / "c/1")
        problems = open_cube(folder, "/:yxb").problems
        assert problems == [] if blank else "1 of 5 chunks of / are not there, and count as 0" in problems[0]


def test_a_store_that_changes_is_noticed(tmp_path):
    """While it is read, by every file in it; afterwards, by its digest."""
    from unmix.io.identity import Watch

    geozarr(tmp_path / "s.zarr", SCENE, shards=(24, 16, 32))
    watch = Watch(open_cube(tmp_path / "s.zarr"))
    watch.check()
    before = watch.identity
    array = zarr.open_group(tmp_path / "s.zarr")["r30m/data"]
    array[:, 39, 18] = 7
    refused(unmix.CubeError, "changed while it was read", watch.check)
    assert Watch(open_cube(tmp_path / "s.zarr")).identity != before
    shutil.copytree(tmp_path / "s.zarr", tmp_path / "other/s.zarr")
    assert Watch(open_cube(tmp_path / "other/s.zarr")).identity == Watch(open_cube(tmp_path / "s.zarr")).identity


@pytest.mark.parametrize("name", rest_slow(["xarray v2", "GeoZarr", "EOPF"], "xarray v2"))
def test_a_store_on_a_server(tmp_path, name):
    """By HTTP, where nothing can be listed: with consolidated metadata, or the array's name."""
    write, file = STORES[name]
    (tmp_path / "archive").mkdir()
    write(tmp_path / "archive" / file, SCENE)
    if name == "EOPF":
        zarr.consolidate_metadata(tmp_path / "archive" / file)
    library = write_csv(tmp_path / "e.csv", E, SCENE.waves)
    how = {"dataset": "/r30m/data"} if name == "GeoZarr" else {}
    unmix.run(tmp_path / "archive" / file, endmembers=library, out_dir=tmp_path / "here", device="cpu", **how)
    with serving(tmp_path / "archive") as server:
        url = f"{server.url}/{file}"
        if name == "GeoZarr":
            with pytest.raises(unmix.CubeError, match=r"does not list .* name the array with `dataset`"):
                unmix.run(url, endmembers=library, out_dir=tmp_path / "there", device="cpu")
        report = unmix.run(url, endmembers=library, out_dir=tmp_path / "there", device="cpu", **how)
        assert report["identity"]["data"]["bytes"] > 0 and len(report["identity"]["data"]["etag"]) == 16
        assert verify(tmp_path / "there/s", cube=url).faults == []
        from unmix.io.identity import Watch

        watch = Watch(open_cube(url, how.get("dataset")))
        assert watch.changed() is None
        watched = [tmp_path / "archive" / file / name for name in watch.scene.path.objects if name[-1].isdigit()]
        chunk = watched[len(watched) // 2]
        chunk.write_bytes(chunk.read_bytes() + b"x")
        assert watch.changed() is not None
        refused(unmix.CubeError, "no such Zarr store", open_cube, f"{server.url}/none.zarr")
    for part in ("abundance.img", "rmse.img", "abundance.hdr"):
        here, there = ((tmp_path / place / f"s_{part}").read_bytes() for place in ("here", "there"))
        assert part.endswith("hdr") or here == there


def test_our_maps_open_elsewhere(tmp_path, finished):  # noqa: F811
    """By xarray and zarr: values, names, place, nodata; a map in steps is scaled."""
    finished("envi")
    for step, words in (("whole", {}), ("steps", {"quantize": 1e-4})):
        finished("zarr", out_dir=tmp_path / step, **words)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a user's first try ends without a word
            found = xarray.open_zarr(tmp_path / step / "s_abundance.zarr", chunks=None)
        plain = np.fromfile(tmp_path / "envi/s_abundance.img", np.float32).reshape(40, 3, 19).transpose(1, 0, 2)
        expected = np.where(plain == -9999, np.nan, plain)
        np.testing.assert_allclose(found.abundance, expected, atol=6e-5 if words else 0)
        assert found.band_name.values.tolist() == ["em 1", "em 2", "em 3"] and found.abundance.attrs["units"] == "1"
        assert found.x[0] == 257015 and found.y[1] - found.y[0] == -30
        assert "UTM zone 11N" in found.spatial_ref.attrs["crs_wkt"]
        group = zarr.open_group(tmp_path / step / "s_abundance.zarr", mode="r")
        assert group.metadata.consolidated_metadata is not None
        assert verify(tmp_path / step / "s", everything=True).faults == []
        again = unmix.read(tmp_path / step / "s")
        np.testing.assert_allclose(
            again.abundance.transpose("endmember", "y", "x"), expected, atol=6e-5 if words else 0
        )


@pytest.mark.slow
def test_maps_are_the_same_file_each_time(tmp_path, finished):  # noqa: F811
    finished("zarr", out_dir=tmp_path / "one")
    finished("zarr", out_dir=tmp_path / "two")
    files = [path for path in (tmp_path / "one").rglob("*") if path.is_file() and path.name != "s_run.json"]
    assert tmp_path / "one/s_abundance.zarr/zarr.json" in files
    for path in files:
        assert path.read_bytes() == (tmp_path / "two" / path.relative_to(tmp_path / "one")).read_bytes()


@pytest.mark.slow
def test_a_folder_of_a_map_is_replaced_whole(tmp_path, finished, monkeypatch):  # noqa: F811
    """Only one of ours, and only where the user allows it; a run that was stopped while it renamed goes on from there."""
    finished("zarr", out_dir=tmp_path / "o")
    store = tmp_path / "o/s_abundance.zarr"
    (store / "stray").write_text("of the user")
    refused(unmix.OutputError, "exist", finished, "zarr", out_dir=tmp_path / "o")
    assert "s_abundance.zarr: is not what the run wrote" in " ".join(verify(tmp_path / "o/s").faults)
    finished("zarr", out_dir=tmp_path / "o", overwrite=True)
    assert not (store / "stray").exists() and verify(tmp_path / "o/s").faults == []
    theirs = tmp_path / "p/s_abundance.zarr"
    theirs.mkdir(parents=True)
    (theirs / "zarr.json").write_text('{"attributes": {"title": "of somebody else"}}')
    refused(unmix.OutputError, "unmix did not write it", finished, "zarr", out_dir=tmp_path / "p", overwrite=True)
    give, given = output_set.give_name, []

    def stop(name, final, folder):
        if len(given) == 1:
            raise KeyboardInterrupt
        given.append(name)
        give(name, final, folder)

    monkeypatch.setattr(output_set, "give_name", stop)
    refused(KeyboardInterrupt, None, finished, "zarr", out_dir=tmp_path / "o", overwrite=True)
    monkeypatch.undo()
    assert not (tmp_path / "o/s_run.json").exists()
    finished("zarr", out_dir=tmp_path / "o")
    assert verify(tmp_path / "o/s").faults == [] and not list((tmp_path / "o").glob("*.part"))


def test_a_folder_is_not_uploaded(tmp_path, finished):  # noqa: F811
    refused(unmix.MethodError, "use cog or netcdf", finished, "zarr", out_dir="s3://maps/x")


@pytest.mark.slow
def test_commands_read_a_store_and_write_one(tmp_path):
    """Those that take a scene or a map: info, check, count, endmembers, export, compare, report, stac, overwriting."""
    geozarr(tmp_path / "s.zarr", SCENE)
    envi(tmp_path / "p")
    library = write_csv(tmp_path / "e.csv", E, SCENE.waves)
    assert json.loads(command("info", tmp_path / "s.zarr", "--json")[0])["format"] == "Zarr"
    command("check", tmp_path / "s.zarr", "-e", library)
    assert command("count", tmp_path / "s.zarr")[0].strip().isdigit()
    command("endmembers", tmp_path / "s.zarr", "-n", 3, "--extract", "vca", "-o", tmp_path / "found")
    run = ["run", tmp_path / "s.zarr", "-e", library, "-f", "zarr", "--device", "cpu", "-o", tmp_path / "o"]
    command(*run)
    command(*run, "--overwrite")
    command("report", tmp_path / "o/s", "--overwrite")
    command("stac", tmp_path / "o/s", "--time", "2026-07-01T10:00:00Z")
    command("run", tmp_path / "p.hdr", "-e", library, "--device", "cpu", "-o", tmp_path / "q")
    command("export", tmp_path / "q/p", "-f", "zarr", "-o", tmp_path / "z")
    assert {path.name for path in (tmp_path / "z").iterdir()} >= {"p_abundance.zarr", "p_rmse.zarr"}
    command("compare", tmp_path / "o/s", tmp_path / "q/p")
    command("compare", tmp_path / "o/s_abundance.zarr", tmp_path / "q/p_abundance.hdr")


def test_without_zarr_the_extra_is_named(tmp_path, monkeypatch):
    import sys

    Path(tmp_path / "s.zarr").mkdir()
    (tmp_path / "s.zarr/zarr.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "zarr", None)
    refused(unmix.CubeError, r"pip install 'unmix\[zarr\]'", open_cube, tmp_path / "s.zarr")
