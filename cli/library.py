"""`unmix library`: build, inspect, convert, prune and resample spectral libraries."""

import json
from pathlib import Path
from typing import Any

import click

from . import options, unmixing
from .main import print_err, print_out

LIBRARY = click.argument("library", type=options.Input())
SELECT = options.option("select")
COMPLETE = click.option("--complete", is_flag=True, help="Leave out spectra with deleted channels, and say how many.")
OVERWRITE = click.option("--overwrite", is_flag=True, help="Replace files that exist, if unmix wrote them.")


@click.group("library")
def command() -> None:
    """Build spectral libraries from a cube, inspect, prune or convert them, or resample them to the bands of a cube.

    Formats read: CSV, ENVI (.sli, .lib), MATLAB, text files of the USGS (splib06) and ECOSTRESS, and folders of such text files.
    """


def load_selected(library: Path, select: str | None) -> list[Any]:
    """Load the selected spectra of a library, as one `Endmembers` for each axis."""
    from unmix.library import load_parts
    from unmix.library import select as choose

    parts = load_parts(library)
    return parts if select is None else choose(parts, select)


def without_deleted(spectra: Any, library: Path) -> Any:
    """Return the spectra of a library that have a value at every channel, and print how many are left out."""
    import numpy as np

    from unmix.errors import LibraryError

    kept = np.flatnonzero(spectra.valid.all(axis=0)).tolist()
    count = len(spectra.names)
    if not kept:
        raise LibraryError(f"{library}: none of its {count} spectra has a value at every channel")
    if len(kept) < count:
        print_err(
            f"{library}: {count - len(kept)} of {count} spectra left out (--complete): they have deleted channels"
        )
    return spectra.take(kept)


@command.command("info")
@LIBRARY
@SELECT
@click.option("--json", "as_json", is_flag=True, help="Print the facts as JSON.")
def info(library: Path, select: str | None, as_json: bool) -> None:
    """Show the spectra, classes, wavelengths and deleted channels of LIBRARY, and which spectra are the same."""
    facts = [describe(part) for part in load_selected(library, select)]
    if as_json:
        click.echo(json.dumps(facts))
        return
    for i, library_facts in enumerate(facts):
        if i:
            click.echo()
        width = max(len(key) for key in library_facts)
        for key, value in library_facts.items():
            if value is not None and value != [] and value != {}:
                whole = select is not None and key == "names"  # show all names, to see what a pattern selects
                print_out(f"{key.replace('_', ' '):{width}}  {format_fact(value, whole)}")


def format_fact(value: Any, whole: bool) -> str:
    """Return a fact as text on one line; long lists are shortened to their ends unless ``whole``."""
    from .info import format_value

    if isinstance(value, dict):
        return ", ".join(f"{key} ({count})" for key, count in value.items())
    return f"{', '.join(value)} ({len(value)})" if whole else format_value(value)


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
        "wavelengths_nm": None if waves is None else [float(wave) for wave in waves],
        "wavelengths_ascend": None if waves is None else bool(np.all(np.diff(waves) > 0)),
        "fwhm_nm": None if library.fwhm is None else [float(width) for width in library.fwhm],
        "smallest": float(np.nanmin(values)) if valid.any() else None,
        "largest": float(np.nanmax(values)) if valid.any() else None,
        "deleted_values": int((~valid).sum()),
        "spectra_with_deleted_values": int((~valid).any(axis=0).sum()),
        "the_same": [f"{a} = {b}" for a, b in duplicates(library)],
    }


@command.command("convert")
@LIBRARY
@click.argument("out", type=options.Local(dir_okay=False))
@SELECT
@COMPLETE
@OVERWRITE
def convert(library: Path, out: Path, select: str | None, complete: bool, overwrite: bool) -> None:
    """Convert LIBRARY to OUT: CSV (.csv), or ENVI (.sli with .hdr); values and channels do not change."""
    from unmix.errors import LibraryError
    from unmix.outputs.library import write_library
    from unmix.outputs.names import inputs_of

    parts = load_selected(library, select)
    if len(parts) > 1:
        raise LibraryError(
            f"{library}: its spectra are on {len(parts)} different axes; bring them to one with unmix library resample"
        )
    kept = without_deleted(parts[0], library) if complete else parts[0]
    for path in write_library(kept, out, overwrite, inputs_of(library=library)):
        print_out(str(path))


