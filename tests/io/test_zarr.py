"""Zarr stores, as zarr and xarray write them: the same bytes as from ENVI, here and on a server; and our maps, read by both."""

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import write_csv
from object_server import serving
from test_cli import unmix as command
from test_formats import SCENE, E, answers, envi, finished  # noqa: F401 - fixtures

import unmix
from unmix.commands.verify import verify
from unmix.io import bytes_per_line, open_cube

zarr, xarray = pytest.importorskip("zarr"), pytest.importorskip("xarray")
from stores import STORES, dataset, geozarr, xarray_v3  # noqa: E402

STORED = {"floats": "float32"}  # the type of `answers`; others are int16 or uint16


def read_all(cube) -> np.ndarray:
    """The values of a cube, scaled, (lines, samples, bands)."""
    raw = cube.read(slice(0, cube.lines), np.empty(cube.lines * bytes_per_line(cube), np.uint8))
    values = raw.transpose({"bip": (0, 1, 2), "bil": (0, 2, 1), "bsq": (1, 2, 0)}[cube.interleave]).astype(float)
    return values * (1.0 if cube.gain is None else cube.gain) + (0.0 if cube.offset is None else cube.offset)


@pytest.mark.parametrize("name", STORES)
def test_the_same_maps_from_every_store(tmp_path, answers, name):  # noqa: F811
    write, file = STORES[name]
    write(tmp_path / file, SCENE)
    library = write_csv(tmp_path / "e.csv", E, SCENE.waves)
    how = {"scale": 10000, "nodata": 0} if name == "OME-Zarr" else {}
    report = unmix.run(tmp_path / file, method="fcls", endmembers=library, device="cpu", **how)
    assert report["certified"] and report["pixels"]["masked"] == 2
    found = np.frombuffer((tmp_path / "s_abundance.img").read_bytes(), np.float32)
    best = np.frombuffer(answers["float64"], np.float32)
    np.testing.assert_allclose(found, best, atol=1e-5)
    if name.startswith("xarray"):
        assert (tmp_path / "s_abundance.img").read_bytes() == answers["int16"]
    assert verify(tmp_path / "s").faults == []
    text = (tmp_path / "s_abundance.hdr").read_text()
    assert name == "OME-Zarr" or ("257000" in text and "32611" in text and "UTM" in text)


@pytest.mark.parametrize("name", STORES)
def test_wavelengths_and_widths(tmp_path, name):
    write, file = STORES[name]
    write(tmp_path / file, SCENE)
    cube = open_cube(tmp_path / file)
    assert (cube.stem, cube.format, cube.lines, cube.samples, cube.bands) == ("s", "Zarr", *SCENE.Y.shape)
    np.testing.assert_allclose(cube.wavelengths, SCENE.waves, rtol=1e-5)
    assert name == "OME-Zarr" or np.allclose(cube.fwhm, SCENE.fwhm)
    assert cube.problems == []


@pytest.mark.parametrize("axes", ["yxb", "ybx", "byx", "xyb", "xby", "bxy"])
@pytest.mark.parametrize("together", [0, 2**30])
def test_axes_in_any_order(tmp_path, monkeypatch, axes, together):
    """Without names, and with chunks that hold many lines, which are inflated once."""
    monkeypatch.setattr("unmix.io.formats.zarr.cube.MOST_TOGETHER", together)
    monkeypatch.setattr("unmix.io.formats.zarr.cube.MOST_OF_A_STRIP", 4000)
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
    few = cube.read(slice(5, 17), np.empty(12 * bytes_per_line(cube), np.uint8))
    np.testing.assert_array_equal(np.sort(few, axis=None), np.sort(SCENE.Y[5:17], axis=None))
    with pytest.raises(unmix.MethodError, match="the axes must be one of"):
        open_cube(tmp_path / "s.zarr", "/a/c:yyb")
    np.testing.assert_array_equal(read_all(open_cube(tmp_path / "s.zarr/a", f"c:{axes}")), SCENE.Y)


