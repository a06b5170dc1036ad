"""Sum and project the pixels of a scene on a GPU, to the same bits as on a CPU, by the same chains of fused additions.

Blocks come through page-locked memory, a stream each, while others are worked at. A block becomes a panel of spectra;
each entry of a sum is a chain over the pixels of a unit in one thread, which goes on where a unit ends in the next
block; units are added in order.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...blocks import BlockPlan
from ...compiled.cuda import cuda, cuda_kernel, to_gpu
from ...compiled.jit import ONE
from ...errors import DeviceError
from ...io import Scene, bytes_per_line
from ...pipeline import Seconds, stream
from ...solvers.pixels.gather import LAYOUTS, Stored

fma = ONE.fma
# Rows and columns of a tile of a sum that one block of threads adds up; rows and columns of it that are one thread's;
# pixels that are loaded at a time.
TILE, TALL, WIDE, CHUNK = 32, 4, 4, 32
DOWN, ACROSS = TILE // TALL, TILE // WIDE
OF_TILE = DOWN * ACROSS
# Threads of a block of other kernels.
THREADS = 256
# Threads that load a pixel's bands, or compare it with its neighbour.
OF_PIXEL = 64


@functools.cache
def loading_kernel(interleave: str) -> Any:
    """Return the kernel that writes a block to ``panel`` (n, L), zeros where masked, and to ``valid`` (n,) 0 or 1."""
    value_of = LAYOUTS[interleave][0]

    def load_pixels(raw, samples, stored, panel, valid):
        # grid: pixels of the block
        n, L, t = cuda.blockIdx.x, panel.shape[1], cuda.threadIdx.x
        line, sample, bad = n // samples, n % samples, cuda.shared.array(1, np.int32)
        if t == 0:
            bad[0] = 0
        cuda.syncthreads()
        for b in range(t, L, OF_PIXEL):
            value = value_of(raw, line, sample, stored.bands[b])
            if value == stored.nodata or value - value != 0.0:
                cuda.atomic.max(bad, 0, 1)
        cuda.syncthreads()
        for b in range(t, L, OF_PIXEL):
            value = value_of(raw, line, sample, stored.bands[b])
            panel[n, b] = fma(value, stored.gain[b], stored.offset[b]) if bad[0] == 0 else 0.0
        if t == 0:
            valid[n] = 1 if bad[0] == 0 else 0

    return cuda_kernel(load_pixels)


@functools.cache
def counting_kernel() -> Any:
    """Return the kernel that counts valid pixels, and marks in ``pairs`` (n,) pixels unlike the one before."""

    def count_pixels(panel, valid, begin, samples, each, pairs, counts):
        # grid: pixels of the block
        n, L, t, differs = cuda.blockIdx.x, panel.shape[1], cuda.threadIdx.x, cuda.shared.array(1, np.int32)
        if t == 0:
            differs[0] = 0
        cuda.syncthreads()
        line, sample = (begin + n) // samples, (begin + n) % samples
        if sample > 0 and line % each == 0 and valid[n] == 1 and valid[n - 1] == 1:
            for b in range(t, L, OF_PIXEL):
                if panel[n, b] != panel[n - 1, b]:
                    cuda.atomic.max(differs, 0, 1)
        cuda.syncthreads()
        if t == 0:
            pairs[n] = differs[0]
            cuda.atomic.add(counts, 0, valid[n])
            cuda.atomic.add(counts, 1, differs[0])

    return cuda_kernel(count_pixels)


@functools.cache
def adding_kernel(unit: int) -> Any:
    """Return the kernel that adds products of a block's pixels and of neighbours' differences to their units' sums."""

    def add_products(panel, pairs, begin, count, samples, each, sums):
        # grid: units of the block, tiles of the lower triangle, spectra and differences
        L, t, of_pairs = panel.shape[1], cuda.threadIdx.x, cuda.blockIdx.z == 1
        number = begin // unit + cuda.blockIdx.x
        first, last = max(begin, number * unit), min(begin + count, (number + 1) * unit)
        row = 0
        while (row + 1) * (row + 2) // 2 <= cuda.blockIdx.y:
            row += 1
        column = cuda.blockIdx.y - row * (row + 1) // 2
        place = sums[number % sums.shape[0], cuda.blockIdx.z]
        left = cuda.shared.array((CHUNK, TILE), np.float64)
        right = cuda.shared.array((CHUNK, TILE), np.float64)
        down, across = t // ACROSS, t % ACROSS
        total = cuda.local.array((TALL, WIDE), np.float64)
        for a in range(TALL):
            for c in range(WIDE):
                i, j = row * TILE + down + a * DOWN, column * TILE + across + c * ACROSS
                total[a, c] = place[i, j] if i < L and j < L else 0.0
        for s in range(first, last, CHUNK):
            line = s // samples
            if of_pairs and (line + each - 1) // each * each > (min(s + CHUNK, last) - 1) // samples:
                continue  # no line of these is looked at
            for k in range(t, CHUNK * TILE, OF_TILE):
                n, b = s + k // TILE, k % TILE
                i, j, n = row * TILE + b, column * TILE + b, n - begin
                counts = n < last - begin and (not of_pairs or pairs[n] == 1)
                before = counts and of_pairs
                y = panel[n, i] if counts and i < L else 0.0
                left[k // TILE, b] = y - panel[n - 1, i] if before and i < L else y
                y = panel[n, j] if counts and j < L else 0.0
                right[k // TILE, b] = y - panel[n - 1, j] if before and j < L else y
            cuda.syncthreads()
            for k in range(CHUNK):
                for a in range(TALL):
                    for c in range(WIDE):
                        total[a, c] = fma(left[k, down + a * DOWN], right[k, across + c * ACROSS], total[a, c])
            cuda.syncthreads()
        for a in range(TALL):
            for c in range(WIDE):
                i, j = row * TILE + down + a * DOWN, column * TILE + across + c * ACROSS
                if i < L and j < L:
                    place[i, j] = total[a, c]

    return cuda_kernel(add_products)


@functools.cache
def totalling_kernel(unit: int) -> Any:
    """Return the kernel that adds a block's pixels to the sums of spectra of their units."""

    def add_pixels(panel, begin, count, sums):
        b, number = cuda.blockIdx.x * OF_PIXEL + cuda.threadIdx.x, begin // unit + cuda.blockIdx.y
        first, last = max(begin, number * unit), min(begin + count, (number + 1) * unit)
        if b < panel.shape[1]:
            total = sums[number % sums.shape[0], b]
            for n in range(first - begin, last - begin):
                total += panel[n, b]
            sums[number % sums.shape[0], b] = total

    return cuda_kernel(add_pixels)


@functools.cache
def merging_kernel() -> Any:
    """Return the kernel that adds the sums of whole units to those of the scene, in order, and clears them."""

    def merge_units(first, last, sums, whole):
        for k in range(cuda.grid(1), whole.shape[0], cuda.gridsize(1)):
            total = whole[k]
            for number in range(first, last):
                total += sums[number % sums.shape[0], k]
                sums[number % sums.shape[0], k] = 0.0
            whole[k] = total

    return cuda_kernel(merge_units)


@functools.cache
def projecting_kernel() -> Any:
    """Return the kernel that writes ``Uᵀy − shift`` to columns of X (d, pixels) from ``first`` on, NaN where masked."""

    def project_pixels(panel, valid, count, U, shift, first, X):
        d = U.shape[1]
        for k in range(cuda.grid(1), count * d, cuda.gridsize(1)):
            n, j, total = k // d, k % d, 0.0
            for b in range(U.shape[0]):
                total = fma(U[b, j], panel[n, b], total)
            X[j, first + n] = total - shift[j] if valid[n] == 1 else np.nan

    return cuda_kernel(project_pixels)


@contextlib.contextmanager
def failing(device: Any) -> Iterator[None]:
    """Turn whatever the driver raises into `DeviceError`."""
    try:
        yield
    except Exception as error:
        said = str(error).strip().partition("\n")[0]
        raise DeviceError(f"{device.name}: failed: {said or type(error).__name__}") from error


class GpuSlot:
    """A block in page-locked memory, and its copy on the GPU with a stream."""

    def __init__(self, buffer: np.ndarray) -> None:
        self.buffer, self.there = buffer, cuda.device_array(buffer.size, np.uint8)
        self.stream, self.copied, self.ended = cuda.stream(), cuda.event(), cuda.event()
        self.lines, self.raw = slice(0), np.empty((0, 0, 0))


class GpuPass:
    """A pass over a scene whose blocks a GPU works at; the worker of a pipeline (`unmix.pipeline.stream`).

    Parameters
    ----------
    device : Cuda
        Of `unmix.devices`.
    scene : Scene
    stored : Stored
    blocks : BlockPlan
    """

    def __init__(self, device: Any, scene: Scene, stored: Stored, blocks: BlockPlan) -> None:
        self.device, self.cube, self.blocks = device, scene.cube, blocks
        pixels, L = blocks.lines_per_block * scene.cube.samples, len(stored.bands)
        size = blocks.lines_per_block * bytes_per_line(scene.cube)
        with failing(device):
            self.stored, self.load = to_gpu(stored), loading_kernel(scene.cube.interleave)
            self.slots = [GpuSlot(device.pinned.array(size, np.uint8)) for _ in range(blocks.slots)]
            self.panel, self.valid = cuda.device_array((pixels, L), np.float64), cuda.device_array(pixels, np.uint8)
            self.compute = cuda.stream()

    def run(self, work: Callable[[GpuSlot, int, int], None], finish: Callable[[GpuSlot], None]) -> None:
        """Read the scene: ``work(slot, begin, count)`` enqueues the work on a panel, ``finish`` takes the block."""
        self.work = work

        def read(slot: GpuSlot, lines: slice) -> None:
            slot.lines, slot.raw = lines, self.cube.read(lines, slot.buffer)

        stream(self.blocks, self.slots, read, self, finish, Seconds(), max(1, len(self.slots) // 2))
        self.device.pinned.keep()

    def submit(self, slot: GpuSlot) -> None:
        """Enqueue the copy of a block, its panel, and the work."""
        raw = np.ascontiguousarray(slot.raw)
        there = slot.there[: raw.nbytes].view(raw.dtype).reshape(raw.shape)
        begin, count = slot.lines.start * self.cube.samples, (slot.lines.stop - slot.lines.start) * self.cube.samples
        with failing(self.device):
            there.copy_to_device(raw, stream=slot.stream)
            slot.copied.record(slot.stream)
            slot.copied.wait(self.compute)
            self.load[count, OF_PIXEL, self.compute](there, self.cube.samples, self.stored, self.panel, self.valid)
            self.work(slot, begin, count)
            slot.ended.record(self.compute)

    def wait(self, slot: GpuSlot) -> None:
        """Wait for a block."""
        with failing(self.device):
            slot.ended.synchronize()


def bytes_needed(scene: Scene, L: int, blocks: BlockPlan, unit: int, held: int) -> int:
    """Return the bytes of GPU memory that a pass takes: with sums, or with projections of ``held`` bytes."""
    pixels = blocks.lines_per_block * scene.cube.samples
    sums = 16 * L * L * (pixels // unit + 3)
    return blocks.slots * blocks.lines_per_block * bytes_per_line(scene.cube) + (8 * L + 2) * pixels + (held or sums)


def sums_of(
    device: Any,
    scene: Scene,
    stored: Stored,
    blocks: BlockPlan,
    unit: int,
    each: int,
    look: Callable[[Any, slice], None],
) -> tuple[int, int, np.ndarray, np.ndarray, np.ndarray]:
    """Return the numbers of pixels and of pairs of a scene, and its sums (L,), (L, L), (L, L)."""
    cube, L = scene.cube, len(stored.bands)
    with device.gpu:
        some = GpuPass(device, scene, stored, blocks)
        units = -(-blocks.lines_per_block * cube.samples // unit) + 1
        products, totals = (cuda.to_device(np.zeros(shape)) for shape in ((units, 2, L, L), (units, L)))
        whole, whole_total = cuda.to_device(np.zeros(2 * L * L)), cuda.to_device(np.zeros(L))
        counts, pairs = cuda.to_device(np.zeros(2, np.int64)), cuda.device_array(len(some.valid), np.uint8)
        flat = products.reshape(units, 2 * L * L)
        side = -(-L // TILE)

        def work(slot: GpuSlot, begin: int, count: int) -> None:
            panel, valid, queue, samples, end = some.panel, some.valid, some.compute, cube.samples, begin + count
            parts = -(-end // unit) - begin // unit
            counting_kernel()[count, OF_PIXEL, queue](panel, valid, begin, samples, each, pairs, counts)
            tiles = side * (side + 1) // 2
            adding_kernel(unit)[(parts, tiles, 2), OF_TILE, queue](panel, pairs, begin, count, samples, each, products)
            totalling_kernel(unit)[(-(-L // OF_PIXEL), parts), OF_PIXEL, queue](panel, begin, count, totals)
            first, last = begin // unit, -(-end // unit) if end == scene.pixels else end // unit
            for sums, into in ((flat, whole), (totals, whole_total)):
                grid = -(-into.shape[0] // THREADS)
                merging_kernel()[grid, THREADS, queue](first, last, sums, into)

        some.run(work, lambda slot: look(slot.raw, slot.lines))
        pixels, differing = counts.copy_to_host().tolist()
        lower = np.tril(whole.copy_to_host().reshape(2, L, L))
        both = lower + np.tril(lower, -1).transpose(0, 2, 1)
        return pixels, differing, whole_total.copy_to_host(), both[0], both[1]


def project_all(device: Any, scenes: Sequence[tuple[Scene, Stored, Any]], U: np.ndarray, shift: np.ndarray) -> Any:
    """Project every pixel of scenes by U (L, d); return an array (d, pixels) on the GPU."""
    first = 0
    with device.gpu:
        with failing(device):
            X = cuda.device_array((U.shape[1], sum(scene.pixels for scene, *_ in scenes)), np.float64)
            U_there, shift_there = to_gpu(U), to_gpu(shift)
        for scene, stored, blocks in scenes:
            some = GpuPass(device, scene, stored, blocks)

            def work(slot: GpuSlot, begin: int, count: int, some: GpuPass = some, first: int = first) -> None:
                projecting_kernel()[-(-count * U.shape[1] // THREADS), THREADS, some.compute](
                    some.panel, some.valid, count, U_there, shift_there, first + begin, X
                )

            some.run(work, lambda slot: None)
            first += scene.pixels
    return X
