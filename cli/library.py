"""`unmix library`: build, inspect, convert, match, merge, prune and resample spectral libraries."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from unmix.errors import LibraryError, MethodError

from . import options, unmixing
from .main import print_err, print_out

IN = options.Input()
LIBRARY = click.argument("library", type=IN)
OUT = click.argument("out", type=options.Local(dir_okay=False))
SELECT = options.option("select")
COMPLETE = options.flag("--complete", "Leave out spectra with deleted channels, and say how many.")
# How spectra are compared with those of a library.
distance = options.value(
    "--distance",
    "Distance: sam, the spectral angle in degrees, or sid, the spectral information divergence.",
    type=("sam", "sid"),
    default="sam",
)
continuum = options.flag("--continuum", "Divide spectra by their continua: absorptions decide, not slopes.")


@click.group("library")
def command() -> None:
    """Build spectral libraries from a cube, inspect, prune, merge, rename or convert them, or resample them to the
    bands of a cube.

    Formats read: CSV, ENVI (.sli, .lib), MATLAB, text files of the USGS (splib06, splib07) and ECOSTRESS, and folders of these.
    Formats written, as OUT: .csv, or .sli with .hdr.
    """


def load_selected(library: Path, select: str | None) -> list[Any]:
    """Load the selected spectra of a library, as one `Endmembers` for each axis."""
    from unmix.library import load_parts
    from unmix.library import select as choose

    parts = load_parts(library)
    return parts if select is None else choose(parts, select)


def only_part(parts: list[Any], library: Path, complete: bool) -> Any:
    """Return a library's spectra, which must be on one axis; if ``complete``, those with a value at every channel."""
    import numpy as np

    if len(parts) > 1:
        raise LibraryError(
            f"{library}: its spectra are on {len(parts)} different axes; bring them to one with unmix library resample"
        )
    spectra = parts[0]
    count, kept = len(spectra.names), np.flatnonzero(spectra.valid.all(axis=0)).tolist()
    if not complete or len(kept) == count:
        return spectra
    if not kept:
        raise LibraryError(f"{library}: none of its {count} spectra has a value at every channel")
    print_err(f"{library}: {count - len(kept)} of {count} spectra left out (--complete): they have deleted channels")
    return spectra.take(kept)


def written(spectra: Any, out: Path, overwrite: bool, inputs: Any) -> list[str]:
    """Write spectra to a library, which must be none of the inputs, and return the names of its files."""
    from unmix.outputs.library import write_library

    return [str(path) for path in write_library(spectra, out, overwrite, inputs)]


@command.command("info")
@LIBRARY
@SELECT
@options.as_json
def info(library: Path, select: str | None, as_json: bool) -> None:
    """Show spectra, classes, wavelengths, deleted channels and duplicates of LIBRARY."""
    from .info import rows_of

    def lines() -> Iterator[str]:
        for i, of_part in enumerate(facts):
            yield from [""] * (i > 0)
            # All names are shown where a pattern selects them.
            names = {"names": f"{', '.join(of_part['names'])} ({len(of_part['names'])})"} if select is not None else {}
            classes = {"classes": ", ".join(f"{kind} ({count})" for kind, count in of_part["classes"].items())}
            yield from rows_of(of_part | classes | names)

    facts = [describe(part) for part in load_selected(library, select)]
    options.show(facts, as_json, lines())


