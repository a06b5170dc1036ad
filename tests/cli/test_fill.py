"""Fill values that no header declares are named by every command that would take them for data, with the flag that leaves them out."""

import contextlib
import json
import logging

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import write_csv, write_cube
from unmix_cli.main import cli

import unmix
from unmix.errors import UnmixError
from unmix.io import Scene
from unmix.scene import ReadOptions, open_scene
from unmix.scene.sample import survey
from unmix.scene.undeclared import SWAPPED, UNDECLARED, ConstantPixels

WAVES = np.linspace(450.0, 2300.0, 12)
E = np.stack([0.4 + 0.3 * np.sin(WAVES / 300 + k) for k in range(3)], axis=1)
AXIS = {"wavelength": "{" + ", ".join(map(repr, WAVES.tolist())) + "}", "wavelength_units": "nm"}


def scene_of(folder, fills, dtype="float32", interleave="bip", bands=12, **fields):
    """A cube of 30 x 20 pixels; ``fills`` are (lines, stored value)."""
    random = np.random.default_rng(0)
    Y = random.dirichlet(np.ones(3), (30, 20)) @ E.T + 0.002 * random.standard_normal((30, 20, 12))
    if np.dtype(dtype).kind != "f":
        Y, fields = np.round(Y * 10000), {"reflectance_scale_factor": 10000} | fields
    stored = Y.astype(dtype)
    for lines, value in fills:
        stored[lines] = value
    write_csv(folder / "e.csv", E[:bands], WAVES[:bands])
    axis = AXIS if bands == 12 else {}
    return write_cube(folder / "c.hdr", stored[..., :bands], interleave, **axis | fields)


def warnings_of(caplog, act):
    """What ``act`` warns of that is about fill; it must be said once."""
    caplog.clear()
    # Beside a fill of -1e34 all other pixels are one spectrum: an extraction ends with that, after the warning.
    with caplog.at_level(logging.WARNING, "unmix"), contextlib.suppress(UnmixError):
        act()
    said = [record.getMessage() for record in caplog.records if UNDECLARED in record.getMessage()]
    assert len(said) <= 1, said
    return said


@pytest.mark.parametrize(
    ("dtype", "interleave", "value", "typed"),
    [
        ("float32", "bip", -9999, "-9999"),
        ("float32", "bsq", -1.23e34, "-1.23e+34"),
        ("uint16", "bsq", 65535, "65535"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [
                ("float64", "bsq", -0.25, "-0.25"),
                ("int16", "bsq", -50, "-50"),
                ("int32", "bil", 0, "0"),
                ("float32", "bil", 0, "0"),
            ]
        ),
    ],
)
def test_every_command_names_the_stored_value(tmp_path, caplog, dtype, interleave, value, typed):
    """28 % of the pixels; with the flag that is printed they are masked, and nothing more is said."""
    cube = scene_of(tmp_path, [(slice(8, 16), value)], dtype, interleave)
    how = {"device": "cpu", "overwrite": True, "browse": False}
    commands = {
        "library": lambda **more: unmix.run(cube, endmembers=tmp_path / "e.csv", **how | more),
        "extracted": lambda **more: unmix.run(cube, count=2, extract="vca", **how | more),
        "endmembers": lambda **more: unmix.extract(cube, count=2, extract="vca", **more),
    }
    for name, command in commands.items():
        (said,) = warnings_of(caplog, command)
        assert f"27 % of the 600 pixels looked at hold {typed} in every band" in said, name
        assert f"`nodata` {typed} leaves them out" in said
        assert warnings_of(caplog, lambda: command(nodata=float(typed))) == []  # noqa: B023
    findings = unmix.check(cube, tmp_path / "e.csv")["findings"]
    assert [f["severity"] for f in findings if UNDECLARED in f["message"]] == ["warning"]
    # The scale is judged without the fill.
    assert not [f for f in findings if f["about"] == "scale" and f["severity"] == "error"]
    record = json.loads((tmp_path / "c_run.json").read_text())
    assert record["pixels"]["masked"] == 160 and UNDECLARED not in str(record["warnings"])
    assert f"--nodata {typed} leaves them out" in CliRunner().invoke(cli, ["count", str(cube)]).output
    assert UNDECLARED not in CliRunner().invoke(cli, ["count", str(cube), "--nodata", typed]).output


def test_what_else_there_may_be(tmp_path, caplog):
    """Two values, a declared one beside, a part of a scene, masks, tied windows: said once, and true."""

    def said(cube, **how):
        how = {"device": "cpu", "overwrite": True, "browse": False, "endmembers": tmp_path / "e.csv"} | how
        return " ".join(warnings_of(caplog, lambda: unmix.run(cube, **how)))

    both = [(slice(0, 4), -9999), (slice(8, 16), -50)]
    text = said(scene_of(tmp_path, both, "int16"))
    assert "27 % of the 600 pixels looked at hold -50, 13 % hold -9999 in every band" in text
    assert text.endswith("`nodata` -50 leaves them out, and pixels with it in single bands, `mask` the others")
    cube = scene_of(tmp_path, both, "int16", data_ignore_value=-9999)
    assert "value -9999 is in use too, so set these pixels to it, or leave them out with `mask`" in said(cube)
    cube = scene_of(tmp_path, both, "int16", data_ignore_value=-8888)
    assert "`nodata` -50 leaves them out" in said(cube)
    cube = scene_of(tmp_path, [(slice(8, 16), -50)], "int16")
    assert said(cube, lines="16:30") == "" and "50 %" in said(cube, lines="8:24")
    assert "`nodata` -50" in said(cube, tie="450-800")
    write_cube(tmp_path / "m.hdr", np.arange(600, dtype=np.uint8).reshape(30, 20, 1) % 2)
    assert said(cube, mask=str(tmp_path / "m.hdr")).endswith(
        "`nodata` -50 leaves them out, and pixels with it in single bands; `mask_out` a raster keeps these"
    )


