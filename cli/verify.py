"""`unmix verify`: check the outputs of a finished run against its cube."""

from dataclasses import asdict
from pathlib import Path

import click

from . import options
from .main import print_err, print_json, print_out

# Faults that are printed: of a false map each pixel has one.
MOST_SHOWN = 20


@click.command("verify")
@click.argument("stem", type=options.Local())
@options.cube_of_run
@options.flag("--all everything", "Check all pixels, and unmix all lines again: also what was extracted.")
@options.value(
    "--sample",
    "Pixels to check; about as many are in the lines unmixed again.",
    type=click.IntRange(1),
    default=1000,
    metavar="N",
)
@options.as_json
def command(stem: Path, cube: Path | None, everything: bool, sample: int, as_json: bool) -> int:
    """Check the outputs of a run: digests of all files, the conditions of an optimum in some pixels, some lines unmixed
    again.

    STEM is the common beginning of their names: maps/cube for maps/cube_abundance.img. Exit code 0 means that nothing
    differs.
    """
    from unmix.commands.verify import verify

    verdict = verify(stem, cube, everything, sample)
    if as_json:
        print_json(asdict(verdict))
    for fault in verdict.faults[:MOST_SHOWN]:
        print_err(f"error: {fault}")
    if len(verdict.faults) > MOST_SHOWN:
        print_err(f"error: and {len(verdict.faults) - MOST_SHOWN} more: --json has all")
    if not as_json and not verdict.faults:
        how = "with the same bytes" if verdict.same_bytes else f"at most {verdict.largest_difference:.1e} apart"
        found = [f"{verdict.pixels} pixels hold the conditions of their optimum"] * (verdict.pixels > 0)
        found += [f"{verdict.lines} lines unmixed again, {how}"] * (verdict.lines > 0)
        print_out(f"{stem}: {'; '.join([*found, 'every file is what the run wrote'])}")
    return 1 if verdict.faults else 0
