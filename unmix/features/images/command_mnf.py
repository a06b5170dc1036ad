"""`unmix mnf`: minimum noise fractions of a cube."""

from collections.abc import Iterator
from typing import Any

import click
from unmix_cli import options

from . import commands as images

# Most fractions that are shown beyond the kept ones.
MORE = 5


@images.command(
    "mnf",
    options.value(
        "-n --count", "Fractions to keep.  [default: those that are half signal]", type=click.IntRange(1), metavar="K"
    ),
    options.flag("--inverse", "Write STEM_denoised: the cube without the other fractions."),
)
def command(found: dict[str, Any]) -> Iterator[str]:
    """Write the minimum noise fractions of CUBE, STEM_mnf, or the cube with less noise, STEM_denoised; float32.

    Noise is the part that neighbours in a line do not share; in each fraction it has variance 1. Prints the ratio of
    variance to noise and the correlation of neighbours for the strongest fractions; STEM_mnf.csv (or STEM_denoised.csv)
    has all. STEM_mnf_noise.csv has the noise of each band by what the other bands do not predict, and by neighbours,
    which holds texture too. What neighbours do not share is not always noise: look at what --inverse takes away. Two
    passes over the file.
    """
    yield "component  variance/noise  coherence"
    kept, rows = found["count"], list(zip(found["ratio"], found["coherence"]))
    for k, (ratio, coherence) in enumerate(rows[: kept + MORE]):
        yield f"{k + 1:>9}  {ratio:>14.4g}  {coherence:>9.4f}{'' if k < kept else '  not kept'}"