@command.command("build")
@click.argument("cube", type=options.Input())
@click.argument("out", type=options.Local(dir_okay=False))
@click.option(
    "--pixels",
    type=options.Input(),
    metavar="FILE",
    help="A CSV table with the columns line and sample, from 0, and class.",
)
@click.option(
    "--raster",
    type=options.Input(),
    metavar="FILE",
    help="A raster of the size of the cube, or of the part to read, with the number of each pixel's class; 0 is none.",
)
@click.option(
    "--polygons",
    type=options.Input(),
    metavar="FILE",
    help="Polygons in a GeoJSON file; pixels count whose centres are inside. Needs rasterio (pip install 'unmix[geo]').",
)
@click.option(
    "--column",
    default="class",
    metavar="NAME",
    show_default=True,
    help="The column of --pixels, or the property of --polygons, with the class.",
)
@click.option("--mean", is_flag=True, help="Write the mean of each class in place of its pixels.")
@click.option(
    "--most", type=click.IntRange(1), metavar="N", help="At most N pixels of each class, evenly spread.  [default: all]"
)
@OVERWRITE
@options.reading
@options.logs
def build(
    cube: Path, out: Path, pixels: Path | None, raster: Path | None, polygons: Path | None, column: str, mean: bool, most: int | None,
    overwrite: bool, verbose: bool, quiet: bool, log_file: str | None, **reading: Any,
) -> None:  # fmt: skip
    """Build a library with classes from pixels of CUBE, and write it to OUT (.csv, or .sli with .hdr).

    Pixels without a value in every band in use are left out. Values are scaled as a run scales them.
    """
    from unmix.jobs.regions import build_library
    from unmix.outputs.library import write_library
    from unmix.outputs.names import inputs_of

    given = {
        kind: file
        for kind, file in (("pixels", pixels), ("raster", raster), ("polygons", polygons))
        if file is not None
    }
    if len(given) != 1:
        raise click.UsageError("name the pixels by one of --pixels, --raster and --polygons")
    options.set_up_log(verbose, quiet, log_file)
    scene, used, nodata = options.open_for_reading(cube, **reading)
    ((kind, file),) = given.items()
    built = build_library(scene, used, nodata, kind, file, column=column, mean=mean, most=most)
    for path in write_library(built, out, overwrite, inputs_of(scene, **given)):
        print_out(str(path))
    kinds = built.classes or ()
    print_out(", ".join(f"{name}: {kinds.count(name)}" for name in dict.fromkeys(kinds)))


