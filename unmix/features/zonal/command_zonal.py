"""`unmix zonal`: tables of runs, of whole scenes or by polygon."""

from pathlib import Path
from typing import Any

import click
from unmix_cli import options
from unmix_cli.outcomes import scenes_that_failed

# The most rows that are shown where no table is written; their columns, and the columns of a wide table beside its
# bands.
MOST_ROWS = 60
LONG = ("run", "time", "cloud_cover", "zone", "band", "mean", "sigma", "pixels", "hectares", "nodata", "rmse", "reason")
WIDE = ("run", "time", "cloud_cover", "zone", "pixels", "rmse")
HIDDEN = ("map", "share_of", "area_m2", "nodata", "outside")


@click.command("zonal")
@click.argument("runs", nargs=-1, required=True, metavar="STEM|FOLDER...", type=options.Input())
@options.value(
    "--polygons",
    "GeoJSON, GeoPackage, shapefile or FlatGeobuf, in any coordinate system that it names.  [default: the whole scene]",
    type=options.Input(),
    metavar="FILE[:LAYER]",
)
@options.value(
    "--column",
    "The property with the polygons' names; those of one name are one zone. Again: a further column. [default: "
    "the text that tells them apart, else numbers]",
    multiple=True,
    metavar="NAME",
)
@options.value("-o --out", "The table, .csv.", type=options.Local(dir_okay=False), metavar="TABLE")
@options.value(
    "--map kind",
    "The map.  [default: sums by class where the run has them, else abundances]",
    type=("abundance", "fraction", "mass"),
)
@options.flag("--wide", "One row for each run and zone, with columns for the bands.")
@options.flag("--centres", "Take the pixels whose centres are in a polygon, whole, instead of shares by area.")
@options.value(
    "--failed",
    "Add a row for each scene that failed, and to older runs of it the reason: the table that run --failed FILE wrote.",
    type=options.Local(dir_okay=False),
    metavar="FILE",
)
@options.flag("--overwrite", "Replace the table if it exists.")
@options.as_json
@options.logs
def command(
    runs: tuple[Path, ...], out: Path | None, wide: bool, failed: Path | None, as_json: bool, **settings: Any
) -> None:
    """Tabulate the maps of finished runs, whose outputs' names begin with STEM, or of all in a FOLDER: of whole scenes,
    or by polygon.

    A row for each run, zone and endmember or class: mean, deviation, standard deviation of the mean by the pixels'
    noise (of runs with --uncertainty), area, hectares, the share of the zone outside of the scene, and the shares of its
    pixels there without values, and not proved. Of dates, `unmix compare` tells whether light changed. The time is the
    header's, or the date in the scene's name. sigma is of the mean of these pixels by noise alone, not by the land's
    patchiness, nor by missing spectra, and, near 0, by the bias of a >= 0 (ucls and scls have none); pixel_sigma is the
    mean of the pixels' own. Hectares are of pixels with values, on the ellipsoid. Pixels
    that a polygon cuts count by area (needs exactextract: pip install 'unmix[zonal]'), or by --centres.
    """
    from unmix import zonal

    missing = {} if failed is None else dict(scenes_that_failed(failed))
    since = 0.0 if failed is None else failed.stat().st_mtime
    rows = zonal(runs, out=out, wide=wide, failed=missing, since=since, **settings)
    shown = [str(out)] if out is not None else lines_of(rows[:MOST_ROWS], WIDE if wide else LONG)
    if out is None and len(rows) > MOST_ROWS:
        shown.append(f"… and {len(rows) - MOST_ROWS} rows; -o writes all")
    options.show(rows, as_json, shown)


def lines_of(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> list[str]:
    """Return rows as lines for people, each run by its last name; of a wide table also its bands."""
    others = [key for key in (rows[0] if rows else ()) if columns is WIDE and key not in (*WIDE, *HIDDEN)]
    heads = [name for name in (*columns, *others) if any(row.get(name) is not None for row in rows)]
    cells = [heads] + [[cell(name, row[name]) for name in heads] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells)]
    is_text = [name in ("run", "time", "zone", "band", "reason") for name in heads]
    return [
        "  ".join(one.ljust(w) if left else one.rjust(w) for one, w, left in zip(row, widths, is_text)).rstrip()
        for row in cells
    ]


def cell(name: str, value: Any) -> str:
    """Return a value as a table for people has it."""
    if value is None:
        return ""
    if name == "run":
        return Path(value).name
    return value if isinstance(value, str) else f"{value:.1f}" if name == "pixels" else f"{value:.4f}"
