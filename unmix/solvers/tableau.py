"""The fast path on a GPU, up to 32 endmembers: a group of lanes a pixel, the swept tableau in their registers.

Three kernels a block. `project` makes ``f = Eᵀy`` with a thread a pixel, the pixels of a block staged through shared
memory. `search` finds the abundances: every lane of a group keeps a few rows of the tableau

    T = [[G, f], [fᵀ, ·]]  swept on the support (fcls: and on the row of ones, which never leaves and is not kept),

in which a pivot lets a column enter or leave; the last column then holds the abundances of the support and the duals of
the rest. A group takes a run of `RUN` neighbouring pixels: the first starts cold, each other from the tableau of the one
before, whose support costs it one product instead of a pivot a column. `certify` goes back to the pixel and proves the answer.

All of T is in registers because no index is a run-time value: the diagonal is kept apart, and the entry of a row in the
pivot's column is read off the pivot's row by symmetry. (Leaving ``d − s`` in the pivot's own place would save the test
for its column, and cost d in digits: eight where E is in radiance units.)
"""

import functools
from typing import Any

import numpy as np
from numba import float64, int32, int64

from ..certificate import MASKED, PARTLY, SOLVED
from .cuda import cuda, cuda_kernel
from .tile import NODATA
from .update import DEPENDENT

MOST_ENDMEMBERS = 32
# Pixels a group walks from one tableau to the next; cut at fixed samples of a line.
RUN = 8
THREADS = 64
# Bands staged at a time: 64 pixels of them in float64 take 16 KiB of shared memory.
CHUNK = 32
# A row that must leave outranks every row that may enter: duals are compared relative to |e|·|y|, so never above 1.
LEAVING = 1e9
# What a row is.
FREE, IN, BARRED, NO_ROW = 0, 1, 2, 3


def group_of(p: int) -> tuple[int, int]:
    """Lanes a pixel and rows a lane: several rows, since what bounds a pivot is reading its row from shared memory."""
    for most, lanes, rows in ((4, 2, 2), (8, 4, 2), (12, 4, 3), (16, 8, 2), (24, 8, 3), (32, 16, 2)):
        if p <= most:
            return lanes, rows
    raise ValueError(p)