@command.command("prune")
@LIBRARY
@click.argument("out", type=options.Local(dir_okay=False))
@click.option(
    "--by",
    type=options.one_of(["ear", "masa", "cob", "ies", "amuses"]),
    required=True,
    help="ear: the least RMSE when it models its class, on average; masa: the least angle to its class, on average; cob: those "
    "that model most of their class, then of what is left, and so on; ies: add and take out spectra while the classification "
    "of the library by them gets better; amuses: those nearest to what --scene holds, without near duplicates.",
)
@click.option(
    "--keep",
    type=click.IntRange(1),
    metavar="N",
    help="Spectra of each class.  [default: 1 for ear and masa, all rounds for cob, all for amuses; ies chooses by itself]",
)
@click.option(
    "--scene",
    type=options.Input(),
    metavar="CUBE",
    help="For amuses: the scene. The following options, and those that say how it is read, are for amuses too.",
)
@click.option(
    "--dimensions",
    type=click.IntRange(1),
    metavar="N",
    help="Of the signal subspace of the scene.  [default: as unmix count has it, at least 15]",
)
@click.option(
    "--nearest",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="F",
    help="Share of the spectra, the nearest to that subspace, that are looked at.  [default: 0.9]",
)
@click.option(
    "--separability",
    type=click.FloatRange(0),
    nargs=2,
    metavar="A B",
    help="Leave out spectra that differ from a nearer one by less than A, or A + B for the farthest: Jeffries-Matusita distance times "
    "tangent of the angle.  [default: 0.0002 0.02]",
)
@click.option(
    "--min-fraction",
    type=float,
    default=-0.05,
    metavar="F",
    show_default=True,
    help="Of a spectrum in a model of another.",
)
@click.option(
    "--max-fraction",
    type=float,
    default=1.05,
    metavar="F",
    show_default=True,
    help="Of a spectrum in a model of another.",
)
@click.option(
    "--max-rmse",
    type=float,
    default=0.025,
    metavar="RMSE",
    show_default=True,
    help="Of a model that counts, in the unit of the library: reflectance from 0 to 1.",
)
@unmixing.classes
@SELECT
@COMPLETE
@options.across_gaps
@click.option("--json", "as_json", is_flag=True, help="Print the measures of every spectrum as JSON.")
@OVERWRITE
@options.budget
@options.reading
@options.logs
def prune(
    library: Path, out: Path, by: str, keep: int | None, scene: Path | None, dimensions: int | None, nearest: float | None,
    separability: tuple[float, float] | None,
    min_fraction: float, max_fraction: float, max_rmse: float, classes: str | None, library_scale: float | None, select: str | None,
    complete: bool, across_gaps: bool, as_json: bool, overwrite: bool, memory: str, threads: int | None, verbose: bool, quiet: bool,
    log_file: str | None, **reading: Any,
) -> None:  # fmt: skip
    """Choose the spectra of LIBRARY that stand best for their classes, and write them to OUT (.csv, or .sli with .hdr).

    Every spectrum models every other one, with shade. All measures are of float64; of equal spectra the first is chosen.
    """
    from unmix.endmembers.subspace import distances_of
    from unmix.errors import LibraryError
    from unmix.library import fit, load_parts, prepared, prune
    from unmix.library.prune import Near
    from unmix.outputs.library import write_library
    from unmix.outputs.names import inputs_of

    parts = prepared(load_parts(library), library, classes, library_scale, select, across_gaps)
    if len(parts) > 1:
        raise LibraryError(
            f"{library}: its spectra are on {len(parts)} axes; bring them to one with unmix library resample"
        )
    options.set_up_log(verbose, quiet, log_file)
    parts = [without_deleted(parts[0], library)] if complete else parts
    if (scene is None) == (by == "amuses"):
        raise click.UsageError(
            "--by amuses compares spectra with a scene; name it with --scene, and with no other --by"
        )
    of_scene = {"share": nearest, "separability": separability}
    given: dict[str, Any] = {name: value for name, value in of_scene.items() if value is not None}
    if scene is None and (given or dimensions is not None):
        raise click.UsageError("--dimensions, --nearest and --separability are for --by amuses")
    near = None
    inputs = inputs_of(library=library, classes=classes if classes is not None and ":" in classes else None)
    if scene is not None:
        cube, used, missing = options.open_for_reading(scene, **reading)
        fitted = fit(parts, cube, used.index)
        distance = distances_of(fitted, cube, used, missing, dimensions, options.parse_memory(memory), threads)
        near, inputs = Near(distance, **given), inputs + inputs_of(cube)
    chosen, facts = prune(parts[0], by, keep, min_fraction, max_fraction, max_rmse, near)
    written = write_library(chosen, out, overwrite, inputs)
    if as_json:
        click.echo(json.dumps(facts))
        return
    for kind in dict.fromkeys(fact["class"] for fact in facts):
        members = [fact for fact in facts if fact["class"] == kind]
        kept = [str(fact["name"]) for fact in members if fact["kept"]]
        print_out(f"{kind}: {len(kept)} of {len(members)}: {', '.join(kept)}")
    for path in written:
        print_out(str(path))