def test_several_cubes_are_listed(tmp_path):
    whole = dataset(SCENE)
    whole.assign(radiance=whole.reflectance * 2).to_zarr(tmp_path / "s.zarr", consolidated=False)
    with pytest.raises(unmix.CubeError, match=r"name its cube with `dataset`.*/radiance \(40, 19, 24\), /reflectance"):
        open_cube(tmp_path / "s.zarr")
    np.testing.assert_array_equal(
        read_all(open_cube(tmp_path / "s.zarr", "/radiance"))[~SCENE.fill], 2 * SCENE.Y[~SCENE.fill]
    )
    with pytest.raises(unmix.CubeError, match=r"has no array or group '/no'; there are: /radiance"):
        open_cube(tmp_path / "s.zarr", "/no")
    with pytest.raises(unmix.CubeError, match="there are: none"):
        zarr.create_group(tmp_path / "empty.zarr")
        open_cube(tmp_path / "empty.zarr")


def test_what_could_run_code_is_refused(tmp_path):
    """A filter of pickle, which would run what a chunk says as soon as it is decoded."""
    folder, trace = tmp_path / "s.zarr", tmp_path / "trace"

    class Planted:
        def __reduce__(self):
            return (open, (str(trace), "w"))

    folder.mkdir()
    about = {"zarr_format": 2, "shape": [4, 5, 6], "chunks": [4, 5, 6], "dtype": "<f8", "compressor": None, "fill_value": 0,
             "order": "C", "filters": [{"id": "pickle", "protocol": 4}]}  # fmt: skip
    (folder / ".zarray").write_text(json.dumps(about))
    (folder / "0.0.0").write_bytes(pickle.dumps(Planted()))
    with pytest.raises(unmix.CubeError, match="pickle"):
        open_cube(folder, "/:yxb")
    assert not trace.exists()


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
    with pytest.raises(unmix.CubeError, match=r"s\.zarr: "):
        unmix.run(tmp_path / "s.zarr", endmembers=library, device="cpu")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.csv", "s.zarr"]


def test_missing_chunks_are_said(tmp_path, caplog):
    """Where the value that stands for them is data; where it is that of no data they are masked."""
    values = np.ascontiguousarray(SCENE.Y, np.float32)
    for blank in (0.0, -9999.0):
        folder = tmp_path / f"{blank:g}.zarr"
        array = zarr.create_array(
            folder, shape=values.shape, dtype="float32", chunks=(8, 19, 24), fill_value=blank, attributes={"_FillValue": -9999.0}
        )  # fmt: skip
        array[...] = values
        shutil.rmtree(folder / "c/1")
        problems = open_cube(folder, "/:yxb").problems
        assert problems == [] if blank else "1 of 5 chunks of / are not there, and count as 0.0" in problems[0]


def test_a_store_that_changes_is_noticed(tmp_path):
    """While it is read, by every file in it; afterwards, by its digest."""
    from unmix.io.identity import Watch

    geozarr(tmp_path / "s.zarr", SCENE, shards=(24, 16, 32))
    watch = Watch(open_cube(tmp_path / "s.zarr"))
    watch.check()
    before = watch.identity
    array = zarr.open_group(tmp_path / "s.zarr")["r30m/data"]
    array[:, 39, 18] = 7
    with pytest.raises(unmix.CubeError, match="changed while it was read"):
        watch.check()
    assert Watch(open_cube(tmp_path / "s.zarr")).identity != before
    shutil.copytree(tmp_path / "s.zarr", tmp_path / "other/s.zarr")
    assert Watch(open_cube(tmp_path / "other/s.zarr")).identity == Watch(open_cube(tmp_path / "s.zarr")).identity


