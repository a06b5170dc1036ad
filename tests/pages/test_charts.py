"""Charts are read: text of 9 px on telephones and desks, frames without a fill, names in ink, lines told apart by dashes."""

import itertools
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from test_colours import SEEN, STYLE, contrast, lab

from unmix.pages import parts, pictures
from unmix.pages.compare_page import LIGHTEST, density_of_pairs

# Pixels of text at least, and beside a page's content and a figure's, of both sides together (page.css).
LEAST, MARGIN, FIGURE = 9.0, 32.0, 19.2


def size_of_text(width: int, kind: str) -> float:
    """The size of a chart's text in its own unit on a page of that width, as the style says: the last rule that applies."""
    usual, *_ = re.findall(r"svg text \{[^}]*font-size: (\d+)px", STYLE)
    found = float(usual)
    for most, rules in re.findall(r"@media \(max-width: (\d+)px\) \{(.*(?:\n  .*)*)\}", STYLE):
        size = re.search(rf"{re.escape(kind)} text[^{{]*\{{ font-size: (\d+)px", rules)
        found = float(size[1]) if size and width <= int(most) else found
    return found


def columns_of(width: float, least: float, gap: float = 16.0) -> float:
    """The width of one of as many columns of at least that width as have room."""
    count = max(1, int((width + gap) // (least + gap)))
    return (width - (count - 1) * gap) / count


@pytest.mark.parametrize(
    "page", [320, 359, 360, 375, 440, 441, 480, 481, 640, 641, 840, 841, 960, 961, 1100, 1167, 1240, 1280, 1920]
)
def test_text_is_large_enough(page: int) -> None:
    """By the width of a chart and of its viewBox: spectra alone and side by side, histograms of maps, compared maps, RMSE."""
    room = min(page, 1240) - MARGIN
    wide = columns_of(room, min(room, 560.0)) - FIGURE
    assert "minmax(min(100%, 560px), 1fr)" in STYLE and "minmax(min(100%, 270px), 1fr)" in STYLE
    assert min(wide, room, 900.0) / parts.WIDE * size_of_text(page, "svg.lines") >= LEAST
    across = 1 if page <= 359 else 2 if page <= 960 else 4
    compared = (room - 16 * (across - 1)) / across - FIGURE
    assert compared / 240 * size_of_text(page, ".compared svg") >= LEAST
    assert (columns_of(room, 220.0) - FIGURE) / 240 * size_of_text(page, "svg.none") >= LEAST
    assert columns_of(room, min(room, 270.0)) / 320 * size_of_text(page, "svg.none") >= LEAST
    top = (room if page <= 840 else (room - 16) / 2) - FIGURE
    assert min(top, 640) / 440 * size_of_text(page, ".top svg") >= LEAST


@pytest.mark.parametrize("scheme", [0, 1])
def test_contrast_of_text(scheme: int) -> None:
    """4.5 and more, of ink and quiet text on paper and fields; names of lines have no colour but ink."""
    of = {
        name: bytes.fromhex(re.findall(rf"--{name}:#([0-9a-f]+)", STYLE)[scheme].replace("fff", "ffffff"))
        for name in ("paper", "field", "ink", "quiet")
    }
    assert min(contrast(of[one], of[two]) for one in ("ink", "quiet") for two in ("paper", "field")) >= 4.5
    assert re.search(r"svg \.name \{[^}]*\}", STYLE) and "color" not in re.search(r"svg \.name \{[^}]*\}", STYLE)[0]


def test_frames_have_no_fill() -> None:
    """A style of all rectangles would replace it: only bars have one."""
    assert re.findall(r"[^\s,}]*[^,{}]*rect[^{]*\{", STYLE) and not re.search(r"(?<!bars )rect", STYLE)
    chart = parts.square_chart("", -0.1, 1.2, "measured", "mapped", "a", "b")
    assert ElementTree.fromstring(chart).find("g/rect").get("fill") == "none"
    assert ">measured</text>" in chart and ">mapped</text>" in chart and chart.count(">0.5</text>") == 2


def test_a_density_is_read_on_its_ground() -> None:
    colours = pictures.ramp(pictures.VIRIDIS)[: LIGHTEST + 1, :3]
    assert min(contrast(bytes(one), b"\xff\xff\xff") for one in colours) >= 3.0
    drawn = ElementTree.fromstring(density_of_pairs(np.eye(64, dtype=int), "a"))
    assert next(drawn.iter("rect")).get("fill") == "#fff"


@pytest.mark.parametrize("count", [2, 5, 12])
def test_names_of_lines(count: int) -> None:
    """One below the other, within the chart, each beside a piece of its line with its dashes."""
    names = ["<" + "m" * 40 + str(k) for k in range(count)]
    drawn = parts.lines(
        np.arange(4.0), np.full((4, count), 0.3), names, [pictures.hex_of(k + 1) for k in range(count)], "band", 2.0
    )
    root = ElementTree.fromstring(drawn)
    boxes = [(float(one.get("y")), float(one.get("height"))) for one in root.iter("foreignObject")]
    assert len(boxes) == count and all(b - a >= 18.9 for (a, _), (b, _) in itertools.pairwise(boxes))
    assert all(y >= 0 and y + high <= parts.HIGH for y, high in boxes)
    assert [one.get("style") for one in root.iter("line") if one.get("class") == "piece"] == [
        parts.stroke_style(pictures.hex_of(k + 1), k + 1) for k in range(count)
    ]
    texts = [(one.text, float(one.get("x") or 0), float(one.get("y"))) for one in root.iter("text")]
    assert all(12 <= y <= parts.HIGH - 5 for _, _, y in texts)


def test_keys_show_dashes() -> None:
    drawn = parts.keys([pictures.hex_of(2), pictures.GREY], ["a", "b"], 2, dotted=(1,))
    assert [one or "" for one in re.findall(r"stroke-dasharray:([0-9,]+)", drawn)] == ["7,3", "2,4"]


@pytest.mark.parametrize(("count", "least"), [(15, 15.0), (20, 10.0)])
def test_lines_with_the_same_dashes_differ(count: int, least: float) -> None:
    """As people with deuteranopia or protanopia see them."""
    pairs = [
        pair
        for pair in itertools.combinations(range(1, count + 1), 2)
        if pictures.dash_of(pair[0]) == pictures.dash_of(pair[1])
    ]
    for seen in SEEN.values():
        found = [np.linalg.norm(lab(pictures.colour_of(a), seen) - lab(pictures.colour_of(b), seen)) for a, b in pairs]
        assert min(found) >= least
