"""Derive standard deviations of abundances from noise and each pixel's support, and tell how far to trust them.

On the support of a pixel the abundances are linear in the pixel, ``a = M y + c``. M is the pseudo-inverse of the
support's spectra, or, with the sum held at one, of their differences to the first, whose abundance is what the
others leave. So noise of covariance Σ gives them ``M Σ Mᵀ``. That assumes the support to stay what it is; the band
``validity`` says how well that holds: above 3 the deviations are right to some per cent.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from ...compiled.jit import compiled
from ...io import NODATA, spectra
from ...library import ClassSums
from ...maps.derived.noise import NoiseCube
from ...maps.derived.solved import map_of_solved
from ...problem import Problem
from ...runs.pooled import Pooled

VALIDITY = "validity"
# Deviations above which an abundance is surely more than 0. Of pure pixels and mixtures of two and three of 3 to 20
# spectra, random and alike, 67 % or more are within one deviation of the truth with 2, down to 35 % if all are kept.
UNSURE = 2.0
# Squared residual of a spectrum, as a share of its square, below which differences of products have lost their digits;
# and below which it depends on the support.
LITTLE, DEPENDS = 1e-8, 1e-20
# The part of a spectrum's length that others leave, below which it depends on them but for rounding.
LEAST_LEFT = 1e-13
# Pixels that are copied, as float64, at a time.
TOGETHER = 4096


class OfEndmembers(NamedTuple):
    """The endmembers, and how their noise and sums are taken; the same for all pixels."""

    rows: np.ndarray  # (p, L)
    columns: np.ndarray  # (L, p), the same
    products: np.ndarray  # (p, p), of the spectra
    spreads: np.ndarray  # (p, p), of the spectra times the noise of bands
    weights: np.ndarray  # (L,) the noise of bands, or 1
    beside: np.ndarray  # (p + 1, 5) by the size of the support: see `Pooled.beside`; (0, 5) where noise is given
    members: np.ndarray  # (classes + 1, p) the weight of each abundance in a sum, the last of which is the brightness
    is_normalized: bool  # whether sums are divided by the brightness
    is_held: bool  # whether the sum of abundances is held at one
    is_bounded: bool  # whether abundances are not negative
    is_each: bool  # whether each pixel has noise of its own


class SupportScratch(NamedTuple):
    """Arrays for one thread, and of supports up to k spectra; see `deviations`."""

    support: np.ndarray  # (p,) the numbers of its spectra
    inside: np.ndarray  # (p,) bool
    F: np.ndarray  # (k, L) its directions, then an orthonormal basis
    R: np.ndarray  # (k, k)
    M: np.ndarray  # (k + 1, L) rows that make abundances of a pixel
    B: np.ndarray  # (k, k) products of rows of M, without the first where the sum is held
    C: np.ndarray  # (k, k) covariance of abundances for noise of 1, or the given noise
    left: np.ndarray  # (k + 1, k)
    moved: np.ndarray  # (k,) abundances without those that are not sure
    coefficients: np.ndarray  # (2, k) of another spectrum on the support
    sigma: np.ndarray  # (p,) deviations for noise of 1; of other spectra, as if each were in the support
    scale: np.ndarray  # (p,) deviations of their products with the residual; 0 of those that depend on the support
    size: np.ndarray  # (p,) the squared length of what the support leaves of another spectrum; infinite for none
    rest: np.ndarray  # (1 or p, L) what it leaves, of each where pixels have noise of their own
    residual: np.ndarray  # (L,)
    duals: np.ndarray  # (p,)
    S: np.ndarray  # (classes + 1, L) rows that make the sums of a pixel
    spreads: np.ndarray  # (2, classes + 1) variances of sums for noise of 1, and their covariances with the last
    sums: np.ndarray  # (2, classes + 1) sums, and those without abundances that are not sure

    @classmethod
    def of(cls, p: int, L: int, k: int, sums: int, of_each: int) -> "SupportScratch":
        """Return arrays of these sizes."""
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("R", "B", "C"), (k, k))
        shapes |= dict.fromkeys(("sigma", "scale", "size", "duals"), (p,))
        shapes |= {"F": (k, L), "M": (k + 1, L), "left": (k + 1, k), "moved": (k,), "coefficients": (2, k)}
        shapes |= {"rest": (of_each, L), "residual": (L,), "S": (sums, L), "spreads": (2, sums), "sums": (2, sums)}
        return cls(np.empty(p, np.int64), np.zeros(p, np.bool_), **{name: np.empty(s) for name, s in shapes.items()})


@compiled
def dot(a: Any, b: Any) -> Any:
    """Return the product of two vectors, in four sums, which a processor adds up side by side."""
    n = a.shape[0] // 4 * 4
    s, t, u, v = 0.0, 0.0, 0.0, 0.0
    for i in range(0, n, 4):
        s += a[i] * b[i]
        t += a[i + 1] * b[i + 1]
        u += a[i + 2] * b[i + 2]
        v += a[i + 3] * b[i + 3]
    for i in range(n, a.shape[0]):
        s += a[i] * b[i]
    return (s + t) + (u + v)


@compiled
def add_multiple(factor: Any, a: Any, out: Any) -> None:
    """Add a vector times a factor to ``out``."""
    for i in range(out.shape[0]):
        out[i] += factor * a[i]


@compiled
def invert(F: Any, k: int, R: Any, M: Any, begin: int) -> bool:
    """Write the pseudo-inverse of k rows of F to M from a row on, and return whether they are independent."""
    # By Gram and Schmidt, twice, so that the basis that F becomes is orthonormal to rounding.
    for j in range(k):
        before = dot(F[j], F[j])
        for i in range(j):
            R[i, j] = 0.0
        for _ in range(2):
            for i in range(j):
                part = dot(F[i], F[j])
                R[i, j] += part
                add_multiple(-part, F[i], F[j])
        R[j, j] = dot(F[j], F[j]) ** 0.5
        if not R[j, j] > LEAST_LEFT * before**0.5:
            return False
        for b in range(F.shape[1]):
            F[j, b] /= R[j, j]
    for j in range(k - 1, -1, -1):
        row = M[begin + j]
        for b in range(F.shape[1]):
            row[b] = F[j, b]
        for i in range(j + 1, k):
            add_multiple(-R[j, i], M[begin + i], row)
        for b in range(F.shape[1]):
            row[b] /= R[j, j]
    return True


@compiled
def beside_first(P: Any, a: int, b: int, first: int) -> Any:
    """Return an entry of the products P of spectra, or of their differences to ``first``, where that is none below 0."""
    return P[a, b] if first < 0 else P[a, b] - P[a, first] - P[first, b] + P[first, first]


@compiled
def square_left(P: Any, j: int, kept: Any, first: int, m: Any) -> Any:
    """Return the square, by products P, of what a combination m of the support leaves of spectrum j."""
    total = beside_first(P, j, j, first)  # of the second order in an error of m
    for i in range(kept.shape[0]):
        inner = -2.0 * beside_first(P, kept[i], j, first)
        for h in range(kept.shape[0]):
            inner += beside_first(P, kept[i], kept[h], first) * m[h]
        total += m[i] * inner
    return total


@compiled
def leave(given: Any, w: Any, j: int, kept: Any, first: int, rest: Any) -> None:
    """Write what the support leaves of spectrum j to ``rest`` (L,)."""
    rows, M, m = given.rows, w.M, w.coefficients[0]
    begin = 0 if first < 0 else 1
    for b in range(rest.shape[0]):
        rest[b] = rows[j, b] if first < 0 else rows[j, b] - rows[first, b]
    for i in range(kept.shape[0]):
        m[i] = dot(M[begin + i], rest)
    for i in range(kept.shape[0]):
        add_multiple(-m[i], rows[kept[i]], rest)
        if first >= 0:
            add_multiple(m[i], rows[first], rest)


@compiled
def prepare_support(given: Any, k: int, inverse: Any, w: Any) -> bool:
    """Write all that pixels with the k spectra of ``w.support`` share to the scratch w; False where these depend."""
    # ``inverse`` (k or k - 1, L) is their pseudo-inverse, where it is given; else (0, L).
    rows, L, begin = given.rows, given.rows.shape[1], int(given.is_held)
    first = w.support[0] if given.is_held else -1
    kept, M = w.support[begin:k], w.M
    for i in range(k - begin):
        for b in range(L):
            w.F[i, b] = rows[kept[i], b] - (rows[first, b] if first >= 0 else 0.0)
    for i in range(inverse.shape[0]):
        for b in range(L):
            M[begin + i, b] = inverse[i, b]
    if inverse.shape[0] == 0 and not invert(w.F, k - begin, w.R, M, begin):
        return False
    for b in range(L if given.is_held else 0):
        M[0, b] = 0.0
        for i in range(1, k):
            M[0, b] -= M[i, b]
    for i in range(k - begin):
        for h in range(i + 1):
            w.B[i, h] = w.B[h, i] = dot(M[begin + i], M[begin + h])
    for c in range(given.members.shape[0]):
        for b in range(L):
            w.S[c, b] = 0.0
        for i in range(k):
            add_multiple(given.members[c, w.support[i]], M[i], w.S[c])
    if not given.is_each:
        covary(given.weights, k, True, w)
    m, g = w.coefficients
    for j in range(rows.shape[0]):
        if w.inside[j]:
            continue
        for i in range(k - begin):
            g[i] = beside_first(given.products, kept[i], j, first)
        for i in range(k - begin):
            m[i] = dot(w.B[i, : k - begin], g[: k - begin])
        own = beside_first(given.products, j, j, first)
        square = square_left(given.products, j, kept, first, m)
        variance = square_left(given.spreads, j, kept, first, m)
        rest = w.rest[j if given.is_each else 0]
        is_little = not (square > LITTLE * given.products[j, j] and variance > LITTLE * given.spreads[j, j])
        if is_little or given.is_each:
            leave(given, w, j, kept, first, rest)
        if is_little:
            square, variance = dot(rest, rest), 0.0
            for b in range(L):
                variance += (rest[b] * given.weights[b]) ** 2
        if square <= DEPENDS * own:
            w.size[j], w.scale[j], w.sigma[j] = np.inf, 0.0, np.inf
        else:
            w.size[j], w.scale[j] = square, variance**0.5
            w.sigma[j] = w.scale[j] / square
    return True


@compiled
def covary(noise: Any, k: int, is_deviation: bool, w: Any) -> None:
    """Write covariances of a support's abundances and sums to the scratch w, by the deviation or variance of bands."""
    for i in range(k):
        for h in range(i + 1):
            w.C[i, h] = w.C[h, i] = weighted(w.M[i], w.M[h], noise, is_deviation)
        w.sigma[w.support[i]] = w.C[i, i] ** 0.5
    # From the rows of sums: what is left of covariances of alike spectra would be rounding.
    last = w.S.shape[0] - 1
    for c in range(last + 1):
        w.spreads[0, c] = weighted(w.S[c], w.S[c], noise, is_deviation)
        w.spreads[1, c] = weighted(w.S[c], w.S[last], noise, is_deviation)


