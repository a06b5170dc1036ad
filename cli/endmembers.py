"""`unmix endmembers`: extract endmembers from cubes to a library."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from . import archive, options
from .main import print_out


@click.command("endmembers")
@archive.cubes
@archive.list_of_cubes("A file with the name of a cube in each line, or separated by NUL; - is stdin.")
@options.extraction
@options.outputs
@options.value(
    "--name",
    "How the files' names begin: NAME_endmembers.csv.  [default: that of the cube; of several the list's, or scenes]",
    metavar="NAME",
)
@options.value(
    "--subsets",
    "Bundles: several spectra of each material, from M parts of the scene, with the material as their class.",
    type=click.IntRange(2),
    metavar="M",
)
@options.budget
@options.reading
@options.logs
def command(cubes: tuple[Path, ...], listed: Path | None, name: str | None, **settings: Any) -> None:
    """Extract endmembers from CUBE to STEM_endmembers.sli and .csv, each with its line and sample in the scene.

    With --subsets M every material gets a class of spectra (for unmix mesma, or --by class): the pixels of the largest simplex of the
    scene, and of M parts of it, every M-th pixel each; and it is said in how many parts each was found.

    Of several cubes, one set of all their pixels is extracted: unmix endmembers --list scenes.txt -n 8, then unmix run --list
    scenes.txt -e scenes_endmembers.csv. They must be on the same bands and in the same unit. The names of the written files are
    printed on stdout.
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
