"""`unmix match`: the nearest spectrum of a library for every pixel."""

from collections.abc import Iterator
from typing import Any

from unmix_cli import options
from unmix_cli.library import continuum, distance

from . import commands as images

# Most spectra that are shown; the table has all.
MOST_SHOWN = 20


@images.command(
    "match",
    options.the_library,
    distance,
    continuum,
    options.value("--max-distance", "Name no pixel that is farther from all spectra.", type=float, metavar="D"),
    options.flag("--class-map", "Also write STEM_match_class, a classification with names and colours."),
    options.flag(
        "--report",
        "Also write STEM_match_report.html: the map in colours, how clear matches are, and spectra beside their "
        "pixels.",
    ),
    options.declared("select", "library_scale", "across_gaps"),
)
def command(found: dict[str, Any]) -> Iterator[str]:
    """Write for every pixel of CUBE the number of a library's nearest spectrum, its distance, and the distance of the
    next: STEM_match.

    STEM_match.csv has names, classes and numbers of pixels. The library is brought to the bands in use; a spectrum must
    have half of them. For endmembers instead of pixels: unmix library match.
    """
    yield f"{'pixels':>10}  {'no.':>4}  spectrum"
    named = sorted((one for one in found["spectra"] if one["pixels"]), key=lambda one: -one["pixels"])
    for one in named[:MOST_SHOWN]:
        yield f"{one['pixels']:>10}  {one['number']:>4}  {one['name']}"
    yield f"{found['none']:>10}        without a name"
    yield f"{found['unclear']:>10}        with another spectrum at most 10 % farther"