@compiled
def weighted(a: Any, b: Any, noise: Any, is_deviation: bool) -> Any:
    """Return the product of two rows of bands, weighted by the variance of each."""
    total = 0.0
    for i in range(noise.shape[0]):
        total += a[i] * b[i] * (noise[i] * noise[i] if is_deviation else noise[i])
    return total


@compiled
def scaled_deviation(noise: Any, sigma: Any) -> Any:
    """Return noise times a deviation for noise of 1; infinite deviations stay infinite."""
    return noise * sigma if sigma < np.inf else np.inf


@compiled
def drop_unsure(A: Any, noise: Any, k: int, w: Any) -> None:
    """Write the abundances (p,) of a support without those below `UNSURE` deviations to ``w.moved``."""
    # One after the other is held at 0, which moves the others by their regression on it. Those of a pixel whose
    # abundances all are unsure stay.
    sure, C, left, moved = 0, w.C, w.left, w.moved
    column = left[k]
    for i in range(k):
        for h in range(k):
            left[i, h] = C[i, h]
        moved[i] = A[w.support[i]]
        sure += moved[i] >= UNSURE * scaled_deviation(noise, w.sigma[w.support[i]])
    for j in range(k if sure > 0 else 0):
        is_sure = A[w.support[j]] >= UNSURE * scaled_deviation(noise, w.sigma[w.support[j]])
        if is_sure or left[j, j] <= 1e-14 * C[j, j]:
            continue
        part, size = moved[j] / left[j, j], left[j, j]
        for i in range(k):
            column[i] = left[i, j]
            moved[i] -= column[i] * part
        for i in range(k):
            for h in range(k):
                left[i, h] -= column[i] * column[h] / size
    for j in range(k if sure > 0 else 0):
        if A[w.support[j]] < UNSURE * scaled_deviation(noise, w.sigma[w.support[j]]):
            moved[j] = 0.0


