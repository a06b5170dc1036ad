"""Make the files of the maps, let an executor fill them, and place them on a map."""

import logging

import numpy as np

from ..blocks import SMALLEST_BLOCK, BlockPlan
from ..errors import CubeError, MethodError
from ..io import Cube, Placement
from ..maps.derived.noise import NoiseCube
from ..maps.map_type import map_type, type_of
from ..options import Options
from ..pipeline import Seconds
from ..problem import Problem
from ..settings.maps import ORTHO
from ..summary import Summary
from .executor import Executor, Progress
from .files.output_set import Outputs

log = logging.getLogger("unmix")
# Maps of more bytes are announced.
LARGE = 10**9


def fill(
    scene: Cube, problem: Problem, block_plan: BlockPlan, maps: dict[str, int], outputs: Outputs, options: Options,
    executor: Executor, progress: Progress | None,
) -> tuple[Summary, Seconds]:  # fmt: skip
    """Begin or continue the maps, and let the executor fill them.

    Parameters
    ----------
    maps : dict of str to int
        The number of bands of each map.

    Raises
    ------
    CubeError
        Where every pixel is masked.
    OutputError
        Where there is no room for the maps.
    """
    placement = scene.placement if options.ortho else None
    pixel = sum(type_of(name, options.quantize).dtype.itemsize * count for name, count in maps.items())  # bytes
    size = scene.lines * scene.samples * pixel
    if size > LARGE and options.top is None and maps.get("abundance", 0) > sum(maps.values()) / 2:
        log.info(
            f"{scene.path}: writes {size / 1e9:.1f} GB, {maps['abundance']} abundances a pixel; `top` writes the largest only"
        )
    # Work files and the files converted from them are on disk together until all are made.
    times = 2 if outputs.form.convert else 1
    placed = int(np.prod(placement.shape)) if placement is not None else 0
    outputs.check_space((scene.lines * scene.samples + placed) * pixel * times + 2**20)
    for name, count in maps.items():
        outputs.raster(name, scene.lines, scene.samples, count, map_type(name, options, problem))
    summary, seconds = executor.solve(scene, problem, block_plan, outputs, progress)
    lost = sum(problem.noise.lost) if isinstance(problem.noise, NoiseCube) and problem.own is None else 0
    if lost:
        log.warning(f"{scene.path}: {lost} pixels have no noise in some band; what is made of it is -9999 there")
    for sentence in () if problem.own is None else problem.own.messages():
        log.warning(f"{scene.path}: {sentence}")
    if placement is not None:
        for name, count in maps.items():
            place_map(placement, outputs, name, count, options.budget)
    if summary.solved == 0:
        outputs.journal.remove()  # there is nothing to resume
        partly = summary.partly_nodata
        why = (
            f", {partly} for some bands alone: `bands` auto leaves out those that have no value anywhere"
            if partly
            else ""
        )
        raise CubeError(f"{scene.path}: all {summary.masked + partly} pixels are masked as nodata{why}")
    return summary, seconds


def place_map(placement: Placement, outputs: Outputs, name: str, bands: int, memory: int) -> None:
    """Make ``STEM_name_ortho`` from the finished ``STEM_name``, some lines at a time."""
    source = outputs.rasters[name]
    swath = source.stored()
    lines, samples = placement.shape
    target = outputs.raster(name + ORTHO, lines, samples, bands, source.map_type)
    bytes_of_line = samples * (12 * bands + 40)  # values gathered and transposed, and the indices of their pixels
    if bytes_of_line > max(memory, SMALLEST_BLOCK):
        raise MethodError(f"`memory` {memory} bytes is too small: one line of the map needs {bytes_of_line}")
    step = max(1, min(lines, memory // bytes_of_line))
    for line in range(0, lines, step):
        part = slice(line, min(line + step, lines))
        target.write_stored(part, placement.place(swath, part, source.map_type.blank))
