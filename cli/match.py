"""`unmix match`: the nearest spectrum of a library for every pixel."""

from typing import Any

import click

from . import options

# How spectra are compared, here and in `unmix library match`.
distance = options.value(
    "--distance",
    "Distance: sam, the spectral angle in degrees, or sid, the spectral information divergence.",
    type=("sam", "sid"),
    default="sam",
)
continuum = options.flag("--continuum", "Divide spectra by their continua: absorptions decide, not slopes.")


@click.command("match")
@options.cube
@options.the_library
@distance
@continuum
@options.value("--max-distance", "Name no pixel that is farther from all spectra.", type=float, metavar="D")
@options.flag("--class-map", "Also write STEM_match_class, an ENVI Classification with names and colours.")
@options.declared("select", "library_scale", "across_gaps")
@options.as_json
@options.of_images
def command(as_json: bool, **settings: Any) -> None:
    """Write for every pixel of CUBE the number of the nearest spectrum of a library, its distance, and that of the next: STEM_match.

    STEM_match.csv has names, classes and numbers of pixels. The library is brought to the bands in use; a spectrum must have half
    of them. For endmembers instead of pixels: unmix library match.
    """
    from unmix import match

    found = match(**settings)
    named = sorted((one for one in found["spectra"] if one["pixels"]), key=lambda one: -one["pixels"])
    lines = [f"{one['pixels']:>10}  {one['number']:>4}  {one['name']}" for one in named[:20]]
    none = f"{found['none']:>10}        without a name"
    options.show(found, as_json, [f"{'pixels':>10}  {'no.':>4}  spectrum", *lines, none, *found["files"]])
