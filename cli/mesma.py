"""`unmix mesma`: fractions of classes by the best model of each pixel."""

from collections.abc import Callable, Sequence
from typing import Any

import click

from unmix.features.runs import in_runs

from . import archive, config, options, unmixing
from .help import Grouped
from .run import unmix_scenes


def of_models(name: str, help: str, type: Sequence[str] | None = None) -> Callable[..., Any]:
    """Return the option of a feature, with its help and its words for models."""
    return options.option(
        name, help=options.as_options(help), **({} if type is None else {"type": options.one_of(type)})
    )


@click.command("mesma", cls=Grouped)
@archive.scenes
@unmixing.library
@options.declared(
    "like",
    "levels",
    "class_sets",
    "limits",
    "fusion",
    "fusion_rule",
    "min_fraction",
    "max_fraction",
    "min_shade",
    "max_shade",
    "max_rmse",
    "max_residual",
    "residual_bands",
    "shade",
)
@options.combine(*(of_models(name, **how) for one in in_runs().values() for name, how in one.for_models.items()))
@unmixing.shade_normalize
@unmixing.device
@unmixing.running
@options.reading
@options.option("tie")
@config.option
@options.option("dry_run")
@archive.jobs
@archive.reporting
@options.log_options
def command(**given: Any) -> int:
    """Choose for each pixel the best model with at most one spectrum of each class (MESMA).

    Writes STEM_model (for each class the number of its spectrum in STEM_endmembers, from 1; 0 is none), STEM_fraction
    (the classes, shade, and brightness, the sum of the classes), STEM_rmse, STEM_endmembers and, when all is done,
    STEM_run.json. All models are compared. Thresholds are in the unit of the scaled cube: the defaults are for
    reflectance from 0 to 1. Interrupted runs, lists of cubes and exit codes are as for run.
    """
    return unmix_scenes(method="mesma", **given)