@pytest.mark.parametrize("name", ["xarray v2", "GeoZarr", "EOPF"])
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
        assert verify(tmp_path / "there/s").faults == []
        with pytest.raises(unmix.CubeError, match="no such Zarr store"):
            open_cube(f"{server.url}/none.zarr")
    for part in ("abundance.img", "rmse.img", "abundance.hdr"):
        here, there = ((tmp_path / place / f"s_{part}").read_bytes() for place in ("here", "there"))
        assert part.endswith("hdr") or here == there


def test_our_maps_open_elsewhere(tmp_path, finished):  # noqa: F811
    """By xarray and zarr: values, names, place, nodata; a map in steps is scaled."""
    finished("envi")
    for step, words in (("whole", {}), ("steps", {"quantize": 1e-4})):
        finished("zarr", out_dir=tmp_path / step, **words)
        with zarr.storage.ZipStore(tmp_path / step / "s_abundance.zarr.zip", read_only=True) as store:
            found = xarray.open_zarr(store, consolidated=False, chunks=None)
            plain = np.fromfile(tmp_path / "envi/s_abundance.img", np.float32).reshape(40, 3, 19).transpose(1, 0, 2)
            expected = np.where(plain == -9999, np.nan, plain)
            np.testing.assert_allclose(found.abundance, expected, atol=6e-5 if words else 0)
            assert found.band_name.values.tolist() == ["em 1", "em 2", "em 3"] and found.abundance.attrs["units"] == "1"
            assert (
                found.x[0] == 257015
                and found.y[1] - found.y[0] == -30
                and "UTM zone 11N" in found.spatial_ref.attrs["crs_wkt"]
            )
        assert verify(tmp_path / step / "s", everything=True).faults == []
        again = unmix.read(tmp_path / step / "s")
        np.testing.assert_allclose(
            again.abundance.transpose("endmember", "y", "x"), expected, atol=6e-5 if words else 0
        )


def test_maps_are_the_same_file_each_time(tmp_path, finished):  # noqa: F811
    finished("zarr", out_dir=tmp_path / "one")
    finished("zarr", out_dir=tmp_path / "two")
    for path in (tmp_path / "one").glob("*.zip"):
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_commands_read_a_store_and_write_one(tmp_path):
    """Those that take a scene or a map: info, check, count, endmembers, export, compare, report, stac, overwriting."""
    geozarr(tmp_path / "s.zarr", SCENE)
    envi(tmp_path / "p")
    library = write_csv(tmp_path / "e.csv", E, SCENE.waves)
    about = json.loads(command("info", tmp_path / "s.zarr", "--json")[0])
    assert about["format"] == "Zarr"
    command("check", tmp_path / "s.zarr", "-e", library)
    assert command("count", tmp_path / "s.zarr")[0].strip().isdigit()
    command("endmembers", tmp_path / "s.zarr", "-n", 3, "-o", tmp_path / "found")
    run = ["run", tmp_path / "s.zarr", "-e", library, "-f", "zarr", "--device", "cpu", "-o", tmp_path / "o"]
    command(*run)
    command(*run, "--overwrite")
    command("report", tmp_path / "o/s", "--overwrite")
    command("stac", tmp_path / "o/s", "--time", "2026-07-01T10:00:00Z")
    command("run", tmp_path / "p.hdr", "-e", library, "--device", "cpu", "-o", tmp_path / "q")
    command("export", tmp_path / "q/p", "-f", "zarr", "-o", tmp_path / "z")
    assert {path.name for path in (tmp_path / "z").iterdir()} >= {"p_abundance.zarr.zip", "p_rmse.zarr.zip"}
    command("compare", tmp_path / "o/s", tmp_path / "q/p")
    command("compare", tmp_path / "o/s_abundance.zarr.zip", tmp_path / "q/p_abundance.hdr")


def test_without_zarr_the_extra_is_named(tmp_path, monkeypatch):
    import sys

    Path(tmp_path / "s.zarr").mkdir()
    (tmp_path / "s.zarr/zarr.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(unmix.CubeError, match=r"pip install 'unmix\[zarr\]'"):
        open_cube(tmp_path / "s.zarr")
