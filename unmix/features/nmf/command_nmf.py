"""`unmix nmf`: find endmembers and abundances together, by non-negative factorisation."""

import logging
import sys
from pathlib import Path
from typing import Any

import click
from unmix_cli import options
from unmix_cli.progress import Board


@click.command("nmf")
@options.cube
@options.value(
    "-n --count", "Number of endmembers; auto estimates it.  [default: auto]", type=options.parse_count, metavar="N"
)
@options.value(
    "--loss",
    "Loss: the Kullback-Leibler divergence, or half the squared distance.",
    type=("kl", "frobenius"),
    default="kl",
)
@options.value(
    "--start",
    "Endmembers to start from: extracted pixels, or the mean spectrum times random numbers.  [default: vca]",
    type=("vca", "spa", "nfindr", "random"),
)
@options.option("endmembers", help="Start from this library instead.")
@options.across_gaps
@options.option("seed", help="Seed of --start.", type=click.IntRange(0))
@options.flag("--sum-to-one", "Keep the sum of each pixel's abundances at 1.")
@options.value("--steps", "Most steps.", type=click.IntRange(1), default=200, metavar="K")
@options.value(
    "--tol",
    "Stop when the loss falls by less than T times the first loss between evaluations; 0: never.",
    type=click.FloatRange(0, 1),
    default=1e-4,
    metavar="T",
)
@options.value("--every", "Steps between evaluations of the loss.", type=click.IntRange(1), default=25, metavar="K")
@options.outputs
@options.device_as_for_run
@options.budget
@options.gpu_memory
@options.option("format", help="File format of the maps, as for run.")
@options.reading
@options.as_json
@options.progress("Show progress on stderr, as for run.")
@options.logs
def command(cube: Path, as_json: bool, progress_kind: str, **settings: Any) -> None:
    """Factorise CUBE: endmembers and abundances together, neither negative, by multiplicative updates.

    Writes STEM_abundance, STEM_rmse, STEM_endmembers and STEM_run.json, which has the loss by step. There is no
    certificate: the result is a local optimum, which depends on the start. If the endmembers are known, prefer run.
    """
    from unmix import nmf_scene

    with Board(progress_kind, what="steps") as board:
        result = nmf_scene(cube, progress=board.scene(cube), command=sys.argv, **settings)
    options.show(result, as_json, [])
    # A loss of None stands for infinity, which JSON does not have.
    losses = ["infinity" if loss is None else f"{loss:.4g}" for _, loss in result["costs"]]
    end = "converged" if result["converged"] else "not converged; --steps makes more"
    logging.getLogger("unmix").info(
        f"{cube}: nmf ({result['loss']}) of {len(result['endmembers']['names'])} endmembers on {result['device']}: "
        "loss "
        f"{losses[0]} to {losses[-1]} in {result['costs'][-1][0]} steps ({end}); "
        f"{result['seconds']['total']:.2f} s; {(settings['out_dir'] or cube.parent) / result['stem']}_*"
    )
