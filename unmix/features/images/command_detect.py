"""`unmix detect`: matched filter and adaptive cosine estimator."""

from collections.abc import Iterator
from typing import Any

from unmix_cli import options

from . import commands as images

# Most places that are shown; the table has all.
MOST_SHOWN = 20


@images.command(
    "detect",
    options.the_library,
    options.value(
        "--detector",
        "mf: the matched filter, 1 for a pixel of the target alone; ace: the adaptive cosine estimator, from -1 to 1.",
        type=("mf", "ace"),
        default="mf",
    ),
    options.declared("select", "library_scale", "across_gaps"),
    options.value(
        "--threshold",
        "The score above which pixels are of a place.  [default: 6 deviations of the background]",
        type=float,
        metavar="X",
    ),
)
def command(found: dict[str, Any]) -> Iterator[str]:
    """Write how much of each spectrum of a library a pixel of CUBE shows beyond the background, which is the whole
    scene: STEM_detect. A target in more than a few per cent of it hides itself.

    A band for each target; STEM_detect.csv has the largest score of each, and where; STEM_detect_places.csv the places
    of each, pixels above a threshold that touch, the best first, with coordinates where the scene has a map. Two passes
    over the file.
    """
    for one, limit in zip(found["targets"], found["thresholds"]):
        count = sum(place["name"] == one["name"] for place in found["places"])
        yield (
            f"{one['largest']:>9.4f}  line {one['line']}, sample {one['sample']}  {one['name']}: "
            f"{count} place{'s' * (count != 1)} above {limit:.3g}"
        )
    for place in found["places"][:MOST_SHOWN] if len(found["places"]) > len(found["targets"]) else ():
        where = "" if place["x"] is None else f"  {place['x']:.2f} {place['y']:.2f}"
        at = f"line {place['line']}, sample {place['sample']}{where}"
        yield f"{place['score']:>9.4f}  {at}  {place['pixels']} pixels  {place['name']}"
