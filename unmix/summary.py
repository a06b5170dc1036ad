"""Sum up a run over its pixels, block by block: counts, worst certificates, quality of the fit."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from .certificate import CERTIFIED, MASKED, MOST_DELTA, NODATA, SOLVED
from .compiled.jit import compiled

# The most failed pixels that a report lists.
MOST_FAILURES = 100
# Fields of `Summary` that are summed; those of them that are no counts; maxima; arrays (None until the first block).
ADDED = (
    "solved",
    "masked",
    "partly_nodata",
    "certified",
    "fit_certified",
    "failed",
    "rescued",
    "sampled",
    "sum_of_rmse",
    "misfit",
    "kappas",
)
REAL = ("sum_of_rmse",)
WORST = ("worst_kappa", "worst_delta", "worst_relative", "worst_rmse")
ARRAYS = ("sums", "most", "there", "outside", "residuals")
# Logarithmic histogram of the relative RMSE: bins per octave, log2 of the lower bound, number of bins. A percentile
# read from it is right to 3 % of itself.
PER_OCTAVE, LOWEST_OCTAVE, BINS = 16, -10, 256
# Histogram of κ: a bin an octave, the last from 1/2 on; the first holds all below 2⁻⁶³ (1e-19).
KAPPA_BINS = 64
# Fields of `Summary` that are histograms, with the number of their bins.
HISTOGRAMS = {"misfit": BINS, "kappas": KAPPA_BINS}
# An endmember is present in a pixel where its abundance is above `THERE`. A pixel with an abundance above `CORNER` and
# a relative RMSE above `POOR` lies outside the simplex of the endmembers, next to that endmember.
THERE, CORNER, POOR = np.float32(0.01), np.float32(0.99), np.float32(0.10)


@compiled
def bin_of(bits):
    """Return the bin of a non-negative float32, from its bits: the exponent and the first four of the mantissa."""
    place = (bits >> 19) - ((127 + LOWEST_OCTAVE) << 4)
    return 0 if place < 0 else place if place < BINS else BINS - 1


@compiled
def kappa_bin_of(bits):
    """Return the bin of a κ, a non-negative float64, from its bits: the exponent; NaN's bin is the last."""
    place = (bits >> 52) - 1023 + KAPPA_BINS
    return 0 if place < 0 else place if place < KAPPA_BINS else KAPPA_BINS - 1


def edges() -> np.ndarray:
    """Return the bounds of the bins (257,); smaller values fall into the first bin, larger ones into the last."""
    octave, part = np.divmod(np.arange(BINS + 1), PER_OCTAVE)
    return 2.0 ** (octave + LOWEST_OCTAVE) * (1 + part / PER_OCTAVE)


# The last column of `Counts.pixels`.
DOUBTFUL = 3


class BlockCounts(NamedTuple):
    """Counts of a block of n lines.

    A GPU counts the same (`unmix.solvers.pixels.cuda_totals`), except for the last column of ``pixels``: there it
    counts all doubtful pixels, those with a κ above 1e-10 or a δ above 1e-6 or the limit, and values that no integer
    stands for where maps are stored as such. The host counts the lines that have any again.
    """

    pixels: Any  # (n, 4) int64: pixels solved, masked, with κ above 1e-10, and with a smaller κ but δ above the limit
    worst: Any  # (n, 4) float64: the largest κ, δ, relative RMSE and RMSE
    steps: Any  # (n, ·) int64: pixels that took 0, 1, 2, … steps
    misfit: Any  # (n, 256) int64: pixels with a relative RMSE in each bin of `edges`
    kappas: Any  # (n, 64) int64: pixels with a κ in each octave; the last octave begins at 1/2
    sums: Any  # (n, p) float64: sums of the abundances
    most: Any  # (n, p) float64: the largest abundances
    there: Any  # (n, p) int64: pixels with an abundance above 1 %
    outside: Any  # (n, p) int64: pixels with an abundance above 99 % and a relative RMSE above 10 %


