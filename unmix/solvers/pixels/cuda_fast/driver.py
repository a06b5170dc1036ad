"""The fast path on a GPU, up to 32 endmembers: three kernels a block, in each of which a warp takes neighbouring pixels.

`project` makes ``Eᵀy`` of the stored pixels, `search` finds the abundances, and `certify` goes back to the pixels and
proves them. (One kernel for all three crosses the GPU's memory once instead of twice, but holds the registers of the
greediest, so that 8 warps stand where 24 could: 4.8 ms instead of 2.4 for 4 million pixels at p = 3.)
"""

import functools
import math
from typing import Any

import numpy as np
from numba import float64, int32, int64

from ....certificate import GAP_WEIGHT, MASKED, PARTLY, ROUNDING, SOLVED, UNDERFLOW
from ....compiled.cuda import ALL_LANES, cuda, cuda_kernel, on_gpu
from ..tile import NODATA, Results
from .active_set import MOST_ENDMEMBERS, SHORT_FROM, group_of, search_function, shared_doubles
from .projection import (
    PIXELS,
    ROWS,
    FastPlan,
    FastWork,
    StoredBlock,
    by_lane,
    chunks_in_use,
    lane_order,
    mean_lane,
    most_of_quad,
    over_quad,
    spectra_functions,
)
from .tally import Counter

WARPS = 2
# Parts of a block that are solved side by side, so that the end of one part's kernel is another's beginning: 111 000 pixels on
# an H100 from 0.101 / 0.203 / 0.252 / 0.469 ms to 0.099 / 0.183 / 0.236 / 0.411 (p = 3 / 9 / 15 / 25), 4 million the same.
PARTS = 4
# Registers a thread, which decide how many warps stand ready. Against no bound, 4 million pixels, H200: search from 2.6 ms
# to 2.0 at p = 9, certify from 2.4 to 1.9; at p = 25 certify from 4.2 to 3.7, while the search has no register to spare.
FEW = 16
SEARCH_REGISTERS = {True: 128, False: None}
CERTIFY_REGISTERS = {True: 96, False: 128}
# The first generation with matrix products in float64, and the first with the larger one.
LEAST_CAPABILITY, LARGER_PRODUCT = (8, 0), (9, 0)


@functools.cache
def project_kernel(
    p: int, kind: str, wide: bool, plain: bool, centred: bool, holes: bool, gaps: bool, half: bool
) -> Any:
    """``f = Eᵀy`` and the scale of every pixel (0 for one that misses a value); `spectra_functions` has the case."""
    project, _ = spectra_functions(p, kind, wide, plain, centred, holes, gaps, half, False)
    step, lane_of_mean = np.dtype(kind).itemsize if wide else 1, mean_lane(p)

    @cuda_kernel
    def project_block(stored, plan, work, state):
        offsets = cuda.local.array(ROWS, int64)
        squares = cuda.local.array(ROWS, float64)
        means = cuda.local.array(ROWS, float64)
        lost = cuda.local.array(ROWS, int32)
        lines, samples = state.shape
        line, start = stretch_of(samples, PIXELS)
        if line >= lines:
            return
        q, g = cuda.laneid % 4, cuda.laneid // 4
        for row in range(ROWS):
            sample = min(start + 8 * row + g, samples - 1)
            offsets[row] = (stored.address if wide else 0) + (line * stored.by_line + sample * stored.by_sample) * step
        first = line * samples + start
        project(stored, plan, offsets, squares, means, lost, work.a, first, samples - start)
        for row in range(ROWS):
            square, missing = over_quad(squares[row]), over_quad(lost[row])
            whole = square
            if centred:  # |y|² = |y − ē|² + 2 ēᵀ(y − ē) + |ē|²
                whole += 2.0 * cuda.shfl_sync(ALL_LANES, means[row], 4 * g + lane_of_mean) + plan.mean_square
            sample = start + 8 * row + g
            if q == 0 and sample < samples:
                n = first + 8 * row + g
                work.size[n] = math.sqrt(square)
                work.length[n] = math.sqrt(max(whole, 0.0))
                # A pixel of zeros has a scale too: an endmember's, or the least number above 0.
                work.scale[n] = max(work.size[n], plan.least_scale) if missing == 0 else 0.0
                state[line, sample] = SOLVED if missing == 0 else (MASKED if missing == plan.L else PARTLY)

    return project_block