def describe(library: Any) -> dict[str, Any]:
    """Return the facts about spectra on one axis, ready for JSON."""
    import numpy as np

    from unmix.library import duplicates

    waves, valid = library.wavelengths, library.valid
    classes = {kind: library.classes.count(kind) for kind in dict.fromkeys(library.classes or ())}
    values = np.where(valid, library.matrix, np.nan)
    return {
        "source": library.source,
        "spectra": len(library.names),
        "channels": len(library.matrix),
        "names": list(library.names),
        "classes": classes,
        "wavelengths_nm": None if waves is None else waves.tolist(),
        "wavelengths_ascend": None if waves is None else bool(np.all(np.diff(waves) > 0)),
        "fwhm_nm": None if library.fwhm is None else library.fwhm.tolist(),
        "smallest": float(np.nanmin(values)) if valid.any() else None,
        "largest": float(np.nanmax(values)) if valid.any() else None,
        "deleted_values": int((~valid).sum()),
        "spectra_with_deleted_values": int((~valid).any(axis=0).sum()),
        "the_same": [f"{a} = {b}" for a, b in duplicates(library)],
    }


@command.command("convert")
@LIBRARY
@OUT
@SELECT
@COMPLETE
@options.overwrite
def convert(library: Path, out: Path, select: str | None, complete: bool, overwrite: bool) -> None:
    """Convert LIBRARY to OUT (.csv, or .sli with .hdr); values and channels do not change."""
    from unmix.outputs.names import inputs_of

    spectra = only_part(load_selected(library, select), library, complete)
    for path in written(spectra, out, overwrite, inputs_of(library=library)):
        print_out(path)


@command.command("build")
@options.cube
@OUT
@options.value("--pixels", "CSV table with the columns line and sample, from 0, and class.", type=IN, metavar="FILE")
@options.value(
    "--raster",
    "Raster of the size of the cube, or of the part to read, with class numbers; 0 is none.",
    type=IN,
    metavar="FILE",
)
@options.value(
    "--polygons",
    "Polygons or points: GeoJSON, a shapefile, GeoPackage or FlatGeobuf; pixels count whose centres are "
    "inside, or that hold a point. Needs pip install 'unmix[geo]'.",
    type=IN,
    metavar="FILE[:LAYER]",
)
@options.value(
    "--column",
    "Column of --pixels, or property of --polygons, with the class.",
    default="class",
    metavar="NAME",
)
@options.flag("--mean", "Write the mean of each class.")
@options.flag(
    "--deviation", "Write the standard deviation of each class; with --mean to a second library, OUT_deviation."
)
@options.value(
    "--most", "At most N pixels of each class, evenly spread.  [default: all]", type=click.IntRange(1), metavar="N"
)
@options.overwrite
@options.reading
@options.logs
def build(
    cube: Path,
    out: Path,
    pixels: Path | None,
    raster: Path | None,
    polygons: Path | None,
    column: str,
    mean: bool,
    deviation: bool,
    most: int | None,
    overwrite: bool,
    **reading: Any,
) -> None:
    """Build a library OUT (.csv, or .sli with .hdr) with classes from pixels of CUBE.

    Pixels without a value in every band in use are left out. Values are scaled as by run.
    """
    from unmix.commands.regions import build_library
    from unmix.outputs.names import inputs_of

    sources = {"pixels": pixels, "raster": raster, "polygons": polygons}
    given = {kind: file for kind, file in sources.items() if file is not None}
    if len(given) != 1:
        raise click.UsageError("name the pixels by one of --pixels, --raster and --polygons")
    scene = options.open_for_reading(cube, **reading)
    ((kind, file),) = given.items()
    built, counts = build_library(scene, kind, file, column=column, mean=mean, most=most, deviation=deviation)
    inputs, places = inputs_of(scene.cube, **given), [out, out.with_stem(out.stem + "_deviation")]
    files = [name for one, place in zip(built, places) for name in written(one, place, overwrite, inputs)]
    for line in [*files, "pixels of each class: " + ", ".join(f"{name}: {count}" for name, count in counts.items())]:
        print_out(line)


