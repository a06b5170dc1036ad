"""Comparisons of runs against the same done in numpy."""

import json

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.ndimage
from conftest import mix, read_values, refused, write_csv, write_cube
from test_cli import unmix as command

import unmix
from unmix.commands.finished import blocks, sides
from unmix.commands.finished import compare as module
from unmix.commands.finished.grids import transform_of
from unmix.commands.verify import verify
from unmix.io.cube import band_names, by_pixel, read_lines


@pytest.fixture
def scene(tmp_path):
    """A scene with two masked pixels, its endmembers, and the same in another order."""
    _, E, Y = mix(3, (11, 13), 15, 4, noise=0.02, dtype=np.float32)
    Y[2, 3] = Y[9, 1] = -9999
    write_csv(tmp_path / "e.csv", E)
    write_csv(tmp_path / "f.csv", E[:, [2, 0, 3, 1]])
    write_csv(tmp_path / "g.csv", E[:, [3, 1]])
    return write_cube(tmp_path / "s.hdr", Y, data_ignore_value=-9999)


def abundances(stem):
    return read_values(stem.with_name(stem.name + "_abundance.hdr")).astype(float)


@pytest.mark.parametrize("block", [2**24, 13 * 4 * 4 * 3])
def test_against_numpy(tmp_path, scene, monkeypatch, block):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", block)
    unmix.run(scene, endmembers=tmp_path / "e.csv", out_dir=tmp_path / "a")
    unmix.run(scene, endmembers=tmp_path / "f.csv", method="nnls", out_dir=tmp_path / "b", lines="0:11")
    found = unmix.compare(tmp_path / "a/s", tmp_path / "b/s_run.json")
    A, B = abundances(tmp_path / "a/s"), abundances(tmp_path / "b/s")[..., [1, 3, 0, 2]]
    present = A[..., 0] != -9999
    D = np.where(present[..., None], A - B, 0.0)
    assert found["pixels"] == {"compared": 141, "only_a": 0, "only_b": 0} and found["matched_by"] == "spectral angle"
    expected = ["em 1, em 2", "em 2, em 4", "em 3, em 1", "em 4, em 3"]
    assert [f"{pair['a']}, {pair['b']}" for pair in found["pairs"]] == expected
    for j, pair in enumerate(found["pairs"]):
        assert pair["rmse"] == pytest.approx(np.sqrt(np.square(D[..., j]).sum() / 141)) and pair["angle"] < 1e-5
        assert pair["mean_difference"] == pytest.approx(D[..., j].sum() / 141)
        assert pair["largest_difference"] == D[pair["line"], pair["sample"], j]
        assert abs(pair["largest_difference"]) == np.abs(D[..., j]).max()
    assert found["rmse"] == pytest.approx(np.sqrt(np.square(D).sum() / 141 / 4))
    assert found["sre"] == pytest.approx(10 * np.log10(np.square(B[present]).sum() / np.square(D).sum()))
    assert found["certified"] == [141, 141]


def test_a_table_of_runs_and_a_truth(tmp_path, scene):
    for method in ("nnls", "fcls"):
        unmix.run(scene, endmembers=tmp_path / "e.csv", method=method, out_dir=tmp_path / method)
    one, other = tmp_path / "nnls/s", tmp_path / "fcls/s"
    out, _ = command("compare", one, other, "--truth", f"{other}_abundance.hdr", "--json")
    rows, expected = json.loads(out)["maps"], unmix.compare(one, f"{other}_abundance.hdr")
    assert rows[0]["pairs"] == expected["pairs"] and rows[1]["rmse"] == 0 and rows[1]["seconds"] is not None
    out, _ = command("compare", one, other, f"{one}_abundance.hdr", "--truth", other)
    assert len(out.splitlines()) == 4 and out.splitlines()[2].split()[2:5] == ["0.0000", "0.00°", "inf"]
    command("compare", one, code=2, tells="1 maps: two are compared, or any number with --truth")


@pytest.mark.slow
def test_how_many_values_are_inside_of_ranges(tmp_path, scene):
    words = {"endmembers": tmp_path / "e.csv", "method": "nnls"}
    unmix.run(scene, out_dir=tmp_path / "a", ranges="each", within=2e-5, **words)
    unmix.run(scene, endmembers=tmp_path / "f.csv", method="fcls", out_dir=tmp_path / "b", lines="2:9")
    page = tmp_path / "c.html"
    found = unmix.compare(tmp_path / "a/s", tmp_path / "b/s", out=page)
    R, B = read_values(tmp_path / "a/s_range.hdr")[2:9], abundances(tmp_path / "b/s")[..., [1, 3, 0, 2]]
    present = B[..., 0] != -9999
    lower, upper = R[..., 0::2] - 1e-6, R[..., 1::2] + 1e-6
    inside = ((lower <= B) & (upper >= B))[present].mean(axis=0)
    assert [pair["inside"] for pair in found["pairs"]] == pytest.approx(inside) and 0 < inside.min() < inside.max() < 1
    assert "B in range of A" in page.read_text()
    command("compare", tmp_path / "a/s", tmp_path / "b/s", says=("B in range of A", f"{100 * inside[0]:.1f} %"))
    same = unmix.compare(tmp_path / "a/s", tmp_path / "a/s")
    assert [pair["inside"] for pair in same["pairs"]] == [1.0] * 4
    assert all("inside" not in pair for pair in unmix.compare(tmp_path / "b/s", tmp_path / "a/s")["pairs"])


