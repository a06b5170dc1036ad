"""Choose the rows of a library that pixels in memory need."""

import itertools
from dataclasses import dataclass, replace

import numpy as np

from ...arrays.others.kinds import on_host
from ...arrays.pixels import checked, numbered, solve_pixels
from ...arrays.shown import Shown
from ...errors import CubeError, MethodError
from ...methods import BOUNDED, choose
from ...methods.constraint import Constraint
from ...problem import plan_problem, refuse_sizes
from .bound import Bound
from .search import CLEAR_GAIN, Search
from .subsets import Rows, Subsets, without
from .windows import SIDE, PixelSample, of_array

# The share of the pixels on which a fit by all is made.
FIRST = 4
# Fewest windows that are looked at. The variance of their residual, times their pixels, equals the pixels' where it
# is noise, but for this share (0.01 in draws without errors of the library) or so many deviations, and larger where
# spectra are wrong, or noise is alike among neighbours.
LEAST_WINDOWS, WHITE, WHITE_DEVIATIONS = 100, 0.02, 3.0
# Costs are divided by no less: the largest values of pixels are about 1.
LEAST_UNIT = 1e-290
# How many numbers above the one that is kept have their gain said.
FURTHER_NUMBERS = 3


@dataclass(frozen=True, repr=False)
class Choice(Shown):
    """The rows of a library that pixels need together, and the costs of changes of one on a sample of the pixels.

    Attributes
    ----------
    rows : array (K,), int64
        The columns of the library, in ascending order. No exchange of one for another column lowers the cost ``C = Σ|y
        − E a|²`` of the sample; where their number is not given, none lowers both the cost and the net cost ``C + σ²
        d`` without larger errors of spectra (`Subsets.wrongness`).
    losses : array (K,), float64
        By how much the loss of each row would raise the net cost, in σ² a pixel; d are the degrees of freedom
        (abundances above 0, less one in each pixel where the sum is one), so that a row that fits noise alone has a
        loss near 0.
    rmse : array (K,), float64
        The RMSE without it, in the unit of the pixels.
    others : array (K,), int64
        The column in place of each that raises the net cost least, of the most promising; −1 where there is none.
    exchanges : array (K,), float64
        By how much, in σ² a pixel: near 0 the two cannot be told from each other.
    numbers : array (n, 2), float64
        The knee: numbers of rows, and by how much one row less raises the net cost, in σ² a pixel.
    sigma : float
        Standard deviation of the noise of a band that was taken.
    fit : float
        The RMSE of the sample.
    pixels : int
        The pixels of the sample, or windows.
    side : int
        Pixels along a side of a window, whose means are what "pixels" are above; 1 where they are pixels.
    gap : float or None
        By which share of its cost this subset may be above the best of all subsets with as many rows. 0 where it is
        proved to be the best, None where no time was given.
    is_settled : bool
        Whether changes of one row were tried until none is better. Else the search ended after its most steps:
        ``others`` are −1 then, and ``numbers`` none.
    """

    rows: np.ndarray
    losses: np.ndarray
    rmse: np.ndarray
    others: np.ndarray
    exchanges: np.ndarray
    numbers: np.ndarray
    sigma: float
    fit: float
    pixels: int
    side: int = 1
    gap: float | None = None
    is_settled: bool = True


