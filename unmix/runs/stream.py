"""Stream lines of a scene through a device into rasters: all lines for a run, some for a worker of a cluster.

Add up the residuals of each band on a sample of the pixels of a run.
"""

import logging
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numpy as np

from ..blocks import BlockPlan, cores, plan_blocks
from ..certificate import SOLVED
from ..devices import Device, Line, Slot
from ..io import NODATA, Cube, RemotePath, bytes_per_line
from ..library.fractions import Normalization
from ..maps.derived import MOST_WRITERS, derived_maps, threads_of_a_writer
from ..maps.derived.solved import rounded_up
from ..maps.raster import Raster, map_type
from ..options import Options
from ..pipeline import FETCHING, READING, Seconds, stream
from ..problem import Problem
from ..quotients import divide_all
from ..rescue import rescue, worst_first
from ..summary import DOUBTFUL, Summary, count_block, failures_in
from .look import has_look

# Copies of a block's pixels, as float64, that maps derived from them take; of one block at a time.
COPIES = 2
# Scenes of up to this many pixels are looked at as a whole.
MOST_WHOLE = 4096
# Fewest lines of a scene that are sampled, and most pixels of each: they give an RMS to 2 %, and hold a layer of a
# thirtieth of the lines. No more lines, because a part of a block without one costs nothing: pixels from all parts took
# a third of the time of a run on a GPU, those of 64 lines a twentieth.
FEWEST_LINES, MOST_OF_LINE = 32, 128
# Lines begin at so many places by turns, spread over the columns: of 32 lines ten have the same columns, which shows
# what columns share.
BEGINS = 3


