"""`unmix match`: the nearest spectrum of a library for every pixel."""

import json
from pathlib import Path
from typing import Any

import click

from . import options
from .main import print_out


@click.command("match")
@click.argument("cube", type=options.Input())
@click.option("-e", "--endmembers", required=True, type=options.Input(), metavar="LIBRARY", help="The library.")
@click.option(
    "--by", type=options.one_of(["sam", "sid"]), default="sam", show_default=True,
    help="sam: the spectral angle, in degrees; sid: the spectral information divergence.",
)  # fmt: skip
@click.option("--continuum", is_flag=True, help="Compare spectra divided by their continua: absorptions, not slopes.")
@click.option(
    "--max-distance", type=float, metavar="D", help="Leave pixels without a name that are farther from all spectra."
)
@options.option("select")
@options.option("library_scale")
@options.across_gaps
@click.option("--json", "as_json", is_flag=True, help="Print files and counts as JSON.")
@options.outputs
@options.budget
@options.reading
@options.logs
def command(cube: Path, as_json: bool, verbose: bool, quiet: bool, log_file: str | None, **settings: Any) -> None:
    """Write STEM_match: for every pixel of CUBE the number of the nearest spectrum of a library, its distance, and that of the next.

    STEM_match.csv has names, classes and numbers of pixels. The library is brought to the bands in use; a spectrum must have half of
    them. For endmembers instead of pixels: unmix library match.
    """
    from unmix import match

    options.set_up_log(verbose, quiet, log_file)
    found = match(cube, **settings)
    if as_json:
        click.echo(json.dumps(found))
        return
    for one in [one for one in sorted(found["spectra"], key=lambda one: -one["pixels"]) if one["pixels"]][:20]:
        print_out(f"{one['pixels']:>10}  {one['number']:>4}  {one['name']}")
    print_out(f"{found['none']:>10}        without a name")
    for path in found["files"]:
        print_out(path)
