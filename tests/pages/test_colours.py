"""Colours of lines and classes are read on every background, and told apart, by the colour blind, too."""

import itertools
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from unmix.pages import pictures
from unmix.pages.parts import lines

# As people see them who lack a kind of cone, in linear RGB: Machado, Oliveira and Fernandes 2009, severity 1.
SEEN = {
    "all": np.eye(3),
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
STYLE = Path(pictures.__file__).with_name("page.css").read_text()


def linear(colour) -> np.ndarray:
    """A colour in linear RGB (sRGB, IEC 61966-2-1)."""
    c = np.array(list(colour), float) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(one, other) -> float:
    """The ratio of WCAG 2.2."""
    low, high = sorted(float(linear(c) @ TO_XYZ[1]) for c in (one, other))
    return (high + 0.05) / (low + 0.05)


def lab(colour, seen) -> np.ndarray:
    """A colour in CIELAB (D65), as people see it."""
    xyz = np.clip(np.array(seen) @ linear(colour), 0, 1) @ TO_XYZ.T / [0.95047, 1.0, 1.08883]
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def backgrounds() -> list[bytes]:
    """Paper and fields of pages, light and dark, and white and black."""
    found = re.findall(r"--(?:paper|field):#([0-9a-f]+)", STYLE)
    assert len(found) == 4
    return [
        bytes.fromhex(one if len(one) == 6 else "".join(2 * letter for letter in one))
        for one in [*found, "ffffff", "000000"]
    ]


@pytest.mark.parametrize("number", range(1, 61))
def test_contrast(number: int) -> None:
    """At least 3, of lines on every background of pages; also beyond the palette."""
    assert min(contrast(pictures.colour_of(number), one) for one in backgrounds()) >= 3.0


def test_contrast_of_grey() -> None:
    assert min(contrast(bytes.fromhex(pictures.GREY[1:]), one) for one in backgrounds()) >= 3.0


@pytest.mark.parametrize(("seen", "least"), [("all", 38.0), ("deuteranopia", 18.0), ("protanopia", 18.0)])
def test_ten_colours_differ(seen: str, least: float) -> None:
    """More than those of Okabe and Ito do, of which there are seven."""
    assert len(set(pictures.CLASSES)) == 10
    found = [lab(one, SEEN[seen]) for one in pictures.CLASSES]
    assert min(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(found, 2)) >= least


def test_lines_differ_by_dashes_too() -> None:
    """Twenty lines: no two have colour and dashes in common; neighbours differ in both; the zero line is whole."""
    assert len({(pictures.hex_of(k), pictures.dash_of(k)) for k in range(1, 21)}) == 20
    names = [f"m{k}" for k in range(5)]
    spectra = np.arange(30.0).reshape(6, 5)
    shown = [*(pictures.hex_of(k + 1) for k in range(4)), pictures.GREY]
    drawn = lines(np.arange(6.0), spectra, names, shown, "band", 2.0)
    ElementTree.fromstring(drawn)  # well-formed
    styles = re.findall(r'<g style="color:([^;"]*)(?:;stroke-dasharray:([0-9,]*))?"', drawn)
    assert ">value</text>" in drawn and drawn.count("<polyline") == 5
    assert lines(np.arange(6.0), spectra, names, shown, "band", 2.0, dotted=(0,)).count("<circle") == 6
    assert styles == [
        (one, ",".join(map(str, pictures.dash_of(k + 1))) if k < 4 else "") for k, one in enumerate(shown)
    ]
