"""Files that begin right and go wrong, through the command line: ``python tests/fuzz_grammar.py COUNT [SEED]`` (`make
fuzz`).

Input i is made from the seed and i alone: a header, table, document, options file or MATLAB file after its grammar,
with values, units, nesting, separators, ends of lines and encodings changed, and a command that reads it; or, a third
of them, a run of a scene in any format, with odd options, most of them with damage to a file (`fuzz_scenes.py`). Each
command runs in a fork of this process, so that a crash or a wait is seen. Good is an exit code that is documented, one
line about an error, JSON that others can read, inputs as they were, and nothing left behind by a command that failed;
everything else is printed and makes exit code 1.
"""

import contextlib
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import fuzz_records  # noqa: E402 - scripts have no package
import fuzz_scenes  # noqa: E402

# Seconds that a command may take; bytes of memory beside those of this process, and of each file that is written.
LONGEST, MEMORY, LARGEST = 20, 3 * 2**30, 2**26
CODES = (0, 1, 2, 3, 4, 5)
WAVES = [500 + 60 * b for b in range(12)]
NUMBERS = (
    "0",
    "-1",
    "1",
    "2",
    "7",
    "65536",
    "4294967296",
    "-2147483648",
    "1e308",
    "-1e308",
    "1e400",
    "1" + "0" * 400,
    "9" * 5000,
    "nan",
    "inf",
    "-Infinity",
    "1e-320",
    "",
    "x",
    "0x10",
    "1_000",
    "1,5",
    "1.234,5",
    "1 000",
    "٣",
    "1e",
    "--1",
    "1/0",
    "½",
    "NaN",
    "#N/A",
    "=1+1",
    "+3",
    ".",
    "1.5.2",
    "1e999999999",
)
WORDS = (
    "",
    "x",
    "µm",
    "nm",
    "a b",
    "a,b",
    'a"b',
    "{",
    "}",
    "é",
    "日本",
    "\u202e",
    "\x1b[31m",
    "a\tb",
    "../../x",
    "/etc/passwd",
    "-",
    "nan",
    "%s",
    "x" * 200000,
    "\ufeff",
    "\u2028",
    "wavenumber",
    "Unknown",
    "class",
    "name",
    "line",
    "a\\",
    "~",
    "$HOME",
    "CON",
    "*",
    "None",
    "true",
)


def number(draw, least=0.0, most=1.0, odd=0.04):
    """The text of a number, in one of the ways in which numbers are written."""
    if draw.random() < odd:
        return draw.choice(NUMBERS)
    return draw.choice(("{:.4f}", "{:g}", "{:e}", "{!r}", "{:.4f}"))[:].format(draw.uniform(least, most))


def word(draw, usual, odd=0.04):
    """A word, or something else."""
    return draw.choice(WORDS) if draw.random() < odd else usual


def encoded(draw, text):
    """A text as bytes: in one of the encodings and with the ends of lines that programs write, perhaps cut or with a NUL."""
    if draw.random() < 0.1:
        text = text.replace("\n", draw.choice(("\r\n", "\r", "\n\n", "\n\r")))
    coding = (
        "utf-8"
        if draw.random() < 0.75
        else draw.choice(("utf-8-sig", "latin-1", "utf-16", "utf-16-be", "utf-32", "cp037"))
    )
    raw = text.encode(coding, errors="replace")
    what = draw.random()
    if what < 0.02:
        at = draw.randrange(len(raw) + 1)
        raw = raw[:at] + draw.choice((b"\0", b"\xff", b"\xc3", b"\x80\x81", b"\n" * 5000, b"#" * 300000)) + raw[at:]
    elif what < 0.03:
        raw = raw[: draw.randrange(len(raw) + 1)]
    elif what < 0.04:
        raw = b""
    return raw


