"""`unmix solve`: non-negative least squares and quadratic programmes for batches of systems."""

import logging
from typing import Any

import click
from unmix_cli import options


@click.command("solve")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@options.value(
    "-o --out",
    "OUT.npy (solutions; residuals or costs, kappa, delta and steps in files beside it) or OUT.h5 (all in one).",
    required=True,
    type=options.Local(dir_okay=False),
    metavar="OUT",
)
@options.flag(
    "--toeplitz toeplitz_pulse",
    "A is a pulse, or a pulse in each row: solve for the signal convolved with it.",
)
@options.value(
    "--weights", "Weights of the squares of rows, at least 0, of all systems (m) or of each (N, m).", metavar="FILE"
)
@options.value(
    "--allowed", "Columns that x may use, of all systems (n) or of each (N, n); others are 0.", metavar="FILE"
)
@options.value("--start", "Columns to begin with, or x of similar systems, (n) or (N, n).", metavar="FILE")
@options.value("--dictionary", "A is (K, m, n), and this the number of each system's matrix, from 0.", metavar="FILE")
@options.flag("--quadratic", "Solve the quadratic programme.")
@options.value("--steps", "With --quadratic: most steps.  [default: 10000]", type=click.IntRange(1), metavar="N")
@options.device_as_for_run
@options.budget
@options.overwrite
@options.as_json
@options.logs
def command(
    a: str, b: str, quadratic: bool, steps: int | None, toeplitz_pulse: bool, as_json: bool, **settings: Any
) -> int:
    """Solve min |A x - b| over x >= 0 for every right-hand side of B, certified: Lawson-Hanson with an updated QR.

    A is (m, n) of any rank, or (N, m, n) with a matrix for each system; B is (N, m), with a right-hand side in each
    row. Both are FILE.npy, FILE.h5:/NAME or FILE.mat:NAME. For the waveforms of a lidar: unmix solve pulses.npy
    returns.npy --toeplitz -o x.npy

    With --quadratic: min ½ xᵀQx + hᵀx over x >= 0, Q = A and h = B, by multiplicative updates and a solve on the
    support. Q may be sparse, a FILE.npz of scipy.sparse.save_npz.
    """
    from unmix.features.systems.files import quadratic_files, solve_files

    if quadratic and toeplitz_pulse:
        raise click.UsageError("--quadratic and --toeplitz contradict each other")
    if steps is not None and not quadratic:
        raise click.UsageError("--steps is for --quadratic")
    of_systems = ("weights", "allowed", "start", "dictionary")
    for name in of_systems if quadratic or toeplitz_pulse else ():
        if settings[name] is not None:
            raise click.UsageError(f"--{name} is not for --quadratic and --toeplitz")
    if quadratic:
        settings = {name: value for name, value in settings.items() if name not in of_systems}
        result = quadratic_files(a, b, **settings | ({} if steps is None else {"steps": steps}))
    else:
        result = solve_files(a, b, toeplitz_pulse=toeplitz_pulse, **settings)
    options.show(result, as_json, [])
    without = f", {result['without_delta']} by κ alone (no bound δ is known)" if result["without_delta"] else ""
    without += f", {result['without_data']} without data: their x is NaN" if result["without_data"] else ""
    logging.getLogger("unmix").info(
        f"{b}: {result['certified']} of {result['systems']} systems of {result['m']} x {result['n']} "
        f"certified{without} on "
        f"{result['device']}, worst κ {result['worst_kappa']:.1e}, {result['steps']} steps"
    )
    return 1 if result["failed"] else 0