def test_numbers_of_papers(tmp_path, scene, caplog):
    """A reference in per cent with an undeclared fill value; a band that does not vary has no R²."""
    unmix.run(scene, endmembers=tmp_path / "e.csv", method="nnls", out_dir=tmp_path / "a")
    A = abundances(tmp_path / "a/s")
    B = np.clip(0.9 * A + 0.03 * np.random.default_rng(8).standard_normal(A.shape), 0, 1)
    B[..., 3] = 0.25
    reference = (100 * B).astype(np.float32)
    reference[5, :4] = -99
    truth = write_cube(tmp_path / "t.hdr", reference, band_names="{em 1, em 2, em 3, em 4}")
    unmix.compare(tmp_path / "a/s", truth)
    assert "values from -99 to" in caplog.text and "`nodata` -99 if" in caplog.text
    caplog.clear()
    found = unmix.compare(tmp_path / "a/s", truth, nodata=-99, scale=100)
    assert "nodata" not in caplog.text and found["pixels"] == {"compared": 137, "only_a": 4, "only_b": 2}
    present = (A[..., 0] != -9999) & (reference[..., 0] != -99)
    a, b = A[present], reference[present].astype(float) / 100
    for k, pair in enumerate(found["pairs"]):
        assert pair["mae"] == pytest.approx(np.abs(a - b)[:, k].mean())
        assert pair["mean_difference"] == pytest.approx((a - b)[:, k].mean())
        if k == 3:
            assert pair["r2"] is None and pair["slope"] is None
            continue
        assert pair["r2"] == pytest.approx(1 - np.square(a - b)[:, k].sum() / np.square(b[:, k] - b[:, k].mean()).sum())
        assert pair["slope"] == pytest.approx(np.polyfit(b[:, k], a[:, k], 1)[0])
    shifted = unmix.compare(tmp_path / "a/s", truth, nodata=-99, scale=100, offset=0.25)
    assert [pair["mean_difference"] + 0.25 for pair in shifted["pairs"]] == pytest.approx(
        [pair["mean_difference"] for pair in found["pairs"]]
    )
    out, _ = command("compare", tmp_path / "a/s", truth, "--nodata", "-99", "--scale", "100")
    assert "137 pixels compared" in out and f"{found['pairs'][0]['r2']:.3f}" in out
    for words, text in (({"scale": 0}, "must be above 0"), ({"nodata": -99}, "for rasters that no run wrote")):
        refused(unmix.MethodError, text, unmix.compare, tmp_path / "a/s", tmp_path / "a/s", **words)


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e7])
@pytest.mark.parametrize("block", [2**24, 8 * 20 * 3])
def test_values_far_from_zero(tmp_path, monkeypatch, offset, block):
    """R², slope, and which bands belong together are those of the values without their offset."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", block)
    random = np.random.default_rng(9)
    b = random.standard_normal((12, 20, 3))
    a = (0.7 * b + 0.1 * random.standard_normal(b.shape))[..., [2, 0, 1]]
    for name, values in (("a", a), ("b", b)):
        write_cube(tmp_path / f"{name}.hdr", values + offset)
    found = unmix.compare(tmp_path / "a.hdr", tmp_path / "b.hdr")["pairs"]
    pairs = [[pair[side].rpartition(" ")[2] for side in "ab"] for pair in found]
    assert [(int(i) - 1, int(j) - 1) for i, j in pairs] == [(0, 2), (1, 0), (2, 1)]
    for k, (pair, j) in enumerate(zip(found, (2, 0, 1))):
        d, c = (a[..., k] - b[..., j]).ravel(), b[..., j].ravel() - b[..., j].mean()
        assert pair["r2"] == pytest.approx(1 - d @ d / (c @ c), rel=1e-6)
        assert pair["slope"] == pytest.approx(np.polyfit(b[..., j].ravel(), a[..., k].ravel(), 1)[0], rel=1e-6)


def test_fewer_endmembers_and_pixels(tmp_path, scene, caplog):
    unmix.run(scene, endmembers=tmp_path / "e.csv", out_dir=tmp_path / "a", format="hdf5")
    keep = np.ones((11, 13, 1), np.uint8)
    keep[0, :5] = 0
    write_cube(tmp_path / "k.hdr", keep)
    unmix.run(scene, endmembers=tmp_path / "g.csv", out_dir=tmp_path / "b", mask=str(tmp_path / "k.hdr"))
    found = unmix.compare(tmp_path / "a/s", tmp_path / "b/s")
    assert found["pixels"] == {"compared": 136, "only_a": 5, "only_b": 0}
    assert [(pair["a"], pair["b"]) for pair in found["pairs"]] == [("em 2", "em 2"), ("em 4", "em 1")]
    assert found["only_a"] == ["em 1", "em 3"] and found["only_b"] == []
    assert "s: 2 maps without a partner: " in caplog.text and "in the mean: one" not in caplog.text
    out, _ = command("compare", tmp_path / "a/s", tmp_path / "b/s")
    for words in ("136 pixels compared, 5 only in A", "without a partner in B: em 1, em 3", "A 141, B 136"):
        assert words in out
    assert json.loads(command("compare", tmp_path / "a/s", tmp_path / "b/s", "--json")[0]) == found


def test_a_truth_without_spectra_is_matched_by_abundances(tmp_path, scene):
    unmix.run(scene, endmembers=tmp_path / "e.csv")
    truth = abundances(tmp_path / "s")[..., [3, 0, 2, 1]].astype(np.float32)
    write_cube(tmp_path / "t.hdr", truth + np.where(truth == -9999, 0, np.float32(0.01)), data_ignore_value=-9999)
    found = unmix.compare(tmp_path / "s", tmp_path / "t.hdr")
    assert found["matched_by"] == "abundances"
    assert [pair["b"] for pair in found["pairs"]] == ["Band 2", "Band 4", "Band 3", "Band 1"]
    assert found["rmse"] == pytest.approx(0.01, rel=1e-4) and found["certified"] == [141, None]


@pytest.mark.slow
def test_classes_are_matched_by_name(tmp_path, scene):
    library = with_classes(tmp_path)
    unmix.run(scene, endmembers=library, method="pcls", by="class", out_dir=tmp_path / "a")
    unmix.run(scene, endmembers=library, method="mesma", out_dir=tmp_path / "m")
    found = unmix.compare(tmp_path / "a/s", tmp_path / "m/s")
    assert found["matched_by"] == "name"
    assert [pair["a"] for pair in found["pairs"]] == ["x", "y", "z", "shade", "brightness"]
    assert all(pair["a"] == pair["b"] for pair in found["pairs"])


def with_classes(tmp_path, kinds="xyxz"):
    """The library, and a class for each of its spectra."""
    lines = (tmp_path / "e.csv").read_text().splitlines()
    text = "\n".join(f"{line},{kind}" for line, kind in zip(lines, ("class", *kinds)))
    (tmp_path / "c.csv").write_text(text + "\n")
    return tmp_path / "c.csv"


@pytest.mark.slow
def test_classes_are_no_endmembers(tmp_path, scene):
    unmix.run(scene, endmembers=with_classes(tmp_path), method="mesma", out_dir=tmp_path / "m")
    unmix.run(scene, endmembers=tmp_path / "e.csv", out_dir=tmp_path / "a")
    (tmp_path / "a/s_run.json").unlink()  # so that they are of no run
    for pair in (("m/s", "a/s_abundance.hdr"), ("a/s_abundance.hdr", "m/s")):
        refused(unmix.InputError, "none have the same name", unmix.compare, *(tmp_path / name for name in pair))


def test_other_parts_and_other_bands(tmp_path, scene):
    words = {"endmembers": tmp_path / "e.csv"}
    unmix.run(scene, **words, lines="0:5", out_dir=tmp_path / "a")
    unmix.run(scene, **words, lines="5:10", out_dir=tmp_path / "b")
    refused(unmix.InputError, "another part of the scene", unmix.compare, tmp_path / "a/s", tmp_path / "b/s")
    unmix.run(scene, **words, bands="1-7", out_dir=tmp_path / "c")
    unmix.run(scene, **words, bands="8-14", out_dir=tmp_path / "d")
    found = unmix.compare(tmp_path / "c/s", tmp_path / "d/s")
    assert found["matched_by"] == "abundances" and all(pair["a"] == pair["b"] for pair in found["pairs"])


def test_parts_of_a_scene(tmp_path, scene):
    """Of two parts the pixels of both are compared, as if both were of the whole; a truth of the whole scene goes with a part."""
    words = {"endmembers": tmp_path / "e.csv"}
    unmix.run(scene, **words, lines="0:7", samples="2:13", out_dir=tmp_path / "a")
    unmix.run(scene, **words, method="nnls", lines="3:11", samples="0:9", out_dir=tmp_path / "b")
    unmix.run(scene, **words, out_dir=tmp_path / "whole")
    unmix.run(scene, **words, method="nnls", out_dir=tmp_path / "other")
    A, B = abundances(tmp_path / "whole/s")[3:7, 2:9], abundances(tmp_path / "other/s")[3:7, 2:9]
    assert (A[..., 0] != -9999).all()
    found = unmix.compare(tmp_path / "a/s", tmp_path / "b/s")
    assert found["pixels"] == {"compared": 28, "only_a": 77 - 1 - 28, "only_b": 72 - 1 - 28}  # one is masked
    D = A - B
    for j, pair in enumerate(found["pairs"]):
        assert pair["rmse"] == pytest.approx(np.sqrt(np.square(D[..., j]).mean()))
        line, sample = np.unravel_index(np.abs(D[..., j]).argmax(), D.shape[:2])
        assert (pair["line"], pair["sample"]) == (line + 3, sample)  # lines of a, which begins at line 0 and sample 2
    (tmp_path / "other/s_run.json").unlink()
    truth = unmix.compare(tmp_path / "a/s", tmp_path / "other/s_abundance.hdr")
    D = (abundances(tmp_path / "whole/s") - abundances(tmp_path / "other/s"))[:7, 2:, 0]
    assert truth["pixels"]["compared"] == 7 * 11 - 1
    assert truth["pairs"][0]["rmse"] == pytest.approx(np.sqrt(np.square(D).mean() * 77 / 76))
    for lines, samples in ((5, 4), (12, 13)):  # smaller than the part, and larger than the scene
        write_cube(tmp_path / "small.hdr", np.zeros((lines, samples, 4), np.float32))
        with pytest.raises(unmix.InputError, match=f"has {lines} lines of {samples} samples, but"):
            unmix.compare(tmp_path / "a/s", tmp_path / "small.hdr")


def test_parts_of_other_scenes(tmp_path, scene):
    """A crop that was made beforehand, and another scene, are no parts of this one."""
    random = np.random.default_rng(1)
    words = {"endmembers": tmp_path / "e.csv", "out_dir": tmp_path / "o"}
    unmix.run(scene, **words)
    for name, shape in (("crop", (6, 9)), ("wide", (20, 30))):
        unmix.run(write_cube(tmp_path / f"{name}.hdr", random.random((*shape, 15))), **words)
        for pair in ((name, "s"), ("s", name)):
            with pytest.raises(unmix.InputError, match="not known to be of one scene"):
                unmix.compare(*(tmp_path / "o" / one for one in pair))


def test_the_page(tmp_path, scene):
    unmix.run(scene, endmembers=tmp_path / "e.csv", out_dir=tmp_path / "a")
    unmix.run(scene, endmembers=tmp_path / "f.csv", method="nnls", out_dir=tmp_path / "b")
    out, _ = command("compare", tmp_path / "a/s", tmp_path / "b/s", "-o", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    found = unmix.compare(tmp_path / "a/s", tmp_path / "b/s", out=tmp_path / "page.html")  # its own page is replaced
    assert page == (tmp_path / "page.html").read_text() and out.splitlines()[0] == "141 pixels compared"
    assert page.count("<img") == 12 and all(f"{pair['rmse']:.3g}" in page for pair in found["pairs"])
    both = [sides.side_of(tmp_path / side / "s", None) for side in "ab"]
    views, _ = module.pictures_of(*both, [(0, 1), (1, 3), (2, 0), (3, 2)], found)
    D = abundances(tmp_path / "a/s") - abundances(tmp_path / "b/s")[..., [1, 3, 0, 2]]
    for _, _, difference in views:
        k = int(difference.name[3]) - 1
        expected = np.where(abundances(tmp_path / "a/s")[..., 0] != -9999, D[..., k], np.nan).astype(np.float32)
        np.testing.assert_array_equal(difference.picture, expected)
        assert difference.low == -difference.high and difference.counts.sum() == 141
    (tmp_path / "page.html").write_text("mine")
    refused(unmix.OutputError, "exists", unmix.compare, tmp_path / "a/s", tmp_path / "b/s", out=tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == "mine"
    with pytest.raises(unmix.MethodError, match=r"name a page, .html"):
        unmix.compare(tmp_path / "a/s", tmp_path / "b/s", out=tmp_path / "page.png")


def test_the_map_that_a_file_names(tmp_path, scene):
    unmix.run(scene, endmembers=with_classes(tmp_path), by="class", out_dir=tmp_path / "a")
    pairs = unmix.compare(tmp_path / "a/s_fraction.img", tmp_path / "a/s")["pairs"]
    assert [pair["a"] for pair in pairs][:3] == ["x", "y", "z"]
    assert unmix.compare(tmp_path / "a/s_abundance.img", tmp_path / "a/s")["matched_by"] == "spectral angle"


def test_a_scene_named_after_a_map(tmp_path, scene):
    for ending in (".hdr", ".img"):
        (tmp_path / f"site_fraction_1{ending}").write_bytes((tmp_path / f"s{ending}").read_bytes())
    unmix.run(tmp_path / "site_fraction_1.hdr", endmembers=tmp_path / "e.csv")
    unmix.run(scene, endmembers=tmp_path / "e.csv")
    assert unmix.compare(tmp_path / "site_fraction_1", tmp_path / "s")["rmse"] == 0


@pytest.mark.parametrize(
    "changed", [{"format": "zarr"}, {"format": []}, {"endmembers": None}, {"digests": None}, {"pixels": [1]}]
)
def test_damaged_records(tmp_path, scene, changed):
    unmix.run(scene, endmembers=tmp_path / "e.csv")
    record = tmp_path / "s_run.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | changed))
    refused(unmix.OutputError, None, unmix.compare, tmp_path / "s", tmp_path / "s")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("s", "none"), "no finished run"),
        (("s", "s.hdr2"), "no finished run"),
        (("s", "small.hdr"), "has 5 lines"),
        (("s", "top/s"), "top"),
        (("s", "."), "is a folder"),
    ],
)
def test_what_cannot_be_compared(tmp_path, scene, words, text):
    unmix.run(scene, endmembers=tmp_path / "e.csv")
    unmix.run(scene, endmembers=tmp_path / "e.csv", top=2, out_dir=tmp_path / "top")
    write_cube(tmp_path / "small.hdr", np.zeros((5, 13, 4), np.float32))
    refused(unmix.UnmixError, text, unmix.compare, *(tmp_path / word for word in words))
    refused(unmix.OutputError, "wrote no fraction", unmix.compare, tmp_path / "s", tmp_path / "s", "fraction")


def test_shade_is_no_spectrum(tmp_path, scene):
    """Shade goes with shade, whatever the angles; a zero spectrum is at no angle to any other."""
    words = {"endmembers": tmp_path / "e.csv"}
    unmix.run(scene, **words, out_dir=tmp_path / "a")
    unmix.run(scene, **words, method="pcls", out_dir=tmp_path / "p")
    for pair, alone in (("ap", "only_b"), ("pa", "only_a")):
        found = unmix.compare(*(tmp_path / one / "s" for one in pair))
        assert [(one["a"], one["b"]) for one in found["pairs"]] == [(f"em {k}", f"em {k}") for k in (1, 2, 3, 4)]
        assert found[alone] == ["shade"] and found["rmse"] < 0.2 and all(one["angle"] < 1e-5 for one in found["pairs"])
    found = unmix.compare(tmp_path / "p/s", tmp_path / "p/s")
    assert found["pairs"][-1]["a"] == found["pairs"][-1]["b"] == "shade" and found["pairs"][-1]["angle"] is None
    assert found["rmse"] == 0 and found["sre"] is None and all(one["line"] is None for one in found["pairs"])


def test_equal_spectra_go_by_name(tmp_path, scene):
    rows = (tmp_path / "e.csv").read_text().splitlines()
    (tmp_path / "t.csv").write_text("\n".join([*rows, "twin" + rows[2][rows[2].index(",") :]]) + "\n")
    unmix.run(scene, endmembers=tmp_path / "t.csv", method="nnls", out_dir=tmp_path / "a")
    found = unmix.compare(tmp_path / "a/s", tmp_path / "a/s")
    assert all(one["a"] == one["b"] for one in found["pairs"])


def test_other_scenes_of_one_size(tmp_path, scene, caplog):
    random = np.random.default_rng(1)
    for path in (scene, write_cube(tmp_path / "other.hdr", random.random((11, 13, 15)).astype(np.float32))):
        unmix.run(path, endmembers=tmp_path / "e.csv", out_dir=tmp_path / "o")
    with caplog.at_level("INFO", "unmix"):
        unmix.compare(tmp_path / "o/s", tmp_path / "o/other")
    assert "two scenes, of which pixels" in caplog.text
    caplog.clear()
    unmix.run(scene, endmembers=tmp_path / "e.csv", out_dir=tmp_path / "o2", method="nnls")
    unmix.compare(tmp_path / "o/s", tmp_path / "o2/s")
    assert "another scene" not in caplog.text
    with pytest.raises(unmix.OutputError, match=r"is a folder; name a run in it: .*other, .*s"):
        unmix.export(tmp_path / "o", tmp_path / "e")


def placed(path, values, size, corner=(500000.0, 4100000.0), zone="11, North, WGS-84", **fields):
    """Write a map whose pixels have that size, from a corner on."""
    where = f"{{UTM, 1, 1, {corner[0]}, {corner[1]}, {size}, {size}, {zone}, units=Meters}}"
    return write_cube(path, values, map_info=where, **fields)


def by_area(fine, coarse, size, corner, steps):
    """Average the slow way: each coarse pixel by the areas of the fine pixels in it."""
    means, has = np.zeros((*coarse, fine.shape[2])), np.zeros(coarse, bool)
    known = (fine != -9999).all(axis=2)
    for i, j in np.ndindex(coarse):
        total = 0.0
        for k, m in np.ndindex(fine.shape[:2]):
            down = min((i + 1) * size, (k + 1) * steps + corner[0]) - max(i * size, k * steps + corner[0])
            across = min((j + 1) * size, (m + 1) * steps + corner[1]) - max(j * size, m * steps + corner[1])
            if down > 0 and across > 0 and known[k, m]:
                means[i, j] += down * across * fine[k, m]
                total += down * across
        has[i, j] = total >= size**2 / 2
        means[i, j] /= max(total, 1e-9)
    return means, has


@pytest.mark.parametrize("block", [2**24, 300])
@pytest.mark.parametrize(
    ("steps", "shift"), [(10.0, (0.0, 0.0)), (7.0, (-20.0, 11.0)), (30.0, (60.0, -30.0)), (24.0, (4.0, 0.0))]
)
def test_grids(tmp_path, monkeypatch, caplog, block, steps, shift):
    """The map with the smaller pixels is averaged by area, whichever comes first; of one grid it is only cut."""
    caplog.set_level("INFO", "unmix")
    monkeypatch.setattr(blocks, "BLOCK_BYTES", block)
    random = np.random.default_rng(5)
    coarse = random.dirichlet(np.ones(3), (6, 5)).astype(np.float32)
    fine = random.dirichlet(np.ones(3), (23, 26)).astype(np.float32)
    fine[2:5, 3:9] = -9999
    fields = {"data_ignore_value": -9999, "band_names": "{soil, tree, roof}"}
    a = placed(tmp_path / "a.hdr", coarse, 30.0, **fields)
    b = placed(tmp_path / "b.hdr", fine, steps, (500000.0 + shift[1], 4100000.0 - shift[0]), **fields)
    means, has = by_area(fine.astype(float), (6, 5), 30.0, shift, steps)
    found = unmix.compare(a, b)
    D = (coarse - means)[has]
    assert found["pixels"]["compared"] == has.sum() > 4 and found["averaged"] == ("b" if steps < 30 else None)
    assert ("averaged by area" in caplog.text) == (steps < 30) != ("on the same grid as" in caplog.text)
    for k, pair in enumerate(found["pairs"]):
        assert pair["rmse"] == pytest.approx(np.sqrt(np.square(D[:, k]).mean()))
    known = fine[..., 0] != -9999  # and the coarse map has values everywhere
    assert found["pixels"]["only_a"] == 30 - has.sum()
    beyond = {10: (known.sum() - known[:18, :15].sum()) / 9, 30: known.sum() - has.sum()}
    if steps in beyond:
        assert found["pixels"]["only_b"] == pytest.approx(beyond[steps], abs=0.5)
    other = unmix.compare(b, a)
    assert [other["pixels"][key] for key in ("only_b", "only_a")] == [
        found["pixels"][key] for key in ("only_a", "only_b")
    ]
    assert other["averaged"] == (None if steps == 30 else "a")
    if steps < 30:
        assert [pair["rmse"] for pair in other["pairs"]] == pytest.approx([pair["rmse"] for pair in found["pairs"]])
        assert [pair["mean_difference"] for pair in other["pairs"]] == pytest.approx(-D.mean(axis=0))


def test_places_that_do_not_meet(tmp_path, caplog):
    values = np.random.default_rng(2).dirichlet(np.ones(2), (4, 4)).astype(np.float32)
    a = placed(tmp_path / "a.hdr", values, 30.0)
    unmix.compare(a, placed(tmp_path / "same.hdr", values, 30.0, (500000.1, 4100000.0)))
    assert not caplog.text
    assert unmix.compare(a, placed(tmp_path / "far.hdr", values, 30.0, (700000.0, 4100000.0)))["averaged"] is None
    assert "of another place" in caplog.text
    nowhere = write_cube(tmp_path / "n.hdr", values[:3], map_info="{Arbitrary, 1, 1, 0, 0, 1, 1}")
    turned = placed(tmp_path / "t.hdr", values[:3], 10.0, zone="11, North, WGS-84, rotation=12")
    for other in (nowhere, turned, placed(tmp_path / "off.hdr", values[:3], 10.0, (700000.0, 4100000.0))):
        refused(unmix.InputError, "nor have both map infos of one place", unmix.compare, a, other)
    pytest.importorskip("rasterio")
    with pytest.raises(unmix.InputError, match="another coordinate system"):
        unmix.compare(a, placed(tmp_path / "z.hdr", values[:3], 10.0, zone="12, North, WGS-84"))


def test_classes_masks_and_deviations(tmp_path, scene):
    with_classes(tmp_path, ("tree", "soil", "tree", "soil"))
    unmix.run(scene, endmembers=tmp_path / "c.csv", method="nnls", out_dir=tmp_path / "a", uncertainty=True)
    A = abundances(tmp_path / "a/s")
    random = np.random.default_rng(8)
    A[A == -9999] = np.nan
    sums = np.dstack([A[..., 0] + A[..., 2], A[..., 1] + A[..., 3]])
    noisy = (sums[..., ::-1] + 0.1 * random.standard_normal(sums.shape)).astype(np.float32)
    truth = write_cube(tmp_path / "t.hdr", noisy, band_names="{soil, tree}")
    keep = random.integers(0, 2, (11, 13, 1)).astype(np.uint8)
    write_cube(tmp_path / "m.hdr", keep)
    found = unmix.compare(tmp_path / "a/s", truth, by="class", mask=str(tmp_path / "m.hdr"))
    present = np.isfinite(A[..., 0]) & (keep[..., 0] != 0)
    assert found["pixels"]["compared"] == present.sum() and found["matched_by"] == "name"
    T = read_values(truth)[..., [1, 0]].astype(float)
    for k, pair in enumerate(found["pairs"]):
        assert pair["a"] == pair["b"] == ("tree", "soil")[k] and "within" not in pair
        assert pair["rmse"] == pytest.approx(np.sqrt(np.square(sums - T)[present, k].mean()))
    out, _ = command("compare", tmp_path / "a/s", truth, "--by", "class", "--mask", tmp_path / "m.hdr")
    assert f"{present.sum()} pixels compared" in out and "the agreement is good" in out
    unmix.run(scene, endmembers=tmp_path / "c.csv", method="fcls", out_dir=tmp_path / "b", lines="2:9")
    page = tmp_path / "p.html"
    found = unmix.compare(tmp_path / "a/s", tmp_path / "b/s", out=page)
    S, B, A = read_values(tmp_path / "a/s_sigma.hdr")[2:9], abundances(tmp_path / "b/s"), A[2:9]
    present = np.isfinite(A[..., 0]) & (B[..., 0] != -9999)
    within = (np.abs(A - B) <= S[..., :4] + 1e-6)[present].mean(axis=0)
    assert [pair["within"] for pair in found["pairs"]] == pytest.approx(within) and 0 < within.mean() < 1
    assert "within σ (68 %)" in page.read_text() and page.read_text().count("density of") == 4
    unmix.run(scene, endmembers=tmp_path / "e.csv", method="nnls", out_dir=tmp_path / "n")
    for words, text in (({"by": "class"}, "have no classes"), ({"by": "tree"}, "has to be class")):
        refused(unmix.MethodError, text, unmix.compare, tmp_path / "n/s", truth, **words)
    write_cube(tmp_path / "small.hdr", keep[:4])
    with pytest.raises(unmix.InputError, match="which neither map has"):
        unmix.compare(tmp_path / "a/s", truth, mask=str(tmp_path / "small.hdr"))


def test_a_mask_of_the_smaller_pixels(tmp_path):
    """It says which of the larger pixels count, by half of their area; their means are those of all values in them."""
    random = np.random.default_rng(6)
    fine = random.dirichlet(np.ones(2), (12, 15)).astype(np.float32)
    keep = random.integers(0, 2, (12, 15, 1)).astype(np.uint8)
    coarse = random.dirichlet(np.ones(2), (4, 5)).astype(np.float32)
    a, b = (
        placed(tmp_path / f"{name}.hdr", values, size, band_names="{soil, tree}")
        for name, values, size in (("a", fine, 10.0), ("b", coarse, 30.0))
    )
    write_cube(tmp_path / "m.hdr", keep)
    found = unmix.compare(a, b, mask=str(tmp_path / "m.hdr"))
    means = fine.reshape(4, 3, 5, 3, 2).astype(float).mean(axis=(1, 3))
    counted = keep.reshape(4, 3, 5, 3).mean(axis=(1, 3)) >= 0.5
    assert found["pixels"]["compared"] == counted.sum() and found["averaged"] == "a"
    for k, pair in enumerate(found["pairs"]):
        assert pair["rmse"] == pytest.approx(np.sqrt(np.square(means - coarse)[counted, k].mean()))
    write_cube(tmp_path / "n.hdr", counted[..., None].astype(np.uint8))
    assert unmix.compare(a, b, mask=str(tmp_path / "n.hdr"))["rmse"] == pytest.approx(found["rmse"])


def test_the_word_for_the_agreement(tmp_path):
    """Good needs an SRE of 10 dB, R² of a half in each pair, and a partner for each map of the reference."""
    from unmix.pages.compare_page import agreement

    pair = {"r2": 0.9}
    for sre, pairs, only_b, word in (
        (12.0, [pair], [], "good"),
        (12.0, [pair, {"r2": 0.2}], [], "fair"),
        (12.0, [pair, {"r2": None}], [], "good"),
        (12.0, [pair], ["road"], "fair"),
        (5.0, [pair], [], "fair"),
        (5.0, [{"r2": -1.0}], [], "poor"),
        (1.0, [pair], [], "poor"),
    ):
        assert agreement({"sre": sre, "pairs": pairs, "only_b": only_b, "rmse": 0.1}) == word
    assert agreement({"sre": None, "pairs": [pair], "only_b": [], "rmse": 0.0}) == "equal"


@pytest.mark.slow
def test_each_file_names_its_own_map(tmp_path, scene):
    """A truth that is named as maps of abundances are says nothing of the map that the run's file names."""
    with_classes(tmp_path, "abab")
    unmix.run(scene, endmembers=tmp_path / "c.csv", method="nnls", by="class", uncertainty=True, out_dir=tmp_path / "a")
    sums = read_values(tmp_path / "a/s_fraction.hdr")
    truth = write_cube(tmp_path / "t_abundance.hdr", sums, band_names="{a, b, brightness}", data_ignore_value=-9999)
    assert unmix.compare(tmp_path / "a/s_fraction.hdr", truth)["rmse"] == 0
    found = unmix.compare(tmp_path / "a/s_fraction.hdr", tmp_path / "a/s_abundance.hdr", by="class")
    assert {pair["a"] for pair in found["pairs"]} >= {"a", "b"} and found["pairs"][0]["rmse"] < 1e-6
    assert found["pairs"][0]["within"] == 1.0  # deviations of the sums
    assert all("within" not in pair for pair in unmix.compare(tmp_path / "a/s", tmp_path / "a/s", "abundance")["pairs"])
    unmix.run(scene, endmembers=tmp_path / "c.csv", method="mesma", out_dir=tmp_path / "m")
    unmix.run(scene, endmembers=tmp_path / "c.csv", method="fcls", out_dir=tmp_path / "f")
    assert [pair["a"] for pair in unmix.compare(tmp_path / "m/s", tmp_path / "f/s", by="class")["pairs"]] == ["a", "b"]


