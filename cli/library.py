"""`unmix library`: spectral libraries."""

import json
from pathlib import Path
from typing import Any

import click

from . import options
from .main import print_out

LIBRARY = click.argument("library", type=click.Path(path_type=Path))
SELECT = click.option(
    "--select", metavar="A,B*,...", help="Only the spectra with such names or classes; !A leaves out."
)
OVERWRITE = click.option("--overwrite", is_flag=True, help="Replace files that exist.")


@click.group("library")
def command() -> None:
    """Spectral libraries: what they hold, in another format, on the bands of a cube.

    Read are CSV, ENVI (.sli, .lib), MATLAB, text of the USGS (splib06) and ECOSTRESS, and folders of such text.
    """


def chosen(library: Path, select: str | None) -> list[Any]:
    """The spectra of a library, those on one axis together."""
    from unmix.library import load_parts
    from unmix.library import select as choose

    parts = load_parts(library)
    return parts if select is None else choose(parts, select)


@command.command("info")
@LIBRARY
@SELECT
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def info(library: Path, select: str | None, as_json: bool) -> None:
    """What LIBRARY holds: spectra, classes, wavelengths, deleted channels, and spectra that are the same."""
    facts = [describe(part) for part in chosen(library, select)]
    if as_json:
        click.echo(json.dumps(facts))
        return
    for i, one in enumerate(facts):
        if i:
            click.echo()
        width = max(len(key) for key in one)
        for key, value in one.items():
            if value is not None and value != [] and value != {}:
                whole = select is not None and key == "names"  # to see what a pattern chooses
                print_out(f"{key.replace('_', ' '):{width}}  {format_fact(value, whole)}")


def format_fact(value: Any, whole: bool) -> str:
    """Return a fact on one line; lists by their ends unless they are wanted ``whole``."""
    from .info import format_value

    if isinstance(value, dict):
        return ", ".join(f"{key} ({count})" for key, count in value.items())
    return f"{', '.join(value)} ({len(value)})" if whole else format_value(value)


def describe(library: Any) -> dict[str, Any]:
    """The facts of spectra on one axis, ready for JSON."""
    import numpy as np

    from unmix.library import duplicates

    waves, valid = library.wavelengths, library.valid
    classes = {kind: library.classes.count(kind) for kind in dict.fromkeys(library.classes or ())}
    some = np.where(valid, library.matrix, np.nan)
    return {
        "source": library.source,
        "spectra": len(library.names),
        "channels": len(library.matrix),
        "names": list(library.names),
        "classes": classes,
        "wavelengths_nm": None if waves is None else [float(wave) for wave in waves],
        "wavelengths_ascend": None if waves is None else bool(np.all(np.diff(waves) > 0)),
        "fwhm_nm": None if library.fwhm is None else [float(width) for width in library.fwhm],
        "smallest": float(np.nanmin(some)) if valid.any() else None,
        "largest": float(np.nanmax(some)) if valid.any() else None,
        "deleted_values": int((~valid).sum()),
        "spectra_with_deleted_values": int((~valid).any(axis=0).sum()),
        "the_same": [f"{a} = {b}" for a, b in duplicates(library)],
    }


@command.command("convert")
@LIBRARY
@click.argument("out", type=click.Path(path_type=Path, dir_okay=False))
@SELECT
@OVERWRITE
def convert(library: Path, out: Path, select: str | None, overwrite: bool) -> None:
    """Write LIBRARY as OUT: CSV (.csv), or ENVI (.sli with .hdr); values and channels as they are."""
    from unmix.errors import LibraryError
    from unmix.outputs.atomic import write_library
    from unmix.outputs.names import inputs_of

    parts = chosen(library, select)
    if len(parts) > 1:
        raise LibraryError(
            f"{library}: its spectra are on {len(parts)} different axes; bring them to one with resample"
        )
    for path in write_library(parts[0], out, overwrite, inputs_of(library=library)):
        print_out(str(path))


@command.command("resample")
@LIBRARY
@click.argument("cube", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path, dir_okay=False))
@SELECT
@OVERWRITE
@options.reading
@options.logs
def resample(
    library: Path, cube: Path, out: Path, select: str | None, overwrite: bool, verbose: bool, quiet: bool,
    log_file: str | None, **reading: Any,
) -> None:  # fmt: skip
    """Bring LIBRARY to the bands in use of CUBE, and write OUT (.csv, or .sli with .hdr).

    Bands are Gaussians of the cube's FWHM (of its spacing, where it has none), and a library's own FWHM is taken off.
    Wavelengths within a tenth of the FWHM pass through untouched; a band outside the library's range is an error. `unmix run`
    does the same with -e LIBRARY.
    """
    from unmix.library import fit
    from unmix.outputs.atomic import write_library
    from unmix.outputs.names import inputs_of

    options.set_up_log(verbose, quiet, log_file)
    scene, used, _ = options.open_for_reading(cube, **reading)
    found = fit(chosen(library, select), scene, used.index)
    for path in write_library(found, out, overwrite, inputs_of(scene, library=library)):
        print_out(str(path))