def rows(
    Y: np.ndarray,
    E: np.ndarray,
    count: int | str = "auto",
    *,
    method: str = "fcls",
    noise: float | None = None,
    seconds: float | None = None,
    threads: int | None = None,
) -> Choice:
    """Choose the few columns of a library that pixels need: best subset selection for all at once, with bounds.

    Backward elimination from the columns of most energy, then exchanges, additions and losses until none is better.
    Bounds leave most exchanges out.

    Parameters
    ----------
    Y : array-like of shape (..., L)
        Pixels, in any real type and unit; those with a value that is not finite are left out. At most 6000 are looked
        at and, of an image (lines, samples, L), the means of as many windows of 3 × 3, which tell more where neighbours
        are alike.
    E : array-like of shape (L, p)
        A library, one spectrum per column, in the unit of Y.
    count : int or "auto"
        The number of columns; auto keeps columns that lower the net cost by more than noise does.
    method : {"nnls", "fcls", "pcls"}
        The constraints on abundances.
    noise : float, optional
        σ, the standard deviation of a band's noise, in the unit of Y; default is the residual's in a fit by all
        columns.
    seconds : float, optional
        The time for a proof that no other subset is better.
    threads : int, optional
        CPU threads; default is all.

    Returns
    -------
    Choice

    Raises
    ------
    CubeError, LibraryError
        As for `unmix.solve`.
    MethodError
        If method, number or noise is none that it may be.

    Examples
    --------
    >>> import numpy as np, unmix
    >>> random = np.random.default_rng(0)
    >>> E = random.uniform(0.1, 0.9, (30, 12))
    >>> Y = random.dirichlet([1, 1, 1], 400) @ E[:, [2, 5, 7]].T + 0.01 * random.standard_normal((400, 30))
    >>> unmix.rows(Y, E).rows
    array([2, 5, 7])
    """
    Y, E = checked(on_host(Y), E)
    return of_sample(of_array(np.asarray(Y, np.float64)), E, count, method, noise, seconds, threads)


def of_sample(
    sample: PixelSample,
    E: np.ndarray,
    count: int | str,
    method: str,
    noise: float | None,
    seconds: float | None,
    threads: int | None,
) -> Choice:
    """Choose rows for a sample of pixels. See `rows`."""
    if method not in BOUNDED:
        raise MethodError(f"`rows` is for `method` {', '.join(BOUNDED)}, not {method}")
    if noise is not None and not (np.ndim(noise) == 0 and 0 <= noise < float("inf")):
        raise MethodError(f"`noise` {noise}: must be one standard deviation, from 0 on")
    constraint = choose(method)[0].constraint
    refuse_sizes(numbered(E), constraint.sum_to_one and not constraint.has_shade)
    shaded = np.column_stack([E, np.zeros(len(E))]) if constraint.has_shade else E
    return chosen(sample, shaded, constraint, count, noise, seconds, threads)