@pytest.mark.slow
def test_ranges_block_by_block(tmp_path, scene, monkeypatch):
    """Ranges have twice the bands of their map: blocks are those that suit both."""
    words = {"endmembers": tmp_path / "e.csv", "method": "nnls"}
    unmix.run(scene, out_dir=tmp_path / "a", ranges="each", within=2e-5, uncertainty=True, **words)
    unmix.run(scene, endmembers=tmp_path / "f.csv", method="fcls", out_dir=tmp_path / "b")
    whole = unmix.compare(tmp_path / "a/s", tmp_path / "b/s")
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 13 * 4 * 4 * 3)
    parts = unmix.compare(tmp_path / "a/s", tmp_path / "b/s")
    for key in ("inside", "within"):
        assert [pair[key] for pair in parts["pairs"]] == [pair[key] for pair in whole["pairs"]]


def test_nothing_to_compare(tmp_path, scene):
    unmix.run(scene, endmembers=tmp_path / "e.csv")
    write_cube(tmp_path / "m.hdr", np.zeros((11, 13, 1), np.uint8))
    with pytest.raises(unmix.InputError, match="no pixel has values in it"):
        unmix.compare(tmp_path / "s", tmp_path / "s", mask=str(tmp_path / "m.hdr"))


@pytest.mark.parametrize("is_first", [True, False])
def test_a_raster_of_classes_is_a_truth(tmp_path, caplog, is_first):
    """Shares of its pixels in larger ones that are labelled wholly; names by a legend, or of the header."""
    random = np.random.default_rng(7)
    codes = random.integers(1, 4, (12, 15, 1)).astype(np.uint8)
    codes[:3, :2], codes[7, 8], codes[11, 14] = 0, 0, 255
    coarse = random.dirichlet(np.ones(3), (4, 5)).astype(np.float32)
    plain = placed(tmp_path / "p.hdr", codes, 10.0, data_ignore_value=255)
    own = placed(tmp_path / "c.hdr", codes, 10.0, data_ignore_value=255, class_names="{none, dry soil, tree, water}")
    maps = placed(tmp_path / "b.hdr", coarse, 30.0, band_names="{tree, water, dry soil}")
    legend = tmp_path / "legend.csv"
    legend.write_text('code,class\n3,water\n0,unlabelled\n1,dry soil\n2,"tree"\n')
    labelled = (codes[..., 0] > 0) & (codes[..., 0] < 255)
    whole = labelled.reshape(4, 3, 5, 3).all(axis=(1, 3))
    for path, given in ((plain, legend), (own, None), (own, legend)):
        found = unmix.compare(*((path, maps) if is_first else (maps, path)), legend=given)
        assert found["pixels"]["compared"] == whole.sum() and found["matched_by"] == "name"
        assert {(pair["a"], pair["b"]) for pair in found["pairs"]} == {
            (name, name) for name in ("tree", "water", "dry soil")
        }
        for pair in found["pairs"]:
            is_class = codes[..., 0] == {"dry soil": 1, "tree": 2, "water": 3}[pair["a"]]
            shares = is_class.reshape(4, 3, 5, 3).mean(axis=(1, 3))[whole]
            values = coarse[..., ["tree", "water", "dry soil"].index(pair["a"])][whole].astype(float)
            assert pair["rmse"] == pytest.approx(np.sqrt(np.square(shares - values).mean()))
            assert pair["mean_a"] == pytest.approx((shares if is_first else values).mean())
            assert pair["mean_b"] == pytest.approx((values if is_first else shares).mean())
    unmix.compare(maps, plain)
    assert "`legend` if classes" in caplog.text
    legend.write_text("1,dry soil\n2,tree\n")
    with pytest.raises(unmix.InputError, match="has a class 3, which its legend does not name"):
        unmix.compare(maps, plain, legend=legend)
    legend.write_text("dry soil,1\n")
    refused(unmix.InputError, "no rows that begin with the number", unmix.compare, maps, plain, legend=legend)
    refused(unmix.MethodError, "neither map is a raster of classes", unmix.compare, maps, maps, legend=legend)


