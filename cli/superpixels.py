"""`unmix superpixels`: a cube of the means of small patches."""

from typing import Any

import click

from . import options


@click.command("superpixels")
@options.cube
@options.value("--size", "Mean side of a patch, in pixels.", default=5, metavar="N")
@options.value(
    "--compactness",
    "A spectral difference of C times the noise weighs as much as the distance of one side; more makes patches "
    "squarer.",
    default=3.0,
    metavar="C",
)
@options.as_json
@options.of_images
def command(as_json: bool, **settings: Any) -> None:
    """Write CUBE with every pixel replaced by the mean of its superpixel, a patch of alike neighbours: STEM_means, float32.

    Unmix these means, which have less noise than pixels, with --noise STEM_means_noise.txt where noise is asked for.
    STEM_superpixels has the numbers of the patches, which SLIC forms of the minimum noise fractions. Two passes over the file.
    Needs scikit-image (pip install 'unmix[superpixels]').
    """
    from unmix import superpixels

    found = superpixels(**settings)
    line = f"{found['superpixels']} superpixels, told apart by {found['fractions']} minimum noise fractions"
    options.show(found, as_json, [line, *found["files"]])
