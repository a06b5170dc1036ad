"""Solve blocks on the CPU: ranges of tiles on a pool of threads."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ..blocks import BlockPlan, cores
from ..problem import Problem
from .slots import Line, Slot, new_slots


class Cpu:
    """All cores, or ``threads`` of them: ranges of tiles on a thread pool, in code that releases the GIL."""

    name = "cpu"
    solves = True
    count = 1
    # Whether what only some runs of pixels need is compiled with the rest, for `unmix.commands.warm`.
    compiles_all = False
    # Ranges per thread: enough that the last one to finish delays the block little.
    SHARES = 4

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or cores()
        self.pool = ThreadPoolExecutor(self.threads, "solve")

    def fit(self, problem: Problem, line: Line, block_plan: BlockPlan, memory: int) -> BlockPlan:
        """Return ``block_plan`` as it is: a CPU has no memory of its own."""
        return block_plan

    def path(self, problem: Problem, samples: int) -> str:
        """Return how pixels are searched."""
        from ..solvers.pixels.cpu import path_of_solver

        return path_of_solver(problem)

    def open(self, problem: Problem, line: Line, block_plan: BlockPlan) -> list[Slot]:
        from ..solvers.pixels.cpu import Plan, Results, Stored, range_solver

        path = self.path(problem, line.samples)
        stored, plan = Stored(*problem.stored()), Plan(*problem.plan(path))
        self.solve = range_solver(problem.interleave, path, stored, plan, line.in_scene, Cpu.compiles_all)
        slots = new_slots(np.empty, problem, line, block_plan)
        results = Results(**{name: values[:0] for name, values in slots[0].full.items()})
        self.solve(0, 0, np.empty((0, 0, 0), line.dtype), results)  # compiles
        return slots

    def submit(self, slot: Slot) -> None:
        from ..solvers.pixels.cpu import Results, runs_in

        assert slot.raw is not None and slot.results is not None
        results = Results(**slot.results)
        runs = runs_in(*slot.results["rmse"].shape)
        step = max(1, -(-runs // (self.threads * self.SHARES)))
        slot.ticket = []
        for start in range(0, runs if self.solves else 0, step):
            stop = min(start + step, runs)
            slot.ticket.append(self.pool.submit(self.solve, start, stop, slot.raw, results))

    def wait(self, slot: Slot) -> None:
        for future in slot.ticket:
            future.result()

    def stages(self) -> dict[str, float]:
        """Return nothing: the caller's clock is right for a CPU."""
        return {}

    def close(self) -> None:
        self.pool.shutdown()
