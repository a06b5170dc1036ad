"""The part of a scene in a box on the map, against the centres of its pixels."""

import h5py
import numpy as np
import pytest
from conftest import mix, refused, write_csv, write_cube
from test_cli import unmix as command

import unmix
from unmix.io.window import origin_of
from unmix.scene import ReadOptions, open_scene

MAP = "{UTM, 1, 1, 500000, 4000000, 30, 20, 11, North, WGS-84}"
TURNED = "{UTM, 1, 1, 500000, 4000000, 30, 20, 11, North, WGS-84, rotation=30}"


def part(path, bbox):
    """Line, sample, lines and samples of what is read."""
    scene, *_ = open_scene(path, ReadOptions(bbox=bbox))
    return (*origin_of(scene), scene.lines, scene.samples)


@pytest.mark.parametrize("bip", ["bip", "bsq"])
def test_pixels_whose_centres_are_in_the_box(tmp_path, bip):
    Y = np.arange(8 * 10 * 3).reshape(8, 10, 3).astype(np.float32)
    path = write_cube(tmp_path / "x.hdr", Y, bip, map_info=MAP)
    assert part(path, "500000,3999840,500300,4000000") == (0, 0, 8, 10)
    assert part(path, "500045,3999950,500100,3999990") == (0, 1, 3, 2)  # centres on the edge count
    with pytest.raises(unmix.MethodError, match="no pixel is in it; the map is from 500000,3999840 to 500300,4000000"):
        part(path, "0,0,1,1")


@pytest.mark.parametrize("map_info", [MAP, TURNED])
def test_against_every_centre(tmp_path, map_info):
    Y = np.random.default_rng(0).uniform(0.1, 1, (9, 7, 3)).astype(np.float32)
    path = write_cube(tmp_path / "x.hdr", Y, map_info=map_info)
    scene, *_ = open_scene(path)
    from unmix.io.formats.header import geotransform

    x0, a, b, y0, d, e = geotransform(scene.fields["map info"])
    line, sample = np.mgrid[:9, :7]
    x, y = x0 + a * (sample + 0.5) + b * (line + 0.5), y0 + d * (sample + 0.5) + e * (line + 0.5)
    random = np.random.default_rng(1)
    for _ in range(40):
        low, high = (
            np.sort(random.uniform(x.min() - 20, x.max() + 20, 2)),
            np.sort(random.uniform(y.min() - 20, y.max() + 20, 2)),
        )
        inside = (x >= low[0]) & (x <= low[1]) & (y >= high[0]) & (y <= high[1])
        box = ",".join(repr(float(edge)) for edge in (low[0], high[0], low[1], high[1]))
        if not inside.any():
            refused(unmix.MethodError, "no pixel", part, path, box)
            continue
        rows, columns = np.flatnonzero(inside.any(axis=1)), np.flatnonzero(inside.any(axis=0))
        assert part(path, box) == (rows[0], columns[0], rows[-1] - rows[0] + 1, columns[-1] - columns[0] + 1)


def test_a_swath_with_a_lookup_table(tmp_path):
    """The smallest part of the swath with all pixels that the table puts into the box."""
    random = np.random.default_rng(2)
    y, x = random.integers(0, 7, (6, 8)), random.integers(0, 6, (6, 8))
    with h5py.File(tmp_path / "e.nc", "w") as file:
        file["reflectance"] = random.uniform(0.1, 0.5, (6, 5, 4)).astype(np.float32)
        file["sensor_band_parameters/wavelengths"] = np.arange(4) * 100.0 + 400
        file["sensor_band_parameters/fwhm"] = np.full(4, 8.0)
        file["location/glt_x"], file["location/glt_y"] = x.astype(np.int32), y.astype(np.int32)
        file.attrs["geotransform"] = [-120.0, 0.001, 0.0, 35.0, 0.0, -0.001]
        file.attrs["spatial_ref"] = "EPSG:4326"
    box = "-119.998,34.9965,-119.9945,34.9985"
    across, down = -120.0 + 0.001 * (np.arange(8) + 0.5), 35.0 - 0.001 * (np.arange(6) + 0.5)
    inside = ((across >= -119.998) & (across <= -119.9945))[None] & ((down >= 34.9965) & (down <= 34.9985))[:, None]
    inside &= (y > 0) & (x > 0) & (y <= 6) & (x <= 5)
    lines, samples = y[inside] - 1, x[inside] - 1
    expected = (lines.min(), samples.min(), np.ptp(lines) + 1, np.ptp(samples) + 1)
    assert part(tmp_path / "e.nc", box) == expected


def test_runs_say_which_part_they_are_of(tmp_path):
    _, E, Y = mix(0, (8, 10), 5, 3)
    path = write_cube(tmp_path / "x.hdr", Y, map_info=MAP)
    write_csv(tmp_path / "l.csv", E)
    words = ("run", path, "-e", tmp_path / "l.csv")
    command(*words, "--bbox", "500045,3999900,500200,3999990", "-o", tmp_path / "box")
    command(*words, "--lines", "0:5", "--samples", "1:7", "-o", tmp_path / "part")
    assert (tmp_path / "box/x_abundance.img").read_bytes() == (tmp_path / "part/x_abundance.img").read_bytes()
    assert "map info = {UTM, 0, 1," in (tmp_path / "box/x_abundance.hdr").read_text()
    assert "80 pixels" not in command("verify", tmp_path / "box/x")[0]
    command("compare", tmp_path / "box/x", tmp_path / "part/x")
    command(*words, "--lines", "1:6", "--samples", "1:7", "-o", tmp_path / "other")
    assert (
        "24 pixels compared" in command("compare", tmp_path / "box/x", tmp_path / "other/x")[0]
    )  # lines 1 to 4 of both
    command(*words, "--lines", "6:8", "--samples", "1:7", "-o", tmp_path / "third")
    assert "another part" in command("compare", tmp_path / "box/x", tmp_path / "third/x", code=3)[1]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"bbox": "1,2,3"}, "write W,S,E,N"),
        ({"bbox": "3,2,1,4"}, "west below east"),
        ({"bbox": "1,2,x,4"}, "write W,S,E,N"),
        ({"bbox": "1,2,inf,4"}, "write W,S,E,N"),
        ({"bbox": "1,2,3,4", "lines": "0:1"}, "contradicts"),
        ({"bbox": "1,2,3,4"}, "no place"),
    ],
)
def test_boxes_that_cannot_be(tmp_path, words, text):
    path = write_cube(tmp_path / "x.hdr", np.ones((3, 4, 5)))
    refused(unmix.MethodError, text, open_scene, path, ReadOptions(**words))