def test_fill_values_of_float32(tmp_path):
    values = np.random.default_rng(1).random((4, 5, 2)).astype(np.float32)
    other = values.copy()
    other[1, 2] = -999.9
    a, b = write_cube(tmp_path / "a.hdr", values), write_cube(tmp_path / "b.hdr", other)
    assert unmix.compare(a, b, nodata=-999.9)["pixels"]["compared"] == 19


def test_same_sizes_elsewhere(tmp_path, caplog):
    """Another zone, turned, or turned over: no silence."""
    values = np.random.default_rng(2).dirichlet(np.ones(2), (4, 4)).astype(np.float32)
    a = placed(tmp_path / "a.hdr", values, 30.0)
    turned = placed(tmp_path / "t.hdr", values, 30.0, zone="11, North, WGS-84, rotation=45")
    unmix.compare(a, turned)
    assert "of another place" in caplog.text
    caplog.clear()
    unmix.compare(turned, turned)
    assert not caplog.text
    pytest.importorskip("rasterio")
    unmix.compare(a, placed(tmp_path / "z.hdr", values, 30.0, zone="12, North, WGS-84"))
    assert "of another place" in caplog.text
    masked = write_cube(tmp_path / "m.hdr", np.ones((4, 4, 1), np.uint8))
    fine = placed(tmp_path / "f.hdr", values, 15.0)
    refused(unmix.InputError, "on other grids", unmix.compare, a, fine, mask=str(masked))
    mask = placed(tmp_path / "n.hdr", np.ones((4, 4, 1), np.uint8), 30.0)
    assert unmix.compare(a, fine, mask=str(mask))["pixels"]["compared"] == 4


