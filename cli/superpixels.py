"""`unmix superpixels`: a cube of the means of small patches."""

import json
from pathlib import Path
from typing import Any

import click

from . import options
from .main import print_out


@click.command("superpixels")
@click.argument("cube", type=options.Input())
@click.option("--size", default=5, show_default=True, metavar="N", help="Side of a patch in pixels, in the mean.")
@click.option(
    "--compactness",
    default=3.0,
    show_default=True,
    metavar="C",
    help="How many times the noise of two pixels weighs as much as the distance of one side: larger ones make squares.",
)
@click.option("--json", "as_json", is_flag=True, help="Print files and numbers as JSON.")
@options.outputs
@options.budget
@options.reading
@options.logs
def command(cube: Path, as_json: bool, verbose: bool, quiet: bool, log_file: str | None, **settings: Any) -> None:
    """Write CUBE with every pixel replaced by the mean of its superpixel, a patch of alike neighbours: STEM_means, float32.

    Unmix the means to unmix patches, whose noise is that much smaller: unmix run STEM_means.hdr, with --noise STEM_means_noise.txt
    where noise is asked for. STEM_superpixels has the numbers of the patches. They are told apart by the cube's minimum noise fractions
    (SLIC). Two passes over the file. Needs scikit-image (pip install 'unmix[superpixels]').
    """
    from unmix import superpixels

    options.set_up_log(verbose, quiet, log_file)
    found = superpixels(cube, **settings)
    if as_json:
        click.echo(json.dumps(found))
        return
    print_out(f"{found['superpixels']} superpixels, told apart by {found['fractions']} minimum noise fractions")
    for path in found["files"]:
        print_out(path)
