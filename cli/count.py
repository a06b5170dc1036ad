"""`unmix count`: estimate the number of endmembers."""

import json
from pathlib import Path
from typing import Any

import click

from . import options
from .main import print_out


@click.command("count")
@click.argument("cube", type=options.Input())
@click.option(
    "--method",
    type=options.one_of(["auto", "plane", "cone", "hysime", "hysime-spatial", "mnf", "stable", "all"]),
    default="auto",
    show_default=True,
    help="plane: the number by hysime, hysime-spatial or mnf in whose dimensions the pixels lie on a plane, as where neither "
    "brightness nor spectra vary; cone: edges of the smallest cone around the directions of pixels; hysime: dimensions with more "
    "signal than noise, by what other bands do not predict; hysime-spatial: by what neighbouring pixels do not share; mnf: "
    "components in which neighbours are alike; stable: up to which number random starts of N-FINDR agree (a second pass); auto: "
    "plane if there is one, else cone, or where neighbours do not tell noise the first of hysime and mnf that agrees with "
    "hysime-spatial; all: a table.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the count of each criterion as JSON.")
@options.budget
@options.reading
@options.logs
def command(
    cube: Path,
    method: str,
    as_json: bool,
    memory: str,
    threads: int | None,
    verbose: bool,
    quiet: bool,
    log_file: str | None,
    **reading: Any,
) -> None:
    """Estimate the number of endmembers of CUBE, in one pass over the file and a sample, and print it on stdout."""
    from unmix.endmembers import count_endmembers
    from unmix.errors import CubeError

    options.set_up_log(verbose, quiet, log_file)
    scene, used, missing = options.open_for_reading(cube, **reading)
    with_stable = method in ("stable", "all")
    counts = count_endmembers(scene, used, missing, options.parse_memory(memory), threads, with_stable)
    by = counts.all
    if as_json:
        click.echo(json.dumps(by))
    elif method == "all":
        for name, count in by.items():
            print_out(f"{name:<16}{'-' if count is None else count}")
    elif by[method] is None:
        why = (
            "its brightness varies, so that no count is that of a plane"
            if method == "plane"
            else f"too few neighbouring pixels for {method}"
        )
        raise CubeError(f"{cube}: {why}; use --method {'cone' if method == 'plane' else 'hysime'}")
    else:
        click.echo(by[method])
