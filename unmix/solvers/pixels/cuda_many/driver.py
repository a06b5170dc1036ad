"""Solve blocks of many or ill-conditioned endmembers on a GPU: 31 columns per product, a warp per pixel in the search.

Kernels for each part of a block: ``Eᵀy``, by the fast path's kernel; the search; the residual, from the stored
pixel, E and the support alone; its duals, by the same kernel as ``Eᵀy``; the results; and the certificate.
"""

import functools
import math
from typing import Any

import numpy as np
from numba import float64, int32, uint32

from ....compiled.cuda import columns_of, cuda, cuda_kernel, multiprocessors, to_gpu
from ..active_set import DEPENDENT_COLUMN, MOST_EXCHANGES, NEARLY_DEPENDENT
from ..cuda_fast.driver import WARPS, FastSolver, address_on_gpu, project_kernel
from ..cuda_fast.judge import Judge
from ..cuda_fast.projection import PIXELS, FastPlan, FastWork, StoredBlock, by_lane, chunks_in_use, lane_order
from ..scalar import STEPS_PER_ENDMEMBER
from ..tile import NODATA, SOLVED
from ..working_set import LEAST_DUAL
from .search import MOST_MEMBERS, STAGES, Library, SearchResults, search_kernel, stages_for
from .tableau import WARP, in_lane_order

# Columns of a product: with the mean endmember they make the 32 that the fast path's kernel holds.
COLUMNS = 31
# Bands whose residual a lane computes at a time, to have that many loads under way: one at a time took four times as
# long.
BANDS_AT_ONCE = 8
# Most pixels that are solved at a time: with 500 spectra of 224 bands these need 1.5 GiB.
MOST_PIXELS = 131072


@functools.cache
def long_residual_kernel() -> Any:
    """Return the kernel that computes ``y − E a``, a warp per pixel, from the stored pixel and the support of a."""
    # Its arguments: StoredBlock; bands in use with gain, offset and shift (L,); E's columns (p, L), filled with zeros
    # to a multiple of WARP * BANDS_AT_ONCE; SearchResults; residuals (N, L); state; the results' residual; pixels.

    @cuda_kernel
    def residual_block(stored, bands, gain, offset, shift, columns, found, residuals, state, maps, pixels):
        indices = cuda.shared.array(MOST_MEMBERS, int32)
        weights = cuda.shared.array(MOST_MEMBERS, float64)
        values = cuda.local.array(BANDS_AT_ONCE, float64)
        lane, samples = int32(cuda.laneid), state.shape[1]
        for n in range(cuda.blockIdx.x, pixels, cuda.gridDim.x):
            line, sample = n // samples, n % samples
            is_solved = state[line, sample] == SOLVED
            k = max(found.count[n], 0) if is_solved else 0
            cuda.syncwarp()
            for i in range(lane, k, WARP):
                indices[i] = found.members[n, i]
                weights[i] = found.a[n, indices[i]]
            cuda.syncwarp()
            place = line * stored.by_line + sample * stored.by_sample
            for first in range(lane, bands.shape[0], WARP * BANDS_AT_ONCE):
                for c in range(BANDS_AT_ONCE):
                    b = uint32(min(first + WARP * c, bands.shape[0] - 1))
                    value = float64(stored.raw[place + bands[b] * stored.by_band]) * gain[b] + offset[b]
                    values[c] = value - shift[b] if is_solved else 0.0
                for i in range(k):
                    weight, column = weights[i], uint32(indices[i])
                    for c in range(BANDS_AT_ONCE):
                        values[c] -= weight * columns[column, uint32(first + WARP * c)]
                for c in range(BANDS_AT_ONCE):
                    b = first + WARP * c
                    if b < bands.shape[0]:
                        residuals[n, b] = values[c]
                        if maps.shape[0] > 0:
                            maps[line, b, sample] = values[c] if is_solved else NODATA

    return residual_block


@functools.cache
def results_kernel() -> Any:
    """Return the kernel that writes abundances, RMSE and steps, a thread for each pixel; κ and δ become infinite."""

    @cuda_kernel
    def write_results(work, found, L, out):
        samples = out.state.shape[1]
        for n in range(cuda.grid(1), out.state.size, cuda.gridsize(1)):
            line, sample = n // samples, n % samples
            is_solved = out.state[line, sample] == SOLVED
            length = work.length[n]
            out.rmse[line, sample] = work.left[n] / math.sqrt(float(L)) if is_solved else NODATA
            out.relative[line, sample] = work.left[n] / length if is_solved and length > 0.0 else -1.0
            out.steps[line, sample] = found.steps[n] if is_solved else int(NODATA)
            out.kappa[line, sample] = np.inf if is_solved else NODATA
            out.delta[line, sample] = np.inf if is_solved else NODATA
            for j in range(out.abundance.shape[1]):
                out.abundance[line, j, sample] = work.a[n, j] if is_solved else NODATA

    return write_results


