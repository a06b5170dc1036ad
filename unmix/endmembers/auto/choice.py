"""`auto`, the default: find several sets of endmembers and choose one without knowing the truth.

**Where brightness does not vary** (`unmix.endmembers.plane`), endmembers are corners of a simplex: the most likely one
(`likely`), whose search begins at N-FINDR's pixels; or SISAL's, where noise blurs the fractions and few pixels
are pure, so that pixels do not tell where the facets are.

**Where it varies**, they are edges of a cone: the smallest around the pixels' directions (`cone`), or the means of
near-pure pixels (`means`). Neither is right everywhere: a cone puts two edges into a material that varies much and none
at a rare one, means need pure pixels. The set is taken with the lesser

    misfit × entropy × amplification^0.15 / least share^0.1:

the mean distance of the pixels at unit length to the cone; the mean entropy of their fractions, 0 where all are pure;
the factor √(tr (UᵀU)⁻¹ / p) by which a misfit spreads into amounts of the spectra U at unit length; the least mean
fraction. A wrong set parts pixels of one material, or has a spectrum that nothing is made of.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from ..fitted import Fitted
from ..nfindr import Simplex, components, exchanged_from, purest, spanning_and_seeded
from ..passes import WORTH_A_GUESS, Passes
from ..plane import Plane
from ..sampled import Means, Sampled
from ..sisal import OUTSIDE, Enclosing, enclosing
from ..statistics import Moments
from .corners import Cone, cone, quick_cone
from .density import Shares
from .likely import Likely, PlaneOfSample, likely
from .means import means, quick_means
from .smallest import lonely_edges

# The exponents of amplification and of the least share, and what is added to that share. On 212 synthetic scenes, 0 to
# 0.25 and 0.1 to 0.2 took the better set, to 15 %, in 90 to 94 % of them; without both in 88 %.
POWER_OF_AMPLIFICATION, POWER_OF_LEAST_SHARE, SMALLEST_SHARE = 0.15, 0.1, 1e-3
# Another set explains a scene as well where its value is at most so many times the least: on the same scenes it was the
# better one in a quarter of these, beyond that in one of ten.
AS_WELL = 1.2
# The search for the most likely simplex begins with means of this many purest pixels at each corner of N-FINDR's
# simplex.
PUREST = (100, 20, 1)
# The most likely simplex is not taken where noise gives the fractions of a material a deviation above the first and
# fewer pixels are pure than the second share. On 70 flat synthetic scenes 0.03 to 0.04 and 0.15 to 0.3 were right, to
# 15 %, in 94 to 97 %; without, 84 %.
MOST_BLUR, FEWEST_PURE = 0.035, 0.25
# The largest logarithm of a simplex' value: pixels far from a simplex have no density.
LARGEST_LOG = 700.0
# When edges are counted, each costs this times 1 − the 95th percentile of its fractions (lonely edges cost): on 132
# synthetic scenes 0.8 to 1 counted alike. The count ends after `NO_BETTER` numbers no better than the best; with 1 it
# ended too early.
PRICE_OF_LONELY_EDGE, NO_BETTER = 0.8, 2
# Most threads that count: each call of compiled code ends with a wait for Python's lock, so that 16 took 0.30 s where 6
# took 0.26.
MOST_COUNTING = 6


@dataclass(frozen=True)
class Candidate:
    """A set of endmembers, and how it explains a sample of the scene.

    Attributes
    ----------
    name : str
    found : Means, Enclosing or Likely
        The result of the algorithm.
    spectra : array (L, p), float64
    value : float
        The less, the better.
    numbers : dict of str to float
        The factors of the value.
    fractions : array (n, p), float64
        Of the pixels of the sample.
    """

    name: str
    found: Means | Enclosing | Likely
    spectra: np.ndarray
    value: float
    numbers: dict[str, float]
    fractions: np.ndarray


@dataclass(frozen=True)
class Chosen:
    """The endmembers that are taken, beside the candidates that are not.

    Attributes
    ----------
    candidates : sequence of Candidate
        The first is taken.
    is_flat : bool
        Whether the brightness of the scene does not vary.
    """

    candidates: Sequence[Candidate]
    is_flat: bool

    @property
    def best(self) -> Candidate:
        """The one that is taken."""
        return self.candidates[0]

    @cached_property
    def differ(self) -> float | None:
        """The mean difference of the fractions of the first two candidates; None where there is only one."""
        return differ(*self.candidates[:2]) if len(self.candidates) > 1 else None

    @property
    def is_close(self) -> bool:
        """Whether another set explains the scene as well."""
        return len(self.candidates) > 1 and bool(self.candidates[1].value <= AS_WELL * self.best.value)

    def to_dict(self) -> dict[str, Any]:
        """Return the entry for ``run.json``."""
        sets = {one.name: {"value": one.value, **one.numbers} for one in self.candidates}
        entry = {"by": self.best.name, "sets": sets, "differ": self.differ, "close": self.is_close}
        return entry | ({"flat": True} if self.is_flat else {})

    def __str__(self) -> str:
        if len(self.candidates) == 1:
            return f"endmembers by {self.best.name}"
        other = self.candidates[1]
        as_well = "explain the scene as well" if self.is_close else "explain it less well"
        return (
            f"endmembers by {self.best.name} (value {self.best.value:.3g}); those by {other.name} {as_well} "
            f"({other.value:.3g}), and "
            f"fractions of them differ by {self.differ:.2g} on average"
        )


def auto(moments: Moments, p: int, seed: int, budget: int, passes: Passes) -> Chosen | list[int]:
    """Find p endmembers, with the arguments of `vca`; return fewer than p pixels where the spectra are not distinct."""
    flat = Plane(moments).is_flat(p)
    found = of_simplices(moments, p, seed, budget, passes) if flat else of_cones(moments, p, seed, budget, passes)
    return found if isinstance(found, list) else Chosen(found, flat)


def of_cones(moments: Moments, p: int, seed: int, budget: int, passes: Passes) -> tuple[Candidate, ...] | list[int]:
    """Return the cone and the means, the better first; a list of pixels where there is no cone."""
    sampled = Sampled.of(passes, moments)
    with ThreadPoolExecutor(1, "means") as pool:
        others = pool.submit(means, sampled, p) if p > 1 and len(sampled.sample.places) else None
        first = cone(None, p, seed, budget, passes)
    if not isinstance(first, Cone):
        return first
    sets = {"cone": first} | ({} if others is None else {"means": others.result()})
    found = [of_cone(sampled, name, one) for name, one in sets.items() if one is not None]
    return tuple(sorted((one for one in found if one is not None), key=lambda one: one.value)) or first.places[: p - 1]


def of_cone(sampled: Sampled, name: str, found: Means) -> Candidate | None:
    """Return the candidate of some spectra; None where they are dependent."""
    one = sampled.fitted(found.spectra / np.linalg.norm(found.spectra, axis=0))
    if one is None:
        return None
    numbers = {
        "misfit": misfit(one),
        "entropy": entropy(one.fractions),
        "amplification": amplification(one.W),
        "least_share": float(one.fractions.mean(axis=0).min()),
    }
    value = numbers["misfit"] * numbers["entropy"] * numbers["amplification"] ** POWER_OF_AMPLIFICATION
    value /= (numbers["least_share"] + SMALLEST_SHARE) ** POWER_OF_LEAST_SHARE
    return Candidate(name, found, found.spectra, value, numbers, one.fractions)


def misfit(one: Fitted) -> float:
    """Return the mean distance of directions to a cone."""
    return float(np.sqrt(one.squares).mean())


def amplification(W: np.ndarray) -> float:
    """Return by how much a misfit of spectra at unit length, W (p, p), spreads into their amounts."""
    return float(np.sqrt(np.square(np.linalg.inv(W)).sum() / len(W)))


def entropy(fractions: np.ndarray) -> float:
    """Return the mean entropy of the fractions (n, p) of pixels: 0 where all are pure."""
    return float(-(fractions * np.log(np.maximum(fractions, np.finfo(float).tiny))).sum() / len(fractions))


def of_simplices(moments: Moments, p: int, seed: int, budget: int, passes: Passes) -> tuple[Candidate, ...] | list[int]:
    """Return the candidates of the most likely simplex and of SISAL, the better first; pixels where neither exists."""
    most = min(max(PUREST), moments.pixels // p)
    with components(moments, p, budget, passes) as (points, constant):
        simplex = exchanged_from(points, constant, p, spanning_and_seeded(p, seed))
        if not isinstance(simplex, Simplex):
            return simplex
        counts = [n for n in PUREST if n == 1 or n <= most]
        purest_of = purest(points, simplex, most).purest
        around = partial(enclosing, moments, points, simplex, OUTSIDE, passes.threads)
        with ThreadPoolExecutor(passes.threads, "simplices") as pool:
            # A simplex that is only compared may be of fewer pixels: all of 2 million take seconds.
            rough = pool.submit(around, is_rough=True) if passes.threads >= WORTH_A_GUESS else None
            plane = PlaneOfSample.of(moments, p, Sampled.of(passes).sample.spectra, pool.map)
            pixels = [points.rows(some) / plane.size for some in purest_of]
            starts = [np.stack([rows[:n].mean(axis=0) for rows in pixels], axis=1) for n in counts]
            found = likely(plane, starts)
            takes_sisal = found is None or (found.blur.max() > MOST_BLUR and found.shares.pure.sum() < FEWEST_PURE)
            enclosed = around(is_rough=not takes_sisal) if takes_sisal or rough is None else rough.result()
            sets: dict[str, Likely | Enclosing] = {"sisal": enclosed} | ({} if found is None else {"likely": found})
            if not takes_sisal:
                sets = dict(reversed(sets.items()))
            shares = None if found is None else found.shares
            return tuple(of_simplex(plane, name, one, shares) for name, one in sets.items())


def of_simplex(plane: PlaneOfSample, name: str, found: Likely | Enclosing, shares: Shares | None) -> Candidate:
    """Return the candidate of the corners of a simplex: its value is 1 over a pixel's density, per dimension."""
    C = plane.components(found.spectra)
    at = plane.settled(C, shares)
    numbers = {"blur": float(at.blur.max()), "pure": float(at.shares.pure.sum())}
    value = float(np.exp(min(at.value / len(C), LARGEST_LOG)))
    return Candidate(name, found, found.spectra, value, numbers, plane.pixels.within(C))


