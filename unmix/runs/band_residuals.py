"""Add up the residuals of each band on a sample of the pixels of a run."""

import numpy as np

from ..io import Cube
from ..io.fields import NODATA
from ..maps.map_type import map_type
from ..options import Options
from ..problem import Problem
from ..summary import Summary
from .look import has_look

# Scenes of up to this many pixels are looked at as a whole.
MOST_WHOLE = 4096
# Most lines of a scene that are sampled, and most pixels of each: they give an RMS to 2 %. Few lines, because a part of a
# block without one costs nothing: pixels from all parts took a third of the time of a run on a GPU.
MOST_LINES, MOST_OF_LINE = 16, 128
# The part of the golden ratio, by which the first pixels of lines are spread over all columns.
GOLDEN = 0.6180339887498949


def strides_of(lines: int, samples: int) -> tuple[int, int]:
    """Return the distance between two lines of a scene that are looked at, and that between two pixels of such a line."""
    if lines * samples <= MOST_WHOLE:
        return 1, 1
    return -(-lines // MOST_LINES), -(-samples // MOST_OF_LINE)


class BandResiduals:
    """Residuals of each band in some pixels of some lines of a run, evenly spread; see `strides_of`.

    The sample does not depend on blocks, threads or devices. Host code in NumPy for all of them: of every device, stored values and
    abundances of a block are in host memory before its lines are written. The spectra themselves are kept for `unmix.runs.look`.

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
        # With the shift of the spectra, since rounded abundances do not sum to one: without it their residuals were off by 0.06 %.
        shift = problem.shift[: self.bands, None] if len(problem.shift) else 0.0
        self.columns = np.ascontiguousarray((problem.E[: self.bands] + shift).T)
        self.map_type = map_type("abundance", options, problem)
        self.rounds = options.top is None and problem.normalization is None
        self.keeps = has_look(problem)

    def add(
        self, summary: Summary, first: int, raw: np.ndarray, results: dict[str, np.ndarray], integers: np.ndarray | None,
        fractions: dict[str, np.ndarray],
    ) -> None:  # fmt: skip
        """Add the sampled pixels of some lines to a summary.

        Parameters
        ----------
        summary : Summary
        first : int
            The first line.
        raw : array
            Stored values of n lines, in the layout of the problem.
        results : mapping of arrays
            ``abundance`` (n, p, samples) and ``rmse`` (n, samples), `NODATA` where a pixel is not solved.
        integers : array (n, p, samples), uint16, or None
            Quantized abundances, where a device did not copy back the abundances.
        fractions : mapping of arrays
            Where a device made fractions of the abundances: ``abundance`` (n, p, samples), for which ``integers`` may stand, and
            ``scale`` (n, samples).
        """
        rmse = results["rmse"]
        lines = range(-first % self.between_lines, len(rmse), self.between_lines)
        if not lines:
            return
        begins = [int((first + line) * GOLDEN % 1.0 * self.between) for line in lines]
        sample = np.concatenate([np.arange(begin, self.samples, self.between) for begin in begins])
        line = np.repeat(lines, [len(range(begin, self.samples, self.between)) for begin in begins])
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

    def abundances(self, stored: np.ndarray) -> np.ndarray:
        """Return abundances (k, p) in float64 as they are in the map, whether a device made integers of them or the host will.

        Where the map has the largest alone, or fractions, they are not rounded.
        """
        step, offset = self.map_type.step, self.map_type.offset
        values = stored.astype(np.float64)
        if stored.dtype == np.uint16:
            return offset + step * values
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
            # Not `@`: the threads of BLAS, which wait busily, slowed the solver's: runs of two cores took 1.27 times as long.
            r = y - np.einsum("kp,pb->kb", abundances, self.columns)
            found = np.stack([np.einsum("kb,kb->b", r, r), r.sum(axis=0), np.einsum("kb,kb->b", y, y)])
            for step in self.problem.steps:
                found = step.undo_sums(found)
        return found
