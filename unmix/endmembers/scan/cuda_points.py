"""Hold the projections of all pixels in the memory of a GPU, and search them there, to the same bits as on a CPU.

A CPU's sums are products that are rounded, then added. Compilers for GPUs fuse the two, so a product is a fused sum
with 0 here, which is the product rounded.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ...compiled.cuda import cuda, cuda_kernel, on_gpu, to_gpu
from ...compiled.jit import ONE
from .cuda import failing
from .points import Points, largest_of
from .searches import BINS, LOW, PER_UNIT, columns_of

# Threads of a block, and blocks: two for each of a large GPU's processors.
THREADS, BLOCKS = 256, 264
# Most numbers of a pixel that are searched here: as many lie in a thread's own memory.
MOST_NUMBERS = 128
# Pixels that come to the host at a time.
ROWS = 2**17
# Pixels for which there is room at first where the largest are looked for, for each that is wanted, and beside them.
ROOM, MORE_ROOM = 4, 2**14
fma = ONE.fma


@on_gpu
def times(a, b):
    """Return the product, rounded before anything is added."""
    return fma(a, b, 0.0)


@on_gpu
def value_at(X, n, F, k):
    """Return ``fᵀ(x, 1)`` of column n of X (d, pixels) and column k of F (d + 1, p)."""
    d = X.shape[0]
    total = F[d, k]
    for j in range(d):
        total = total + times(F[j, k], X[j, n])
    return total


@on_gpu
def keep_largest(best, most, k, places, values):
    """Write the largest value of a block's threads and its place, the first of equal ones, to [k, block]."""
    t, where = cuda.threadIdx.x, cuda.shared.array(THREADS, np.int64)
    much = cuda.shared.array(THREADS, np.float64)
    where[t], much[t] = best, most
    half = THREADS // 2
    while half > 0:
        cuda.syncthreads()
        if t < half and (much[t + half] > much[t] or (much[t + half] == much[t] and where[t + half] < where[t])):
            where[t], much[t] = where[t + half], much[t + half]
        half //= 2
    if t == 0:
        places[k, cuda.blockIdx.x], values[k, cuda.blockIdx.x] = where[0], much[0]


@functools.cache
def farthest_kernel() -> Any:
    """Return the kernel of `Points.farthest_each`, of parts of the pixels."""

    def find_farthest(X, F, places, values):
        # grid: parts of the pixels, columns of F
        k, first, best, most = cuda.blockIdx.y, cuda.blockIdx.x * THREADS + cuda.threadIdx.x, np.int64(0), -1.0
        for n in range(first, X.shape[1], cuda.gridDim.x * THREADS):
            value = abs(value_at(X, n, F, k))
            if value > most:
                best, most = np.int64(n), value
        keep_largest(best, most, k, places, values)

    return cuda_kernel(find_farthest)


@functools.cache
def residual_kernel() -> Any:
    """Return the kernel of `Points.largest_residual`, of parts of the pixels."""

    def find_residual(X, constant, Q, places, values):
        # grid: parts of the pixels
        d, best, most = X.shape[0], np.int64(-1), -1.0
        rest = cuda.local.array(MOST_NUMBERS, np.float64)
        for n in range(cuda.grid(1), X.shape[1], cuda.gridsize(1)):
            for j in range(d):
                rest[j] = X[j, n]
            rest[d] = constant
            for i in range(Q.shape[0]):
                share = 0.0
                for j in range(d + 1):
                    share = share + times(Q[i, j], rest[j])
                for j in range(d + 1):
                    rest[j] = rest[j] - times(share, Q[i, j])
            square = 0.0
            for j in range(d + 1):
                square = square + times(rest[j], rest[j])
            if square > most:
                best, most = np.int64(n), square
        keep_largest(best, most, 0, places, values)

    return cuda_kernel(find_residual)


@functools.cache
def use_kernel() -> Any:
    """Return the kernel of `Points.count_use`."""

    def count_pixels(X, F, limits, bins, leads, beyond, both):
        p = F.shape[1]
        for n in range(cuda.grid(1), X.shape[1], cuda.gridsize(1)):
            if X[0, n] != X[0, n]:
                continue
            leader, most, past, least = 0, -np.inf, 0, np.inf
            for k in range(p):
                b = value_at(X, n, F, k)
                cuda.atomic.add(bins, (k, min(max(int((b - LOW) * PER_UNIT), 0), BINS - 1)), 1)
                if b > most:
                    leader, most = k, b
                if b / limits[k] < least:
                    past, least = k, b / limits[k]
            cuda.atomic.add(both, 0, 1)
            cuda.atomic.add(leads, leader, 1)
            if least < -1.0:
                cuda.atomic.add(both, 1, 1)
                cuda.atomic.add(beyond, past, 1)

    return cuda_kernel(count_pixels)


