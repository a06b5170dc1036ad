"""`unmix superpixels`: a cube of the means of small patches."""

from collections.abc import Iterator
from typing import Any

from unmix_cli import options

from . import commands as images


@images.command(
    "superpixels",
    options.value("--size", "Mean side of a patch, in pixels.", default=5, metavar="N"),
    options.value(
        "--compactness",
        "A spectral difference of C times the noise weighs as much as the distance of one side; more makes patches squarer.",
        default=3.0,
        metavar="C",
    ),
)
def command(found: dict[str, Any]) -> Iterator[str]:
    """Write CUBE with every pixel replaced by the mean of its superpixel, a patch of alike neighbours: STEM_means, float32.

    Unmix these means, which have less noise than pixels, with --noise STEM_means_noise.txt where noise is asked for.
    STEM_superpixels has the numbers of the patches, which SLIC forms of the minimum noise fractions. Two passes over the file.
    Needs scikit-image (pip install 'unmix[superpixels]').
    """
    yield f"{found['superpixels']} superpixels, told apart by {found['fractions']} minimum noise fractions"
