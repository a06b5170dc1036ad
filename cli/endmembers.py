"""`unmix endmembers`: extract endmembers from cubes to a library."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from . import archive, options
from .main import print_out


@click.command("endmembers")
@archive.cubes
@archive.list_of_cubes("Read names of cubes from FILE (- is stdin), one a line or separated by NUL.")
@options.extraction
@options.outputs
@options.value(
    "--name",
    "Beginning of the files' names: NAME_endmembers.csv.  [default: the cube's; of several the list's, or scenes]",
    metavar="NAME",
)
@options.value(
    "--subsets",
    "Bundles, for mesma and --by class: the spectra of each material in the scene and in M parts of it, every M-th "
    "pixel each, as a class; also says in how many parts each was found.",
    type=click.IntRange(2),
    metavar="M",
)
@options.budget
@options.reading
@options.logs
def command(cubes: tuple[Path, ...], listed: Path | None, name: str | None, **settings: Any) -> None:
    """Extract endmembers from CUBE to STEM_endmembers.sli and .csv, each with its line and sample.

    Of several cubes, on the same bands and in the same unit, one set of all their pixels is extracted: unmix endmembers
    --list scenes.txt -n 8, then unmix run --list scenes.txt -e scenes_endmembers.csv
    """
    from unmix.commands.extract import extract_to
    from unmix.methods import Extraction

    chosen = archive.chosen_scenes(cubes, listed, None, settings | {"out_dir": None})
    if not chosen:
        return
    read = None if listed is None or str(listed) == "-" else listed
    if name is None and len(chosen) > 1 and read is not None:
        name = read.stem
    own = {field.name: settings.pop(field.name) for field in fields(Extraction) if field.name in settings}
    how = Extraction(**own | {"count": own["count"] or "auto"})
    for path in extract_to(chosen, name=name, how=how, listed=read, **settings):
        print_out(str(path))