def test_it_is_silent_where_nothing_is_wrong(tmp_path):
    """Few pixels, few bands, a scene that is nothing else, pixels that are flat at values of their own."""
    for fills, bands in (([], 12), ([(0, 0.0)], 3), ([(slice(None), 7)], 12)):
        assert survey(open_scene(scene_of(tmp_path, fills, bands=bands))).fill is None
    cube = scene_of(tmp_path, [])
    stored = np.fromfile(cube.with_suffix(".img"), "<f4").reshape(600, 12)
    stored[:300] = np.arange(1, 301)[:, None]
    stored[300:303] = 0  # 0.5 %, no more
    stored.tofile(cube.with_suffix(".img"))
    assert survey(open_scene(cube)).fill is None
    stored[303] = 0
    stored.tofile(cube.with_suffix(".img"))
    assert "0.67 % of the 600" in survey(open_scene(cube)).fill


@pytest.mark.parametrize("shape", [(1, 70_000), (3000, 40), (50, 5), (400, 300)])
def test_some_pixels_of_a_pass_are_enough(shape):
    """Of blocks of any size the same pixels are looked at, at most some 10 000 and 16 lines; bsq and bip alike."""
    lines, samples = shape
    cube = type(
        "Cube", (), {"lines": lines, "samples": samples, "interleave": "bip", "dtype": np.dtype("i2"), "problems": []}
    )
    bands = type("Bands", (), {"index": np.arange(5)})
    raw = np.zeros((lines, samples, 5), np.int16)
    raw[:, ::4] = np.arange(5)
    found = []
    for step in (1, 7, lines):
        constants = ConstantPixels(Scene(cube, bands, None))
        for first in range(0, lines, step):
            constants.look(raw[first : first + step], slice(first, min(first + step, lines)))
        found.append((constants.pixels, dict(constants.counts)))
    assert found[0] == found[1] == found[2]
    assert min(lines * samples, 5000) <= found[0][0] <= 20_000
    assert found[0][1][0.0] / found[0][0] == pytest.approx(0.75, abs=0.26)


@pytest.mark.real
def test_no_sound_scene_is_suspected(data):
    """Of the real scenes only the fractions of Berlin, whose headers do not declare their -99, are named."""
    scenes = (
        "aviris_ng/*.hdr",
        "berlin/*En*.hdr",
        "emit_unmix/data/*.hdr",
        "enmap_tiles/*.tif",
        "hysu/*_targets.mat",
        "hysu/HySpex/*/*.hdr",
        "jasper/*.hdr",
        "neon_aop/*.h5",
        "salinas_a/*.hdr",
        "salton_sea/*.mat",
        "samson/*.hdr",
        "sim1_synth/Y_clean.mat",
    )
    paths = [path for pattern in scenes for path in data.glob(pattern)]
    assert len(paths) > 15
    assert {str(path): fill for path in paths if (fill := survey(open_scene(path, ReadOptions())).fill)} == {}
    layers = list(data.glob("berlin/LandCov_Layer*.hdr"))
    assert all("hold -99 in every band" in str(survey(open_scene(path, ReadOptions())).fill) for path in layers)
    assert layers


@pytest.mark.parametrize("dtype", ["int16", "uint16", "int32", "float32"])
def test_a_wrong_byte_order_is_said(tmp_path, caplog, dtype):
    """By the smoothness of whole numbers; of real ones by nonsense of any size. Not of what is right."""
    waves = np.linspace(450.0, 2300.0, 40)
    E = np.stack([0.4 + 0.3 * np.sin(waves / 300 + k) for k in range(3)], axis=1)
    Y = 10000 * np.random.default_rng(0).dirichlet(np.ones(3), (30, 20)) @ E.T
    Y[:14] = 0  # fill tells nothing
    library = write_csv(tmp_path / "e.csv", 10000 * E, waves)
    path = write_cube(tmp_path / "c.hdr", Y.astype(dtype), wavelength=waves.tolist())
    for order in (0, 1):
        caplog.clear()
        path.write_text(path.read_text().replace("byte order = 0", f"byte order = {order}"))
        with contextlib.suppress(UnmixError):
            unmix.run(path, endmembers=library, method="fcls", device="cpu", scale=1.0, out_dir=tmp_path / str(order))
        is_whole = dtype != "float32"
        assert (SWAPPED in caplog.text) == (order == 1 and is_whole)
        found = str(unmix.check(path, library, scale=1.0)["findings"])
        assert (SWAPPED in found) == (order == 1 and is_whole)
