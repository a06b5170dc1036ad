"""Points, and layers of a file, name pixels of a library."""

import contextlib
import http.server
import json
import sqlite3
import threading
import zipfile

import numpy as np
import pytest
from test_cli import unmix as command
from test_regions import MAP, built, polygons, scene

import unmix
from unmix.errors import CubeError
from unmix.io.systems import self_contained
from unmix.io.vectors import features_by_gdal, is_plain

__all__ = ["scene"]  # the fixture


def points(folder, places, kind="Point"):
    """GeoJSON in UTM of points in pixels (line, sample), off their centres."""
    assert "500000, 4200000, 30, 30" in MAP
    spots = [[500000.0 + 30 * sample + 7, 4200000.0 - 30 * line - 22] for line, sample in places]
    if kind == "Point":
        shapes = [{"type": "Point", "coordinates": spot} for spot in spots]
    else:
        shapes = [{"type": "MultiPoint", "coordinates": spots}]
    features = [{"type": "Feature", "properties": {"kind": "a"}, "geometry": shape} for shape in shapes]
    crs = {"type": "name", "properties": {"name": "EPSG:32611"}}
    path = folder / "points.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features, "crs": crs}))
    return path


@pytest.mark.parametrize("kind", ["Point", "MultiPoint"])
def test_points(tmp_path, scene, kind):
    pytest.importorskip("rasterio")
    path, values = scene
    places = [(1, 1), (4, 0), (8, 6)]
    library = built(path, "polygons", points(tmp_path, places, kind), column="kind")
    assert list(library.pixels) == places and library.classes == ("a",) * 3
    np.testing.assert_allclose(library.matrix.T, [values[place] for place in places], rtol=1e-15)


def test_layers(tmp_path, scene):
    """A file of two layers says their names, and takes one of them, from the command line, too."""
    pytest.importorskip("rasterio")
    raw = pytest.importorskip("pyogrio").raw
    (tmp_path / "f").mkdir()
    other = tmp_path / "f/both.gpkg"
    own = {"areas": polygons(tmp_path), "plots": points(tmp_path, [(1, 1), (8, 6)])}
    for layer, file in own.items():
        about, _, shapes, values = raw.read(file)
        raw.write(
            other,
            shapes,
            values,
            about["fields"],
            geometry_type=about["geometry_type"],
            crs=about["crs"],
            driver="GPKG",
            layer=layer,
            append=other.exists(),
        )
    with pytest.raises(unmix.CubeError, match=r"has 2 layers; name one as .*both.gpkg:LAYER: areas, plots"):
        built(scene[0], "polygons", other, column="kind")
    with pytest.raises(unmix.CubeError, match="has no layer 'fields'; name one as"):
        built(scene[0], "polygons", f"{other}:fields", column="kind")
    for layer, file in own.items():
        found, same = (built(scene[0], "polygons", one, column="kind") for one in (f"{other}:{layer}", file))
        assert found.pixels == same.pixels and found.classes == same.classes
    command("library", "build", scene[0], tmp_path / "o.csv", "--polygons", f"{other}:plots", "--column", "kind")
    assert len(unmix.load_library(tmp_path / "o.csv").names) == 2
    with pytest.raises(unmix.LibraryError, match="is no file of layers"):
        built(scene[0], "polygons", f"{own['areas']}:areas", column="kind")


VRT = (
    '<OGRVRTDataSource><OGRVRTLayer name="l"><SrcDataSource>{}</SrcDataSource><SrcLayer>secret</SrcLayer>'
    '<GeometryType>wkbPolygon</GeometryType><GeometryField encoding="WKT" field="WKT"/>'
    "<LayerSRS>EPSG:32611</LayerSRS></OGRVRTLayer></OGRVRTDataSource>"
)