def test_words_of_one_coordinate_system(tmp_path):
    """ESRI's words of WGS 84 are those of EPSG:4326."""
    rasterio = pytest.importorskip("rasterio")
    values = np.random.default_rng(3).dirichlet(np.ones(2), (4, 4)).astype(np.float32)
    esri = (
        'GEOGCS["GCS_WGS_1984",DATUM["D_WGS_1984",SPHEROID["WGS_1984",6378137.0,298.257223563]],PRIMEM["Greenwich",0.0],'
        'UNIT["Degree",0.0174532925199433]]'
    )
    a = write_cube(
        tmp_path / "a.hdr",
        values,
        map_info="{Geographic Lat/Lon, 1, 1, 10, 50, 0.1, 0.1, WGS-84, units=Degrees}",
        coordinate_system_string="{" + esri + "}",
    )
    how = {"driver": "GTiff", "height": 2, "width": 2, "count": 2, "dtype": "float32", "crs": "EPSG:4326"}
    with rasterio.open(tmp_path / "b.tif", "w", transform=rasterio.Affine(0.2, 0, 10, 0, -0.2, 50), **how) as target:
        target.write(values.reshape(2, 2, 2, 2, 2).mean(axis=(1, 3)).transpose(2, 0, 1))
    assert unmix.compare(a, tmp_path / "b.tif")["rmse"] < 1e-6


