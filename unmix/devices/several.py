"""Several GPUs of one host: blocks go to them in turn, from one reader to one writer."""

from collections.abc import Sequence
from dataclasses import replace

from ..blocks import BlockPlan
from ..problem import Problem
from .cuda import Cuda
from .slots import Line, Slot


class Several:
    """GPUs behind one `Device`: slot k is the k-th GPU's, round and round, and blocks stay in order.

    A pixel's answer is a function of the pixel and its line, so that the bytes are those of one GPU.

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

    def share(self, block_plan: BlockPlan) -> BlockPlan:
        """What the first GPU, which has the most, holds of the slots."""
        return replace(block_plan, slots=-(-block_plan.slots // self.count))

    def fit(self, problem: Problem, line: Line, block_plan: BlockPlan, memory: int) -> BlockPlan:
        """Cut to ``memory`` bytes of each GPU."""
        own = self.share(block_plan)
        fitting = self.gpus[0].fit(problem, line, own, memory)
        return (
            block_plan if fitting == own else replace(fitting, slots=min(block_plan.slots, fitting.slots * self.count))
        )

    def open(self, problem: Problem, line: Line, block_plan: BlockPlan) -> list[Slot]:
        self.close()
        own = [gpu.open(problem, line, self.share(block_plan)) for gpu in self.gpus[: block_plan.slots]]
        slots = [slot for turn in zip(*own) for slot in turn][: block_plan.slots]
        self.owner = {id(slot): gpu for gpu, its in zip(self.gpus, own) for slot in its}
        return slots

    def submit(self, slot: Slot) -> None:
        self.owner[id(slot)].submit(slot)

    def wait(self, slot: Slot) -> None:
        self.owner[id(slot)].wait(slot)

    def stages(self) -> dict[str, float]:
        """Copying and solving of the GPU that did most of it: they work side by side."""
        each = [gpu.stages() for gpu in self.gpus if gpu.device_slots]
        return {stage: max(spent[stage] for spent in each) for stage in (each[0] if each else ())}

    def close(self) -> None:
        for gpu in self.gpus:
            gpu.close()
