"""Average class fractions over all models of a library, each weighted by its likelihood and by its class set's share.

A sample of the scene says how often each set of classes is there, by expectation maximisation of its evidence, and,
where no noise is given, under which noise the sample is most likely. Where the best mixture of a pixel leaves more than
noise, the library errs, and that is the variance of the pixel.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...arrays.others.kinds import on_host
from ...arrays.pixels import checked
from ...blocks import workers_for
from ...devices import count_gpus
from ...errors import DeviceError, LibraryError, MethodError
from ...io import NODATA, spectra
from ...maps.derived.solved import map_of_solved
from ...methods import counts_of_models
from ...runs.look import Sample
from ...scene.sample import spaced
from .models import MOST_MODELS, ModelTable, bytes_of_table, tabulate
from .settings import names_of_averages
from .sums import EVIDENCE, SQUARES, SUMS, TOTAL, TOTAL_SQUARE, AverageWork, cpu_function, work_shapes

# Pixels that say how often classes are there, of a scene; and that are averaged at a time.
SAMPLE_PIXELS, TOGETHER = 256, 64
# Bytes of a table that is held whatever `memory` says.
ALWAYS_HELD = 2**24
# Share of the bands below which it is said that misfits are alike in them.
MOSTLY_ALIKE = 0.7
# Fewest pixels whose misfits are compared between bands.
FEWEST_PIXELS = 32
# Pixels with larger misfits than this percentile say nothing of the noise: they lack a spectrum.
TRIMMED = 95.0
# Steps of expectation maximisation. The noise is searched by factors of the median misfit of a band: the first, the
# next, and how many at most; it ends after two smaller likelihoods, and one in four pixels is enough for it.
STEPS, FIRST_FACTOR, FACTOR, MOST_FACTORS, FALLS, EVERY = 200, 0.25, 2.0, 30, 2, 4
# The least variance of the noise that is tried, of the mean square of pixels: that of float32's rounding.
ROUNDING_SHARE = 1e-15


class ClassAverages(NamedTuple):
    """Class fractions of pixels (N, ...), float64.

    ``mean`` and ``deviation`` (N, C + 2) are those of the C classes, of shade, and of the sum of the classes;
    ``models`` (N,) is how many models share the weight, (Σw)² / Σw².
    """

    mean: np.ndarray
    deviation: np.ndarray
    models: np.ndarray


def equal_prior(table: ModelTable) -> np.ndarray:
    """Return a prior (S, 2): numbers of classes, sets of a number, and shade or none, are alike."""
    numbers = np.bincount(table.sizes)[table.sizes]
    each = 1.0 / (numbers * len(set(table.sizes.tolist())))
    return np.column_stack([each / 2, each / 2] if table.shade else [0.0 * each, each])


@dataclass
class Likely:
    """The averages of a library's models.

    Attributes
    ----------
    E : array (L, p), float64
        Spectra, less shade's, in units of noise where that is given for each band.
    table : ModelTable
    prior : array (S, 2), float64
        Of each set of classes, with and without shade.
    variance : float
        Of the noise of a band.
    alike : float
        For how many bands one counts, where misfits are alike in them.
    """

    E: np.ndarray
    table: ModelTable
    classes: int
    prior: np.ndarray
    variance: float = 0.0
    threads: int = 1
    device: str = "cpu"
    alike: float = 1.0
    there: Any = None  # the table and E on a GPU

    def sums(self, Y: np.ndarray, noise: tuple[float, float, float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return totals (N, ...), evidence (N, S, 2), and χ², σ and the best model (N, 3), of pixels (N, L)."""
        sets = len(self.table.sizes)
        totals, evidence, fits = (
            np.empty((len(Y), SUMS + 2 * self.classes)),
            np.empty((len(Y), 2 * sets)),
            np.empty((len(Y), 3)),
        )
        if self.device.startswith("cuda"):
            from .cuda import average_there

            average_there(self, Y, noise, totals, evidence, fits)
            return totals, evidence.reshape(-1, sets, 2), fits
        from ...compiled.jit import WIDE, aligned_zeros

        find = cpu_function()

        def average(part: slice) -> None:
            shapes = work_shapes(self.E.shape[1], self.classes, self.table.sizes.tolist(), WIDE.width)
            work, squares = AverageWork(*(aligned_zeros(*shape) for shape in shapes)), aligned_zeros(4, WIDE.width)
            own = totals[part], evidence[part], fits[part]
            find(self.table, Y[part], self.E, self.prior, noise, work, squares, *own)

        with ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(average, (slice(first, first + TOGETHER) for first in range(0, len(Y), TOGETHER))))
        return totals, evidence.reshape(-1, sets, 2), fits

    @property
    def noise(self) -> tuple[float, float, float]:
        """The variance; by which factor misfits exceed it where the library errs, three deviations of χ²; and `alike`."""
        return self.variance, float(1 + 3 * np.sqrt(2 / len(self.E))), self.alike

    def of(self, Y: np.ndarray) -> ClassAverages:
        """Return the averages of pixels (N, L), less shade's spectrum and in the unit of E."""
        totals = self.sums(Y, self.noise)[0]
        weight = totals[:, EVIDENCE]
        with np.errstate(invalid="ignore", divide="ignore"):
            numbers = totals / weight[:, None]
            models = np.square(weight) / totals[:, SQUARES]
        total, total_square = numbers[:, TOTAL], numbers[:, TOTAL_SQUARE]
        mean = np.column_stack([numbers[:, SUMS::2], 1 - total, total])
        square = np.column_stack([numbers[:, SUMS + 1 :: 2], 1 - 2 * total + total_square, total_square])
        return ClassAverages(mean, np.sqrt(np.maximum(square - np.square(mean), 0.0)), models)

    def learn(self, Y: np.ndarray, is_known: bool) -> None:
        """Learn the prior and, unless its variance is known, the noise from pixels (N, L)."""
        few, L = Y[::EVERY], Y.shape[1]
        fits = self.sums(Y, (self.variance, np.inf, 1.0))[2]
        misfits = fits[:, 0] / L
        self.alike = self.bands_alike(Y, fits[:, 2].astype(int), misfits)
        if not is_known and len(Y):
            few = few[misfits[::EVERY] <= np.percentile(misfits[::EVERY], TRIMMED)]
            variance = max(FIRST_FACTOR * float(np.median(misfits)), ROUNDING_SHARE * float(np.square(Y).mean()))
            found: list[float] = []
            while len(found) < MOST_FACTORS and (len(found) < FALLS or max(found) not in found[:-FALLS]):
                tried = variance * FACTOR ** len(found), np.inf, 1.0
                found.append(self.likelihood(*self.sums(few, tried), L)[0])
            at = int(np.argmax(found))
            before, here, after = ([-np.inf, *found, -np.inf][at + k] for k in range(3))
            # A parabola through the largest and its neighbours.
            bend = before - 2 * here + after
            peak = 0.5 * (before - after) / bend if np.isfinite(bend) and bend < 0 else 0.0
            self.variance = variance * FACTOR ** (at + peak)
        self.prior = self.likelihood(*self.sums(Y, self.noise), L)[1]

    def bands_alike(self, Y: np.ndarray, which: np.ndarray, misfits: np.ndarray) -> float:
        """Return for how many bands one counts, as the residuals R (N, L) of best mixtures are alike in them; at least 1."""
        # Of white noise (tr RᵀR)² / tr (RᵀR)² is the dimensions that are left to it, but for the draw.
        some = (which >= 0) & (misfits <= np.percentile(misfits, TRIMMED)) if len(Y) else np.zeros(0, bool)
        if np.count_nonzero(some) < FEWEST_PIXELS:
            return 1.0
        table, rows = self.table, []
        sets = np.searchsorted(table.begin, which[some], side="right") - 1
        for y, s, m in zip(Y[some], sets, which[some]):
            k = table.sizes[s]
            A = self.E[:, table.spectra[table.spectra_at[s] + k * (m - table.begin[s]) :][:k]]
            a = np.linalg.lstsq(A, y, rcond=None)[0]
            if a.sum() > 1 or not table.shade:
                along = np.linalg.pinv(A.T @ A).sum(axis=1)
                a = a + (1 - a.sum()) / along.sum() * along
            rows.append(y - A @ a)
        R = np.array(rows)
        S, left = R.T @ R / len(R), Y.shape[1] - float(table.sizes[sets].mean())
        squares = float(np.square(S).sum()) - np.trace(S) ** 2 / len(R)
        return max(1.0, left * squares / np.trace(S) ** 2) if np.trace(S) > 0 else 1.0

    def likelihood(
        self, totals: np.ndarray, evidence: np.ndarray, fits: np.ndarray, L: int
    ) -> tuple[float, np.ndarray]:
        """Return the log-likelihood of pixels, and the prior that has the largest."""
        start = prior = equal_prior(self.table)
        for _ in range(STEPS):
            shares = evidence * prior
            shares /= np.maximum(shares.sum(axis=(1, 2), keepdims=True), 1e-300)
            # As if one more pixel for each set had been seen, so that no set is ruled out.
            prior = (shares.sum(axis=0) + start * len(self.table.sizes)) / (len(evidence) + len(self.table.sizes))
        found = np.log(np.maximum((evidence * prior).sum(axis=(1, 2)), 1e-300))
        best, sigma, _ = fits.T
        return float(np.sum(found - best / (2 * sigma**2) - L * np.log(sigma))), prior


