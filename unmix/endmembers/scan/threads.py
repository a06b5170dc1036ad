"""Read a scene once, blocks ahead, while threads work at units of a fixed number of its pixels, in order."""

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ...blocks import SMALLEST_BLOCK, BlockPlan, plan_blocks
from ...io import Cube, Scene, bytes_per_line, read_blocks
from ...pipeline import Seconds, stream
from ...solvers.pixels.gather import Block, Stored, block_maker
from .loops import (
    WIDTH,
    Pixels,
    Scratch,
    Sums,
    in_one_line,
    matrix_of,
    new_scratch,
    new_sums,
    number_pixels,
    project_pixels,
    sum_pixels,
)
from .points import Points

# Pixels that one thread takes, and whose sums are added to those before as one number: no result depends on blocks or
# threads. Of 224 bands a unit takes 5 ms. (With 2048, 16 threads waited for each other, since adding takes 0.15 ms.)
UNIT = 4096
# Blocks in flight; half of them are read at a time: 16 threads work at two, and read some 10 GB/s.
SLOTS = 8
# Blocks of a GPU: two are read, one is copied, one worked at. They are larger: to enqueue one takes 2 ms of Python.
GPU_SLOTS = 4
Visit = Callable[[int, np.ndarray], None]
Fill = Callable[[int, int, Callable[..., None]], None]
NO_ROWS = np.empty((0, 0))
# Makes of a block's pixels, with scratch, numbers in rows.
OfPixels = Callable[[Block, Pixels, Scratch, np.ndarray], None]


# The rate of a CPU's core, in products of bands a second (Xeon with AVX-512), and the seconds of sums from which a GPU
# pays: to load its kernels takes a tenth of a second, to sum 2 million pixels of 224 bands 0.06 s, where 16 cores take
# 0.25.
RATE, WORTH_A_GPU = 2.5e10, 0.12


class Gpu(NamedTuple):
    """A GPU, `unmix.devices.Cuda`, and the bytes of its memory that a pass may take."""

    device: Any
    memory: int

    def plan(self, scene: Scene, budget: int, threads: int, held: int = 0) -> BlockPlan | None:
        """Return the blocks for sums, or projections of ``held`` bytes, on the GPU; None if it does not pay or fit."""
        from .cuda import bytes_needed  # the CUDA target takes a second to import

        L = len(scene.bands.index)
        blocks = plan(scene.cube, budget, 0, GPU_SLOTS)
        pays = scene.pixels * float(L) ** 2 > WORTH_A_GPU * RATE * threads
        return blocks if pays and bytes_needed(scene, L, blocks, UNIT, held) <= self.memory else None


class Totals(NamedTuple):
    """Sums over valid pixels: of spectra (L,), of ``y yᵀ`` and of ``d dᵀ`` of neighbours' differences (L, L)."""

    pixels: int
    pairs: int
    total: np.ndarray
    products: np.ndarray
    differences: np.ndarray


class View(NamedTuple):
    """A projection ``x = Uᵀy − shift`` with U (L, d) and shift (d,), or ``x / centreᵀx`` with ``centre`` (d,)."""

    U: np.ndarray
    shift: np.ndarray
    centre: np.ndarray | None = None


@dataclass
class Slot:
    """A block of a scene in memory, its place in the scene, and what threads make of it."""

    buffer: np.ndarray
    out: np.ndarray
    lines: slice = field(default_factory=lambda: slice(0))
    raw: np.ndarray = field(default_factory=lambda: np.empty((0, 0, 0)))
    tasks: list[Future[None]] = field(default_factory=list)


def stored_of(scene: Scene) -> Stored:
    """Return the bands and nodata value in the form that compiled functions take; NaN stands for no nodata value."""
    _, bands, nodata = scene
    return Stored(bands.index, bands.gain, bands.offset, float("nan") if nodata is None else nodata)


def walk(cube: Cube, budget: int, beside: int = 0) -> Iterator[tuple[slice, np.ndarray]]:
    """Read the scene once, in blocks of a memory budget; the caller needs ``beside`` bytes more for each line."""
    return read_blocks(
        cube, plan_blocks(cube.lines, bytes_per_line(cube) + beside, budget, 1, chunk=cube.lines_together)
    )