@functools.cache
def peaks_kernel() -> Any:
    """Return the kernel that writes the largest ``fᵀ(x, 1)`` of each thread's pixels to ``peaks`` (p, threads)."""

    def find_peaks(X, F, peaks):
        # grid: parts of the pixels, columns of F
        k, first, most = cuda.blockIdx.y, cuda.blockIdx.x * THREADS + cuda.threadIdx.x, -np.inf
        for n in range(first, X.shape[1], cuda.gridDim.x * THREADS):
            most = max(most, value_at(X, n, F, k)) if X[0, n] == X[0, n] else most
        peaks[k, first] = most

    return cuda_kernel(find_peaks)


@functools.cache
def reaching_kernel() -> Any:
    """Return the kernel that lists pixels with ``fᵀ(x, 1)`` ≥ ``least`` (p,), in any order; ``found`` counts them."""

    def list_pixels(X, F, least, places, values, found):
        # grid: parts of the pixels, columns of F
        k = cuda.blockIdx.y
        for n in range(cuda.blockIdx.x * THREADS + cuda.threadIdx.x, X.shape[1], cuda.gridDim.x * THREADS):
            value = value_at(X, n, F, k)
            if value >= least[k]:
                at = cuda.atomic.add(found, k, 1)
                if at < places.shape[1]:
                    places[k, at], values[k, at] = n, value

    return cuda_kernel(list_pixels)


@functools.cache
def normalising_kernel() -> Any:
    """Return the kernel of `unmix.endmembers.scan.searches.normalise`."""

    def normalise(X, u):
        for n in range(cuda.grid(1), X.shape[1], cuda.gridsize(1)):
            total = 0.0
            for j in range(X.shape[0]):
                total = total + times(u[j], X[j, n])
            for j in range(X.shape[0]):
                X[j, n] = X[j, n] / total if total > 0.0 else np.nan

    return cuda_kernel(normalise)


