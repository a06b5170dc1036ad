"""Shade, and sums by class: against scipy and plain sums, and on Jasper Ridge with its library of four classes."""

from dataclasses import replace

import h5py
import numpy as np
import pytest
import spectral
from conftest import KINDS, mix, read_map, refused, rest_slow, verify_tells, write_csv, write_cube
from reference.abundances import of_pixels, pcls

import unmix
from unmix.commands.verify import verify
from unmix.library import ClassSums, Endmembers, load, prepared
from unmix.library.classes import classified, merged_libraries
from unmix.options import Options
from unmix.pages.pictures import colour_of


@pytest.fixture
def sli(tmp_path):
    """An ENVI library of three spectra, which has no columns."""
    library = Endmembers(("a", "b", "c"), np.eye(4)[:, :3] + 0.1, None, source="l.sli")
    library.write(None, tmp_path / "l.sli", tmp_path / "l.hdr")
    return tmp_path / "l.sli"


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("name,class\nc,z\na,x\nb,x\n", ("x", "x", "z")),
        ("name;note;class\nc;1;z\na;2;x\nb;3;x\n", ("x", "x", "z")),
        ("kind,spectrum\nz,c\nx,a\ny,b\n", ("x", "y", "z")),
        ("a,n,m\n", None),
        ("name,n,m\na,1,2\nb,1,2\nc,1,3\n", None),
        ("name\na\nb\nc\n", None),
        ("", None),
    ],
)
def test_a_table_of_classes_alone(tmp_path, sli, text, kinds):
    """Its column is ``class``, or the only one beside the names; else the message says how to name one."""
    (tmp_path / "k.csv").write_text(text)
    if kinds is not None:
        table = str(tmp_path / "k.csv")
        assert classified([load(sli)], table, sli)[0].classes == kinds
        assert Options.of(endmembers=sli, classes=table, by="class").repeatable()["classes"] == table
        return
    with pytest.raises(
        unmix.LibraryError, match=r"which of its columns has the classes\? Name it: `classes` .*k.csv:COLUMN"
    ):
        classified([load(sli)], str(tmp_path / "k.csv"), sli)


@pytest.mark.parametrize("classes", ["kind", "none.csv"])
def test_a_library_without_columns_says_so(sli, classes):
    """It was called binary."""
    with pytest.raises(
        unmix.LibraryError, match=rf"l.sli: has no columns, so {classes} is none of them; `classes` FILE:COLUMN"
    ):
        classified([load(sli)], classes, sli)


@pytest.fixture
def scene(tmp_path):
    """A scene in part darker and in part brighter than its five endmembers, and their library with classes."""
    random = np.random.default_rng(1)
    E = random.random((12, 5)) + 0.1
    A = random.dirichlet(np.full(5, 0.5), (6, 7)) * random.uniform(0.0, 1.3, (6, 7, 1))
    cube = A @ E.T + 0.01 * random.standard_normal((6, 7, 12))
    cube[0, 0] = 0.0
    cube[2, 3] = -7.0
    path = write_cube(tmp_path / "x.hdr", cube.astype(np.float32), data_ignore_value=-7)
    write_csv(tmp_path / "library.csv", E, names=[f"e{j}" for j in range(5)], classes=KINDS, level_1=[*"ababa"])
    return path, tmp_path / "library.csv", E, cube.astype(np.float32).astype(float)