def plan(cube: Cube, budget: int, beside: int, slots: int = SLOTS) -> BlockPlan:
    """Cut a scene into blocks that are small enough to be read ahead, but hold whole chunks of the file."""
    line, chunk = bytes_per_line(cube) + beside, cube.lines_together
    enough = SLOTS * max(SMALLEST_BLOCK, line * chunk)
    half = max(budget // 2, min(budget, line))  # the other half is for what is kept of the pixels
    return plan_blocks(cube.lines, line, min(half, enough), slots, chunk=chunk)


class Threads:
    """The worker of a pipeline (`unmix.pipeline.stream`): a task for each unit of pixels, or its part in a block."""

    def __init__(
        self, pool: ThreadPoolExecutor, scene: Scene, task: Callable[[Slot, Block, int, Pixels], None]
    ) -> None:
        self.pool, self.cube, self.task = pool, scene.cube, task
        self.block_of = block_maker(scene.cube.interleave, stored_of(scene))

    def submit(self, slot: Slot) -> None:
        """Start all tasks of a block."""
        samples, raw = self.cube.samples, in_one_line(slot.raw, self.cube.interleave)
        begin, end = slot.lines.start * samples, slot.lines.stop * samples
        run = samples if self.cube.interleave == "bil" else end - begin
        block, slot.tasks = self.block_of(raw), []
        for unit in range(begin // UNIT, -(-end // UNIT)):
            first, last = max(begin, unit * UNIT), min(end, (unit + 1) * UNIT)
            some = Pixels(first - begin, last - first, run, samples, slot.lines.start)
            slot.tasks.append(self.pool.submit(self.task, slot, block, unit, some))

    def wait(self, slot: Slot) -> None:
        """Wait for the tasks of a block."""
        for task in slot.tasks:
            task.result()


def scan(
    scene: Scene,
    budget: int,
    threads: int,
    shape: tuple[int, ...] | None,
    task: Callable[[Slot, Block, int, Pixels], None],
    finish: Callable[[Slot], None],
) -> None:
    """Read a scene once; call ``task`` in threads for each unit's pixels, then ``finish`` for each block, in order."""
    cube = scene.cube
    blocks = plan(cube, budget, 0 if shape is None else 8 * math.prod(shape) * cube.samples)
    pixels = blocks.lines_per_block * cube.samples
    # ``shape`` is the shape of the numbers of a pixel.
    room = (0,) if shape is None else (pixels, *shape)
    size = blocks.lines_per_block * bytes_per_line(cube)
    slots = [Slot(np.empty(size, np.uint8), np.empty(room)) for _ in range(blocks.slots)]

    def read(slot: Slot, lines: slice) -> None:
        slot.lines, slot.raw = lines, cube.read(lines, slot.buffer)

    with ThreadPoolExecutor(threads, "scan") as pool:
        stream(blocks, slots, read, Threads(pool, scene, task), finish, Seconds(), SLOTS // 2)


class InOrder:
    """Sums of units, added in the order of the scene; threads wait where their unit is too far ahead.

    Parameters
    ----------
    L : int
        Bands.
    pixels : int
        Of the scene.
    most : int
        Units that are summed at a time.
    """

    def __init__(self, L: int, pixels: int, most: int) -> None:
        self.L, self.pixels, self.most = L, pixels, most
        self.all, self.next, self.turn = new_sums(L), 0, threading.Condition()
        self.open: dict[int, Sums] = {}
        self.taken: dict[int, int] = {}
        self.spare: list[Sums] = []
        self.failed = False

    def begin(self, unit: int, first: int) -> Sums:
        """Return the sums of a unit whose pixels before ``first`` have been added; wait until they are."""
        with self.turn:
            self.turn.wait_for(
                lambda: self.failed or (unit < self.next + self.most and self.taken.get(unit, 0) == first)
            )
            if unit not in self.open:
                self.open[unit] = self.spare.pop() if self.spare else new_sums(self.L)
            return self.open[unit]

    def end(self, unit: int, count: int) -> None:
        """Say that so many more pixels of a unit have been added; where it is whole, add it in its turn."""
        with self.turn:
            self.taken[unit] = self.taken.get(unit, 0) + count
            while self.taken.get(self.next) == min(UNIT, self.pixels - self.next * UNIT):
                sums = self.open.pop(self.next)
                del self.taken[self.next]
                for whole, part in zip(self.all, sums):
                    with np.errstate(over="ignore", invalid="ignore"):
                        np.add(whole, part, out=whole)
                    part.fill(0)
                self.spare.append(sums)
                self.next += 1
            self.turn.notify_all()

    def fail(self) -> None:
        """Let nobody wait for a unit that will never be whole."""
        with self.turn:
            self.failed = True
            self.turn.notify_all()


def totals_of(
    scene: Scene,
    budget: int,
    threads: int,
    each: int,
    look: Callable[[np.ndarray, slice], None],
    gpu: Gpu | None = None,
) -> Totals:
    """Sum a scene's pixels, and neighbours' differences in every ``each``-th line, in one pass; on a GPU if it pays."""
    L, stored, own = len(scene.bands.index), stored_of(scene), threading.local()
    blocks = None if gpu is None else gpu.plan(scene, budget, threads)
    if gpu is not None and blocks is not None:
        from .cuda import sums_of

        return Totals(*sums_of(gpu.device, scene, stored, blocks, UNIT, each, look))
    most = int(budget / (16 * L * L))
    sums = InOrder(L, scene.pixels, max(1, min(2 * threads, most)))

    def task(slot: Slot, block: Block, unit: int, some: Pixels) -> None:
        first = slot.lines.start * scene.cube.samples + some.first - unit * UNIT
        try:
            of_unit = sums.begin(unit, first)
            sum_pixels(block, some, each, stored, scratch_of(own, L), of_unit)
            sums.end(unit, some.size)
        except BaseException:
            sums.fail()
            raise

    scan(scene, budget, threads, None, task, lambda slot: look(slot.raw, slot.lines))
    pixels, pairs = sums.all.counts.tolist()
    total = sums.all.total.ravel()[:L].copy()
    return Totals(pixels, pairs, total, matrix_of(sums.all.products, L), matrix_of(sums.all.differences, L))


def scratch_of(own: threading.local, L: int) -> Scratch:
    """Return the scratch of this thread."""
    if not hasattr(own, "scratch"):
        own.scratch = new_scratch(L)
    scratch: Scratch = own.scratch
    return scratch


def numbers_of(
    scene: Scene, budget: int, threads: int, shape: tuple[int, ...], of_pixels: OfPixels, visit: Visit
) -> None:
    """Compute numbers of every pixel in one pass; ``visit`` gets a block's first pixel and its numbers, in order."""
    samples, own, L = scene.cube.samples, threading.local(), len(scene.bands.index)

    def task(slot: Slot, block: Block, _: int, some: Pixels) -> None:
        of_pixels(block, some, scratch_of(own, L), slot.out[some.first : some.first + some.size])

    def finish(slot: Slot) -> None:
        visit(slot.lines.start * samples, slot.out[: (slot.lines.stop - slot.lines.start) * samples])

    scan(scene, budget, threads, shape, task, finish)


def scattered(scene: Scene, budget: int, threads: int, views: Sequence[View], fill: Fill) -> None:
    """Project every pixel to one or two views; threads call ``fill(first, count, project)`` in any order of pixels."""
    own, stored, L = threading.local(), stored_of(scene), len(scene.bands.index)
    U, shift = stacked(views)
    Z = U.shape[1], WIDTH

    def task(slot: Slot, block: Block, _: int, some: Pixels) -> None:
        # It writes projections to arrays (count, d), one for each view, NaN where masked.
        def project(out: np.ndarray, more: np.ndarray = NO_ROWS) -> None:
            project_pixels(block, some, stored, scratch_of(own, L), U, shift, np.empty(Z), out, more)

        fill(slot.lines.start * scene.cube.samples + some.first, some.size, project)

    scan(scene, budget, threads, None, task, lambda slot: None)


def stacked(views: Sequence[View]) -> tuple[np.ndarray, np.ndarray]:
    """Return the axes of all views (L, d) and their shifts (d,)."""
    return np.ascontiguousarray(np.hstack([view.U for view in views])), np.concatenate([view.shift for view in views])


def held_by(
    gpu: Gpu | None, scenes: Sequence[Scene], budget: int, threads: int, views: Sequence[View], room: int
) -> list[Points] | None:
    """Return all pixels of scenes in each view, in GPU memory; None where that does not pay or fit."""
    if gpu is None:
        return None
    # ``room`` of the ``budget`` bytes is for pixels that an algorithm without a GPU looks at.
    held = 8 * sum(scene.pixels for scene in scenes) * sum(view.U.shape[1] for view in views)
    plans = [(scene, stored_of(scene), gpu.plan(scene, budget, threads, held)) for scene in scenes]
    if any(blocks is None for *_, blocks in plans):
        return None
    from .cuda import project_all
    from .cuda_points import held_points

    return held_points(gpu.device, project_all(gpu.device, plans, *stacked(views)), views, room // len(views), threads)


def projections(scene: Scene, budget: int, threads: int, U: np.ndarray, shift: np.ndarray, visit: Visit) -> None:
    """Project every pixel, ``x = Uᵀy − shift`` with U (L, d) and shift (d,); see `numbers_of`."""
    stored, U = stored_of(scene), np.ascontiguousarray(U)

    def of_pixels(block: Block, some: Pixels, scratch: Scratch, out: np.ndarray) -> None:
        project_pixels(block, some, stored, scratch, U, shift, np.empty((U.shape[1], WIDTH)), out, NO_ROWS)

    numbers_of(scene, budget, threads, (U.shape[1],), of_pixels, visit)


def numbers(scene: Scene, budget: int, threads: int, mean: np.ndarray, direction: np.ndarray, visit: Visit) -> None:
    """Compute ``directionᵀ(y − mean)`` of every pixel, or ``|y − mean|²`` without direction; see `numbers_of`."""
    stored = stored_of(scene)

    def of_pixels(block: Block, some: Pixels, scratch: Scratch, out: np.ndarray) -> None:
        number_pixels(block, some, stored, scratch, mean, direction, out)

    numbers_of(scene, budget, threads, (), of_pixels, visit)