@functools.cache
def project_kernel(p: int) -> Any:
    """``f = Eᵀy`` and ``|y|`` of every pixel, a thread each; and which pixels miss a band."""
    stride = THREADS + 1
    staged, held = CHUNK * stride, CHUNK * p  # sizes must be names: Numba takes no expression

    @cuda_kernel
    def project(raw, by_line, by_sample, by_band, staged_by_band, bands, gain, offset, nodata, E, least_scale,
                samples, pixels, f, scale, state):  # fmt: skip
        Y = cuda.shared.array(staged, float64)
        M = cuda.shared.array(held, float64)
        bad = cuda.shared.array(THREADS, int32)
        place = cuda.shared.array(THREADS, int64)
        total = cuda.local.array(p, float64)
        t = cuda.threadIdx.x
        first = cuda.blockIdx.x * THREADS
        L = E.shape[0]
        bad[t] = 0
        # Where each pixel begins, once: a 64-bit division for every value staged made 1.04 ms of 0.76 (p = 3, 111616).
        mine = min(first + t, pixels - 1)
        place[t] = mine // samples * by_line + mine % samples * by_sample
        square = 0.0
        for j in range(p):
            total[j] = 0.0
        for start in range(0, L, CHUNK):
            here = min(CHUNK, L - start)
            cuda.syncthreads()
            for i in range(t, CHUNK * THREADS, THREADS):
                # Neighbouring threads take neighbouring values as they are stored.
                s, b = (i // CHUNK, i % CHUNK) if staged_by_band else (i % THREADS, i // THREADS)
                value = 0.0
                if b < here and first + s < pixels:
                    stored = float(raw[place[s] + bands[start + b] * by_band])
                    if stored == nodata or stored - stored != 0.0:
                        cuda.atomic.add(bad, s, 1)
                    else:
                        value = stored * gain[start + b] + offset[start + b]
                Y[b * stride + s] = value
            for i in range(t, here * p, THREADS):
                M[i] = E[start + i // p, i % p]
            cuda.syncthreads()
            for b in range(here):
                y = Y[b * stride + t]
                square += y * y
                for j in range(p):
                    total[j] += M[b * p + j] * y
        n = first + t
        if n < pixels:
            good = bad[t] == 0
            state[n // samples, n % samples] = SOLVED if good else (MASKED if bad[t] == L else PARTLY)
            scale[n] = max(square**0.5, least_scale)
            for j in range(p):
                f[n, j] = total[j] if good else 0.0

    return project


@functools.cache
def search_kernel(p: int, sum_to_one: bool) -> Any:
    """Abundances of every pixel by pivots on the tableau."""
    lanes, rows = group_of(p)
    groups = THREADS // lanes
    # One endmember a column, the multiplier's column, the last column, 1/d and the reach; odd, for the banks.
    width = p + 4 + (p + 1) % 2
    pivot_rows, shape = groups * width, (rows, p)
    most_pivots = 6 * p + 20
    ones, last, over, reach_at = p, p + 1, p + 2, p + 3

    @cuda_kernel
    def search(G, norms, tolerance, samples, runs_a_line, runs, f, scale, a, steps):
        shared = cuda.shared.array(pivot_rows, float64)
        T = cuda.local.array(shape, float64)
        D = cuda.local.array(rows, float64)  # the diagonal
        V = cuda.local.array(rows, float64)  # the multiplier's column
        B = cuda.local.array(rows, float64)  # the last column: abundances in the support, duals elsewhere
        A = cuda.local.array(rows, float64)  # the feasible point
        own = cuda.local.array(rows, float64)  # f of this pixel
        length = cuda.local.array(rows, float64)
        c = cuda.local.array(rows, float64)
        keep = cuda.local.array(rows, float64)
        state = cuda.local.array(rows, int32)
        lane = cuda.threadIdx.x % lanes
        at = cuda.threadIdx.x // lanes * width
        group = cuda.blockIdx.x * groups + cuda.threadIdx.x // lanes
        line = group // runs_a_line
        start = group % runs_a_line * RUN
        for r in range(rows):
            i = lane * rows + r
            length[r] = norms[i] if i < p else 1.0
            state[r] = FREE if i < p else NO_ROW
            A[r] = 0.0
            V[r] = 0.0
            D[r] = G[i, i] if i < p else 0.0
        # Wherever T is touched, columns are the outer loop: only so are both loops small enough to be unrolled, and an
        # array that is indexed by constants alone stays in registers.
        for j in range(p):
            for r in range(rows):
                T[r, j] = G[min(lane * rows + r, p - 1), j]
        for turn in range(RUN):
            sample = start + turn
            active = group < runs and sample < samples
            n = line * samples + sample
            size = scale[n] if active else 1.0
            for r in range(rows):
                i = lane * rows + r
                own[r] = f[n, i] if active and i < p else 0.0
            if sum_to_one and turn == 0:
                # The best single endmember, from which the tableau swept on it and on the ones can be written down.
                key = 0
                for r in range(rows):
                    i = lane * rows + r
                    if i < p:
                        # Positive, and largest where |e|² − 2f is least.
                        value = (2.0 * own[r] - D[r]) / (size * size)
                        rank = 2.0 + value / (1.0 + abs(value))
                        key = max(key, (cuda.libdevice.float_as_int(np.float32(rank)) & -64) | (63 - i))
                offset = lanes // 2
                while offset > 0:
                    key = max(key, cuda.shfl_xor_sync(0xFFFFFFFF, key, offset))
                    offset //= 2
                k = 63 - (key & 63)
                g = G[k, k]
                for r in range(rows):
                    i = lane * rows + r
                    c[r] = G[min(i, p - 1), k]
                    if i < p:
                        V[r] = -1.0 if i == k else c[r] - g
                        D[r] = 0.0 if i == k else D[r] - 2.0 * c[r] + g
                        state[r] = IN if i == k else FREE
                for j in range(p):
                    across = G[k, j]
                    for r in range(rows):
                        i = lane * rows + r
                        T[r, j] = 1.0 if i == k or j == k else T[r, j] - c[r] - across + g
            # The last column of this pixel for the support at hand: b = f (free rows) − T f (support) − T·ones.
            cuda.syncwarp()
            for r in range(rows):
                i = lane * rows + r
                if i < p:
                    shared[at + i] = own[r] if state[r] == IN else 0.0
            cuda.syncwarp()
            for r in range(rows):
                i = lane * rows + r
                mine = own[r] if state[r] == IN else 0.0
                B[r] = own[r] - mine - V[r] - D[r] * mine
                A[r] = 0.0
                if state[r] == BARRED:
                    state[r] = FREE
            for j in range(p):
                across = shared[at + j]
                for r in range(rows):
                    B[r] -= T[r, j] * (across if lane * rows + r != j else 0.0)
            cuda.syncwarp()
            shedding = True
            stuck = False
            entered = -1
            pivots = 0
            while True:
                key = 0
                for r in range(rows):
                    value = 0.0
                    if state[r] == IN and B[r] <= 0.0:
                        if shedding:
                            value = LEAVING * (1.0 - B[r] / (1.0 - B[r]))
                        else:
                            value = LEAVING * (1.0 + (-B[r] / (A[r] - B[r]) if A[r] > B[r] else 1.0))
                    elif state[r] == FREE:
                        value = B[r] / (length[r] * size)
                        if value <= tolerance:
                            value = 0.0
                    if value > 0.0:
                        bits = cuda.libdevice.float_as_int(np.float32(value))
                        key = max(key, (bits & -64) | (63 - (lane * rows + r)))
                offset = lanes // 2
                while offset > 0:
                    key = max(key, cuda.shfl_xor_sync(0xFFFFFFFF, key, offset))
                    offset //= 2
                if key == 0 or pivots >= most_pivots:
                    if active:
                        for r in range(rows):
                            i = lane * rows + r
                            if i < p:
                                a[n, i] = max(B[r], 0.0) if state[r] == IN else 0.0
                        if lane == 0:
                            steps[line, sample] = pivots
                    active = False
                if not cuda.any_sync(0xFFFFFFFF, active):
                    break
                k = 63 - (key & 63)
                leaving = key >= 0x4E000000  # the bits of 2^29, between 1 and LEAVING
                sign = -1.0 if leaving else 1.0
                if active and not leaving:
                    # All of the support is positive: a success. Barred rows may try again.
                    shedding = False
                    for r in range(rows):
                        A[r] = B[r] if state[r] == IN else 0.0
                        if state[r] == BARRED and not stuck:
                            state[r] = FREE
                    stuck = False
                mine_is_pivot = active and k // rows == lane
                if mine_is_pivot:
                    for j in range(p):
                        for r in range(rows):
                            if k == lane * rows + r:
                                shared[at + j] = T[r, j]
                    for r in range(rows):
                        if k == lane * rows + r:
                            d = D[r]
                            shared[at + ones] = V[r]
                            shared[at + last] = B[r]
                            # A column that depends on the support may not enter: no pivot.
                            sound = leaving or d > DEPENDENT * length[r] * length[r]
                            shared[at + over] = 1.0 / d if sound else 0.0
                            shared[at + reach_at] = A[r] / (A[r] - B[r]) if A[r] > B[r] else 0.0
                cuda.syncwarp()
                if active:
                    inverse = shared[at + over]
                    reach = shared[at + reach_at]
                    stuck_now = leaving and k == entered and not shedding
                    for r in range(rows):
                        i = lane * rows + r
                        if leaving and not shedding and state[r] == IN:
                            A[r] = max(A[r] + reach * (B[r] - A[r]), 0.0)
                        across = shared[at + min(i, p - 1)]
                        keep[r] = 1.0
                        c[r] = across * inverse
                        if i == k and inverse != 0.0:
                            keep[r] = sign * inverse
                            c[r] = 0.0
                        D[r] = D[r] - c[r] * across
                        if i == k:
                            A[r] = 0.0
                            D[r] = -inverse if inverse != 0.0 else D[r]
                            state[r] = (
                                (BARRED if stuck_now else FREE) if leaving else (IN if inverse != 0.0 else BARRED)
                            )
                        V[r] = V[r] * keep[r] - c[r] * shared[at + ones]
                        B[r] = B[r] * keep[r] - c[r] * shared[at + last]
                    for j in range(p):
                        across = shared[at + j]
                        for r in range(rows):
                            T[r, j] = sign * c[r] if j == k else T[r, j] * keep[r] - c[r] * across
                    if leaving:
                        stuck = stuck_now
                    else:
                        entered = k
                    pivots += 1
                cuda.syncwarp()

    return search


@functools.cache
def certify_kernel(p: int, sum_to_one: bool) -> Any:
    """The certificate of every pixel, a thread each, from the stored pixel, E and the abundances alone.

    The definition is `unmix.certificate.certify`'s; the tests hold the two against each other.
    """
    stride = THREADS + 1
    staged, held = CHUNK * stride, CHUNK * p  # sizes must be names: Numba takes no expression

    @cuda_kernel
    def certify(raw, by_line, by_sample, by_band, staged_by_band, bands, gain, offset, E, norms, curvature, least_scale,
                samples, pixels, a, state, abundance, rmse, kappa, delta, steps, residual):  # fmt: skip
        Y = cuda.shared.array(staged, float64)
        M = cuda.shared.array(held, float64)
        place = cuda.shared.array(THREADS, int64)
        x = cuda.local.array(p, float64)
        w = cuda.local.array(p, float64)
        t = cuda.threadIdx.x
        first = cuda.blockIdx.x * THREADS
        n = first + t
        L = E.shape[0]
        line, sample = min(n, pixels - 1) // samples, min(n, pixels - 1) % samples
        place[t] = line * by_line + sample * by_sample
        good = n < pixels and state[line, sample] == SOLVED
        total = 0.0
        for j in range(p):
            x[j] = a[n, j] if good else 0.0
            w[j] = 0.0
            total += x[j]
        square = 0.0
        length = 0.0
        for start in range(0, L, CHUNK):
            here = min(CHUNK, L - start)
            cuda.syncthreads()
            for i in range(t, CHUNK * THREADS, THREADS):
                s, b = (i // CHUNK, i % CHUNK) if staged_by_band else (i % THREADS, i // THREADS)
                if b < here and first + s < pixels:
                    stored = float(raw[place[s] + bands[start + b] * by_band])
                    Y[b * stride + s] = stored * gain[start + b] + offset[start + b]
            for i in range(t, here * p, THREADS):
                M[i] = E[start + i // p, i % p]
            cuda.syncthreads()
            if good:
                for b in range(here):
                    y = Y[b * stride + t]
                    length += y * y
                    for j in range(p):
                        y -= M[b * p + j] * x[j]
                    square += y * y
                    for j in range(p):
                        w[j] += M[b * p + j] * y
                    if residual.shape[0] > 0:
                        residual[line, start + b, sample] = y
            elif n < pixels and residual.shape[0] > 0:
                for b in range(here):
                    residual[line, start + b, sample] = NODATA
        if n >= pixels:
            return
        size = max(length**0.5, least_scale)
        multiplier = 0.0
        worst = 0.0
        if sum_to_one:
            for j in range(p):
                multiplier += x[j] * w[j]
            multiplier = multiplier / total if total != 0.0 else 0.0
            worst = abs(total - 1.0)
        violation = 0.0
        for j in range(p):
            v = w[j] - multiplier
            worst = max(worst, -x[j])
            if x[j] <= 0.0:
                v = max(v, 0.0)
            violation += v * v
            if v != 0.0:
                worst = max(worst, abs(v) / (norms[j] * size)) if size > 0.0 else np.inf
        if violation - violation != 0.0 or size - size != 0.0:
            worst = np.inf  # a NaN compares with nothing, and an overflow divides everything to zero
        for j in range(p):
            abundance[line, j, sample] = x[j] if good else NODATA
        rmse[line, sample] = (square / L) ** 0.5 if good else NODATA
        kappa[line, sample] = worst if good else NODATA
        delta[line, sample] = violation**0.5 / curvature if good else NODATA
        if not good:
            steps[line, sample] = int(NODATA)

    return certify


class Tableau:
    """The three kernels as one solver of blocks; see `unmix.solvers.cuda.General` for the interface."""

    def __init__(self, problem: Any, pixels: int) -> None:
        self.p = problem.E.shape[1]
        sum_to_one = bool(problem.method.sum_to_one)
        self.layout = problem.layout
        self.kernels = project_kernel(self.p), search_kernel(self.p, sum_to_one), certify_kernel(self.p, sum_to_one)
        self.bands, self.gain, self.offset, self.nodata = (
            cuda.to_device(value) if isinstance(value, np.ndarray) else value for value in problem.stored()
        )
        self.E, self.G, self.norms = (cuda.to_device(value) for value in (problem.E, problem.G, problem.norms))
        self.least_scale = float(problem.norms.max()) if sum_to_one else 0.0
        self.curvature = problem.curvature
        self.tolerance = problem.dual_tolerance
        self.f = cuda.device_array((pixels, self.p), np.float64)
        self.a = cuda.device_array((pixels, self.p), np.float64)
        self.scale = cuda.device_array(pixels, np.float64)

    @staticmethod
    def serves(problem: Any) -> bool:
        """Whether this path is right for the problem."""
        return problem.pixel == "active_set" and problem.E.shape[1] <= MOST_ENDMEMBERS

    @staticmethod
    def scratch_bytes(problem: Any, pixels: int) -> int:
        """GPU memory beside the blocks."""
        return 8 * pixels * (2 * problem.E.shape[1] + 1)

    def launch(self, raw: Any, results: dict[str, Any], stream: Any) -> None:
        """Solve a block that is on the GPU."""
        lines, samples = results["rmse"].shape
        pixels = lines * samples
        bands = raw.size // pixels
        by_line, by_sample, by_band = {
            "bip": (samples * bands, bands, 1),
            "bil": (samples * bands, 1, samples),
            "bsq": (samples, 1, pixels),
        }[self.layout]
        where = (raw.reshape(raw.size), by_line, by_sample, by_band, self.layout == "bip")
        project, search, certify = self.kernels
        blocks = -(-pixels // THREADS)
        project[blocks, THREADS, stream](
            *where, self.bands, self.gain, self.offset, self.nodata, self.E, self.least_scale, samples, pixels,
            self.f, self.scale, results["state"],
        )  # fmt: skip
        runs_a_line = -(-samples // RUN)
        groups = THREADS // group_of(self.p)[0]
        search[-(-lines * runs_a_line // groups), THREADS, stream](
            self.G,
            self.norms,
            self.tolerance,
            samples,
            runs_a_line,
            lines * runs_a_line,
            self.f,
            self.scale,
            self.a,
            results["steps"],
        )
        certify[blocks, THREADS, stream](
            *where, self.bands, self.gain, self.offset, self.E, self.norms, self.curvature, self.least_scale,
            samples, pixels, self.a, results["state"], results["abundance"], results["rmse"], results["kappa"],
            results["delta"], results["steps"], results["residual"],
        )  # fmt: skip
