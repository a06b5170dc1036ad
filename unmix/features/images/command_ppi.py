"""`unmix ppi`: the pixel purity index."""

from collections.abc import Iterator
from typing import Any

import click
from unmix_cli import options

from . import commands as images

# Most pixels that are shown; the table has more.
MOST_SHOWN = 20


@images.command(
    "ppi",
    options.value("--skewers", "Random directions.", type=click.IntRange(1), default=10_000, metavar="N"),
    options.option("seed", help="Seed of the directions."),
)
def command(found: dict[str, Any]) -> Iterator[str]:
    """Write how often each pixel of CUBE is an extreme along a random direction, STEM_ppi, and where, STEM_ppi.csv.

    Counts are exact. One pass over the file for every 256 directions; for whitened spectra, run it on STEM_mnf.
    """
    pixels = found["pixels"]
    for line, sample, count in pixels[:MOST_SHOWN]:
        yield f"line {line}, sample {sample}: {count}"
    yield f"{len(pixels)} pixels are an extreme of {found['skewers']} directions"
