"""`unmix path`: show how a penalty on the sum of abundances changes the answers for a scene."""

from typing import Any

import click

from . import options

COLUMNS = "lambda        endmembers  above 1 %  rmse          without any"


@click.command("path")
@options.cube
@options.the_library
@options.value("-n --count", "Number of LAMBDA to try.", type=click.IntRange(2), default=20, metavar="N")
@options.option("l1_weights", help="Weights of the endmembers, as for run.")
@options.declared("select", "complete", "library_scale", "across_gaps")
@options.as_json
@options.budget
@options.reading
@options.logs
def command(as_json: bool, **settings: Any) -> None:
    """Show the answers of unmix run --method nnls --l1 LAMBDA for a range of LAMBDA, on a sample of pixels.

    For each LAMBDA: mean number of endmembers of a pixel, and of those above 1 %, median RMSE, and share of pixels without any.
    Below: the noise of a band by two estimates, and the choices of --l1 auto and discrepancy from the smaller one.
    """
    from unmix.runs.penalties.penalty import path_of_scene

    found = path_of_scene(**settings)
    lines = [
        f"{point['lambda']:<12.4g}  {point['endmembers']:<10.2f}  {point['above_1_percent']:<9.2f}  {point['rmse']:<12.4g}  "
        f"{100 * point['zero']:.1f} %"
        for point in found["path"]
    ]
    noise = ", ".join(f"{name} {'-' if size is None else format(size, '.3g')}" for name, size in found["noise"].items())
    said = f"noise of a band: {noise}; --l1 auto: {found['auto']:.4g}, discrepancy: {found['discrepancy']:.4g}"
    options.show(found, as_json, [COLUMNS, *lines, said])