def table(draw, heading, rows):
    """A table: columns moved, doubled or gone, cells changed, rows too long or short, with any separator."""
    heading, rows = [word(draw, head) for head in heading], [list(row) for row in rows]
    if draw.random() < 0.15:
        at = draw.randrange(len(heading))
        change = draw.choice(("gone", "twice", "upper", "blank"))
        for row in (heading, *rows):
            if change == "gone":
                row[at : at + 1] = []
            elif change == "twice":
                row.insert(at, row[at])
        heading = [
            head.upper() if change == "upper" else f" {head} " if change == "blank" else head for head in heading
        ]
    if rows and draw.random() < 0.1:
        row = draw.choice(rows)
        draw.choice(
            (
                lambda: row.append("7"),
                row.clear,
                lambda: row.pop() if row else None,
                rows.clear,
                lambda: rows.extend([row] * 300),
            )
        )()
    cut = draw.choice((",", ",", ",", ";", "\t", " ", "|")) if draw.random() < 0.3 else ","

    def cell(text):
        return '"' + text.replace('"', '""') + '"' if draw.random() < 0.05 or cut in text else text

    lines = [cut.join(map(cell, row)) for row in ([heading] if draw.random() < 0.97 else []) + rows]
    before = draw.choice(("# a comment\n", f"sep={cut}\n", "\n\n", "")) if draw.random() < 0.1 else ""
    return encoded(draw, before + "\n".join(lines) + draw.choice(("\n", "", "\n\n")))


def header(draw, lines=4, samples=5, bands=12):
    """An ENVI header of an image of float32, or of a library."""
    fields = {
        "samples": str(samples),
        "lines": str(lines),
        "bands": str(bands),
        "header offset": "0",
        "data type": "4",
        "byte order": "0",
        "interleave": draw.choice(("bip", "bil", "bsq", "BSQ")),
        "file type": "ENVI Standard",
        "wavelength units": draw.choice(("Nanometers", "Micrometers", "Wavenumber", "Index", "GHz", "Unknown", "")),
    }
    lists = {
        "wavelength": [number(draw, w, w + 1, 0.01) for w in WAVES],
        "fwhm": [number(draw, 5, 50, 0.01) for _ in WAVES],
        "bbl": [draw.choice("111110") for _ in WAVES],
        "band names": [word(draw, f"b{b}", 0.02) for b in range(bands)],
        "data gain values": [number(draw, 0.5, 2, 0.01) for _ in WAVES],
        "data offset values": [number(draw, -1, 1, 0.01) for _ in WAVES],
        "map info": [
            "UTM",
            "1",
            "1",
            number(draw, 3e5, 6e5),
            number(draw, 4e6, 5e6),
            number(draw, 1, 60),
            number(draw, 1, 60),
            "11",
            "North",
            "WGS-84",
            "units=" + word(draw, "Meters"),
        ],
        "geo points": [number(draw, -1, 90) for _ in range(16)],
        "default bands": [number(draw, 1, 9) for _ in range(3)],
        "class names": [word(draw, "c") for _ in range(3)],
        "classes": ["3"],
        "projection info": ["3", number(draw, 0, 7e6), "x"],
        "coordinate system string": [word(draw, 'PROJCS["x",GEOGCS["WGS 84"]]')],
    }
    kept = {"wavelength", *draw.sample(sorted(lists), draw.randrange(5))}
    fields |= {
        key: "{" + draw.choice((", ", ",", ",\n ")).join(values) + "}" for key, values in lists.items() if key in kept
    }
    for key in (
        "data ignore value",
        "reflectance scale factor",
        "cloud cover",
        "sun elevation",
        "acquisition time",
        "x start",
    ):
        if draw.random() < 0.15:
            fields[key] = number(draw, 0, 100)
    for key in draw.sample(sorted(fields), draw.choice((0, 1, 1, 2))):
        change = draw.choice(("number", "number", "word", "gone", "open", "brace", "nested"))
        if change == "gone":
            del fields[key]
        else:
            fields[key] = {
                "number": draw.choice(NUMBERS),
                "word": draw.choice(WORDS),
                "open": "{" + fields[key],
                "brace": "{" + fields[key].strip("{}") + "}",
                "nested": "{" * 300 + fields[key],
            }[change]
    order = list(fields)
    if draw.random() < 0.1:
        draw.shuffle(order)
    equals = draw.choice((" = ", "=", " =", "\t=\t")) if draw.random() < 0.1 else " = "
    return encoded(draw, word(draw, "ENVI", 0.01) + "\n" + "".join(f"{key}{equals}{fields[key]}\n" for key in order))


