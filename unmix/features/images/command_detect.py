"""`unmix detect`: matched filter and adaptive cosine estimator."""

from collections.abc import Iterator
from typing import Any

from unmix_cli import options

from . import commands as images


@images.command(
    "detect",
    options.the_library,
    options.value(
        "--detector", "mf: the matched filter, 1 for a pixel of the target alone; ace: the adaptive cosine estimator, from -1 to 1.",
        type=("mf", "ace"), default="mf",
    ),
    options.declared("select", "library_scale", "across_gaps"),
)  # fmt: skip
def command(found: dict[str, Any]) -> Iterator[str]:
    """Write how much of each spectrum of a library a pixel of CUBE shows beyond the background, which is the whole scene: STEM_detect.

    A band for each target; STEM_detect.csv has the largest score of each, and where. Two passes over the file.
    """
    for one in found["targets"]:
        yield f"{one['largest']:>9.4f}  line {one['line']}, sample {one['sample']}  {one['name']}"