def test_half_of_a_pixel_in_degrees(tmp_path):
    cell = 0.000542232520256367
    values = np.random.default_rng(4).dirichlet(np.ones(2), (40, 40)).astype(np.float32)
    coarse = values.reshape(20, 2, 20, 2, 2).mean(axis=(1, 3)).astype(np.float32)
    values[1::2] = np.nan
    where = "{{Geographic Lat/Lon, 1, 1, -116.2, 36.9, {0}, {0}, WGS-84, units=Degrees}}"
    a = write_cube(tmp_path / "a.hdr", values, map_info=where.format(cell))
    b = write_cube(tmp_path / "b.hdr", coarse, map_info=where.format(2 * cell))
    assert unmix.compare(a, b)["pixels"]["compared"] == 400


def test_names_that_are_no_run(tmp_path, scene, monkeypatch):
    """What was looked for, and which runs are there, those with like names first; a table is called what it is."""
    (tmp_path / "there").mkdir()
    for name in ("one", "other", "third"):
        path = write_cube(tmp_path / f"there/{name}.hdr", read_values(scene))
        unmix.run(path, endmembers=tmp_path / "e.csv", out_dir=tmp_path, browse=False)
    (tmp_path / "plots.csv").write_text("x,y,soil\n1,2,0.5\n")
    monkeypatch.chdir(tmp_path)
    commands = {
        "compare": lambda name: unmix.compare("one", name),
        "compare with": lambda name: unmix.compare(name, "one"),
        "export": lambda name: unmix.export(name, out_dir="x"),
        "plot": lambda name: unmix.plot(name, "x.png"),
    }
    commands |= {"report": unmix.report, "stac": unmix.stac, "view": unmix.view, "verify": verify}
    for name, do in commands.items():
        error = refused(unmix.UnmixError, None, do, "others")
        text = str(error.value)
        assert text.startswith("others: no finished run: others_run.json is not there; name one of other, "), (
            name,
            text,
        )
        refused(unmix.UnmixError, "there is no folder nowhere", do, "nowhere/s")
        if name not in ("plot", "view"):
            error = refused(unmix.UnmixError, None, do, "plots.csv")
            text = str(error.value)
            assert text.startswith("plots.csv: is a file, and no output of a finished run; name one of "), (name, text)
            assert "plots.csv_run" not in text


def test_scenes_that_are_placed_are_not_said_to_be_compared_by_line_and_sample(tmp_path, caplog):
    """Two scenes of one place with pixels of two sizes are compared by their coordinates; without a place, by line and sample."""
    E = np.random.default_rng(2).random((6, 2)) + 0.1
    write_csv(tmp_path / "e.csv", E)
    for name, n, size in (("fine", 12, 10), ("coarse", 6, 20), ("date", 6, 20), ("bare", 6, 0), ("bare2", 6, 0)):
        Y = np.random.default_rng(len(name) + n).dirichlet(np.ones(2), (n, n)) @ E.T
        place = {"map_info": f"{{UTM, 1, 1, 500000, 4600000, {size}, {size}, 32, North, WGS-84}}"} if size else {}
        path = write_cube(tmp_path / f"{name}.hdr", Y, **place)
        unmix.run(path, endmembers=tmp_path / "e.csv", method="fcls", browse=False)
    said = {}
    caplog.set_level("INFO", "unmix")
    for one, other in (("fine", "coarse"), ("coarse", "date"), ("bare", "bare2")):
        caplog.clear()
        assert unmix.compare(tmp_path / one, tmp_path / other)["averaged"] == ("a" if one == "fine" else None)
        said[one] = [record.getMessage() for record in caplog.records if "are compared" in record.getMessage()]
    assert not said["fine"]
    assert "of the same place" in said["coarse"][0] and "line and sample" not in said["coarse"][0]
    assert "of the same line and sample" in said["bare"][0]


UTM = (
    '{PROJCS["UTM33",GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS 84",6378137,298.257223563]],PRIMEM["Greenwich",0],'
    'UNIT["degree",0.0174532925199433]],PROJECTION["Transverse_Mercator"],PARAMETER["latitude_of_origin",0],'
    'PARAMETER["central_meridian",15],PARAMETER["scale_factor",0.9996],PARAMETER["false_easting",500000],'
    'PARAMETER["false_northing",0],UNIT["metre",1]]}'
)


