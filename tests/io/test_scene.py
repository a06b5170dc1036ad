"""Parts of scenes, masks, bands to leave out: against the same done in numpy."""

import h5py
import numpy as np
import pytest
from conftest import read_values, refused, write_csv, write_cube
from hypothesis import given
from hypothesis import strategies as st

import unmix
from unmix.commands.verify import verify
from unmix.errors import CubeError, MethodError
from unmix.io import missing, open_cube
from unmix.io.cube import in_ranges, read_lines
from unmix.scene import ReadOptions, mask_of, open_scene
from unmix.scene.sample import warn_of_fill
from unmix.scene.scale import said_of_scales

MAP = "{UTM, 1.000, 1.000, 500000.0, 4000000.0, 30.0, 30.0, 11, North, WGS-84, units=Meters}"


@pytest.mark.parametrize("interleave", ["bip", "bil", "bsq"])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "float32", "uint64"])
def test_a_part_is_what_numpy_cuts_out(tmp_path, interleave, dtype, monkeypatch):
    cube = np.random.default_rng(0).integers(1, 200, (9, 11, 5)).astype(dtype)
    path = write_cube(tmp_path / "c.hdr", cube, interleave, map_info=MAP, x_start="101")
    mask = np.zeros((9, 11, 2), np.uint8)
    mask[2:6, 3:8, 1] = 7
    write_cube(tmp_path / "m.hdr", mask, "bil")
    monkeypatch.setattr("unmix.io.window.PIECE", 1)  # a line at a time
    part, _, nodata = open_scene(path, ReadOptions(lines="1:8", samples="2:", mask=f"{tmp_path / 'm.img'}:2"))
    assert (part.lines, part.samples) == (7, 9)
    assert part.fields["map info"].split(",")[1:3] == [" -1", " 0"]  # the tie point, two samples and a line before
    assert part.fields["x start"] == "103"
    through = mask[1:8, 2:, 1] != 0
    for lines in (slice(0, 7), slice(3, 5)):
        found = read_values(part, lines)
        np.testing.assert_array_equal(found[through[lines]], cube[1:8, 2:][lines][through[lines]])
        blank = found[~through[lines]]
        assert np.all(np.isnan(blank) if nodata is None else blank == nodata)
    assert dtype not in ("uint8", "int16", "uint16") or not (cube == nodata).any()


def test_a_mask_of_the_parts_own_size(tmp_path):
    cube = np.arange(1, 61, dtype=np.int16).reshape(4, 5, 3)
    path = write_cube(tmp_path / "c.hdr", cube, data_ignore_value="-1")
    mask = np.array([[0.5, 0], [0, 1]], np.float32)  # of one pixel it is not known
    write_cube(tmp_path / "m.hdr", mask[..., None], data_ignore_value="0.5")
    part, _, nodata = open_scene(path, ReadOptions(lines=":2", samples="1:3", mask=str(tmp_path / "m.hdr")))
    assert nodata == -1 and part.dtype == np.int16  # a value to spare: nothing is widened
    found = read_values(part)
    assert (found[[0, 0, 1], [0, 1, 0]] == -1).all() and found[1, 1].tolist() == cube[1, 2].tolist()


def test_the_same_maps_as_from_a_smaller_file(tmp_path, scene):
    """And `verify` reads the same part again."""
    library = tmp_path / "scene_truth_endmembers.csv"
    whole = open_cube(scene)
    part = read_values(whole)[2:6, 10:50]
    write_cube(tmp_path / "small.hdr", part, "bil", wavelength=whole.fields["wavelength"].join("{}"))
    options = {"endmembers": library, "device": "cpu"}
    unmix.run(tmp_path / "small.hdr", **options, scale=1e4)
    report = unmix.run(scene, **options, scale=1e4, lines="2:6", samples="10:50", out_dir=tmp_path / "o")
    assert report["reading"] == {"scale": 1e4, "lines": "2:6", "samples": "10:50"}
    expected = (tmp_path / "small_abundance.img").read_bytes()
    assert (tmp_path / "o/scene_abundance.img").read_bytes() == expected
    assert verify(tmp_path / "o/scene", everything=True).faults == []


