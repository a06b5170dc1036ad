"""The fast path on a GPU, up to 32 endmembers: three kernels per block, in which a warp takes neighbouring pixels.

`project` computes ``Eᵀy`` from the stored pixels, `search` finds the abundances, and `certify` reads the pixels again
and certifies them. (One kernel for all three reads the pixels once instead of twice, but needs the registers of the
part that needs most, so that 8 warps are resident where 24 could be: 4.8 ms instead of 2.4 for 4 million pixels at p =
3.)
"""

import functools
import math
from typing import Any

import numpy as np
from numba import float64, int32, int64

from ....certificate import MASKED, PARTLY, SOLVED
from ....compiled.cuda import ALL_LANES, cuda, cuda_kernel, on_gpu
from ..tile import NODATA, Results
from .active_set import MOST_ENDMEMBERS, REFINED_FROM, group_for, search_function, shared_doubles
from .judge import Judge, is_settled
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
    over_rows,
    spectra_functions,
)
from .verdict import verdict_function

WARPS = 2
# Parts of a block that are solved concurrently, so that the last warps of one part's kernel overlap the first of
# another's: 111 000 pixels on an H100 from 0.101 / 0.203 / 0.252 / 0.469 ms to 0.099 / 0.183 / 0.236 / 0.411 (p = 3 / 9
# / 15 / 25), 4 million the same.
PARTS = 4
# Bounds on the registers per thread of the certificate, for p up to `FEW_ENDMEMBERS` (True) and above (False); fewer
# registers let more warps be resident. Compared with no bound, 4 million pixels, H200: from 2.4 ms to 1.9 at p = 9,
# from 4.2 to 3.7 at p = 25. The search has its own (`GROUPS`).
FEW_ENDMEMBERS = 16
CERTIFY_REGISTERS = {True: 96, False: 128}
# cond(E) above which pixels are certified again by their own columns (`judge`): below it no δ comes near 1e-6.
SETTLED_FROM = 1e3
# cond(E) above which a column that depends on the support must be exchanged for another one, which this search cannot.
MOST_CONDITION = 1e7
# The first compute capability with matrix products in float64 (m8n8k4), and the first with the larger one (m16n8k4).
LEAST_CAPABILITY, LARGER_PRODUCT = (8, 0), (9, 0)


@functools.cache
def project_kernel(
    p: int, kind: str, wide: bool, plain: bool, centred: bool, holes: bool, gaps: bool, half: bool, penalised: bool
) -> Any:
    """Return the kernel that computes each pixel's ``Eᵀy``, lengths, scale (0 if a value is missing) and state."""
    project, _ = spectra_functions(p, kind, wide, plain, centred, holes, gaps, half, False, penalised)
    step, lane_of_mean = np.dtype(kind).itemsize if wide else 1, mean_lane(p)

    @cuda_kernel
    def project_block(stored, plan, work, state):
        offsets = cuda.local.array(ROWS, int64)
        squares = cuda.local.array(ROWS, float64)
        means = cuda.local.array(ROWS, float64)
        missing_values = cuda.local.array(ROWS, int32)
        lines, samples = state.shape
        line, start = stretch_of_block(samples, PIXELS)
        if line >= lines:
            return
        q, g = cuda.laneid % 4, cuda.laneid // 4
        for row in range(ROWS):
            sample = min(start + 8 * row + g, samples - 1)
            offsets[row] = (stored.address if wide else 0) + (line * stored.by_line + sample * stored.by_sample) * step
        first = line * samples + start
        project(stored, plan, offsets, squares, means, missing_values, work.a, first, samples - start)
        # From here on two lanes of each pixel work for one of the two rows each.
        mine = q % 2
        square = over_rows(squares[0], squares[1])
        missing = over_rows(missing_values[0], missing_values[1])
        full_square = square
        if centred:  # |y|² = |y − ē|² + 2 ēᵀ(y − ē) + |ē|²
            of_first = cuda.shfl_sync(ALL_LANES, means[0], 4 * g + lane_of_mean)
            of_second = cuda.shfl_sync(ALL_LANES, means[1], 4 * g + lane_of_mean)
            full_square += 2.0 * (of_second if mine else of_first) + plan.mean_square
        sample, n = start + 8 * mine + g, first + 8 * mine + g
        if q < 2 and sample < samples:
            work.size[n] = math.sqrt(square)
            work.length[n] = math.sqrt(max(full_square, 0.0))
            # A pixel of zeros needs a scale above 0 too: an endmember's length, or the smallest normal number.
            work.scale[n] = max(work.size[n], plan.least_scale) if missing == 0 else 0.0
            state[line, sample] = SOLVED if missing == 0 else (MASKED if missing == plan.L else PARTLY)

    return project_block


