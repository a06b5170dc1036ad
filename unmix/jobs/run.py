"""`run`: from a cube on disk to certified abundance maps on disk."""

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..blocks import LARGEST_BLOCK, SMALLEST_BLOCK, Layout, cores, parse_size, plan_blocks
from ..certificate import Summary
from ..devices import Device, Line, Slot, choose_device
from ..endmembers import extract_endmembers
from ..errors import CubeError, MethodError
from ..io import Bands, Cube, bytes_per_line
from ..io.export import NODATA, require
from ..io.placement import Placement
from ..library import Endmembers, fit, load_parts
from ..library import select as choose_spectra
from ..methods import choose
from ..outputs.maps import ORTHO, Outputs
from ..outputs.report import input_of, map_headers, plan_only, report_of
from ..outputs.whole import finite
from ..pipeline import Seconds, stream
from ..problem import Problem, plan_problem
from ..rescue import rescue
from ..scene import Reading, check_scale, mask_of, open_scene

log = logging.getLogger("unmix")
# Threads that check, add up and write a block; more wait for Python's lock longer than they work (`unmix.io.read`).
MOST_WRITERS = 4
HEAD = 2**16
Progress = Callable[[int, int], None]


def run(
    cube: str | os.PathLike[str],
    *,
    method: str = "fcls",
    solver: str | None = None,
    endmembers: str | os.PathLike[str] | Endmembers | None = None,
    select: str | None = None,
    count: int | str | None = None,
    extract: str = "vca",
    seed: int = 0,
    out_dir: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    skip_existing: bool = False,
    device: str = "auto",
    memory: str | int = "1G",
    gpu_memory: str | int = "1G",
    threads: int | None = None,
    streams: int = 4,
    residual: bool = False,
    certificate: bool = False,
    format: str = "envi",
    ortho: bool = False,
    top: int | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
    command: Sequence[str] | None = None,
    **reading: Any,
) -> dict[str, Any]:
    """Unmix a scene: abundances, RMSE and endmembers beside it, every pixel with its certificate.

    Parameters
    ----------
    cube : path-like
        The scene (ENVI: header or data file).
    method : {"ucls", "scls", "nnls", "fcls"}
        The constraints.
    solver : str, optional
        How; default is the first in the method's row of `unmix.methods.METHODS`.
    endmembers : path-like or Endmembers, optional
        A library; default is to extract ``count`` endmembers from the scene by ``extract`` with ``seed``.
    select : str, optional
        Names or classes of the library's spectra to use, ``A,B*``; see `unmix.library.select`.
    count : int or "auto", optional
        Number to extract; "auto", the default, estimates it by HySime. Not with ``endmembers``.
    out_dir : path-like, optional
        Where outputs go; default is beside the cube.
    overwrite, skip_existing : bool
        What to do where outputs exist; default is an error.
    device : str
        "auto", "cpu", "cuda" or "cuda:K".
    memory, gpu_memory : str or int
        Bounds on the blocks in host and GPU memory, such as "256M".
    threads, streams : int
        CPU threads (default: all); blocks in flight.
    residual, certificate : bool
        Also write the residual cube; κ, δ and steps of each pixel.
    format : str
        Of the maps; a key of `unmix.io.export.FORMATS`.
    ortho : bool
        Also place the maps of a swath where its lookup table says (EMIT), as ``STEM_abundance_ortho`` and so on.
    top : int, optional
        Write only so many abundances of each pixel, the largest first: ``STEM_abundance``, and whose they are in ``STEM_index``
        (from 1; 0 where there is none).
    dry_run : bool
        Say what would be done, and do nothing.
    progress : callable, optional
        Called with lines done and lines in all.
    command : sequence of str, optional
        The command line, for ``run.json``.
    **reading
        How to read the scene: the fields of `unmix.Reading`, such as ``bands="1-50,60"`` or ``lines="100:200"``.

    Returns
    -------
    dict
        What ``STEM_run.json`` holds.

    Raises
    ------
    UnmixError
        See `unmix.errors`; nothing is left under a final name then.
    """
    row, how = choose(method, solver)
    form, how_read = require(format), Reading(**reading)
    if top is not None and top < 1:
        raise MethodError(f"--top {top}: must be at least 1")
    refuse_contradictions(streams, threads, overwrite, skip_existing, endmembers is not None, count, select)
    budget, gpu_budget = parse_size(str(memory)), parse_size(str(gpu_memory))
    scene, used, missing_value = open_scene(cube, how_read)
    if ortho and scene.placement is None:
        raise MethodError(f"--ortho: {scene.path} has no lookup table to place its pixels on a map; EMIT's files have")
    folder = Path(out_dir) if out_dir is not None else scene.path.parent
    library = None if endmembers is None else library_on(endmembers, select, scene, used)
    if not dry_run and (overwrite or not (folder / f"{scene.stem}_run.json").exists()):
        scene.expect(slice(0, min(scene.lines, -(-min(budget, LARGEST_BLOCK) // bytes_per_line(scene)))))
    machine = choose_device(device, threads)
    settings = Settings(machine, budget, gpu_budget, streams, residual, certificate, progress, ortho, top)
    try:
        if dry_run:
            return plan_only(
                scene, row.name, how.name, machine.name, used, folder, library, residual, certificate, form, ortho, top
            )
        outputs = Outputs(folder, scene.stem, form)
        with outputs:
            asked = {
                "method": row.name, "solver": how.name, "endmembers": None if library is None else library.digest(), "count": count,
                "extract": extract if library is None else None, "seed": seed if library is None else None, "residual": residual,
                "certificate": certificate, "format": form.name, "ortho": ortho, "top": top, "reading": how_read.said(),
                "device": machine.name.partition(":")[0],
            }  # fmt: skip
            identity = finite(
                {"unmix": __version__, "asked": asked, "input": identity_of(scene, used, missing_value, how_read)}
            )
            past = outputs.look_back(identity, overwrite)
            if past is not None and past.finishing is not None:
                return outputs.take_names(past.finishing)
            if past is None and outputs.are_there(overwrite, skip_existing, asked):
                return {"input": input_of(scene), "skipped": True}
            found, passes, began = library, 1, time.perf_counter()
            if past is not None:
                log.info(f"{scene.path}: goes on from line {past.lines} of {scene.lines}")
                assert past.about is not None
                found, passes = library or Endmembers.heard(past.about["endmembers"]), past.about["passes"]
            if found is None:
                wanted = "auto" if count is None else count
                found, passes = extract_endmembers(scene, used, missing_value, wanted, extract, seed, budget, threads)
                passes += 1
            extracting = time.perf_counter() - began
            problem = plan_problem(found, row, how, used, missing_value, scene.layout)
            layout = layout_of(scene, problem, settings)
            if library is not None and past is None:
                check_scale(scene, found, used, missing_value, how_read.scale is not None)
            shapes = {name: [scene.lines, scene.samples, bands] for name, bands in settings.rasters(problem).items()}
            own = None if library is not None else found.said()
            outputs.begin(identity, {"endmembers": own, "passes": passes, "rasters": shapes})
            layout = replace(layout, first=past.lines if past is not None else 0)
            summary, seconds = solve_scene(scene, problem, layout, outputs, settings)
            report = report_of(scene, problem, machine.name, summary, seconds, layout, seed, passes, command, how_read)
            report["seconds"] = {"extracting": round(extracting, 4), **report["seconds"]}
            report |= (
                {"asked": asked, "resumed_from": layout.first}
                | {"format": form.name, "top": top}
                | ({"placed": scene.placement.size()} if ortho and scene.placement else {})
            )
            assert summary.sums is not None
            map_headers(outputs, scene, found.names, f"{row.name} ({how.name})", summary.sums, used)
            found.write(*(outputs.part(ending) for ending in ("_endmembers.csv", "_endmembers.sli", "_endmembers.hdr")))
            outputs.finish(report)
    finally:
        machine.close()
    return finite(report)


def identity_of(scene: Cube, used: Bands, missing_value: float | None, reading: Reading) -> dict[str, Any]:
    """By what an input is known again: size, time and beginning of its data and mask, and all that its header says."""
    waves = None if scene.wavelengths is None else scene.wavelengths.tolist()
    said = [scene.lines, scene.samples, scene.layout, str(scene.dtype), used.index.tolist(), used.gain.tolist(), used.offset.tolist(),
            repr(missing_value), waves, dict(scene.fields)]  # fmt: skip
    found: dict[str, Any] = {"header": hashlib.sha256(json.dumps(said, default=str).encode()).hexdigest()[:16]}
    files = {"data": scene.path} | ({} if reading.mask is None else {"mask": mask_of(reading.mask)[0]})
    for what, path in files.items():
        try:
            status = path.stat()
            with open(path, "rb") as file:
                begins = hashlib.sha256(file.read(HEAD)).hexdigest()[:16]
        except OSError as error:
            raise CubeError(f"{path}: cannot be read: {error.strerror}") from None
        found[what] = {"bytes": status.st_size, "modified": status.st_mtime_ns, "begins": begins}
    return found


def refuse_contradictions(
    streams: int, threads: int | None, overwrite: bool, skip_existing: bool, given: bool, count: int | str | None,
    select: str | None,
) -> None:  # fmt: skip
    """Raise `MethodError` where arguments of `run` do not go together; ``given``: endmembers are."""
    if streams < 1 or (threads is not None and threads < 1):
        raise MethodError("--streams and --threads must be at least 1")
    if overwrite and skip_existing:
        raise MethodError("--overwrite and --skip-existing contradict each other")
    if given and count is not None:
        raise MethodError("--count is for extraction; all spectra of -e FILE are used, or those that --select chooses")
    if not given and select is not None:
        raise MethodError("--select chooses from the spectra of -e FILE")


def library_on(
    endmembers: str | os.PathLike[str] | Endmembers, select: str | None, scene: Cube, used: Bands
) -> Endmembers:
    """The chosen spectra of a library on the bands in use."""
    parts = [endmembers] if isinstance(endmembers, Endmembers) else load_parts(Path(endmembers))
    return fit(parts if select is None else choose_spectra(parts, select), scene, used.index)


@dataclass(frozen=True)
class Settings:
    """How a run is made, beside what it computes; the fields are `run`'s."""

    machine: Device
    memory: int
    gpu_memory: int
    streams: int
    residual: bool
    certificate: bool
    progress: Progress | None
    ortho: bool = False
    top: int | None = None

    def rasters(self, problem: Problem) -> dict[str, int]:
        """Bands of each image that is written."""
        L, p = problem.E.shape
        sizes = {"abundance": p if self.top is None else min(self.top, p), "rmse": 1}
        sizes |= {} if self.top is None else {"index": min(self.top, p)}
        sizes |= {"residual": L} if self.residual else {}
        return sizes | ({"certificate": 3} if self.certificate else {})


def line_of(scene: Cube, settings: Settings) -> Line:
    """What one line of the scene holds in a slot."""
    home = ("abundance", "rmse", "residual") + (("kappa", "delta", "steps", "state") if settings.certificate else ())
    return Line(scene.samples, bytes_per_line(scene), settings.residual, dtype=scene.dtype, home=home, counted=True)


def layout_of(scene: Cube, problem: Problem, settings: Settings) -> Layout:
    """How the scene is cut, from the bounds on host and GPU memory."""
    line = line_of(scene, settings)
    piece = scene.samples * scene.dtype.itemsize if scene.layout == "bsq" else None
    chunk = min(scene.lines_together, scene.lines)
    layout = plan_blocks(
        scene.lines,
        line.bytes_in_flight(problem),
        settings.memory,
        settings.streams * settings.machine.count,
        piece=piece,
        chunk=chunk,
    )
    layout = settings.machine.fit(problem, line, layout, settings.gpu_memory)
    if layout.lines_per_block < chunk:
        log.warning(
            f"{scene.path}: its chunks hold {chunk} lines, of which {layout.lines_per_block} fit --memory: each is "
            f"decompressed {-(-chunk // layout.lines_per_block)} times; raise --memory"
        )
    return layout


def solve_scene(
    scene: Cube, problem: Problem, layout: Layout, outputs: Outputs, settings: Settings
) -> tuple[Summary, Seconds]:
    """Pass the scene through the device into the rasters; see `run`."""
    line = line_of(scene, settings)
    sizes = settings.rasters(problem)
    # work files stand beside what they become until all is made
    again = sum(sizes.values()) if outputs.form.convert else 0
    placed = int(np.prod(scene.placement.shape)) if settings.ortho and scene.placement is not None else 0
    outputs.check_space(4 * (scene.lines * scene.samples + placed) * (sum(sizes.values()) + again) + 2**20)
    rasters = {name: outputs.raster(name, scene.lines, scene.samples, count) for name, count in sizes.items()}
    machine, progress = settings.machine, settings.progress
    began = time.perf_counter()
    slots = machine.open(problem, line, layout)
    compiling = time.perf_counter() - began
    past = outputs.past
    summary = Summary() if past is None or past.summary is None else Summary.heard(past.summary)
    seconds = Seconds(compiling=compiling)
    outputs.latest = (layout.first, summary.said())
    line_bytes = sum(4 * scene.samples * bands for bands in sizes.values())
    writers = min(MOST_WRITERS, cores())

    def read(slot: Slot, lines: slice) -> None:
        slot.hold(lines, scene.read(lines, slot.buffer))

    def finish_lines(slot: Slot, start: int, stop: int) -> Summary:
        """Lines of a block: what the solver missed, what adds up, what is written."""
        raw, results, counts = slot.part(start, stop, problem.layout)
        part, first = Summary(), slot.lines.start + start
        checks = {} if machine.solves else dict.fromkeys(rasters, np.zeros(stop - start, np.uint32))
        if machine.solves and counts is not None:
            part.take_from_gpu(counts, results["rmse"].size)
            checks = {"rmse": counts.rmse} | ({"abundance": counts.abundance} if settings.top is None else {})
        elif machine.solves:
            part.rescued = rescue(problem, raw, results) if problem.solver.exact else 0
            part.add(first, *(results[name] for name in ("state", "kappa", "delta", "steps", "abundance")))
        maps = maps_of(results, settings)
        for name, raster in rasters.items():
            raster.write(slice(first, first + stop - start), maps[name], checks.get(name))
        return part

    def finish(slot: Slot) -> None:
        if slot.lines.start != outputs.latest[0]:
            return  # the block before it failed
        lines = slot.lines.stop - slot.lines.start
        step = max(1, -(-lines // writers))
        shares = [pool.submit(finish_lines, slot, i, min(i + step, lines)) for i in range(0, lines, step)]
        wait(shares)  # all, also where one fails: none may touch the slot afterwards
        for part in [share.result() for share in shares]:
            summary.merge(part)
        outputs.done(slot.lines.stop, lines * line_bytes, summary.said())
        if progress is not None:
            progress(slot.lines.stop, scene.lines)

    with ThreadPoolExecutor(writers, "finish") as pool:
        stream(layout, slots, read, machine, finish, seconds)
    seconds.settle(machine.stages())
    if settings.ortho and scene.placement is not None:
        for name, count in sizes.items():
            place_map(scene.placement, outputs, name, count, settings.memory)
    if summary.solved == 0 and machine.solves:
        outputs.journal.remove()  # there is nothing to go on from
        raise CubeError(f"{scene.path}: all {summary.masked + summary.partly_nodata} pixels are masked as nodata")
    return summary, seconds


def place_map(placement: Placement, outputs: Outputs, name: str, bands: int, memory: int) -> None:
    """Make ``STEM_name_ortho`` from the finished ``STEM_name``, some lines at a time."""
    source = outputs.rasters[name]
    swath = np.memmap(source.path, np.dtype("<f4"), "r", shape=(source.lines, source.bands, source.samples))
    lines, samples = placement.shape
    target = outputs.raster(name + ORTHO, lines, samples, bands)
    line_of_map = samples * (12 * bands + 40)  # gathered, turned round, with its places
    if line_of_map > max(memory, SMALLEST_BLOCK):
        raise MethodError(f"--memory {memory} bytes is too small: one line of the map needs {line_of_map}")
    step = max(1, min(lines, memory // line_of_map))
    for line in range(0, lines, step):
        part = slice(line, min(line + step, lines))
        target.write(part, placement.place(swath, part, NODATA))


def maps_of(results: dict[str, np.ndarray], settings: Settings) -> dict[str, np.ndarray]:
    """What is written of some lines, by the names of the maps."""
    maps = dict(results)
    if settings.certificate:
        maps["certificate"] = certificate_bands(results)
    if settings.top is not None:
        maps["abundance"], maps["index"] = largest(results["abundance"], settings.top)
    return maps


def largest(abundance: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
    """The largest abundances of each pixel, and whose they are.

    Parameters
    ----------
    abundance : array (n, p, samples), float32
    top : int

    Returns
    -------
    values, index : arrays (n, min(top, p), samples), float32
        Largest first, of equal ones the first endmember; index from 1, and 0 where the abundance is 0. −9999 where masked.
    """
    p = abundance.shape[1]
    order = np.argsort(-abundance, axis=1, kind="stable")[:, : min(top, p)]
    values = np.take_along_axis(abundance, order, axis=1)
    index = np.where(values == 0, 0, order + 1).astype(np.float32)
    return values, np.where(values == np.float32(NODATA), np.float32(NODATA), index)


def certificate_bands(results: dict[str, np.ndarray]) -> np.ndarray:
    """κ, δ and steps as float32 (lines, 3, samples)."""
    return np.stack([results[name].astype(np.float32) for name in ("kappa", "delta", "steps")], axis=1)