def test_a_masked_run_is_verified(tmp_path, scene):
    mask = np.ones((7, 70, 1), np.uint8)
    mask[3, 5:40] = 0
    write_cube(tmp_path / "m.hdr", mask)
    report = unmix.run(scene, count=3, extract="vca", device="cpu", mask=str(tmp_path / "m.hdr"), certificate=True)
    assert report["pixels"]["masked"] == 35 and report["pixels"]["solved"] == 7 * 70 - 35
    found = np.fromfile(tmp_path / "scene_abundance.img", np.float32).reshape(7, 3, 70)
    assert np.array_equal((found == -9999).all(axis=1), mask[..., 0] == 0)
    assert verify(tmp_path / "scene", everything=True).faults == []


@pytest.mark.parametrize(
    ("reading", "error", "text"),
    [
        ({"lines": "3"}, MethodError, "write A:B"),
        ({"lines": "3:3"}, MethodError, "the scene has 4"),
        ({"samples": "0:6"}, MethodError, "the scene has 5"),
        ({"samples": "-1:2"}, MethodError, "write A:B"),
        ({"mask": "no.hdr"}, CubeError, "no such file"),
        ({"mask": "m.hdr:2"}, CubeError, "has 1 bands"),
        ({"mask": "m.hdr:0"}, MethodError, "count from 1"),
        ({"mask": "m.hdr"}, CubeError, "the mask has 2 lines of 2 samples, the scene 4 of 5"),
        ({"ignore_nm": "400-500"}, MethodError, "has no wavelengths"),
        ({"bands": "none"}, MethodError, "good, all, auto"),
    ],
)
def test_readings_that_are_none(tmp_path, monkeypatch, reading, error, text):
    monkeypatch.chdir(tmp_path)
    write_cube(tmp_path / "c.hdr", np.ones((4, 5, 3), np.int16))
    write_cube(tmp_path / "m.hdr", np.ones((2, 2, 1), np.int16))
    refused(error, text, open_scene, "c.hdr", ReadOptions(**reading))


def test_wavelengths_to_leave_out(tmp_path):
    path = write_cube(tmp_path / "c.hdr", np.ones((2, 2, 5), np.int16), wavelength="{400, 500, 600, 700, 800}")
    bands = open_scene(path, ReadOptions(ignore_nm="450-600,800-900"))[1]
    assert bands.index.tolist() == [0, 3]
    assert open_scene(path, ReadOptions(ignore_nm="450-600", bands="2-4"))[1].index.tolist() == [3]
    every = open_scene(path, ReadOptions())[1].index.tolist()
    kept = open_scene(path, ReadOptions(only_nm="450-600,800-900"))[1].index.tolist()
    assert sorted([*kept, *bands.index.tolist()]) == every and kept
    expected = open_scene(path, ReadOptions(only_nm="601-900"))[1].index.tolist()
    assert open_scene(path, ReadOptions(only_nm="450-900", ignore_nm="450-600"))[1].index.tolist() == expected
    for wrong in ("water", "1-2", "5-"):
        refused(MethodError, "only_nm", open_scene, path, ReadOptions(only_nm=wrong))
    for wrong in ("0-1000", "500", "600-500", "a-b"):
        refused(MethodError, "ignore_nm", open_scene, path, ReadOptions(ignore_nm=wrong))


def test_auto_leaves_out_what_no_run_should_use(tmp_path):
    cube = np.random.default_rng(0).uniform(0.1, 0.6, (20, 30, 10)).astype(np.float32)
    cube[..., 2] = -9999  # dead
    cube[..., 4] = 0.25  # constant
    cube[..., 6] -= 0.6  # mostly negative
    cube[..., 8] += 7  # no reflectance
    cube[0, 0] = -9999
    path = write_cube(tmp_path / "c.hdr", cube, data_ignore_value="-9999")
    assert open_scene(path, ReadOptions(bands="auto"))[1].index.tolist() == [0, 1, 3, 5, 7, 9]
    radiance = write_cube(tmp_path / "r.hdr", cube[..., [0, 1, 3]] * 1000)  # bright bands are no fault there
    assert len(open_scene(radiance, ReadOptions(bands="auto"))[1].index) == 3
    report = unmix.run(path, count=2, bands="auto", device="cpu")
    assert report["pixels"]["masked"] == 1 and len(report["bands_used"]) == 6
    assert verify(tmp_path / "c").faults == []


def test_masks_by_name(tmp_path):
    assert mask_of("a/b.hdr") == mask_of("a/b.hdr:1")
    assert mask_of("a/b.hdr:12")[1] == "12" and mask_of("a/b.hdr:Cloud flag")[1] == "Cloud flag"
    (tmp_path / "odd:3").write_text("")
    assert mask_of(str(tmp_path / "odd:3")) == (tmp_path / "odd:3", "1")


