"""`nmf` of a scene: find endmembers and abundances together, from a cube on disk to maps on disk."""

import logging
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...blocks import BlockPlan, cores, parse_size, plan_blocks
from ...compiled.cache import WATCH
from ...compiled.jit import WIDE
from ...devices import one_device
from ...endmembers import capped, counts_of, extract_from, signal_of
from ...endmembers.passes import Passes
from ...endmembers.statistics import stored_of
from ...errors import CubeError, LibraryError, MethodError
from ...io import NODATA, Scene, Watch, bytes_per_line, read_blocks, read_lines
from ...io.export import require
from ...library import Endmembers, load_for
from ...methods import Extraction
from ...outputs import LIBRARY, finite, folder_for, inputs_of, of_a_run, refuse_inputs, suffixes_of
from ...pages.pictures import bands_shown, browse_of
from ...runs.files.output_set import Outputs
from ...runs.record.report import map_headers, origin_of_maps, what_was_read
from ...scene import ReadOptions, open_scene
from ...solvers.pixels.gather import block_maker, to_floats
from .arrays import (
    DEFAULT_TOLERANCE,
    EVERY,
    FLOOR,
    LARGEST_PIXEL_VALUE,
    MOST_STEPS,
    Block,
    FactorPlan,
    Progress,
    descend_factors,
    engine_for,
    equal_parts,
    filled_factor,
    unit_of_data,
)

log = logging.getLogger("unmix")
STARTS = ("vca", "spa", "nfindr", "random")


