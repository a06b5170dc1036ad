"""`unmix check`: would this run be sound?"""

import json
import logging
from pathlib import Path
from typing import Any

import click

from unmix.errors import CubeError
from unmix.methods import METHODS, SOLVERS

from . import options
from .main import print_out


@click.command("check")
@click.argument("cube", type=click.Path(path_type=Path))
@click.option(
    "-e", "--endmembers", type=click.Path(path_type=Path), metavar="FILE", help="The spectra that a run would use."
)
@click.option("--select", metavar="A,B*,...", help="Of these, the ones with such names or classes; !A leaves out.")
@click.option("--method", type=options.one_of(METHODS), default="fcls", show_default=True, help="The constraints.")
@click.option("--solver", type=options.one_of(SOLVERS), default=None, help="How.")
@options.budget
@options.reading
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@options.logs
def command(
    cube: Path, endmembers: Path | None, as_json: bool, verbose: bool, quiet: bool, log_file: str | None, **settings: Any
) -> int:  # fmt: skip
    """Everything that would make a run of CUBE wrong, before it; looks at headers and a sample of pixels only.

    Units, whether the library reaches the bands, scale, condition of the endmembers, bands that are dead, constant or out of
    physical range, masked pixels, and what a run will cost. Exit code 3 where a run would be unsound.
    """
    from unmix import check

    log = options.set_up_log(verbose, quiet, log_file)
    log.handlers[0].setLevel(logging.ERROR)  # stderr: the findings are on stdout
    found = check(cube, endmembers, **settings)
    for one in found["findings"]:
        level = {"error": logging.WARNING, "warning": logging.WARNING, "info": logging.INFO}[one["severity"]]
        log.log(level, f"{cube}: {one['severity']}: {one['about']}: {one['message']}")
    if as_json:
        click.echo(json.dumps(found))
    else:
        width = max(len(one["about"]) for one in found["findings"])
        for one in found["findings"]:
            if not (quiet and one["severity"] == "info"):
                print_out(f"{one['severity']:8} {one['about']:{width}}  {one['message']}")
        print_out(f"{cube}: {'sound' if found['sound'] else 'a run would be unsound'}")
    return 0 if found["sound"] else CubeError.exit_code