def document(draw, valid):
    """A JSON document, some of whose values are others."""
    value = json.loads(json.dumps(valid))
    if draw.random() < 0.9:
        fuzz_records.change(value, draw)
    return encoded(draw, fuzz_records.text_of(value, draw))


def toml(draw):
    """Options of a run in TOML, values of all its kinds."""
    usual = {
        "method": '"fcls"',
        "bands": '"1-8"',
        "certificate": "true",
        "tag": '["a=b"]',
        "memory": '"8M"',
        "scale": "1.0",
        "seed": "3",
        "lines": '"0:2"',
        "quantize": "0.001",
        "count": '"2"',
        "nodata": "-9999.0",
        "max-delta": "1e-4",
        "threads": "1",
    }
    odd = (
        "inf",
        "nan",
        "-1",
        "1" + "0" * 400,
        "1e400",
        '""',
        '"\\u0000"',
        "[]",
        "[[]]",
        "{a = 1}",
        "1979-05-27",
        "07:32:00",
        "true",
        "0x10",
        '"""x\ny"""',
        "'",
        "[1, 'a']",
        '"x"',
        "1_000",
        "{",
        "''",
        '"s3://a/b"',
        '"/dev/zero"',
    )
    keys = draw.sample(sorted(usual), draw.randrange(1, 5))
    rows = [f"{word(draw, key)} = {draw.choice(odd) if draw.random() < 0.3 else usual[key]}" for key in keys]
    if draw.random() < 0.2:
        rows.append(draw.choice(("[run]", "[x]", "[[run]]", "[run.a]", "a.b = 1", "= 1", "seed = 1\nseed = 2")))
    return encoded(draw, "\n".join(rows) + "\n")


def matlab(draw):
    """A MATLAB file with a scene or a library in it, of odd shapes, types and names."""
    import scipy.io

    rng = np.random.default_rng(draw.getrandbits(32))
    kinds = ("f4", "f8", "u1", "i2", "u8", "?", "c16", "S3", "O")
    shape = draw.choice(((12, 3), (3, 12), (4, 5, 12), (12, 20), (20, 12), (0, 3), (1, 1), (12,), (2, 2, 2, 2), ()))
    array = rng.random(shape) * draw.choice((1, 1, 1, 1e4, 1e300, -1))
    kind = draw.choice(kinds) if draw.random() < 0.3 else "f8"
    if np.size(array) and draw.random() < 0.2:
        array = np.asarray(array)
        array.flat[0] = draw.choice((np.nan, np.inf, -np.inf))
    with np.errstate(all="ignore"):
        array = np.asarray(array, object if kind == "O" else None).astype(kind)
    waves = draw.choice((WAVES, np.array(WAVES) / 1000, [], [np.nan] * 12, np.array(WAVES, object), "x", WAVES[::-1]))
    names = draw.choice((["a", "b", "c"], np.array(["a", "b", "c"], object), [], [1, 2, 3], {"x": {"y": 1}}, "abc"))
    inside = {
        draw.choice(("A", "M", "Y", "data", "cube", "x")): array,
        draw.choice(("wl", "wavelength", "lambda", "w")): waves,
        draw.choice(("names", "material_names", "cood", "n")): names,
    }
    if draw.random() < 0.2:
        inside = {"s": inside}
    file = io.BytesIO()
    scipy.io.savemat(file, inside, do_compression=draw.random() < 0.3, oned_as=draw.choice(("row", "column")))
    raw = bytearray(file.getvalue())
    for _ in range(draw.choice((0, 0, 1, 3))):
        raw[draw.randrange(len(raw))] = draw.randrange(256)
    return bytes(raw)


