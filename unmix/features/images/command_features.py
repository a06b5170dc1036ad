"""`unmix features`: depths and centres of absorptions."""

from collections.abc import Iterator
from typing import Any

from unmix_cli import options

from . import commands as images


@images.command(
    "features",
    options.value(
        "--feature",
        "An absorption: chlorophyll (560-760 nm), iron (750-1300), al-oh (2120-2250), mg-oh (2260-2370), "
        "carbonate (2250-2400), or NAME=A-B with its shoulders in nm. "
        "May be repeated.  [default: all of these that the cube covers]",
        multiple=True,
        metavar="NAME[=A-B]",
    ),
    options.flag(
        "--continuum", "Also write STEM_continuum: all bands divided by the continuum, the upper convex hull."
    ),
)
def command(found: dict[str, Any]) -> Iterator[str]:
    """Write for every pixel of CUBE the depth and the centre (nm) of absorptions, a pair of bands for each:
    STEM_features.

    The continuum of an absorption is the straight line between its shoulders, the centre the minimum of a parabola
    through the lowest band and its neighbours: right to some nm where it is deep and noise is small. -9999 where there
    is no absorption to have a centre; noise has one, too: look at the depth. Of two absorptions between the
    shoulders the deeper counts: narrow them, or leave the other out (--ignore-nm).
    """
    for one in found["features"]:
        yield f"{one['name']:<16} {one['from']:8.1f} to {one['to']:.1f} nm"
