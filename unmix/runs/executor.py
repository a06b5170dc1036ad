"""The executor, which extracts and solves on a device of this process, and fills the files of a run's maps."""

import functools
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..blocks import SMALLEST_BLOCK, BlockPlan
from ..devices import Device, Job, Several, choose_device
from ..errors import CubeError, MethodError
from ..io import Cube, Scene, bytes_per_line
from ..library import Endmembers
from ..maps.derived.noise import NoiseCube
from ..maps.raster import map_type, type_of
from ..options import Options
from ..pipeline import JobProgress, Seconds
from ..problem import Problem
from ..settings.maps import ORTHO
from ..summary import Summary
from .files.output_set import Outputs
from .stream import block_plan_of, line_of, solve_lines

if TYPE_CHECKING:
    from ..io.placement import Placement

Progress = Callable[[JobProgress], None]


class Executor:
    """This process and its device, opened at first use, while the scene's first bytes are being read ahead."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.work: Job | None = None

    def expect(self, work: Job) -> None:
        """Learn of the job, which `device` auto weighs."""
        self.work = work

    @functools.cached_property
    def machine(self) -> Device:
        """Return the device, opened at the first use."""
        return choose_device(self.options.device, self.options.threads, self.work)

    @property
    def name(self) -> str:
        """Return the device's name."""
        return self.machine.name

    def path(self, problem: Problem, samples: int) -> str:
        """Return how pixels are searched."""
        return self.machine.path(problem, samples)

    def extract(self, scene: Scene) -> tuple[Endmembers, int]:
        """See `unmix.endmembers.extract_from`."""
        return extract(scene, self.options, self.options.threads, self.machine)

    def plan(self, scene: Cube, problem: Problem) -> BlockPlan:
        """See `block_plan_of`."""
        return block_plan_of(scene, problem, self.options, self.machine)

    def solve(
        self, scene: Cube, problem: Problem, block_plan: BlockPlan, outputs: Outputs, progress: Progress | None
    ) -> tuple[Summary, Seconds]:
        """See `solve_lines`."""
        began = time.perf_counter()
        slots = self.machine.open(problem, line_of(scene, problem, self.options), block_plan)
        seconds = Seconds(compiling=time.perf_counter() - began)
        summary = outputs.summary(problem.E.shape[1], len(problem.E))

        def finish_block(lines: slice, part: Summary) -> None:
            summary.merge(part)
            outputs.done(lines, summary.to_dict())
            if progress is not None:
                each = bytes_per_line(scene)
                progress(JobProgress(lines.stop, scene.lines, scene.samples, each, self.name, block_plan.first))

        solve_lines(
            scene, problem, block_plan, slots, outputs.rasters, self.machine, self.options, finish_block, seconds
        )
        return summary, seconds

    def close(self) -> None:
        """Release the device."""
        if "machine" in vars(self):
            self.machine.close()


def extract(
    scene: Scene, options: Options, threads: int | None, machine: Device | None = None
) -> tuple[Endmembers, int]:
    """Extract the endmembers, on the first GPU of ``machine`` where that pays; also return the number of passes."""
    from ..endmembers import Gpu, extract_from  # 40 ms, which a run with a library does not need

    first = machine.gpus[0] if isinstance(machine, Several) else machine
    gpu = Gpu(first, min(options.gpu_budget, first.free // 2)) if first is not None and hasattr(first, "free") else None
    return extract_from([scene.to_extract_from()], options.extraction, options.budget, threads, gpu)


log = logging.getLogger("unmix")
# Maps of more bytes are announced.
LARGE = 10**9


def fill(
    scene: Cube,
    problem: Problem,
    block_plan: BlockPlan,
    maps: dict[str, int],
    outputs: Outputs,
    options: Options,
    executor: Executor,
    progress: Progress | None,
) -> tuple[Summary, Seconds]:
    """Begin or continue the maps (names, and the band count of each) and let the executor fill them."""
    placement = scene.placement if options.ortho else None
    pixel = sum(type_of(name, options.quantize).dtype.itemsize * count for name, count in maps.items())  # bytes
    size = scene.lines * scene.samples * pixel
    if size > LARGE and options.top is None and maps.get("abundance", 0) > sum(maps.values()) / 2:
        log.info(
            f"{scene.path}: writes {size / 1e9:.1f} GB, {maps['abundance']} abundances a pixel; `top` writes the "
            "largest only"
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
        has_mask = bool(options.reading.mask or options.reading.mask_out)
        bits = (
            "Landsat's QA_PIXEL is fill, cloud or shadow where QA & 31 is above 0, Sentinel-2's SCL where it is 0, 1, 3, "
            "8, 9 or 10: write that as a mask"
        )
        why = f", or by a mask: 0 in `mask`, all but 0 in `mask_out`; is it one of bits? {bits}" * has_mask
        if partly:
            why = f", {partly} for some bands alone: `bands` auto leaves out those that have no value anywhere"
        raise CubeError(f"{scene.path}: all {summary.masked + partly} pixels are masked as nodata{why}")
    return summary, seconds


def place_map(placement: "Placement", outputs: Outputs, name: str, bands: int, memory: int) -> None:
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
