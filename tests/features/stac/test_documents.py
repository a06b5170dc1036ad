"""Scenes that STAC items name: the values, wavelengths, scale and place of a product's own files, from a disk and from a server."""

import contextlib
import io
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import rasterio
from conftest import falsify_record, read_values, refused, write_csv, write_cube
from object_server import serving
from products import truth
from stac_items import FILL, FORMS, NAMED, OFFSET, SCALE, sentinel, stored_of, tiff, written
from test_cli import unmix as command
from unmix_cli.main import cli

import unmix
from unmix.errors import CubeError, MethodError
from unmix.features.stac.documents import listed
from unmix.features.zonal.failed import rows_of_failed
from unmix.io.remote import document_of, leads_elsewhere, located
from unmix.scene import open_scene

pytest.importorskip("obstore")
HOW = {"count": 3, "extract": "vca", "method": "fcls", "device": "cpu", "browse": False}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "there").mkdir()
    return tmp_path / "there"


@pytest.mark.parametrize("served", [False, True], ids=["disk", "server"])
@pytest.mark.parametrize("form", FORMS)
def test_an_item_is_its_scene(folder: Path, form: str, served: bool) -> None:
    """Values in the unit, wavelengths in nm, fill, place and time, as the files' writer meant them."""
    scene = truth(lines=20, samples=18, bands=9)
    item = FORMS[form](folder, scene).name + NAMED.get(form, "")
    with serving(folder, latency=0.03) as server:
        opened = open_scene(f"{server.url}/{item}" if served else folder / item)
        cube, used = opened.cube, slice(3, None) if form == "sentinel" else slice(None)
        waves, values = scene.waves[used], scene.Y[..., used]
        np.testing.assert_allclose(cube.wavelengths, waves, rtol=1e-6)
        np.testing.assert_allclose(cube.fwhm, scene.fwhm[used], rtol=1e-6)
        raw = cube.read(slice(0, 20), np.empty(10**6, np.uint8))
        masked = opened.missing(raw).reshape(20, 18)
        np.testing.assert_array_equal(masked, scene.fill)
        found = opened.spectra(raw).reshape(20, 18, -1)
        bands = opened.bands.index  # EMIT has one that is not good
        np.testing.assert_allclose(found[~masked], values[~masked][:, bands], atol=1e-7)
        assert cube.fields["acquisition time"] == "2026-05-04T10:11:12Z"
        assert cube.stem.startswith(item.partition(".json")[0])
        assert form not in ("wyvern", "sentinel") or "UTM" in cube.fields["map info"]
    own = folder.parent / "own.txt"  # the reader's file lies where it likes
    own.write_text("\n".join(map(str, cube.wavelengths + 1)))
    np.testing.assert_allclose(unmix.open_cube(folder / item, wavelengths=str(own)).wavelengths, cube.wavelengths + 1)


def test_a_run_of_an_item_is_that_of_its_file(folder: Path, tmp_path: Path) -> None:
    """The same maps as of an ENVI cube that says all itself; verified, skipped the second time, and repeated from its record."""
    scene = truth(lines=20, samples=18, bands=9)
    item = FORMS["wyvern"](folder, scene)
    listed = lambda values: "{" + ", ".join(map(repr, map(float, values))) + "}"  # noqa: E731
    write_cube(
        tmp_path / "plain.hdr",
        stored_of(scene),
        wavelength=listed(scene.waves),
        wavelength_units="Nanometers",
        fwhm=listed(scene.fwhm),
        data_ignore_value=FILL,
        data_gain_values=listed([SCALE] * 9),
        data_offset_values=listed([OFFSET] * 9),
    )
    unmix.run(tmp_path / "plain.hdr", out_dir=tmp_path / "plain", **HOW)
    expected = read_values(unmix.open_cube(tmp_path / "plain/plain_abundance.hdr"))
    with serving(folder, latency=0.03) as server:
        for name, out in ((item, "a"), (f"{server.url}/{item.name}", "b")):
            report = unmix.run(name, out_dir=tmp_path / out, **HOW)
            stem = tmp_path / out / "wyvern_dragonette-001_X"
            np.testing.assert_array_equal(read_values(unmix.open_cube(f"{stem}_abundance.hdr")), expected)
            assert report["input"]["path"] == str(name) and report["pixels"]["masked"] == 2
            assert unmix.run(name, out_dir=tmp_path / out, **HOW, skip_existing=True)["skipped"]
            count = len(server.requests)
            said = command("verify", stem, code=3)[1]
            assert "not asked because of a record" in said and len(server.requests) == count
            assert "unmixed again" in command("verify", stem, "--cube", name)[0]
            assert len(command("report", stem, "--cube", name)[1].splitlines()) <= 2
            made = json.loads(unmix.stac(stem).read_text())
            assert made["id"] == f"{stem.name}_abundance" != json.loads(item.read_text())["id"]
            assert [(link["rel"], link["href"]) for link in made["links"]] == [
                ("derived_from", name if isinstance(name, str) else os.path.relpath(name, stem.parent))
            ]
            assert made["properties"]["eo:cloud_cover"] == 3.0
            assert {row["cloud_cover"] for row in unmix.zonal(stem)} == {"3.0"}
    (out, _) = command("stac", tmp_path / "a", "--overwrite")
    assert out.splitlines() == [str(tmp_path / "a/wyvern_dragonette-001_X_stac.json")]