ITEM = {
    "type": "Feature",
    "stac_version": "1.0.0",
    "id": "it",
    "bbox": [0, 0, 1, 1],
    "geometry": {"type": "Point", "coordinates": [0, 0]},
    "properties": {
        "datetime": "2023-07-01T00:00:00Z",
        "eo:cloud_cover": 3.5,
        "eo:bands": [{"name": "b", "center_wavelength": 0.5}] * 12,
    },
    "assets": {
        "data": {
            "href": "s.hdr",
            "roles": ["data", "reflectance"],
            "type": "image/tiff",
            "bands": [{"center_wavelength": 0.6}] * 12,
        },
        "header": {"href": "s.hdr", "roles": ["metadata"]},
    },
    "links": [{"rel": "self", "href": "it.json"}, {"rel": "item", "href": "it.json"}],
}
LISTS = (
    {"type": "FeatureCollection", "features": [ITEM, ITEM | {"id": "other"}], "links": []},
    {
        "type": "Catalog",
        "stac_version": "1.0.0",
        "id": "c",
        "description": "",
        "links": [{"rel": "item", "href": "it.json"}],
    },
    {
        "type": "Collection",
        "stac_version": "1.0.0",
        "id": "c",
        "description": "",
        "license": "x",
        "extent": {},
        "links": [{"rel": "item", "href": "it.json"}, {"rel": "child", "href": "c.json"}],
    },
)
SQUARE = [[[300010, 4499990], [300100, 4499990], [300100, 4499900], [300010, 4499990]]]
POLYGONS = {
    "type": "FeatureCollection",
    "crs": {"type": "name", "properties": {"name": "EPSG:32611"}},
    "features": [
        {
            "type": "Feature",
            "properties": {"name": "a", "n": 1},
            "geometry": {"type": "Polygon", "coordinates": SQUARE},
        },
        {
            "type": "Feature",
            "properties": {"name": "b"},
            "geometry": {"type": "MultiPolygon", "coordinates": [SQUARE, SQUARE]},
        },
    ],
}
LIBRARY = ["-e", "e.csv", "--device", "cpu", "-o", "o", "-q"]


def library(draw):
    """A library as CSV, its spectra in rows or in columns."""
    rows = [[f"m{j}", draw.choice(("green", "bare")), *(number(draw, odd=0.01) for _ in WAVES)] for j in range(3)]
    heading = ["name", "class", *(number(draw, w, w + 1, 0.005) for w in WAVES)]
    if draw.random() < 0.3:
        columns = list(zip(*([heading, *rows])))
        return table(draw, ["wavelength", "m0", "m1", "m2"], [list(map(str, column)) for column in columns[2:]])
    return table(draw, heading, rows)


def places(draw, heading, more):
    """A table of pixels or plots."""
    rows = [
        [number(draw, 3e5, 3e5 + 99) if heading[0] == "x" else word(draw, str(j)) for _ in heading[:2]] + more(j)
        for j in range(4)
    ]
    return table(draw, heading, rows)


def per_band(draw, count):
    """A number for each band or endmember, one a line."""
    rows = [[number(draw, 0.5, 2, 0.02)] for _ in range(count)]
    return (
        table(draw, ["sigma"], rows) if draw.random() < 0.5 else encoded(draw, "\n".join(row[0] for row in rows) + "\n")
    )


