"""Styles for QGIS, which applies ``NAME.qml`` to ``NAME.tif`` or ``NAME.img`` by itself when it opens it."""

from collections.abc import Sequence
from xml.sax.saxutils import escape

import numpy as np

# Begin of each style; any QGIS 3 reads it.
HEAD = "<!DOCTYPE qgis PUBLIC 'http://mrcc.com/qgis.dtd' 'SYSTEM'>\n<qgis version=\"3.22\">\n <pipe>\n"
END = "  </rasterrenderer>\n </pipe>\n</qgis>\n"
COLOURS = ("red", "green", "blue")
QUOTE = {'"': "&quot;"}


def of_three(bands: Sequence[int], high: float) -> str:
    """Return the style of three bands, counted from 1, as red, green and blue from 0 to ``high``."""
    chosen = " ".join(f'{colour}Band="{band}"' for colour, band in zip(COLOURS, bands))
    stretch = "".join(
        f"   <{colour}ContrastEnhancement><minValue>0</minValue><maxValue>{high:g}</maxValue>"
        f"<algorithm>StretchToMinimumMaximum</algorithm></{colour}ContrastEnhancement>\n"
        for colour in COLOURS
    )
    return f'{HEAD}  <rasterrenderer type="multibandcolor" {chosen} alphaBand="-1" opacity="1">\n{stretch}{END}'


def of_one(colours: np.ndarray, high: float) -> str:
    """Return the style of a file's first band from 0 to ``high``; ``colours`` are as of `unmix.pages.pictures.ramp`."""
    places = np.linspace(0, 254, 25).round().astype(int)
    items = "".join(
        f'     <item value="{high * at / 254:.6g}" label="{high * at / 254:.3g}" '
        f'color="#{bytes(colours[at, :3]).hex()}" alpha="255"/>\n'
        for at in places
    )
    ends = f'minimumValue="0" maximumValue="{high:.6g}"'
    return (
        f'{HEAD}  <rasterrenderer type="singlebandpseudocolor" band="1" classificationMin="0" '
        f'classificationMax="{high:.6g}" alphaBand="-1" opacity="1">\n   <rastershader>\n'
        f'    <colorrampshader colorRampType="INTERPOLATED" classificationMode="1" clip="0" {ends}>\n{items}'
        f"    </colorrampshader>\n   </rastershader>\n{END}"
    )


def of_classes(names: Sequence[str], colours: Sequence[str]) -> str:
    """Return the style of a map of classes from 0, with names and colours (``#rrggbb``); 0 is none, and clear."""
    entries = "".join(
        f'    <paletteEntry value="{k}" label="{escape(name, QUOTE)}" color="{colour}" alpha="{255 * (k > 0)}"/>\n'
        for k, (name, colour) in enumerate(zip(names, colours))
    )
    head = '  <rasterrenderer type="paletted" band="1" alphaBand="-1" opacity="1">\n   <colorPalette>\n'
    return f"{HEAD}{head}{entries}   </colorPalette>\n{END}"