def kept_of(path, **reading):
    """Which pixels a run solves, (lines, samples)."""
    scene, used, nodata = open_scene(path, ReadOptions(**reading))
    return ~missing(read_lines(scene, slice(0, scene.lines)), scene.interleave, used, nodata).reshape(
        scene.lines, scene.samples
    )


def test_masks_that_flag_bad_pixels(tmp_path, caplog):
    """As EMIT's: 1 is cloud. Several of them, beside one that says which pixels to keep, and of the scene or of the part."""
    random = np.random.default_rng(0)
    path = write_cube(tmp_path / "c.hdr", random.integers(1, 9, (6, 7, 3)).astype(np.int16))
    flags = random.integers(0, 2, (6, 7, 2)).astype(np.float32)
    flags[2, 3] = np.nan
    keep = random.integers(0, 3, (6, 7, 1)).astype(np.uint8)
    write_cube(tmp_path / "k.hdr", keep)
    with h5py.File(tmp_path / "m.nc", "w") as file:
        file["mask"] = flags
        file["sensor_band_parameters/mask_bands"] = np.array([b"Cloud flag", b"Cirrus flag"], dtype=object).astype("S")
    cloud, cirrus = f"{tmp_path}/m.nc:Cloud flag", f"{tmp_path}/m.nc:2"
    expected = (flags[..., 0] == 0) & (flags[..., 1] == 0)
    np.testing.assert_array_equal(kept_of(path, mask_out=cloud), flags[..., 0] == 0)
    np.testing.assert_array_equal(kept_of(path, mask_out=[cloud, cirrus]), expected)
    np.testing.assert_array_equal(
        kept_of(path, mask_out=[cloud, cirrus], mask=f"{tmp_path}/k.hdr"), expected & (keep[..., 0] > 0)
    )
    np.testing.assert_array_equal(
        kept_of(path, mask_out=[cirrus], lines="1:5", samples="2:"), (flags[..., 1] == 0)[1:5, 2:]
    )
    with pytest.raises(MethodError, match="no band 'Rain'; it has Cloud flag, Cirrus flag"):
        kept_of(path, mask_out=f"{tmp_path}/m.nc:Rain")
    refused(CubeError, "`mask_out` asks for band 3", kept_of, path, mask_out=f"{tmp_path}/m.nc:3")
    refused(MethodError, "/mask is no band of", kept_of, path, mask_out=f"{tmp_path}/m.nc:/mask")
    for bits in (1, 128):  # of codes and bits it is said that all are left out
        write_cube(tmp_path / "bits.hdr", bits * (keep.astype(np.int32) + 4 * (keep > 1)))
        how = {"mask_out": [f"{tmp_path}/bits.hdr"], "scale": 10, "out_dir": tmp_path / str(bits)}
        caplog.clear()
        unmix.run(path, count=2, extract="vca", **how)
        assert ("codes, or flags of bits" in caplog.text) == (bits == 128)
    report = unmix.run(path, count=2, extract="vca", mask_out=[cloud, cirrus], scale=10)
    assert report["pixels"]["solved"] == expected.sum() and len(report["identity"]["mask_out"]) == 2
    assert verify(tmp_path / "c").faults == []
    assert unmix.run(path, count=2, extract="vca", mask_out=[cloud, cirrus], scale=10, skip_existing=True)["skipped"]
    refused(unmix.OutputError, "exists already", unmix.run, path, count=2, extract="vca", mask_out=[cloud], scale=10)


def test_water_bands(tmp_path):
    waves = np.arange(1000, 2400, 50)
    path = write_cube(tmp_path / "c.hdr", np.ones((2, 2, len(waves)), np.int16), wavelength=waves)
    used = waves[open_scene(path, ReadOptions(ignore_nm="water,1000-1050"))[1].index]
    assert used.tolist() == [w for w in waves if not (1310 <= w <= 1490 or 1770 <= w <= 2050 or w <= 1050)]


@given(st.sets(st.integers(0, 40), min_size=1))
def test_ranges_say_what_parse_bands_reads(places):
    from unmix.scene.bands import parse_bands

    assert parse_bands(in_ranges(list(places)), 41).tolist() == sorted(places)


