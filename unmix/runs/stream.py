"""Stream lines of a scene through a device into rasters: all lines for a run, some for a worker of a cluster."""

import logging
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numpy as np

from ..blocks import BlockPlan, cores, plan_blocks
from ..certificate import SOLVED
from ..devices import Device, Line, Slot
from ..io import Cube, bytes_per_line
from ..io.fields import NODATA
from ..io.remote import RemotePath
from ..library.fractions import Normalization
from ..maps.derived import MOST_WRITERS, derived_maps, threads_of_a_writer
from ..maps.derived.solved import rounded_up
from ..maps.map_type import map_type
from ..maps.raster import Raster
from ..options import Options
from ..pipeline import FETCHING, READING, Seconds, stream
from ..problem import Problem
from ..quotients import divide
from ..rescue import farthest, rescue
from ..summary import DOUBTFUL, Summary, count_block, failures_in
from .band_residuals import BandResiduals

log = logging.getLogger("unmix")
Done = Callable[[slice, Summary], None]
# Results whose lines a GPU that counts checks by CRC-32; the residual only where it is wanted.
CHECKED = ("abundance", "rmse", "residual")


def needs_float64(problem: Problem, options: Options) -> bool:
    """Return whether the host makes maps, or solves pixels again, from the float64 results of all pixels."""
    return options.needs_float64 or problem.own is not None


def line_of(scene: Cube, problem: Problem, options: Options) -> Line:
    """Return the sizes and types of one line of the scene in a slot."""
    if needs_float64(problem, options):  # and everything that the host counts
        return Line(scene.samples, bytes_per_line(scene), options.residual, real=np.float64, dtype=scene.dtype)
    home = ("abundance", "rmse", "residual") + (("kappa", "delta", "steps", "state") if options.certificate else ())
    written = ["abundance"] * (options.top is None) + ["residual"] * options.residual
    kinds = {name: map_type(name, options, problem) for name in written}
    steps = {name: (kind.step, kind.offset) for name, kind in kinds.items() if kind.step}
    return Line(
        scene.samples, bytes_per_line(scene), options.residual, dtype=scene.dtype, counted=farthest(options.max_delta), steps=steps,
        home=tuple(name for name in home if name not in steps), normalization=problem.normalization,
    )  # fmt: skip


def block_plan_of(scene: Cube, problem: Problem, options: Options, machine: Device) -> BlockPlan:
    """Return how the scene is cut into blocks, by the bounds on host and GPU memory."""
    line = line_of(scene, problem, options)
    piece = scene.samples * scene.dtype.itemsize if scene.interleave == "bsq" else None
    chunk = min(scene.lines_together, scene.lines)
    slots = options.streams * machine.count
    block_plan = plan_blocks(
        scene.lines, line.bytes_in_flight(problem), options.budget, slots, piece=piece, chunk=chunk
    )
    block_plan = machine.fit(problem, line, block_plan, options.gpu_budget)
    if block_plan.lines_per_block < chunk:
        log.warning(
            f"{scene.path}: its chunks hold {chunk} lines, of which {block_plan.lines_per_block} fit `memory`: each is "
            f"decompressed {-(-chunk // block_plan.lines_per_block)} times; raise `memory`"
        )
    return block_plan