# Of each kind of file: its name, what makes it, and the commands that read it.
GRAMMARS = {
    "header": (
        "x.hdr",
        header,
        (
            ["info", "x.hdr", "--json"],
            ["run", "x.hdr", *LIBRARY],
            ["check", "x.hdr", "-e", "e.csv", "--json", "-q"],
            ["count", "x.hdr", "--json", "-q"],
            ["endmembers", "x.hdr", "-n", "2", "-o", "o", "-q"],
            ["plot", "x.hdr", "--at", "1,1", "-o", "o/p.png"],
            ["library", "resample", "e.csv", "x.hdr", "o/l.csv", "-q"],
            ["run", "s.hdr", *LIBRARY, "--wavelengths", "x.hdr"],
            ["run", "s.hdr", *LIBRARY, "--mask", "x.hdr"],
            ["compare", "g/s", "x.hdr", "--json"],
            ["mnf", "x.hdr", "-o", "o", "-q"],
        ),
    ),
    "library header": (
        "l.hdr",
        lambda draw: header(draw, 3, 12, 1).replace(b"ENVI Standard", b"ENVI Spectral Library"),
        (
            ["library", "info", "l.sli", "--json"],
            ["run", "s.hdr", "-e", "l.sli", *LIBRARY[2:]],
            ["library", "convert", "l.sli", "o/l.csv"],
        ),
    ),
    "library": (
        "l.csv",
        library,
        (
            ["library", "info", "l.csv", "--json"],
            ["run", "s.hdr", "-e", "l.csv", *LIBRARY[2:]],
            ["library", "convert", "l.csv", "o/l.sli"],
            ["library", "match", "l.csv", "e.csv", "--json"],
            ["library", "merge", "l.csv", "l.csv", "o/m.csv"],
            ["mesma", "s.hdr", "-e", "l.csv", *LIBRARY[2:]],
            ["match", "s.hdr", "-e", "l.csv", "-o", "o", "-q"],
            ["check", "s.hdr", "-e", "l.csv", "--json", "-q"],
            ["plot", "l.csv", "-o", "o/p.svg"],
            ["run", "s.hdr", *LIBRARY, "--classes", "l.csv:class"],
            ["run", "s.hdr", *LIBRARY, "--method", "pcls", "--shade", "l.csv"],
            ["run", "s.hdr", "-n", "2", *LIBRARY[2:], "--names", "l.csv"],
        ),
    ),
    "plots": (
        "p.csv",
        lambda draw: places(
            draw,
            draw.choice(
                (["line", "sample", "m0", "m1_pct"], ["x", "y", "m0", "m1 cover"], ["lon", "lat", "m0", "plot"])
            ),
            lambda _: [number(draw), number(draw)],
        ),
        (
            ["validate", "g/s", "p.csv", "--json"],
            ["validate", "g/s", "p.csv", "-o", "o/v.html"],
            ["validate", "g/s", "p.csv", "-o", "o/v.csv"],
        ),
    ),
    "pixels": (
        "p.csv",
        lambda draw: places(draw, ["line", "sample", "class"], lambda j: [word(draw, "ab"[j % 2])]),
        (
            ["library", "build", "s.hdr", "o/l.csv", "--pixels", "p.csv", "-q"],
            ["run", "s.hdr", "-e", "p.csv", *LIBRARY[2:]],
        ),
    ),
    "names": (
        "t.csv",
        lambda draw: table(
            draw, ["name", "new name", "class"], [[f"m{j}", word(draw, f"n{j}"), "c"] for j in range(3)]
        ),
        (
            ["run", "s.hdr", *LIBRARY, "--classes", "t.csv:class"],
            ["mesma", "s.hdr", *LIBRARY, "--classes", "t.csv:class"],
        ),
    ),
    "a number a band": (
        "w.txt",
        lambda draw: per_band(draw, draw.choice((12, 12, 3))),
        tuple(
            ["run", "s.hdr", *LIBRARY, *more]
            for more in (
                ["--weights", "w.txt"],
                ["--noise", "w.txt", "--uncertainty"],
                ["--wavelengths", "w.txt"],
                ["--method", "nnls", "--likelihood", "poisson", "--background", "w.txt"],
                ["--allowed", "w.txt"],
                ["--albedo", "30,0", "--grains", "w.txt"],
            )
        ),
    ),
    "failed": (
        "f.csv",
        lambda draw: table(
            draw,
            ["scene", "exit code", "reason"],
            [
                [word(draw, f"/data/q_2020010{j}.hdr", 0.3), number(draw, 1, 5), word(draw, "no such file", 0.3)]
                for j in range(3)
            ],
        ),
        (
            ["zonal", "g/s", "--failed", "f.csv", "--json"],
            ["zonal", "g", "--failed", "f.csv", "-o", "o/z.csv"],
            ["status", "g", "--failed", "f.csv", "--json"],
        ),
    ),
    "item": (
        "it.json",
        lambda draw: document(draw, ITEM),
        (
            ["info", "it.json", "--json"],
            ["run", "it.json", *LIBRARY],
            ["info", "it.json#data"],
            ["run", "--list", "it.json", *LIBRARY],
        ),
    ),
    "list of items": (
        "li.json",
        lambda draw: document(draw, draw.choice(LISTS)),
        (
            ["run", "--list", "li.json", *LIBRARY, "--json"],
            ["run", "--list", "li.json", *LIBRARY, "--dates", "2023-01/2024-01"],
            ["match", "--list", "li.json", "-e", "e.csv", "-o", "o", "-q"],
            ["info", "li.json"],
        ),
    ),
    "list": (
        "li.txt",
        lambda draw: encoded(draw, "".join(word(draw, "s.hdr", 0.3) + "\n" for _ in range(3))),
        (
            ["run", "--list", "li.txt", *LIBRARY, "--json", "--failed", "o/f.csv"],
            ["endmembers", "--list", "li.txt", "-n", "2", "-o", "o", "-q"],
        ),
    ),
    "options": (
        "c.toml",
        toml,
        (["run", "s.hdr", *LIBRARY, "--config", "c.toml"], ["mesma", "s.hdr", *LIBRARY, "--config", "c.toml"]),
    ),
    "record": (
        "g/s_run.json",
        lambda draw: document(draw, WORLD["record"]),
        (
            ["run", "s.hdr", *LIBRARY, "--config", "g/s_run.json"],
            ["status", "g", "--json"],
            ["zonal", "g/s", "--json"],
            ["report", "g/s", "-o", "o/r.html"],
            ["validate", "g/s", "plots.csv", "--json"],
            ["verify", "g/s", "--json"],
            ["series", "g", "-o", "o/x.html"],
            ["stac", "g/s"],
            ["export", "g/s", "-f", "hdf5", "-o", "o"],
            ["compare", "g/s", "g/s", "--json"],
        ),
    ),
    "polygons": (
        "p.geojson",
        lambda draw: document(draw, POLYGONS),
        (
            ["zonal", "g/s", "--polygons", "p.geojson", "--json"],
            ["zonal", "g/s", "--polygons", "p.geojson", "--centres", "-o", "o/z.csv"],
            ["library", "build", "s.hdr", "o/l.csv", "--polygons", "p.geojson", "--column", "name", "-q"],
        ),
    ),
    "matlab": (
        "m.mat",
        matlab,
        (
            ["info", "m.mat", "--json"],
            ["run", "m.mat", *LIBRARY],
            ["library", "info", "m.mat", "--json"],
            ["run", "s.hdr", "-e", "m.mat", *LIBRARY[2:]],
            ["solve", "m.mat:A", "m.mat:Y", "-o", "o/x.npy", "--device", "cpu", "-q"],
            ["compare", "g/s", "m.mat", "--json"],
            ["validate", "m.mat", "plots.csv", "--json"],
        ),
    ),
}
SCENE = "scene"
WORLD = {}