@command.command("match")
@click.argument("spectra", type=options.Input())
@LIBRARY
@click.option(
    "--by",
    type=options.one_of(["sam", "sid"]),
    default="sam",
    show_default=True,
    help="sam: the spectral angle; sid: the spectral information divergence.",
)
@click.option("--continuum", is_flag=True, help="Compare spectra divided by their continua: absorptions, not slopes.")
@click.option(
    "--max-distance",
    type=float,
    metavar="D",
    help="Leave out matches that are farther, in degrees or of the divergence; a spectrum without any keeps its name.",
)
@click.option(
    "-k", "most", type=click.IntRange(min=1), default=5, metavar="K", show_default=True, help="Matches to show."
)
@click.option(
    "-o",
    "--out",
    type=options.Local(dir_okay=False),
    metavar="OUT",
    help="Also write SPECTRA to OUT (.csv, or .sli with .hdr), named after their matches: A or B, where these are nearly as near.",
)
@SELECT
@click.option("--json", "as_json", is_flag=True, help="Print all matches as JSON.")
@OVERWRITE
def match(
    spectra: Path, library: Path, by: str, continuum: bool, max_distance: float | None, most: int, out: Path | None,
    select: str | None, as_json: bool, overwrite: bool,
) -> None:  # fmt: skip
    """Find the spectra of LIBRARY that are nearest to each of SPECTRA, such as the endmembers of a run.

    LIBRARY is brought to the channels of SPECTRA. Angles are in degrees. A match is marked as ambiguous (~) if the next one is at most
    a tenth farther away.
    """
    from dataclasses import asdict, replace
    from math import degrees, radians

    from unmix.errors import LibraryError
    from unmix.library import load_parts
    from unmix.library import match as matches_of
    from unmix.library.match import is_ambiguous, names_of, within
    from unmix.library.spectra import SHADE
    from unmix.outputs.library import write_library
    from unmix.outputs.names import inputs_of

    parts = load_parts(spectra)
    # Shade of a run, which no spectrum is like.
    if parts[0].names[-1:] == (SHADE,) and not parts[0].matrix[:, -1].any():
        parts[0] = parts[0].take(range(len(parts[0].names) - 1))
    if len(parts) > 1 or not parts[0].valid.all():
        raise LibraryError(f"{spectra}: its spectra must be on one axis, and have no deleted values")
    found = matches_of(parts[0], load_selected(library, select), by, continuum)
    if max_distance is not None:
        found = within(found, radians(max_distance) if by == "sam" else max_distance)
    if as_json:
        rows = {name: [asdict(one) for one in matches[:most]] for name, matches in zip(parts[0].names, found)}
        click.echo(json.dumps(rows))
    else:
        for name, matches in zip(parts[0].names, found):
            mark = " ~" if is_ambiguous(matches) else ""
            print_out(f"{name}{mark}" if matches else f"{name}: none within {max_distance:g}")
            for one in matches[:most]:
                size = f"{degrees(one.distance):7.3f}°" if by == "sam" else f"{one.distance:8.3g}"
                print_out(f"  {size}  {one.name}{f' ({one.kind})' if one.kind else ''}")
    if out is not None:
        named = replace(parts[0], names=names_of(found, parts[0].names))
        for path in write_library(named, out, overwrite, inputs_of(library=spectra) + inputs_of(library=library)):
            if not as_json:
                print_out(str(path))


@command.command("resample")
@LIBRARY
@click.argument("cube", type=options.Input())
@click.argument("out", type=options.Local(dir_okay=False))
@SELECT
@unmixing.complete
@options.across_gaps
@OVERWRITE
@options.reading
@options.logs
def resample(
    library: Path, cube: Path, out: Path, select: str | None, complete: bool, across_gaps: bool, overwrite: bool, verbose: bool,
    quiet: bool,
    log_file: str | None, **reading: Any,
) -> None:  # fmt: skip
    """Resample LIBRARY to the bands in use of CUBE, and write OUT (.csv, or .sli with .hdr).

    Band responses are Gaussians with the cube's FWHM (or the band spacing, if it has none), reduced by the library's own FWHM.
    Channels within a tenth of the FWHM of a band are used as they are; a band outside the library's range, or in a gap of its
    channels, is an error. unmix run does the same with -e LIBRARY.
    """
    from unmix.library import load_for
    from unmix.outputs.library import write_library
    from unmix.outputs.names import inputs_of

    options.set_up_log(verbose, quiet, log_file)
    scene, used, _ = options.open_for_reading(cube, **reading)
    resampled = load_for(library, scene, used.index, select=select, complete=complete, across_gaps=across_gaps)
    for path in write_library(resampled, out, overwrite, inputs_of(scene, library=library)):
        print_out(str(path))
