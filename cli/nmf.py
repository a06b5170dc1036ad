"""`unmix nmf`: endmembers and abundances found together."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from unmix.io.export import FORMATS

from . import options
from .progress import Board


@click.command("nmf")
@click.argument("cube", type=click.Path(path_type=Path))
@click.option("-n", "--count", metavar="N", help="How many endmembers; auto estimates it (HySime).  [default: auto]")
@click.option("--loss", type=options.one_of(["kl", "frobenius"]), default="kl", show_default=True,
              help="What falls: the Kullback-Leibler divergence, or half the squared distance.")  # fmt: skip
@click.option("--start", type=options.one_of(["vca", "spa", "random"]), default=None,
              help="Endmembers to begin with: pixels that an extraction picks, or the mean spectrum times random numbers.  "
              "[default: vca]")  # fmt: skip
@click.option(
    "-e", "--endmembers", type=click.Path(path_type=Path), metavar="FILE", help="A library to begin with instead."
)
@click.option("--seed", type=click.IntRange(0), default=0, metavar="S", show_default=True, help="Seed of the start.")
@click.option("--sum-to-one", is_flag=True, help="Keep each pixel's abundances at a sum of 1.")
@click.option("--steps", type=click.IntRange(1), default=200, metavar="K", show_default=True, help="The most steps.")
@click.option("--tol", type=click.FloatRange(0, 1), default=1e-4, metavar="T", show_default=True,
              help="Stop where the loss falls by less than T of the first between two looks; 0 makes all steps.")  # fmt: skip
@click.option(
    "--every", type=click.IntRange(1), default=25, metavar="K", show_default=True, help="Steps between looks."
)
@options.outputs
@click.option("--device", default="auto", metavar="NAME", show_default=True, help="As for run.")
@options.budget
@options.gpu_memory
@click.option(
    "--format", type=options.one_of(FORMATS), default="envi", show_default=True, help="Of the maps, as for run."
)
@options.reading
@click.option("--json", "as_json", is_flag=True, help="A line of JSON on stdout.")
@click.option("--progress", "progress_kind", type=options.one_of(["auto", "bar", "json", "none"]), default="auto", show_default=True,
              help="As for run; it counts steps.")  # fmt: skip
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

    Writes what run writes: STEM_abundance, STEM_rmse, STEM_endmembers and STEM_run.json, which has the loss by step. No
    certificate: the problem has many local optima, and the start decides (--start, --seed). Where the endmembers are known, prefer run.
    """
    from unmix import nmf_scene

    log = options.set_up_log(verbose, quiet, log_file)
    with Board(progress_kind, what="steps") as board:
        number = options.parse_count(count)
        found = nmf_scene(cube, count=number, progress=board.scene(cube), command=sys.argv, **settings)
    if as_json:
        click.echo(json.dumps(found))
    first, last = found["costs"][0], found["costs"][-1]
    end = "converged" if found["converged"] else "not converged; --steps makes more"
    log.info(
        f"{cube}: nmf ({found['loss']}) of {len(found['endmembers']['names'])} endmembers on {found['device']}: loss "
        f"{loss_of(first)} to {loss_of(last)} in {last[0]} steps ({end}); "
        f"{found['seconds']['total']:.2f} s; {(settings['out_dir'] or cube.parent) / found['stem']}_*"
    )


def loss_of(pair: list[Any]) -> str:
    """Return a loss for people; JSON has none that is infinite."""
    return "infinity" if pair[1] is None else f"{pair[1]:.4g}"