def differ(one: Candidate, other: Candidate) -> float:
    """Return the mean difference of the fractions of two sets, whose materials are matched by the smallest angles."""
    U, V = (some.spectra / np.linalg.norm(some.spectra, axis=0) for some in (one, other))
    near, theirs = U.T @ V, np.empty(U.shape[1], int)
    for _ in range(len(near)):
        j, k = np.unravel_index(int(near.argmax()), near.shape)
        theirs[j] = k
        near[j], near[:, k] = -2.0, -2.0
    return float(np.abs(one.fractions - other.fractions[:, theirs]).mean())


class Edges(NamedTuple):
    """Edges U (k, p) at unit length that were fitted to a sample, compared by ``value``; infinite if dependent."""

    value: float
    misfit: float
    U: np.ndarray | None = None
    fractions: np.ndarray | None = None  # (n, p) of the sample

    def differ(self, fewer: "Edges") -> float | None:
        """Return the mean difference from fractions of fewer edges, each edge counted to the nearest of the fewer."""
        if self.U is None or self.fractions is None or fewer.U is None or fewer.fractions is None:
            return None
        nearest = np.eye(fewer.U.shape[1])[(fewer.U.T @ self.U).argmax(axis=0)]
        return float(np.abs(self.fractions @ nearest - fewer.fractions).mean())


