"""`unmix compare`: compare two runs, or runs and a truth."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from unmix.errors import MethodError
from unmix.settings.maps import MAPS

from . import options

# Names of maps without a partner that are printed.
MOST_NAMED = 8


@click.command("compare")
@click.argument("maps", metavar="A B | A...", nargs=-1, required=True, type=options.Local())
@options.value(
    "--truth",
    "Compare any number of maps with this one, and print a row for each: RMSE, the angle of endmembers (not of pixels), SRE, seconds.",
    type=options.Local(),
    metavar="B",
)
@options.value(
    "--map kind",
    "Maps to compare.  [default: that of the file named, else abundance, or fraction if a run has none]",
    type=tuple(name for name, one in MAPS.items() if one.is_share),
)
@options.value("--by", "Add up the endmembers of each class first; classes are matched by name.", type=("class",))
@options.value(
    "--mask",
    "A raster of the size of A or B, or one band of it: only pixels that are not 0 there are compared.",
    metavar="FILE[:BAND]",
)
@options.value(
    "--nodata",
    "The value that stands for no data in a raster that no run wrote, such as -99.  [default: its header's]",
    type=float,
    metavar="V",
)
@options.value(
    "--scale",
    "The divisor of the values of such rasters, or those of A and of B: 100 for per cent, 100,1 for A alone.",
    type=str,
    default="1",
    metavar="F[,F]",
)
@options.value("--offset", "What is added to these values after that.", type=float, default=0.0, metavar="V")
@options.value(
    "--threshold",
    "Also count the pixels, and hectares, of which A and B differ by more than X.",
    type=float,
    metavar="X",
)
@options.value(
    "--legend",
    "Names of classes, whose numbers B (or A) holds: rows number,name. An ENVI Classification has its own. 0 is "
    "no class, and of larger pixels only those count that are labelled wholly.",
    type=options.Local(),
    metavar="FILE",
)
@options.option(
    "dataset",
    help="The map in an HDF5, Zarr or MATLAB file that no run wrote (B, else A), and the order of its axes.",
)
@options.value(
    "-o --out",
    "Also write a page with the maps of both and their differences, .html, or the differences as a map: .tif, .hdr.",
    type=options.Local(),
    metavar="FILE",
)
@options.overwrite_page
@options.as_json
def command(
    maps: tuple[Path, ...],
    truth: Path | None,
    kind: str | None,
    threshold: float | None,
    out: Path | None,
    overwrite: bool,
    scale: str,
    as_json: bool,
    **given: Any,
) -> int:
    """Compare the abundances of two runs, or of a run and a truth: RMSE, R² and largest difference of each endmember,
    and where.

    A and B are stems of runs' outputs (maps/cube), one of these, rasters of abundances (x_truth_abundance.hdr, with the
    spectra in x_truth_endmembers.csv), or arrays (mine.npy, mine.h5:/NAME, mine.mat); the pixels of tables, (pixels, p)
    or (p, pixels), go line by line in .npy, column by column in .mat. Endmembers are matched by their spectral angles,
    without spectra by names that are not just numbered, or else by their values;
    differences are A - B, of the pixels that both have. R² is one less the squared errors over the variance of B; slope
    is by how much A grows with B. The agreement with a truth is good from an SRE (the energy of B over the errors'
    energy) of 10 dB on, fair from 3, and less where an R² is below 0.5 or a map of B has no partner. If A has ranges
    (--ranges), it says how many of B's values are inside; if A or B has deviations (--uncertainty), how many pixels
    differ by at most one (68 % of noise alone) and by more than 1.96 (5 %): a map of the difference has its z, too, and
    --threshold counts these alone. If pixels of A and B are of other sizes, the smaller ones are averaged by area onto
    the larger; of these at least half must have values, and be kept by --mask. Exit code 0 says nothing of differences:
    a script tests rmse, only_a, only_b and pixels of --json.
    """
    from unmix import compare

    try:
        divisors = tuple(float(one) for one in scale.split(","))
    except ValueError:
        divisors = ()
    if not 1 <= len(divisors) <= 2:
        raise MethodError(f"`scale` {scale}: has to be a number, or two, of A and of B: 100,1")
    given["scale"] = divisors if len(divisors) == 2 else divisors[0]
    if truth is not None:
        if out is not None or threshold is not None:
            raise MethodError("`truth` gives a table; `out` and `threshold` are for two maps")
        table = [
            {"map": str(one), **compare(one, truth, kind, **given), "seconds": seconds_of_map(one)} for one in maps
        ]
        options.show({"truth": str(truth), "maps": table}, as_json, options.aligned(list(rows_of_maps(table)), 1))
        return 0
    if len(maps) != 2:
        raise MethodError(f"{len(maps)} maps: two are compared, or any number with `truth`")
    found = compare(*maps, kind, out=out, overwrite=overwrite, threshold=threshold, **given)
    options.show(
        found, as_json, [*lines_of(found), *changes_in(found, threshold), *([] if out is None else [str(out)])]
    )
    return 0


def seconds_of_map(path: Path) -> float | None:
    """Return how long the run of a map took; None for a map of no run."""
    from unmix.commands.finished.array_maps import is_array
    from unmix.runs.files.finished import FinishedRun
    from unmix.runs.record.fit import seconds_of

    run = None if is_array(path) else FinishedRun.of_source(path)
    return None if run is None else seconds_of(run.report)


def rows_of_maps(table: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield the heading and a row for each map that was compared with a truth."""
    yield "map", "pixels", "RMSE", "angle", "SRE", "seconds", "pairs", "matched by"
    for row in table:
        angles = [pair["angle"] for pair in row["pairs"] if pair["angle"] is not None]
        numbers = (
            (row["rmse"], "{:.4f}"),
            (sum(angles) / len(angles) if angles else None, "{:.2f}°"),
            (row["sre"] if row["rmse"] else math.inf, "{:.1f} dB"),
            (row["seconds"], "{:.1f}"),
        )
        words = ("–" if value is None else form.format(value) for value, form in numbers)
        pairs, most = len(row["pairs"]), len(row["pairs"]) + max(len(row["only_a"]), len(row["only_b"]))
        of = str(pairs) if pairs == most else f"{pairs} of {most}"
        yield row["map"], str(row["pixels"]["compared"]), *words, of, row["matched_by"]