def test_sentinel_s_grids_and_offset(folder: Path) -> None:
    """The largest grid is read, others by name; an offset that is applied already is not applied again, which is said."""
    scene = truth(lines=20, samples=18, bands=9)
    item = sentinel(folder, scene, **{"earthsearch:boa_offset_applied": True})
    cube = unmix.open_cube(item)
    assert (cube.bands, cube.lines, cube.offset.any()) == (6, 20, False)
    assert any("applied already" in problem for problem in cube.problems)
    fine = unmix.open_cube(f"{item}#b2,b0")
    np.testing.assert_allclose(fine.wavelengths, scene.waves[[0, 2]], rtol=1e-6)
    assert (fine.lines, fine.stem) == (40, "S2A_33UXP_20260504_0_L2A_b2_b0")
    refused(CubeError, "differ in grid", unmix.open_cube, f"{item}#b2,b5")
    before = unmix.io.identity.identity_of(cube)
    tiff(folder / "B07.tif", np.ones((20, 18, 1), np.uint16), 20.0, nodata=FILL)
    assert unmix.io.identity.identity_of(unmix.open_cube(item)) != before, (
        "every file is a part of the input's identity"
    )


def test_place_of_the_item(folder: Path) -> None:
    """A file without a place has the item's, where that is of its size."""
    tiff(folder / "x.tif", np.ones((4, 5, 3), np.float32), crs=None, transform=None)
    about = {"href": "x.tif", "roles": ["data"], "proj:shape": [4, 5]}
    about |= {"proj:transform": [30, 0, 4e5, 0, -30, 6e6, 0, 0, 1]}
    cube = unmix.open_cube(written(folder, "x", {"d": about}, "1.1.0", **{"proj:code": "EPSG:32733"}))
    assert cube.fields["map info"].startswith("UTM, 1, 1, 400000, 6000000, 30, 30, 33, South")
    assert "WGS_1984_UTM_Zone_33S" in cube.fields["coordinate system string"]
    cube = unmix.open_cube(written(folder, "x", {"d": about | {"proj:shape": [5, 4]}}, "1.1.0", **{"proj:epsg": 32733}))
    assert "map info" not in cube.fields


