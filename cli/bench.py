"""unmix bench: how fast this machine is, beside the copy that bounds it."""

import json
from pathlib import Path
from typing import Any

import click

from unmix.methods import METHODS, SOLVERS

from . import options
from .main import print_out


@click.command("bench")
@click.argument("cube", type=click.Path(path_type=Path))
@click.option(
    "-e", "--endmembers", required=True, type=click.Path(path_type=Path), metavar="FILE", help="Spectra to use."
)
@click.option("--method", type=options.one_of(METHODS), default="fcls", show_default=True, help="The constraints.")
@click.option("--solver", type=options.one_of(SOLVERS), default=None, help="How.")
@click.option(
    "--device", "devices", multiple=True, metavar="NAME", help="As for run; may be given again.  [default: auto]"
)
@click.option(
    "--streams",
    multiple=True,
    type=click.IntRange(1),
    metavar="K",
    help="Blocks in flight; may be given again.  [default: 4]",
)
@click.option(
    "-o",
    "--out-dir",
    metavar="DIR",
    type=options.Folder(),
    help="Where maps go for the time.  [default: temporary]",
)
@click.option(
    "--repeats", type=click.IntRange(1), default=3, show_default=True, help="Runs of each; medians are given."
)
@options.gpu_memory
@options.budget
@options.reading
@click.option("--json", "as_json", is_flag=True, help="A JSON line for each row instead of the table.")
@options.logs
def command(
    as_json: bool, verbose: bool, quiet: bool, log_file: str | None, devices: tuple[str, ...], streams: tuple[int, ...],
    **settings: Any,
) -> None:  # fmt: skip
    """Time a scene on each device beside the copy that bounds it: the same reads, transfers and writes, no arithmetic.

    Both are run in turn in one process, after one run that warms up; endmembers are given. Nothing is kept.
    """
    from unmix.jobs.bench import bench

    options.set_up_log(verbose, quiet, log_file)
    rows = bench(devices=devices or ("auto",), streams=streams or (4,), **settings)
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
        return
    stages = ("reading", "copying", "solving", "writing", "total")
    head = ("device", "streams", "what", *stages[:-1], "total s", "GB/s", "Mpixel/s", "hidden")
    lines = [head]
    for row in rows:
        for what in ("copy", "run"):
            one = row[what]
            taken = [f"{one[stage]:.3f}" for stage in stages]
            share = "-" if one["hidden"] is None else f"{100 * one['hidden']:.0f} %"
            name = what if what == "copy" else f"{row['method']}, {row['ratio']:.2f} x"
            lines.append((row["device"], str(row["streams"]), name, *taken, f"{one['gigabytes_per_second']:.2f}",
                          f"{one['pixels_per_second'] / 1e6:.2f}", share))  # fmt: skip
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    for line in lines:
        print_out("  ".join(word.ljust(width) for word, width in zip(line, widths)).rstrip())