def nmf_scene(
    cube: str | os.PathLike[str],
    *,
    count: int | str | None = None,
    endmembers: str | os.PathLike[str] | None = None,
    across_gaps: bool = False,
    start: str | None = None,
    seed: int = 0,
    loss: str = "kl",
    sum_to_one: bool = False,
    steps: int = MOST_STEPS,
    tol: float = DEFAULT_TOLERANCE,
    every: int = EVERY,
    out_dir: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    device: str = "auto",
    memory: str | int = "1G",
    gpu_memory: str | int = "1G",
    threads: int | None = None,
    format: str = "envi",
    progress: Progress | None = None,
    command: Sequence[str] | None = None,
    **reading: Any,
) -> dict[str, Any]:
    """Factorise a scene: write abundances, RMSE and endmembers beside it, as `unmix.run` does.

    Parameters
    ----------
    cube : path-like
    count : int or "auto", optional
        How many endmembers; not with ``endmembers``.
    endmembers : path-like, optional
        A library of starting endmembers, in place of ``start``.
    across_gaps : bool
        As for `unmix.run`.
    start : {"vca", "spa", "nfindr", "random"}, optional
        The starting endmembers: pixels that an extraction picks, or the mean spectrum times random numbers.
    seed : int
        Of the extraction or the random numbers.
    loss, sum_to_one, steps, tol, every
        See `unmix.nmf`.
    out_dir, overwrite, device, memory, gpu_memory, threads, format, progress, command
        As for `unmix.run`; progress counts steps. A scene that does not fit ``memory`` is read once a step.
    **reading
        How to read the scene: the fields of `unmix.ReadOptions`.

    Returns
    -------
    dict
        The contents of ``STEM_run.json``, and ``stem``.

    Raises
    ------
    UnmixError
        See `unmix.errors`; no output has its final name then.
    """
    plan = FactorPlan(loss, sum_to_one, steps, tol, every)
    form, how_read = require(format), ReadOptions(**reading).for_scene(cube)
    if how_read.tie is not None:
        raise MethodError("`tie`: makes values negative, which nmf cannot factor")
    if start is not None and endmembers is not None:
        raise MethodError("`start` and `endmembers` contradict each other")
    start = STARTS[0] if start is None else start
    if start not in STARTS:
        raise MethodError(f"unknown start '{start}'; there are {', '.join(STARTS)}")
    if endmembers is not None and count is not None:
        raise MethodError("`count` is for an extraction; all spectra of `endmembers` are used")
    budget, gpu_budget = parse_size(str(memory)), parse_size(str(gpu_memory))
    given = open_scene(cube, how_read, True)
    scene = given.cube
    folder = folder_for(out_dir, scene.path)
    suffixes = suffixes_of(("abundance", "rmse"), form, browse=True)
    refuse_inputs(of_a_run(folder, scene.stem, suffixes), inputs_of(scene, library=endmembers))
    watch = Watch(scene)
    with one_device(device, threads) as machine, Outputs(folder, scene.stem, form, suffixes, watch) as outputs:
        outputs.refuse_unfinished(overwrite)
        outputs.refuse_existing(overwrite, can_skip=False)
        began, compiled_before = time.perf_counter(), WATCH.seconds
        how = endmembers, across_gaps, "auto" if count is None else count, start, seed
        initial = starting_endmembers(given, *how, budget, threads)
        E = np.maximum(initial.matrix, FLOOR * np.maximum(initial.matrix.mean(axis=0), 0)).astype(np.float32)
        if not np.all(np.isfinite(E)) or not np.all(E.max(axis=0) > 0):
            raise LibraryError(
                f"{initial.source}: a starting endmember has no value above 0, or one not finite; is the scale right?"
            )
        outputs.check_space(4 * scene.lines * scene.samples * (E.shape[1] + 1) + 2**20)
        unit = unit_of_data(E)
        pixels = SamplePixels(given, E, plan, unit, threads or cores())
        engine = None
        try:
            gpu = machine.name != "cpu"
            held = pixels.plan_memory(budget, gpu_budget if gpu else None, outputs.folder)
            engine = engine_for((pixels.most, *E.shape), plan, gpu, threads)
            pixels.engine = engine
            compiled, began_descending = WATCH.seconds, time.perf_counter()
            E, costs, converged = descend_factors(
                engine, E, pixels.held_whole if held else pixels, held, plan, unit, progress
            )
            descending = time.perf_counter() - began_descending - (WATCH.seconds - compiled)
            factors = Endmembers(
                tuple(f"endmember {j + 1}" for j in range(E.shape[1])),
                E.astype(float),
                initial.wavelengths,
                None,
                f"nmf ({loss}) from {initial.source}",
            )
            sums, counts = write_maps(outputs, pixels, factors.matrix)
        finally:
            pixels.close()
            if engine is not None:
                engine.close()
        if pixels.below:
            log.warning(f"{scene.path}: {pixels.below} values below 0 were taken as 0")
        compiling, total = WATCH.seconds - compiled_before, time.perf_counter() - began
        seconds = {"compiling": round(compiling, 4), "descending": round(descending, 4), "total": round(total, 4)}
        report = what_was_read(given, command, how_read) | {
            "method": "nmf",
            "loss": loss,
            "sum_to_one": sum_to_one,
            "device": machine.name,
            "seed": seed,
            "endmembers": {"names": list(factors.names), "source": factors.source, "pixels": None},
            "steps": costs[-1][0],
            "converged": converged,
            "costs": [list(pair) for pair in costs],
            "pixels": counts,
            "held": held,
            "seconds": seconds,
            "format": form.name,
            "top": None,
            "identity": watch.identity,
        }
        asked = {"steps": steps, "tol": tol, "sum_to_one": sum_to_one, **how_read.to_dict()}
        origin = origin_of_maps(scene, watch.identity, factors, ("nmf", loss), asked, {})
        map_headers(outputs, given, factors.names, f"nmf ({loss})", sums, origin=origin)
        shown = bands_shown(factors.names, sums.tolist())
        outputs.write_browse(browse_of(outputs.values(), shown))
        report["browse"] = [factors.names[j] for j in shown]
        factors.write(*map(outputs.part, LIBRARY))
        outputs.finish(report)
    return finite(report) | {"stem": scene.stem}


def starting_endmembers(
    scene: Scene,
    endmembers: Any,
    across_gaps: bool,
    count: int | str,
    start: str,
    seed: int,
    budget: int,
    threads: int | None,
) -> Endmembers:
    """Return the endmembers that the factorisation starts from: a library, extracted pixels or random ones."""
    if endmembers is not None:
        return load_for(endmembers, scene, across_gaps=across_gaps)
    if start != "random":
        extraction = Extraction(count, start, start != "vca", seed=seed)
        return extract_from([scene.to_extract_from()], extraction, budget, threads)[0]
    signal, path = signal_of(scene, budget, threads), scene.cube.path
    p = (
        capped(str(path), counts_of(Passes([scene], budget, threads or cores()), signal))
        if count == "auto"
        else int(count)
    )
    if p < 1:
        raise MethodError(f"`count` {p}: must be at least 1")
    noise = np.random.Generator(np.random.PCG64(seed)).random((len(signal.mean), p))
    names = tuple(f"endmember {j + 1}" for j in range(p))
    return Endmembers(names, signal.mean[:, None] * 2 * noise, scene.wavelengths, None, f"{path}: random (seed {seed})")


