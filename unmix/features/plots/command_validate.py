"""`unmix validate`: compare a run with plots of the ground."""

from pathlib import Path
from typing import Any

import click
from unmix_cli import options


@click.command("validate")
@click.argument("run", metavar="STEM", type=options.Input())
@click.argument("plots", metavar="PLOTS.csv", type=options.Input())
@options.value(
    "--window", "Average W × W pixels around each place: 1, 3, 5, ….", type=click.IntRange(1), default=1, metavar="W"
)
@options.value(
    "--scale",
    "The divisor of the table's fractions.  [default: 100 for columns named pct, percent or %, else 1]",
    type=float,
    metavar="F",
)
@options.value(
    "--map kind",
    "The map.  [default: that of the file named, else abundance, or fraction if a run has none]",
    type=("abundance", "fraction", "mass"),
)
@options.value("--by", "Add up the endmembers of each class first.", type=("class",))
@options.value(
    "-o --out",
    "Also write a page with scatter plots, .html, or the table, .csv, and beside it NAME_plots.csv.",
    type=options.Local(dir_okay=False),
    metavar="FILE",
)
@options.flag("--overwrite", "Replace that file if it exists.")
@options.as_json
@options.logs
def command(run: Path, plots: Path, as_json: bool, **settings: Any) -> None:
    """Compare the maps of a finished run, whose outputs' names begin with STEM, with fractions measured on the ground.

    PLOTS.csv has a row for each plot: line and sample, x and y (easting and northing) in the scene's coordinates, or
    lon and lat; a column for each endmember or class, by its name (grass, grass_pct); and perhaps its name, plot.
    Prints R² (one less the squared errors over the variance of what was measured), RMSE, MAE, bias (mapped less
    measured) and slope for each column.
    """
    from unmix import validate

    from .page import rows_of

    found = validate(run, plots, **settings)
    titles, rows = rows_of(found)
    shown = [f"{found['used']} of {found['plots']} plots compared", *options.aligned([tuple(titles), *rows], 1)]
    if found["unmatched"]:
        shown.append(f"columns that are no map of the run: {', '.join(found['unmatched'])}")
    options.show(found, as_json, shown)
