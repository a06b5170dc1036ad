"""Pictures of spectra: what is drawn is what the files hold."""

import json
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from conftest import read_map, refused, write_csv, write_cube
from test_cli import unmix as command

import unmix
from unmix.errors import OutputError
from unmix.features.plot.spectra import SpectrumLine, picture_of_spectra
from unmix.pages import dash_of, hex_of

pytest.importorskip("matplotlib")
SVG = "{http://www.w3.org/2000/svg}"
NAMES = ("soil", "_tree", "$road$", "<water> & ü")


@pytest.fixture
def scene(tmp_path):
    """A cube with wavelengths, and a library with a gap and odd names."""
    random = np.random.default_rng(2)
    waves = np.concatenate([np.arange(400, 1300, 50.0), np.arange(1600, 2400, 50.0)])
    E = random.uniform(0.1, 0.9, (len(waves), 4))
    Y = random.dirichlet(np.ones(4), (6, 7)) @ E.T + 0.01
    path = write_cube(tmp_path / "s.hdr", Y.astype(np.float32), wavelength=waves)
    write_csv(tmp_path / "e.csv", E, waves, names=NAMES)
    return path, waves, E, Y.astype(np.float32)


def drawn(path):
    """The lines of an SVG picture as points, of each its pieces, and those of dots, which are drawn last; and its texts."""
    root = ElementTree.parse(path).getroot()
    found = []
    for group in root.iter(f"{SVG}g"):
        if re.fullmatch(r"line2d_\d+", group.get("id", "")):
            for one in group.findall(f"{SVG}path"):
                pieces = one.get("d").split("M")[1:]
                points = [np.array(re.findall(r"-?[\d.]+", piece), float).reshape(-1, 2) for piece in pieces]
                if sum(map(len, points)) > 5:
                    found.append(points)
            dots = [(float(one.get("x")), float(one.get("y"))) for one in group.iter(f"{SVG}use")]
            if len(dots) > 5:
                found.append([np.array(dots)])
    return found, [one.text for one in root.iter(f"{SVG}text")]


def heights_match(points, values):
    """Whether heights are a linear function of values, growing upwards."""
    heights = -np.concatenate(points)[:, 1]
    slope, at = np.polyfit(values, heights, 1)
    return slope > 0 and np.abs(heights - slope * values - at).max() < 1e-3


def test_a_library(tmp_path, scene):
    _, _, E, _ = scene
    out, _ = command("plot", tmp_path / "e.csv", "-o", tmp_path / "e.svg")
    assert out.strip() == str(tmp_path / "e.svg")
    lines, texts = drawn(tmp_path / "e.svg")
    assert len(lines) == 4 and all([len(piece) for piece in line] == [18, 16] for line in lines)
    assert all(heights_match(line, E[:, j]) for j, line in enumerate(lines))
    assert [text.strip("\u200b") for text in texts if text.strip("\u200b") in NAMES] == list(NAMES)
    assert "wavelength (nm)" in texts
    command("plot", tmp_path / "e.csv", "--select", "soil", "-o", tmp_path / "one.png")
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
    command("plot", tmp_path / "e.csv", "-o", tmp_path / "e.pdf")


def test_all_lines_that_the_legend_names_differ(tmp_path):
    """Up to 24 have a colour and dashes of their own."""
    pytest.importorskip("matplotlib")
    values = np.random.default_rng(7).random((6, 24))
    shown = picture_of_spectra([SpectrumLine(f"m{k}", None, values[:, k]) for k in range(24)], 200.0, 72).axes[0].lines
    assert [one.get_color() for one in shown] == [hex_of(k + 1) for k in range(24)]
    assert [one.is_dashed() for one in shown] == [bool(dash_of(k + 1)) for k in range(24)]