@pytest.mark.parametrize("ending", [".tif", ".hdr"])
@pytest.mark.parametrize("shift", [(0.0, 0.0), (60.0, -30.0)], ids=["one frame", "shifted"])
def test_a_map_of_the_difference(tmp_path, ending, shift):
    """On A's grid, no data where either has none; pixels beyond a threshold are counted as plain numpy counts them."""
    random = np.random.default_rng(8)
    A, B = (random.dirichlet(np.ones(3), (7, 6)).astype(np.float32) for _ in range(2))
    A[1, 2:4], B[3:5, 3] = -9999, -9999
    fields = {"data_ignore_value": -9999, "coordinate_system_string": UTM}
    a = placed(tmp_path / "a.hdr", A, 30.0, **fields, band_names="{soil, tree, roof}")
    corner = 500000.0 + shift[1], 4100000.0 - shift[0]
    b = placed(tmp_path / "b.hdr", B[..., ::-1], 30.0, corner, **fields, band_names="{roof, tree, soil}")
    down, across = int(shift[0] // 30), int(shift[1] // 30)
    expected = np.full(A.shape, np.nan)
    for i in range(7):
        for j in range(6):
            if 0 <= i - down < 7 and 0 <= j - across < 6 and -9999 not in (A[i, j, 0], B[i - down, j - across, 0]):
                expected[i, j] = A[i, j].astype(float) - B[i - down, j - across]
    out = tmp_path / f"change{ending}"
    text, _ = command("compare", a, b, "-o", out, "--threshold", "0.2")
    cube = unmix.open_cube(out)
    made = by_pixel(read_lines(cube, slice(0, 7)), cube.interleave).astype(float)
    np.testing.assert_allclose(np.where(made == -9999, np.nan, made), expected, atol=1e-6)
    assert cube.nodata == -9999 and band_names(cube) == ["soil", "tree", "roof"]
    assert transform_of(cube) == transform_of(unmix.open_cube(a))
    found = unmix.compare(a, b, threshold=0.2)
    each = 0.09 / 0.9996**2  # ha on the ground, along the central meridian
    for k, pair in enumerate(found["pairs"]):
        counts = int((expected[..., k] < -0.2).sum()), int((expected[..., k] > 0.2).sum())
        assert (pair["below"], pair["above"]) == counts and sum(counts) > 4
        assert (pair["below_hectares"], pair["above_hectares"]) == pytest.approx(tuple(each * n for n in counts))
        assert f"{pair['a']}: in A {counts[0]} pixels ({each * counts[0]:.4g} ha) lower" in text
        assert pair["net_hectares"] == pytest.approx(each * np.nansum(expected[..., k]), rel=1e-6)
        assert f"; {pair['net_hectares']:+.4g} ha of it in all" in text
    refused(unmix.OutputError, "exists already", unmix.compare, a, b, out=out)
    unmix.compare(a, b, out=out, overwrite=True)
    refused(unmix.MethodError, "replace", unmix.compare, a, b, out=tmp_path / "a.hdr", overwrite=True)
    refused(unmix.MethodError, r"name a page, .html, or a map", unmix.compare, a, b, out=tmp_path / "x.png")
    refused(unmix.MethodError, "`threshold` -1", unmix.compare, a, b, threshold=-1)


def test_a_change_has_no_numbers_of_a_truth(tmp_path, scene):
    """R² and slope are of a run and a truth; what is a bias there is a change between two runs."""
    for folder, method in (("a", "fcls"), ("b", "nnls")):
        unmix.run(scene, endmembers=tmp_path / "e.csv", method=method, device="cpu", out_dir=tmp_path / folder)
    out, _ = command("compare", tmp_path / "a/s", tmp_path / "b/s")
    assert "R²" not in out and "slope" not in out and " change " in out and "bias" not in out
    out, _ = command("compare", tmp_path / "a/s", tmp_path / "b/s_abundance.hdr", "--json")
    assert "r2" in json.loads(out)["pairs"][0]


def test_a_truth_in_a_file_of_several_maps(tmp_path):
    """A MATLAB table (materials, pixels) has the size of the run's maps, and names and spectra beside it; `dataset` names an array."""
    random, E = np.random.default_rng(2), np.random.default_rng(3).uniform(0.1, 0.9, (9, 3))
    A = random.dirichlet(np.ones(3), (5, 7))
    write_cube(tmp_path / "s.hdr", A @ E.T)
    unmix.run(tmp_path / "s.hdr", endmembers=write_csv(tmp_path / "e.csv", E), method="fcls", device="cpu")
    truth = {"A": A.transpose(2, 1, 0).reshape(3, -1)[[2, 0, 1]], "M": E[:, [2, 0, 1]]}  # pixels column by column
    scipy.io.savemat(tmp_path / "t.mat", truth | {"cood": np.array([["c"], ["a"], ["b"]], object)})
    for one, other in (("s", "t.mat"), ("t.mat", "s")):
        found = unmix.compare(tmp_path / one, tmp_path / other)
        assert found["rmse"] < 1e-6 and found["matched_by"] == "spectral angle"
        named = {pair["a" if one == "t.mat" else "b"]: pair["b" if one == "t.mat" else "a"] for pair in found["pairs"]}
        assert named == {"a": "em 1", "b": "em 2", "c": "em 3"}
    with h5py.File(tmp_path / "t.h5", "w") as file:
        file["other"], file["truth"] = np.ones((5, 7, 3)), A.transpose(2, 0, 1)
    command("compare", tmp_path / "s", tmp_path / "t.h5", "--dataset", "/truth:byx", says="35 pixels compared")
    refused(unmix.MethodError, "`dataset` are for rasters", unmix.compare, tmp_path / "s", tmp_path / "s", dataset="x")
    scipy.io.savemat(tmp_path / "own.mat", {"A_hat": truth["A"] + 0.01})  # two tables need no lines and samples
    for one, other in (("own.mat", "t.mat"), ("t.mat", "own.mat")):
        found = unmix.compare(tmp_path / one, tmp_path / other)
        assert found["rmse"] == pytest.approx(0.01) and found["pixels"]["compared"] == 35
    # It has to be clear which table is meant, and that it is no image.
    scipy.io.savemat(tmp_path / "two.mat", {"A": truth["A"], "B": truth["A"]})
    np.save(tmp_path / "image.npy", random.random((20, 50)))
    for one, other in (("two.mat", "t.mat"), ("image.npy", "image.npy")):
        refused(unmix.OutputError, None, unmix.compare, tmp_path / one, tmp_path / other)


def test_where_nothing_changed_one_in_twenty_seems_to(tmp_path):
    """Of two scenes that differ by noise alone: z, its map, and the pixels beyond a threshold."""
    random = np.random.default_rng(2)
    E, A = random.uniform(0.1, 0.9, (30, 3)), random.dirichlet(np.full(3, 20.0), (70, 80))
    library = write_csv(tmp_path / "e.csv", E)
    for name, change in (("a", 0.0), ("b", 0.0), ("c", 0.4)):
        other = A.copy()
        other[:20, :30, 0], other[:20, :30, 1] = A[:20, :30, 0] - change, A[:20, :30, 1] + change
        Y = other @ E.T + 0.02 * random.standard_normal((70, 80, 30))
        unmix.run(write_cube(tmp_path / f"{name}.hdr", Y), endmembers=library, method="ucls", uncertainty=True)
    values = [abundances(tmp_path / name)[..., :3].astype(float) for name in "ab"]
    sigma = [read_values(tmp_path / f"{name}_sigma.hdr")[..., :3].astype(float) for name in "ab"]
    z = (values[0] - values[1]) / np.hypot(*sigma)
    found = unmix.compare(tmp_path / "a", tmp_path / "b", out=tmp_path / "d.hdr", threshold=0.0)
    written = read_values(tmp_path / "d.hdr")
    np.testing.assert_allclose(written[..., 3:], z, rtol=1e-4, atol=1e-5)
    for k, pair in enumerate(found["pairs"]):
        assert pair["significant"] == pytest.approx((abs(z[..., k]) > 1.96).mean(), abs=1e-3)
        assert 0.04 < pair["significant"] < 0.06 and 0.66 < pair["within"] < 0.70
        assert pair["below"] + pair["above"] == pytest.approx(pair["significant"] * 5600, abs=6)
    changed = unmix.compare(tmp_path / "c", tmp_path / "b")["pairs"]
    assert changed[0]["significant"] > 0.12 and changed[2]["significant"] < 0.06
    out, _ = command("compare", tmp_path / "a", tmp_path / "b")
    assert "beyond 1.96 σ (5 %)" in out and "within σ (68 %)" in out


@pytest.mark.parametrize("moved", [(0, 0), (1, 0), (0, -2), (1.5, 0.5), (0, 0.25)])
def test_a_shift_of_two_scenes_is_said(tmp_path, moved, caplog):
    random = np.random.default_rng(3)
    E = random.uniform(0.1, 0.9, (12, 3))
    fields = np.stack([scipy.ndimage.gaussian_filter(random.standard_normal((90, 100)), 4) for _ in range(3)], axis=-1)
    F = np.exp(30 * fields)
    F /= F.sum(axis=2, keepdims=True)
    library = write_csv(tmp_path / "e.csv", E)
    for name, shift in (("a", moved), ("b", (0, 0))):
        A = scipy.ndimage.shift(F, (*shift, 0), order=3, mode="nearest")[8:-8, 8:-8]
        A[5:15, 8:20] = [0.1, 0.1, 0.8] if name == "a" else A[5:15, 8:20]
        Y = A @ E.T + 0.005 * random.standard_normal((74, 84, 12))
        unmix.run(write_cube(tmp_path / f"{name}.hdr", Y), endmembers=library, method="fcls")
    found = unmix.compare(tmp_path / "a", tmp_path / "b")["shift"]
    said = [record.getMessage() for record in caplog.records if "looks shifted against" in record.getMessage()]
    assert (found is None) == (moved == (0, 0)) == (said == [])
    assert found is None or np.allclose(found, moved, atol=0.1)


@pytest.mark.parametrize(("step", "crop"), [(30, slice(3, 78)), (30, slice(0, 80)), (90, slice(0, 80))])
def test_deviations_of_two_scenes_of_other_extents(tmp_path, step, crop):
    """Both deviations count where pixels are those of one grid, and none where one map is averaged."""
    random, here = np.random.default_rng(5), {}
    E = random.uniform(0.1, 0.9, (30, 3))
    library, k = write_csv(tmp_path / "e.csv", E), step // 30
    A = random.dirichlet(np.full(3, 20.0), (60, 80))
    for name, part, pixel in (("a", slice(0, 80), 30), ("b", crop, step)):
        n = pixel // 30
        fractions = A[:, part].reshape(60 // n, n, -1, n, 3).mean(axis=(1, 3)) if n == 1 else A[: 60 // n, : 80 // n]
        Y = fractions @ E.T + 0.02 * random.standard_normal((*fractions.shape[:2], 30))
        corner = 500000 + 30 * part.start
        path = write_cube(tmp_path / f"{name}.hdr", Y)
        with open(path, "a") as header:
            header.write(f"map info = {{UTM, 1, 1, {corner}, 4100000, {pixel}, {pixel}, 11, North, WGS-84}}\n")
        unmix.run(path, endmembers=library, method="ucls", uncertainty=True)
        here[name] = abundances(tmp_path / name)[..., :3].astype(float), read_values(tmp_path / f"{name}_sigma.hdr")
    found = unmix.compare(tmp_path / "a", tmp_path / "b", out=tmp_path / "d.hdr")
    if k > 1:
        assert not any({"within", "significant"} & set(pair) for pair in found["pairs"])
        return
    (a, sigma_a), (b, sigma_b) = here["a"], here["b"]
    z = (a[:, crop] - b) / np.hypot(sigma_a[:, crop, :3], sigma_b[..., :3])
    for j, pair in enumerate(found["pairs"]):
        assert pair["significant"] == pytest.approx((abs(z[..., j]) > 1.96).mean(), abs=1e-3)
    written = read_values(tmp_path / "d.hdr")[..., 3:]
    is_there = written[..., 0] != -9999
    assert is_there.sum() == z[..., 0].size
    np.testing.assert_allclose(written[is_there], z.reshape(-1, 3), rtol=1e-4, atol=1e-5)


def test_arrays_of_other_programs(tmp_path):
    """Own maps in any order of axes, beside a run and a truth; each divided by its own number."""
    A = np.random.default_rng(1).dirichlet(np.ones(3), (11, 13))
    lines, samples, _ = A.shape
    wrong = A[..., [2, 0, 1]] + 0.05
    np.save(tmp_path / "yxb.npy", wrong)
    np.save(tmp_path / "table.npy", wrong.reshape(-1, 3))
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file["byx"], file["percent"] = wrong.transpose(2, 0, 1), 100 * wrong
    np.save(tmp_path / "truth.npy", A.transpose(2, 0, 1))
    names = ("yxb.npy", "table.npy", "m.h5:/byx")
    for name in names:
        found = unmix.compare(tmp_path / name, tmp_path / "truth.npy" if name != "table.npy" else tmp_path / "yxb.npy")
        assert found["rmse"] == pytest.approx(0.05 * (name != "table.npy"), abs=1e-6)
        assert found["pixels"]["compared"] == lines * samples
    found = unmix.compare(tmp_path / "m.h5:/percent", tmp_path / "truth.npy", scale=(100.0, 1.0))
    assert found["rmse"] == pytest.approx(0.05, abs=1e-6)
    out, _ = command("compare", tmp_path / "yxb.npy", "--truth", tmp_path / "truth.npy")
    assert out.splitlines()[1].split()[-2:] == ["3", "abundances"]
    np.save(tmp_path / "other.npy", np.ones((4, 5, 6)))
    refused(
        unmix.OutputError,
        r"is no map of 5 lines of 6 samples",
        unmix.compare,
        tmp_path / "other.npy",
        tmp_path / "yxb.npy",
    )
    refused(
        unmix.MethodError,
        "`scale` .*must be above 0",
        unmix.compare,
        tmp_path / "yxb.npy",
        tmp_path / "yxb.npy",
        scale=(1.0, 0.0),
    )


@pytest.mark.parametrize("size", [(11, 13), (12, 12)])
def test_an_array_in_another_order_is_named(tmp_path, size, caplog):
    """Pixels column by column, as MATLAB flattens an image, or lines and samples exchanged; of the right order nothing."""
    A = np.random.default_rng(2).dirichlet(np.ones(3), size)
    np.save(tmp_path / "truth.npy", A)
    across = A.swapaxes(0, 1).reshape(-1, 3) + 0.02
    made = {"rows": A.reshape(-1, 3) + 0.02, "columns": across, "bands first": across.T}
    made |= {"image": A + 0.02} | ({"exchanged": A.swapaxes(0, 1)} if size[0] == size[1] else {})
    for name, values in made.items():
        caplog.clear()
        np.save(tmp_path / f"{name}.npy", values)
        unmix.compare(tmp_path / f"{name}.npy", tmp_path / "truth.npy")
        is_said = "with lines and samples exchanged" in caplog.text
        assert is_said == (name not in ("rows", "image")), name
    for name, values in {"columns": across.T, "rows": made["rows"].T}.items():
        caplog.clear()
        scipy.io.savemat(tmp_path / "m.mat", {"A": values})
        unmix.compare(tmp_path / "m.mat", tmp_path / "truth.npy", dataset="A")
        assert ("with lines and samples exchanged" in caplog.text) == (name == "rows"), name


@pytest.mark.parametrize("shape", [(30, 40), (1, 1200), (3, 400), (1200, 1), (512, 512)])
def test_a_shift_that_all_places_share_is_found_in_maps_of_any_shape(shape):
    from unmix.commands.finished.cautions import shift_all_over

    noise = np.random.default_rng(0).standard_normal(shape)
    noise.ravel()[::7] = np.nan
    assert shift_all_over({"variance": 0.01}, 0.05 + 0.1 * noise) == pytest.approx(0.05, abs=0.02)
    assert shift_all_over({"variance": 0.01}, 0.1 * noise) == 0.0 == shift_all_over({}, np.full(shape, np.nan))


def test_what_runs_warned_of_and_what_dates_share_is_said(tmp_path, caplog):
    """Compared maps repeat their runs' warnings; a difference all over, and endmembers of each date's own, are named."""
    random = np.random.default_rng(4)
    E = random.random((20, 3)) + 0.2
    A = random.dirichlet(np.ones(3), (30, 30))
    B = A.copy()
    B[5:9, 5:9] = [0.1, 0.1, 0.8]
    said = {}
    write_csv(tmp_path / "e.csv", E)
    write_csv(tmp_path / "f.csv", E * (1 + 0.2 * random.random((20, 3))))
    cases = {"changed": (B, E, "e"), "hazy": (A, E + 0.1, "e"), "own": (A, E, "f"), "dark": (0.8 * A, E, "e")}
    for name, (amounts, spectra, library) in ({"first": (A, E, "e")} | cases).items():
        Y = amounts @ spectra.T + 0.002 * random.standard_normal((30, 30, 20))
        path = write_cube(tmp_path / f"{name}.hdr", Y.astype(np.float32))
        unmix.run(path, endmembers=tmp_path / f"{library}.csv", method="fcls", device="cpu", browse=False)
    for name in cases:
        caplog.clear()
        unmix.compare(tmp_path / name, tmp_path / "first")
        said[name] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert not said["changed"]
    for name, shift in {"first": 0.0, "shifted": 0.02, "again": 0.0}.items():  # below the noise of a pixel
        Y = A @ E.T + shift * (E[:, 0] - E[:, 1]) + 0.02 * random.standard_normal((30, 30, 20))
        path = write_cube(tmp_path / f"{name}.hdr", Y.astype(np.float32))
        how = {"method": "ucls", "uncertainty": True, "device": "cpu", "browse": False, "out_dir": tmp_path / "u"}
        unmix.run(path, endmembers=tmp_path / "e.csv", **how)
    for name in ("shifted", "again"):
        caplog.clear()
        unmix.compare(tmp_path / "u" / name, tmp_path / "u/first")
        assert ("differ all over" in caplog.text) == (name == "shifted")
    B = 0.9 * A + 0.1 * np.eye(3)[0]  # a tenth more of one everywhere, and a fifth of the ground changed besides
    B[:6] = [0.1, 0.1, 0.8]
    path = write_cube(
        tmp_path / "both.hdr", (B @ E.T + 0.002 * random.standard_normal((30, 30, 20))).astype(np.float32)
    )
    unmix.run(path, endmembers=tmp_path / "e.csv", method="fcls", device="cpu", browse=False)
    caplog.clear()
    unmix.compare(tmp_path / "both", tmp_path / "first")
    assert "differ all over, em 1 by +" in caplog.text
    assert "differ all over" in str(said["hazy"]) and "endmembers of their own" in str(said["own"])
    assert "dark: pixels are darker than the library" in str(said["dark"]) and "differ all over" in str(said["dark"])
    unmix.run(tmp_path / "dark.hdr", endmembers=tmp_path / "e.csv", method="nnls", device="cpu", out_dir=tmp_path / "n")
    caplog.clear()
    unmix.compare(tmp_path / "n/dark", tmp_path / "first")
    assert "sum to 0.8 and 1 in the mean" in caplog.text
    np.save(tmp_path / "A.npy", A)
    unmix.run(tmp_path / "first.hdr", endmembers=tmp_path / "e.csv", device="cpu", out_dir=tmp_path / "f")
    caplog.clear()
    unmix.compare(tmp_path / "f/first", tmp_path / "A.npy")  # fractions, and the scale, which is no share
    assert "in the mean" not in caplog.text
    refused(unmix.MethodError, "which neither is", unmix.compare, tmp_path / "A.npy", tmp_path / "first", dataset="x")


@pytest.mark.parametrize("exchanged", [False, True])
def test_numbered_names_that_are_crossed_are_said(tmp_path, exchanged, caplog):
    """Without spectra, maps of numbered names are matched by values: labels that are exchanged would have no error."""
    A = np.random.default_rng(2).dirichlet(np.ones(3), (6, 7))
    names = ["material 1", "material 2", "material 3"]
    write_cube(tmp_path / "a.hdr", A, band_names=names)
    write_cube(tmp_path / "b.hdr", A, band_names=[*names[1::-1], names[2]] if exchanged else names)
    found = unmix.compare(tmp_path / "a.hdr", tmp_path / "b.hdr")
    assert found["matched_by"] == "abundances" and found["rmse"] == 0
    assert ("matched by their values, as material 1 with material 2" in caplog.text) == exchanged
