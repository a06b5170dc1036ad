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
# Okabe and Ito 2008, but for black.
CLASSES = ((230, 159, 0), (0, 158, 115), (86, 180, 233), (240, 228, 66), (0, 114, 178), (213, 94, 0), (204, 121, 167))


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
    """Return the colour of a class: black for 0, then those that most people with colour blindness tell apart, then hues far apart."""
    if number <= len(CLASSES):
        return ((0, 0, 0), *CLASSES)[number]
    red, green, blue = colorsys.hsv_to_rgb(number * 0.618034 % 1.0, 0.65, 0.9)
    return round(255 * red), round(255 * green), round(255 * blue)


def fields_of_classes(names: Sequence[str]) -> dict[str, str | list[str]]:
    """Return the fields of the header of an ENVI Classification, whose class 0 is none."""
    names = ["unclassified", *names]
    colours = [str(number) for c in range(len(names)) for number in colour_of(c)]
    return {
        "file type": "ENVI Classification",
        "classes": str(len(names)),
        "class names": names,
        "class lookup": colours,
    }
