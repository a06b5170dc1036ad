"""Collaborative sparse regression: all pixels choose their few endmembers of a library together, with a proof."""

import logging
from dataclasses import dataclass, field, replace

import numpy as np

from ..certificate import UNIT_ROUNDOFF
from ..errors import CubeError, MethodError
from ..methods import LARGEST_THRESHOLD
from ..problem import refuse_sizes
from ..solvers.pixels.rows import (
    DUAL_ERRORS,
    EXPLAINED,
    EXPLAINED_ERROR,
    EXPLAINED_TERMS,
    FREEDOM,
    LEFT,
    regression_of,
)
from .correlations import BLOCK_PIXELS, Block, Correlations, blocks_of
from .pixels import checked, numbered

log = logging.getLogger("unmix")

# The duality gap, relative to the optimum, at which the search ends: Newton's steps then square it with each pass.
PROVEN = 1e-6
MOST_PASSES = 60
# Largest factor by which Newton's step is lengthened. For a row alone |v_j| falls as 1 / (λ + η |e_j|²): a step on 1/|v_j| would reach
# the optimum, and the step on |v_j|² is too short by 2c² / (c + 1), c = |v_j| / λ. Rows that share pixels overshoot with longer steps;
# up to this factor they save a third of the passes where λ is small (16 in place of 22, 18 of 25).
MOST_LENGTHENING = 2.0
# The duality gap, relative to the cost, at which the search ends while λ is chosen: the estimate of the error is not as exact.
PROVEN_TO_CHOOSE = 1e-3
# Rows that may enter in one pass: this number, or half of those in the support if that is more.
ENTERING = 16
# Addend to the second derivatives (Levenberg): always `RIDGE`, and more where a step does not lower the cost; each costs a pass.
# The unit is λ² / η_j, the second derivative of a row alone.
RIDGE, LEAST_DAMPING, DAMPING_STEP, LARGEST_DAMPING = 1e-10, 1e-6, 10.0, 1e6
# Smallest λ that is tried, and that a user may give, as shares of the λ from which on all abundances are 0: below the latter second
# derivatives are rounding.
SMALLEST_TRIED_SHARE = 1e-6
SMALLEST_ALLOWED_SHARE = 1e-9
# Ratio between successive λ; number of λ without improvement after which the search ends.
RATIO, MOST_WORSE = 2.0, 3
# Values between 2 to the power of minus this and of this have fourth powers within float64's range.
ORDINARY = 64


@dataclass(frozen=True)
class Collaborative:
    """The solution of ``min ½ Σ|y − E a|² + λ Σ_j |x_j|`` over a ≥ 0, where x_j are the abundances of endmember j in all pixels.

    Attributes
    ----------
    scales : array (p,), float64
        ``|x_j|``, which each row of abundances follows from (`unmix.problem.steps.Costs`); 0 where no pixel has the endmember.
    l21 : float
        λ.
    objective : float
        The cost at the solution.
    gap : float
        The duality gap, rounding included: the largest share of the objective by which it may be above the optimum. Above 1e-6
        a warning is logged.
    absent : int
        How many endmembers are proved to be in no pixel of any optimum, rounding included.
    passes : int
        How often all pixels were solved.
    pixels : int
    left : float
        ``Σ|y − E a|²``.
    freedom : float
        Degrees of freedom of all fits: the trace of the map from pixels to ``E a``, for these scales.
    abundances : array (..., p), float64
        Of pixels in memory; empty for a scene on disk.
    """

    scales: np.ndarray
    l21: float
    objective: float
    gap: float
    absent: int
    passes: int
    pixels: int
    left: float
    freedom: float
    abundances: np.ndarray = field(default_factory=lambda: np.empty(0))


