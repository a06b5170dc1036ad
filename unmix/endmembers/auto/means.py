"""Endmembers as the means of near-pure pixels: those nearest to the largest simplex' corners, then to the means.

A corner is one pixel, the noisiest of its material or the one that varies most; the mean of all pixels that hold nearly
nothing else is the material's own direction, where there are such pixels.
"""

import numpy as np

from ..sampled import Means, Sampled, near_pure

# A pixel is near-pure where its fraction is at least this, and the means are taken so many times.
NEAR_PURE, ROUNDS = 0.8, 4


def near_pure_members(sampled: Sampled, p: int) -> list[np.ndarray] | None:
    """Return the rows of each endmember's near-pure pixels; None where the sample has fewer than p directions."""
    found = sampled.cloud.corners(p)
    if not found or len(set(found[-1])) < p:
        return None
    T, members, one = sampled.seen(p)[1], [np.array([row]) for row in found[-1]], None
    for _ in range(ROUNDS):
        one = sampled.nearly_fitted(directions_of(T, members), one)
        if one is None:
            return None
        near = map(np.flatnonzero, (one.fractions >= NEAR_PURE).T)
        # an endmember without near-pure pixels stays what it was
        members, last = [some if len(some) else before for some, before in zip(near, members)], members
        if all(map(np.array_equal, members, last)):
            break
    return members


def quick_means(sampled: Sampled, p: int) -> np.ndarray | None:
    """Return the means (k, p) of near-pure pixels in `Sampled.seen`'s axes; None where there are fewer than p."""
    members = near_pure_members(sampled, p)
    return None if members is None else directions_of(sampled.seen(p)[1], members)


def directions_of(units: np.ndarray, members: list[np.ndarray]) -> np.ndarray:
    """Return the mean directions (L, p), at unit length, of some rows each of units (n, L)."""
    sums = np.stack([units[some].sum(axis=0) for some in members], axis=1)
    return np.asarray(sums / np.linalg.norm(sums, axis=0))


def means(sampled: Sampled, p: int) -> Means | None:
    """Return the means of p endmembers' near-pure pixels, at their median brightness; None where there are fewer."""
    members, sample = near_pure_members(sampled, p), sampled.sample
    if members is None:
        return None
    U = directions_of(sample.units, members)
    one = sampled.fitted(U)
    if one is None:
        return None
    spectra, purest = near_pure(sample, U, one.fractions, NEAR_PURE)
    return Means(spectra, purest, len(sample.places))
