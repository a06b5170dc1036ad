"""The option `--config`, which takes options from a file; `config_file` reads it where one is given."""

from pathlib import Path
from typing import Any

import click

from unmix.later import later

from .options import Local

# Keys in the context of a command: the path of the file, and the options of a run's record, None of other files.
CONFIG, RECORD = "unmix_cli.config", "unmix_cli.config.record"
take, show, take_copy, warn_of_changes = (
    later(__package__, f"config_file:{name}") for name in ("take", "show", "take_copy", "warn_of_changes")
)


def take_file(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    """Make a file's options the defaults of this call."""
    if path is not None and not context.resilient_parsing:
        take(context, path)


def show_recorded(context: click.Context) -> None:
    """Log the options set by a record, which may be a stranger's."""
    if context.meta.get(RECORD) is not None:
        show(context)


def take_copy_of_library(settings: dict[str, Any]) -> None:
    """Replace a record's library that is gone by the copy beside the record."""
    context = click.get_current_context()
    if context.meta.get(RECORD) is not None:
        take_copy(context, settings)


def compare_with_record(report: dict[str, Any]) -> None:
    """Warn where a run by the record of another one had other libraries, noise or the like."""
    context = click.get_current_context()
    if context.meta.get(RECORD) is not None:
        warn_of_changes(context, report)


option = click.option(
    "--config",
    type=Local(dir_okay=False),
    metavar="FILE",
    is_eager=True,
    expose_value=False,
    callback=take_file,
    help='Take options from TOML (method = "nnls"), or from the run.json of an earlier run, to repeat it on another '
    "scene (whose masks "
    "and per-pixel noise have to be given). Paths are as on the command line, which comes first, then variables such "
    "as "
    "UNMIX_RUN_METHOD, then the file.",
)