def chosen(
    sample: PixelSample,
    E: np.ndarray,
    constraint: Constraint,
    count: int | str,
    sigma: float | None,
    seconds: float | None,
    threads: int | None,
) -> Choice:
    """Choose rows for a sample of pixels (see `rows`); shade, if the constraint has it, is the last of E (L, p)."""
    p = E.shape[1] - constraint.has_shade
    # Of spectra that are copies the first is looked at, and the second said.
    _, first, which = np.unique(E[:, :p], axis=1, return_index=True, return_inverse=True)
    places = np.sort(first)
    if isinstance(count, str) and count != "auto":
        raise MethodError(f"`rows` '{count}': must be a whole number, or auto")
    if not isinstance(count, str) and not (1 <= count <= len(places) and count == int(count)):
        raise MethodError(
            f"`rows` {count}: the library has {len(places)} different spectra; name a whole number up to that, or auto"
        )
    if not len(sample.pixels):
        raise CubeError("`rows`: no pixel has values in all bands")
    # A power of 2, so that squares stay within float64's range.
    size = int(np.frexp(np.abs(sample.pixels).max(initial=0.0))[1])
    Y, W, E = (np.ldexp(X, -size) for X in (*sample, E[:, [*places, *range(p, E.shape[1])]]))
    energies, left = fit_by_all(Y[::FIRST], E, constraint, threads)
    variance = left if sigma is None else float(np.ldexp(sigma, -size)) ** 2
    coarse, of_coarse, is_white = Y[::FIRST], variance, False
    if len(W) >= LEAST_WINDOWS:
        of_means, left_of_means = fit_by_all(W[:: max(1, len(W) // len(Y[::FIRST]))], E, constraint, threads)
        chance = WHITE_DEVIATIONS * (2.0 / W.size + 2.0 / Y[::FIRST].size) ** 0.5
        is_white = SIDE**2 * left_of_means <= (1.0 + max(WHITE, chance)) * left
        if is_white:
            coarse, energies, of_coarse = W, of_means, variance * (left_of_means / left if left else 0.0)
    number = None if isinstance(count, str) else int(count)
    searches = [
        Search(Subsets(part, E, constraint, threads), one, number) for part, one in ((coarse, of_coarse), (Y, variance))
    ]
    try:
        coarsest, search = searches
        search.subsets.work = coarsest.subsets.work  # both together have so many steps
        kept = coarsest.run(energies[: len(places)])
        if is_white:
            search, kept = (coarsest, kept) if coarsest.subsets.is_over else decided(coarsest, search, kept)
        kept, gap = search.proved(kept), None
        if seconds is not None:
            bound = Bound(search, kept)
            bound.run(seconds)
            kept, gap = bound.rows if search.count is not None else kept, bound.gap
        found = described(search, kept, size, SIDE if is_white and search is coarsest else 1, gap)
    finally:
        for one in searches:
            one.subsets.close()
    return in_library(found, places, np.asarray(which).ravel())


def in_library(found: Choice, places: np.ndarray, which: np.ndarray) -> Choice:
    """Return a choice of distinct spectra as one of the whole library; copies are exchanges that cost nothing."""
    rows = places[found.rows]
    others = np.where(found.others < 0, -1, places[found.others])
    exchanges = found.exchanges.copy()
    for i, j in enumerate(rows):
        copies = np.flatnonzero((which == which[j]) & (np.arange(len(which)) != j))
        if len(copies):
            others[i], exchanges[i] = copies[0], 0.0
    return replace(found, rows=rows, others=others, exchanges=exchanges)


def fit_by_all(Y: np.ndarray, E: np.ndarray, constraint: Constraint, threads: int | None) -> tuple[np.ndarray, float]:
    """Return the energies of all columns in the fit of pixels (n, L) by all, (p,), and the variance of its residual."""
    method = "fcls" if constraint.sum_to_one else "nnls"
    found = solve_pixels(Y, plan_problem(numbered(E), *choose(method), warns=False), E.shape[1], "cpu", threads)
    freedom = max(1.0, len(E) + constraint.sum_to_one - float((found.abundances > 0).sum(axis=1).mean()))
    energies = np.square(found.abundances).sum(axis=0) * np.square(E).sum(axis=0)
    return energies, float(np.square(found.rmse).mean()) * len(E) / freedom


def decided(windows: Search, pixels: Search, kept: Rows) -> tuple[Search, Rows]:
    """Return the search, of windows or pixels, that tells more, and its rows; ``kept`` are those of windows."""
    # Pixels tell more where the windows' rows cost them more than their rows cost windows, each in what a row must
    # gain, and by more than that (a material in single pixels); or where they drop a row that noise cannot make.
    other = pixels.settled(kept)
    excess = pixels.excess(kept, other)
    clear = CLEAR_GAIN * pixels.variance * pixels.subsets.pixels / pixels.noise if pixels.noise else 0.0
    is_less = excess > max(1.0, windows.excess(other, kept)) or -excess > 1.0 + clear
    return (pixels, other) if is_less else (windows, kept)


def described(search: Search, kept: Rows, size: int, side: int, gap: float | None) -> Choice:
    """Return the rows that are kept, with what changes of one of them cost."""
    subsets, variance, net = search.subsets, search.variance, search.net(kept)
    unit = max(variance * subsets.pixels or subsets.rounding, LEAST_UNIT)
    rests = [without(kept, j) for j in kept]
    losses = np.array([(search.net(rest, kept) - net) / unit for rest in rests])
    is_settled = not subsets.is_over
    others = [search.best_exchange(kept, j) if is_settled else (-1, np.inf) for j in kept]
    path = search.path_of(kept, FURTHER_NUMBERS) if is_settled else []
    numbers = [(len(more), (search.net(less) - search.net(more)) / unit) for more, less in itertools.pairwise(path)]
    values = subsets.pixels * subsets.L

    def of_rmse(costs: float | np.ndarray) -> np.ndarray:
        return np.ldexp(np.sqrt(np.asarray(costs) / values), size)

    return Choice(
        np.array(kept, np.int64),
        losses,
        of_rmse(np.array([subsets.cost(rest) for rest in rests])),
        np.array([k for k, _ in others], np.int64),
        np.array([(one - net) / unit for _, one in others]),
        np.array(numbers[::-1]).reshape(-1, 2),
        float(np.ldexp(np.sqrt(variance), size)),
        float(of_rmse(subsets.cost(kept))),
        subsets.pixels,
        side,
        gap,
        is_settled,
    )