@compiled
def fill_counts(state, kappa, delta, steps, abundance, rmse, relative, bits, kappa_bits, certified, limit, counts):
    """Count a block line by line, without the GIL; see `count_block`."""
    n, p, samples = abundance.shape
    for line in range(n):
        solved, masked, failed, loose = 0, 0, 0, 0
        worst_kappa, worst_delta, worst_relative, worst_rmse = 0.0, 0.0, 0.0, 0.0
        for s in range(samples):
            if state[line, s] != SOLVED:
                masked += state[line, s] == MASKED
                continue
            k, d, r, misfit = kappa[line, s], delta[line, s], rmse[line, s], relative[line, s]
            step, most_steps = steps[line, s], counts.steps.shape[1] - 1
            solved += 1
            failed += not k <= certified
            loose += k <= certified and not d <= limit
            worst_kappa = worst_kappa if k <= worst_kappa else k if k == k else np.inf
            worst_delta = worst_delta if d <= worst_delta else d if d == d else np.inf
            worst_rmse = worst_rmse if r <= worst_rmse else r if r == r else np.inf
            counts.steps[line, step if step < most_steps else most_steps] += 1
            counts.kappas[line, kappa_bin_of(kappa_bits[line, s])] += 1
            if misfit >= 0.0:
                worst_relative = misfit if misfit > worst_relative else worst_relative
                counts.misfit[line, bin_of(bits[line, s])] += 1
        pixels, worst = counts.pixels, counts.worst
        pixels[line, 0], pixels[line, 1], pixels[line, 2], pixels[line, 3] = solved, masked, failed, loose
        worst[line, 0], worst[line, 1] = worst_kappa, worst_delta
        worst[line, 2], worst[line, 3] = worst_relative, worst_rmse
        # Masked pixels hold −9999 and a relative RMSE of −1, so only the sum has to test the state. Separate loops are
        # vectorised.
        for j in range(p):
            total, present, outside, most = 0.0, 0, 0, -np.inf
            for s in range(samples):
                if state[line, s] == SOLVED:
                    total += float(abundance[line, j, s])
            for s in range(samples):
                present += abundance[line, j, s] > THERE
            for s in range(samples):
                outside += (abundance[line, j, s] > CORNER) & (relative[line, s] > POOR)
            for s in range(0, samples - 3, 4):
                a, b = abundance[line, j, s], abundance[line, j, s + 1]
                c, d = abundance[line, j, s + 2], abundance[line, j, s + 3]
                a, c = a if a > b else b, c if c > d else d
                a = a if a > c else c
                most = a if a > most else most
            for s in range(samples // 4 * 4, samples):
                a = abundance[line, j, s]
                most = a if a > most else most
            counts.sums[line, j], counts.there[line, j], counts.outside[line, j] = total, present, outside
            counts.most[line, j] = most if most > NODATA else -np.inf


def count_block(
    results: Mapping[str, np.ndarray], certified: float = CERTIFIED, limit: float = MOST_DELTA
) -> BlockCounts:
    """Count the pixels of a block; κ up to ``certified`` and δ up to ``limit`` count as certified."""
    n, p, _ = results["abundance"].shape
    step_counts = int(results["steps"].max(initial=0)) + 1
    shapes = ((n, 4), (n, 4), (n, step_counts), (n, BINS), (n, KAPPA_BINS), (n, p), (n, p), (n, p), (n, p))
    dtypes = (np.int64, float, np.int64, np.int64, np.int64, float, float, np.int64, np.int64)
    counts = BlockCounts(*(np.zeros(shape, dtype) for shape, dtype in zip(shapes, dtypes)))
    counts.most[:] = -np.inf
    names = ("state", "kappa", "delta", "steps", "abundance", "rmse", "relative")
    bits, kappa_bits = results["relative"].view(np.int32), results["kappa"].view(np.int64)
    fill_counts(*(results[name] for name in names), bits, kappa_bits, certified, limit, counts)
    return counts


def failures_in(first_line: int, results: Mapping[str, np.ndarray]) -> list[tuple[int, int]]:
    """Return line and sample of the first hundred pixels of a block whose κ is above 1e-10."""
    failed = (results["state"] == SOLVED) & ~(results["kappa"] <= CERTIFIED)
    return [(first_line + int(line), int(sample)) for line, sample in np.argwhere(failed)[:MOST_FAILURES]]


@dataclass
class Summary:
    """Totals of a run over its pixels, added block by block in order.

    Attributes
    ----------
    solved, masked, partly_nodata : int
        Numbers of pixels; masked ones are nodata in all used bands, partly_nodata in some. Neither kind is solved.
    certified, fit_certified, failed, rescued : int
        Numbers of pixels with κ ≤ 1e-10 and δ within the limit; with κ ≤ 1e-10 and a larger δ; with a larger κ; and of
        pixels that reached κ ≤ 1e-10 only in double-double arithmetic.
    sum_of_rmse : float
        The sum of the RMSE of the solved pixels.
    worst_kappa, worst_delta, worst_relative, worst_rmse : float
        The largest κ, δ, relative RMSE and RMSE of the solved pixels.
    failures : list of (line, sample)
        The first hundred failed pixels.
    steps : list of int
        Numbers of pixels that took 0, 1, 2, … steps.
    misfit : array (256,), int64
        Numbers of pixels with a relative RMSE, |y − E a| over |y|, in each bin of `edges`.
    kappas : array (64,), int64
        Numbers of pixels with a κ in each octave, as `kappa_bin_of` has them.
    sums, most : arrays (p,), float64
        Sum and largest of each endmember's abundances.
    there, outside : arrays (p,), int64
        Numbers of pixels with more than 1 % of each endmember, and with more than 99 % and a relative RMSE above 10 %.
    sampled : int
        Number of pixels that ``residuals`` is of; see `unmix.runs.stream`.
    residuals : array (3, L), float64
        Sums over these pixels for each band: of squares of y − E a, of y − E a, and of squares of y.
    of_lines : list of array (n, p)
        The sums of abundances of each line, until the next `merge`.
    kept : list of (array (n, L), array (n,), array (n,))
        Spectra of these pixels, their lines and samples; no part of the journal, so that a resumed run lacks those of
        earlier lines.
    """

    solved: int = 0
    masked: int = 0
    partly_nodata: int = 0
    certified: int = 0
    fit_certified: int = 0
    failed: int = 0
    rescued: int = 0
    sampled: int = 0
    sum_of_rmse: float = 0.0
    worst_kappa: float = 0.0
    worst_delta: float = 0.0
    worst_relative: float = 0.0
    worst_rmse: float = 0.0
    failures: list[tuple[int, int]] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    misfit: np.ndarray = field(default_factory=lambda: np.zeros(BINS, np.int64))
    kappas: np.ndarray = field(default_factory=lambda: np.zeros(KAPPA_BINS, np.int64))
    sums: np.ndarray | None = None
    most: np.ndarray | None = None
    there: np.ndarray | None = None
    outside: np.ndarray | None = None
    residuals: np.ndarray | None = None
    of_lines: list[np.ndarray] = field(default_factory=list)
    kept: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=list)

    def add(self, first_line: int, results: Mapping[str, np.ndarray], limit: float = MOST_DELTA) -> None:
        """Count one block; ``results`` are the arrays of `unmix.devices.Line.results`."""
        counts = count_block(results, limit=limit)
        self.take(counts, results["state"].size)
        if counts.pixels[:, 2].any():
            self.failures += failures_in(first_line, results)[: MOST_FAILURES - len(self.failures)]

    def take(self, counts: Any, pixels: int) -> None:
        """Add the `BlockCounts` of a block of ``pixels`` pixels, made here or on a GPU."""
        solved, masked, failed, loose = (int(total) for total in counts.pixels.sum(axis=0))
        self.solved += solved
        self.masked += masked
        self.partly_nodata += pixels - solved - masked
        self.failed += failed
        self.fit_certified += loose
        self.certified += solved - failed - loose
        worst = counts.worst.max(axis=0, initial=0.0)
        for name, value in zip(WORST, worst):
            setattr(self, name, max(getattr(self, name), float(value)))
        self.misfit = self.misfit + counts.misfit.sum(axis=0)
        self.kappas = self.kappas + counts.kappas.sum(axis=0)
        self.add_steps([int(count) for count in np.trim_zeros(counts.steps.sum(axis=0), "b")])
        self.add_endmembers(counts.most.max(axis=0), counts.there.sum(axis=0), counts.outside.sum(axis=0))
        self.add_sums([np.array(counts.sums)])  # copied: a GPU reuses the buffer for the next block

    def add_endmembers(self, most: Any, there: Any, outside: Any) -> None:
        """Add the counts of each endmember."""
        self.most = most if self.most is None else np.maximum(self.most, most)
        self.there = there if self.there is None else self.there + there
        self.outside = outside if self.outside is None else self.outside + outside

    def add_rmse(self, rmse: np.ndarray) -> None:
        """Add the RMSE of some lines (n, samples), `NODATA` where a pixel is not solved."""
        self.sum_of_rmse += float(np.sum(rmse, dtype=np.float64, where=rmse != NODATA))

    def add_residuals(self, pixels: int, sums: np.ndarray) -> None:
        """Add what the model leaves of each band in some pixels, (3, L); see ``residuals``."""
        self.sampled += pixels
        self.residuals = sums if self.residuals is None else self.residuals + sums

    def percentile(self, share: float) -> float:
        """Return the relative RMSE that a share of pixels does not exceed; 62 if it is larger, NaN without pixels."""
        # It is right to 3 % of itself between 0.001 and 62.
        if not self.misfit.sum():
            return float("nan")
        cumulative, wanted = np.cumsum(self.misfit), share * self.misfit.sum()
        index = int(np.searchsorted(cumulative, wanted))
        bounds = edges()
        if index == BINS - 1:
            return float(bounds[index])
        fraction = 1.0 - (cumulative[index] - wanted) / self.misfit[index]
        return min(float(bounds[index] * (bounds[index + 1] / bounds[index]) ** fraction), self.worst_relative)

    def merge(self, part: "Summary") -> None:
        """Add the totals of the lines that follow, and drop the sums of each line."""
        self.append(part)
        self.of_lines = []

    def append(self, part: "Summary") -> None:
        """Add the totals of the lines that follow."""
        for name in ADDED:
            setattr(self, name, getattr(self, name) + getattr(part, name))
        for name in WORST:
            setattr(self, name, max(getattr(self, name), getattr(part, name)))
        self.failures += part.failures[: MOST_FAILURES - len(self.failures)]
        self.add_steps(part.steps)
        if part.most is not None:
            self.add_endmembers(part.most, part.there, part.outside)
        if part.residuals is not None:
            self.add_residuals(0, part.residuals)
        self.kept += part.kept
        self.add_sums(part.of_lines)

    def to_dict(self) -> dict[str, Any]:
        """Return all totals as JSON types, for the journal."""
        return {
            **{name: getattr(self, name) for name in (*ADDED, *WORST) if name not in HISTOGRAMS},
            **{name: None if (value := getattr(self, name)) is None else value.tolist() for name in ARRAYS},
            "steps": {str(taken): pixels for taken, pixels in enumerate(self.steps) if pixels},
            **{
                name: {str(place): int(getattr(self, name)[place]) for place in np.flatnonzero(getattr(self, name))}
                for name in HISTOGRAMS
            },
            "failures": [list(place) for place in self.failures],
        }

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> "Summary":
        """Return the summary that `to_dict` wrote."""
        steps = [0] * (1 + max(map(int, fields["steps"]), default=-1))
        for step, pixels in fields["steps"].items():
            steps[int(step)] = pixels
        counted = {name: np.zeros(bins, np.int64) for name, bins in HISTOGRAMS.items()}
        for name, counts in counted.items():
            for place, pixels in fields[name].items():
                counts[int(place)] = pixels
        arrays = {name: None if fields[name] is None else np.array(fields[name]) for name in ARRAYS}
        failures = [(line, sample) for line, sample in fields["failures"]]
        return cls(**fields | arrays | counted | {"failures": failures, "steps": steps})

    def refuse_other(self, endmembers: int, bands: int) -> None:
        """Raise `ValueError` if totals are of other numbers of endmembers or bands, or residuals of no pixels."""
        shapes = {name: (3, bands) if name == "residuals" else (endmembers,) for name in ARRAYS}
        for name, shape in shapes.items():
            value = getattr(self, name)
            if value is not None and value.shape != shape:
                raise ValueError(f"{name} has the shape {value.shape}, not {shape}")
        if self.residuals is not None and not (self.sampled > 0 and not (self.residuals[::2] < 0.0).any()):
            raise ValueError("residuals are of no pixels, or their squares are negative")

    def add_steps(self, counts: list[int]) -> None:
        """Add a histogram to ``steps``."""
        self.steps += [0] * (len(counts) - len(self.steps))
        for i, count in enumerate(counts):
            self.steps[i] += count

    def add_sums(self, blocks: list[np.ndarray]) -> None:
        """Add to ``sums`` line by line, so that the result does not depend on how the scene is cut into blocks."""
        # On a GPU the last bits may: the host sums a line with pixels that it solves again, in another order.
        self.of_lines += blocks
        for lines in blocks:
            # In order, which `sum` along an axis does not guarantee; in one call, since a loop over 10 000 lines costs
            # 30 ms.
            stacked = lines if self.sums is None else np.vstack([self.sums, lines])
            self.sums = np.add.accumulate(stacked, axis=0)[-1] if len(stacked) else self.sums
