"""`unmix plot`: spectra as a picture."""

from pathlib import Path
from typing import Any

import click
from unmix_cli import options
from unmix_cli.main import print_out


@click.command("plot")
@click.argument("sources", nargs=-1, required=True, metavar="LIBRARY|CUBE|STEM...", type=options.Input())
@options.value(
    "-o --out", "The picture: .png, .svg or .pdf.", required=True, type=click.Path(path_type=Path), metavar="FILE"
)
@options.value(
    "--at", "Draw this pixel of CUBE, lines and samples from 0; of a run as measured and as modelled. May be repeated.",
    multiple=True, metavar="LINE,SAMPLE",
)  # fmt: skip
@options.option("select")
@options.flag("--overwrite", "Replace the picture if it exists.")
@options.cube_of_run
@options.reading
@options.logs
def command(**settings: Any) -> None:
    """Draw spectra: of a LIBRARY; the endmembers of a run, whose outputs' names begin with STEM; with --at pixels of CUBE or a run.

    Needs matplotlib: pip install 'unmix[plot]'.
    """
    from unmix import plot

    print_out(str(plot(**settings)))