def make_world(folder):
    """Make a folder with a scene, a library, plots and a finished run, beside which each input is put."""
    from conftest import write_csv, write_cube

    import unmix

    rng = np.random.default_rng(3)
    E = np.stack([0.4 + 0.3 * np.sin(np.array(WAVES) / 300 + k) for k in range(3)], axis=1)
    cube = (rng.dirichlet(np.ones(3), (4, 5)) @ E.T + 0.002 * rng.standard_normal((4, 5, len(WAVES)))).astype(
        np.float32
    )
    fields = {
        "wavelength": WAVES,
        "map info": "{UTM, 1, 1, 3e5, 4.5e6, 30, 30, 11, North, WGS-84}",
        "acquisition time": "2023-07-01",
    }
    write_cube(folder / "s.hdr", cube, **fields)
    write_csv(folder / "e.csv", E, WAVES, names=["m0", "m1", "m2"], classes=["green", "green", "bare"])
    shutil.copy(folder / "s.img", folder / "x.img")
    E.T.astype("<f4").tofile(folder / "l.sli")
    (folder / "it.json").write_text(json.dumps(ITEM))
    (folder / "plots.csv").write_text("line,sample,m0\n1,1,0.5\n2,2,0.4\n3,1,0.1\n")
    unmix.run(
        folder / "s.hdr", endmembers=folder / "e.csv", device="cpu", out_dir=folder / "g", certificate=True, by="class"
    )
    WORLD["record"] = json.loads((folder / "g/s_run.json").read_text())


