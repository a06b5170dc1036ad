"""`unmix export`: finished maps in another format."""

from pathlib import Path
from typing import Any

import click

from unmix.io.export import FORMATS

from . import archive, options
from .main import print_out


@click.command("export")
@options.maps
@click.option("-o", "--out-dir", required=True, type=options.Local(file_okay=False), help="Folder to write to.")
@options.value("-f --format", f"{', '.join(FORMATS)}, or GDAL's name of its driver.", default="cog", metavar="NAME")
@options.value(
    "--map wanted",
    "abundance, rmse, abundance_ortho, …; may be repeated.  [default: all]",
    multiple=True,
    metavar="NAME",
)
@options.flag("--split", "One file a band, named after it: cube_abundance_soil.tif.")
@options.flag(
    "--qml style", "Also write styles for QGIS, for abundances, sums by class, RMSE, and names and colours of classes."
)
@options.flag("--percent", "Only abundances and sums by class, in whole per cent as bytes; 255 is no data.")
@options.overwrite
def command(maps: tuple[Path, ...], wanted: tuple[str, ...], **settings: Any) -> int:
    """Write the maps of finished runs in another format, with names, nodata, place and origin.

    MAPS is the stem of a run's outputs (maps/cube), or one map of them; they must be ENVI, run's
    default. All files are compared with the run's digests before, and read back after. geotiff and cog need rasterio
    (pip install 'unmix[geo]').
    """
    from unmix import export
    from unmix.runs.files.finished import stem_of_outputs

    if "{dir}" not in str(settings["out_dir"]):
        archive.refuse_one_stem([stem_of_outputs(path) for path in maps])

    def one(_: int, path: Path) -> None:
        for file in export(path, maps=wanted or None, **settings):
            print_out(str(file))

    return archive.for_each(maps, one)