@pytest.mark.slow
def test_searches_and_collections(folder: Path, tmp_path: Path) -> None:
    """Each item is a scene of a list: of a search by its id, of a collection by its link; a search's next page is missed aloud."""
    names = []
    for k in range(3):
        tiff(folder / f"data{k}.tif", truth(lines=20, samples=18, bands=9, seed=k).Y.astype(np.float32))
        names.append(written(folder, f"item-{k}", {"data": {"href": f"./data{k}.tif", "roles": ["data"]}}))
    features = [json.loads(name.read_text()) for name in names]
    search = folder / "search.json"
    search.write_text(
        json.dumps({"type": "FeatureCollection", "features": features, "links": [{"rel": "next", "href": "?p=2"}]})
    )
    links = [{"rel": "item", "href": f"./item-{k}.json"} for k in range(3)]
    (folder / "collection.json").write_text(json.dumps({"type": "Collection", "stac_version": "1.1.0", "links": links}))
    words = ("-n", "3", "--extract", "vca", "--method", "fcls", "--device", "cpu", "--no-browse")
    with serving(folder, latency=0.03) as server:
        for number, given in enumerate((search, folder / "collection.json", f"{server.url}/collection.json")):
            said = command("run", "--list", given, *words, "-o", tmp_path / str(number))[1]
            assert sorted(path.name for path in (tmp_path / str(number)).glob("*_run.json")) == [
                f"item-{k}_run.json" for k in range(3)
            ]
            assert ("has more" in said) == (given == search)
    assert unmix.open_cube(f"{search}#item-1").stem == "item-1"
    assert "name one" in command("info", search, code=3)[1]
    assert "name it with --list" in command("info", folder / "collection.json", code=3)[1]
    (folder / "none.json").write_text('{"a": 1}')
    assert "no list of scenes" in command("run", "--list", folder / "none.json", code=2)[1]


def test_items_of_collections_of_a_catalogue(folder: Path) -> None:
    """One that is not there is kept: its run says why."""
    for name, some in (("a", "i0 i1 none"), ("b", "i2")):
        links = [{"rel": "item", "href": f"{one}.json"} for one in some.split()]
        (folder / f"{name}.json").write_text(
            json.dumps({"type": "Collection", "stac_version": "1.0.0", "links": links})
        )
    children = [{"rel": "child", "href": f"{name}.json"} for name in "ab"]
    path = folder / "catalog.json"
    path.write_text(json.dumps({"type": "Catalog", "stac_version": "1.0.0", "links": children}))
    assert [Path(one).stem for one in listed(path, path.read_bytes())] == ["i0", "i1", "none", "i2"]
    said = command("run", "--list", path, "--clouds", "5", code=2)[1]
    assert "is no more" in said and "pystac-client" in said


@pytest.mark.parametrize(
    "href",
    [
        "/etc/passwd",
        "file:///etc/passwd",
        "../secret.tif",
        "link.tif",
        "file:secret/../../secret.tif",
        "%2e%2e/secret.tif",
    ],
)
def test_a_local_item_names_no_file_elsewhere(folder: Path, href: str) -> None:
    """Not by a path, a link or an escape; the message names the item, and nothing of the file is shown."""
    tiff(folder.parent / "secret.tif", np.ones((4, 5, 3), np.float32))
    os.symlink("../secret.tif", folder / "link.tif")
    item = written(folder, "x", {"d": {"href": href, "type": "image/tiff", "roles": ["data"]}})
    refused(CubeError, "outside the folder of x", unmix.open_cube, item)
    with serving(folder) as server:
        if href != "link.tif":
            with pytest.raises((CubeError, MethodError), match=r"a file of this machine|no such file|cannot be opened"):
                unmix.open_cube(f"{server.url}/x.json")


@pytest.mark.parametrize("name", ["x.img", "x.tif", "x.tif.msk"])
def test_files_beside_what_an_item_names_are_no_links_out_of_its_folder(folder: Path, name: str) -> None:
    """docs/security.md: data of a header, masks: each file that is opened for an item lies below its folder, links followed."""
    values = np.ones((4, 5, 3), np.float32)
    write_cube(folder.parent / "x.hdr", values)
    tiff(folder.parent / "x.tif", values)
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=False), rasterio.open(folder.parent / "x.tif", "r+") as file:
        file.write_mask(np.ones((4, 5), bool))
    for file in folder.parent.glob("x.*"):
        shutil.copy(file, folder / file.name)
    item = written(
        folder, "x", {"d": {"href": "x.hdr" if name == "x.img" else "x.tif", "roles": ["data"], "type": "image/tiff"}}
    )
    assert unmix.open_cube(item).bands == 3
    (folder / name).unlink()
    (folder / name).symlink_to(folder.parent / name)
    refused(CubeError, r"outside the folder of x\.json", unmix.open_cube, item)
    (folder / name).unlink()
    shutil.copy(folder.parent / name, folder / f"own {name}")
    (folder / name).symlink_to(f"own {name}")
    assert unmix.open_cube(item).bands == 3