@functools.cache
def rows_kernel() -> Any:
    """Return the kernel that writes every n-th column of X, from ``first`` on, to rows."""

    def take_rows(X, first, step, rows):
        for k in range(cuda.grid(1), rows.size, cuda.gridsize(1)):
            rows[k // X.shape[0], k % X.shape[0]] = X[k % X.shape[0], first + step * (k // X.shape[0])]

    return cuda_kernel(take_rows)


@functools.cache
def chosen_kernel() -> Any:
    """Return the kernel that writes some columns of X to rows."""

    def take_chosen(X, places, rows):
        for k in range(cuda.grid(1), rows.size, cuda.gridsize(1)):
            rows[k // X.shape[0], k % X.shape[0]] = X[k % X.shape[0], places[k // X.shape[0]]]

    return cuda_kernel(take_chosen)


class GpuPoints(Points):
    """The projected pixels as columns of X (d, pixels) on a GPU; ``budget`` is the bytes of a copy in host memory."""

    def __init__(self, device: Any, X: Any, budget: int, threads: int) -> None:
        self.device, self.X, self.budget, self.threads = device, X, budget, threads
        self.d, self.pixels = X.shape
        self.blocks = min(BLOCKS, -(-self.pixels // THREADS))
        self.known: dict[int, np.ndarray] = {}

    @functools.cached_property
    def home(self) -> Points:
        """The same pixels in memory, or in a scratch file."""
        points = Points(self.pixels, self.d, self.budget, self.threads)
        for first in range(0, self.pixels, ROWS):
            points.put(first, self.taken(first, min(ROWS, self.pixels - first)))
        return points

    @property
    def pool(self) -> ThreadPoolExecutor:  # type: ignore[override]
        """Threads that search them there."""
        return self.home.pool

    def taken(self, first: int, count: int, step: int = 1) -> np.ndarray:
        """Return every n-th row (count, d) from the first one on, from the GPU."""
        with self.device.gpu, failing(self.device):
            rows = cuda.device_array((count, self.d), np.float64)
            rows_kernel()[min(BLOCKS, -(-rows.size // THREADS)), THREADS](self.X, first, step, rows)
            taken: np.ndarray = rows.copy_to_host()
        return taken

    def rows(self, places: Sequence[int]) -> np.ndarray:
        """See `Points.rows`."""
        with self.device.gpu, failing(self.device):
            rows = cuda.device_array((len(places), self.d), np.float64)
            chosen_kernel()[min(BLOCKS, -(-rows.size // THREADS)), THREADS](self.X, to_gpu(np.array(places)), rows)
            taken: np.ndarray = rows.copy_to_host()
        return taken

    def thinned(self, step: int) -> np.ndarray:
        """See `Points.thinned`."""
        rows = self.taken(0, -(-self.pixels // step), step)
        return rows[~np.isnan(rows[:, 0])]

    def pieces(self) -> Iterator[tuple[int, np.ndarray]]:
        """See `Points.pieces`."""
        return self.home.pieces()

    def parts(self) -> Iterator[tuple[int, Callable[[], np.ndarray]]]:
        """See `Points.parts`."""
        return self.home.parts()

    def row(self, n: int) -> np.ndarray:
        """See `Points.row`."""
        if n not in self.known:
            self.known[n] = self.taken(n, 1)[0]
        return self.known[n]

    def searched(self, kernel: Any, count: int, *given: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the places and values (count,) of the largest of what a kernel finds in each block."""
        shape = count, self.blocks
        with self.device.gpu, failing(self.device):
            places, values = cuda.device_array(shape, np.int64), cuda.device_array(shape, np.float64)
            kernel[shape[::-1], THREADS](self.X, *map(to_gpu, given), places, values)
            where, much = places.copy_to_host(), values.copy_to_host()
        most = much.max(axis=1)
        return np.where(much == most[:, None], where, self.pixels).min(axis=1), most

    def farthest_each(self, F: np.ndarray) -> tuple[list[int], list[float]]:
        """See `Points.farthest_each`."""
        places, values = self.searched(farthest_kernel(), F.shape[1], F)
        return places.tolist(), values.tolist()

    def largest_residual(self, constant: float, Q: np.ndarray) -> tuple[int, float]:
        """See `Points.largest_residual`."""
        if self.d >= MOST_NUMBERS:
            return super().largest_residual(constant, Q)
        places, values = self.searched(residual_kernel(), 1, constant, Q)
        return int(places[0]), float(values[0])

    def count_use(self, inverse: np.ndarray, limits: np.ndarray) -> tuple[np.ndarray, ...]:
        """See `Points.count_use`."""
        p = len(inverse)
        with self.device.gpu, failing(self.device):
            counted = [cuda.to_device(np.zeros(shape, np.int64)) for shape in ((p, BINS), p, p, 2)]
            use_kernel()[self.blocks, THREADS](self.X, to_gpu(columns_of(inverse)), to_gpu(limits), *counted)
            return tuple(one.copy_to_host() for one in counted)

    def largest_along(self, F: np.ndarray, count: int) -> list[list[int]]:
        """See `Points.largest_along`: of pixels that reach what as many threads as are wanted have reached."""
        p = F.shape[1]
        with self.device.gpu, failing(self.device):
            there, peaks = to_gpu(F), cuda.device_array((p, self.blocks * THREADS), np.float64)
            peaks_kernel()[(self.blocks, p), THREADS](self.X, there, peaks)
            ordered = np.sort(peaks.copy_to_host(), axis=1)
            least = ordered[:, -count] if count <= ordered.shape[1] else np.full(p, -np.inf)
            room = min(self.pixels, ROOM * count + MORE_ROOM)
            while True:
                found = cuda.to_device(np.zeros(p, np.int64))
                places, values = cuda.device_array((p, room), np.int64), cuda.device_array((p, room), np.float64)
                reaching_kernel()[(self.blocks, p), THREADS](self.X, there, to_gpu(least), places, values, found)
                numbers = found.copy_to_host()
                if numbers.max() <= room:
                    break
                room = int(numbers.max())
            where, much = places.copy_to_host(), values.copy_to_host()
        largest = []
        for k, n in enumerate(numbers.tolist()):
            order = np.argsort(where[k, :n])
            largest.append(where[k, order][largest_of(much[k, order], count)].tolist())
        return largest

    def close(self) -> None:
        """Free the memory."""
        self.X = None
        if "home" in self.__dict__:
            self.home.close()


def held_points(device: Any, X: Any, views: Sequence[Any], budget: int, threads: int) -> list[Points]:
    """Return X (d, pixels), which lies on a GPU, as the pixels in each of some views, `unmix.endmembers.scan.View`."""
    found: list[Points] = []
    first = 0
    for view in views:
        last = first + view.U.shape[1]
        some = GpuPoints(device, X[first:last], budget, threads)
        if view.centre is not None:
            with device.gpu, failing(device):
                normalising_kernel()[some.blocks, THREADS](some.X, to_gpu(view.centre))
        found.append(some)
        first = last
    return found