def content(folder):
    """The bytes of all files of a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def call(words, folder):
    """Run a command in a fork, in a folder; return how it ended, what it printed, and what it said."""
    said, printed = folder.parent / "said", folder.parent / "printed"
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(LONGEST)
            for file, stream in ((printed, 1), (said, 2)):
                os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
            resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST, LARGEST))
            os.chdir(folder)
            sys.argv = ["unmix", *words]
            sys.stdout, sys.stderr = (open(stream, "w", encoding="utf-8", closefd=False) for stream in (1, 2))  # noqa: SIM115
            from unmix_cli.main import main

            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 99
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush(), sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), printed.read_text(errors="replace"), said.read_text(errors="replace")


def refuse_constant(name):
    """Raise an error of what JSON does not have."""
    raise ValueError(f"{name} is no JSON")


def faults(words, code, printed, said, before, after):
    """Yield what is wrong with the end of a command; ``before`` and ``after`` are the files of its folder."""
    if code < 0:
        yield "it took too long" if code == -signal.SIGALRM else f"it died by {signal.Signals(-code).name}"
        return
    if code not in CODES:
        yield f"exit code {code}"
    for text in ("Traceback", "should not happen", "Warning: ", "Error in "):
        if text in said:
            yield f"it says {text}"
    errors = [line for line in said.splitlines() if line.startswith("unmix: error:")]
    if code in (2, 3, 5) and len(errors) != 1 and words[0] not in ("check", "run", "verify"):
        yield f"{len(errors)} lines of errors"
    if any(len(line) > 2200 for line in said.splitlines()):
        yield "a line is too long"
    if "--json" in words:
        try:
            for line in printed.splitlines():
                json.loads(line, parse_constant=refuse_constant)
        except ValueError as error:
            yield f"it prints no JSON: {error}"
    if changed := [
        name
        for name in before
        if before[name] != after.get(name) and not (words[0] == "stac" and name.startswith("g/"))
    ]:
        yield f"it changed {changed}"
    new = sorted(set(after) - set(before))
    if left := [name for name in new if name.endswith((".part", ".lock"))]:
        yield f"it left {left}"
    if strays := [name for name in new if not name.startswith("o/") and words[0] != "stac"]:
        yield f"it wrote {strays}"
    if code in (2, 3) and words[0] != "check" and [name for name in new if name != "o/f.csv"] and "--list" not in words:
        yield f"it failed and left {new}"


def one(count, seed, world):
    """Make an input and run a command on it; return the kind, the command, its exit code and its faults."""
    draw = random.Random(seed * 10**9 + count)
    kind = SCENE if draw.random() < 1 / 3 else draw.choice(sorted(GRAMMARS))
    with tempfile.TemporaryDirectory(prefix="grammar-") as place:
        folder = Path(place) / "w"
        shutil.copytree(world, folder)
        (folder / "o").mkdir()
        if kind == SCENE:
            words = fuzz_scenes.scene(folder, np.random.default_rng(draw.getrandbits(64)))
        else:
            name, make, commands = GRAMMARS[kind]
            words = draw.choice(commands)
            (folder / name).write_bytes(make(draw))
            if name == "x.hdr" and draw.random() < 0.05:
                (folder / "x.img").unlink()
        before = content(folder)
        code, printed, said = call(words, folder)
        found = list(faults(words, code, printed, said, before, content(folder)))
        if keep := os.environ.get("UNMIX_KEEP_INPUT"):
            shutil.copytree(folder, keep, dirs_exist_ok=True)
    return kind, words, code, [f"{one}: {said.strip()[-400:]}" for one in found]


def fuzz(folder, count, seed=0, first=0):
    """Run inputs; return how often each kind ended with each exit code, and the findings."""
    world = folder / "world"
    world.mkdir(parents=True)
    make_world(world)
    ends, findings = Counter(), []
    for place in range(first, first + count):
        kind, words, code, found = one(place, seed, world)
        ends[kind, code] += 1
        if found:
            findings.append(f"input {place} ({kind}): unmix {' '.join(words)}: {'; '.join(found)}")
            print(f"finding: {findings[-1]}", flush=True)
    return ends, findings


def main():
    """Run as many inputs as the command line says, and tell what became of them."""
    count, seed, first = (*map(int, sys.argv[1:4]), *(0, 0)[max(0, len(sys.argv) - 2) :])
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        ends, findings = fuzz(Path(scratch), count, seed, first)
    print(f"{count} inputs, seed {seed}, {time.perf_counter() - began:.0f} s: {len(findings)} findings")
    for kind in sorted({kind for kind, _ in ends}):
        print(
            f"  {kind}: "
            + ", ".join(f"{n} ended with {code}" for (other, code), n in sorted(ends.items()) if other == kind)
        )
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