@command.command("prune")
@LIBRARY
@OUT
@options.value(
    "--rule",
    "ear, masa: least mean RMSE or angle to its class; ies: classifies the library best.",
    type=("ear", "masa", "ies"),
    required=True,
)
@options.value(
    "-n --count",
    "Spectra to keep of each class.  [default: 1; not for ies]",
    type=click.IntRange(1),
    metavar="N",
)
@options.value("--min-fraction", "Least fraction in a model of another spectrum.", default=-0.05, metavar="F")
@options.value("--max-fraction", "Largest fraction in a model of another spectrum.", default=1.05, metavar="F")
@options.value(
    "--max-rmse",
    "Largest RMSE of a model that counts, for reflectance from 0 to 1.",
    default=0.025,
    metavar="RMSE",
)
@unmixing.classes
@SELECT
@COMPLETE
@options.across_gaps
@options.as_json
@options.overwrite
@options.logs
def prune(
    library: Path,
    out: Path,
    rule: str,
    count: int | None,
    min_fraction: float,
    max_fraction: float,
    max_rmse: float,
    classes: str | None,
    library_scale: float | None,
    select: str | None,
    complete: bool,
    across_gaps: bool,
    as_json: bool,
    overwrite: bool,
) -> None:
    """Choose the spectra of LIBRARY that represent their classes best, and write them to OUT (.csv, or .sli with .hdr).

    Every spectrum models every other one, with shade; of equal spectra the first is chosen.
    """
    from unmix.library import load_parts, prepared
    from unmix.library.classes import table_of_classes
    from unmix.library.prune import prune
    from unmix.outputs.names import inputs_of

    parts = prepared(load_parts(library), library, classes, library_scale, select, across_gaps)
    spectra = only_part(parts, library, complete)
    inputs = inputs_of(library=library, classes=table_of_classes(classes)[0] or None if classes else None)
    chosen, facts = prune(spectra, rule, count, min_fraction, max_fraction, max_rmse)
    files, lines = written(chosen, out, overwrite, inputs), []
    for kind in dict.fromkeys(fact["class"] for fact in facts):
        members = [fact for fact in facts if fact["class"] == kind]
        kept = [str(fact["name"]) for fact in members if fact["kept"]]
        lines.append(f"{kind}: {len(kept)} of {len(members)}: {', '.join(kept)}")
    options.show(facts, as_json, lines + files)


@command.command("match")
@click.argument("spectra", type=IN)
@LIBRARY
@distance
@continuum
@options.value(
    "--max-distance",
    "Leave out matches that are farther; a spectrum without any keeps its name.",
    type=float,
    metavar="D",
)
@options.value("-n --count", "Matches to show.", type=click.IntRange(min=1), default=5, metavar="N")
@options.value(
    "-o --out",
    "Also write SPECTRA, named after their matches (A or B if ambiguous): .csv, or .sli with .hdr.",
    type=options.Local(dir_okay=False),
    metavar="OUT",
)
@SELECT
@options.value(
    "--only-nm", "Compare only channels of SPECTRA in these ranges, in nm, such as 2000-2450.", metavar="A-B,..."
)
@options.as_json
@options.overwrite
def match(
    spectra: Path,
    library: Path,
    distance: str,
    continuum: bool,
    max_distance: float | None,
    count: int,
    out: Path | None,
    select: str | None,
    only_nm: str | None,
    as_json: bool,
    overwrite: bool,
) -> None:
    """Find the spectra of LIBRARY nearest to each of SPECTRA, such as the endmembers of a run.

    LIBRARY is brought to the channels of SPECTRA. A match is ambiguous (~) if the next one is at most a tenth farther
    away.
    """
    from dataclasses import asdict, replace
    from math import degrees, radians

    from unmix.library import load_parts
    from unmix.library import match as matches_of
    from unmix.library.matching import is_ambiguous, names_of, within
    from unmix.library.spectra import SHADE
    from unmix.outputs.names import inputs_of

    def lines() -> Iterator[str]:
        for name, matches in zip(named.names, found):
            mark = " ~" if is_ambiguous(matches) else ""
            yield f"{name}{mark}" if matches else f"{name}: none within {max_distance:g}"
            for one in matches[:count]:
                size = f"{degrees(one.distance):7.3f}°" if distance == "sam" else f"{one.distance:8.3g}"
                yield f"  {size}  {one.name}{f' ({one.kind})' if one.kind else ''}"

    named, *others = load_parts(spectra)
    # The shade of a run is zero in all bands, and matches no spectrum.
    if named.names[-1:] == (SHADE,) and not named.matrix[:, -1].any():
        named = named.take(range(len(named.names) - 1))
    if others or not named.valid.all():
        raise LibraryError(f"{spectra}: its spectra must be on one axis, and have no deleted values")
    compared = named if only_nm is None else within_windows(named, only_nm)
    found = matches_of(compared, load_selected(library, select), distance, continuum)
    if max_distance is not None:
        found = within(found, radians(max_distance) if distance == "sam" else max_distance)
    unit = degrees if distance == "sam" else float
    rows = {
        name: [asdict(one) | {"distance": unit(one.distance)} for one in matches[:count]]
        for name, matches in zip(named.names, found)
    }
    options.show(rows, as_json, lines())
    if out is not None:
        named = replace(named, names=names_of(found, named.names))
        for path in written(named, out, overwrite, inputs_of(library=spectra) + inputs_of(library=library)):
            if not as_json:
                print_out(path)


