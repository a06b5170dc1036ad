"""`unmix nmf`: find endmembers and abundances together, by non-negative factorisation."""

import json
import logging
import sys
from pathlib import Path
from typing import Any

import click

from . import options
from .progress import Board


@click.command("nmf")
@options.cube
@options.value(
    "-n --count", "Number of endmembers; auto estimates it.  [default: auto]", type=options.parse_count, metavar="N"
)
@options.value("--loss", "Loss to minimise: the Kullback-Leibler divergence (kl), or half the squared distance (frobenius).",
               type=("kl", "frobenius"), default="kl")  # fmt: skip
@options.value("--start", "Endmembers to start from: pixels extracted by vca, spa or nfindr, or the mean spectrum times random "
               "numbers.  [default: vca]", type=("vca", "spa", "nfindr", "random"))  # fmt: skip
@options.option("endmembers", help="Start from this library instead.")
@options.across_gaps
@options.option("seed", help="Seed of the random numbers of --start.", type=click.IntRange(0))
@options.flag("--sum-to-one", "Keep the sum of each pixel's abundances at 1.")
@options.value("--steps", "Most steps to make.", type=click.IntRange(1), default=200, metavar="K")
@options.value("--tol", "Stop when the loss falls by less than T times the first loss between evaluations; 0 makes all steps.",
               type=click.FloatRange(0, 1), default=1e-4, metavar="T")  # fmt: skip
@options.value("--every", "Steps between evaluations of the loss.", type=click.IntRange(1), default=25, metavar="K")
@options.outputs
@options.device_as_for_run
@options.budget
@options.gpu_memory
@options.option("format", help="File format of the maps, as for run.")
@options.reading
@options.flag("--json as_json", "Print a line of JSON on stdout.")
@options.progress("Show progress on stderr, as for run; it counts steps.")
@options.logs
def command(cube: Path, as_json: bool, progress_kind: str, **settings: Any) -> None:
    """Factorise CUBE: endmembers and abundances together, neither negative, by multiplicative updates.

    Writes files as run does: STEM_abundance, STEM_rmse, STEM_endmembers and STEM_run.json, which has the loss by step. There
    is no certificate: the problem has many local optima, and the result depends on the start (--start, --seed). If the endmembers are
    known, prefer run.
    """
    from unmix import nmf_scene

    with Board(progress_kind, what="steps") as board:
        result = nmf_scene(cube, progress=board.scene(cube), command=sys.argv, **settings)
    if as_json:
        click.echo(json.dumps(result))
    # A loss of None stands for infinity, which JSON does not have.
    losses = ["infinity" if loss is None else f"{loss:.4g}" for _, loss in result["costs"]]
    end = "converged" if result["converged"] else "not converged; --steps makes more"
    logging.getLogger("unmix").info(
        f"{cube}: nmf ({result['loss']}) of {len(result['endmembers']['names'])} endmembers on {result['device']}: loss "
        f"{losses[0]} to {losses[-1]} in {result['costs'][-1][0]} steps ({end}); "
        f"{result['seconds']['total']:.2f} s; {(settings['out_dir'] or cube.parent) / result['stem']}_*"
    )
