"""`unmix bands`: choose bands."""

import logging
import sys
from dataclasses import fields
from typing import Any

import click
from unmix_cli import options


@click.command("bands")
@click.argument("source", metavar="CUBE|TABLE")
@options.value(
    "--target",
    "CSV with the values to predict in its last column; for a cube, line and sample come first.",
    metavar="Y.csv",
)
@options.value(
    "-m --most",
    "Most bands.  [default: the least of samples - 1, bands and 100; without a target 10]",
    type=click.IntRange(1),
    metavar="M",
)
@options.value("--folds", "Cross-validate with K folds.  [default: 5]", type=int, metavar="K")
@options.value(
    "--validation", "Validate on this share of the samples instead, drawn at random.", type=float, metavar="SHARE"
)
@options.value(
    "--alpha", "Significance level of the F test that removes weak bands; 0 keeps all.", default=0.25, metavar="P"
)
@options.option("seed", help="Seed of folds and validation samples.", type=click.IntRange(0))
@options.outputs
@options.device_as_for_run
@options.budget
@options.reading
@options.as_json
@options.logs
def command(source: str, as_json: bool, **settings: Any) -> None:
    """Choose bands by successive projections: the best predictors of a target or, without one, the least collinear
    ones.

    TABLE has a spectrum in each row: CSV, any library that run takes, FILE.npy, FILE.h5:/NAME or FILE.mat:NAME. Writes
    STEM_bands.csv, STEM_bands.json and, with a target, the error by number of bands, STEM_curve.csv and .png. The bands
    are printed in the form that --bands takes: unmix run cube.hdr --bands $(unmix bands cube.hdr -m 20 -o chosen)
    """
    from unmix.features.bands.scene import bands_of
    from unmix.scene import ReadOptions

    names = [field.name for field in fields(ReadOptions) if field.name in settings]
    reading = {name: settings.pop(name) for name in names}
    chosen = bands_of(source, reading=reading, command=sys.argv, **settings)
    options.show(chosen, as_json, [",".join(str(band) for band in sorted(chosen["bands"]))])
    log = logging.getLogger("unmix")
    if "rmsep" in chosen:
        log.info(
            f"{source}: bands chosen: {len(chosen['bands'])}, RMSEP {chosen['rmsep']:.4g}; before weak ones were left "
            "out: "
            f"{len(chosen['before_elimination'])}, RMSEP {chosen['least_rmsep']:.4g} (both optimistic: the bands were "
            "chosen by it: for an error to report hold samples back yourself)"
        )
    for path in chosen["files"]:
        log.info(f"wrote {path}")