@pytest.mark.sim
def test_at_most_one(device):
    random, E, Y = mix(0, 12, 15, 6, (0.1, 1.1))
    Y = Y * random.uniform(0.2, 1.5, (12, 1)) + 0.02 * random.standard_normal((12, 15))
    found = unmix.solve(Y, E, method="pcls", device=device)
    assert found.kappa.max() <= 1e-10 and found.delta.max() <= 1e-8 and found.abundances.shape == (12, 6)
    np.testing.assert_allclose(found.abundances, of_pixels(pcls, Y, E), atol=1e-9)
    assert (found.abundances.sum(axis=1) < 0.99).any() and np.isclose(found.abundances.sum(axis=1), 1).any()


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("method", ["pcls", "fcls", "nnls"])
def test_sums_by_class(tmp_path, scene, method, normalize):
    path, library, E, cube = scene
    report = unmix.run(
        path, endmembers=library, method=method, by="class", shade_normalize=normalize, residual=True, device="cpu"
    )
    has_shade = method == "pcls"
    names = ["soil", "tree", "npv", *["shade"] * has_shade, "brightness"]
    assert f"band names = {{{', '.join(names)}}}" in (tmp_path / "x_fraction.hdr").read_text()
    fraction = read_map(tmp_path / "x", "fraction")
    A = unmix.solve(cube, E, method=method).abundances
    for line, sample in np.ndindex(6, 7):
        if (line, sample) == (2, 3):
            assert np.all(fraction[line, sample] == -9999)
            continue
        a = A[line, sample]
        sums = [a[0] + a[2], a[1] + a[4], a[3]]
        total = sum(sums)
        if normalize:
            sums = [value / total for value in sums] if total > 0 else [-9999.0] * 3
        np.testing.assert_allclose(
            fraction[line, sample], [*sums, *[1 - total] * has_shade, total], rtol=2e-7, atol=1e-7
        )
    assert (fraction[0, 0, 0] == -9999) == (normalize and method != "fcls")  # a pixel that is all shade has no classes
    assert [(one["name"], one["spectra"]) for one in report["classes"]] == [("soil", 2), ("tree", 2), ("npv", 1)]
    assert sum(one["mean"] for one in report["classes"]) == pytest.approx(
        A.reshape(-1, 5).sum() / 41 - A[2, 3].sum() / 41, rel=1e-6
    )
    plain = tmp_path / "plain"
    unmix.run(path, endmembers=library, method=method, residual=True, device="cpu", out_dir=plain)
    for name in ("abundance", "rmse", "residual"):  # the other maps stay what they are without sums
        assert (plain / f"x_{name}.img").read_bytes() == (tmp_path / f"x_{name}.img").read_bytes()
    assert verify(tmp_path / "x", everything=True).faults == []


def test_where_classes_come_from(tmp_path, scene):
    _, library, E, _ = scene
    parts = [load(library)]
    assert parts[0].classes == KINDS
    assert classified(parts, "level_1", library)[0].classes == ("a", "b", "a", "b", "a")
    table = tmp_path / "kinds.csv"
    table.write_text("id,spectrum,kind\n" + "".join(f"{9 - j},e{j},k{j // 2}\n" for j in reversed(range(5))))
    assert classified(parts, f"{table}:KIND", library)[0].classes == ("k0", "k0", "k1", "k1", "k2")
    table.write_text("spectrum,kind\ne0,k\n")
    with pytest.raises(unmix.LibraryError, match="no row is for the spectrum 'e1' and 3 more"):
        prepared(parts, library, f"{table}:kind", None, None)
    for spec, words in (
        ("rock", "it has name, class, level_1"),
        ("7", "is a band"),
        (f"{tmp_path}/none.csv:kind", "no such file"),
    ):
        refused(unmix.LibraryError, words, classified, parts, spec, library)
    with pytest.raises(unmix.LibraryError, match="have no classes"):
        ClassSums.of(Endmembers(("a",), E[:, :1], None, source="E"), False)


def test_names_of_classes_are_matched_but_for_their_writing(tmp_path, caplog):
    """One to one, the exact ones first; rows and spectra without a partner are said; what `select` leaves out needs no row."""
    caplog.set_level("INFO", "unmix")
    names = ("BARE_SOIL_01", "bare soil 02", "Tree", "tree", "panel", "a.b", "ab")
    library = Endmembers(names, np.eye(9)[:, :7], None, source="l.csv")
    (tmp_path / "k.csv").write_text(
        "class,name\nsoil,Bare Soil 01\nsoil,Bare-Soil_02\nwood,tree\nroof,concrete 01\nx,A-B\n"
    )
    spec = f"{tmp_path / 'k.csv'}:class"
    parts = [library.take([0, 1, 3, 4])]
    assert prepared(parts, tmp_path / "l.csv", spec, None, "!panel")[0].classes == ("soil", "soil", "wood")
    assert "2 names matched but for case, blanks and signs" in caplog.text
    assert "no spectrum is for the row 'concrete 01' and 1 more" in caplog.text
    for some, select, words in (
        (parts, None, "for the spectrum 'panel'; add it, or leave it out with `select` '!panel'"),
        ([library.take([0, 5, 6])], None, r"for the spectrum 'a\.b' and 1 more"),  # either may be A-B
        ([library.take([2, 3])], None, "for the spectrum 'Tree'"),  # the row is that of tree
        ([library.take([4])], "!panel", "leaves no spectrum"),
    ):
        refused(unmix.LibraryError, words, prepared, some, tmp_path / "l.csv", spec, None, select)