def test_gains_of_zero(tmp_path):
    """A band that is nothing but its offset says nothing; all of a scene would be certified without a word."""
    values = np.random.default_rng(0).integers(1, 100, (6, 5, 4)).astype(np.int16)
    path = write_cube(tmp_path / "c.hdr", values, data_gain_values="{1, 0, 1, 0}")
    E = unmix.Endmembers(("a", "b"), np.random.default_rng(1).random((4, 2)), None)
    with pytest.raises(CubeError, match=r"c\.img: the gain of bands 2,4 is 0.*`bands`.*`scale`") as error:
        unmix.run(path, endmembers=E, device="cpu")
    assert error.value.exit_code == 3
    assert open_scene(path, ReadOptions(bands="1,3"))[1].index.tolist() == [0, 2]
    assert open_scene(path, ReadOptions(bands="auto"))[1].index.tolist() == [0, 2]  # they are constant
    assert open_scene(path, ReadOptions(scale=100.0))[1].gain.tolist() == [0.01] * 4


@pytest.mark.parametrize("meant", [{}, {"scale": 10.0}])
def test_a_scene_without_signal(tmp_path, meant):
    path = write_cube(tmp_path / "c.hdr", np.zeros((6, 5, 4), np.int16))
    E = unmix.Endmembers(("a", "b"), np.random.default_rng(1).random((4, 2)), None)
    with pytest.raises(CubeError, match="all values of the 30 pixels looked at are 0") as error:
        unmix.run(path, endmembers=E, device="cpu", **meant)
    assert error.value.exit_code == 3 and not list(tmp_path.glob("*_*"))
    E.write(tmp_path / "e.csv", None, None)
    found = unmix.check(path, tmp_path / "e.csv", **meant)
    assert not found["sound"] and any(one["about"] == "signal" for one in found["findings"])


@pytest.mark.parametrize("dtype", ["int16", "uint16", "float32"])
@pytest.mark.parametrize("nodata", [None, 7.0])
@pytest.mark.parametrize("window", [False, True])
def test_values_above_the_largest_that_is_valid(tmp_path, caplog, dtype, nodata, window):
    """Pixels with one in a band in use have no data, in files and in parts; they are told of where they are not left out."""
    cube = np.random.default_rng(2).integers(100, 3000, (9, 11, 6)).astype(dtype)
    largest = np.iinfo(dtype).max if dtype != "float32" else 4000.0
    cube[2, 3, 1], cube[5, 5, 2:4], cube[7, :, 5] = largest, largest, largest
    cube[0, 0] = 7
    fields = {} if nodata is None else {"data_ignore_value": nodata}
    path = write_cube(tmp_path / "c.hdr", cube, "bil", **fields)
    part = {"lines": "0:9", "samples": "1:11"} if window else {}
    scene = open_scene(path, ReadOptions(valid_max=3000.0, bands="1-5", **part))
    raw = scene.cube.read(slice(0, 9), np.empty(9 * 11 * 6 * 8, np.uint8))
    expected = (cube[..., :5] > 3000).any(axis=2) | ((cube == nodata).any(axis=2) if nodata else False)
    np.testing.assert_array_equal(scene.missing(raw).reshape(9, -1), expected[:, window:])
    kept = ~expected[:, window:]
    np.testing.assert_array_equal(scene.spectra(raw).reshape(9, -1, 5)[kept], cube[:, window:, :5][kept])
    warn_of_fill(open_scene(path, ReadOptions(bands="1-5")))
    said = (
        f"2 of the 99 pixels looked at hold {largest} in some bands, as saturated ones, or fill, do; `valid_max` "
        f"{largest - 1} leaves"
    )
    assert (said in caplog.text) == (dtype != "float32")
    caplog.clear()
    warn_of_fill(open_scene(path, ReadOptions(bands="1-5", valid_max=3000.0)))
    assert "saturated" not in caplog.text


def test_a_few_pixels_that_are_saturated_in_all_bands_are_named(tmp_path):
    cube = np.random.default_rng(4).integers(1000, 6000, (40, 50, 12)).astype(np.int16)
    cube[7, 8] = cube[7, 9] = 32767
    findings = unmix.check(write_cube(tmp_path / "c.hdr", cube))["findings"]
    assert any("2 of the 2000 pixels looked at hold 32767" in one["message"] for one in findings)


@pytest.mark.parametrize("cut", [4095, 12000])
def test_a_detector_that_saturates_below_its_type_is_named(tmp_path, cut):
    """And a scene that only is bright in places is not."""
    random = np.random.default_rng(6)
    E = np.linspace(0.1, 0.9, 12)[:, None] * random.uniform(0.2, 1.0, 3)
    cube = np.round(8400 * random.dirichlet(np.ones(3), (60, 60)) @ E.T + random.normal(0, 9, (60, 60, 12)))
    findings = unmix.check(write_cube(tmp_path / "c.hdr", np.minimum(cube, cut).clip(0).astype(np.uint16)))["findings"]
    assert any("hold 4095 in some bands" in one["message"] for one in findings) == (cut == 4095)


