"""`unmix detect`: matched filter and adaptive cosine estimator."""

from typing import Any

import click

from . import options


@click.command("detect")
@options.cube
@options.the_library
@options.value(
    "--detector", "mf: the matched filter, 1 for a pixel of the target alone; ace: the adaptive cosine estimator, from -1 to 1.",
    type=("mf", "ace"), default="mf",
)  # fmt: skip
@options.declared("select", "library_scale", "across_gaps")
@options.as_json
@options.of_images
def command(as_json: bool, **settings: Any) -> None:
    """Write how much of each spectrum of a library a pixel of CUBE shows beyond the background, which is the whole scene: STEM_detect.

    A band for each target; STEM_detect.csv has the largest score of each, and where. Two passes over the file.
    """
    from unmix import detect

    found = detect(**settings)
    lines = [
        f"{one['largest']:>9.4f}  line {one['line']}, sample {one['sample']}  {one['name']}" for one in found["targets"]
    ]
    options.show(found, as_json, [*lines, *found["files"]])