def strides_of(lines: int, samples: int) -> tuple[int, int]:
    """Return the steps between the lines of a scene that are looked at, and between the pixels of such a line."""
    if lines * samples <= MOST_WHOLE:
        return 1, 1
    most_lines = max(FEWEST_LINES, MOST_WHOLE // samples)  # of a narrow scene more, for as many pixels
    return -(-lines // most_lines), -(-samples // MOST_OF_LINE)


class BandResiduals:
    """Residuals of each band in some pixels of some lines of a run, evenly spread; see `strides_of`.

    The sample does not depend on blocks, threads or devices. Host code in NumPy for all of them: of every device,
    stored values and abundances of a block are in host memory before its lines are written. The spectra themselves are
    kept for `unmix.runs.look`.

    Parameters
    ----------
    scene : Cube
    problem : Problem
    options : Options
    """

    def __init__(self, scene: Cube, problem: Problem, options: Options) -> None:
        self.samples, (self.between_lines, self.between) = scene.samples, strides_of(scene.lines, scene.samples)
        self.problem = problem
        self.bands = len(problem.E)
        # With the shift of the spectra, since rounded abundances do not sum to one: without it their residuals were off
        # by 0.06 %.
        shift = problem.shift[: self.bands, None] if len(problem.shift) else 0.0
        self.columns = np.ascontiguousarray((problem.E[: self.bands] + shift).T)
        self.map_type = map_type("abundance", options, problem)
        self.rounds = options.top is None and problem.normalization is None
        self.keeps = has_look(problem)

    def add(
        self,
        summary: Summary,
        first: int,
        raw: np.ndarray,
        results: dict[str, np.ndarray],
        integers: np.ndarray | None,
        fractions: dict[str, np.ndarray],
    ) -> None:
        """Add the sampled pixels of n lines from ``first`` on to a summary."""
        # ``integers``: quantized abundances (n, p, samples), if a device did not copy back the abundances;
        # ``fractions``: if it made fractions, ``abundance``, for which integers may stand, and ``scale`` (n, samples).
        rmse = results["rmse"]
        lines = range(-first % self.between_lines, len(rmse), self.between_lines)
        if not lines:
            return
        columns = [self.looked_at(first + line) for line in lines]
        sample, line = np.concatenate(columns), np.repeat(lines, list(map(len, columns)))
        solved = rmse[line, sample] != NODATA
        line, sample = line[solved], sample[solved]
        if not len(line):
            return
        stored = (fractions or results)["abundance"] if integers is None else integers
        abundances = self.abundances(stored[line, :, sample])
        if fractions and self.problem.normalization is not None:
            abundances = self.problem.normalization.back(abundances, fractions["scale"][line, sample], 1)
        y = self.spectra(raw, line, sample)
        summary.add_residuals(len(line), self.sums(y, abundances))
        if self.keeps:
            summary.kept.append((y, first + line, sample))

    def looked_at(self, line: int) -> np.ndarray:
        """Return the pixels of a line that are looked at: pairs of neighbours, by which noise is told."""
        begin = line // self.between_lines % BEGINS * 2 * self.between // BEGINS
        if self.between == 1:
            return np.arange(self.samples)
        firsts = np.arange(begin, self.samples - 1, 2 * self.between)
        return np.stack([firsts, firsts + 1], axis=1).ravel()

    def abundances(self, stored: np.ndarray) -> np.ndarray:
        """Return abundances (k, p), float64, as in the map: in its steps, from integers or rounded here."""
        step, offset = self.map_type.step, self.map_type.offset
        values = stored.astype(np.float64)
        if stored.dtype == np.uint16:
            return offset + step * values
        # The largest abundances alone, and fractions, are not rounded.
        return offset + step * np.rint((values - offset) / step) if step and self.rounds else values

    def spectra(self, raw: np.ndarray, line: np.ndarray, sample: np.ndarray) -> np.ndarray:
        """Return the spectra of pixels, (k, L), times the weights of bands."""
        problem = self.problem
        index, gain, offset = (values[: self.bands] for values in problem.stored()[:3])
        with np.errstate(over="ignore", invalid="ignore"):  # of values near the largest, and NaN that signals
            if problem.interleave == "bip":
                values = raw[line, sample][:, index]
            elif problem.interleave == "bil":
                values = raw[line[:, None], index, sample[:, None]]
            else:
                values = raw[index, line[:, None], sample[:, None]]
            y = values * gain
            y += offset
        return y

    def sums(self, y: np.ndarray, abundances: np.ndarray) -> np.ndarray:
        """Return Σ r², Σ r and Σ y² of pixels for each band, (3, L)."""
        with np.errstate(over="ignore", invalid="ignore"):
            # Not `@`: the threads of BLAS, which wait busily, slowed the solver's: runs of two cores took 1.27 times as
            # long.
            r = y - np.einsum("kp,pb->kb", abundances, self.columns)
            found = np.stack([np.einsum("kb,kb->b", r, r), r.sum(axis=0), np.einsum("kb,kb->b", y, y)])
            for step in self.problem.steps:
                found = step.undo_sums(found)
        return found


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
        scene.samples,
        bytes_per_line(scene),
        options.residual,
        dtype=scene.dtype,
        counted=worst_first(options.max_delta),
        steps=steps,
        home=tuple(name for name in home if name not in steps),
        normalization=problem.normalization,
    )


def block_plan_of(scene: Cube, problem: Problem, options: Options, machine: Device) -> BlockPlan:
    """Return how the scene is cut into blocks, by the bounds on host and GPU memory."""
    line = line_of(scene, problem, options)
    piece = scene.samples * scene.dtype.itemsize if scene.interleave == "bsq" else None
    chunk = min(scene.lines_together, scene.lines)
    slots = options.streams * machine.count
    copies = COPIES * 8 * scene.samples * len(problem.E) * options.needs_float64 // slots
    in_flight = line.bytes_in_flight(problem) + copies
    block_plan = plan_blocks(scene.lines, in_flight, options.budget, slots, piece=piece, chunk=chunk)
    block_plan = machine.fit(problem, line, block_plan, options.gpu_budget)
    if block_plan.lines_per_block < chunk:
        log.warning(
            f"{scene.path}: its chunks hold {chunk} lines, of which {block_plan.lines_per_block} fit `memory`: each is "
            f"decompressed {-(-chunk // block_plan.lines_per_block)} times; raise `memory`"
        )
    return block_plan


def solve_lines(
    scene: Cube,
    problem: Problem,
    block_plan: BlockPlan,
    slots: list[Slot],
    rasters: Mapping[str, Raster],
    machine: Device,
    options: Options,
    done: Done,
    seconds: Seconds,
) -> None:
    """Solve the lines of a block plan on the device and write the results to the rasters."""
    # ``done`` is called after each block is written, in order, with its lines and their summary.
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
            part.add_rmse(results["rmse"])
        further = {}
        if options.needs_float64:
            masked = results["state"] != SOLVED
            for name, one in derived.items():
                further[name] = one.of(first, raw, results["abundance"], masked)
        if problem.normalization is not None:
            fractions = fractions or lines_in_fractions(results, problem.normalization)
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
    first: int,
    raw: np.ndarray,
    results: dict[str, np.ndarray],
    fractions: dict[str, np.ndarray],
    counts: Any,
    problem: Problem,
    options: Options,
) -> Summary:
    """Solve doubtful pixels again and redo ``counts`` and ``fractions``; return a summary of rescues and failures."""
    part = Summary()
    changed = np.flatnonzero(counts.pixels[:, DOUBTFUL])
    part.rescued = (
        rescue(problem, raw, results, options.max_delta, threads_of_a_writer(options)) if problem.solver.exact else 0
    )
    part.failures = failures_in(first, results)
    if problem.normalization is not None:
        again = lines_in_fractions(results, problem.normalization)
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


def lines_in_fractions(results: dict[str, np.ndarray], normalization: Normalization) -> dict[str, np.ndarray]:
    """Return fractions, their scale and δ, to be taken in place of results, whose abundances are float64."""
    A, plane = results["abundance"], results["state"].shape
    fractions, scale, delta = np.empty(A.shape, np.float32), np.empty(plane, np.float32), np.empty(plane)
    divide_all(A, results["delta"], results["state"], *normalization.shares, fractions, scale, delta)
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
    """Return each pixel's largest abundances and their endmembers, from 1; 0 where the abundance is 0."""
    # Both are (n, min(top, p), samples), float32, −9999 where masked; equal abundances keep the endmembers' order.
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