def test_pixels_and_endmembers_of_runs(tmp_path, scene):
    path, _, E, Y = scene
    command("plot", path, "--at", "2,3", "--at", "0,0", "-o", tmp_path / "p.svg")
    lines, texts = drawn(tmp_path / "p.svg")
    assert all(heights_match(line, Y[place].astype(float)) for line, place in zip(lines, ((2, 3), (0, 0))))
    assert {"s 2,3", "s 0,0"} <= {text.strip("\u200b") for text in texts}
    # A run beside the cube that is not finished does not matter.
    (tmp_path / "s_run.lock").write_text("{}")
    unmix.plot(path, tmp_path / "again.svg", at=["2,3", "0,0"])
    for line, same in zip(lines, drawn(tmp_path / "again.svg")[0], strict=True):
        np.testing.assert_array_equal(np.concatenate(line), np.concatenate(same))
    refused(OutputError, "no finished run", unmix.plot, tmp_path / "s", tmp_path / "no.svg", at=["2,3"])
    unmix.run(path, endmembers=tmp_path / "e.csv", method="nnls", device="cpu", out_dir=tmp_path / "o", residual=True)
    unmix.plot(tmp_path / "o/s", tmp_path / "m.svg")
    assert len(drawn(tmp_path / "m.svg")[0]) == 4
    unmix.plot(tmp_path / "o/s_abundance.img", tmp_path / "r.svg", at=["2,3"])
    modelled, residual, measured = drawn(tmp_path / "r.svg")[0]
    left = read_map(tmp_path / "o/s", "residual")[2, 3].astype(float)
    a = read_map(tmp_path / "o/s", "abundance")[2, 3].astype(float)
    assert heights_match(measured, Y[2, 3].astype(float)) and heights_match(modelled, E @ a)
    assert heights_match(residual, left)


def test_pixels_that_cannot_be_drawn(tmp_path, scene):
    path, _, _, Y = scene
    unmix.run(path, endmembers=tmp_path / "e.csv", method="nnls", top=4, device="cpu", out_dir=tmp_path / "top")
    assert "only the largest" in command("plot", tmp_path / "top/s", "--at", "1,1", "-o", tmp_path / "x.png", code=3)[1]
    hole = Y.copy()
    hole[1, 1] = np.nan
    write_cube(tmp_path / "h.hdr", hole)
    write_csv(tmp_path / "plain.csv", scene[2])
    unmix.run(
        tmp_path / "h.hdr", endmembers=tmp_path / "plain.csv", method="nnls", device="cpu", out_dir=tmp_path / "o"
    )
    said = command("plot", tmp_path / "o/h", "--at", "1,1", "-o", tmp_path / "x.png", code=3)[1]
    assert "line 1, sample 1 has no result" in said
    record = json.loads((tmp_path / "o/h_run.json").read_text())
    (tmp_path / "o/h_run.json").write_text(json.dumps(record | {"bands_used": [999]}))
    assert (
        "another number of bands"
        in command("plot", tmp_path / "o/h", "--at", "0,0", "-o", tmp_path / "x.png", code=3)[1]
    )
    assert not (tmp_path / "x.png").exists()


WRONG = [
    (["e.csv", "-o", "x.gif"], 2, "pictures are written as"),
    (["s.hdr", "--at", "2", "-o", "x.png"], 2, "write LINE,SAMPLE"),
    (["s.hdr", "--at", "60,0", "-o", "x.png"], 3, "no pixel 60,0"),
    (["e.csv", "--select", "none", "-o", "x.png"], 3, "none"),
    (["e.csv", "-o", "taken.png"], 1, "exists already"),
    (["e.csv", "-o", "taken.png", "--overwrite"], 1, "unmix did not write it"),
    (["e.csv", "e.csv", "-o", "e.csv"], 2, "pictures are written as"),
    (["missing.csv", "-o", "x.png"], 3, "missing.csv"),
]


@pytest.mark.parametrize(("words", "code", "text"), WRONG)
def test_what_is_wrong_is_said(tmp_path, scene, words, code, text):
    (tmp_path / "taken.png").write_bytes(b"mine")
    assert text in command("plot", *words, code=code, cwd=tmp_path)[1]
    assert (tmp_path / "taken.png").read_bytes() == b"mine" and not (tmp_path / "x.png").exists()