def stranger(kind, folder, server):
    """A file of polygons that leads to a private file, or to a server."""
    import sqlite3

    raw = pytest.importorskip("pyogrio").raw
    about, _, shapes, values = raw.read(polygons(folder))
    own = {"geometry_type": about["geometry_type"], "crs": about["crs"]}
    document = json.loads(polygons(folder).read_text())
    shape = "POLYGON((500000 4200000,500210 4200000,500210 4199730,500000 4199730,500000 4200000))"
    (folder / "secret.csv").write_text(f'kind,WKT\nTOPSECRET,"{shape}"\n')
    name, how = kind.split(" ")
    path, driver = folder / name, {"shp": "ESRI Shapefile", "gpkg": "GPKG"}
    ending = name.rpartition(".")[2]
    if how == "vrt":
        text = VRT.format(folder / "secret.csv")
        path.write_text(text if ending != "zip" else "")
        if ending == "zip":
            with zipfile.ZipFile(path, "w") as packed:
                packed.writestr("fields.shp", text)
        return path
    if ending == "json":
        names = {"url": f"{server}/crs", "file": str(folder / "crs.wkt"), "grid": "+proj=utm +zone=11 +nadgrids=/x/y"}
        (folder / "crs.wkt").write_text("EPSG:32611")
        path.write_text(json.dumps(document | {"crs": {"type": "name", "properties": {"name": names[how]}}}))
        return path
    raw.write(path, shapes, values, ["kind"], driver=driver[ending], **own)
    if ending == "gpkg":
        with contextlib.closing(sqlite3.connect(path)) as opened, opened:
            opened.execute(
                "CREATE VIEW v AS SELECT * FROM fields"
                if how == "view"
                else "ALTER TABLE fields ADD COLUMN q TEXT AS (upper('x'))"
            )
    else:
        (folder / "other").mkdir()
        path.with_suffix(".dbf").rename(folder / "other/x.dbf")
        path.with_suffix(".dbf").symlink_to(folder / "other/x.dbf")
    return path


