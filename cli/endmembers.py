"""`unmix endmembers`: extract endmembers from a cube to a library."""

from pathlib import Path
from typing import Any

import click

from . import options
from .main import print_out


@click.command("endmembers")
@click.argument("cube", type=click.Path(path_type=Path))
@options.extraction
@options.outputs
@options.budget
@options.reading
@options.logs
def command(
    cube: Path,
    count: str | None,
    extract: str,
    refine: bool,
    smooth: int,
    seed: int,
    out_dir: Path | None,
    overwrite: bool,
    memory: str,
    threads: int | None,
    verbose: bool,
    quiet: bool,
    log_file: str | None,
    **reading: Any,
) -> None:
    """Extract endmembers from CUBE to STEM_endmembers.sli and .csv, each with its line and sample in the scene.

    The names of the written files are printed on stdout.
    """
    from unmix.endmembers import extract_endmembers
    from unmix.io.identity import Watch
    from unmix.outputs.output_set import save_library

    options.set_up_log(verbose, quiet, log_file)
    scene, used, missing = options.open_for_reading(cube, **reading)
    watch = Watch(scene)
    library, _ = extract_endmembers(
        scene,
        used,
        missing,
        options.parse_count(count) or "auto",
        extract,
        seed,
        options.parse_memory(memory),
        threads,
        refine,
        smooth,
    )
    folder = out_dir if out_dir is not None else scene.path.parent
    for path in save_library(library, folder, scene.stem, overwrite, watch):
        print_out(str(path))