def count_edges(sampled: Sampled, most: int, threads: int) -> tuple[int, list[Edges]] | None:
    """Return the best number of edges, at most ``most``, and the best `Edges` of each; None if noise is unknown."""
    if not sampled.tells_noise:
        return None
    most = min(most, *sampled.sample.spectra.shape)
    found: list[Edges] = []
    begun: list[tuple[Future[Edges], ...]] = []
    ways = (lambda p: quick_cone(sampled, p), lambda p: quick_means(sampled, p) if p > 1 else None)
    pool = ThreadPoolExecutor(min(threads, MOST_COUNTING), "count")
    try:
        # Kept, so that no two threads compute one of them.
        for kept in (pool.submit(sampled.seen, most), pool.submit(lambda: sampled.cloud.components)):
            kept.result()
        while len(found) < (needed := min(most, needed_to_count(found))):
            for p in range(len(begun) + 1, min(most, needed + threads // WORTH_A_GUESS) + 1):
                begun.append(tuple(pool.submit(lambda way, p: value_of(sampled, way(p)), way, p) for way in ways))
            found.append(min((one.result() for one in begun[len(found)]), key=lambda one: one[:2]))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # nobody waits for guesses that do not serve
    values = [one[:2] for one in found[: min(most, needed_to_count(found))]]
    return 1 + values.index(min(values)), found


def needed_to_count(found: list[Edges]) -> int:
    """Return how many numbers of edges, from 1 on, have to be compared, by the values found so far."""
    best = 0
    for k in range(len(found)):
        if k - best > NO_BETTER:
            break
        best = k if found[k][:2] < found[best][:2] else best
    return best + 1 + NO_BETTER


def value_of(sampled: Sampled, U: np.ndarray | None) -> Edges:
    """Return edges U (k, p) with the value by which numbers of them are compared."""
    one = None if U is None else sampled.nearly_fitted(U)
    if one is None:
        return Edges(np.inf, np.inf)
    value = 2.0 * float(np.log(misfit(one))) + PRICE_OF_LONELY_EDGE * lonely_edges(one)
    return Edges(value, misfit(one), U, one.fractions)
