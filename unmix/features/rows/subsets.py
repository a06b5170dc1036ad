"""Costs of subsets of a library on a sample of pixels, with bounds on the gain or loss by one row."""

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ...blocks import cores
from ...methods.constraint import Constraint
from .costs import DEPENDENT_SHARE, DUAL_TOLERANCE, Shared, add_costs, add_promises, scratch_of

# Height of the constant band that stands for the sum to one, in the least distance from the darkest spectrum, which is
# the origin. It keeps Gram matrices regular and is in no cost; where it knew the brightest spectrum, 1e4 times
# brighter, others had no digits left.
HEIGHT = 1.0
# Bytes of the abundances that are kept to start others from, and subsets whose promises are kept.
MOST_BYTES, MOST_KEPT = 2**27, 64
# Work of a search, in pixels times rows: some 60 s of a core.
MOST_WORK = 2e8
# Pixels whose costs are added in turn, the work of a thread.
PART_PIXELS = 512
# Errors of spectra that are made up for, as a share of their lengths.
MOST_WRONG = 0.1
# A cost is the same where it differs by less than this share of the power of the pixels, or of itself: rounding.
SAME_SHARE, SAME_COST = 1e-20, 1e-9

Rows = tuple[int, ...]
Part = TypeVar("Part")


@dataclass(frozen=True)
class Fit:
    """The optimum of all pixels over some rows: ``Σ|y − E a|²``, degrees of freedom, abundances (n, k), shade last."""

    cost: float
    freedom: int
    abundances: np.ndarray


@dataclass(frozen=True)
class Promises:
    """What a change of one row of a subset promises: what it would be if no other abundance became 0 or left 0.

    The least cost with a given abundance t of a row is convex in t, and its second derivative is nowhere below twice
    the squared distance d to the span of the others: from a slope of −2w it falls by w² / d at most.

    Attributes
    ----------
    gains : array (p,), float64
        By how much each row would lower the cost.
    counts : array (p,), float64
        In how many pixels.
    slopes : array (p,), float64
        Σ w².
    losses : array (k,), float64
        What the loss of each row of the subset would cost.
    """

    gains: np.ndarray
    counts: np.ndarray
    slopes: np.ndarray
    losses: np.ndarray


