"""`unmix mnf`: minimum noise fractions of a cube."""

import json
from pathlib import Path
from typing import Any

import click

from . import options
from .main import print_out

# Fractions that are shown beside those that are kept.
MORE = 5


@click.command("mnf")
@click.argument("cube", type=options.Input())
@click.option(
    "-n",
    "--count",
    type=click.IntRange(1),
    metavar="K",
    help="Fractions to keep.  [default: those that are half signal]",
)
@click.option(
    "--inverse",
    is_flag=True,
    help="Write the cube again without the other fractions, STEM_denoised, in place of STEM_mnf.",
)
@click.option("--json", "as_json", is_flag=True, help="Print files, ratios and coherences as JSON.")
@options.outputs
@options.budget
@options.reading
@options.logs
def command(cube: Path, as_json: bool, verbose: bool, quiet: bool, log_file: str | None, **settings: Any) -> None:
    """Write the minimum noise fractions of CUBE, STEM_mnf, or the cube with less noise, STEM_denoised; float32.

    The noise is that which neighbouring pixels of a line do not share; each fraction has noise of variance 1. Prints the ratio of
    variance to noise of the strongest fractions and the correlation of neighbours in them; STEM_mnf.csv (or STEM_denoised.csv) has all.
    Two passes over the file.
    """
    from unmix import mnf

    options.set_up_log(verbose, quiet, log_file)
    found = mnf(cube, **settings)
    if as_json:
        click.echo(json.dumps(found))
        return
    print_out("component  variance/noise  coherence")
    for k, (ratio, coherence) in enumerate(list(zip(found["ratio"], found["coherence"]))[: found["count"] + MORE]):
        kept = "" if k < found["count"] else "  not kept"
        print_out(f"{k + 1:>9}  {ratio:>14.4g}  {coherence:>9.4f}{kept}")
    for path in found["files"]:
        print_out(path)
