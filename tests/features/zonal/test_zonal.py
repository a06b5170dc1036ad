"""Tables by polygon: shares of pixels against polygons that are clipped by hand, sums against plain NumPy."""

import csv
import functools
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import refused, rest_slow, write_csv, write_cube
from test_cli import unmix as command

import unmix
from unmix.errors import say_once
from unmix.features.zonal.tables import add_moments
from unmix.io.export.areas import areas_of_pixels
from unmix.runs.files.finished import without_run

pytest.importorskip("exactextract")
pytest.importorskip("rasterio")
LINES, SAMPLES, SIDE = 13, 17, 30.0
WEST, NORTH = 400_000.0, 5_800_000.0
SPHERE = (
    'GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS 84",6378137,298.257223563]],PRIMEM["Greenwich",0],'
    'UNIT["degree",0.0174532925199433]]'
)
PLACE = {
    "map_info": f"{{UTM, 1, 1, {WEST}, {NORTH}, {SIDE}, {SIDE}, 33, North, WGS-84}}",
    "coordinate_system_string": f'{{PROJCS["UTM33",{SPHERE},PROJECTION["Transverse_Mercator"],PARAMETER["latitude_of_origin",0],'
    'PARAMETER["central_meridian",15],PARAMETER["scale_factor",0.9996],PARAMETER["false_easting",500000],'
    'PARAMETER["false_northing",0],UNIT["metre",1]]}',
}


def clipped(ring, low, high):
    """The part of a ring within a square: its half planes cut it one after the other (Sutherland and Hodgman 1974)."""
    for axis in (0, 1):
        for sign, bound in ((1, low[axis]), (-1, -high[axis])):
            out = []
            for p, q in zip(ring, ring[1:] + ring[:1]):
                a, b = sign * p[axis] - bound, sign * q[axis] - bound
                if a >= 0:
                    out.append(p)
                if a * b < 0:
                    t = a / (a - b)
                    out.append(tuple(p[k] + t * (q[k] - p[k]) for k in (0, 1)))
            ring = out
    return ring


def area(ring):
    return abs(sum(p[0] * q[1] - q[0] * p[1] for p, q in zip(ring, ring[1:] + ring[:1]))) / 2


def shares_by_hand(rings):
    """The share of each pixel that a polygon of rings in samples and lines covers, holes left out."""
    found = np.zeros((LINES, SAMPLES))
    for number, ring in enumerate(rings):
        for i in range(LINES):
            for j in range(SAMPLES):
                inside = clipped(ring, (j, i), (j + 1, i + 1))
                found[i, j] += (1 if number == 0 else -1) * (area(inside) if len(inside) > 2 else 0.0)
    return found


def on_ground(system, corners):
    """The area of a figure of map coordinates on its ellipsoid, m², by geodesics (Karney 2013) between 33 points an edge."""
    pyproj = pytest.importorskip("pyproj")
    known, t = pyproj.CRS.from_user_input(system), np.linspace(0, 1, 33)[:-1, None]
    ring = np.concatenate([p + t * (q - p) for p, q in zip(corners, np.roll(corners, -1, axis=0))])
    degrees = known.geodetic_crs.to_2d()
    places = pyproj.Transformer.from_crs(known.to_2d(), degrees, always_xy=True).transform(*ring.T)
    unit = np.degrees(degrees.axis_info[0].unit_conversion_factor)
    return abs(known.get_geod().polygon_area_perimeter(*(unit * np.array(one) for one in places))[0])


@functools.cache
def ground_of_scene():
    """The area of each pixel of the scene, m²."""
    square = SIDE * np.array([(0, 0), (1, 0), (1, -1), (0, -1)])
    return np.array(
        [[on_ground(32633, square + (WEST + SIDE * j, NORTH - SIDE * i)) for j in range(SAMPLES)] for i in range(LINES)]
    )


def star(random, points, reach):
    """A middle, in samples and lines, and a ring around it without crossings, which may reach beyond the scene."""
    middle = random.uniform((0, 0), (SAMPLES, LINES))
    angles = 2 * np.pi * (np.arange(points) + random.uniform(0, 0.8, points)) / points
    radius = random.uniform(0.2, 1.0, points) * reach
    return middle, middle + np.stack([np.cos(angles), np.sin(angles)], 1) * radius[:, None]


def ring_of(corners):
    return [tuple(map(float, corner)) for corner in corners]


def feature(name, parts):
    """A GeoJSON feature of polygons in samples and lines."""
    place = lambda ring: [[WEST + SIDE * x, NORTH - SIDE * y] for x, y in [*ring, ring[0]]]  # noqa: E731
    shape = {"type": "MultiPolygon", "coordinates": [[place(ring) for ring in rings] for rings in parts]}
    return {"type": "Feature", "properties": {"parcel": name, "of": 1}, "geometry": shape}