@pytest.mark.parametrize("method", ["nnls", "pcls"])
def test_a_map_of_classes(tmp_path, scene, method):
    """Bytes that SPy and GDAL read as a classification; made again from the sums, also where shade is taken out."""
    path, library, E, cube = scene
    words = {"endmembers": library, "method": method, "by": "class", "class_map": True, "shade_normalize": True}
    unmix.run(path, device="cpu", **words)
    A = unmix.solve(cube, E, method=method).abundances
    sums = np.stack([A[..., 0] + A[..., 2], A[..., 1] + A[..., 4], A[..., 3]], axis=-1)
    expected = np.where(sums.max(axis=-1) > 0, sums.argmax(axis=-1) + 1, 0)
    expected[2, 3] = 0
    found = spectral.envi.open(str(tmp_path / "x_class.hdr"))
    np.testing.assert_array_equal(found[:, :, 0][..., 0] if found[:, :, 0].ndim == 3 else found[:, :, 0], expected)
    assert found.metadata["file type"] == "ENVI Classification" and found.metadata["data type"] == "1"
    assert found.metadata["class names"] == ["unclassified", "soil", "tree", "npv"] and found.metadata["classes"] == "4"
    assert len(found.metadata["class lookup"]) == 12 and found.metadata["class lookup"][:3] == ["0", "0", "0"]
    assert (tmp_path / "x_class.img").stat().st_size == 6 * 7


@pytest.mark.parametrize("where", ["library", "table", "sli"])
def test_classes_have_the_colours_of_a_column(tmp_path, scene, where):
    """Of the library as CSV or ENVI, or of the table of classes: the first that a class has; else the palette's. QGIS gets them."""
    path, library, _, _ = scene
    colors = ["", "#00aa00", " Brown", "", "red"]  # soil is of 0 and 2, tree of 1 and 4, npv of 3
    rows = [line.split(",") for line in library.read_text().splitlines()]
    kind = rows[0].index("class")
    words = {"endmembers": library, "by": "class", "class_map": True, "method": "nnls", "device": "cpu"}
    if where == "table":
        lines = ["name,class,color", *(f"{row[0]},{row[kind]},{one}" for row, one in zip(rows[1:], colors))]
        (tmp_path / "k.csv").write_text("\n".join(lines) + "\n")
        words["classes"] = str(tmp_path / "k.csv")
    else:
        library.write_text("\n".join(",".join([*row, one]) for row, one in zip(rows, ["color", *colors])) + "\n")
        load(library).write(None, tmp_path / "m.sli", tmp_path / "m.hdr")
        words["endmembers"] = tmp_path / "m.sli" if where == "sli" else library
    unmix.run(path, **words)
    shown = [0, 0, 0, 0xA5, 0x2A, 0x2A, 0, 0xAA, 0, *colour_of(3)]
    assert spectral.envi.open(str(tmp_path / "x_class.hdr")).metadata["class lookup"] == [*map(str, shown)]
    assert load(tmp_path / "x_endmembers.csv").colors == load(tmp_path / "x_endmembers.sli").colors
    assert load(tmp_path / "x_endmembers.sli").colors == ("", "#00aa00", "#a52a2a", "", "#ff0000")
    unmix.export(tmp_path / "x", tmp_path / "gis", format="envi", maps=["class"], style=True)
    style = (tmp_path / "gis/x_class.qml").read_text()
    assert 'value="1" label="soil" color="#a52a2a" alpha="255"' in style and 'value="0" label="unclassified"' in style
    unmix.report(tmp_path / "x")
    assert "#00aa00" in (tmp_path / "x_report.html").read_text()
    if where == "library":
        library.write_text(library.read_text().replace("#00aa00", "#00ab00"))
        refused(unmix.OutputError, "is of another run: colors differ", unmix.run, path, skip_existing=True, **words)
        library.write_text(library.read_text().replace("#00ab00", "greenish"))
        with pytest.raises(unmix.LibraryError, match="color 'greenish': write #rrggbb, or black, "):
            unmix.run(path, overwrite=True, **words)