def test_items_of_one_name_or_id_are_refused_before_the_first(folder: Path, tmp_path: Path) -> None:
    """The maps of one were replaced by those of the other, exit code 0: ids with other letters, long ones, accents of two kinds."""
    write_cube(folder / "a.hdr", np.ones((4, 5, 3), np.float32))
    write_csv(folder / "e.csv", np.eye(3))

    def search(*ids: str) -> Path:
        features = [
            {
                "type": "Feature",
                "stac_version": "1.0.0",
                "id": name,
                "collection": str(k),
                "properties": {},
                "assets": {"d": {"href": "a.hdr", "roles": ["data"], "type": "image/tiff"}},
            }
            for k, name in enumerate(ids)
        ]
        (folder / "search.json").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
        return folder / "search.json"

    words = ["-e", folder / "e.csv", "--method", "nnls", "-o", tmp_path / "o", "--overwrite"]
    for ids in (
        ("a/b", "a:b"),
        ("x" * 130 + "1", "x" * 130 + "2"),
        ("q", "q"),
        ("é", "e\u0301"),
        ("b/c.d", "k", "b:c.d"),
    ):
        _, err = command("run", "--list", search(*ids), *words, code=2)
        assert "one stem" in err or "two items with the id" in err
    both = search("a/b", "a:b")
    assert "one stem" in command("run", f"{both}#a/b", f"{both}#a:b", *words, code=2)[1]
    assert "one stem" in command("run", f"{search('a', 'k')}#a", folder / "a.hdr", *words, code=2)[1]
    for name in ("1", "2"):  # items of a catalogue
        (folder / name).mkdir()
        written(folder / name, "item", {"d": {"href": "a.hdr"}})
    links = [{"rel": "item", "href": f"{name}/item.json"} for name in ("1", "2")]
    (folder / "catalog.json").write_text(
        json.dumps({"type": "Catalog", "stac_version": "1.0.0", "id": "c", "links": links})
    )
    assert "one stem" in command("run", "--list", folder / "catalog.json", *words, code=2)[1]
    assert not (tmp_path / "o").exists()
    assert (
        command("run", "--list", search("a.b", "a.c"), *words) and len(list((tmp_path / "o").glob("*_run.json"))) == 2
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read as JSON"),
        ("[" * 10**5, "cannot be read as JSON"),
        ("[1]", "no item"),
        ("{}", "names no scene"),
        ('{"type": "Feature", "stac_version": "1.0.0", "assets": {"a": 5, "b": {"href": 7}}}', "no asset with data"),
        (
            '{"type": "Feature", "stac_version": "1.0.0", "assets": {"a": {"href": "x.json", "type": "image/tiff"}}}',
            "is no scene",
        ),
        ('{"type": "Feature", "stac_version": "1.0.0", "assets": {"a": {"href": "h\\u0000.tif"}}}', "no file"),
        ('{"type": "Feature", "stac_version": "1.0.0", "assets": {"a": {"href": "none.tif"}}}', "no such file"),
    ],
)
def test_documents_that_are_no_items(folder: Path, text: str, message: str) -> None:
    (folder / "x.json").write_text(text)
    assert message in command("info", folder / "x.json", code=3)[1]