@compiled
def deviations_of_sums(given: Any, A: Any, noise: Any, k: int, w: Any, out: Any) -> None:
    """Write the deviations of sums by class, and of the brightness, to ``out`` (classes + 1,); A (p,) are abundances."""
    members, last, (sums, moved), (variances, shared) = given.members, given.members.shape[0] - 1, w.sums, w.spreads
    for c in range(last + 1):
        sums[c], moved[c] = 0.0, 0.0
        for i in range(k):
            part = members[c, w.support[i]]
            sums[c] += part * A[w.support[i]]
            moved[c] += part * w.moved[i]
    light = sums[last]
    height = light if given.is_normalized and light > 0.0 else 1.0
    for c in range(last + 1):
        is_share = given.is_normalized and c < last
        before, variance, after = sums[c], variances[c], moved[c]
        if is_share:
            before /= height
            after /= moved[last] if moved[last] > 0.0 else 1.0
            variance = variance - 2.0 * before * shared[c] + before * before * variances[last]
            variance = variance / light**2 if light > 0.0 else 0.0
        out[c] = math.hypot(noise * max(variance, 0.0) ** 0.5, after - before if after != 0.0 else 0.0)
        # Of an absent class its own abundances count alone: the deviation of the brightness is multiplied with its
        # fraction, 0. It has the largest deviation of its spectra.
        is_absent, largest = c < last, 0.0
        for j in range(members.shape[1]):
            is_absent = is_absent and not (w.inside[j] and members[c, j] != 0.0)
            if members[c, j] != 0.0:
                largest = max(largest, scaled_deviation(members[c, j], w.sigma[j]))
        if is_absent:
            out[c] = scaled_deviation(noise, largest) / height
        if is_share and light <= 0.0:
            out[c] = NODATA