def solve_lines(
    scene: Cube, problem: Problem, block_plan: BlockPlan, slots: list[Slot], rasters: Mapping[str, Raster], machine: Device,
    options: Options, done: Done, seconds: Seconds,
) -> None:  # fmt: skip
    """Solve the lines of a block plan on the device, and write the results to the rasters.

    Parameters
    ----------
    scene : Cube
    problem : Problem
    block_plan : BlockPlan
        The lines, and how they are cut into blocks.
    slots : list of Slot
        Those that ``machine.open`` returned.
    rasters : mapping of str to Raster
        The maps to fill, by the names of `Options.maps`.
    machine : Device
    options : Options
    done : callable
        Called after each block is written, in order, with its lines and their summary.
    seconds : Seconds
        The time of each stage is added to it.
    """
    writers, reached = min(MOST_WRITERS, cores()), block_plan.first
    derived, threads = derived_maps(problem, options, scene, machine.name), threads_of_a_writer(options)
    band_residuals = BandResiduals(scene, problem, options)

    def read(slot: Slot, lines: slice) -> None:
        slot.hold(lines, scene.read(lines, slot.buffer))

    def finish_lines(slot: Slot, start: int, stop: int) -> Summary:
        """Solve doubtful pixels of a block's lines again, summarise the lines where the GPU has not, and write them."""
        raw, results, counts = slot.part(start, stop, problem.interleave)
        part, first = Summary(), slot.lines.start + start
        integers = {name: values[start:stop] for name, values in slot.integers.items()}
        fractions = {name: values[start:stop] for name, values in slot.fractions.items()}
        checks = {} if machine.solves else dict.fromkeys(rasters, np.zeros(stop - start, np.uint32))
        if machine.solves and counts is not None:
            if counts.pixels[:, DOUBTFUL].any():
                part, integers = look_again(first, raw, results, fractions, counts, problem, options), {}
            checks = {name: getattr(counts, name) for name in CHECKED if name != "abundance" or options.top is None}
        elif machine.solves:
            if problem.own is not None:
                problem.own.solve(problem, first, raw, results, threads)
            elif problem.is_rescued:
                part.rescued = rescue(problem, raw, results, options.max_delta, threads)
        for step in problem.steps:
            results = step.undo(results)
        if machine.solves:
            band_residuals.add(part, first, raw, results, integers.get("abundance"), fractions)
        further = {}
        if options.needs_float64:
            masked = results["state"] != SOLVED
            for name, one in derived.items():
                further[name] = one.of(first, raw, results["abundance"], masked)
        if problem.normalization is not None:
            fractions = fractions or in_fractions(results, problem.normalization)
            results = results | fractions | {"scale": fractions["scale"][:, None]}
        if needs_float64(problem, options):
            with np.errstate(over="ignore"):
                results |= {name: results[name].astype(np.float32) for name in ("abundance", "rmse", "residual")}
        if machine.solves and counts is None:
            part.add(first, results, options.max_delta)
        maps = maps_of(results, options) | further
        for name, raster in rasters.items():
            write = raster.write_stored if name in integers else raster.write
            write(slice(first, first + stop - start), integers.get(name, maps[name]), checks.get(name))
        return part

    def finish(slot: Slot) -> None:
        nonlocal reached
        if slot.lines.start != reached:
            return  # the block before this one failed
        lines = slot.lines.stop - slot.lines.start
        step = max(1, -(-lines // writers))
        shares = [pool.submit(finish_lines, slot, i, min(i + step, lines)) for i in range(0, lines, step)]
        summary = Summary()
        counted = machine.solves and slot.counts is not None
        has_doubtful = counted and bool(slot.counts.pixels[:, DOUBTFUL].any())
        # Summed here while the threads write: done by each of the threads, it took a tenth of two GPUs' time.
        if counted and not has_doubtful:
            summary.take(slot.counts, lines * scene.samples)
        wait(shares)  # for all, even where one fails: none may touch the slot afterwards
        if has_doubtful:
            summary.take(slot.counts, lines * scene.samples)
        for part in [share.result() for share in shares]:
            summary.append(part)
        reached = slot.lines.stop
        done(slot.lines, summary)

    with ThreadPoolExecutor(writers, "finish") as pool:
        reading = FETCHING if isinstance(scene.path, RemotePath) else READING
        stream(block_plan, slots, read, machine, finish, seconds, reading)
    seconds.settle(machine.stages())


def look_again(
    first: int, raw: np.ndarray, results: dict[str, np.ndarray], fractions: dict[str, np.ndarray], counts: Any, problem: Problem,
    options: Options,
) -> Summary:  # fmt: skip
    """Solve the doubtful pixels of some lines again; replace in ``counts`` and ``fractions`` what the GPU made of these lines.

    Return a summary of the rescued pixels and the failures, which a GPU does not count.
    """
    part = Summary()
    changed = np.flatnonzero(counts.pixels[:, DOUBTFUL])
    part.rescued = (
        rescue(problem, raw, results, options.max_delta, threads_of_a_writer(options)) if problem.solver.exact else 0
    )
    part.failures = failures_in(first, results)
    if problem.normalization is not None:
        again = in_fractions(results, problem.normalization)
        for name, values in fractions.items():
            values[changed] = again[name][changed]
        results = results | fractions
    for name, values in count_block(results, limit=options.max_delta)._asdict().items():
        rows = getattr(counts, name)
        columns = min(rows.shape[1], values.shape[1])
        rows[:] = 0
        rows[:, :columns] = values[:, :columns]
        if name == "steps":
            rows[:, -1] += values[:, columns:].sum(axis=1).astype(rows.dtype)
    for name in CHECKED:
        if options.quantize is not None and name != "rmse":
            continue  # of integers, which are yet to be made, with their CRCs: `Raster.write` takes none then
        for line in changed if results[name].size else ():
            getattr(counts, name)[line] = zlib.crc32(results[name][line].tobytes())
    return part


def in_fractions(results: dict[str, np.ndarray], normalization: Normalization) -> dict[str, np.ndarray]:
    """Return fractions, their scale and δ, to be taken in place of results, whose abundances are float64."""
    A, plane = results["abundance"], results["state"].shape
    fractions, scale, delta = np.empty(A.shape, np.float32), np.empty(plane, np.float32), np.empty(plane)
    divide(A, results["delta"], results["state"], *normalization.shares, fractions, scale, delta)
    return {"abundance": fractions, "scale": scale, "delta": delta}


def maps_of(results: dict[str, np.ndarray], options: Options) -> dict[str, np.ndarray]:
    """Return the arrays to write of some lines, by the names of the maps."""
    maps = dict(results)
    if options.certificate:
        maps["certificate"] = certificate_bands(results)
    if options.top is not None:
        maps["abundance"], maps["index"] = largest(results["abundance"], options.top)
    return maps


def largest(abundance: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest abundances of each pixel, and the numbers of their endmembers.

    Parameters
    ----------
    abundance : array (n, p, samples), float32
    top : int

    Returns
    -------
    values, index : arrays (n, min(top, p), samples), float32
        Largest first, equal ones in the order of endmembers; index from 1, and 0 where the abundance is 0. −9999 where masked.
    """
    p = abundance.shape[1]
    order = np.argsort(-abundance, axis=1, kind="stable")[:, : min(top, p)]
    values = np.take_along_axis(abundance, order, axis=1)
    index = np.where(values == 0, 0, order + 1).astype(np.float32)
    return values, np.where(values == np.float32(NODATA), np.float32(NODATA), index)


def certificate_bands(results: dict[str, np.ndarray]) -> np.ndarray:
    """Return κ, δ and steps as float32 (lines, 3, samples); κ and δ are rounded up, so that they stay upper bounds."""
    return np.stack(
        [rounded_up(results["kappa"]), rounded_up(results["delta"]), results["steps"].astype(np.float32)], axis=1
    )
