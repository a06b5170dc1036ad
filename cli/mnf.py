"""`unmix mnf`: minimum noise fractions of a cube."""

from typing import Any

import click

from . import options

# Most fractions that are shown beyond the kept ones.
MORE = 5


@click.command("mnf")
@options.cube
@options.value(
    "-n --count", "Fractions to keep.  [default: those that are half signal]", type=click.IntRange(1), metavar="K"
)
@options.flag("--inverse", "Write STEM_denoised: the cube without the other fractions.")
@options.as_json
@options.of_images
def command(as_json: bool, **settings: Any) -> None:
    """Write the minimum noise fractions of CUBE, STEM_mnf, or the cube with less noise, STEM_denoised; float32.

    Noise is the part that neighbours in a line do not share; in each fraction it has variance 1. Prints the ratio of variance to
    noise and the correlation of neighbours for the strongest fractions; STEM_mnf.csv (or STEM_denoised.csv) has all. Two passes
    over the file.
    """
    from unmix import mnf

    found = mnf(**settings)
    kept, rows = found["count"], list(zip(found["ratio"], found["coherence"]))
    lines = [
        f"{k + 1:>9}  {ratio:>14.4g}  {coherence:>9.4f}{'' if k < kept else '  not kept'}"
        for k, (ratio, coherence) in enumerate(rows[: kept + MORE])
    ]
    options.show(found, as_json, ["component  variance/noise  coherence", *lines, *found["files"]])