@compiled
def noise_beside(beside: Any, r: Any) -> Any:
    """Return the noise by a residual r (L,) and five numbers of `Pooled.beside`; -1 where no residual is left over."""
    base, free, largest, factor, own = beside
    square = dot(r, r)
    least = square / own if square > largest else 0.0
    return max((base + square) / free, least) ** 0.5 * factor if free > 0.0 else -1.0


@compiled
def take_noise(variances: Any, k: int, w: Any) -> None:
    """Write to the scratch w what the variances (L,) of a pixel's own bands make of a support of k spectra."""
    covary(variances, k, False, w)
    for j in range(w.inside.shape[0]):
        if w.inside[j] or w.size[j] == np.inf:
            continue
        total = 0.0
        for b in range(variances.shape[0]):
            total += w.rest[j, b] * w.rest[j, b] * variances[b]
        w.scale[j] = total**0.5
        w.sigma[j] = w.scale[j] / w.size[j]


@compiled
def validity_of(given: Any, A: Any, noise: Any, w: Any) -> Any:
    """Return by how many deviations the support of a pixel, with residual ``w.residual``, is what it is."""
    validity = np.inf
    for j in range(w.duals.shape[0]):
        w.duals[j] = 0.0
    for b in range(w.residual.shape[0]):
        add_multiple(w.residual[b], given.columns[b], w.duals)
    # The residual is orthogonal to the support, or to its differences to the first.
    shift = w.duals[w.support[0]] if given.is_held else 0.0
    for j in range(w.duals.shape[0]):
        own = scaled_deviation(noise, w.sigma[j])
        if w.inside[j]:
            validity = min(validity, A[j] / own if own > 0.0 else np.inf)
        elif w.scale[j] > 0.0 and noise > 0.0:
            validity = min(validity, (shift - w.duals[j]) / (w.scale[j] * noise))
    return validity


