"""`unmix stac`: STAC items about finished runs."""

from pathlib import Path

import click
from unmix_cli import archive, options
from unmix_cli.main import print_out


@click.command("stac")
@options.maps
@options.value(
    "--time", "Time of acquisition in ISO 8601, UTC unless it says otherwise.  [default: the header's]", metavar="TIME"
)
@options.overwrite
def command(maps: tuple[Path, ...], time: str | None, overwrite: bool) -> int:
    """Describe finished runs as STAC items, STEM_stac.json: place, time, method, and all files with size and SHA-256.

    MAPS is the stem of a run's outputs (maps/cube for maps/cube_abundance.img), one of them, or a folder of runs. The
    place of a swath is where --ortho put it; a run without a place gets an item without one. Needs pystac and rasterio
    (pip install 'unmix[stac]').
    """
    from unmix import stac
    from unmix.runs.files.finished import finished_runs

    stems = [stem for path in maps for stem in finished_runs(path)]
    return archive.for_each(stems, lambda _, path: print_out(str(stac(path, time=time, overwrite=overwrite))))