def changes_in(found: dict[str, Any], threshold: float | None) -> Iterator[str]:
    """Yield of each pair how much of the ground differs by more than a threshold."""
    for pair in found["pairs"] if threshold is not None else ():
        of_noise = "" if pair.get("within") is None else ", and by more than noise (1.96 sigma)"
        parts = [
            f"{pair[word]} pixels{'' if (area := pair[f'{word}_hectares']) is None else f' ({area:.4g} ha)'} {how}"
            for word, how in (("below", "lower"), ("above", "higher"))
        ]
        net = (
            ""
            if pair["net_hectares"] is None
            else f"; {pair['net_hectares']:+.4g} ha of it in all, as shares of the ground"
        )
        yield f"{pair['a']}: in A {', '.join(parts)} than in B by more than {threshold:g}{of_noise}{net}"


def lines_of(found: dict[str, Any]) -> Iterator[str]:
    """Yield a comparison as lines for people."""
    from unmix.library import OF_LIGHT
    from unmix.pages.compare_page import agreement, is_change, rows_of

    pixels = found["pixels"]
    rest = [f", {pixels[key]} only in {key[-1].upper()}" for key in ("only_a", "only_b") if pixels[key]]
    averaged = (
        f", {found['averaged'].upper()} averaged by area onto the pixels of the other" if found["averaged"] else ""
    )
    yield f"{pixels['compared']} pixels compared" + "".join(rest) + averaged
    titles, rows = rows_of(found)
    yield from options.aligned([tuple(titles), *rows], 2)
    for key, other in (("only_a", "B"), ("only_b", "A")):
        if found[key]:
            more = len(found[key]) - MOST_NAMED
            yield f"without a partner in {other}: {', '.join(found[key][:MOST_NAMED])}" + f" and {more} more" * (
                more > 0
            )
    certified = [f"{name} {count}" for name, count in zip("AB", found["certified"]) if count is not None]
    if certified:
        yield f"pixels certified: {', '.join(certified)}"
    is_told = found["sre"] is not None and not is_change(found)
    sre = f", SRE {found['sre']:.1f} dB, the agreement is {agreement(found)}" if is_told else ""
    each = [pair["rmse"] for pair in found["pairs"] if pair["a"] not in OF_LIGHT] or [found["rmse"]]
    what = "change from B to A: " if is_change(found) else ""
    rmse = f"RMSE {found['rmse']:.3g} of all pairs together, {sum(each) / len(each):.3g} in the mean of the pairs"
    yield f"{what}{rmse}{sre}; matched by {found['matched_by']}"