def geojson(path, features, system="EPSG:32633"):
    crs = {"crs": {"type": "name", "properties": {"name": system}}} if system else {}
    path.write_text(json.dumps({"type": "FeatureCollection", **crs, "features": features}))
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with deviations and certificates, and a masked corner."""
    folder, random = tmp_path_factory.mktemp("zonal"), np.random.default_rng(5)
    E = random.uniform(0.1, 1.0, (8, 3))
    cube = random.dirichlet(np.ones(3), (LINES, SAMPLES)) @ E.T + 0.01 * random.standard_normal((LINES, SAMPLES, 8))
    cube[:2, :3] = -9999
    write_cube(
        folder / "s.hdr", cube.astype(np.float32), data_ignore_value=-9999, acquisition_time="2026-06-01", **PLACE
    )
    write_csv(folder / "e.csv", E)
    for name, options in {"a": {}, "b": {"normalize": "sum"}}.items():
        unmix.run(
            folder / "s.hdr",
            endmembers=folder / "e.csv",
            method="nnls",
            uncertainty=True,
            certificate=True,
            out_dir=folder / name,
            device="cpu",
            **options,
        )
    return folder


def test_means_are_those_of_plain_numpy(run, tmp_path):
    """60 polygons, some with holes, of two parts, and partly outside; shares by clipping each pixel."""
    random = np.random.default_rng(11)
    parts = []
    for _ in range(60):
        middle, outer = star(random, int(random.integers(4, 12)), random.uniform(0.3, 9))
        hole = [ring_of(middle + 0.4 * (outer - middle))] if random.random() < 0.3 else []
        parts.append([[ring_of(outer), *hole]])
    table = geojson(tmp_path / "p.json", [feature(f"f{n}", one) for n, one in enumerate(parts)])
    rows = unmix.zonal(run / "a/s", table, "parcel", out=tmp_path / "t.csv")
    maps = {name: unmix.open_cube(run / f"a/s_{name}.hdr") for name in ("abundance", "sigma", "rmse", "certificate")}
    values = {}
    for name, cube in maps.items():
        values[name] = np.stack(
            [np.memmap(cube.path, "<f4", "r", shape=(LINES, cube.bands, SAMPLES))[:, b] for b in range(cube.bands)]
        ).astype(float)
    valid, ground = values["rmse"][0] != -9999, ground_of_scene()
    assert len(rows) == 180 and (~valid).sum() == 6
    seen = 0
    for n, one in enumerate(parts):
        shares = shares_by_hand(one[0])
        w, whole = shares * valid, area(one[0][0]) - sum(area(ring) for ring in one[0][1:])
        for b in range(3):
            row = rows[3 * n + b]
            assert row["zone"] == f"f{n}" and row["time"] == "2026-06-01" and row["share_of"] == "abundance"
            assert row["pixels"] == pytest.approx(w.sum(), abs=1e-5)
            assert row["area_m2"] == pytest.approx((ground * w).sum(), rel=1e-5, abs=1e-2)
            assert row["outside"] == pytest.approx(max(0.0, 1 - shares.sum() / whole), abs=1e-4)
            if w.sum() < 1e-3:
                continue
            seen += 1
            a, sigma = values["abundance"][b], values["sigma"][b]
            mean = (w * a).sum() / w.sum()
            assert row["mean"] == pytest.approx(mean, abs=1e-5)
            assert row["deviation"] == pytest.approx(np.sqrt((w * (a - mean) ** 2).sum() / w.sum()), abs=1e-4)
            assert row["nodata"] == pytest.approx(1 - w.sum() / shares.sum(), abs=1e-4)
            known = (sigma != -9999) | (w == 0)
            each = [s / (2 * np.pi) ** 0.5 for s in values["sigma"]]
            near = [np.where(one < 2 * s, e, 0) for one, s, e in zip(values["abundance"], values["sigma"], each)]
            added = (w * np.minimum(each[b], sum(near))).sum() / w.sum()
            expected = np.hypot(np.sqrt(((w * sigma) ** 2).sum()) / w.sum(), added) if known.all() else None
            assert row["sigma"] == (None if expected is None else pytest.approx(expected, rel=1e-3))
            assert row["rmse"] == pytest.approx((w * values["rmse"][0]).sum() / w.sum(), rel=1e-4)
            assert row["unproved"] == 0.0
    assert seen > 130
    written = list(csv.DictReader((tmp_path / "t.csv").open()))
    assert [row["zone"] for row in written] == [row["zone"] for row in rows]
    assert float(written[0]["mean"]) == pytest.approx(rows[0]["mean"])


def test_zones_of_one_name_and_other_systems(run, tmp_path):
    """Overlapping polygons of a name count once; degrees and metres name the same pixels; what a fraction means is said."""
    from rasterio.warp import transform_geom

    one, other = [[(2, 3), (9, 3), (9, 8), (2, 8)]], [[(5, 5), (12, 5), (12, 10), (5, 10)]]
    both = [feature("x", [one]), feature("x", [other])]
    rows = unmix.zonal([run / "a/s", run / "b/s_abundance.img"], geojson(tmp_path / "m.json", both), "parcel")
    assert [row["pixels"] for row in rows] == [pytest.approx(35 + 35 - 12)] * 6
    assert [row["share_of"] for row in rows] == ["abundance"] * 3 + ["area"] * 3
    assert sum(row["mean"] for row in rows[3:]) == pytest.approx(1, abs=1e-5)
    degrees = [{**each, "geometry": transform_geom("EPSG:32633", "OGC:CRS84", each["geometry"])} for each in both]
    again = unmix.zonal(run / "a/s", geojson(tmp_path / "d.json", degrees, None), "parcel")
    assert [row["mean"] for row in again] == [pytest.approx(row["mean"], abs=1e-5) for row in rows[:3]]


@pytest.mark.parametrize("form", ["cog", "netcdf", "zarr"])
def test_maps_of_every_form_and_parts_of_scenes(run, tmp_path, form):
    """The same rows from other files, from a part of the scene that holds the zone, and from a run without a certificate."""
    table = geojson(tmp_path / "p.json", [feature("x", [[[(2, 3), (9.5, 3), (9, 8.2), (2, 8)]]])])
    expected = unmix.zonal(run / "a/s", table, "parcel")
    for name, options in {"form": {"format": form}, "part": {"lines": "3:12", "samples": "2:15"}}.items():
        unmix.run(
            run / "s.hdr", endmembers=run / "e.csv", method="nnls", out_dir=tmp_path / name, device="cpu", **options
        )
        rows = unmix.zonal(tmp_path / name / "s", table, "parcel")
        assert [row["mean"] for row in rows] == pytest.approx([row["mean"] for row in expected])
        assert rows[0]["pixels"] == pytest.approx(37) and rows[0]["sigma"] is None and rows[0]["unproved"] == 0.0
    if hasattr(unmix, "nmf_scene"):
        unmix.nmf_scene(run / "s.hdr", count=3, steps=2, out_dir=tmp_path / "nmf", device="cpu")
        assert unmix.zonal(tmp_path / "nmf/s", table, "parcel")[0]["unproved"] is None


def test_areas_of_degrees(tmp_path):
    """A strip of a meridian from pole to pole has its share of the ellipsoid's surface."""
    place = {
        "map_info": "{Geographic Lat/Lon, 1, 1, 10, 90, 1, 1, WGS-84}",
        "coordinate_system_string": f"{{{SPHERE}}}",
    }
    write_cube(tmp_path / "g.hdr", np.ones((180, 2, 3), np.float32), **place)
    areas = areas_of_pixels(unmix.open_cube(tmp_path / "g.hdr"))(slice(0, 180))[:, 1]
    assert areas.sum() * 360 == pytest.approx(510_065_621_724_089, rel=1e-9)  # m², of WGS 84
    assert areas == pytest.approx(areas[::-1], rel=1e-9) and areas[0] < areas[89]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"column": "name"}, "has no property 'name'"),
        ({"polygons": "nowhere"}, "no polygon is in it"),
        ({"polygons": "points"}, "has no polygons"),
        ({"kind": "mass"}, "wrote no mass"),
        ({"kind": "rmse"}, "has to be abundance"),
        ({"runs": "elsewhere"}, "no finished run"),
        ({"out": "p.json"}, "an output would replace"),
    ],
)
def test_what_cannot_be_tabulated_is_said(run, tmp_path, change, says):
    ring = [[(2.0, 3.0), (9.0, 3.0), (9.0, 8.0)]]
    geojson(tmp_path / "p.json", [feature("x", [ring])])
    geojson(tmp_path / "nowhere", [feature("x", [[[(x + 500, y) for x, y in ring[0]]]])])
    point = {"type": "Point", "coordinates": [WEST, NORTH]}
    geojson(tmp_path / "points", [{"type": "Feature", "properties": {"parcel": 1}, "geometry": point}])
    asked = {"runs": run / "a/s", "polygons": tmp_path / "p.json", "column": "parcel"}
    asked |= {
        name: tmp_path / value if name in ("runs", "polygons", "out") else value for name, value in change.items()
    }
    before = (tmp_path / "p.json").read_bytes()
    refused(unmix.UnmixError, says, unmix.zonal, **asked)
    assert (tmp_path / "p.json").read_bytes() == before


