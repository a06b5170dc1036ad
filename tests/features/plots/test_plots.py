"""Validation with plots: places and windows against plain NumPy, errors against SciPy and, where it is, scikit-learn."""

import csv

import numpy as np
import pytest
from conftest import refused, write_csv, write_cube

import unmix

LINES, SAMPLES, SIDE, WEST, NORTH = 9, 11, 20.0, 300_000.0, 4_000_000.0
SYSTEM = (
    '{PROJCS["UTM33",GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS 84",6378137,298.257223563]],PRIMEM["Greenwich",0],'
    'UNIT["degree",0.0174532925199433]],PROJECTION["Transverse_Mercator"],PARAMETER["latitude_of_origin",0],'
    'PARAMETER["central_meridian",15],PARAMETER["scale_factor",0.9996],PARAMETER["false_easting",500000],'
    'PARAMETER["false_northing",0],UNIT["metre",1]]}'
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of three endmembers of two classes, with pixels without values."""
    folder, random = tmp_path_factory.mktemp("plots"), np.random.default_rng(3)
    E = random.uniform(0.1, 1.0, (8, 3))
    cube = random.dirichlet(np.ones(3), (LINES, SAMPLES)) @ E.T + 0.01 * random.standard_normal((LINES, SAMPLES, 8))
    cube[0, :2] = -9999
    place = f"{{UTM, 1, 1, {WEST}, {NORTH}, {SIDE}, {SIDE}, 33, North, WGS-84}}"
    how = {"data_ignore_value": -9999}
    write_cube(folder / "s.hdr", cube.astype(np.float32), map_info=place, coordinate_system_string=SYSTEM, **how)
    write_csv(folder / "e.csv", E, names=["Oak", "grass", "soil"], classes=["green", "green", "bare"])
    unmix.run(folder / "s.hdr", endmembers=folder / "e.csv", method="fcls", by="class", out_dir=folder, device="cpu")
    return folder


def abundances(run):
    path = unmix.open_cube(run / "s_abundance.hdr").path
    return np.memmap(path, "<f4", "r", shape=(LINES, 3, SAMPLES)).transpose(0, 2, 1).astype(float)


def written(path, heading, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([heading, *rows])
    return path


@pytest.mark.parametrize("by", ["line", "x", "lon"])
@pytest.mark.parametrize("window", [1, 3])
def test_errors_are_those_of_others(run, tmp_path, by, window):
    random, A = np.random.default_rng(7), abundances(run)
    places = [(int(i), int(j)) for i, j in zip(random.integers(0, LINES, 60), random.integers(0, SAMPLES, 60))]
    expected = []
    for i, j in places:
        part = A[max(0, i - window // 2) : i + window // 2 + 1, max(0, j - window // 2) : j + window // 2 + 1].reshape(
            -1, 3
        )
        some = part[part[:, 0] != -9999]
        expected.append(some.mean(axis=0) if len(some) >= len(part) / 2 else np.full(3, np.nan))
    expected = np.array(expected)
    measured = np.clip(0.8 * expected + 0.1 * random.random(expected.shape), 0, 1)
    measured[np.isnan(measured)] = 0.5
    measured[5, 1] = np.nan
    middle = [
        (WEST + SIDE * (j + random.uniform(0.1, 0.9)), NORTH - SIDE * (i + random.uniform(0.1, 0.9))) for i, j in places
    ]
    if by == "lon":
        transform = pytest.importorskip("rasterio.warp").transform
        middle = list(zip(*transform("EPSG:32633", "OGC:CRS84", *zip(*middle))))
    where = places if by == "line" else middle
    heading = ["plot", *{"line": ("line", "sample"), "x": ("X", "Y"), "lon": ("lon", "lat")}[by], "oak", "Soil"]
    heading += ["notes"]
    rows = [
        [
            f"p{n}",
            *(at if by == "line" else [repr(float(value)) for value in at]),
            100 * m[0],
            "" if np.isnan(m[1]) else 100 * m[1],
            "dry",
        ]
        for n, (at, m) in enumerate(zip(where, measured[:, [0, 2]]))
    ]
    rows[5][4] = ""
    measured[5, 2] = np.nan
    how = {"kind": "abundance", "window": window, "scale": 100}
    found = unmix.validate(run / "s", written(tmp_path / "p.csv", heading, rows), out=tmp_path / "o.csv", **how)
    lacks = np.isnan(expected[:, 0])
    assert found["nodata"] == [f"p{n}" for n in np.flatnonzero(lacks)] and found["outside"] == []
    assert found["unmatched"] == []
    assert found["used"] == 60 - lacks.sum()
    for pair, column in zip(found["pairs"], (0, 2)):
        both = ~lacks & ~np.isnan(measured[:, column])
        a, b = expected[both, column], measured[both, column]
        assert pair["n"] == both.sum() and pair["bias"] == pytest.approx((a - b).mean(), abs=1e-6)
        assert pair["rmse"] == pytest.approx(np.sqrt(((a - b) ** 2).mean()), abs=1e-6)
        assert pair["mae"] == pytest.approx(np.abs(a - b).mean(), abs=1e-6)
        assert pair["slope"] == pytest.approx(np.polyfit(b, a, 1)[0], abs=1e-5)
        assert pair["r2"] == pytest.approx(1 - ((a - b) ** 2).sum() / ((b - b.mean()) ** 2).sum(), abs=1e-5)
        try:
            from sklearn.metrics import r2_score
        except ImportError:
            continue
        assert pair["r2"] == pytest.approx(r2_score(b, a), abs=1e-5)
    errors = list(csv.DictReader((tmp_path / "o.csv").open()))
    assert [float(row["rmse"]) for row in errors] == pytest.approx([pair["rmse"] for pair in found["pairs"]], rel=1e-8)
    table = list(csv.DictReader((tmp_path / "o_plots.csv").open()))
    assert len(table) == len(found["rows"]) and float(table[3]["mapped"]) == pytest.approx(found["rows"][3]["mapped"])


def test_classes_a_page_and_plots_that_lie_outside(run, tmp_path, caplog):
    rows = [["a<b", 2, 3, 0.5], ["far", 40, 3, 0.5], ["none", 0, 0, 0.5]]
    table = written(tmp_path / "p.csv", ["plot", "line", "sample", "green"], rows)
    found = unmix.validate(run / "s", table, by="class", out=tmp_path / "page.html")
    A = abundances(run)
    assert found["rows"][0]["mapped"] == pytest.approx(A[2, 3, :2].sum(), abs=1e-6) and len(found["rows"]) == 1
    assert found["outside"] == ["far"] and found["nodata"] == ["none"] and found["pairs"][0]["r2"] is None
    assert "1 plot outside of the scene: far" in caplog.text
    page = (tmp_path / "page.html").read_text()
    assert "<circle" in page and "green" in page and "1 of 3 plots" in page
    assert ">measured</text>" in page and ">mapped</text>" in page and page.count(">0.5</text>") == 2


@pytest.mark.parametrize(
    ("heading", "row", "options", "says"),
    [
        (["east", "north", "Oak"], [1, 2, 0.5], {}, "line and sample, x and y, easting and northing"),
        (
            ["line", "sample", "water"],
            [1, 2, 0.5],
            {},
            "Oak, grass, soil; `by` class sums up each$",
        ),
        (["line", "sample", "Oak soil"], [1, 2, 50], {}, "no column has the name of a map"),
        (["line", "sample", "Oak"], [1, "two", 0.5], {}, "row 2, sample: 'two' is not a number"),
        (["line", "sample", "Oak"], [99, 2, 0.5], {}, "no plot has values"),
        (["line", "sample", "Oak"], [1, 2, 0.5], {"window": 2}, "has to be an odd number"),
        (["line", "sample", "Oak"], [1, 2, 0.5], {"scale": 0}, "must be above 0"),
        (["line", "sample", "Oak"], [1, 2, 0.5], {"out": "t.txt"}, "a page ends in .html"),
        (["line", "sample", "Oak"], [1, 2, 0.5], {"out": "p.csv"}, "an output would replace"),
        (["line", "sample", "Oak"], [1, 2, "inf"], {}, "measured fractions reach inf, which is none"),
        (["line", "sample", "Oak"], [1, 2, "-1e200"], {"out": "v.html"}, "fractions reach 1e.200"),
        (["line", "sample", "Oak_pct"], [1, 2, 10**400], {}, "fractions reach inf"),
        (["line", "sample", "Oak"], [1, "inf", 0.5], {}, "no plot has values"),
        (["x", "y", "Oak"], ["1e400", "-1e308", 0.5], {}, "no plot has values"),
        (["line", "sample", "Oak"], [1, 2, "nan"], {}, "no plot has values"),
    ],
)
def test_what_cannot_be_compared_is_said(run, tmp_path, heading, row, options, says):
    table = written(tmp_path / "p.csv", heading, [row])
    before = table.read_bytes()
    options = {key: tmp_path / value if key == "out" else value for key, value in options.items()}
    refused(unmix.UnmixError, says, unmix.validate, run / "s", table, kind="abundance", **options)
    assert table.read_bytes() == before


def test_headings_of_surveyors_and_empty_cells(run, tmp_path, caplog):
    """Easting and northing are x and y, longitude and latitude lon and lat; a cell without a value and a likely name are said."""
    transform = pytest.importorskip("rasterio.warp").transform
    caplog.set_level("INFO", "unmix")
    A, rows = (
        abundances(run),
        [(WEST + 2.5 * SIDE, NORTH - 1.5 * SIDE, 0.5, "NA"), (WEST + 3.5 * SIDE, NORTH - 2.5 * SIDE, 0.4, 0.1)],
    )
    degrees = [(*(one[0] for one in transform("EPSG:32633", "OGC:CRS84", [x], [y])), *values) for x, y, *values in rows]
    for heading, some in ((("Easting", "Northing"), rows), (("longitude", "latitude"), degrees)):
        caplog.clear()
        heads, plots = ["id", *heading, "Oak", "grass", "soil_pct"], [(f"P{n}", *row, 9) for n, row in enumerate(some)]
        found = unmix.validate(run / "s", written(tmp_path / "p.csv", heads, plots), kind="abundance")
        assert [row["mapped"] for row in found["rows"][:2]] == pytest.approx([A[1, 2, 0], A[2, 3, 0]], abs=1e-6)
        assert (
            found["empty"] == {"Oak": [], "grass": ["P0"], "soil_pct": []}
            and "no value of grass at 1 plot: P0" in caplog.text
        )
        if heading[0] == "longitude":  # no place on the Earth, as where the two are the other way round
            turned = written(tmp_path / "t.csv", heads, [(n, x, y + 90, *rest) for n, x, y, *rest in plots])
            refused(unmix.InputError, "longitude and latitude the right way", unmix.validate, run / "s", turned)
        assert "columns are read: soil_pct as soil in per cent" in caplog.text and "Oak at" not in caplog.text
        assert found["rows"][-1]["name"] == "soil_pct" and found["rows"][-1]["measured"] == 0.09


def test_a_column_is_of_the_one_map_with_its_words():
    from unmix.features.plots.plots import bands_named, is_per_cent

    names = ["dry grass", "Grass", "soil", "cover"]
    assert bands_named(["grass %", "Dry_Grass_pct", "soil", "soil_frac", "grass"], names) == {1: 0, 2: 2, 4: 1}
    assert bands_named(["soil_pct", "soil cover", "cover", "water"], names) == {0: 2, 2: 3}
    assert bands_named(["soil"], ["soil 1", "soil 2"]) == {}
    assert [*map(is_per_cent, ("soil_pct", "soil (%)", "soil per cent", "impact", "soil"))] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_per_cent_that_no_heading_says_is_warned_of(run, tmp_path, caplog):
    unmix.validate(run / "s", written(tmp_path / "p.csv", ["line", "sample", "Oak"], [[1, 2, 45]]), kind="abundance")
    assert "measured fractions reach 45; are they in per cent?" in caplog.text


def test_layers_that_sum_to_more_than_the_map_are_said(run, tmp_path, caplog):
    """Of covers of several layers, not of those that sum as the map does, nor of a single column."""
    A = abundances(run)
    for heads, factor in ((["Oak", "grass", "soil"], 1.3), (["Oak", "grass", "soil"], 1.0), (["Oak"], 1.3)):
        caplog.clear()
        places = np.argwhere(A[..., 0] >= 0)[:12]
        rows = [[y, x, *(factor * A[y, x, : len(heads)])] for y, x in places]
        unmix.validate(run / "s", written(tmp_path / "p.csv", ["line", "sample", *heads], rows), kind="abundance")
        assert ("as layers do" in caplog.text) == (len(heads) > 1 and factor > 1)


def test_a_raster_without_sense_is_no_value(tmp_path):
    """Infinities and 1e300, which no raster of fractions has but a stranger's: pages and JSON have numbers alone."""
    values = np.full((3, 4, 1), 0.5)
    values[0, 1], values[1, 1] = np.inf, 1e300
    raster = write_cube(tmp_path / "r.hdr", values, band_names=["Oak"])
    table = written(
        tmp_path / "p.csv", ["plot", "line", "sample", "Oak"], [["a", 0, 1, 0.5], ["b", 1, 1, 0.5], ["c", 2, 2, 0.4]]
    )
    found = unmix.validate(raster, table, out=tmp_path / "v.html")
    assert found["nodata"] == ["a", "b"] and found["used"] == 1
    assert (
        found["pairs"][0]["rmse"] == pytest.approx(0.1)
        and "nan" not in (tmp_path / "v.html").read_text().partition("<h1>")[2]
    )
