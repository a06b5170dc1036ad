"""`unmix view`: look at scenes and runs in a browser."""

from pathlib import Path
from typing import Any

import click
from unmix_cli import options
from unmix_cli.main import print_out


@click.command("view")
@click.argument("paths", nargs=-1, required=True, metavar="CUBE|STEM...", type=options.Local())
@options.value(
    "--port",
    "The port of this machine; 0 takes one that is free.",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
)
@options.value(
    "--library",
    "Where the means of regions are kept (.csv, .sli).  [default: regions.csv, or regions-2.csv and so on]",
    type=options.Local(),
    metavar="FILE",
)
@options.cube_of_run
@options.reading
@options.logs
def command(paths: tuple[Path, ...], **settings: Any) -> None:
    """Look at a scene or a finished run in a browser on this machine, or at two beside each other: maps, spectra,
    regions.

    Click a pixel for its spectrum, and of a run for its model, what is left, its abundances and certificate. Draw
    around a region to keep its mean in a library. Only this machine is answered, and only the address that is printed;
    from another machine: ssh -L PORT:127.0.0.1:PORT HOST, with --port PORT here. Needs Bokeh: pip install
    'unmix[view]'. Ctrl-C ends.
    """
    from unmix import view

    view(paths, ready=lambda address, _: print_out(f"open {address} in a browser; Ctrl-C ends"), **settings)
