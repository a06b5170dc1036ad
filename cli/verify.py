"""`unmix verify`: check the outputs of a finished run against its cube."""

from dataclasses import asdict
from pathlib import Path

import click

from . import options
from .main import print_err, print_json, print_out


@click.command("verify")
@click.argument("stem", type=options.Local())
@options.cube_of_run
@options.flag("--all everything", "Solve every pixel again.")
@options.value("--sample", "Pixels to solve again.", type=click.IntRange(1), default=1000, metavar="N")
@options.as_json
def command(stem: Path, cube: Path | None, everything: bool, sample: int, as_json: bool) -> int:
    """Check the outputs of a run: every file against its digest, and pixels solved again by scipy.

    STEM is the common beginning of their names: maps/cube for maps/cube_abundance.img. Exit code 0 means that nothing differs.
    """
    from unmix.commands.verify import verify

    verdict = verify(stem, cube, everything, sample)
    if as_json:
        print_json(asdict(verdict))
    for fault in verdict.faults:
        print_err(f"error: {fault}")
    if not as_json and not verdict.faults:
        each = f"{verdict.pixels} pixels solved again by {verdict.by}, worst abundance off by {verdict.worst_abundance:.1e}"
        found = [verdict.together or f"{each} ({verdict.rounding})", *verdict.found]
        print_out(f"{stem}: {'; '.join(found)}; every file is what the run wrote")
    return 1 if verdict.faults else 0