def collaborative(
    Y: np.ndarray, E: np.ndarray, l21: float, *, device: str = "cpu", threads: int | None = None
) -> Collaborative:
    """Find the abundances of pixels that choose their endmembers together (Iordache, Bioucas-Dias and Plaza 2014), non-negative.

    Parameters
    ----------
    Y : array-like of shape (..., L)
        Pixels, in any real type and unit.
    E : array-like of shape (L, p)
        A library, one spectrum per column, in the unit of Y.
    l21 : float
        λ, above 0: the larger, the fewer endmembers there are in all pixels together. It grows with the root of the number of pixels.
    device : str
        "cpu", "cuda", "cuda:K" or "auto": what solves the pixels of each pass.
    threads : int, optional
        CPU threads; default is all.

    Returns
    -------
    Collaborative

    Raises
    ------
    CubeError, LibraryError
        As for `unmix.solve`.
    MethodError, DeviceError
        If λ is not above 0, or so small that it changes nothing; if the device is unknown or not available.

    Examples
    --------
    >>> import numpy as np, unmix
    >>> E = np.array([[1.0, 0.0, 0.7], [0.0, 1.0, 0.7], [0.1, 0.1, 0.1]])
    >>> found = unmix.collaborative(np.array([[0.9, 0.5, 0.15], [0.6, 0.5, 0.1]]), E, 0.1)
    >>> found.scales.round(3), found.abundances.round(3)
    (array([0.346, 0.   , 0.941]), array([[0.322, 0.   , 0.699],
           [0.125, 0.   , 0.631]]))
    """
    Y, E = checked(Y, E)
    refuse_sizes(numbered(E), True)
    pixels = np.asarray(Y, np.float64).reshape(-1, E.shape[0])
    good = np.isfinite(pixels).all(axis=1)
    # Divided by a power of 2, so that squares stay within float64's range; abundances, scales and λ are in the unit of Y.
    size = int(np.frexp(np.abs(pixels[good]).max(initial=0.0))[1])
    size = size if abs(size) > ORDINARY else 0
    near, l1 = np.ldexp(pixels[good], -size), float(np.ldexp(l21, -size))
    correlations = Correlations(blocks_of(near), E, device=device, threads=threads)
    found = search(correlations, l1)
    X = np.full((len(pixels), E.shape[1]), -9999.0)
    X[good] = np.ldexp(abundances_of(correlations, found.scales, l1), size)
    with np.errstate(over="ignore"):
        objective, left = (float(np.ldexp(value, 2 * size)) for value in (found.objective, found.left))
    found = replace(found, scales=np.ldexp(found.scales, size), l21=l21, objective=objective, left=left)
    warn_of_gap(found, "Y")
    return replace(found, abundances=X.reshape(*Y.shape[:-1], E.shape[1]))


def warn_of_gap(found: Collaborative, source: object) -> None:
    """Log a warning where the search ended before the duality gap was small enough."""
    if not found.gap <= PROVEN:
        log.warning(
            f"{source}: `l21` {found.l21:g} is not at its optimum: after {found.passes} passes the duality gap is "
            f"{found.gap:.1e} of the cost, and not {PROVEN:g}; a larger `l21` needs fewer passes"
        )


def refuse_small(l21: float, largest: float) -> None:
    """Raise `MethodError` if λ is too small a share of the ``largest``, from which on all is 0: second derivatives are rounding."""
    if 0 < l21 < SMALLEST_ALLOWED_SHARE * largest:
        raise MethodError(
            f"`l21` {l21:g}: is below {SMALLEST_ALLOWED_SHARE:g} of {largest:.4g}, from which on all abundances are 0;"
            " without it the answer is the same"
        )


@dataclass
class Sums:
    """Sums of one pass over all pixels, for the k endmembers with a scale above 0 and their abundances x.

    With the residuals r of a pixel, ``w_j = e_jᵀr``.
    """

    left: float  # Σ |r|²
    explained: float  # Σ xᵀw
    freedom: float  # Σ of the pixels' degrees of freedom: the traces of the maps from y to E a
    dual_errors: float  # Σ of squared bounds on the rounding of w_j / |e_j|
    explained_error: float  # bound on the error of ``explained`` by the rounding of w
    explained_terms: float  # Σ |x_j w_j|
    pixels: int
    rows: np.ndarray  # (k,): Σ x_j²
    duals: np.ndarray  # (p,): Σ max(w_j, 0)²
    curvature: np.ndarray  # (k, k): second derivatives of the cost by the scales, times λ

    def add(self, totals: np.ndarray, rows: np.ndarray, duals: np.ndarray, curvature: np.ndarray) -> None:
        """Add the sums of some pixels, as `unmix.arrays.correlations.Sums` has them."""
        self.left += float(totals[LEFT])
        self.explained += float(totals[EXPLAINED])
        self.freedom += float(totals[FREEDOM])
        self.dual_errors += float(totals[DUAL_ERRORS])
        self.explained_error += float(totals[EXPLAINED_ERROR]) * 1.01
        self.explained_terms += float(totals[EXPLAINED_TERMS])
        self.rows += rows
        self.duals += duals
        self.curvature += curvature


