"""`unmix export`: finished maps in another format."""

from pathlib import Path

import click

from unmix.io.export import FORMATS

from . import archive, options
from .main import print_out


@click.command("export")
@click.argument("maps", nargs=-1, required=True, metavar="MAPS...", type=options.Local())
@click.option("-o", "--out-dir", required=True, type=options.Local(file_okay=False), help="Folder to write to.")
@click.option(
    "-f", "--format", "form", default="cog", show_default=True, metavar="NAME",
    help=f"{', '.join(FORMATS)}, or GDAL's name of its driver.",
)  # fmt: skip
@click.option(
    "--map",
    "wanted",
    multiple=True,
    metavar="NAME",
    help="abundance, rmse, abundance_ortho, …; may be repeated.  [default: all]",
)
@click.option("--split", is_flag=True, help="One file a band, named after it: cube_abundance_soil.tif.")
@click.option("--qml", "style", is_flag=True, help="Styles for QGIS beside maps of abundances, sums by class and RMSE.")
@click.option("--overwrite", is_flag=True, help="Replace files that exist, if unmix wrote them.")
def command(
    maps: tuple[Path, ...], out_dir: Path, form: str, wanted: tuple[str, ...], split: bool, style: bool, overwrite: bool
) -> int:
    """Write the maps of finished runs in another format, with names, nodata, place and origin as in the run's own.

    MAPS is the common beginning of a run's outputs (maps/cube for maps/cube_abundance.img), or one of them; its maps have to be in
    ENVI, the default of unmix run. All files are compared with the run's digests before, and read back after. geotiff and cog need
    rasterio (pip install 'unmix[geo]'); netcdf and hdf5 do without.
    """
    from unmix import export

    def one(_: int, path: Path) -> None:
        files = export(path, out_dir, format=form, maps=wanted or None, split=split, style=style, overwrite=overwrite)
        for file in files:
            print_out(str(file))

    return archive.for_each(maps, one)
