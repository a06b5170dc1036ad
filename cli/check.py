"""`unmix check`: look for everything that would make a run wrong, before it."""

import json
import logging
from pathlib import Path
from typing import Any

import click

from unmix.errors import CubeError

from . import options, unmixing
from .main import print_out


@click.command("check")
@click.argument("cube", type=options.Input())
@unmixing.library
@unmixing.names
@options.method_as_for_run
@options.budget
@options.reading
@unmixing.tie
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@options.logs
def command(
    cube: Path, endmembers: Path | None, as_json: bool, verbose: bool, quiet: bool, log_file: str | None, **settings: Any
) -> int:  # fmt: skip
    """Check before a run of CUBE whether its results would be sound; reads headers and a sample of pixels only.

    Checks units, the wavelength range of the library, scale, the condition number of the endmembers, bands that are dead, constant or
    out of physical range, and masked pixels; estimates what a run will cost. Exit code 3 means that a run would be unsound.
    """
    from unmix import check

    log = options.set_up_log(verbose, quiet, log_file)
    log.handlers[0].setLevel(logging.ERROR)  # of stderr, because the findings are printed on stdout
    report = check(cube, endmembers, **settings)
    for finding in report["findings"]:
        level = {"error": logging.WARNING, "warning": logging.WARNING, "info": logging.INFO}[finding["severity"]]
        log.log(level, f"{cube}: {finding['severity']}: {finding['about']}: {finding['message']}")
    if as_json:
        click.echo(json.dumps(report))
    else:
        width = max(len(finding["about"]) for finding in report["findings"])
        for finding in report["findings"]:
            if not (quiet and finding["severity"] == "info"):
                print_out(f"{finding['severity']:8} {finding['about']:{width}}  {finding['message']}")
        print_out(f"{cube}: {'sound' if report['sound'] else 'a run would be unsound'}")
    return 0 if report["sound"] else CubeError.exit_code
