"""`unmix product`: products of missions."""

from typing import Any

import click
from unmix_cli import options


@click.group("product")
def command() -> None:
    """Make a mission's product of a granule, under the mission's names."""


@command.command("emit-frcov")
@click.argument("granule", type=options.Input())
@options.the_library
@options.option("classes")
@options.value("--mask", "The granule's L2A mask.  [default: that beside it]", type=options.Local(), metavar="FILE")
@options.value(
    "--uncertainty",
    "The granule's standard deviations, RFLUNCERT.  [default: those beside it]",
    type=options.Local(),
    metavar="FILE",
)
@options.value(
    "--urban", "A raster of the granule's lines and samples, not 0 where a pixel is built up.", metavar="FILE[:BAND]"
)
@options.value("--coast", "The same for pixels on a coast or river.", metavar="FILE[:BAND]")
@options.value("--draws", "Number of draws.", type=click.IntRange(2), default=20, metavar="N")
@options.value(
    "--draw-spectra",
    "Spectra of a draw, spread evenly over the classes.  [default: 90, or all of a smaller library]",
    type=click.IntRange(3),
    metavar="K",
)
@options.flag("--ranges", "Also write the least and the largest cover that the noise allows, proved (95 %).")
@options.value(
    "--normalize",
    "Cover as shares of the area (sum) or, as the mission has it, of the lengths of spectra: larger "
    "for bright materials (length).",
    type=("sum", "length"),
    default="sum",
)
@options.value("--seed", "Seed of the draws.", type=click.IntRange(0), default=0, metavar="N")
@options.as_json
@options.outputs
@options.option("threads")
@options.logs
def product_command(as_json: bool, **settings: Any) -> None:
    """Write EMIT's L2B fractional cover of GRANULE, an L2A reflectance file: EMIT_L2B_FRCOVPV, NPV and BARE, each with
    UNC, and QC.

    Cloud-optimized GeoTIFFs on the granule's map, a browse image and a record in JSON. Cover is the mean, UNC the
    standard deviation over random draws of spectra and noise, each solved exactly. -9999 where QC is 1 (cloud), 2
    (urban), 3 (water) or 4 (snow or ice). Needs rasterio: pip install 'unmix[geo]'.
    """
    from unmix import emit_frcov as make

    found = make(**settings)
    words = dict(zip("01234", ("clear", "cloud", "urban", "water", "snow or ice")))
    counts = ", ".join(f"{words[value]} {count}" for value, count in found["qc"].items() if count)
    options.show(found, as_json, [f"{found['pixels']} pixels unmixed; map: {counts}", *found["files"]])