def search(pixels: Correlations, l21: float, start: np.ndarray | None = None, proven: float = PROVEN) -> Collaborative:
    """Find the scales of the optimum, by Newton's method on a convex function of them.

    As ``|x| = min (|x|²/η + η) / 2`` over η > 0, the cost is the least of ``½ Σ|y − E a|² + λ/2 Σ_j (|x_j|²/η_j + η_j)`` over a and η,
    convex in both. Its minimum over a is a problem of each pixel alone (`unmix.problem.steps.Costs`), and a convex function of η ≥ 0
    with the slope ``λ/2 (1 − |v_j|²/λ²)``, v_j the positive parts of ``e_jᵀr`` over all pixels: a row is in use where ``|v_j| = λ``. A
    step of Newton's method is a non-negative quadratic programme, which sets rows to zero outright.

    Parameters
    ----------
    pixels : Correlations
    l21 : float
    start : array (p,), float64, optional
        Scales to start from; default is 0.
    proven : float
        The duality gap, relative to the cost, at which the search ends.

    Returns
    -------
    Collaborative
        Without abundances.

    Raises
    ------
    MethodError
        If λ is not above 0, is beyond float64's range or, without ``start``, is refused by `refuse_small`.
    """
    if not 0 < l21 < LARGEST_THRESHOLD:
        raise MethodError(f"`l21` {l21:g}: must be above 0, and below {LARGEST_THRESHOLD:g}")
    squares = np.diag(pixels.G)
    scales = np.zeros(len(squares)) if start is None else start
    sums = one_pass(pixels, scales, l21)
    if start is None:
        refuse_small(l21, float(np.sqrt(sums.duals.max(initial=0.0))))
    cost, passes, damping = cost_of(sums, scales, l21), 1, 0.0
    while True:
        gap, absent = proof(sums, squares, l21)
        objective = 0.5 * sums.left + l21 * float(np.sqrt(sums.rows).sum())
        if gap <= proven * objective or passes >= MOST_PASSES or damping > LARGEST_DAMPING:
            break
        trial = newton(sums, scales, squares, l21, damping)
        found = one_pass(pixels, trial, l21)
        passes += 1
        lowered = cost_of(found, trial, l21)
        if lowered < cost + abs(cost) * 1e-14:
            scales, sums, cost = trial, found, lowered
            damping = damping / DAMPING_STEP if damping > LEAST_DAMPING else 0.0
        else:
            damping = max(LEAST_DAMPING, damping * DAMPING_STEP)
    relative = gap / objective if objective > 0 else 0.0
    return Collaborative(scales, l21, objective, relative, absent, passes, sums.pixels, sums.left, sums.freedom)


def choose_l21(pixels: Correlations, variance: float) -> float:
    """Return the λ with the least expected error of the fit, by Stein's unbiased estimate.

    The expectation of ``Σ |E a − clean y|²`` is that of ``Σ |y − E a|² + 2 σ² d``, less a constant, with σ² the ``variance`` of the
    noise of a band and d the trace of the map from y to E a; the freedom of the scales, which all pixels share, is left out. The λ is
    right to a factor of two, within which the error changes little. λ for N pixels like these n is √(N / n) times as large.
    """
    largest = largest_l21(pixels)
    l21 = largest / RATIO
    least, best, scales, worse = np.inf, l21, None, 0
    while worse < MOST_WORSE and l21 > SMALLEST_TRIED_SHARE * largest:
        found = search(pixels, l21, scales, PROVEN_TO_CHOOSE)
        scales, risk = found.scales, found.left + 2.0 * variance * found.freedom
        least, best, worse = (risk, l21, 0) if risk < least else (least, best, worse + 1)
        l21 /= RATIO
    return best


def largest_l21(pixels: Correlations) -> float:
    """Return the λ from which on all abundances are 0."""
    return float(np.sqrt(one_pass(pixels, np.zeros(len(pixels.G)), 1.0).duals.max(initial=0.0)))


def cost_of(sums: Sums, scales: np.ndarray, l21: float) -> float:
    """Return the cost that the search minimises over the scales."""
    used = scales[scales > 0]
    return 0.5 * sums.left + 0.5 * l21 * float((sums.rows / used + used).sum())


