"""`unmix solve`: non-negative least squares and quadratic programmes for batches of systems."""

import json
from typing import Any

import click

from . import options


@click.command("solve")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option(
    "-o", "--out", required=True, type=options.Local(dir_okay=False), metavar="OUT",
    help="Output: OUT.npy (solutions; residuals or costs, kappa, delta and steps in files beside it) or OUT.h5 (all in one).",
)  # fmt: skip
@click.option(
    "--toeplitz",
    "toeplitz_pulse",
    is_flag=True,
    help="A is a pulse, or has a pulse in each row: solve for the signal that it was convolved with.",
)
@click.option(
    "--quadratic",
    is_flag=True,
    help="Solve min ½ xᵀQx + hᵀx over x >= 0 with Q = A and h = B; Q may be sparse, FILE.npz.",
)
@click.option(
    "--steps", type=click.IntRange(1), metavar="N", help="With --quadratic: most steps to make.  [default: 10000]"
)
@click.option("--device", default="auto", metavar="NAME", show_default=True, help="Where to compute, as for run.")
@options.budget
@click.option("--overwrite", is_flag=True, help="Replace files that exist, if unmix wrote them.")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON on stdout.")
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

    A is (m, n), or (N, m, n) with a matrix for each system; B is (N, m), with a right-hand side in each row. Both are FILE.npy,
    FILE.h5:/NAME or FILE.mat:NAME. A may have any rank, and more columns than rows. For the waveforms of a lidar:
    unmix solve pulses.npy returns.npy --toeplitz -o x.npy

    With --quadratic: solve min ½ xᵀQx + hᵀx over x >= 0, by multiplicative updates and a solve on the support. A large and sparse Q
    is a FILE.npz written by scipy.sparse.save_npz: unmix solve Q.npz h.npy --quadratic -o x.npy
    """
    from unmix.jobs.solve import quadratic_files, solve_files
    from unmix.outputs.json_text import finite

    if quadratic and toeplitz_pulse:
        raise click.UsageError("--quadratic and --toeplitz contradict each other")
    if steps is not None and not quadratic:
        raise click.UsageError("--steps is for --quadratic")
    log = options.set_up_log(verbose, quiet, log_file)
    if quadratic:
        result = quadratic_files(a, b, **settings | ({} if steps is None else {"steps": steps}))
    else:
        result = solve_files(a, b, toeplitz_pulse=toeplitz_pulse, **settings)
    if as_json:
        click.echo(json.dumps(finite(result)))
    without = f", {result['without_delta']} by κ alone (no bound δ is known)" if result["without_delta"] else ""
    log.info(
        f"{b}: {result['certified']} of {result['systems']} systems of {result['m']} x {result['n']} certified{without} on "
        f"{result['device']}, worst κ {result['worst_kappa']:.1e}, {result['steps']} steps"
    )
    return 1 if result["failed"] else 0
