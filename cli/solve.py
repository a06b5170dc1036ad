"""`unmix solve`: non-negative least squares for batches of any systems."""

import json
from pathlib import Path
from typing import Any

import click

from . import options


@click.command("solve")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option(
    "-o", "--out", required=True, type=click.Path(path_type=Path, dir_okay=False), metavar="OUT",
    help="OUT.npy (the answers; residuals or costs, kappa, delta and steps beside it) or OUT.h5 (all in one).",
)  # fmt: skip
@click.option("--toeplitz", "toeplitz_pulse", is_flag=True, help="A is a pulse, or one a row: undo its convolution.")
@click.option(
    "--quadratic", is_flag=True, help="A is Q, B is h: min ½ xᵀQx + hᵀx over x >= 0; Q may be sparse, FILE.npz."
)
@click.option(
    "--steps", type=click.IntRange(1), metavar="N", help="With --quadratic, the most steps.  [default: 10000]"
)
@click.option("--device", default="auto", metavar="NAME", show_default=True, help="As for run.")
@options.budget
@click.option("--overwrite", is_flag=True, help="Replace files that exist.")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON on stdout.")
@options.logs
def command(
    a: str,
    b: str,
    quadratic: bool,
    steps: int | None,
    toeplitz_pulse: bool,
    as_json: bool,
    verbose: bool,
    quiet: bool,
    log_file: str | None,
    **settings: Any,
) -> int:
    """Solve min |A x - b| over x >= 0 for every right-hand side of B, certified: Lawson-Hanson with an updated QR.

    A is (m, n), or (N, m, n) with a matrix for each system; B is (N, m), a right-hand side a row. Both are FILE.npy, FILE.h5:/NAME or
    FILE.mat:NAME. Any rank, more columns than rows too. A lidar's waveforms: unmix solve pulses.npy returns.npy --toeplitz -o x.npy

    With --quadratic: min ½ xᵀQx + hᵀx over x >= 0, by multiplicative updates and a solve on the support; for Q that is large and sparse
    (a FILE.npz of scipy.sparse.save_npz): unmix solve Q.npz h.npy --quadratic -o x.npy
    """
    from unmix.jobs.solve import quadratic_files, solve_files
    from unmix.outputs.atomic import finite

    if quadratic and toeplitz_pulse:
        raise click.UsageError("--quadratic and --toeplitz contradict each other")
    if steps is not None and not quadratic:
        raise click.UsageError("--steps is for --quadratic")
    log = options.set_up_log(verbose, quiet, log_file)
    if quadratic:
        found = quadratic_files(a, b, **settings | ({} if steps is None else {"steps": steps}))
    else:
        found = solve_files(a, b, toeplitz_pulse=toeplitz_pulse, **settings)
    if as_json:
        click.echo(json.dumps(finite(found)))
    log.info(
        f"{b}: {found['certified']} of {found['systems']} systems of {found['m']} x {found['n']} certified on {found['device']}, worst "
        f"κ {found['worst_kappa']:.1e}, {found['steps']} steps"
    )
    return 1 if found["failed"] else 0