def library_of(problem: Any) -> Library:
    """Return the spectra of a `unmix.problem.Problem` as the search takes them."""
    U, norms = problem.unit_gram, problem.norms
    weights, least = 1.0 / norms, float(norms.min())
    if problem.constraint.sum_to_one:
        U = np.block([[np.zeros((1, 1)), least * weights[None, :]], [least * weights[:, None], U]])
    (stage, *_), whole = stages_for(len(U))
    tiles = in_lane_order(U, stage.most) if whole else np.empty(0)
    most, near = int(MOST_EXCHANGES), DEPENDENT_COLUMN
    if len(problem.penalty):
        most, near = STEPS_PER_ENDMEMBER * MOST_MEMBERS, NEARLY_DEPENDENT
    return Library(U, norms, weights, least, max(problem.dual_tolerance, LEAST_DUAL), most, near, tiles)


class ManySolver(FastSolver):
    """Solver of blocks by these kernels; see `unmix.solvers.pixels.cuda.GeneralSolver` for the interface."""

    path = "working_set"

    def __init__(self, problem: Any, pixels: int) -> None:
        self.describe(problem)
        L, p = problem.E.shape
        self.stages, self.whole = stages_for(p + self.sum_to_one)
        index, gain, offset, _, shift = problem.stored()
        self.pixels, self.L = min(pixels, MOST_PIXELS), L
        # Groups of columns as equal as can be; the last is filled up with zeros.
        groups = -(-p // COLUMNS)
        self.step = -(-p // groups)
        padded = np.zeros((L, groups * self.step))
        padded[:, :p] = problem.E
        mean = [shift[:, None]] if self.sum_to_one else []
        parts = np.split(padded, groups, axis=1)
        all_bands = np.arange(L)
        costs = np.zeros(padded.shape[1])
        costs[: len(problem.penalty)] = problem.penalty
        penalties = np.split(costs, groups)
        self.first = [
            self.product_plan(problem, np.hstack([part, *mean]), index, float(problem.height**2), penalty)
            for part, penalty in zip(parts, penalties)
        ]
        self.second = [
            self.product_plan(problem, part, all_bands, 0.0, penalty) for part, penalty in zip(parts, penalties)
        ]
        self.library = to_gpu(library_of(problem))
        spectrum = index.astype(np.int32), gain, offset, shift if self.sum_to_one else np.zeros(L)
        self.spectrum = tuple(map(to_gpu, spectrum))
        self.columns = to_gpu(np.pad(problem.E.T, ((0, 0), (0, -L % (WARP * BANDS_AT_ONCE)))))
        every = (
            by_lane(np.ones(L), all_bands, np.int32),
            *(by_lane(values, all_bands, float) for values in (np.ones(L), np.zeros(L), np.zeros(L))),
        )
        self.every = tuple(map(to_gpu, (chunks_in_use(all_bands), *every, by_lane(all_bands, all_bands, np.int32))))
        self.judge = Judge(problem, self.pixels)
        P, n = padded.shape[1], self.pixels
        self.a, self.w = (cuda.device_array((n, P), np.float64) for _ in range(2))
        self.size, self.length, self.scale, self.left = (cuda.device_array(n, np.float64) for _ in range(4))
        self.scratch = [cuda.device_array(n, np.float64) for _ in range(2)]
        self.residuals = cuda.device_array((n, L), np.float64)
        self.kept = cuda.device_array((n, STAGES[-2].most + 1), np.float64)
        self.members = cuda.device_array((n, MOST_MEMBERS), np.int32)
        self.count, self.steps = (cuda.device_array(n, np.int32) for _ in range(2))
        self.ignored = cuda.device_array((1, n), np.uint8)
        self.tableaux = cuda.device_array((STAGES[-1].warps * multiprocessors(), *STAGES[-1].shape), np.float64)
        self.none = cuda.device_array((1, 1, 1), np.float64)

    def product_plan(
        self, problem: Any, E: np.ndarray, index: np.ndarray, lift: float, penalty: np.ndarray
    ) -> tuple[Any, Any]:
        """Return a group of columns on the GPU, and the plan of the kernel that multiplies with them."""
        columns = to_gpu(lane_order(E, index))
        shift = problem.stored()[4]
        zeros = to_gpu(np.zeros(1))
        least = float(problem.norms.max()) if self.sum_to_one else float(np.finfo(float).tiny)
        square = float(shift @ shift) if lift > 0.0 else 0.0
        # Fields that only the search and the certificate read stay empty.
        plan = FastPlan(
            address_on_gpu(columns),
            0,
            *[zeros] * 4,
            0.0,
            0.0,
            lift,
            least,
            square,
            0.0,
            len(problem.E),
            to_gpu(penalty),
        )
        return columns, plan

    @staticmethod
    def serves(problem: Any, samples: int) -> bool:
        """Return whether these kernels can solve the problem on the current GPU, in lines of ``samples``."""
        return FastSolver.is_capable() and problem.pixel == "active_set" and samples <= MOST_PIXELS

    @staticmethod
    def scratch_bytes(problem: Any, pixels: int) -> int:
        """Return the bytes of GPU memory needed beside the blocks."""
        L, p = problem.E.shape
        each = 8 * (2 * (p + COLUMNS) + L + 5 + STAGES[-2].most) + 4 * (MOST_MEMBERS + 3)
        tableaux = STAGES[-1].warps * multiprocessors() * math.prod(STAGES[-1].shape)
        fixed = 8 * (tableaux + (p + 1) * (p + 1) + 4 * p * (L + 2 * WARP * BANDS_AT_ONCE))
        return int(min(pixels, MOST_PIXELS) * each + fixed + Judge.scratch_bytes(p, min(pixels, MOST_PIXELS)))

    def launch(self, raw: Any, results: dict[str, Any], stream: Any) -> None:
        """Enqueue the solution of a block that is on the GPU, some lines at a time."""
        lines, samples = results["rmse"].shape
        step = self.pixels // samples
        for first in range(0, lines, step):
            self.launch_part(raw, results, slice(first, min(first + step, lines)), stream)

    def launch_part(self, raw: Any, results: dict[str, Any], part: slice, stream: Any, number: int = 0) -> None:
        """Enqueue the kernels for some lines of a block."""
        lines, samples = part.stop - part.start, results["rmse"].shape[1]
        n = lines * samples
        case, stored, out = self.stored_part(raw, results, part)
        a, w = self.a[:n], self.w[:n]
        size, length, scale, left = (values[:n] for values in (self.size, self.length, self.scale, self.left))
        tiles = self.grid(lines, samples, PIXELS)
        p = self.step
        project = project_kernel(p, *case, self.has_gaps(raw), self.half, self.penalised)
        for g, (_, plan) in enumerate(self.first):
            work = FastWork(columns_of(a, g * p, p), size, length, scale, w, left)
            project[tiles, 32 * WARPS, stream](stored, plan, work, out.state)
        found = SearchResults(a, scale, self.members[:n], self.count[:n], self.steps[:n], self.kept[:n])
        for stage in self.stages:
            tableaux = self.tableaux if stage == STAGES[-1] else self.none
            search = search_kernel(self.sum_to_one, stage, self.whole, stage == self.stages[0], self.half)
            search[stage.warps * multiprocessors(), WARP, stream](self.library, found, n, tableaux)
        residuals = self.residuals[:n]
        long_residual_kernel()[min(n, 32 * multiprocessors()), WARP, stream](
            stored, *self.spectrum, self.columns, found, residuals, out.state, out.residual, n
        )
        L = self.L
        *per_band, shift, rows = self.every
        flat = residuals.reshape(n * L)
        again = StoredBlock(
            flat, address_on_gpu(flat), samples * L, L, 1, L, *per_band, address_on_gpu(shift), float("nan"), rows
        )
        project = project_kernel(p, "float64", False, True, False, L % 32 != 0, False, self.half, self.penalised)
        ignored = self.ignored[:, :n].reshape((lines, samples))
        for g, (_, plan) in enumerate(self.second):
            # The length of the residual takes the place of the pixel's.
            work = FastWork(columns_of(w, g * p, p), left, self.scratch[0][:n], self.scratch[1][:n], w, left)
            project[tiles, 32 * WARPS, stream](again, plan, work, ignored)
        work = FastWork(a, size, length, scale, w, left)
        results_kernel()[4 * multiprocessors(), 128, stream](work, found, L, out)
        self.judge.settle(work, out, 0, 0, stream)
