"""`unmix bench`: time a run and compare it with a plain copy of the same data."""

import json
from typing import Any

import click

from . import options
from .main import print_out


@click.command("bench")
@click.argument("cube", type=options.Input())
@click.option(
    "-e",
    "--endmembers",
    required=True,
    type=options.Input(),
    metavar="FILE",
    help="Spectral library to use.",
)
@options.method_as_for_run
@click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="NAME",
    help="Where to compute, as for run; give it again to time several devices.  [default: auto]",
)
@click.option(
    "--streams",
    multiple=True,
    type=click.IntRange(1),
    metavar="K",
    help="Blocks of lines in memory at a time; give it again to time several numbers.  [default: 4]",
)
@click.option(
    "-o",
    "--out-dir",
    metavar="DIR",
    type=options.Folder(),
    help="Folder for the maps while they are timed.  [default: a temporary folder]",
)
@click.option(
    "--repeats", type=click.IntRange(1), default=3, show_default=True, help="Number of runs of each; medians are shown."
)
@options.gpu_memory
@options.budget
@options.reading
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each row instead of the table.")
@options.logs
def command(
    as_json: bool, verbose: bool, quiet: bool, log_file: str | None, devices: tuple[str, ...], streams: tuple[int, ...],
    **settings: Any,
) -> None:  # fmt: skip
    """Time a run of CUBE on each device, and a plain copy: the same reads, transfers and writes without arithmetic.

    The copy is the bound on the speed of a run. Both are run in turn in one process, after a first run that is not timed. Outputs are
    deleted.
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
            timing = row[what]
            taken = [f"{timing[stage]:.3f}" for stage in stages]
            share = "-" if timing["hidden"] is None else f"{100 * timing['hidden']:.0f} %"
            name = what if what == "copy" else f"{row['method']}, {row['ratio']:.2f} x"
            lines.append((row["device"], str(row["streams"]), name, *taken, f"{timing['gigabytes_per_second']:.2f}",
                          f"{timing['pixels_per_second'] / 1e6:.2f}", share))  # fmt: skip
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    for line in lines:
        print_out("  ".join(word.ljust(width) for word, width in zip(line, widths)).rstrip())
