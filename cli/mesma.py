"""`unmix mesma`: fractions of classes by the best model of each pixel."""

from pathlib import Path
from typing import Any

import click

from unmix.methods import ModelChoice

from . import archive, config, options, unmixing
from .run import unmix_scenes

default = ModelChoice()


@click.command("mesma")
@archive.scenes
@unmixing.library
@click.option(
    "--levels",
    default=default.levels,
    metavar="A-B",
    show_default=True,
    help="Endmembers of a model with shade, from 2 to 4: 2-4 tries all models of one to three classes and shade.",
)
@click.option(
    "--class-sets",
    metavar="A+B,...",
    help="Try only models of these sets of classes, of as many classes as --levels allow; under exact also of their parts.  "
    "[default: all]",
)
@click.option(
    "--limits",
    type=options.one_of(["exact", "viper"]),
    default=default.limits,
    show_default=True,
    help="exact: fractions are not negative and sum to at most one, and each model is fitted under that, so that every pixel "
    "has a model; viper: models are fitted by least squares, and rejected beyond the following limits.",
)
@click.option(
    "--fusion",
    type=float,
    default=default.fusion,
    metavar="RMSE",
    show_default=True,
    help="Take a model of a higher level only if its RMSE is smaller by so much.",
)
@click.option(
    "--fusion-rule",
    type=options.one_of(["kept", "preceding"]),
    default=default.fusion_rule,
    show_default=True,
    help="Smaller than that of the last level that was kept, or of the preceding one, kept or not, as VIPER has it.",
)
@click.option(
    "--min-fraction", type=float, default=default.min_fraction, metavar="F", show_default=True, help="For viper."
)
@click.option(
    "--max-fraction", type=float, default=default.max_fraction, metavar="F", show_default=True, help="For viper."
)
@click.option("--min-shade", type=float, default=default.min_shade, metavar="F", show_default=True, help="For viper.")
@click.option("--max-shade", type=float, default=default.max_shade, metavar="F", show_default=True, help="For viper.")
@click.option(
    "--max-rmse", type=float, metavar="RMSE", help="Reject models with a larger RMSE.  [default: 0.025 for viper]"
)
@click.option(
    "--max-residual",
    type=float,
    metavar="R",
    help="For viper: reject models whose residual reaches R, either way, in --residual-bands bands after each other.  [default: none]",
)
@click.option(
    "--residual-bands",
    type=int,
    default=default.residual_bands,
    metavar="N",
    show_default=True,
    help="For --max-residual: so many of the bands in use.",
)
@unmixing.shade
@click.option(
    "--uncertainty",
    is_flag=True,
    help="Also write STEM_spread: by how much the RMSE of the next best model is larger, how many models fit nearly as well as the "
    "chosen one, and over these the mean, standard deviation, least and largest fraction of each class and of shade.",
)
@click.option(
    "--within",
    metavar="RMSE|all",
    help="For --uncertainty: by how much the RMSE of a model may be larger than that of the chosen one.  [default: half of --fusion]",
)
@unmixing.shade_normalize
@unmixing.device
@unmixing.running
@options.reading
@unmixing.tie
@config.option
@click.option("--dry-run", is_flag=True, help="Show what would be done, and write nothing.")
@archive.reporting
@options.logs
def command(
    cubes: tuple[Path, ...], listed: Path | None, shard: str | None, as_json: bool, uncertified: str, progress_kind: str, verbose: bool,
    quiet: bool, log_file: str | None, **settings: Any,
) -> int:  # fmt: skip
    """Choose for each pixel the best model with at most one spectrum of each class (MESMA).

    Writes STEM_model (a band for each class: the number of its spectrum in STEM_endmembers, from 1; 0 is none), STEM_fraction (a band
    for each class, shade, and the brightness, which is the sum of the classes), STEM_rmse, STEM_endmembers and, when all is done,
    STEM_run.json. All models are compared; none is drawn at random. Thresholds are in the unit of the scaled cube: the defaults are for
    reflectance from 0 to 1. Interrupted runs, lists of cubes and exit codes are as for run.
    """
    settings |= {"method": "mesma"}
    return unmix_scenes(cubes, listed, shard, as_json, uncertified, progress_kind, (verbose, quiet, log_file), settings)
