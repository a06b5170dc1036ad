"""`unmix count`: estimate the number of endmembers."""

from pathlib import Path
from typing import Any

import click

from . import options


@click.command("count")
@click.argument("cube", type=click.Path(path_type=Path))
@click.option(
    "--method", type=str.lower, default="hysime", show_default=True, metavar="NAME", help="The algorithm: hysime."
)
@options.budget
@options.reading
@options.logs
def command(
    cube: Path,
    method: str,
    memory: str,
    threads: int | None,
    verbose: bool,
    quiet: bool,
    log_file: str | None,
    **reading: Any,
) -> None:
    """Estimate the number of endmembers of CUBE, in one pass over the file, and print it on stdout."""
    from unmix.endmembers import count_endmembers

    options.set_up_log(verbose, quiet, log_file)
    scene, used, missing = options.open_for_reading(cube, **reading)
    click.echo(count_endmembers(scene, used, missing, options.parse_memory(memory), method, threads))