@pytest.mark.parametrize(
    "change",
    [
        {"assets": {"a": {"href": "x.tif", "roles": 1.5}}},
        {"assets": {"a": {"href": "http://[::1", "type": "tiff"}}},
        {"links": 5},
        {"assets": {"a": {"href": "x.tif", "eo:bands": [None, 7, {"center_wavelength": [1]}]}}},
        {"properties": [1]},
        {"id": None},
        {"assets": {"a": {"href": "x.tif", "eo:bands": [{"center_wavelength": 1e999}] * 2}}},
        {"assets": {"a": {"href": "x.tif", "proj:shape": [4, 5], "proj:transform": [None] * 6}}},
        {"assets": {"a": {"href": "x.tif", "bands": [{"center_wavelength": 10**400}] * 2}}},
        {"properties": {"eo:cloud_cover": 10**400, "datetime": 10**400}, "bbox": [10**400] * 4},
        {"assets": {"a": {"href": "x.tif", "proj:transform": [10**400] * 6, "raster:bands": [{"scale": 10**400}] * 2}}},
    ],
)
def test_no_item_is_a_traceback(folder: Path, change: dict) -> None:
    """Whatever stands where lists, names and numbers should."""
    tiff(folder / "x.tif", np.ones((4, 5, 2), np.float32))
    item = written(folder, "x", {"a": {"href": "x.tif", "roles": ["data"]}})
    item.write_text(json.dumps(json.loads(item.read_text()) | change))
    with contextlib.suppress(unmix.errors.UnmixError):
        assert unmix.open_cube(item).bands == 2
    assert listed(item, item.read_bytes()) == [str(item)]


def test_wavelengths_in_nm(folder: Path) -> None:
    """Some catalogues write nm, though the extension says µm: by their size, and with a word."""
    tiff(folder / "x.tif", np.ones((4, 5, 2), np.float32))
    bands = [{"center_wavelength": wave, "full_width_half_max": 9.5} for wave in (560.0, 665.0)]
    cube = unmix.open_cube(written(folder, "x", {"d": {"href": "x.tif", "roles": ["data"], "eo:bands": bands}}))
    assert (cube.wavelengths.tolist(), cube.fwhm.tolist()) == ([560.0, 665.0], [9.5, 9.5])
    assert any("taken for nm" in one for one in cube.problems)
    del bands[1]["full_width_half_max"]
    cube = unmix.open_cube(written(folder, "y", {"d": {"href": "x.tif", "roles": ["data"], "eo:bands": bands}}))
    assert cube.fwhm is None and any("an fwhm is missing" in one for one in cube.problems)


def test_strange_numbers_are_no_values(folder: Path) -> None:
    """What an item says wrongly is left out aloud, and never changes what the file says."""
    tiff(folder / "x.tif", np.ones((4, 5, 2), np.float32), nodata=-1)
    bands = [
        {"center_wavelength": "x", "nodata": "nan", "scale": 0, "name": "a{b\n"},
        {"center_wavelength": 1.0, "nodata": 3},
    ]
    cube = unmix.open_cube(written(folder, "x", {"d": {"href": "x.tif", "roles": ["data"], "bands": bands}}))
    assert (cube.wavelengths, cube.nodata, cube.gain) == (None, -1, None)
    assert any("scale" in one for one in cube.problems)
    cube = unmix.open_cube(written(folder, "y", {"d": {"href": "x.tif", "roles": ["data"], "eo:bands": bands * 2}}))
    assert any("describes 4 bands" in one for one in cube.problems)


FORGED = {
    "input": lambda record, item: record["input"].update(path=item),
    "input, an asset": lambda record, item: record["input"].update(path=f"{item}#d"),
    "input beside": lambda record, item: record["input"].update(path="/none.img", name="x.json"),
    "mask": lambda record, item: record["reading"].update(mask=item),
    "mask's band": lambda record, item: record["reading"].update(mask=f"{item}:1"),
    "masks by the folder": lambda record, item: record["reading"].update(mask_out=["{dir}/x.json:1"]),
    "noise": lambda record, item: record["options"].update(noise=item),
}