class SamplePixels:
    """The pixels of a scene as float32, negative values as 0, with abundances: all at once, or block by block.

    Attributes
    ----------
    most : int
        Pixels of the largest block.
    below : int
        How many values were below 0, and are taken as 0.
    """

    def __init__(self, given: Scene, E: np.ndarray, plan: FactorPlan, unit: float, threads: int) -> None:
        self.given, self.E, self.plan, self.unit = given, E, plan, unit
        self.scene = scene = given.cube
        stored = stored_of(given)
        self.stored = stored._replace(gain=stored.gain * unit, offset=stored.offset * unit)
        self.block_of = block_maker(scene.interleave, self.stored)
        self.pool, self.reader = ThreadPoolExecutor(threads, "floats"), ThreadPoolExecutor(1, "read")
        self.engine: Any = None
        self.whole: Block | None = None
        self.masked = np.zeros((scene.lines, scene.samples), bool)
        self.counted, self.below = False, 0
        self.scratch: Any = None

    def plan_memory(self, budget: int, gpu_budget: int | None, folder: Path) -> bool:
        """Return whether all pixels fit in memory; else cut them into blocks, with a scratch file in ``folder``."""
        L, p = self.E.shape
        pixels, samples = self.scene.lines * self.scene.samples, self.scene.samples
        pixel_bytes = 4 * (L + 16 + 2 * (p + 16))
        stored = bytes_per_line(self.scene)
        chunk = min(self.scene.lines_together, self.scene.lines)
        # Two blocks are in memory as they are stored, three as floats: being read, waiting, being worked on.
        self.block_plan = plan_blocks(self.scene.lines, 2 * stored + 3 * pixel_bytes * samples, budget, 1, chunk=chunk)
        held = pixels * pixel_bytes + 2 * stored * self.block_plan.lines_per_block <= budget
        if gpu_budget is not None:
            gpu_plan = plan_blocks(self.scene.lines, 2 * pixel_bytes * samples, gpu_budget, 1, "`gpu_memory`")
            self.block_plan = min(self.block_plan, gpu_plan, key=lambda plan: plan.lines_per_block)
            held = held and 2 * pixel_bytes * pixels <= gpu_budget
        if held:  # blocks only serve to read the pixels; small ones leave the memory to the pixels
            self.block_plan = replace(self.block_plan, lines_per_block=max(1, self.block_plan.lines_per_block // 4))
        self.most = pixels if held else self.block_plan.lines_per_block * samples
        if not held:
            log.info(f"{self.scene.path}: does not fit `memory` as float32; it is read once for each step")
            self.scratch = tempfile.TemporaryFile(prefix="unmix-", dir=folder)  # noqa: SIM115
            # without space reserved, a full disk would kill the process when it writes to the memory map
            os.posix_fallocate(self.scratch.fileno(), 0, 4 * pixels * p)
            self.kept = np.memmap(self.scratch, np.float32, "r+", shape=(pixels, p))
            self.begun = False
        return held

    def close(self) -> None:
        """Stop the threads and remove the scratch file."""
        self.pool.shutdown()
        self.reader.shutdown()
        if self.scratch is not None:
            self.kept = None  # type: ignore[assignment]
            self.scratch.close()

    def floats(self, lines: slice) -> np.ndarray:
        """Return some lines as float32 (pixels, L): negative values and those of masked pixels are 0."""
        n, samples, L = lines.stop - lines.start, self.scene.samples, len(self.stored.bands)
        block = self.block_of(read_lines(self.scene, lines))
        out = np.empty((n * samples, L), np.float32)

        def convert_line(line: int) -> int:
            scratch = np.empty((L, WIDE.width)), np.empty((1, WIDE.width)), np.empty((1, WIDE.width))
            of_line = out[line * samples : (line + 1) * samples]
            return int(to_floats(block, line, samples, self.stored, *scratch, of_line))

        below = sum(self.pool.map(convert_line, range(n)))
        masked = np.isnan(out[:, 0])
        out[masked] = 0.0
        if float(out.max()) > LARGEST_PIXEL_VALUE * self.unit:
            raise CubeError(
                f"{self.scene.path}: holds values above {LARGEST_PIXEL_VALUE:g}; if these mean no data, name them with "
                "`nodata`"
            )
        if not self.counted:
            self.below += below
            self.masked[lines] = masked.reshape(n, samples)
            self.counted = lines.stop == self.scene.lines
            if self.counted and self.masked.all():
                raise CubeError(f"{self.scene.path}: all {self.masked.size} pixels are masked as nodata")
        return out

    def __len__(self) -> int:
        return len(self.block_plan)

    def __iter__(self) -> Iterator[Block]:
        """Yield all blocks once; changes to a block's abundances are kept. The next block is read meanwhile."""
        samples, p = self.scene.samples, self.E.shape[1]
        cuts = list(self.block_plan)
        next_block = self.reader.submit(self.floats, cuts[0])
        for i, lines in enumerate(cuts):
            X = next_block.result()
            if i + 1 < len(cuts):
                next_block = self.reader.submit(self.floats, cuts[i + 1])
            place = slice(lines.start * samples, lines.stop * samples)
            if not self.begun:
                self.kept[place] = self.equal_parts(X)
            block = filled_factor(self.engine, X, np.asarray(self.kept[place]))
            yield block
            self.kept[place] = block[1][: len(X), :p]
        self.begun = True

    @property
    def held_whole(self) -> list[Block]:
        """Return all pixels as one block, read at the first use."""
        if self.whole is None:
            tall, wide = self.engine.shape(self.most)
            X, A = np.zeros(tall, np.float32), np.zeros(wide, np.float32)
            for lines in self.block_plan:
                place = slice(lines.start * self.scene.samples, lines.stop * self.scene.samples)
                X_lines = self.floats(lines)
                X[place, : X_lines.shape[1]] = X_lines
                A[place, : self.E.shape[1]] = self.equal_parts(X_lines)
            self.whole = X, A
        return [self.whole]

    def equal_parts(self, X: np.ndarray) -> np.ndarray:
        """Return the abundances to start from."""
        return equal_parts(X, (self.E * np.float64(self.unit)).astype(np.float32), self.plan.sum_to_one)

    def abundances(self, lines: slice) -> np.ndarray:
        """Return the abundances of some lines, (pixels, p)."""
        place = slice(lines.start * self.scene.samples, lines.stop * self.scene.samples)
        return self.kept[place] if self.whole is None else self.whole[1][place, : self.E.shape[1]]


def write_maps(outputs: Outputs, pixels: SamplePixels, E: np.ndarray) -> tuple[np.ndarray, dict[str, int]]:
    """Write the abundances and the RMSE of all pixels; return the sums of the abundances, and the counts of pixels."""
    (L, p), scene = E.shape, pixels.scene
    abundance, rmse = (
        outputs.raster(name, scene.lines, scene.samples, count) for name, count in (("abundance", p), ("rmse", 1))
    )
    sums = np.zeros(p)
    step = max(1, min(scene.lines, 2**24 // max(1, 8 * scene.samples * L)))
    for lines, raw in read_blocks(scene, BlockPlan(scene.lines, step, 1)):
        n = lines.stop - lines.start
        A, masked = pixels.abundances(lines).astype(float), pixels.masked[lines].ravel()
        sums += A[~masked].sum(axis=0)
        with np.errstate(invalid="ignore", over="ignore"):
            errors = np.sqrt(np.square(pixels.given.spectra(raw) - A @ E.T).mean(axis=1))
        errors[masked], A[masked] = NODATA, NODATA
        abundance.write(lines, np.ascontiguousarray(A.reshape(n, scene.samples, p).transpose(0, 2, 1), np.float32))
        rmse.write(lines, errors.reshape(n, scene.samples).astype(np.float32))
    masked_pixels = int(pixels.masked.sum())
    return sums, {"all": pixels.masked.size, "solved": pixels.masked.size - masked_pixels, "masked": masked_pixels}