@functools.cache
def search_kernel(p: int, sum_to_one: bool, short: bool) -> Any:
    """Abundances of every pixel in place of its ``Eᵀy``."""
    search = search_function(p, sum_to_one, short)
    stretch = group_of(p, short).pixels
    doubles, doubles_of_warp = WARPS * shared_doubles(p), shared_doubles(p)

    @functools.partial(cuda_kernel, registers=SEARCH_REGISTERS[p <= FEW])
    def search_block(plan, work, steps):
        shared = cuda.shared.array(doubles, float64)
        lines, samples = steps.shape
        line, start = stretch_of(samples, stretch)
        if line < lines:
            search(plan.U, plan.norms, plan.weights, plan.tolerance, work.a, work.scale, shared,
                   cuda.threadIdx.x // 32 * doubles_of_warp, steps, line, start, samples)  # fmt: skip

    return search_block


@functools.cache
def certify_kernel(
    p: int,
    sum_to_one: bool,
    kind: str,
    wide: bool,
    plain: bool,
    centred: bool,
    holes: bool,
    half: bool,
    residual_too: bool,
) -> Any:
    """The certificate of every pixel, from the stored pixel, E and the abundances alone, and the results."""
    _, certify = spectra_functions(p, kind, wide, plain, centred, holes, False, half, residual_too)
    verdict = verdict_function(p, sum_to_one)
    duals_shape = -(-p // 8), 4
    step = np.dtype(kind).itemsize if wide else 1

    @functools.partial(cuda_kernel, registers=CERTIFY_REGISTERS[p <= FEW])
    def certify_block(stored, plan, work, results):
        offsets = cuda.local.array(ROWS, int64)
        squares = cuda.local.array(ROWS, float64)
        good = cuda.local.array(ROWS, int32)
        duals = cuda.local.array(duals_shape, float64)
        lines, samples = results.state.shape
        line, start = stretch_of(samples, PIXELS)
        if line >= lines:
            return
        lane = cuda.laneid
        q, g = lane % 4, lane // 4
        for row in range(ROWS):
            sample = min(start + 8 * row + g, samples - 1)
            offsets[row] = (stored.address if wide else 0) + (line * stored.by_line + sample * stored.by_sample) * step
            good[row] = results.state[line, sample] == SOLVED
        first = line * samples + start
        certify(
            stored, plan, offsets, work.a, first, samples - start, squares, duals, results.residual, line, start, good
        )
        for row in range(ROWS):
            sample = start + 8 * row + g
            left = math.sqrt(over_quad(squares[row]))
            n = min(first + 8 * row + g, work.a.shape[0] - 1)
            worst, far = verdict(work.a, n, duals, row, plan, work.size[n], left)
            if q == 0 and sample < samples:
                fine = good[row] != 0
                results.rmse[line, sample] = left / math.sqrt(float(plan.L)) if fine else NODATA
                whole = work.length[n]
                results.relative[line, sample] = left / whole if fine and whole > 0.0 else -1.0
                results.kappa[line, sample] = worst if fine else NODATA
                results.delta[line, sample] = far if fine else NODATA
                if not fine:
                    results.steps[line, sample] = int(NODATA)
        if lane < PIXELS and start + lane < samples:
            fine = results.state[line, start + lane] == SOLVED
            for j in range(p):
                results.abundance[line, j, start + lane] = work.a[first + lane, j] if fine else NODATA

    return certify_block


@on_gpu
def stretch_of(samples, pixels):
    """Line and first sample of this warp's stretch of ``pixels`` neighbouring pixels."""
    stretches = (samples + pixels - 1) // pixels
    warp = cuda.blockIdx.x * WARPS + cuda.threadIdx.x // 32
    return warp // stretches, warp % stretches * pixels


def verdict_function(p: int, sum_to_one: bool) -> Any:
    """``verdict``: the certificate of a pixel from its duals, which lie with four lanes.

    The definition is `unmix.certificate.certify`'s; the tests hold the two against each other.
    """
    blocks = -(-p // 8)

    @on_gpu
    def verdict(a, n, duals, row, plan, length, left):
        """κ and δ of pixel n, the same in its four lanes."""
        q = cuda.laneid % 4
        half = 2 * row
        total = 0.0
        reach = 0.0
        members = 0.0
        multiplier = 0.0
        for m in range(blocks):
            for e in range(2):
                j = 8 * m + 2 * q + e
                x = a[n, min(j, p - 1)] if j < p else 0.0
                reach += abs(x) * plan.sizes[min(j, p - 1)]
                members += 0.0 if x == 0.0 else 1.0
                if sum_to_one:
                    total += x
                    multiplier += x * duals[m, half + e]
        reach = over_quad(reach)
        members = over_quad(members)
        scale = max(length, plan.longest)
        worst = 0.0
        apart = 0.0
        if sum_to_one:
            total = over_quad(total)
            multiplier = over_quad(multiplier)
            multiplier = multiplier / total if total != 0.0 else 0.0
            worst = abs(total - 1.0) / max(total, 1.0)
            apart = abs(total - 1.0) + p * ROUNDING * total
        rounding = (left * (plan.L + 2.0) + (length + reach) * (members + 2.0)) * ROUNDING + apart * plan.longest
        violation = 0.0
        steepest = 0.0
        highest = 0.0
        along = 0.0
        below = 0.0
        for m in range(blocks):
            for e in range(2):
                j = 8 * m + 2 * q + e
                if j < p:
                    x = a[n, j]
                    v = duals[m, half + e] - multiplier
                    margin = rounding * plan.sizes[j]
                    below = max(below, -x)
                    high = max(v + margin, 0.0)
                    held = max(v, 0.0) if x <= 0.0 else abs(v)
                    most = high if x <= 0.0 else held + margin
                    highest = max(highest, high)
                    along += x * most
                    violation += most * most
                    steepest = max(steepest, held * plan.units[j])
        steepest = most_of_quad(steepest)
        below = most_of_quad(below)
        highest = most_of_quad(highest)
        least = math.sqrt(over_quad(violation))
        violation = least * least + UNDERFLOW
        along = over_quad(along)
        far = math.sqrt(violation) / plan.curvature + apart if below <= 0.0 else np.inf
        gap = least * min(far, least / plan.curvature)
        if sum_to_one or highest == 0.0:
            gap = min(gap, highest + along)
        worst = max(worst, below)
        if scale > 0.0:
            worst = max(worst, steepest / scale, gap / scale * (2.0 * GAP_WEIGHT) / scale)
        elif steepest != 0.0:
            worst = np.inf
        if violation - violation != 0.0 or scale - scale != 0.0:
            return np.inf, np.inf  # a NaN compares with nothing, and an overflow divides everything to zero
        return worst, far

    return verdict


class FastSolver:
    """These kernels as a solver of blocks; see `unmix.solvers.pixels.cuda.GeneralSolver` for the interface."""

    countable = Counter

    def __init__(self, problem: Any, pixels: int) -> None:
        index, gain, offset, self.nodata, shift = problem.stored()
        L, self.p = problem.E.shape
        self.interleave, self.sum_to_one = problem.interleave, bool(problem.method.sum_to_one)
        used = by_lane(np.ones(L), index, np.int32)
        self.plain, self.holes = bool((gain == 1.0).all() and (offset == 0.0).all()), not used.all()
        self.half = cuda.get_current_device().compute_capability < LARGER_PRODUCT
        self.short = problem.condition > SHORT_FROM
        subtracted = shift if self.sum_to_one else np.zeros(L)
        self.bands = tuple(
            cuda.to_device(values)
            for values in (chunks_in_use(index), used, by_lane(gain, index, float), by_lane(offset, index, float),
                           by_lane(subtracted, index, float), by_lane(np.arange(L), index, np.int32))
        )  # fmt: skip
        self.E = cuda.to_device(
            lane_order(np.column_stack([problem.E, shift]) if self.sum_to_one else problem.E, index)
        )
        longest = float(problem.sizes.max()) if self.sum_to_one else 0.0
        against = np.full(self.p, longest) if self.sum_to_one else problem.sizes
        vectors = problem.norms, 1.0 / problem.norms, problem.sizes, 1.0 / np.where(against > 0.0, against, np.inf)
        self.plan = FastPlan(
            address_of(self.E), cuda.to_device(problem.unit_gram), *map(cuda.to_device, vectors), float(problem.curvature), longest,
            float(problem.height**2), float(problem.norms.max()) if self.sum_to_one else float(np.finfo(float).tiny),
            float(shift @ shift), float(problem.dual_tolerance), L,
        )  # fmt: skip
        self.work = FastWork(
            cuda.device_array((pixels, self.p), np.float64), *(cuda.device_array(pixels, np.float64) for _ in range(3))
        )
        self.forked = cuda.event()
        self.sides = [(cuda.stream(), cuda.event()) for _ in range(PARTS)]

    @staticmethod
    def serves(problem: Any) -> bool:
        """Whether this path is right for the problem, on the GPU at hand."""
        able: bool = cuda.get_current_device().compute_capability >= LEAST_CAPABILITY
        return able and problem.pixel == "active_set" and problem.E.shape[1] <= MOST_ENDMEMBERS

    @staticmethod
    def scratch_bytes(problem: Any, pixels: int) -> int:
        """GPU memory beside the blocks."""
        return 8 * pixels * (problem.E.shape[1] + 3)

    def launch(self, raw: Any, results: dict[str, Any], stream: Any) -> None:
        """Solve a block that is on the GPU, in parts side by side."""
        lines = len(results["rmse"])
        step = -(-lines // PARTS)
        self.forked.record(stream)
        for first, (side, joined) in zip(range(0, lines, step), self.sides):
            self.forked.wait(side)
            self.launch_part(raw, results, slice(first, min(first + step, lines)), side)
            joined.record(side)
            joined.wait(stream)

    def launch_part(self, raw: Any, results: dict[str, Any], part: slice, stream: Any) -> None:
        """Solve some lines of a block."""
        pixels, bands = results["rmse"].size, raw.size // results["rmse"].size
        lines, samples = part.stop - part.start, results["rmse"].shape[1]
        by_line, by_sample, by_band = {
            "bip": (samples * bands, bands, 1),
            "bil": (samples * bands, 1, samples),
            "bsq": (samples, 1, pixels),
        }[self.interleave]
        kind = raw.dtype.name
        wide = self.interleave == "bip" and kind in ("int16", "uint16") and bands % 8 == 0
        gaps = raw.dtype.kind == "f" or self.nodata == self.nodata
        case = kind, wide, self.plain, self.sum_to_one, self.holes
        values = raw.reshape(raw.size)[part.start * by_line :]
        *per_band, rows = self.bands
        stored = StoredBlock(
            values, address_of(values), by_line, by_sample, by_band, bands, *per_band, float(self.nodata), rows
        )
        work = FastWork(*(each[part.start * samples : part.stop * samples] for each in self.work))
        out = Results(**{name: array[part] if array.size else array for name, array in results.items()})
        tiles = self.grid(lines, samples, PIXELS)
        project = project_kernel(self.p, *case, gaps, self.half)
        project[tiles, 32 * WARPS, stream](stored, self.plan, work, out.state)
        search = search_kernel(self.p, self.sum_to_one, self.short)
        runs = self.grid(lines, samples, group_of(self.p, self.short).pixels)
        search[runs, 32 * WARPS, stream](self.plan, work, out.steps)
        certify = certify_kernel(self.p, self.sum_to_one, *case, self.half, results["residual"].size > 0)
        certify[tiles, 32 * WARPS, stream](stored, self.plan, work, out)

    @staticmethod
    def grid(lines: int, samples: int, pixels: int) -> int:
        """Blocks of `WARPS` warps that take ``pixels`` neighbouring pixels each."""
        return -(-lines * -(-samples // pixels) // WARPS)


def address_of(array: Any) -> int:
    """Where an array begins in GPU memory."""
    return int(array.__cuda_array_interface__["data"][0])
