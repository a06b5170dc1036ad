"""`unmix batch`: many scenes over many machines."""

import contextlib
import importlib
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import click

from unmix.errors import DeviceError
from unmix.jobs.distributed.scheduling import PATIENCE

from . import archive, options
from .progress import Board


def port_of(context: click.Context, option: click.Parameter, text: str | None) -> int | None:
    """The port of --dashboard."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 6 and int(text) < 2**16):
        raise click.UsageError(f"--dashboard {text}: write a port, or --dashboard behind the cubes for any")
    return int(text)


@click.command("batch")
@archive.scenes
@click.option(
    "--scheduler",
    metavar="URL",
    help="Of a Dask cluster, tls://host:8786 or tcp://host:8786.  [default: workers on this machine]",
)
@click.option("--scheduler-file", type=click.Path(), metavar="FILE", help="The file that its scheduler wrote.")
@click.option("--tls-ca", type=click.Path(), metavar="FILE",
              help="For a scheduler with TLS: who signed its certificate.  [default: Dask's configuration]")  # fmt: skip
@click.option("--tls-cert", type=click.Path(), metavar="FILE", help="The same: a certificate of yours.")
@click.option("--tls-key", type=click.Path(), metavar="FILE", help="The same: its key.")
@click.option(
    "--workers",
    type=click.IntRange(1),
    metavar="N",
    help="Without a scheduler: how many.  [default: one a GPU, or one]",
)
@click.option("--dashboard", is_flag=False, flag_value="0", metavar="[PORT]", callback=port_of,
              help="Without a scheduler: show Dask's dashboard at this port of 127.0.0.1, where every user of this machine can look "
              "at it; with no PORT, at any.")  # fmt: skip
@click.option("--unit", default="1G", metavar="SIZE", show_default=True, help="Of a scene, for a worker at a time.")
@click.option("--patience", type=click.FloatRange(0), default=PATIENCE, metavar="SECONDS", show_default=True,
              help="How long to wait for a scheduler's file, its answer (at most 30), and a worker when there is none.")  # fmt: skip
@archive.unmixing
@archive.reporting
@options.logs
def command(
    cubes: tuple[Path, ...],
    listed: Path | None,
    shard: str | None,
    as_json: bool,
    uncertified: str,
    progress_kind: str,
    verbose: bool,
    quiet: bool,
    log_file: str | None,
    **settings: Any,
) -> int:
    """Unmix scenes over the workers of a Dask cluster: what run does, and the same bytes.

    A scene goes to the workers in units of lines, which they write to their place; one that dies costs its unit. Cubes and outputs
    lie where all of them see them, and --memory, --threads and --streams are each worker's. Without --scheduler or --scheduler-file
    the workers are started on this machine, one a GPU, and nobody else can talk to them. A batch that was cut off goes on when the
    same command is given again, and so does unmix run with the same options. docs/cluster.md has SLURM, ssh and array jobs, and what
    to know of clusters that others can reach.
    """
    from unmix import batch

    options.set_up_log(verbose, quiet, log_file)
    settings["count"] = options.parse_count(settings["count"])
    cubes = archive.chosen_scenes(cubes, listed, shard, settings)
    outcomes = archive.Outcomes(len(cubes), as_json, settings["out_dir"], uncertified)
    silence_dask()
    with Board(progress_kind, len(cubes)) as board:
        ended = batch(cubes, watch=board, command=sys.argv, **settings)
        try:
            for cube, result in ended:
                board.end(cube)
                outcomes.finished(cube, result) if isinstance(result, dict) else outcomes.failed(cube, result)
        except DeviceError:
            outcomes.summary()
            raise
    return outcomes.summary()


def silence_dask() -> None:
    """Dask says nothing: who was lost, and when, is said by us in one line."""
    with contextlib.suppress(ImportError):
        importlib.import_module("distributed")
    for name in ["distributed", "asyncio", "tornado", *logging.root.manager.loggerDict]:
        if name.partition(".")[0] in ("distributed", "asyncio", "tornado"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", module="distributed")
