"""`unmix count`: estimate the number of endmembers."""

import logging
from pathlib import Path
from typing import Any

import click

from . import options


@click.command("count")
@options.cube
@options.value(
    "--criterion",
    "hysime, mnf: dimensions with more signal than noise, hysime-spatial: by differences of neighbours; cone: edges "
    "of the smallest cone around the pixels; plane: dimensions in which the pixels lie on a plane, if brightness "
    "does not vary; held-out: components that predict parts of a table; auto: plane, else by hysime-spatial and cone; all: a table.",
    type=("auto", "plane", "cone", "hysime", "hysime-spatial", "mnf", "held-out", "all"),
    default="auto",
)
@options.as_json
@options.budget
@options.reading
@options.logs
def command(cube: Path, criterion: str, as_json: bool, memory: str, threads: int | None, **reading: Any) -> None:
    """Estimate the number of endmembers of CUBE, in one pass over the file and a sample."""
    from unmix.blocks import parse_size
    from unmix.endmembers import count_endmembers
    from unmix.errors import CubeError

    scene = options.open_for_reading(cube, **reading)
    counts = count_endmembers(scene, parse_size(memory), threads)
    found = counts.all
    if not as_json and criterion != "all" and found.get(criterion) is None:
        why, other = f"too few neighbouring pixels for {criterion}", "hysime"
        if criterion == "plane":
            why, other = "its brightness varies, so that no count is that of a plane", "cone"
        if criterion == "held-out":
            why, other = "neighbours are alike, so that it is an image, not a table", "auto"
        raise CubeError(f"{cube}: {why}; use --criterion {other}")
    low, high = counts.interval
    if criterion == "auto" and low < high:
        others = ", ".join(f"{name} {n}" for name, n in found.items() if n is not None and name != "auto")
        logging.getLogger("unmix").info(f"{cube}: {low} to {high} are possible; {others}")
    table = [f"{name:<16}{'-' if count is None else count}" for name, count in found.items()]
    table.append(f"{'possible':<16}{'-'.join(map(str, counts.interval))}")
    options.show(counts.to_dict(), as_json, table if criterion == "all" else [str(found[criterion])])
