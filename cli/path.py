"""`unmix path`: what penalties on the sum of abundances make of a scene."""

import json
from pathlib import Path
from typing import Any

import click

from . import options, unmixing
from .main import print_out

COLUMNS = "lambda        endmembers  above 1 %  rmse          without any"


@click.command("path")
@click.argument("cube", type=options.Input())
@click.option("-e", "--endmembers", required=True, type=options.Input(), metavar="LIBRARY", help="The library.")
@click.option(
    "--points", type=click.IntRange(2), default=20, metavar="N", show_default=True, help="How many lambda to try."
)
@click.option("--l1-weights", metavar="FILE", help="How much each endmember counts, as for run.")
@options.option("select")
@unmixing.complete
@options.option("library_scale")
@options.across_gaps
@click.option("--json", "as_json", is_flag=True, help="Print noise, path and what both rules choose as JSON.")
@options.budget
@options.reading
@options.logs
def command(cube: Path, as_json: bool, verbose: bool, quiet: bool, log_file: str | None, **settings: Any) -> None:
    """Show what unmix run --method nnls --l1 LAMBDA would make of CUBE, over LAMBDA, on a sample of its pixels.

    For each: the mean number of endmembers of a pixel, and of those above 1 %, the median RMSE, and the share of pixels without any.
    Below it the noise of a band by two estimates, and the LAMBDA that --l1 auto and --l1 discrepancy choose from the smaller one.
    """
    from unmix.jobs.sparse.penalty import path_of_scene

    options.set_up_log(verbose, quiet, log_file)
    found = path_of_scene(cube, **settings)
    if as_json:
        click.echo(json.dumps(found))
        return
    print_out(COLUMNS)
    for point in found["path"]:
        numbers = f"{point['lambda']:<12.4g}  {point['endmembers']:<10.2f}  {point['above_1_percent']:<9.2f}"
        print_out(f"{numbers}  {point['rmse']:<12.4g}  {100 * point['zero']:.1f} %")
    said = ", ".join(
        f"{name} {'-' if value is None else format(value, '.3g')}" for name, value in found["noise"].items()
    )
    print_out(f"noise of a band: {said}; --l1 auto: {found['auto']:.4g}, discrepancy: {found['discrepancy']:.4g}")