def proof(sums: Sums, squares: np.ndarray, l21: float) -> tuple[float, int]:
    """Return the duality gap, and how many endmembers are in no pixel of any optimum; both include all rounding.

    The dual point is ``Θ = sR``, R all residuals and s ≤ 1 such that no ``|max(e_jᵀΘ, 0)|`` is above λ. An optimum's residuals are no
    further than ``√(2 gap)`` from it, so a row whose ``|max(e_jᵀΘ, 0)| + |e_j| √(2 gap)`` is below λ is zero (Ndiaye et al. 2017).
    """
    # Each sum is right to ``share`` of its terms: a block adds its pixels in turn, with some operations each, then blocks are added.
    terms = min(sums.pixels, BLOCK_PIXELS) * (len(squares) + 10.0) + sums.pixels / BLOCK_PIXELS + 100.0
    share = UNIT_ROUNDOFF * terms
    lengths = np.sqrt(sums.duals) * (1.0 + share) + np.sqrt(squares * sums.dual_errors) * (1.0 + share)
    s = min(1.0, l21 / float(lengths.max(initial=l21)))
    left, price = 0.5 * sums.left * (1.0 - s) ** 2, l21 * float(np.sqrt(sums.rows).sum())
    gap = left + price - s * sums.explained
    gap = max(gap, 0.0) + share * (left + price + sums.explained_terms) + sums.explained_error
    if not np.isfinite(gap):
        return np.inf, 0
    return gap, int(((s * lengths + np.sqrt(squares * 2.0 * gap)) * (1.0 + share) < l21).sum())


def newton(sums: Sums, scales: np.ndarray, squares: np.ndarray, l21: float, damping: float) -> np.ndarray:
    """Return the scales of the minimum of the cost's second-order model, with rows that enter; ``damping`` makes the step shorter."""
    from scipy.optimize import nnls  # slow to import

    used = np.flatnonzero(scales)
    target = np.zeros(len(scales))
    if len(used):
        # Rows that depend on each other, or that no pixel has, make it singular; the addend changes the steps, not where they end.
        curvature = sums.curvature + np.diag(max(damping, RIDGE) * l21**2 / scales[used])
        size = np.sqrt(np.diag(curvature))
        values, vectors = np.linalg.eigh(curvature / np.outer(size, size))
        T = vectors * np.sqrt(np.maximum(values, RIDGE))
        c = np.sqrt(sums.duals[used]) / l21
        longer = np.clip(2 * c**2 / (c + 1), 1.0, MOST_LENGTHENING if damping == 0.0 else 1.0)
        slope = 0.5 * (sums.duals[used] - l21**2) * longer / size
        right = T.T @ (scales[used] * size) + np.linalg.solve(T, slope)
        target[used] = nnls(T.T, right, maxiter=100 * len(used))[0] / size
    excess = np.where(scales > 0, 0.0, np.sqrt(sums.duals) / l21 - 1.0)
    entering = np.argsort(-excess, kind="stable")[: max(ENTERING, len(used) // 2)]
    entering = entering[excess[entering] > 0]
    # Alone, this would be the row's optimum: |v_j| falls as λ c / (λ + η |e_j|²).
    target[entering] = l21 * excess[entering] / squares[entering] / max(1, len(entering)) / (1.0 + damping)
    return target


def abundances_of(pixels: Correlations, scales: np.ndarray, l21: float) -> np.ndarray:
    """Return the abundances (n, p) of all pixels for given scales."""
    shared, found = regression_of(pixels.G, len(pixels.E), scales, l21), list[np.ndarray]()
    work = pixels.begin(shared, l21 / scales[shared.used])
    pixels.visit(lambda batch: found.append(work.solve(batch)))
    X = np.zeros((pixels.count, len(scales)))
    if found:
        X[:, shared.used] = np.concatenate(found)
    return X


def one_pass(pixels: Correlations, scales: np.ndarray, l21: float) -> Sums:
    """Solve all pixels for given scales, and return the sums that `search` needs."""
    shared = regression_of(pixels.G, len(pixels.E), scales, l21)
    k, work = len(shared.used), pixels.begin(shared, l21 / scales[shared.used])
    totals = Sums(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0, np.zeros(k), np.zeros(len(scales)), np.zeros((k, k)))

    def use(batch: list[Block]) -> None:
        for sums in work.sums(batch):
            totals.add(*sums)

    pixels.visit(use)
    if not (pixels.highest == 0.0 or 2.0**-ORDINARY / 2 <= pixels.highest <= 2.0**ORDINARY):
        raise CubeError(
            f"pixels have values up to {pixels.highest:.1e}, whose squares `l21` cannot add up; bring them to about 1 with `scale`"
        )
    totals.left, totals.pixels = max(totals.left, 0.0), pixels.count
    return totals