def test_whole_scenes_and_wide_tables(run, tmp_path):
    """Without polygons a scene is one zone: its means are the record's, its hectares those of plain NumPy; wide is the same, turned."""
    rows = unmix.zonal([run / "a/s", run / "b/s"])
    assert [row["zone"] for row in rows] == ["all"] * 6 and [row["time"] for row in rows] == ["2026-06-01"] * 6
    for folder, some in (("a", rows[:3]), ("b", rows[3:])):
        record = json.loads((run / folder / "s_run.json").read_text())
        cube = unmix.open_cube(run / folder / "s_abundance.hdr")
        values = np.memmap(cube.path, "<f4", "r", shape=(LINES, cube.bands, SAMPLES)).astype(float)
        valid, ground = values[:, 0] != -9999, ground_of_scene()
        for b, row in enumerate(some):
            assert row["band"] == record["endmembers"]["names"][b]
            assert row["pixels"] == valid.sum() == record["pixels"]["solved"]
            assert row["mean"] == pytest.approx(values[:, b][valid].mean(), rel=1e-9)
            assert row["deviation"] == pytest.approx(values[:, b][valid].std(), rel=1e-6)
            assert row["hectares"] == pytest.approx((values[:, b] * ground)[valid].sum() / 1e4, rel=1e-6)
            assert row["outside"] == 0 and row["nodata"] == pytest.approx(1 - valid.mean())
    wide = unmix.zonal([run / "a", run / "b/s"], wide=True, out=tmp_path / "w.csv")
    assert [one["run"] for one in wide] == [str(run / "a/s"), str(run / "b/s")]
    for k, row in enumerate(rows):
        one, band = wide[k // 3], row["band"]
        expected = (row["mean"], row["hectares"], row["sigma"])
        assert (one[band], one[f"{band} hectares"], one[f"{band} sigma"]) == expected
    assert next(csv.DictReader((tmp_path / "w.csv").open())).keys() == wide[0].keys()
    table = geojson(tmp_path / "p.json", [feature("x", [[[(2, 3), (9, 3), (9, 8), (2, 8)]]])])
    for row in unmix.zonal(run / "a/s", table, "parcel"):
        assert row["hectares"] == pytest.approx(row["mean"] * row["area_m2"] / 1e4)


def test_a_date_in_a_name_and_folders(tmp_path, monkeypatch):
    """A scene without a time has that of its name; unfinished runs of a folder are named, a folder without any is refused."""
    E = np.random.default_rng(3).uniform(0.1, 1.0, (8, 3))
    names = {"refl_20190703": "2019-07-03", "site_2021-06-20": "2021-06-20", "x_20191332": None, "a120190703": None}
    names |= {"plain": None, "HLS_T10SEG.2021185T1845": "2021-07-04", "PRS_20200427095812": "2020-04-27"}
    for name in names:
        write_cube(tmp_path / f"{name}.hdr", np.random.default_rng(4).dirichlet(np.ones(3), (4, 4)) @ E.T)
        how = {"endmembers": write_csv(tmp_path / "e.csv", E)}
        unmix.run(tmp_path / f"{name}.hdr", out_dir=tmp_path / "out", device="cpu", **how)
    rows = unmix.zonal(tmp_path / "out")
    assert {Path(row["run"]).name: row["time"] for row in rows} == names
    assert all(row["hectares"] is None for row in rows)
    (tmp_path / "none").mkdir()
    refused(unmix.OutputError, "holds no finished run", unmix.zonal, tmp_path / "none")
    with pytest.raises(unmix.MethodError, match=r"`column` is the property with the names of `polygons`"):
        unmix.zonal(tmp_path / "out", column="parcel")
    out, _ = command("zonal", tmp_path / "out", "--wide")
    assert len(out.splitlines()) == 8 and "2019-07-03" in out and "em 1" in out.splitlines()[0]
    (tmp_path / "broken.hdr").write_text("ENVI\nsamples = 4\n")
    scenes = [tmp_path / "plain.hdr", tmp_path / "broken.hdr"]
    command("run", *scenes, "-e", tmp_path / "e.csv", "-o", tmp_path / "o2", "--failed", tmp_path / "f.csv", code=4)
    for wide in ((), ("--wide",)):
        out, _ = command("zonal", tmp_path / "o2", "--failed", tmp_path / "f.csv", "--json", *wide)
        *_, last = json.loads(out) if out.startswith("[") else map(json.loads, out.splitlines())
        assert last.pop("run") == str(tmp_path / "o2/broken") and "has no 'lines'" in last.pop("reason", "")
        assert set(last.values()) == {None}
    plain = {str(tmp_path / "plain.img"): "replaced"}
    assert len(unmix.zonal(tmp_path / "o2", failed=plain)) == 3  # done since
    stale = unmix.zonal(tmp_path / "o2", failed=plain, since=4e9)  # an older run of it
    assert len(stale) == 3 and all(row["reason"] == "replaced" and row["mean"] > 0 for row in stale)
    monkeypatch.chdir(tmp_path / "out")
    assert len(unmix.zonal(".")) == len(rows)


def test_pixels_by_their_centres(run, tmp_path, caplog):
    """As even-odd by hand; whole pixels; zones beyond the scene are named; a zone that is inside has no share outside."""
    random = np.random.default_rng(17)
    stars = [ring_of(star(random, 9, 6.0)[1]) for _ in range(40)]
    stars += [
        [(-9, -9), (-8, -9), (-8, -8)],
        [(2.6, 2.6), (2.9, 2.6), (2.9, 2.9)],
        [(1.2, 1.2), (4.9, 1.2), (4.9, 3.3), (1.2, 3.3)],
    ]
    table = geojson(tmp_path / "p.json", [feature(f"f{n}", [[one]]) for n, one in enumerate(stars)])
    rows = [row for row in unmix.zonal(run / "a/s", table, "parcel", centres=True) if row["band"] == "em 2"]
    cube = unmix.open_cube(run / "a/s_abundance.hdr")
    values = np.memmap(cube.path, "<f4", "r", shape=(LINES, cube.bands, SAMPLES))[:, 1].astype(float)
    sigma = np.memmap(run / "a/s_sigma.img", "<f4", "r", shape=(LINES, 4, SAMPLES))[:, 1].astype(float)
    for row, ring in zip(rows, stars):
        inside = np.zeros((LINES, SAMPLES), bool)
        for i, j in np.ndindex(LINES, SAMPLES):
            for p, q in zip(ring, ring[1:] + ring[:1]):
                if (p[1] > i + 0.5) != (q[1] > i + 0.5):
                    inside[i, j] ^= j + 0.5 < p[0] + (i + 0.5 - p[1]) * (q[0] - p[0]) / (q[1] - p[1])
        inside &= values != -9999
        assert row["pixels"] == inside.sum()
        assert row["mean"] == (pytest.approx(values[inside].mean(), rel=1e-9) if inside.any() else None)
        assert row["pixel_sigma"] == (pytest.approx(sigma[inside].mean(), rel=1e-9) if inside.any() else None)
        assert (row["hectares"] is None) == (not inside.any())
        assert any(x < 0 or x > SAMPLES or y < 0 or y > LINES for x, y in ring) or row["outside"] == 0
    assert rows[-1]["outside"] == 0 and rows[-3]["outside"] == 1
    lacking = [row["zone"] for row in rows if (row["nodata"] or 0) > 0.1]
    assert lacking and f"zones that lack them in over a tenth: {lacking[0]}" in caplog.text
    assert (
        "zones that have no pixel in the scene: " in caplog.text and "zones that lie beyond it in part: " in caplog.text
    )
    assert "zones that hold no pixel's centre: " in caplog.text and "f41" in caplog.text.partition("centre: ")[2]


def test_pixels_are_counted_without_the_rounding_of_shares(run, tmp_path):
    """Of thirds and tenths, which no float32 is; the smallest zones keep what they have."""
    rings = [
        [(x, y), (x + w, y), (x + w, y + 3), (x, y + 3)] for x, y, w in ((1 / 3, 2.1, 2), (3.7, 4.2, 1.1), (2, 2, 1e-7))
    ]
    table = geojson(tmp_path / "p.json", [feature(f"f{n}", [[one]]) for n, one in enumerate(rings)])
    rows = unmix.zonal(run / "b/s", table, "parcel")
    assert [rows[4 * n]["pixels"] for n in range(2)] == [6, 3.3] and 0 < rows[8]["pixels"] < 1e-5


def test_means_of_other_pixels_are_said(tmp_path, caplog):
    """Where a run of a site has values in fewer pixels; not of scenes of other sizes. A date that failed has a row."""
    E = np.random.default_rng(3).uniform(0.1, 1.0, (8, 3))
    library = write_csv(tmp_path / "e.csv", E)
    for name, lines, cloud in (("a_20230101", 6, 0), ("a_20230201", 6, 3), ("b_20230101", 7, 0)):
        Y = np.random.default_rng(4).dirichlet(np.ones(3), (lines, 5)) @ E.T
        Y[:cloud] = -1
        unmix.run(
            write_cube(tmp_path / f"{name}.hdr", Y, data_ignore_value=-1),
            endmembers=library,
            device="cpu",
            out_dir=tmp_path / "o",
        )
    unmix.zonal(tmp_path / "o")
    assert "so of other places: a_20230201" in caplog.text and "b_2023" not in caplog.text
    caplog.clear()
    unmix.zonal([tmp_path / "o/a_20230101", tmp_path / "o/b_20230101"])
    assert not caplog.text
    report = {"input": {"path": str(tmp_path / "s.nc#2023-01-01")}}
    names = [str(tmp_path / f"s.nc#2023-0{month}-01") for month in (1, 2)] + [str(tmp_path / "s.img")]
    assert without_run(names, [report, {"input": {"path": str(tmp_path / "s.hdr")}}]) == names[1:2]


def test_polygons_are_named_by_what_there_is(run, tmp_path, caplog):
    """Without a column by the only text, else by numbers, and it is said; a name in other case; further properties are columns."""
    caplog.set_level("INFO", "unmix")
    square = lambda x, **own: {**feature("", [[[(x, 2), (x + 3, 2), (x + 3, 5), (x, 5)]]]), "properties": own}  # noqa: E731
    files = {
        "only": [square(2, crop="rye"), square(8, crop="oats")],
        "texts": [square(2, a="x", b="u"), square(8, a="y", b="u")],
        "equal": [square(2, a="x", b="u"), square(8, a="y", b="v")],
        "text": [square(2, n=1, Crop="rye"), square(8, n=2, Crop="oats")],
        "none": [square(2), square(8)],
    }
    for name, (column, zones, says) in {
        "only": (None, ["rye", "oats"], "named by 'crop'"),
        "text": (None, ["rye", "oats"], "named by 'Crop'"),
        "equal": (None, ["1", "2"], "numbered from 1; `column` may be a, b"),
        "texts": (None, ["x", "y"], "named by 'a'"),
        "none": (None, ["1", "2"], "numbered from 1"),
    }.items():
        caplog.clear()
        rows = unmix.zonal(run / "a/s", geojson(tmp_path / name, files[name]), column, wide=True)
        assert [row["zone"] for row in rows] == zones and f"{name}: features are {says}" in caplog.text
    assert [row["zone"] for row in unmix.zonal(run / "a/s", tmp_path / "text", "crop", wide=True)] == ["rye", "oats"]
    words = ("zonal", run / "a/s", "--polygons", tmp_path / "texts", "--column", "b", "--column", "a")
    command(*words, "--wide", "-o", tmp_path / "t.csv")
    table = list(csv.DictReader((tmp_path / "t.csv").open()))
    assert [(row["zone"], row["zone a"]) for row in table] == [("u", "x"), ("u", "y")] and table[0]["rmse"]
    assert len(json.loads(command(*words, "--json")[0])) == 6
    command("zonal", run / "a/s", "--polygons", tmp_path / "texts", "--column", "c", code=3, tells="no property 'c'")


UNITS = [
    # Code, map info, size: projections of unequal areas, turned grids, feet, degrees, grads, a pole in a pixel, an
    # equal-area one.
    (32633, "UTM, 1, 1, 740000, 5800000, 30, 30", (400, 900)),
    (3857, "Web, 1, 1, 1000000, 8399737.89, 100, 100", (60, 50)),
    (32633, "UTM, 1, 1, 400000, 5800000, 300, 300, rotation=37", (90, 80)),
    (2263, "feet, 1, 1, 900000, 200000, 100, 100", (70, 60)),
    (4326, "Geographic, 1, 1, 10, 90, 0.5, 0.5", (130, 4)),
    (4326, "Geographic, 1, 1, 179.9, -60, 0.001, 0.001", (20, 300)),
    (4807, "grads, 1, 1, 2, 52, 0.01, 0.01", (30, 20)),
    (3413, "polar, 1, 1, -15050, 15050, 100, 100", (301, 301)),
    (3035, "equal, 1, 1, 4000000, 3000000, 1000, 1000", (40, 40)),
    (6933, "equal, 1, 1, 1000000, 5000000, 9000, 9000", (20, 20)),
]


@pytest.mark.parametrize(
    ("code", "place", "size"), rest_slow(UNITS, *UNITS[::3]), ids=[f"{code} {size[0]}" for code, _, size in UNITS]
)
def test_areas_are_those_of_geodesics(tmp_path, code, place, size):
    """Of the corners' pixels, the middle's and 20 others; where areas are equal, those of the map."""
    pyproj = pytest.importorskip("pyproj")
    from unmix.io.formats.header import geotransform

    wkt = pyproj.CRS(code).to_wkt("WKT1_GDAL")
    header = tmp_path / "g.hdr"
    write_cube(header, np.ones((*size, 1), np.float32), map_info=f"{{{place}}}", coordinate_system_string=f"{{{wkt}}}")
    found = areas_of_pixels(unmix.open_cube(header))
    areas = np.concatenate([found(slice(first, min(first + 7, size[0]))) for first in range(0, size[0], 7)])
    assert areas.shape == size
    x, a, b, y, c, d = geotransform(place)
    random = np.random.default_rng(1)
    some = [(0, 0), (0, size[1] - 1), (size[0] - 1, size[1] - 1), (size[0] // 2, size[1] // 2)]
    for line, sample in [*some, *random.integers(0, size, (20, 2))]:
        ring = [
            (x + a * s + b * n, y + c * s + d * n)
            for n, s in ((line, sample), (line, sample + 1), (line + 1, sample + 1), (line + 1, sample))
        ]
        assert areas[line, sample] == pytest.approx(on_ground(code, np.array(ring)), rel=3e-6)
    if "equal" in place:
        assert areas == pytest.approx(abs(a * d), rel=1e-6)


def test_without_pyproj_hectares_are_left_out(run, monkeypatch, caplog):
    """A word says what to install, once; all else is as with it."""
    from unmix.io.export import areas

    known = unmix.zonal(run / "a/s")
    for cached in (areas.pyproj_here, areas.ground_of):
        cached.cache_clear()
    monkeypatch.setitem(sys.modules, "pyproj", None)
    rows = unmix.zonal([run / "a/s", run / "b/s"])
    assert caplog.text.count("areas need pyproj, so hectares are left out: pip install 'unmix[geo]'") == 1
    assert [row["hectares"] for row in rows] == [None] * 6 and [row["mean"] for row in rows[:3]] == [
        row["mean"] for row in known
    ]
    for cached in (areas.pyproj_here, areas.ground_of):
        cached.cache_clear()


def even_odd(polygons, fine=40):
    """The share of each pixel that is inside of any of some polygons of rings by even and odd, by counting crossings at points."""
    at = (np.arange(fine * max(LINES, SAMPLES)) + 0.5) / fine + 1e-7
    x, y = np.meshgrid(at[: fine * SAMPLES], at[: fine * LINES])
    union = np.zeros(x.shape, bool)
    for rings in polygons:
        inside = np.zeros(x.shape, bool)
        for ring in rings:
            for (x0, y0), (x1, y1) in zip(ring, ring[1:] + ring[:1]):
                with np.errstate(divide="ignore", invalid="ignore"):
                    inside ^= ((y0 > y) != (y1 > y)) & (x < (x1 - x0) * (y - y0) / (y1 - y0) + x0)
        union |= inside
    return union.reshape(LINES, fine, SAMPLES, fine).mean(axis=(1, 3))


CROSSED = {
    "bow tie": ([[[(2.2, 3.1), (9.3, 8.2), (9.3, 3.1), (2.2, 8.2)]]], True),
    "pentagram": ([[[(5.0, 1.0), (8.0, 10.0), (0.5, 4.0), (9.5, 4.0), (2.0, 10.0)]]], True),
    "a hole beyond its polygon": (
        [[[(2.6, 2.6), (9, 2.6), (9, 7), (2.6, 7)], [(7.3, 4), (12, 4), (12, 9), (7.3, 9)]]],
        True,
    ),
    "parts that overlap": (
        [[[(2.3, 3.3), (9, 3.3), (9, 8), (2.3, 8)]], [[(5.2, 5.4), (12, 5.4), (12, 10), (5.2, 10)]]],
        False,
    ),
    "a part twice": ([[[(2.3, 3.3), (9, 3.3), (9, 8.6), (2.3, 8.6)]]] * 2, False),
    "a part in a part": (
        [[[(1.6, 1.6), (12, 1.6), (12, 9), (1.6, 9)]], [[(5.2, 5.4), (7, 5.4), (7, 7), (5.2, 7)]]],
        False,
    ),
}


@pytest.mark.parametrize("name", CROSSED)
@pytest.mark.parametrize("way", ["one feature", "features", "centres"])
def test_a_zone_is_what_its_polygons_cover_together(run, tmp_path, caplog, name, way):
    """Against counting at 1600 points of each pixel; of polygons that cross themselves a word says what counts."""
    parts, crosses = CROSSED[name]
    some = [feature("x", parts)] if way == "one feature" else [feature("x", [one]) for one in parts]
    rows = unmix.zonal(run / "b/s", geojson(tmp_path / "p.json", some), "parcel", centres=way == "centres")
    shares = even_odd(parts) if way != "centres" else even_odd(parts, 1)
    valid = np.ones((LINES, SAMPLES))
    valid[:2, :3] = 0
    assert rows[0]["pixels"] == pytest.approx((shares * valid).sum(), rel=4e-3 if way != "centres" else 1e-9)
    assert rows[0]["outside"] == 0
    assert ("count as what these enclose, by even and odd" in caplog.text) == crosses


@pytest.mark.parametrize("big", ["1.1e8", "1e15", "1e20", "1e160", "1e308", "1e400", "-1e400", "NaN", "Infinity"])
@pytest.mark.parametrize("centres", [False, True])
def test_coordinates_that_are_no_place(run, tmp_path, big, centres):
    """Some ended the process with a segmentation fault."""
    text = json.dumps([feature("x", [[[(2.0, 3.0), (9.0, 3.0), (9.0, 8.0)]]])]).replace(str(WEST + 60), big, 1)
    assert big in text
    crs = '{"properties": {"name": "EPSG:32633"}}'
    (tmp_path / "p.json").write_text(f'{{"type": "FeatureCollection", "crs": {crs}, "features": {text}}}')
    says = r"polygon 1 cannot be placed on it: .* is no place in EPSG:32633|do not form a closed"
    refused(unmix.InputError, says, unmix.zonal, run / "a/s", tmp_path / "p.json", "parcel", centres=centres)


@pytest.mark.parametrize("place", [(91.0, 45.0), (10.0, 90.1), (10.0, -1e9), (400.0, 45.0)])
def test_degrees_that_are_no_place(run, tmp_path, place):
    one = feature("x", [[[(2.0, 3.0), (9.0, 3.0), (9.0, 8.0)]]])
    one["geometry"] = {"type": "Polygon", "coordinates": [[place, (15.0, 52.0), (15.0, 52.1), place]]}
    table = geojson(tmp_path / "p.json", [one], None)
    if place == (91.0, 45.0):
        assert unmix.zonal(run / "a/s", geojson(tmp_path / "q.json", [feature("x", [[[(2, 3), (9, 3), (9, 8)]]])]))
        return
    with pytest.raises(
        unmix.CubeError,
        match=r"is no place in OGC:CRS84; are they in the system that their file names\?",
    ):
        unmix.zonal(run / "a/s", table, "parcel")


def test_zones_are_found_in_one_call_for_each_grid(run, tmp_path, monkeypatch):
    """20 000 parcels took minutes: a search through all names for each, and a call of exactextract; a grid's are found once."""
    import exactextract

    calls, real = [], exactextract.exact_extract
    monkeypatch.setattr(exactextract, "exact_extract", lambda *how: calls.append(len(how[1])) or real(*how))
    squares = [[[(x, y), (x + 0.9, y), (x + 0.9, y + 0.9), (x, y + 0.9)]] for x in range(3, 13) for y in range(2, 12)]
    table = geojson(tmp_path / "p.json", [feature(f"f{n}", [one]) for n, one in enumerate(squares)])
    rows = unmix.zonal([run / "a/s", run / "b/s"], table, "parcel")
    assert calls == [100] and len(rows) == 600
    assert [row["pixels"] for row in rows] == pytest.approx([0.81] * 600, abs=1e-5)


@pytest.mark.parametrize("path", ["gs://x/y", "s3://x/y.hdr", "ftp://x/y", "https://u:p@x/y"])
def test_what_a_record_says_of_its_scene_is_not_asked(run, tmp_path, path):
    """A table needs no scene."""
    from unmix.outputs.digests import record_digest

    shutil.copytree(run / "a", tmp_path / "a")
    record = tmp_path / "a/s_run.json"
    report = json.loads(record.read_text())
    report["input"]["path"] = path
    report["digest"] = record_digest(report)
    record.write_text(json.dumps(report))
    assert len(unmix.zonal(tmp_path / "a/s")) == 3
    assert unmix.zonal(tmp_path / "a/s", failed=["/x/other.hdr"])[-1]["mean"] is None


def test_spreads_of_values_far_from_zero():
    """In blocks, about the mean of each zone: squares of 1e8 had no digit left of a spread of 0.01."""
    random = np.random.default_rng(0)
    sums, parts = np.zeros((3, 3)), []
    for _ in range(5):
        parts.append((random.integers(0, 2, 100), random.uniform(0, 1, 100), 1e8 + 0.01 * random.standard_normal(100)))
        add_moments(*sums, *parts[-1])
    zone, w, value = map(np.concatenate, zip(*parts))
    for z in (0, 1):
        own, weights = value[zone == z].astype(np.longdouble), w[zone == z]
        expected = np.average(np.square(own - np.average(own, weights=weights)), weights=weights)
        assert sums[2, z] / sums[0, z] == pytest.approx(float(expected), rel=1e-5)
    assert not sums[:, 2].any()


@pytest.mark.parametrize("method", ["fcls", "nnls", "scls"])
def test_sigma_of_a_mean_holds_the_bias_of_absent_materials(tmp_path, method, caplog):
    """Noise of an absent spectrum only adds where a >= 0, however many pixels there are; 19 of 20 means are within 2 sigma."""
    say_once.cache_clear()
    random, off, without = np.random.default_rng(7), [], []
    for _ in range(8):
        E = 0.3 + 0.2 * np.sin(
            6 * np.linspace(0, 1, 40)[:, None] * random.uniform(0.4, 1.5, 4) + random.uniform(0, 6, 4)
        )
        A = np.zeros((24, 25, 4))
        A[..., :2] = random.dirichlet(np.ones(2), (24, 25))
        scene = write_cube(
            tmp_path / "t.hdr", (A @ E.T + 0.01 * random.standard_normal((24, 25, 40))).astype(np.float32)
        )
        library = write_csv(tmp_path / "e.csv", E)
        unmix.run(
            scene, endmembers=library, method=method, uncertainty=True, device="cpu", overwrite=True, browse=False
        )
        rows = unmix.zonal(tmp_path / "t")
        apart = [abs(row["mean"] - truth) for row, truth in zip(rows, A.mean(axis=(0, 1)))]
        off += [one / row["sigma"] for one, row in zip(apart, rows)]
        without += [one / row["pixel_sigma"] * 600**0.5 for one, row in zip(apart, rows)]
    assert np.mean(np.array(off) < 2) > 0.94
    assert (np.mean(np.array(without) < 2) < 0.5) == (method != "scls") == ("may be noise alone" in caplog.text)
    other = {"fcls": "scls", "nnls": "ucls"}.get(method, "")
    assert f"{other} has no such bias" in caplog.text or not other


@pytest.mark.parametrize(("light", "normalized"), [(0.7, False), (0.7, True), (1.3, False)])
def test_hectares_that_are_no_shares_of_the_ground_are_said(tmp_path, light, normalized, caplog):
    """Shade is no ground: without it, sums are less than one, and one where they are shares."""
    say_once.cache_clear()
    caplog.set_level("INFO")
    E = np.random.default_rng(3).uniform(0.1, 1.0, (8, 3))
    Y = light * np.random.default_rng(4).dirichlet(np.ones(3), (4, 4)) @ E.T
    path = write_cube(tmp_path / "s.hdr", Y, map_info="{UTM, 1, 1, 500000, 5000000, 30, 30, 33, North}")
    library = write_csv(tmp_path / "e.csv", E, classes=["soil", "soil", "tree"])
    how = {"method": "pcls" if light < 1 else "nnls", "by": "class", "shade_normalize": normalized}
    unmix.run(path, endmembers=library, out_dir=tmp_path / "o", device="cpu", **how)
    unmix.zonal(tmp_path / "o")
    assert ("to less than the ground" in caplog.text) == (light < 1 and not normalized)
    assert ("to more than the ground" in caplog.text) == (light > 1)


def test_sums_without_a_place_are_not_judged(tmp_path, caplog):
    say_once.cache_clear()
    caplog.set_level("INFO")
    E = np.random.default_rng(3).uniform(0.1, 1.0, (8, 3))
    path = write_cube(tmp_path / "s.hdr", 0.7 * np.random.default_rng(4).dirichlet(np.ones(3), (4, 4)) @ E.T)
    library = write_csv(tmp_path / "e.csv", E, classes=["soil", "soil", "tree"])
    unmix.run(path, endmembers=library, method="pcls", by="class", out_dir=tmp_path / "o", device="cpu")
    assert unmix.zonal(tmp_path / "o") and "of the ground" not in caplog.text and "than the ground" not in caplog.text