@compiled
def take_support(A: Any, is_bounded: bool, k: int, w: Any) -> int:
    """Write the support of abundances A (p,) to the scratch w; return its size, or -1 if it is that of before, of k."""
    is_new, count = k < 0, 0
    for j in range(A.shape[0]):
        is_free = A[j] != 0.0 or not is_bounded
        is_new = is_new or is_free != w.inside[j]
        w.inside[j] = is_free
        if is_free:
            w.support[count] = j
            count += 1
    return count if is_new else -1


@compiled
def deviations(
    given: Any, Y: Any, A: Any, order: Any, variances: Any, inverse: Any, w: Any, depends: Any, out: Any
) -> None:
    """Write the deviations of pixels, and their validity where abundances are bounded, to ``out`` (N, bands)."""
    # Y (N, L), A (N, p); ``order`` are the numbers of pixels, those of one support together; variances (N, L) are those
    # of their bands, or (0, L). ``depends`` (N,) becomes True where the spectra of a support depend on each other.
    # ``inverse``: see `prepare_support`.
    k, is_known = -1, True
    for n in order:
        count = take_support(A[n], given.is_bounded, k, w)
        if count >= 0:
            k, is_known = count, prepare_support(given, count, inverse, w)
        depends[n] = not is_known
        if not is_known:
            continue
        for b in range(Y.shape[1]):
            w.residual[b] = Y[n, b]
        for i in range(k):
            w.moved[i] = A[n, w.support[i]]
            add_multiple(-w.moved[i], given.rows[w.support[i]], w.residual)
        noise = noise_beside(given.beside[k], w.residual) if given.beside.shape[0] > 0 else 1.0
        if noise < 0.0:  # the pixel is fitted exactly, whatever its noise is
            for c in range(out.shape[1]):
                out[n, c] = NODATA
            continue
        if variances.shape[0] > 0:
            take_noise(variances[n], k, w)
        if given.is_bounded:
            drop_unsure(A[n], noise, k, w)
            out[n, out.shape[1] - 1] = validity_of(given, A[n], noise, w)
        if given.members.shape[0] > 0:
            deviations_of_sums(given, A[n], noise, k, w, out[n])
            continue
        for j in range(A.shape[1]):
            out[n, j] = scaled_deviation(noise, w.sigma[j])
        for i in range(k):
            j = w.support[i]
            out[n, j] = math.hypot(out[n, j], w.moved[i] - A[n, j] if w.moved[i] != 0.0 else 0.0)


def squares_of(noise: np.ndarray) -> np.ndarray:
    """Return the variances of noise, infinite where they are no float64."""
    with np.errstate(over="ignore"):
        return np.square(noise)