@functools.cache
def search_kernel(p: int, sum_to_one: bool, refines: bool) -> Any:
    """Return the kernel that replaces ``Eᵀy`` of every pixel by its abundances."""
    search = search_function(p, sum_to_one, refines)
    group = group_for(p)
    stretch = group.pixels
    doubles, doubles_of_warp = WARPS * shared_doubles(p), shared_doubles(p)

    @functools.partial(cuda_kernel, registers=group.registers)
    def search_block(plan, work, steps):
        shared = cuda.shared.array(doubles, float64)
        lines, samples = steps.shape
        line, start = stretch_of_block(samples, stretch)
        if line < lines:
            search(
                plan.U,
                plan.norms,
                plan.weights,
                plan.tolerance,
                work.a,
                work.scale,
                shared,
                cuda.threadIdx.x // 32 * doubles_of_warp,
                steps,
                line,
                start,
                samples,
            )

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
    duals_too: bool,
    penalised: bool,
) -> Any:
    """Return the kernel that certifies every pixel from the stored pixel, E and abundances, and writes the results."""
    # With duals_too it leaves the duals and |y − E a| of pixels that it does not settle in the work arrays.
    _, certify = spectra_functions(p, kind, wide, plain, centred, holes, False, half, residual_too, False)
    verdict = verdict_function(p, sum_to_one)
    dual_blocks = -(-p // 8)
    duals_shape, halves = (dual_blocks, 4), -(-p // 2)
    step = np.dtype(kind).itemsize if wide else 1

    @functools.partial(cuda_kernel, registers=CERTIFY_REGISTERS[p <= FEW_ENDMEMBERS])
    def certify_block(stored, plan, work, results):
        offsets = cuda.local.array(ROWS, int64)
        squares = cuda.local.array(ROWS, float64)
        solved = cuda.local.array(ROWS, int32)
        duals = cuda.local.array(duals_shape, float64)
        lines, samples = results.state.shape
        line, start = stretch_of_block(samples, PIXELS)
        if line >= lines:
            return
        lane = cuda.laneid
        q, g = lane % 4, lane // 4
        for row in range(ROWS):
            sample = min(start + 8 * row + g, samples - 1)
            offsets[row] = (stored.address if wide else 0) + (line * stored.by_line + sample * stored.by_sample) * step
            solved[row] = results.state[line, sample] == SOLVED
        first = line * samples + start
        certify(
            stored, plan, offsets, work.a, first, samples - start, squares, duals, results.residual, line, start, solved
        )
        if penalised:
            for m in range(dual_blocks):
                for i in range(4):
                    duals[m, i] -= plan.penalty[min(8 * m + 2 * q + i % 2, p - 1)]
        # From here on two lanes of each pixel work for one of the two rows each.
        mine = q % 2
        sample = start + 8 * mine + g
        exists = sample < samples
        n = min(first + 8 * mine + g, work.a.shape[0] - 1)
        other = min(first + 8 * (1 - mine) + g, work.a.shape[0] - 1)
        r_norm = math.sqrt(over_rows(squares[0], squares[1]))
        kappa, delta = verdict(work.a, n, other, duals, plan, work.size[n], r_norm)
        if duals_too:
            is_open = exists and not is_settled(kappa, delta)
            other_open = cuda.shfl_xor_sync(ALL_LANES, int32(is_open), 1)
            for row in range(ROWS):
                if (is_open if row == mine else other_open != 0) and start + 8 * row + g < samples:
                    for m in range(dual_blocks):
                        for e in range(2):
                            if 8 * m + 2 * q + e < p:
                                work.w[first + 8 * row + g, 8 * m + 2 * q + e] = duals[m, 2 * row + e]
            if is_open and q < 2:
                work.left[n] = r_norm
        if q < 2 and exists:
            write_fit(results, line, sample, plan.L, r_norm, work.length[n], kappa, delta)
        # Sixteen lanes write the abundances of neighbouring pixels; the two halves of the warp take turns.
        sample = start + lane % PIXELS
        if sample < samples:
            is_solved = results.state[line, sample] == SOLVED
            for k in range(halves):
                j = 2 * k + lane // PIXELS
                if j < p:
                    results.abundance[line, j, sample] = work.a[first + lane % PIXELS, j] if is_solved else NODATA

    return certify_block


@on_gpu
def write_fit(results, line, sample, L, r_norm, length, kappa, delta):
    """Write the results of a pixel but for its abundances; ``r_norm`` is |r| and ``length`` |y|."""
    is_solved = results.state[line, sample] == SOLVED
    results.rmse[line, sample] = r_norm / math.sqrt(float(L)) if is_solved else NODATA
    results.relative[line, sample] = r_norm / length if is_solved and length > 0.0 else -1.0
    results.kappa[line, sample] = kappa if is_solved else NODATA
    results.delta[line, sample] = delta if is_solved else NODATA
    if not is_solved:
        results.steps[line, sample] = int(NODATA)


@on_gpu
def stretch_of_block(samples, pixels):
    """Return line and first sample of this warp's stretch of ``pixels`` neighbouring pixels."""
    stretches = (samples + pixels - 1) // pixels
    warp = cuda.blockIdx.x * WARPS + cuda.threadIdx.x // 32
    return warp // stretches, warp % stretches * pixels


class FastSolver:
    """These kernels as a solver of blocks; see `unmix.solvers.pixels.cuda.GeneralSolver` for the interface."""

    countable = True
    path: str | None = None

    def __init__(self, problem: Any, pixels: int) -> None:
        self.describe(problem)
        index, _, _, _, shift = problem.stored()
        L, self.p = problem.E.shape
        self.E = cuda.to_device(
            lane_order(np.column_stack([problem.E, shift]) if self.sum_to_one else problem.E, index)
        )
        longest = float(problem.sizes.max()) if self.sum_to_one else 0.0
        scales = np.full(self.p, longest) if self.sum_to_one else problem.sizes
        self.U = cuda.to_device(np.ascontiguousarray(problem.unit_gram))
        vectors = problem.norms, 1.0 / problem.norms, problem.sizes, 1.0 / np.where(scales > 0.0, scales, np.inf)
        self.plan = FastPlan(
            address_on_gpu(self.E),
            address_on_gpu(self.U),
            *map(cuda.to_device, vectors),
            float(problem.curvature),
            longest,
            float(problem.height**2),
            float(problem.norms.max()) if self.sum_to_one else float(np.finfo(float).tiny),
            float(shift @ shift),
            float(problem.dual_tolerance),
            L,
            self.penalty_of(problem.penalty),
        )
        self.judge: Any = Judge(problem, pixels, PARTS) if self.settles(problem) else None
        held = pixels if self.judge is not None else 1
        self.work = FastWork(
            cuda.device_array((pixels, self.p), np.float64),
            *(cuda.device_array(pixels, np.float64) for _ in range(3)),
            cuda.device_array((held, self.p), np.float64),
            cuda.device_array(held, np.float64),
        )
        self.forked = cuda.event()
        self.sides = [(cuda.stream(), cuda.event()) for _ in range(PARTS)]

    def describe(self, problem: Any) -> None:
        """Note how pixels are stored, and copy what kernels need to make spectra of them."""
        index, gain, offset, self.nodata, shift = problem.stored()
        L = len(problem.E)
        self.interleave, self.sum_to_one = problem.interleave, problem.constraint.sum_to_one
        used = by_lane(np.ones(L), index, np.int32)
        self.plain, self.holes = bool((gain == 1.0).all() and (offset == 0.0).all()), not used.all()
        self.half = cuda.get_current_device().compute_capability < LARGER_PRODUCT
        self.penalised = len(problem.penalty) > 0
        self.refines = problem.condition >= REFINED_FROM
        subtracted = shift if self.sum_to_one else np.zeros(L)
        self.bands = tuple(
            cuda.to_device(values)
            for values in (
                chunks_in_use(index),
                used,
                by_lane(gain, index, float),
                by_lane(offset, index, float),
                by_lane(subtracted, index, float),
                by_lane(np.arange(L), index, np.int32),
            )
        )

    @staticmethod
    def penalty_of(penalty: np.ndarray) -> Any:
        """Return the penalty for `FastPlan`, on the GPU."""
        return cuda.to_device(penalty if len(penalty) else np.zeros(1))

    @staticmethod
    def is_capable() -> bool:
        """Return whether the current GPU has matrix products in float64."""
        return bool(cuda.get_current_device().compute_capability >= LEAST_CAPABILITY)

    @staticmethod
    def serves(problem: Any, samples: int) -> bool:
        """Return whether these kernels can solve the problem on the current GPU, in lines of ``samples``."""
        fits = problem.pixel == "active_set" and problem.E.shape[1] <= MOST_ENDMEMBERS
        return FastSolver.is_capable() and fits and problem.condition <= MOST_CONDITION

    @staticmethod
    def scratch_bytes(problem: Any, pixels: int) -> int:
        """Return the bytes of GPU memory needed beside the blocks."""
        p = problem.E.shape[1]
        settling = 8 * pixels * (p + 1) + Judge.scratch_bytes(p, pixels, PARTS) if FastSolver.settles(problem) else 0
        return 8 * pixels * (p + 3) + settling

    @staticmethod
    def settles(problem: Any) -> bool:
        """Return whether cond(E) is so large that pixels are judged by the columns that they use."""
        return bool(problem.condition > SETTLED_FROM)

    def launch(self, raw: Any, results: dict[str, Any], stream: Any) -> None:
        """Enqueue the solution of a block that is on the GPU, in parts that run concurrently."""
        lines = len(results["rmse"])
        step = -(-lines // PARTS)
        self.forked.record(stream)
        for number, (side, joined) in enumerate(self.sides[: -(-lines // step)]):
            self.forked.wait(side)
            part = slice(number * step, min((number + 1) * step, lines))
            self.launch_part(raw, results, part, side, number)
            joined.record(side)
            joined.wait(stream)

    def stored_part(self, raw: Any, results: dict[str, Any], part: slice) -> tuple[Any, StoredBlock, Results]:
        """Return the case to compile kernels for, some lines of a block as stored, and these lines' results."""
        pixels, bands = results["rmse"].size, raw.size // results["rmse"].size
        samples = results["rmse"].shape[1]
        by_line, by_sample, by_band = {
            "bip": (samples * bands, bands, 1),
            "bil": (samples * bands, 1, samples),
            "bsq": (samples, 1, pixels),
        }[self.interleave]
        kind = raw.dtype.name
        wide = self.interleave == "bip" and kind in ("int16", "uint16") and bands % 8 == 0
        values = raw.reshape(raw.size)[part.start * by_line :]
        *per_band, shift, rows = self.bands
        stored = StoredBlock(
            values,
            address_on_gpu(values),
            by_line,
            by_sample,
            by_band,
            bands,
            *per_band,
            address_on_gpu(shift),
            float(self.nodata),
            rows,
        )
        out = Results(**{name: array[part] if array.size else array for name, array in results.items()})
        return (kind, wide, self.plain, self.sum_to_one, self.holes), stored, out

    def has_gaps(self, raw: Any) -> bool:
        """Return whether a stored value may be nodata, NaN or infinite."""
        return bool(raw.dtype.kind == "f" or self.nodata == self.nodata)

    def launch_part(self, raw: Any, results: dict[str, Any], part: slice, stream: Any, number: int = 0) -> None:
        """Enqueue the kernels for some lines of a block, the ``number``-th part of it."""
        lines, samples = part.stop - part.start, results["rmse"].shape[1]
        case, stored, out = self.stored_part(raw, results, part)
        work = FastWork(*(array[part.start * samples : part.stop * samples] for array in self.work))
        tiles = self.grid(lines, samples, PIXELS)
        project = project_kernel(self.p, *case, self.has_gaps(raw), self.half, self.penalised)
        project[tiles, 32 * WARPS, stream](stored, self.plan, work, out.state)
        search = search_kernel(self.p, self.sum_to_one, self.refines)
        runs = self.grid(lines, samples, group_for(self.p).pixels)
        search[runs, 32 * WARPS, stream](self.plan, work, out.steps)
        certify = certify_kernel(
            self.p, self.sum_to_one, *case, self.half, out.residual.size > 0, self.judge is not None, self.penalised
        )
        certify[tiles, 32 * WARPS, stream](stored, self.plan, work, out)
        if self.judge is not None:
            self.judge.settle(work, out, part.start * samples, number, stream)

    @staticmethod
    def grid(lines: int, samples: int, pixels: int) -> int:
        """Return the number of blocks of `WARPS` warps, where each warp takes ``pixels`` neighbouring pixels."""
        return -(-lines * -(-samples // pixels) // WARPS)


def address_on_gpu(array: Any) -> int:
    """Return the address of an array in GPU memory."""
    return int(array.__cuda_array_interface__["data"][0])