def test_a_run_without_saturated_pixels(tmp_path):
    random = np.random.default_rng(4)
    E = random.uniform(0.1, 0.6, (12, 3))
    cube = np.round(1e4 * random.dirichlet(np.ones(3), (20, 20)) @ E.T).astype(np.int16)
    cube[3, 4, 2:] = cube[11, 19, 5] = 32767
    path = write_cube(tmp_path / "c.hdr", cube)
    report = unmix.run(
        path, count=3, extract="vca", method="fcls", device="cpu", out_dir=tmp_path / "o", valid_max=32766
    )
    assert report["pixels"]["solved"] == 398 and report["fit"]["maximum_rmse"] < 1e4
    assert verify(tmp_path / "o/c", everything=True).faults == []
    assert not any("saturated" in said for said in report["warnings"])


@pytest.mark.parametrize(
    ("size", "largest", "gain", "says"),
    [
        (2000.0, 20.0, 1.0, "`scale` 10000 with `library_scale` 100 if both are reflectance in these units, `scale` "),
        (20.0, 2000.0, 1.0, "`scale` 100 with `library_scale` 10000 if both are reflectance in these units, `scale` "),
        (20.0, 2000.0, 0.1, "`scale` 1000 with `library_scale` 10000 if both are reflectance in these units, `scale` "),
        (2000.0, 0.3, 1.0, "`scale` 10000 (or `library_scale` 0.0001) brings them together, `scale` 1 keeps them"),
        (0.3, 40.0, 1.0, "`library_scale` 100 (or `scale` 0.01) brings them together, `scale` 1 keeps them"),
        (5e7, 40.0, 1.0, "`scale` 1e+06 (or `library_scale` 1e-06) brings them together"),
    ],
)
def test_scales_of_two_units(size, largest, gain, says):
    """Each brings both to reflectance, where neither is: an RMSE would be in per cent otherwise. Sizes are of a band."""
    said = said_of_scales(size / largest, (gain, 1.0), 3 * size, 3 * largest, 9)
    assert said.startswith(says) and said.endswith("keeps them") and len(said.split()) <= 18


def test_advice_on_scales_counts_from_what_was_given():
    """A `library_scale` that was given is part of the next one, or two pieces of advice would go in a circle."""
    for divisor in (1.0, 100.0, 1000.0):
        said = said_of_scales(3e-6 * divisor, (1.0, divisor), 0.9, 3e5 / divisor, 9)
        assert f"`library_scale` {3e5 / 0.9:.0e}".replace("3e+05", "333333") in said or "`library_scale` 1e+06" in said


@pytest.mark.parametrize("name", ["S2B_MSIL2A_20230601T0_N0509_x", "scene"])
def test_the_offset_of_a_product_that_is_not_taken_off(tmp_path, caplog, name):
    """Known by the name; with the offset given, as 0 too, nothing is said."""
    Y = np.random.default_rng(0).uniform(0.05, 0.4, (8, 9, 6))
    path = write_cube(tmp_path / f"{name}.hdr", (10000 * Y + 1000).astype(np.uint16))
    for how in ({"scale": 1e4}, {"scale": 1e4, "offset": 0.0}, {"preset": "sentinel-2"}, {}):
        caplog.clear()
        open_scene(path, ReadOptions(**how))
        assert ("by its name it may have an offset" in caplog.text) == (name != "scene" and how == {"scale": 1e4})
    library = write_csv(tmp_path / "e.csv", Y[0, :3].T)
    with pytest.raises(unmix.CubeError) as stopped:
        unmix.run(path, endmembers=library, device="cpu")
    assert ("`preset` sentinel-2, by its name, brings them together" in str(stopped.value)) == (name != "scene")


def test_noise_is_no_other_scale(tmp_path):
    """Counts whose misfit is noise are mixtures at some scale: means of pixels tell."""
    random = np.random.default_rng(1)
    E = random.uniform(0.2, 1.0, (30, 3))
    Y = random.poisson(3 * random.dirichlet(np.ones(3), (30, 40)) @ E.T).astype(np.float32) * 100
    path = write_cube(tmp_path / "c.hdr", Y)
    with pytest.raises(unmix.CubeError, match="brings them together, `scale` 1 keeps them"):
        unmix.run(path, endmembers=write_csv(tmp_path / "e.csv", E), device="cpu")
