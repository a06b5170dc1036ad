"""`unmix plot`: spectra or maps as a picture."""

from pathlib import Path
from typing import Any

import click
from unmix_cli import options
from unmix_cli.main import print_out


@click.command("plot")
@click.argument("sources", nargs=-1, required=True, metavar="LIBRARY|CUBE|STEM...", type=options.Input())
@options.value(
    "-o --out", "The picture: .png, .tif, .svg or .pdf.", required=True, type=click.Path(path_type=Path), metavar="FILE"
)
@options.value(
    "--at",
    "Draw this pixel of CUBE, lines and samples from 0; of a run as measured and as modelled. May be repeated.",
    multiple=True,
    metavar="LINE,SAMPLE",
)
@options.option("select")
@options.value(
    "--maps",
    "Draw the maps of these endmembers or classes of a run, or bands of another map, such as a trend or scores, on one "
    "scale, "
    "hatched where there are no data. all: every one.",
    metavar="A,B,C",
)
@options.value(
    "--stretch",
    "Values of the first and the last colour of --maps.  [default: 0,1; of another map its own]",
    metavar="LOW,HIGH",
)
@options.value("--width", "Width of the picture, mm.  [default: 228.6; of --maps 170]", type=float, metavar="MM")
@options.value("--dpi", "Dots an inch.  [default: 150; of --maps 300]", type=int, metavar="N")
@options.flag("--overwrite", "Replace the picture if it exists.")
@options.cube_of_run
@options.reading
@options.logs
def command(**settings: Any) -> None:
    """Draw spectra or maps.

    Spectra are those of a LIBRARY; the endmembers of a run, whose outputs' names begin with STEM; with --at pixels of
    CUBE or a run. Maps are those of a run that --maps names, side by side, with a colour bar and, where the scene has a
    place, a scale bar and north.

    Needs matplotlib: pip install 'unmix[plot]'.
    """
    from unmix import plot

    print_out(str(plot(**settings)))