@pytest.mark.parametrize("name", FORGED)
def test_no_server_is_asked_because_of_a_record(folder: Path, tmp_path: Path, name: str) -> None:
    """Not by way of an item beside it, either, which a stranger may have made as well."""
    scene = truth(lines=20, samples=18, bands=9)
    (tmp_path / "scene").mkdir()
    write_cube(tmp_path / "scene/s.hdr", scene.Y.astype(np.float32))
    noise = write_cube(tmp_path / "noise.hdr", np.full((20, 18, 9), 0.01, np.float32))
    unmix.run(tmp_path / "scene/s.hdr", noise=noise, uncertainty=True, out_dir=tmp_path, **HOW | {"method": "nnls"})
    tiff(folder / "x.tif", scene.Y.astype(np.float32))
    with serving(folder) as server:
        for place in (tmp_path, tmp_path / "scene"):
            item = written(place, "x", {"d": {"href": f"{server.url}/x.tif", "roles": ["data"]}})
        falsify_record(tmp_path / "s", lambda record: FORGED[name](record, str(item)))
        said = []
        stem, config = tmp_path / "s", ("--config", tmp_path / "s_run.json", "-o", tmp_path / "again")
        plot = ("plot", stem, "--at", "1,1", "-o", tmp_path / "p.png")
        for words in (("verify", stem), ("report", stem), plot, ("run", tmp_path / "scene/s.hdr", *config)):
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), contextlib.suppress(SystemExit):
                try:
                    cli.main([str(word) for word in words], prog_name="unmix", standalone_mode=False)
                except unmix.errors.UnmixError as error:
                    said.append(str(error))
            said.append(err.getvalue())
        assert server.requests == []
        assert any("not asked because of a record" in one for one in said) or name == "input beside"


@pytest.mark.slow
def test_workers_read_the_item_too(folder: Path, tmp_path: Path) -> None:
    """A worker of a cluster opens the scene by the name that has all bands, scale and nodata."""
    pytest.importorskip("unmix.features.cluster")
    distributed = pytest.importorskip("distributed")
    item = sentinel(folder, truth(lines=40, samples=38, bands=9))
    how = {key: value for key, value in HOW.items() if key != "browse"}
    unmix.run(item, out_dir=tmp_path / "one", **how)
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0", memory_limit=0) as cluster:
        ((_, report),) = unmix.batch([item], scheduler=cluster.scheduler_address, out_dir=tmp_path / "two", **how)
    assert report["certified"] and report["pixels"]["masked"] == 2
    stem = "S2A_33UXP_20260504_0_L2A_abundance.img"
    assert (tmp_path / "one" / stem).read_bytes() == (tmp_path / "two" / stem).read_bytes()


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("a.json", ("a.json", "")),
        ("d.json/a.json#x", ("d.json/a.json", "x")),
        ("a.JSON#x.json#y/z", ("a.JSON", "x.json#y/z")),
        ("b.geojson#d", ("b.geojson", "d")),
        ("a.json.hdr", None),
        ("a#b.hdr", None),
        ("items/x", None),
        ("a.json#", None),
        ("https://h/a.json#k", ("https://h/a.json", "k")),
        ("https://h/c/items/x", ("https://h/c/items/x", "")),
        ("https://h/c/items/x#a/items/b", ("https://h/c/items/x", "a/items/b")),
        ("https://h/c/items/x/y.tif", None),
        ("s3://bb/a.json#k", ("s3://bb/a.json", "k")),
    ],
)
def test_names_of_documents(name: str, found: tuple[str, str] | None) -> None:
    got = document_of(name)
    assert (None if got is None else (str(got[0]), got[1])) == found
    if got is not None:
        assert document_of(located(name)) == got and leads_elsewhere(f"{name}:1")


def test_items_that_failed_have_rows(tmp_path: Path) -> None:
    """Named as their runs would be, also below other folders, with what item or name tell; reading none is no error."""
    item = written(tmp_path, "a b", {}, **{"eo:cloud_cover": 3})
    (tmp_path / "bad_20230721.json").write_text("{")
    runs = [
        SimpleNamespace(stem=Path(f"maps/{where}/x"), report={"input": {"path": f"{tmp_path}/{where}/x.hdr"}})
        for where in ("in/1", "in/2")
    ]
    scenes = [item, tmp_path / "in/1/y_20230802.hdr", tmp_path / "in/3/z.img", tmp_path / "bad_20230721.json"]
    rows = rows_of_failed(["run", "time", "cloud_cover", "zone"], {str(one): "why" for one in scenes}, runs)
    assert [(row["run"], row["time"], row["cloud_cover"]) for row in rows] == [
        ("maps/a_b", "2026-05-04T10:11:12Z", "3"),
        ("maps/in/1/y_20230802", "2023-08-02", None),
        ("maps/in/3/z", None, None),
        ("maps/bad_20230721", "2023-07-21", None),
    ]
    assert all(row["zone"] is None and row["reason"] == "why" for row in rows)