def test_colours_go_with_their_spectra(tmp_path, sli):
    library = replace(load(sli), colors=("#111111", "", "#333333"))
    assert library.take([2, 0]).colors == ("#333333", "#111111") and library.with_shade().colors == (
        *library.colors,
        "",
    )
    assert (
        merged_libraries([load(sli), library]).colors == ("", "", "", "#111111", "", "#333333")
        and merged_libraries([load(sli)]).colors is None
    )
    assert Endmembers.from_dict(library.to_dict()).colors == library.colors


def test_a_class_of_the_name_shade(tmp_path, scene):
    path, library, *_ = scene
    library.write_text(library.read_text().replace(",tree,", ",shade,"))
    unmix.run(path, endmembers=library, method="pcls", by="class", class_map=True, device="cpu")
    assert verify(tmp_path / "x", everything=True).faults == []


@pytest.mark.parametrize("top", [None, 2, 6])
def test_verify_looks_at_pixels_with_more_than_one_answer(tmp_path, scene, top):
    """A spectrum twice in the library: any share of the two is an answer, but nothing else is."""
    path, library, *_ = scene
    rows = library.read_text().splitlines()
    library.write_text("\n".join([*rows, rows[1].replace("e0", "again").replace(",soil,", ",other,")]))
    words = {"endmembers": library, "method": "nnls", "by": "class", "class_map": True, "device": "cpu", "top": top}
    unmix.run(path, **words)
    bands = 6 if top is None else top
    A = np.fromfile(tmp_path / "x_abundance.img", "<f4").reshape(6, bands, 7)
    line, _, sample = next(place for place in np.argwhere(A > 0.3) if place[1] == 0 and tuple(place[::2]) != (2, 3))
    at = (line * bands) * 7 + sample
    verify_tells(tmp_path / "x", "abundance", 6, lambda values: values.put(at, -55.0))


