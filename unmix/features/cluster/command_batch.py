"""`unmix batch`: unmix many scenes on many machines."""

import contextlib
import importlib
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import click
from unmix_cli import archive, options, unmixing
from unmix_cli.help import Grouped
from unmix_cli.outcomes import Outcomes
from unmix_cli.progress import Board

from unmix.errors import DeviceError
from unmix.features.cluster import WORKER_SECONDS

FILE = click.Path()


def port_of(context: click.Context, option: click.Parameter, text: str | None) -> int | None:
    """Return the port of --dashboard; 0 for any free one."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 6 and int(text) < 2**16):
        raise click.UsageError(
            f"--dashboard {text}: write a port number, or give --dashboard after the cubes for any free port"
        )
    return int(text)


@click.command("batch", cls=Grouped)
@archive.scenes
@options.value(
    "--scheduler",
    "Scheduler of a Dask cluster, tls://host:8786 or tcp://host:8786.  [default: workers on this machine]",
    metavar="URL",
)
@options.value("--scheduler-file", "File that the scheduler wrote, in place of its URL.", type=FILE, metavar="FILE")
@options.value(
    "--tls-ca",
    "With TLS: authority of the scheduler's certificate.  [default: Dask's configuration]",
    type=FILE,
    metavar="FILE",
)
@options.value("--tls-cert", "With TLS: your certificate.", type=FILE, metavar="FILE")
@options.value("--tls-key", "With TLS: the key of your certificate.", type=FILE, metavar="FILE")
@options.value(
    "--workers",
    "Without a scheduler: number of workers.  [default: one for each GPU, or one]",
    type=click.IntRange(1),
    metavar="N",
)
@click.option(
    "--dashboard",
    is_flag=False,
    flag_value="0",
    metavar="[PORT]",
    callback=port_of,
    help="Without a scheduler: show Dask's dashboard at this port of 127.0.0.1, or any free one; every "
    "user of this machine can see it.",
)
@options.value(
    "--patience",
    "How long to wait for the scheduler's file, its answer (at most 30 s), and a first worker.",
    type=click.FloatRange(0),
    default=WORKER_SECONDS,
    metavar="SECONDS",
)
@unmixing.every
@archive.reporting
@options.logs
def command(
    cubes: tuple[Path, ...],
    listed: Path | None,
    shard: str | None,
    as_json: bool,
    uncertified: str,
    failed: Path | None,
    progress_kind: str,
    **settings: Any,
) -> int:
    """Unmix scenes on the workers of a Dask cluster; outputs are those of run, byte for byte.

    All workers must share a file system with cubes and outputs; --memory, --threads and --streams are for each worker.
    Without --scheduler or --scheduler-file workers are started on this machine, and nobody else can connect to them. A
    worker takes a scene at a time; if it dies, another one goes on with it. An interrupted batch continues when the
    same command, or run with its options, is given again.
    docs/cluster.md explains SLURM, ssh, array jobs and security.
    """
    from unmix import batch

    cubes = archive.chosen_scenes(cubes, listed, shard, settings)
    outcomes = Outcomes(len(cubes), as_json, settings["out_dir"], uncertified, failed)
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
    """Silence Dask's own log: unmix reports lost workers itself, in one line."""
    with contextlib.suppress(ImportError):
        importlib.import_module("distributed")
    for name in ["distributed", "asyncio", "tornado", *logging.root.manager.loggerDict]:
        if name.partition(".")[0] in ("distributed", "asyncio", "tornado"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", module="distributed")
