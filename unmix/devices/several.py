"""Solve blocks on several GPUs of one host, in turn, between one reader and one writer."""

from collections.abc import Sequence
from dataclasses import replace

from ..blocks import BlockPlan
from ..problem import Problem
from .cuda import Cuda
from .slots import Line, Slot


class Several:
    """GPUs behind one `Device`: slot k belongs to GPU k modulo their number, and blocks stay in order.

    A pixel's answer depends only on the pixel and its line, so the outputs are byte for byte those of one GPU.

    Parameters
    ----------
    gpus : sequence of Cuda
    """

    def __init__(self, gpus: Sequence[Cuda]) -> None:
        self.gpus = gpus
        self.name = "cuda:" + ",".join(gpu.name.removeprefix("cuda:") for gpu in gpus)
        self.owner: dict[int, Cuda] = {}

    @property
    def count(self) -> int:
        return len(self.gpus)

    @property
    def solves(self) -> bool:
        return all(gpu.solves for gpu in self.gpus)

    @solves.setter
    def solves(self, value: bool) -> None:
        for gpu in self.gpus:
            gpu.solves = value

    def path(self, problem: Problem, samples: int) -> str:
        """Return how pixels are searched."""
        return self.gpus[0].path(problem, samples)

    def share(self, block_plan: BlockPlan) -> BlockPlan:
        """Return the plan of the first GPU, which has the most slots."""
        return replace(block_plan, slots=-(-block_plan.slots // self.count))

    def fit(self, problem: Problem, line: Line, block_plan: BlockPlan, memory: int) -> BlockPlan:
        """Return a plan that fits ``memory`` bytes of each GPU."""
        part = self.share(block_plan)
        fitting = self.gpus[0].fit(problem, line, part, memory)
        return (
            block_plan if fitting == part else replace(fitting, slots=min(block_plan.slots, fitting.slots * self.count))
        )

    def open(self, problem: Problem, line: Line, block_plan: BlockPlan) -> list[Slot]:
        self.close()
        slots_of_gpu = [gpu.open(problem, line, self.share(block_plan)) for gpu in self.gpus[: block_plan.slots]]
        slots = [slot for turn in zip(*slots_of_gpu) for slot in turn][: block_plan.slots]
        self.owner = {id(slot): gpu for gpu, gpu_slots in zip(self.gpus, slots_of_gpu) for slot in gpu_slots}
        return slots

    def submit(self, slot: Slot) -> None:
        self.owner[id(slot)].submit(slot)

    def wait(self, slot: Slot) -> None:
        self.owner[id(slot)].wait(slot)

    def stages(self) -> dict[str, float]:
        """Return the seconds of copying and solving of the busiest GPU: they work in parallel."""
        each = [gpu.stages() for gpu in self.gpus if gpu.device_slots]
        return {stage: max(spent[stage] for spent in each) for stage in (each[0] if each else ())}

    def close(self) -> None:
        for gpu in self.gpus:
            gpu.close()
