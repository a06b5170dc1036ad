"""Executors, which extract and solve: this process (`LocalExecutor`), or those of features."""

import functools
import time
from collections.abc import Callable
from typing import Protocol

from ..blocks import BlockPlan
from ..devices import Cuda, Device, Several, Work, choose_device
from ..io import Cube, Scene, bytes_per_line
from ..library import Endmembers
from ..options import Options
from ..pipeline import Seconds, Step
from ..problem import Problem
from ..summary import Summary
from .files.output_set import Outputs
from .stream import block_plan_of, line_of, solve_lines

Progress = Callable[[Step], None]


class Executor(Protocol):
    """The interface through which a scene's run has its work done.

    ``expect`` tells of the job, before the device is chosen; ``name`` is the device's; ``own_device`` is that for work of this process
    itself; ``path`` returns how it searches pixels, None
    where only workers know; ``extract`` returns endmembers and how often it read the file; ``plan`` cuts the scene into blocks before
    anything is written; ``solve`` fills the rasters of ``outputs`` from the plan's first line on.
    """

    def expect(self, work: Work) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def own_device(self) -> str: ...
    def path(self, problem: Problem, samples: int) -> str | None: ...
    def extract(self, scene: Scene) -> tuple[Endmembers, int]: ...
    def plan(self, scene: Cube, problem: Problem) -> BlockPlan: ...
    def solve(
        self, scene: Cube, problem: Problem, block_plan: BlockPlan, outputs: Outputs, progress: Progress | None
    ) -> tuple[Summary, Seconds]: ...


class LocalExecutor:
    """This process and its device, which is opened when it is first used: the scene's first bytes are being read ahead by then.

    Parameters
    ----------
    options : Options
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.work: Work | None = None

    def expect(self, work: Work) -> None:
        """Learn of the job, which `device` auto weighs."""
        self.work = work

    @functools.cached_property
    def machine(self) -> Device:
        """Return the device, opened at the first use."""
        return choose_device(self.options.device, self.options.threads, self.work)

    @property
    def name(self) -> str:
        return self.machine.name

    own_device = name

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
                progress(step_of(scene, lines.stop, self.name, block_plan.first))

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
    """Extract the endmembers that the options ask for, on the first GPU of ``machine`` where that pays; also return the passes."""
    from ..endmembers import Gpu, extract_from  # 40 ms, which a run with a library does not need

    first = machine.gpus[0] if isinstance(machine, Several) else machine
    gpu = Gpu(first, min(options.gpu_budget, first.free // 2)) if isinstance(first, Cuda) else None
    return extract_from([scene.to_extract_from()], options.extraction, options.budget, threads, gpu)


def step_of(scene: Cube, line: int, device: str, first: int) -> Step:
    """Return how far a scene is: all lines before ``line`` are done, those from ``first`` on by this run."""
    return Step(line, scene.lines, scene.samples, bytes_per_line(scene), device, first)