class Subsets:
    """Costs of subsets of the rows of a library.

    Parameters
    ----------
    Y : array (n, L), float64
        Pixels.
    E : array (L, p), float64
        The library, and shade last if the constraint has it: shade is in every subset, and no row.
    constraint : Constraint
        Non-negative.
    threads : int or None

    Attributes
    ----------
    p : int
        Rows to choose from.
    size : float
        What counts as the same cost.
    """

    def __init__(self, Y: np.ndarray, E: np.ndarray, constraint: Constraint, threads: int | None = None) -> None:
        self.sum_to_one, self.has_shade = constraint.sum_to_one, constraint.has_shade
        self.p, self.L = E.shape[1] - self.has_shade, len(E)
        self.lengths = np.maximum(np.linalg.norm(E, axis=0), np.finfo(float).tiny ** 0.5)
        origin = E[:, np.argmin(self.lengths)] if self.sum_to_one else np.zeros(len(E))
        self.E, self.Y = E - origin[:, None], np.ascontiguousarray((Y - origin).T)
        self.threads = threads or cores()
        self.pool = ThreadPoolExecutor(self.threads)
        self.squares = np.square(self.Y).sum(axis=0)
        self.rounding = SAME_SHARE * float(self.squares.sum())
        norms = np.square(self.E).sum(axis=0)
        self.lift = HEIGHT**2 * float(norms[norms > 0].min(initial=1.0)) if self.sum_to_one else 0.0
        self.norms, self.G = np.sqrt(norms + self.lift), self.E.T @ self.E + self.lift
        self.F = np.ascontiguousarray(self.Y.T @ self.E)
        self.by_row: np.ndarray | None = np.ascontiguousarray(self.F.T)
        self.work = [0.0]  # of this object and all that are made of it
        self.forget()

    @property
    def is_over(self) -> bool:
        """Whether a search has to end: after a given work, not time, so that a run chooses the same rows again."""
        return self.work[0] > MOST_WORK

    def forget(self) -> None:
        """Forget what was known of other pixels, or other spectra."""
        self.costs: dict[Rows, float] = {}
        self.freedoms: dict[Rows, int] = {}
        self.kept: dict[Rows, Fit] = {}
        self.promised: dict[tuple[Rows, int], Promises] = {}

    @property
    def pixels(self) -> int:
        """The number of pixels."""
        return len(self.F)

    def columns(self, rows: Rows) -> np.ndarray:
        """Return the columns of E that a subset has, (k,)."""
        return np.array([*rows, self.p] if self.has_shade else rows, np.int64)

    def fit(self, rows: Rows, like: Rows | None = None) -> Fit:
        """Return the optimum over some rows, in ascending order, from the optimum of similar rows."""
        if rows not in self.kept:
            self.kept[rows] = self.fitted(rows, like, True)
            self.costs[rows], self.freedoms[rows] = self.kept[rows].cost, self.kept[rows].freedom
            while len(self.kept) > 1 and sum(fit.abundances.nbytes for fit in self.kept.values()) > MOST_BYTES:
                del self.kept[next(iter(self.kept))]
        return self.kept[rows]

    def each_cost(self, subsets: Sequence[Rows], like: Rows) -> list[float]:
        """Return the costs of some subsets, all found from the optimum of one."""
        new = [rows for rows in dict.fromkeys(subsets) if rows not in self.costs]
        if new:
            self.fit(like)
            for rows, found in zip(new, self.pool.map(lambda rows: self.fitted(rows, like, False), new)):
                self.costs[rows], self.freedoms[rows] = found.cost, found.freedom
        return [self.costs[rows] for rows in subsets]

    def cost(self, rows: Rows, like: Rows | None = None) -> float:
        """Return the cost of some rows."""
        if rows not in self.costs:
            self.fit(rows, like)
        return self.costs[rows]

    def parts(self, work: Callable[[int, int], Part], together: bool) -> list[Part]:
        """Return what a function returns for parts of the pixels, first and last, which do not depend on threads."""
        ends = [*range(0, self.pixels, PART_PIXELS), self.pixels]
        return list((self.pool.map if together else map)(work, ends[:-1], ends[1:]))

    def fitted(self, rows: Rows, like: Rows | None, together: bool) -> Fit:
        """Solve all pixels over some rows, parts of them at a time or one after the other."""
        columns, n = self.columns(rows), self.pixels
        k = len(columns)
        self.work[0] += n * k
        if not k:
            return Fit(np.inf if self.sum_to_one else float(self.squares.sum()), 0, np.zeros((n, 0)))
        known, A, among = np.zeros((n, 0)), np.empty((n, k)), np.zeros(0, np.int64)
        if like is not None and len(like) == len(rows):  # without the row that goes most pixels stay as they are
            like = next((rest for rest in (without(rows, j) for j in rows) if rest in self.kept), like)
        if like in self.kept:
            known, among = self.kept[like].abundances, self.columns(like)
        before = np.where(np.isin(columns, among), np.searchsorted(among, columns), -1)
        gone = np.flatnonzero(~np.isin(among, columns))
        E = self.E[:, columns]
        F = E.T @ self.Y if self.by_row is None else self.by_row[columns]
        shared = Shared(
            E.T @ E + self.lift, self.norms[columns], DUAL_TOLERANCE, self.sum_to_one, self.lift, E.T.copy(), self.Y
        )
        scratch = None if together else scratch_of(k, k)

        def work(first: int, last: int) -> tuple[float, int]:
            own = scratch or scratch_of(k, k)
            return add_costs(F, self.squares, known, before, gone, shared, own, first, last, A)

        costs, counts = zip(*self.parts(work, together))
        return Fit(sum(costs), sum(counts) - n * self.sum_to_one, A)

    def promises(self, rows: Rows, every: int = 1) -> Promises:
        """Return what further rows promise, by one of ``every`` pixels."""
        if (rows, every) not in self.promised:
            columns, A, p = self.columns(rows), self.fit(rows).abundances, len(self.G)

            def work(first: int, last: int) -> np.ndarray:
                slopes, gains, counts, losses = *np.zeros((3, p)), np.zeros(len(columns))
                scratch = scratch_of(p, len(columns))
                add_promises(
                    self.F,
                    self.squares,
                    columns,
                    A,
                    self.G,
                    self.norms,
                    self.sum_to_one,
                    self.lift,
                    scratch,
                    first,
                    last,
                    every,
                    slopes,
                    gains,
                    losses,
                    counts,
                )
                return np.concatenate([slopes, gains, counts, losses])

            slopes, gains, counts, losses = np.split(every * np.sum(self.parts(work, True), axis=0), [p, 2 * p, 3 * p])
            self.promised[rows, every] = Promises(
                gains[: self.p], counts[: self.p], slopes[: self.p], losses[: len(rows)]
            )
            if len(self.promised) > MOST_KEPT:
                del self.promised[next(iter(self.promised))]
        return self.promised[rows, every]

    def bounds(self, rows: Rows, every: int = 1) -> np.ndarray:
        """Return by how much each row more would lower the cost at most, (p,), proved if by all pixels."""
        return self.promises(rows, every).slopes / self.apart(rows)

    def apart(self, rows: Rows) -> np.ndarray:
        """Return squared distances (p,) of spectra to the span of ``rows``, or to their affine hull under the sum."""
        E, own = self.E[:, : self.p], self.E[:, self.columns(rows)]
        if self.sum_to_one:
            E, own = E - own[:, :1], own[:, 1:] - own[:, :1]
        Q = np.linalg.qr(own)[0]
        for _ in range(2):
            E = E - Q @ (Q.T @ E)
        return np.maximum(np.square(E).sum(axis=0), DEPENDENT_SHARE * self.norms[: self.p] ** 2)

    def is_less(self, one: Any, other: float) -> Any:
        """Return whether a cost, or each of an array, is less than another by more than rounding."""
        return one < other - max(self.rounding, SAME_COST * min(abs(other), 1e300))

    def simulated(self, rows: Rows, variance: float) -> "Subsets":
        """Return these subsets for pixels of the fit over ``rows`` with noise of ``variance``, alike at each call."""
        columns, A = self.columns(rows), self.fit(rows).abundances
        other = copy.copy(self)
        other.Y = self.E[:, columns] @ A.T
        other.Y += np.random.default_rng(0).normal(0.0, variance**0.5, (self.pixels, self.L)).T
        other.squares, other.by_row = np.square(other.Y).sum(axis=0), None
        other.forget()
        return other

    def errors(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Return changes (L, k) of the rows' spectra that lower the cost most, and their variances by noise (k,)."""
        A, k = self.fit(rows).abundances, len(rows)
        inverse = np.linalg.pinv(A[:, :k].T @ A[:, :k], hermitian=True)
        slopes = self.Y @ A[:, :k] - self.E[:, self.columns(rows)] @ (A.T @ A[:, :k])
        return slopes @ inverse, np.diag(inverse)

    def wrongness(self, rows: Rows, variance: float) -> tuple[float, float]:
        """Return Σ|d|²/|e|² of errors d of the rows' spectra e, less its mean by noise, and its deviation by noise."""
        change, spread = self.errors(rows)
        share = 1 / self.lengths[list(rows)] ** 2
        noise, size = variance * float(share @ spread), float(share @ np.square(change).sum(axis=0))
        return size - self.L * noise, (2 * self.L) ** 0.5 * noise

    def corrected(self, rows: Rows) -> "Subsets":
        """Return the same for a library without the errors of some rows, as far as these are likely errors."""
        other, change, columns = copy.copy(self), self.errors(rows)[0], list(rows)
        largest = float((np.linalg.norm(change, axis=0) / self.lengths[columns]).max(initial=0.0))
        other.E, other.by_row = self.E.copy(), None
        other.E[:, columns] += change * min(1.0, MOST_WRONG / max(largest, MOST_WRONG))
        other.forget()
        return other

    def close(self) -> None:
        """Shut the threads down."""
        self.pool.shutdown()


def without(rows: Rows, j: int) -> Rows:
    """Return rows less one."""
    return tuple(i for i in rows if i != j)


def with_row(rows: Rows, j: int) -> Rows:
    """Return rows and one more, in ascending order."""
    return tuple(sorted((*rows, j)))