def average(
    Y: np.ndarray,
    E: np.ndarray,
    classes: Sequence[str],
    *,
    noise: float | np.ndarray | None = None,
    shade: bool = True,
    seed: int = 0,
    device: str = "cpu",
    threads: int | None = None,
) -> ClassAverages:
    """Average class fractions over all models of one spectrum of each class, each weighted by its likelihood.

    Parameters
    ----------
    Y : array-like of shape (..., L)
        Pixels, in any real type; pixels with a value that is not finite have NaN.
    E : array-like of shape (L, p)
        A library, one spectrum per column, in the unit of Y.
    classes : sequence of p str or numbers
        The class of each spectrum.
    noise : float or array-like (L,), optional
        Standard deviation of a band's noise, in the unit of Y; default is that under which the pixels are most likely.
    shade : bool
        Whether fractions may sum to less than one.
    seed : int
        Of the models that are drawn where there are more than a million, and of the steps beside optima.
    device : {"cpu", "cuda"}
        The device that sums.
    threads : int, optional
        CPU threads; default is all.

    Returns
    -------
    ClassAverages
        Of the classes in the order of their first spectra, of shade, and of the sum of the classes.

    Raises
    ------
    CubeError, LibraryError
        As for `unmix.solve`, and if there is not a class for every spectrum, or there are too many.
    MethodError, DeviceError
        If noise or seed are none that they may be, or there is no such device.

    Examples
    --------
    >>> import numpy as np, unmix
    >>> E = np.array([[0.1, 0.2, 0.5], [0.3, 0.2, 0.4], [0.2, 0.6, 0.1], [0.6, 0.3, 0.2]])
    >>> Y = np.array([[0.3, 0.35, 0.15, 0.4]])
    >>> unmix.average(Y, E, ["soil", "soil", "tree"], noise=0.001).mean.round(2)
    array([[0.5, 0.5, 0. , 1. ]])
    """
    Y, E = checked(on_host(Y), E)
    names = list(dict.fromkeys(classes))
    if len(classes) != E.shape[1]:
        raise LibraryError(f"{len(classes)} classes for {E.shape[1]} spectra")
    if device not in ("cpu", "cuda") or (device == "cuda" and not count_gpus()):
        raise DeviceError(f"`device` {device}: there is cpu, and cuda where there is a GPU")
    if seed < 0:
        raise MethodError(f"`seed` {seed}: must be a whole number, at least 0")
    # A power of 2, so that determinants stay within float64's range.
    size = np.ldexp(1.0, int(np.frexp(np.abs(E).max())[1]))
    unit = np.asarray(size if noise is None else noise, np.float64)
    unit = np.broadcast_to(unit, (len(E),)) if unit.shape in ((), (len(E),)) else np.zeros(1)
    if not (np.isfinite(unit).all() and (unit > 0).all()):
        raise MethodError("`noise`: must be standard deviations above 0, one for all bands or one for each")
    kinds = np.array([names.index(name) for name in classes])
    scaled = np.ascontiguousarray(E / unit[:, None])
    table, is_known = tabulate(scaled, kinds, shade, seed), noise is not None
    likely = Likely(scaled, table, len(names), equal_prior(table), float(is_known), workers_for(threads), device)
    pixels = np.asarray(Y, np.float64).reshape(-1, len(E)) / unit
    good = np.isfinite(pixels).all(axis=1)
    known = pixels[good]
    likely.learn(spaced(known, SAMPLE_PIXELS), is_known)
    found = likely.of(known)
    out = [np.full((len(pixels), *values.shape[1:]), np.nan) for values in found]
    for values, own in zip(out, found):
        values[good] = own
    return ClassAverages(*(values.reshape((*Y.shape[:-1], *values.shape[1:])) for values in out))


