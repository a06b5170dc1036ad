"""Choose the rows of a library that pixels in memory need."""

import itertools
from dataclasses import dataclass, replace

import numpy as np

from ...arrays.others.kinds import on_host
from ...arrays.pixels import checked, numbered, solve_pixels
from ...errors import CubeError, MethodError
from ...methods import BOUNDED, choose
from ...methods.constraint import Constraint
from ...problem import plan_problem, refuse_sizes
from .bound import Bound
from .search import Search
from .subsets import Rows, Subsets, without

# Pixels on which a choice is made, and the share of them on which it is looked for first.
SAMPLE_PIXELS, FIRST = 6000, 4
# Numbers above the one that is kept of which the gain is said.
FURTHER_NUMBERS = 3


@dataclass(frozen=True)
class Choice:
    """The rows of a library that some pixels need together, and what changes of one of them would cost on a sample of the pixels.

    Attributes
    ----------
    rows : array (K,), int64
        The columns of the library, in ascending order. No exchange of one for another column lowers the cost ``C = Σ|y − E a|²`` of
        the sample; where their number is not given, none lowers both the cost and the net cost ``C + σ² d`` without larger errors of
        spectra (`Subsets.wrongness`).
    losses : array (K,), float64
        By how much the loss of each row would raise the net cost, in σ² a pixel; d are the degrees of freedom (abundances above 0,
        less one in each pixel where the sum is one), so that a row that fits noise alone has a loss near 0.
    rmse : array (K,), float64
        The RMSE without it, in the unit of the pixels.
    others : array (K,), int64
        The column in place of each that raises the net cost least, of those that promise most; −1 where there is none.
    exchanges : array (K,), float64
        By how much, in σ² a pixel: near 0 the two cannot be told from each other.
    numbers : array (n, 2), float64
        The knee: numbers of rows, and by how much one row less raises the net cost, in σ² a pixel.
    sigma : float
        Standard deviation of the noise of a band that was taken.
    fit : float
        The RMSE of the sample.
    pixels : int
        The pixels of the sample.
    gap : float or None
        By which share of its cost this subset may be above the best of all subsets with as many rows. 0 where it is proved to be the
        best, None where no time was given.
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
    gap: float | None = None


def rows(
    Y: np.ndarray, E: np.ndarray, count: int | str = "auto", *, method: str = "fcls", noise: float | None = None,
    seconds: float | None = None, threads: int | None = None,
) -> Choice:  # fmt: skip
    """Choose the few columns of a library that pixels need together: best subset selection for all pixels at once, with bounds.

    Backward elimination from the columns of most energy, then exchanges, additions and losses until none is better. Bounds leave most
    exchanges out.

    Parameters
    ----------
    Y : array-like of shape (..., L)
        Pixels, in any real type and unit; those with a value that is not finite are left out. At most 6000 are looked at.
    E : array-like of shape (L, p)
        A library, one spectrum per column, in the unit of Y.
    count : int or "auto"
        The number of columns; auto keeps those that lower the net cost by more than noise does.
    method : {"nnls", "fcls", "pcls"}
        The constraints on abundances.
    noise : float, optional
        σ, the standard deviation of a band's noise, in the unit of Y; default is that of the residual of a fit by all columns.
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
    if method not in BOUNDED:
        raise MethodError(f"`rows` is for `method` {', '.join(BOUNDED)}, not {method}")
    if noise is not None and not 0 <= noise < float("inf"):
        raise MethodError(f"`noise` {noise:g}: must be a standard deviation from 0 on")
    Y, E = checked(on_host(Y), E)
    constraint = choose(method)[0].constraint
    refuse_sizes(numbered(E), constraint.sum_to_one and not constraint.has_shade)
    pixels = np.asarray(Y, np.float64).reshape(-1, E.shape[0])
    good = pixels[np.isfinite(pixels).all(axis=1)]
    sample = good[np.linspace(0, len(good) - 1, min(len(good), SAMPLE_PIXELS)).astype(int)]
    shaded = np.column_stack([E, np.zeros(len(E))]) if constraint.has_shade else E
    return chosen(sample, shaded, constraint, count, noise, seconds, threads)


def chosen(
    Y: np.ndarray, E: np.ndarray, constraint: Constraint, count: int | str, sigma: float | None, seconds: float | None,
    threads: int | None,
) -> Choice:  # fmt: skip
    """Choose rows for pixels (n, L); E (L, p) has the spectrum of shade last, if the constraint has it. See `rows`."""
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
    if not len(Y):
        raise CubeError("`rows`: no pixel has values in all bands")
    size = int(np.frexp(np.abs(Y).max(initial=0.0))[1])  # a power of 2, so that squares stay within float64's range
    Y, E = np.ldexp(Y, -size), np.ldexp(E[:, [*places, *range(p, E.shape[1])]], -size)
    energies, left = fit_by_all(Y[::FIRST], E, constraint, threads)
    variance = left if sigma is None else float(np.ldexp(sigma, -size)) ** 2
    searches = []
    for part in (Y[::FIRST], Y):
        subsets = Subsets(part, E, constraint, threads)
        searches.append(Search(subsets, variance, None if isinstance(count, str) else int(count)))
    try:
        quarter, search = searches
        begun = quarter.run(energies[: len(places)])
        kept = search.proved(begun)
        gap = None
        if seconds is not None:
            bound = Bound(search, kept)
            bound.run(seconds)
            kept, gap = bound.rows if search.count is not None else kept, bound.gap
        found = described(search, kept, variance, size, gap)
    finally:
        for one in searches:
            one.subsets.close()
    return in_library(found, places, np.asarray(which).ravel())


def in_library(found: Choice, places: np.ndarray, which: np.ndarray) -> Choice:
    """Return a choice of different spectra as one of the whole library: their places, and copies as exchanges that cost nothing."""
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


def described(search: Search, kept: Rows, variance: float, size: int, gap: float | None) -> Choice:
    """Return the rows that are kept, with what changes of one of them cost."""
    subsets, net = search.subsets, search.net(kept)
    unit = max(variance * subsets.pixels, subsets.rounding, np.finfo(float).tiny)  # not 0 where all pixels are
    rests = [without(kept, j) for j in kept]
    losses = np.array([(search.net(rest, kept) - net) / unit for rest in rests])
    others = [search.best_exchange(kept, j) for j in kept]
    path = search.path_of(kept, FURTHER_NUMBERS)
    numbers = [(len(more), (search.net(less) - search.net(more)) / unit) for more, less in itertools.pairwise(path)]
    values = subsets.pixels * subsets.L

    def of_rmse(costs: float | np.ndarray) -> np.ndarray:
        return np.ldexp(np.sqrt(np.asarray(costs) / values), size)

    return Choice(
        np.array(kept, np.int64), losses, of_rmse(np.array([subsets.cost(rest) for rest in rests])),
        np.array([k for k, _ in others], np.int64), np.array([(one - net) / unit for _, one in others]),
        np.array(numbers[::-1]).reshape(-1, 2), float(np.ldexp(np.sqrt(variance), size)), float(of_rmse(subsets.cost(kept))),
        subsets.pixels, gap,
    )  # fmt: skip
