"""`unmix ppi`: the pixel purity index."""

from typing import Any

import click

from . import options


@click.command("ppi")
@options.cube
@options.value("--skewers", "Random directions.", type=click.IntRange(1), default=10_000, metavar="N")
@options.option("seed", help="Seed of the directions.")
@options.as_json
@options.of_images
def command(as_json: bool, **settings: Any) -> None:
    """Write how often each pixel of CUBE is an extreme along a random direction, STEM_ppi, and where, STEM_ppi.csv.

    Counts are exact. One pass over the file for every 256 directions; for whitened spectra, run it on STEM_mnf.
    """
    from unmix import ppi

    found = ppi(**settings)
    pixels = found["pixels"]
    lines = [f"line {line}, sample {sample}: {count}" for line, sample, count in pixels[:20]]
    total = f"{len(pixels)} pixels are an extreme of {found['skewers']} directions"
    options.show(found, as_json, [*lines, total, *found["files"]])
