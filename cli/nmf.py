"""`unmix nmf`: find endmembers and abundances together, by non-negative factorisation."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from unmix.io.export import FORMATS

from . import options
from .progress import Board


@click.command("nmf")
@click.argument("cube", type=options.Input())
@click.option("-n", "--count", metavar="N", help="Number of endmembers; auto estimates it.  [default: auto]")
@click.option("--loss", type=options.one_of(["kl", "frobenius"]), default="kl", show_default=True,
              help="What is minimised: the Kullback-Leibler divergence (kl), or half the squared distance (frobenius).")  # fmt: skip
@click.option("--start", type=options.one_of(["vca", "spa", "nfindr", "random"]), default=None,
              help="Endmembers to start from: pixels extracted by vca, spa or nfindr, or the mean spectrum times random numbers.  "
              "[default: vca]")  # fmt: skip
@click.option("-e", "--endmembers", type=options.Input(), metavar="FILE", help="Start from this library instead.")
@options.across_gaps
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    metavar="S",
    show_default=True,
    help="Seed of the random numbers of --start.",
)
@click.option("--sum-to-one", is_flag=True, help="Keep the sum of each pixel's abundances at 1.")
@click.option(
    "--steps", type=click.IntRange(1), default=200, metavar="K", show_default=True, help="Most steps to make."
)
@click.option("--tol", type=click.FloatRange(0, 1), default=1e-4, metavar="T", show_default=True,
              help="Stop when the loss falls by less than T times the first loss between evaluations; 0 never does.")  # fmt: skip
@click.option(
    "--every",
    type=click.IntRange(1),
    default=25,
    metavar="K",
    show_default=True,
    help="Steps between evaluations of the loss.",
)
@options.outputs
@click.option("--device", default="auto", metavar="NAME", show_default=True, help="Where to compute, as for run.")
@options.budget
@options.gpu_memory
@click.option(
    "-f",
    "--format",
    type=options.FormatName(FORMATS),
    default="envi",
    show_default=True,
    help="File format of the maps, as for run.",
)
@options.reading
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON on stdout.")
@click.option("--progress", "progress_kind", type=options.one_of(["auto", "bar", "json", "none"]), default="auto", show_default=True,
              help="Show progress on stderr, as for run; it counts steps.")  # fmt: skip
@options.logs
def command(
    cube: Path,
    count: str | None,
    as_json: bool,
    progress_kind: str,
    verbose: bool,
    quiet: bool,
    log_file: str | None,
    **settings: Any,
) -> None:
    """Factorise CUBE: endmembers and abundances together, neither negative, by multiplicative updates.

    Writes what run writes: STEM_abundance, STEM_rmse, STEM_endmembers and STEM_run.json, which has the loss by step. There
    is no certificate: the problem has many local optima, and the result depends on the start (--start, --seed). If the endmembers are
    known, prefer run.
    """
    from unmix import nmf_scene

    log = options.set_up_log(verbose, quiet, log_file)
    with Board(progress_kind, what="steps") as board:
        number = options.parse_count(count)
        result = nmf_scene(cube, count=number, progress=board.scene(cube), command=sys.argv, **settings)
    if as_json:
        click.echo(json.dumps(result))
    first, last = result["costs"][0], result["costs"][-1]
    end = "converged" if result["converged"] else "not converged; --steps makes more"
    log.info(
        f"{cube}: nmf ({result['loss']}) of {len(result['endmembers']['names'])} endmembers on {result['device']}: loss "
        f"{loss_of(first)} to {loss_of(last)} in {last[0]} steps ({end}); "
        f"{result['seconds']['total']:.2f} s; {(settings['out_dir'] or cube.parent) / result['stem']}_*"
    )


def loss_of(pair: list[Any]) -> str:
    """Return a loss as text; None stands for infinity, which JSON does not have."""
    return "infinity" if pair[1] is None else f"{pair[1]:.4g}"
