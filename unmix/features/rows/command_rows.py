"""`unmix rows`: the few spectra of a library that scenes need together."""

from pathlib import Path
from typing import Any

import click
from unmix_cli import archive, options
from unmix_cli.main import print_out

LIBRARY = ("select", "library_scale", "complete", "across_gaps")


@click.command("rows")
@archive.cubes
@archive.list_of_cubes("Read names of cubes from FILE (- is stdin), one a line or separated by NUL.")
@options.the_library
@options.option("rows", default="auto", help="How many: K, or as many as are each worth more than the noise (auto).")
@options.value("--method", "The constraints.", type=("nnls", "fcls", "pcls"), default="fcls")
@options.option("seconds")
@options.declared(*LIBRARY)
@options.outputs
@options.option("threads")
@options.reading
@options.logs
def command(cubes: tuple[Path, ...], listed: Path | None, rows: int | str, **settings: Any) -> None:
    """Write the few spectra of a library that CUBE needs, or several cubes together, to STEM_endmembers.csv and .sli.

    An even sample of all pixels decides; run --rows, which solves them too, chooses for each scene. One set for an
    archive: unmix rows --list scenes.txt -e usgs.mat, then unmix run --list scenes.txt -e scenes_endmembers.csv
    """
    from unmix.features.rows.archive import rows_to

    chosen = archive.chosen_scenes(cubes, listed, None, settings | {"out_dir": None})
    read = None if listed is None or str(listed) == "-" else listed
    library = {name.replace("library_", ""): settings.pop(name) for name in LIBRARY}
    if chosen:
        for path in rows_to(chosen, settings.pop("endmembers"), count=rows, listed=read, library=library, **settings):
            print_out(str(path))
