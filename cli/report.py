"""`unmix report`: one HTML file about a run, or a folder of runs."""

from pathlib import Path

import click

from unmix.errors import MethodError

from . import archive, options
from .main import print_out


@click.command("report")
@click.argument("maps", nargs=-1, required=True, metavar="MAPS...", type=options.Local())
@click.option(
    "-o",
    "--out",
    type=options.Local(),
    metavar="FILE",
    help="The file to write, of one run or folder.  [default: STEM_report.html, FOLDER/report.html]",
)
@click.option("--overwrite", is_flag=True, help="Replace the file that -o names even if it is no such page.")
def command(maps: tuple[Path, ...], out: Path | None, overwrite: bool) -> int:
    """Write one HTML file about a run: verdict, pictures and histograms of its maps, spectra, the record.

    MAPS is the common beginning of a run's outputs (maps/cube for maps/cube_abundance.img), one of them, or a folder: then the page is
    a table of all runs below it, what failed first. A page needs no other file and no network; the same run gives the same bytes.
    """
    from unmix import report

    if out is not None and len(maps) > 1:
        raise MethodError("`out` is for one run or folder, but there are more")
    return archive.for_each(maps, lambda _, path: print_out(str(report(path, out, overwrite=overwrite))))