@pytest.fixture
def server():
    """The address of a server, and what it was asked for."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_error(404)

        do_HEAD = do_CONNECT = do_GET

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}", asked
        running.shutdown()


LEADS = {
    "fields.kml vrt": "ogr2ogr makes a GeoPackage",
    "fields.shp vrt": "is no GeoJSON",
    "fields.zip vrt": "has no features",
    "fields.json url": "is not asked for",
    "fields.json file": "is not asked for",
    "fields.json grid": "is not asked for",
    "fields.gpkg view": "has views or tables that are made of others (v)",
    "fields.gpkg function": "made of others (fields)",
    "fields.shp link": "is a link to another folder",
}


@pytest.mark.parametrize("kind", LEADS)
def test_files_of_polygons_lead_nowhere(tmp_path, scene, server, kind):
    """Whoever wrote them chooses neither other files nor servers."""
    path = stranger(kind, tmp_path, server[0])
    words = ("library", "build", scene[0], tmp_path / "o.csv", "--polygons", path)
    _, err = command(*words, "--column", "kind", code=3)
    assert LEADS[kind] in err and len([line for line in err.splitlines() if "error" in line]) == 1
    assert "TOPSECRET" not in err and not (tmp_path / "o.csv").exists() and server[1] == []


def test_packed_polygons(tmp_path, scene):
    """A ZIP with a shapefile in a folder, whose texts of digits stay texts."""
    raw = pytest.importorskip("pyogrio").raw
    file = polygons(tmp_path)
    same = built(scene[0], "polygons", file, column="kind")
    about, _, shapes, _ = raw.read(file)
    how = {"geometry_type": about["geometry_type"], "crs": about["crs"], "driver": "ESRI Shapefile"}
    raw.write(tmp_path / "f.shp", shapes, [np.array(["007", "08"], object)], ["kind"], **how)
    with zipfile.ZipFile(tmp_path / "f.zip", "w") as packed:
        for one in tmp_path.glob("f.*"):
            if one.suffix in (".shp", ".dbf", ".shx", ".prj"):
                packed.write(one, f"deep/{one.name}")
    found = built(scene[0], "polygons", tmp_path / "f.zip", column="kind")
    assert found.pixels == same.pixels and sorted(set(found.classes)) == ["007", "08"]


POINTING = [
    "+proj=tinshift +file=/tmp/f +type=crs",
    "+type=crs +proj=defmodel +model=/tmp/f",
    "+proj=pipeline +step +proj=longlat +nadgrids=@foo+,./fifo.csv",
    "+proj=longlat +nadgrids=/tmp/f",
    "+proj=longlat +nadgrids=~/f",
    "+proj=longlat +geoidgrids=./x",
    "+init=/tmp/x:1",
    'GEOGCS["x",DATUM["y",SPHEROID["z",6378137,298.25],EXTENSION["PROJ4_GRIDS","a],/tmp/f"]],PRIMEM["Greenwich",0]]',
    'BOUNDCRS[SOURCECRS[],ABRIDGEDTRANSFORMATION["x",METHOD["NTv2"],PARAMETERFILE["difference file","/tmp/f"]]]',
    "http://example.org/crs",
    "/etc/crs.wkt",
    "crs.wkt",
]


@pytest.mark.parametrize("system", POINTING)
def test_systems_that_lead_to_files_are_none(system):
    """docs/security.md: GDAL and PROJ never see them; a pipe among these files was waited for."""
    assert self_contained(system) == ""


def test_systems_of_codes_are_kept_in_every_form():
    """Codes of EPSG drawn at random, written by pyproj as WKT of three kinds and as PROJJSON, are read again as the same system."""
    pyproj = pytest.importorskip("pyproj")
    codes = np.random.default_rng(0).choice(np.arange(2000, 33000), 600, replace=False)
    tried = 0
    for code in map(int, codes):
        with contextlib.suppress(pyproj.exceptions.CRSError):
            system = pyproj.CRS.from_epsg(code)
            for text in (f"EPSG:{code}", system.to_wkt(), system.to_wkt("WKT1_GDAL"), system.to_json()):
                assert text is None or self_contained(text) == text.strip()
                tried += 1
    assert tried > 400


def test_a_description_of_a_source_that_begins_as_flatgeobuf(tmp_path):
    """GDAL takes it for a VRT, whatever its first bytes."""
    (tmp_path / "p.fgb").write_bytes(b"fgb\x03 " + VRT.format("/tmp/f").encode())
    with pytest.raises(CubeError, match="a source elsewhere"):
        features_by_gdal(tmp_path / "p.fgb", (tmp_path / "p.fgb").read_bytes(), "", 2**20)


@pytest.mark.parametrize(
    ("sql", "plain"),
    [
        ("CREATE TABLE a (b TEXT)", True),
        ('CREATE TABLE "virtual" (virtual_id TEXT)', True),
        ('CREATE VIRTUAL TABLE "rtree a" USING rtree (id, a, b)', True),
        ('CREATE TABLE a ("sown AS crop" TEXT)', True),
        ("CREATE VIRTUAL TABLE x USING rtree(id, a, b)", True),
        ("CREATE VIRTUAL TABLE x USING VirtualOGR('/tmp/f')", False),
        ("CREATE/**/VIRTUAL/* a */TABLE x USING VirtualOGR('/tmp/f')", False),
        ("create virtual -- rtree\n table x using VirtualShape", False),
    ],
)
def test_virtual_tables_are_no_plain_ones(sql, plain):
    assert is_plain(sql) is plain


def test_what_gdal_warns_of_is_a_line_in_the_log(tmp_path, scene, caplog, recwarn):
    raw = pytest.importorskip("pyogrio").raw
    about, _, shapes, values = raw.read(polygons(tmp_path))
    path = tmp_path / "p.gpkg"
    raw.write(
        path, shapes, values, about["fields"], geometry_type=about["geometry_type"], crs=about["crs"], driver="GPKG"
    )
    with contextlib.closing(sqlite3.connect(path)) as opened:
        opened.execute("CREATE TABLE notes (untyped)")
        opened.commit()
    assert len(built(scene[0], "polygons", path, column="kind").names)
    assert caplog.text.count(f"{path}: GDAL: Field format") == 1 and not recwarn
