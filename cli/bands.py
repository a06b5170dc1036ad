"""`unmix bands`: choose bands."""

import json
import sys
from typing import Any

import click

from . import options


@click.command("bands")
@click.argument("source", metavar="CUBE|TABLE")
@click.option(
    "--target",
    metavar="Y.csv",
    help="What the bands are to predict: the last column; of a cube, after line and sample.",
)
@click.option("-m", "--most", type=click.IntRange(1), metavar="M",
              help="Bands of a chain.  [default: samples less one, bands, or 100, the least; without a target 10]")  # fmt: skip
@click.option("--folds", type=int, metavar="K", help="Measure errors by cross-validation.  [default: 5]")
@click.option("--validation", type=float, metavar="SHARE", help="Or on a share of the samples, drawn by --seed.")
@click.option("--alpha", type=float, default=0.25, show_default=True, metavar="P",
              help="Significance of the F test by which weak bands are left out; 0 keeps all.")  # fmt: skip
@click.option("--regression", type=options.one_of(["sequential", "gauss-jordan"]), default="sequential", show_default=True,
              help="How prefixes are regressed: each grows by a band; or each is inverted anew, for comparison.")  # fmt: skip
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, metavar="S", help="Of folds and validation samples."
)
@options.outputs
@click.option("--device", default="auto", metavar="NAME", show_default=True, help="As for run.")
@options.budget
@options.reading
@click.option("--json", "as_json", is_flag=True, help="A line of JSON on stdout, not the list of bands.")
@options.logs
def command(source: str, as_json: bool, verbose: bool, quiet: bool, log_file: str | None, **settings: Any) -> None:
    """Choose bands by successive projections: those that predict a target best or, without one, are the least collinear.

    TABLE has a spectrum a row: CSV, any library that run takes, FILE.npy, FILE.h5:/NAME or FILE.mat:NAME. Writes STEM_bands.csv,
    STEM_bands.json and, with a target, the error by number of bands, STEM_curve.csv and .png. The chosen bands go to stdout, as
    --bands of other commands takes them: unmix run cube.hdr --bands $(unmix bands cube.hdr -m 20 -o chosen)
    """
    from unmix.jobs.bands import bands_of

    log = options.set_up_log(verbose, quiet, log_file)
    names = ("scale", "nodata", "bands", "ignore_nm", "lines", "samples", "mask", "dataset", "wavelengths")
    reading = {name: settings.pop(name) for name in names}
    found = bands_of(source, reading=reading, command=sys.argv, **settings)
    click.echo(json.dumps(found) if as_json else ",".join(str(band) for band in sorted(found["bands"])))
    if "rmsep" in found:
        log.info(
            f"{source}: bands chosen: {len(found['bands'])}, RMSEP {found['rmsep']:.4g}; before weak ones were left out: "
            f"{len(found['before_elimination'])}, RMSEP {found['least_rmsep']:.4g} (both optimistic: they were chosen by it)"
        )
    for path in found["files"]:
        log.info(f"wrote {path}")
