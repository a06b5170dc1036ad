"""`unmix features`: depths and centres of absorptions."""

from typing import Any

import click

from . import options


@click.command("features")
@options.cube
@options.value("--feature", "An absorption: chlorophyll, iron, al-oh, mg-oh, carbonate, or NAME=A-B with its shoulders in nm. "
               "May be repeated.  [default: all of these that the cube covers]", multiple=True, metavar="NAME[=A-B]")  # fmt: skip
@options.flag("--continuum", "Also write STEM_continuum: all bands divided by the continuum, the upper convex hull.")
@options.as_json
@options.of_images
def command(as_json: bool, **settings: Any) -> None:
    """Write for every pixel of CUBE the depth and the centre (nm) of absorptions, a pair of bands for each: STEM_features.

    The continuum of an absorption is the straight line between its shoulders. -9999 where there is no absorption to have a centre.
    """
    from unmix import features

    found = features(**settings)
    lines = [f"{one['name']:<16} {one['from']:8.1f} to {one['to']:.1f} nm" for one in found["features"]]
    options.show(found, as_json, [*lines, *found["files"]])