class LikelyAverage:
    """The averages of a scene's pixels; a map of `unmix.maps.derived`.

    Parameters
    ----------
    given : GivenLines
        Of a problem by fcls, pcls or mesma.
    """

    description = "means and standard deviations of sums by class over models, weighted by their likelihood,"

    def __init__(self, given: Any) -> None:
        problem, options = given.problem, given.options
        self.given, self.sums, self.bands = given, given.sums, names_of_averages(given.sums.bands)
        matrix, shade = problem.endmembers.matrix, int(problem.endmembers.has_shade)
        self.unit = np.ones(len(matrix)) if problem.noise is None else problem.noise
        self.shade = matrix[:, -1] if shade else np.zeros(len(matrix))
        spectra_given = matrix[:, : matrix.shape[1] - shade]
        kinds = np.empty(spectra_given.shape[1], np.int64)
        for c, members in enumerate(self.sums.members):
            kinds[list(members)] = c
        counts = np.bincount(kinds).tolist()
        if (needed := bytes_of_table(counts)) > max(options.budget, ALWAYS_HELD):
            raise MethodError(
                f"`average`: the table of the models needs {needed} bytes; raise `memory`, or select fewer"
            )
        self.kinds, self.columns, self.counts = kinds, spectra_given, counts
        self.lock = threading.Lock()
        self.likely: Likely | None = None

    def learned(self) -> Likely:
        """Return the average with what a sample of the scene says of it, which is read once."""
        with self.lock:
            if self.likely is None:
                given, problem = self.given, self.given.problem
                E = np.ascontiguousarray((self.columns - self.shade[:, None]) / self.unit[:, None])
                has_shade = bool(problem.mesma) or problem.endmembers.has_shade
                table = tabulate(E, self.kinds, has_shade, given.options.seed)
                device = "cuda" if given.device.startswith("cuda") else "cpu"
                is_known = problem.noise is not None
                made = Likely(E, table, len(self.counts), equal_prior(table), float(is_known), given.threads, device)
                Y = Sample.read(problem.scene(given.cube)).Y
                made.learn(self.scaled(spaced(Y, SAMPLE_PIXELS)), is_known)
                self.likely = made
            return self.likely

    def scaled(self, Y: np.ndarray) -> np.ndarray:
        """Return pixels (N, L), less shade and in units of noise."""
        return np.ascontiguousarray((Y - self.shade) / self.unit)

    def of(self, first: int, raw: np.ndarray, abundance: np.ndarray, masked: np.ndarray) -> np.ndarray:
        """See `unmix.maps.derived.table.DerivedMap`."""
        problem, likely = self.given.problem, self.learned()
        Y = spectra(raw, problem.interleave, problem.bands)

        def values(places: np.ndarray, A: np.ndarray) -> np.ndarray:
            found = likely.of(self.scaled(Y[places]))
            kept = [*range(len(self.counts)), *[-2] * likely.table.shade, -1]
            both = np.hstack([found.mean[:, kept], found.deviation[:, kept]])
            return np.nan_to_num(both, nan=NODATA).astype(np.float32)

        return map_of_solved(len(self.bands), abundance, masked, values)

    def entry(self) -> dict[str, Any]:
        """Return the entry in a run's record."""
        likely, names = self.learned(), self.sums.names
        table, total = likely.table, sum(counts_of_models(self.counts, len(self.counts)))
        sigma, count = float(np.sqrt(likely.variance)), int((np.diff(table.begin) // table.repeats).sum())
        noise = (
            "of `noise`" if self.given.problem.noise is not None else f"{sigma:.3g}, under which a sample is likeliest"
        )
        shares = likely.prior.sum(axis=1)
        sets: list[dict[str, Any]] = [
            {"classes": [names[c] for c in table.classes[s][: table.sizes[s]]], "share": float(shares[s])}
            for s in np.argsort(-shares, kind="stable")
        ]
        often = ", ".join(f"{'+'.join(one['classes'])} {one['share']:.0%}" for one in sets[:3])
        drawn = f"{count} of {total} models, drawn at random" if total > MOST_MODELS else f"all {total} models"
        said = f"`average` over {drawn}; noise {noise}; classes of a pixel: {often}"
        if (independent := len(likely.E) / likely.alike) < MOSTLY_ALIKE * len(likely.E):
            said += f"; misfits are alike in bands, so that {len(likely.E)} count as {independent:.0f}"
        return {
            "models": total,
            "noise": None if self.given.problem.noise is not None else sigma,
            "sets": sets,
            "said": said,
        }
