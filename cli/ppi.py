"""`unmix ppi`: the pixel purity index."""

import json
from pathlib import Path
from typing import Any

import click

from . import options
from .main import print_out


@click.command("ppi")
@click.argument("cube", type=options.Input())
@click.option("--skewers", type=click.IntRange(1), default=10_000, show_default=True, help="Random directions.")
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    default=0,
    metavar="S",
    show_default=True,
    help="Seed of the directions.",
)
@click.option("--json", "as_json", is_flag=True, help="Print files and pixels as JSON.")
@options.outputs
@options.budget
@options.reading
@options.logs
def command(cube: Path, as_json: bool, verbose: bool, quiet: bool, log_file: str | None, **settings: Any) -> None:
    """Write how often each pixel of CUBE is an extreme along a random direction: STEM_ppi, and the places in STEM_ppi.csv.

    Counts are exact, and the same for any memory, threads and interleave. A pass over the file for every 256 directions; for whitened
    spectra, run it on STEM_mnf. For endmembers, unmix endmembers finds the pixels of the largest simplex, with a proof.
    """
    from unmix import ppi

    options.set_up_log(verbose, quiet, log_file)
    found = ppi(cube, **settings)
    if as_json:
        click.echo(json.dumps(found))
        return
    for line, sample, count in found["pixels"][:20]:
        print_out(f"line {line}, sample {sample}: {count}")
    print_out(f"{len(found['pixels'])} pixels are an extreme of {found['skewers']} directions")
    for path in found["files"]:
        print_out(path)
