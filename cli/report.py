"""`unmix report`: one HTML file about a run, or a folder of runs."""

from pathlib import Path

import click

from unmix.errors import MethodError

from . import archive, options
from .main import print_out


@click.command("report")
@options.maps
@options.value(
    "-o --out", "File to write.  [default: STEM_report.html, FOLDER/report.html]", type=options.Local(), metavar="FILE"
)
@options.cube_of_run
@options.overwrite_page
def command(maps: tuple[Path, ...], out: Path | None, cube: Path | None, overwrite: bool) -> int:
    """Write one HTML file about a run: verdict, pictures and histograms of its maps, spectra, the record.

    MAPS is the stem of a run's outputs (maps/cube for maps/cube_abundance.img), or one of them, or a folder: then the
    page is a table of all runs below it, unfinished ones first; scenes that could not be read have none. The page needs
    no other file and no network.
    """
    from unmix import report

    for name, value in (("out", out), ("cube", cube)):
        if value is not None and len(maps) > 1:
            raise MethodError(f"`{name}` is for one run or folder, but there are more")
    return archive.for_each(maps, lambda _, path: print_out(str(report(path, out, overwrite=overwrite, cube=cube))))
