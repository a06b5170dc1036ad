"""One set of rows for many scenes, written as a library."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...commands.extract import NAME, open_all
from ...io.identity import Watch
from ...library import load_for
from ...outputs.names import LIBRARY, folder_for, inputs_of, of_a_run, refuse_inputs
from ...runs.files.endmembers import refuse_to_save, save_library
from ...scene import ReadOptions
from ...scene.scale import check_scale
from .choice import of_sample
from .scene import entry_of
from .windows import SAMPLE_PIXELS, joined_samples, of_scene

log = logging.getLogger("unmix")


def rows_to(
    cubes: Sequence[Path],
    endmembers: Path,
    *,
    count: int | str,
    method: str,
    seconds: float | None,
    out_dir: Path | None,
    overwrite: bool,
    threads: int | None,
    listed: Path | None,
    library: dict[str, Any],
    **reading: Any,
) -> list[Path]:
    """Write the rows that scenes need together to ``NAME_endmembers.csv``, ``.sli`` and ``.hdr``; return the paths."""
    scenes = open_all(cubes, ReadOptions(**reading))
    several, first = len(scenes) > 1, scenes[0].cube
    folder, stem = folder_for(out_dir, None if several else first.path), NAME if several else first.stem
    stem = listed.stem if several and listed is not None else stem
    inputs = [entry for scene in scenes for entry in inputs_of(scene.cube)]
    refuse_inputs(of_a_run(folder, stem, LIBRARY), inputs + inputs_of(list=listed, endmembers=endmembers))
    refuse_to_save(folder, stem, overwrite)
    watches, spectra = [Watch(scene.cube) for scene in scenes], load_for(endmembers, scenes[0], **library)
    for scene in scenes:
        check_scale(scene, spectra, reading.get("scale") is not None)
    pixels = [scene.cube.lines * scene.cube.samples for scene in scenes]
    samples = (of_scene(scene, -(-SAMPLE_PIXELS * n // sum(pixels))) for scene, n in zip(scenes, pixels))
    found = of_sample(joined_samples(samples), spectra.matrix, count, method, None, seconds, threads)
    for sentence in entry_of(found, spectra.names, count)["said"]:
        log.info(f"{stem}: {sentence}")
    return save_library(spectra.take(found.rows.tolist()), folder, stem, overwrite, watches)
