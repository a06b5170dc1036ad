"""`unmix series`: changes a year over runs of one place."""

from pathlib import Path
from typing import Any

import click
from unmix_cli import options


@click.command("series")
@click.argument("runs", nargs=-1, required=True, metavar="STEM|FOLDER...", type=options.Input())
@options.value(
    "-o --out",
    "The map of changes a year and their standard errors, .tif or .hdr; or a page with a graph of the means "
    "over time, .html.",
    type=options.Local(dir_okay=False),
    metavar="FILE",
)
@options.value(
    "--map kind",
    "The map of each run.  [default: sums by class where the runs have them, else abundances]",
    type=("abundance", "fraction"),
)
@options.flag("--overwrite", "Replace the file if it exists.")
@options.as_json
@options.logs
def command(runs: tuple[Path, ...], out: Path | None, as_json: bool, **settings: Any) -> None:
    """Map the change a year of each endmember or class, over finished runs of one place at several dates, or all runs
    in a FOLDER.

    In each pixel a line is fitted to the values at the dates that have some, by least squares; its slope is the
    change a year. The table has the mean change over all pixels, and how many pixels fall or rise by more than
    chance (5 %, Student's t of their standard errors), which are known from three dates on. The date is the date in the
    header, or the one in the scene's name. A table of means by date: unmix zonal --wide.
    Light, haze and season pass for a change: see unmix compare.
    """
    from unmix import series

    rows = series(runs, out=out, **settings)
    lines = [
        f"{row['band']:20} {row['change']:+.4f} a year in {row['pixels']} pixels; "
        + (
            "of two dates no change can be told from noise: take unmix compare"
            if row["rising"] is None
            else f"{row['falling']} fall, {row['rising']} rise"
        )
        for row in rows
    ]
    options.show(rows, as_json, lines + ([] if out is None else [str(out)]))