class Uncertainty:
    """Standard deviations of the abundances of pixels, or of their sums by class.

    Parameters
    ----------
    problem : Problem
        With the noise of its bands, or None to take it, white, from the pixels' residuals.
    sums : ClassSums or None
        The sums whose standard deviations are wanted in place of the abundances' own.
    shared : Pooled
        The noise of the scene, where each pixel's own is not known.
    """

    description = "standard deviations"

    def __init__(self, problem: Problem, sums: ClassSums | None, shared: Pooled | None = None) -> None:
        self.problem, self.constraint, self.noise, self.sums = problem, problem.constraint, problem.noise, sums
        E, constraint = problem.endmembers.matrix, problem.constraint
        L, p = E.shape
        weights = self.noise if isinstance(self.noise, np.ndarray) else np.ones(L)
        weighted = E * weights[:, None]
        members = np.zeros((0 if sums is None else len(sums.members) + 1, p))
        for c, some in enumerate(() if sums is None else sums.members):
            members[c, list(some)] = 1.0 if sums is None or sums.weights is None else np.array(sums.weights)[list(some)]
        members[-1:] = members[:-1].sum(axis=0)
        free = float(L - problem.lost + constraint.equations)
        beside = [(shared or Pooled()).beside(free - k) for k in range(p + 1 if self.noise is None else 0)]
        self.given = OfEndmembers(
            np.ascontiguousarray(E.T),
            np.ascontiguousarray(E),
            E.T @ E,
            weighted.T @ weighted,
            np.ascontiguousarray(weights, float),
            np.array(beside).reshape(-1, 5),
            members,
            sums is not None and sums.normalized,
            bool(constraint.equations),
            constraint.has_bounds,
            isinstance(self.noise, NoiseCube),
        )
        names = problem.endmembers.names if sums is None else sums.bands
        self.bands: tuple[str, ...] = (*names, *([VALIDITY] if constraint.has_bounds else []))

    def of(self, first: int, raw: np.ndarray, abundance: np.ndarray, masked: np.ndarray) -> np.ndarray:
        """Return the deviations of lines, float32 (n, bands, samples); see `unmix.maps.derived.table.DerivedMap`."""
        Y = spectra(raw, self.problem.interleave, self.problem.bands)
        noise = self.noise.read(first, len(abundance)) if isinstance(self.noise, NoiseCube) else None

        # −9999 where a residual is to give the noise, and the support leaves none. An abundance of 0 has the
        # deviation that it would have in the support: a multiple of it would have been seen. A class without a
        # spectrum in the pixel has the largest of its spectra's.
        def values(places: np.ndarray, A: np.ndarray) -> np.ndarray:
            out = np.empty((len(A), len(self.bands)))
            for begin in range(0, len(A), TOGETHER):
                part = slice(begin, begin + TOGETHER)
                variances = np.empty((0, Y.shape[1])) if noise is None else squares_of(noise[places[part]])
                out[part] = self.of_pixels(np.ascontiguousarray(Y[places[part]], float), A[part], variances)
                if isinstance(self.noise, NoiseCube):
                    unknown = ~np.isfinite(variances).all(axis=1)
                    out[part][unknown] = NODATA
                    self.noise.lost.append(int(unknown.sum()))
            return out

        return map_of_solved(len(self.bands), abundance, masked, values)

    def of_pixels(self, Y: np.ndarray, A: np.ndarray, variances: np.ndarray) -> np.ndarray:
        """Return the bands (N, bands) of pixels (N, L) with abundances (N, p); ``variances`` (N, L) or (0, L)."""
        free, (p, L) = self.constraint.free(A), self.given.rows.shape
        # Equal supports have equal sums of random numbers, which sort faster than rows.
        order = np.argsort(free @ np.random.default_rng(0).integers(2**40, size=p), kind="stable")
        of_each = p if len(variances) else 1
        k = int(free.sum(axis=1).max(initial=1))
        w = SupportScratch.of(p, L, k, len(self.given.members), of_each)
        bands = (len(self.given.members) or p) + self.constraint.has_bounds
        depends, found = np.zeros(len(A), bool), np.empty((len(A), bands))
        deviations(self.given, Y, A, order, variances, np.empty((0, L)), w, depends, found)
        for support in np.unique(free[depends], axis=0):  # spectra that depend on each other, with their least weights
            some = np.flatnonzero((free == support).all(axis=1))
            M = np.linalg.pinv(self.constraint.directions(self.problem.endmembers.matrix[:, support]))
            deviations(self.given, Y, A, some, variances, np.ascontiguousarray(M), w, depends, found)
        if self.sums is not None and self.sums.has_shade:
            last = len(self.given.members) - 1
            found = np.insert(found, last, found[:, last], axis=1)
        return found


def made(given: Any) -> Uncertainty:
    """Return the map of standard deviations of a run."""
    problem, sums = given.problem, given.sums
    if sums is None and problem.normalization is not None:
        sums = ClassSums.of_each(problem.endmembers.names, problem.normalization, problem.constraint.has_shade)
    return Uncertainty(problem, sums, Pooled.of_run(given))