@pytest.mark.parametrize("form", ["geotiff", "cog", "hdf5"])
def test_a_map_of_classes_in_other_formats(tmp_path, scene, form):
    path, library, *_ = scene
    if form in ("geotiff", "cog"):
        rasterio = pytest.importorskip("rasterio")
    words = {"endmembers": library, "method": "nnls", "by": "class", "class_map": True, "device": "cpu"}
    unmix.run(path, out_dir=tmp_path / "envi", **words)
    unmix.run(path, out_dir=tmp_path / "o", format=form, **words)
    assert verify(tmp_path / "o/x", path, everything=True).faults == []
    expected = np.fromfile(tmp_path / "envi/x_class.img", np.uint8).reshape(6, 7)
    assert not [name for name in (tmp_path / "o").iterdir() if "part" in name.name or "aux" in name.name]
    if form in ("geotiff", "cog"):
        with rasterio.open(tmp_path / "o/x_class.tif") as opened:
            np.testing.assert_array_equal(opened.read(1), expected)
            assert opened.dtypes == ("uint8",) and opened.nodata == 0 and opened.colormap(1)[1][:3] == (0, 120, 156)
            assert opened.tags(1)["CLASSES"] == "0 unclassified; 1 soil; 2 tree; 3 npv"
    else:
        with h5py.File(tmp_path / "o/x_class.h5") as opened:
            np.testing.assert_array_equal(opened["class"][0], expected)
            assert opened["class"].attrs["flag_meanings"] == b"unclassified soil tree npv"
            assert opened["class"].attrs["flag_values"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("form", rest_slow(["envi", "geotiff", "cog", "hdf5", "netcdf"], "envi", "geotiff"))
def test_one_pixel(tmp_path, scene, form):
    """GDAL does not recognise a file of one byte."""
    path, library, *_ = scene
    how = {"endmembers": library, "method": "nnls", "by": "class"}
    report = unmix.run(path, class_map=True, lines="3:4", samples="4:5", format=form, out_dir=tmp_path / "o", **how)
    assert report["pixels"]["solved"] == 1 and verify(tmp_path / "o/x", path).faults == []


def test_tables_are_not_overwritten(tmp_path, scene):
    """A table of classes, or of noise, where the run would write its endmembers."""
    path, library, *_ = scene
    table = tmp_path / "o" / f"{path.stem}_endmembers.csv"
    table.parent.mkdir()
    table.write_text("name,kind\n" + "".join(f"e{j},k\n" for j in range(5)))
    for words in ({"classes": f"{table}:kind"}, {"uncertainty": True, "noise": table}):
        with pytest.raises(unmix.MethodError, match=r"_endmembers\.csv"):
            unmix.run(path, endmembers=library, by="class", out_dir=table.parent, overwrite=True, **words)
    assert table.read_text().startswith("name,kind")


def test_check_knows_a_library_in_other_units(tmp_path, scene):
    path, library, *_ = scene
    percent = tmp_path / "percent.csv"
    rows = [row.split(",") for row in library.read_text().splitlines()]
    numbers = [i for i, cell in enumerate(rows[0]) if cell.replace(".", "").isdigit()]
    for row in rows[1:]:
        for i in numbers:
            row[i] = repr(100 * float(row[i]))
    percent.write_text("\n".join(",".join(row) for row in rows))
    assert any(f["about"] == "scale" and f["severity"] != "info" for f in unmix.check(path, percent)["findings"])
    report = unmix.check(path, percent, library_scale=100.0, classes="level_1")
    assert [f["severity"] for f in report["findings"] if f["about"] == "scale"] == ["info"]
    assert "has no column" in str(unmix.check(path, percent, classes="rock")["findings"])
    refused(unmix.MethodError, "give one with `endmembers`", unmix.check, path, library_scale=2.0)


def test_shade_of_a_file(tmp_path, scene):
    """A shade that is not zero is an endmember of fcls, and what is written to the library."""
    path, library, E, cube = scene
    dark = np.linspace(0.01, 0.05, 12)
    shade = write_csv(tmp_path / "shade.csv", dark[:, None])
    unmix.run(path, endmembers=library, method="pcls", shade=shade, by="class", device="cpu")
    expected = unmix.solve(cube, np.column_stack([E, dark]), method="fcls").abundances
    found = read_map(tmp_path / "x", "abundance")
    good = found[..., 0] != -9999
    np.testing.assert_allclose(found[good], expected[good], atol=1e-7)
    assert load(tmp_path / "x_endmembers.csv").names[-1] == "shade"
    assert verify(tmp_path / "x", everything=True).faults == []


def test_a_library_in_other_units(tmp_path, scene):
    path, _, E, cube = scene
    big = write_csv(tmp_path / "big.csv", E * 10000)
    unmix.run(path, endmembers=big, library_scale=10000, method="pcls", device="cpu")
    found = read_map(tmp_path / "x", "abundance")
    good = found[..., 0] != -9999
    np.testing.assert_allclose(found[good][:, :5], unmix.solve(cube, E, method="pcls").abundances[good], atol=1e-6)


def test_a_library_with_shade_of_its_own_is_refused(scene):
    E = scene[2]
    with pytest.raises(unmix.LibraryError, match="pcls adds shade itself"):
        unmix.solve(np.ones(12), np.column_stack([E, np.zeros(12)]), method="pcls")


@pytest.mark.real
def test_jasper_by_class(tmp_path, data):
    """Every pixel of a real scene certified with 529 spectra of 198 bands and shade, and 300 of them against scipy."""
    report = unmix.run(
        data / "jasper/jasper.hdr",
        endmembers=data / "libraries/spectral_library_jasperRidge.mat",
        method="pcls",
        by="class",
        device="cpu",
        out_dir=tmp_path,
    )
    assert report["certified"] and report["pixels"]["certified"] == 10_000
    assert [one["name"] for one in report["classes"]] == ["Tree", "Water", "Dirt", "Road"]
    fraction = read_map(tmp_path / "jasper", "fraction")
    np.testing.assert_allclose(fraction[..., 4] + fraction[..., 5], 1, atol=1e-6)
    assert verify(tmp_path / "jasper", sample=300).faults == []