def within_windows(library: Any, text: str) -> Any:
    """Return a library with the channels in ranges ``A-B,…`` of nm alone."""
    import numpy as np

    from unmix.library.classes import of_channels
    from unmix.scene.bands import windows_of

    waves = library.wavelengths
    if waves is None:
        raise MethodError(f"`only_nm`: {library.source} has no wavelengths")
    keep = np.any([(waves >= low) & (waves <= high) for low, high in windows_of("`only_nm`", text)], axis=0)
    if keep.sum() < 2:
        raise MethodError(f"`only_nm` {text}: {library.source} has {keep.sum()} channels in these ranges; it needs two")
    return of_channels(library, keep)


@command.command("resample")
@LIBRARY
@options.cube
@OUT
@SELECT
@options.option("complete")
@options.across_gaps
@options.overwrite
@options.reading
@options.logs
def resample(
    library: Path,
    cube: Path,
    out: Path,
    select: str | None,
    complete: bool,
    across_gaps: bool,
    overwrite: bool,
    **reading: Any,
) -> None:
    """Resample LIBRARY to the bands in use of CUBE, and write OUT (.csv, or .sli with .hdr).

    unmix run does the same with -e LIBRARY. Band responses are Gaussians with the cube's FWHM (or band spacing),
    reduced by the library's own FWHM. Channels within a tenth of the FWHM of a band are used as they are; a band
    outside the library's range, or in a gap of its channels, is an error.
    """
    from unmix.library import load_for
    from unmix.outputs.names import inputs_of

    if reading["scale"] is not None and reading["bands"] != "auto":
        raise MethodError(f"`scale` is of {cube}, whose values are not used: divide those of {library} in its table")
    scene = options.open_for_reading(cube, **reading)
    resampled = load_for(library, scene, select=select, complete=complete, across_gaps=across_gaps)
    for path in written(resampled, out, overwrite, inputs_of(scene.cube, library=library)):
        print_out(path)


@command.command("merge")
@click.argument("libraries", nargs=-1, required=True, type=IN, metavar="LIBRARY...")
@OUT
@options.overwrite
def merge(libraries: tuple[Path, ...], out: Path, overwrite: bool) -> None:
    """Put the spectra of libraries with the same channels together in OUT (.csv, or .sli with .hdr)."""
    from unmix.library import load_parts
    from unmix.library.classes import merged_libraries
    from unmix.outputs.names import inputs_of

    inputs = [pair for path in libraries for pair in inputs_of(library=path)]
    parts = [part for path in libraries for part in load_parts(path)]
    for name in written(merged_libraries(parts), out, overwrite, inputs):
        print_out(name)
