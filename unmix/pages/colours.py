"""Colours of pictures: of shares from 0 to 1, of errors, and of classes."""

import colorsys
from collections.abc import Sequence

import numpy as np

# Viridis and magma (Smith and van der Walt 2015, public domain) at 25 places; between the places colours are linear, to 4 of 255.
VIRIDIS = (
    "440154 471063 481f70 472d7b 443983 404688 3b528b 365d8d 31688e 2c728e 287c8e 24868e 21918c 1f9a8a 20a486 "
    "28ae80 35b779 48c16e 5ec962 75d054 90d743 addc30 c8e020 e5e419 fde725"
)
MAGMA = (
    "000004 050416 100b2d 1d1147 2c115f 3f0f72 51127c 601880 721f81 832681 932b80 a5317e b73779 c73d73 d8456c "
    "e75263 f1605d f8745c fc8961 fd9b6b feb078 fec488 fed799 fdebac fcfdbf"
)
# Differences: blue below zero, white, red above; RdBu of ColorBrewer (Brewer 2003, Apache licence), turned round.
DIFFERENCES = "053061 2166ac 4393c3 92c5de d1e5f0 f7f7f7 fddbc7 f4a582 d6604d b2182b 67001f"
# Lines and classes, found by a search: each has a contrast of 3 and more with a page and its fields, light and dark, and any two differ
# by 38 in CIELAB, and by 18 as people with deuteranopia or protanopia see them (tests/pages/test_colours.py). Those of Okabe and Ito
# (2008) differ by 26 and 17, and three of them have less contrast with white. More than ten are told apart by dashes as well.
CLASSES = (
    (0, 120, 156), (252, 36, 24), (168, 0, 252), (72, 120, 84), (120, 132, 216), (36, 144, 12), (156, 108, 252), (228, 0, 84),
    (192, 120, 144), (204, 0, 144),
)  # fmt: skip
# Lengths of strokes and of gaps, in pixels, of the first, second, … line; the first is whole.
DASHES: tuple[tuple[int, ...], ...] = ((), (7, 3), (2, 2), (8, 3, 2, 3))
# Lines that are no material: zero, residuals.
GREY = "#888888"
# Limits of the luminance of all colours, from 0 to 1, by which they have that contrast.
DARKEST, LIGHTEST = 0.151, 0.270

# Shares of red, green and blue in luminance (sRGB).
LUMINANCE = (0.2126, 0.7152, 0.0722)
# Most classes that a byte numbers, beside 0 for none.
MOST_CLASSES = 255


def ramp(places: str) -> np.ndarray:
    """Return 255 colours and, last, one that is clear: array (256, 4), uint8."""
    anchors = np.array([[int(word[i : i + 2], 16) for i in (0, 2, 4)] for word in places.split()], float)
    at = np.linspace(0, len(anchors) - 1, 255)
    colours = np.stack([np.interp(at, np.arange(len(anchors)), anchors[:, c]) for c in range(3)], axis=1)
    return np.vstack([np.pad(np.round(colours), ((0, 0), (0, 1)), constant_values=255), np.zeros((1, 4))]).astype(
        np.uint8
    )


def hex_of(number: int) -> str:
    """Return the colour of a class as a page has it."""
    return "#" + bytes(colour_of(number)).hex()


def colour_of(number: int) -> tuple[int, int, int]:
    """Return the colour of a class: black for 0, then `CLASSES`, then hues far apart, dark and light by turns."""
    if number <= len(CLASSES):
        return ((0, 0, 0), *CLASSES)[number]
    linear = np.array(colorsys.hsv_to_rgb(number * 0.618034 % 1.0, 0.65, 0.9)) ** 2.2
    wanted, luminance = (DARKEST, LIGHTEST)[number % 2], float(linear @ LUMINANCE)
    if luminance > wanted:
        linear *= wanted / luminance
    else:
        linear += (1.0 - linear) * (wanted - luminance) / (1.0 - luminance)
    shown = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    red, green, blue = np.round(255 * shown).astype(int).tolist()
    return red, green, blue


def own_or_ours(own: Sequence[str] | None, count: int) -> list[str]:
    """Return the colours of some lines or classes: their own, as ``#rrggbb``; of those without any the palette's, in turn."""
    return [(own[k] if own and k < len(own) else "") or hex_of(k + 1) for k in range(count)]


def dash_of(number: int) -> tuple[int, ...]:
    """Return the dashes of a line that has the colour of a class; none for a whole line."""
    return DASHES[(number - 1) % len(DASHES)]


def fields_of_classes(names: Sequence[str], own: Sequence[str] | None = None) -> dict[str, str | list[str]]:
    """Return the fields of the header of an ENVI Classification, whose class 0 is none; ``own`` as of `own_or_ours`."""
    shown = ["#000000", *own_or_ours(own, len(names))]
    names = ["unclassified", *names]
    colours = [str(number) for one in shown for number in bytes.fromhex(one[1:])]
    return {
        "file type": "ENVI Classification",
        "classes": str(len(names)),
        "class names": names,
        "class lookup": colours,
    }
