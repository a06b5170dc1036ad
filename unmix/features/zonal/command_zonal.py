"""`unmix zonal`: tables of runs by polygon."""

from pathlib import Path
from typing import Any

import click
from unmix_cli import options

# The most rows that are shown where no table is written.
MOST_ROWS = 60


@click.command("zonal")
@click.argument("runs", nargs=-1, required=True, metavar="STEM...", type=options.Input())
@options.value("--polygons", "GeoJSON, shapefile, GeoPackage or another file of GDAL, in any coordinate system that it names.",
               required=True, type=options.Input(), metavar="FILE[:LAYER]")  # fmt: skip
@options.value(
    "--column", "The property with the polygons' names; those of one name are one zone.", required=True, metavar="NAME"
)
@options.value("-o --out", "The table, .csv.", type=options.Local(dir_okay=False), metavar="TABLE")
@options.value("--map kind", "The map.  [default: sums by class where the run has them, else abundances]",
               type=("abundance", "fraction", "mass"))  # fmt: skip
@options.flag("--overwrite", "Replace the table if it exists.")
@options.as_json
@options.logs
def command(runs: tuple[Path, ...], out: Path | None, as_json: bool, **settings: Any) -> None:
    """Tabulate the maps of finished runs, whose outputs' names begin with STEM, by the polygons of a file.

    A row for each run, zone and endmember or class: mean, deviation, standard deviation of the mean by the pixels' noise (of runs with
    --uncertainty), area, and the shares of the zone that have no values, lie outside of the scene, or are not proved. Pixels that a
    polygon cuts count by area. Needs exactextract: pip install 'unmix[zonal]'.
    """
    from unmix import zonal

    rows = zonal(runs, out=out, **settings)
    shown = [f"{'zone':20} {'band':20} {'mean':>10} {'deviation':>10} {'pixels':>10}"] if out is None else [str(out)]
    for row in rows[:MOST_ROWS] if out is None else ():
        mean, spread = ("" if row[key] is None else f"{row[key]:.4f}" for key in ("mean", "deviation"))
        shown.append(f"{row['zone'][:20]:20} {row['band'][:20]:20} {mean:>10} {spread:>10} {row['pixels']:10.1f}")
    if out is None and len(rows) > MOST_ROWS:
        shown.append(f"… and {len(rows) - MOST_ROWS} rows; -o writes all")
    options.show(rows, as_json, shown)
