"""`unmix count`: estimate the number of endmembers."""

from pathlib import Path
from typing import Any

import click

from . import options


@click.command("count")
@options.cube
@options.value(
    "--method",
    "plane: the number of hysime, hysime-spatial or mnf in whose dimensions the pixels lie on a plane, as they do where neither "
    "brightness nor spectra vary; cone: edges of the smallest cone around the directions of pixels; hysime: dimensions with more "
    "signal than noise, where noise is the part of a band that others do not predict; hysime-spatial: the same, where noise is "
    "the part that neighbouring pixels do not share; mnf: components in which neighbours are alike; stable: the largest number for "
    "which random starts of N-FINDR agree (a second pass); auto: plane if the pixels lie on one, else cone, or where neighbours do "
    "not show the noise the first of hysime and mnf that agrees with hysime-spatial; all: a table.",
    type=("auto", "plane", "cone", "hysime", "hysime-spatial", "mnf", "stable", "all"),
    default="auto",
)
@options.flag("--json as_json", "Print the count of each criterion as JSON.")
@options.budget
@options.reading
@options.logs
def command(cube: Path, method: str, as_json: bool, memory: str, threads: int | None, **reading: Any) -> None:
    """Estimate the number of endmembers of CUBE, in one pass over the file and a sample, and print it on stdout."""
    from unmix.blocks import parse_size
    from unmix.endmembers import count_endmembers
    from unmix.errors import CubeError

    scene = options.open_for_reading(cube, **reading)
    by = count_endmembers(scene, parse_size(memory), threads, method in ("stable", "all")).all
    if not as_json and method != "all" and by[method] is None:
        why, other = f"too few neighbouring pixels for {method}", "hysime"
        if method == "plane":
            why, other = "its brightness varies, so that no count is that of a plane", "cone"
        raise CubeError(f"{cube}: {why}; use --method {other}")
    table = [f"{name:<16}{'-' if count is None else count}" for name, count in by.items()]
    options.show(by, as_json, table if method == "all" else [str(by[method])])
