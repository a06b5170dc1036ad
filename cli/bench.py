"""`unmix bench`: time a run and compare it with a plain copy of the same data."""

from typing import Any

import click

from . import options
from .main import print_json, print_out

STAGES = ("extracting", "reading", "copying", "solving", "writing", "total")
HEAD = ("device", "streams", "what", *STAGES[:-1], "total s", "GB/s", "Mpixel/s", "hidden")


@click.command("bench")
@options.cube
@options.option("endmembers", help="The library. Without it endmembers are extracted, and that is timed.")
@options.declared("count", "extract")
@options.method_as_for_run
@options.value(
    "--device devices",
    "Where to compute, as for run; may be repeated.  [default: auto]",
    multiple=True,
    metavar="NAME",
)
@options.value(
    "--streams",
    "Blocks in memory at a time; may be repeated.  [default: 4]",
    multiple=True,
    type=click.IntRange(1),
    metavar="K",
)
@options.option("out_dir", help="Folder for the maps.  [default: a temporary one]")
@options.value("--repeats", "Runs of each; medians are shown.", type=click.IntRange(1), default=3, metavar="N")
@options.gpu_memory
@options.budget
@options.reading
@options.as_json
@options.logs
def command(as_json: bool, devices: tuple[str, ...], streams: tuple[int, ...], **settings: Any) -> None:
    """Time a run of CUBE on each device, and a plain copy: the same reads, transfers and writes without arithmetic.

    Without -e the whole job is timed: endmembers are extracted as by run, and the copy reads CUBE as often as that.

    The copy is the bound on the speed of a run. Both run in turn in one process, after a run that is not timed. Outputs are
    deleted.
    """
    from unmix.commands.bench import bench

    rows = bench(devices=devices or ("auto",), streams=streams or (4,), **settings)
    lines = options.aligned([HEAD, *(cells_of(row, what) for row in rows for what in ("copy", "run"))], len(HEAD))
    for row in rows if as_json else ():
        print_json(row)
    for line in () if as_json else lines:
        print_out(line)


def cells_of(row: dict[str, Any], what: str) -> list[str]:
    """Return a row of the table, of the copy or the run."""
    timing = row[what]
    return [
        row["device"],
        str(row["streams"]),
        what if what == "copy" else f"{row['method']}, {row['ratio']:.2f} x",
        *(f"{timing[stage]:.3f}" for stage in STAGES),
        f"{timing['gigabytes_per_second']:.2f}",
        f"{timing['pixels_per_second'] / 1e6:.2f}",
        "-" if timing["hidden"] is None else f"{100 * timing['hidden']:.0f} %",
    ]
