"""The optimum in exact arithmetic, by rational numbers: what δ is held against."""

import math
from fractions import Fraction

import flint
import numpy as np

# The families of problems that are drawn from; each draws E (L, p) and Y (N, L).
FAMILIES = {}


def family(draw):
    """Put a family into the table."""
    FAMILIES[draw.__name__] = draw
    return draw


def integers(values, bits):
    """Floats times 2**bits as flint's integers, row by row."""
    return [[int(Fraction(value) * 2**bits) for value in row] for row in np.asarray(values).tolist()]


def bits_of(*arrays):
    """The least power of two that makes whole numbers of all."""
    exponents = np.concatenate([np.frexp(array[array != 0])[1].ravel() for array in arrays])
    return 53 - int(exponents.min(initial=0))


class Reference:
    """Optima of pixels for one matrix and method.

    Parameters
    ----------
    E : array (L, p), float64
    Y : array (N, L), float64
    sum_to_one, nonnegative : bool
    """

    def __init__(self, E, Y, sum_to_one, nonnegative):
        bits = bits_of(E, Y)
        columns = flint.fmpz_mat(integers(E.T, bits))
        self.p = E.shape[1]
        self.G = columns * columns.transpose()
        self.F = columns * flint.fmpz_mat(integers(Y.T, bits)) if len(Y) else None
        self.sum_to_one, self.nonnegative = sum_to_one, nonnegative

    def on_support(self, support, n):
        """Least squares on some columns, and the multiplier of the sum (0 without)."""
        k, border = len(support), int(self.sum_to_one)
        rows = [[self.G[i, j] for j in support] + [1] * border for i in support] + [[1] * k + [0]] * border
        right = [[self.F[i, n]] for i in support] + [[1]] * border
        x = flint.fmpz_mat(rows).solve(flint.fmpz_mat(right))
        return [x[i, 0] for i in range(k)], (x[k, 0] if border else 0)

    def duals(self, support, x, multiplier, n):
        """``Eᵀ(y − E x) − λ`` of every column."""
        return [
            flint.fmpq(self.F[j, n])
            - multiplier
            - sum((self.G[j, i] * value for i, value in zip(support, x)), flint.fmpq(0))
            for j in range(self.p)
        ]

    def optimum(self, n, guess):
        """The optimum of pixel n as p rationals; ``guess`` (p,) has a support to begin with."""
        support = [j for j in range(self.p) if guess[j] > 0 or not self.nonnegative]
        if support or not self.sum_to_one:
            x, multiplier = self.on_support(support, n) if support else ([], 0)
            if not self.nonnegative:
                return self.spread(support, x)
            if min(x, default=0) >= 0 and max(self.duals(support, x, multiplier, n)) <= 0:
                return self.spread(support, x)
        return self.search(n)

    def spread(self, support, x):
        """Values on a support as p values."""
        a = [flint.fmpq(0)] * self.p
        for j, value in zip(support, x):
            a[j] = value
        return a

    def search(self, n):
        """Lawson-Hanson from the best single column (nnls: from nothing); a column that depends on the support does not enter."""
        barred = set()
        a = [flint.fmpq(0)] * self.p
        support = []
        if self.sum_to_one:
            best = min(range(self.p), key=lambda j: self.G[j, j] - 2 * self.F[j, n])
            support, a[best] = [best], flint.fmpq(1)
        x, multiplier = self.on_support(support, n) if support else ([], 0)
        while True:
            w = self.duals(support, x, multiplier, n)
            entering = max(
                (j for j in range(self.p) if j not in support and j not in barred), key=lambda j: w[j], default=None
            )
            if entering is None or w[entering] <= 0:
                return a
            wider = sorted([*support, entering])
            try:
                self.on_support(wider, n)
            except ZeroDivisionError:
                barred.add(entering)
                continue
            support, barred = wider, set()
            while True:
                x, multiplier = self.on_support(support, n)
                ways = [(a[j] / (a[j] - value), j) for j, value in zip(support, x) if value <= 0 and a[j] != value]
                ways += [(flint.fmpq(0), j) for j, value in zip(support, x) if value <= 0 and a[j] == value]
                if not ways:
                    a = self.spread(support, x)
                    break
                reach, leaving = min(ways)
                for j, value in zip(support, x):
                    a[j] += reach * (value - a[j])
                a[leaving] = flint.fmpq(0)
                support.remove(leaving)


def distance(a, exact):
    """How far float abundances are from exact ones."""
    total = flint.fmpq(0)
    for value, right in zip(a.tolist(), exact):
        top, bottom = value.as_integer_ratio()
        total += (flint.fmpq(top, bottom) - right) ** 2
    if total == 0:
        return 0.0
    scale = max(0, 200 - (int(total.p).bit_length() - int(total.q).bit_length()))
    scale += scale % 2
    return math.ldexp(math.sqrt(int(total * 2**scale)), -scale // 2)


def noisy(random, E, N, share=0.02):
    """Sparse mixtures with noise of some share of their size."""
    A = random.dirichlet(np.full(E.shape[1], 0.4), N)
    Y = A @ E.T
    return Y + share * np.abs(Y).mean() * random.standard_normal(Y.shape)


@family
def uniform(random, L, p, N):
    """Random spectra between 0 and 1."""
    E = random.random((L, p))
    return E, noisy(random, E, N)


@family
def gaussian(random, L, p, N):
    """Random directions, far pixels."""
    return random.standard_normal((L, p)), random.standard_normal((N, L)) * 10.0 ** random.uniform(-2, 2)


@family
def close_pair(random, L, p, N):
    """Two alike, to 1e-8."""
    E = random.random((L, p))
    E[:, -1] = E[:, 0] + 10.0 ** random.uniform(-8, -1) * random.standard_normal(L)
    return E, noisy(random, E, N)


@family
def close_mixture(random, L, p, N):
    """One nearly a mixture of the others."""
    E = random.random((L, p))
    E[:, -1] = E[:, :-1] @ random.dirichlet(np.ones(p - 1)) if p > 1 else E[:, -1]
    E[:, -1] += 10.0 ** random.uniform(-7, -1) * random.standard_normal(L)
    return E, noisy(random, E, N)


@family
def one_large(random, L, p, N):
    """One endmember a million times the others."""
    E = random.random((L, p))
    E[:, 0] *= 1e6
    A = random.dirichlet(np.full(p, 0.4), N)
    A[: N // 2, 0] *= 1e-6
    return E, A @ E.T + 0.02 * random.standard_normal((N, L))


@family
def ties(random, L, p, N):
    """Small whole numbers: many pixels have several supports."""
    return random.integers(-2, 3, (L, p)).astype(float), random.integers(-2, 3, (N, L)).astype(float)


@family
def faces(random, L, p, N):
    """Pixels that are exactly on a face: sums of a few endmembers in halves and quarters."""
    E = np.round(random.random((L, p)) * 2**20) / 2**20
    A = np.zeros((N, p))
    for row in A:
        some = random.choice(p, min(p, 2), replace=False)
        row[some] = (0.25, 0.75)[: len(some)] if len(some) > 1 else 1.0
    return E, A @ E.T


@family
def zero_and_far(random, L, p, N):
    """Pixels of zeros, tiny, and far from all endmembers."""
    E = random.random((L, p)) + 0.1
    Y = noisy(random, E, N) * 10.0 ** random.uniform(-6, 6, (N, 1))
    Y[::5] = 0
    Y[1::5] *= -1
    return E, Y


@family
def smooth(random, L, p, N):
    """Spectra of a few broad features, as minerals have them: cond(E) up to 1e6 of themselves."""
    waves = np.linspace(0, 1, L)[:, None]
    E = 0.3 + 0.2 * np.sin((1 + np.arange(p)) * waves * 2 + random.random(p) * 6)
    return E, noisy(random, E, N, 0.01)


@family
def shade(random, L, p, N):
    """A zero endmember; for methods that sum to one."""
    E = random.random((L, p))
    E[:, 0] = 0
    return E, noisy(random, E, N)


@family
def shifted(random, L, p, N):
    """All spectra and pixels far from zero."""
    E = random.random((L, p))
    shift = random.random(L) * 10.0 ** random.uniform(1, 4)
    return E + shift[:, None], noisy(random, E, N) + shift


@family
def scaled(random, L, p, N):
    """Any unit."""
    E = random.random((L, p)) * 10.0 ** random.uniform(-8, 8)
    return E, noisy(random, E, N, 0.05)


@family
def more_than_bands(random, L, p, N):
    """Fewer bands than spectra."""
    E = random.random((max(2, 2 * p // 3), p))
    return E, noisy(random, E, N)


@family
def duplicates(random, L, p, N):
    """Some spectra twice, some of them scaled, and a pixel of the scene among them."""
    E = random.random((L, p)) + 0.1
    Y = noisy(random, E, N)
    for j in range(p - 1, max(0, p - 1 - p // 3), -1):
        E[:, j] = E[:, random.integers(0, max(1, p - p // 3))] * 2.0 ** random.integers(-1, 2)
    if p > 3:
        E[:, p // 2] = Y[0]
    return E, Y


def rational(value):
    """A float as a rational."""
    return flint.fmpq(*float(value).as_integer_ratio())


def root_down(value, bits=400):
    """A rational that is no more than the root of another one, and less by at most 2**-bits of it."""
    shift = 2 * bits + 2 * max(0, int(value.q).bit_length() - int(value.p).bit_length() + 1)
    shift += shift % 2
    return flint.fmpq(math.isqrt(int(value.p) * 2**shift // int(value.q)), 2 ** (shift // 2))


class Ends:
    """The ends of ranges in rational numbers, by all supports of up to some five spectra: for a ≥ 0, and where
    abundances sum to one.

    Parameters
    ----------
    E : array (L, p), float64
        For pcls with shade as one more spectrum.
    deviations : array (L,), float64
        By which bands are divided.
    has_sum : bool
    """

    def __init__(self, E, deviations, has_sum):
        L, self.p = E.shape
        self.divisors = [rational(value) for value in deviations]
        self.rows = [[rational(value) / self.divisors[b] for value in E[b].tolist()] for b in range(L)]
        M, self.border = flint.fmpq_mat(self.rows), int(has_sum)
        self.G, self.faces = M.transpose() * M, []
        for number in range(int(has_sum), 2**self.p):
            support = [j for j in range(self.p) if number >> j & 1]
            k, b = len(support), self.border
            bordered = [[self.G[i, j] for j in support] + [1] * b for i in support] + [[1] * k + [0]] * b
            if not k or flint.fmpq_mat(bordered).det() != 0:
                self.faces.append((support, flint.fmpq_mat(bordered).inv() if k else None))

    def take(self, y):
        """Solve least squares on each support; return the least square of a residual."""
        y = [rational(value) / divisor for value, divisor in zip(y.tolist(), self.divisors)]
        self.bright = sum((value * value for value in y), flint.fmpq(0))
        f = [sum((row[j] * value for row, value in zip(self.rows, y)), flint.fmpq(0)) for j in range(self.p)]
        self.found = []
        for support, inverse in self.faces:
            right = [f[j] for j in support] + [flint.fmpq(1)] * self.border
            a = [sum((inverse[i, m] * right[m] for m in range(len(right))), flint.fmpq(0)) for i in range(len(support))]
            square = self.bright
            for i, value in zip(support, a):
                square += value * (sum((self.G[i, j] * x for j, x in zip(support, a)), flint.fmpq(0)) - 2 * f[i])
            self.found.append((a, square))
        return min(square for a, square in self.found if min(a, default=0) >= 0)

    def largest(self, c, most):
        """``cᵀa`` of a mixture with a square of up to ``most``, with at most 1e-100 less than any; None where none fits."""
        best = None
        for (support, inverse), (a, square) in zip(self.faces, self.found):
            if square > most:
                continue
            own = [flint.fmpq(int(c[j])) for j in support]
            way = [sum((inverse[i, m] * own[m] for m in range(len(own))), flint.fmpq(0)) for i in range(len(own))]
            growth = sum((x * y for x, y in zip(own, way)), flint.fmpq(0))
            reach = root_down((most - square) / growth) if growth > 0 else flint.fmpq(0)
            a = [value + reach * step for value, step in zip(a, way)]
            if min(a, default=0) >= 0:
                value = sum((x * y for x, y in zip(own, a)), flint.fmpq(0))
                best = value if best is None or value > best else best
        return best


def limits_above(E: np.ndarray, Y: np.ndarray, method: str, confidence: float, noise: float) -> np.ndarray:
    """Return by how much |r|² of mixtures that fit pixels (n, L) may be above the least, in units of the noise, (n,)."""
    from unmix.features.ranges.calibration import Calibration
    from unmix.features.ranges.mixtures import Mixtures

    p, shade = E.shape[1], int(method == "pcls")
    spectra = np.pad(E / noise, ((0, 0), (0, shade)))
    best = Mixtures(spectra, method != "nnls", 1).solve(Y / noise)
    if method != "nnls":
        best /= best.sum(axis=1, keepdims=True)
    return Calibration(confidence, spectra, method != "nnls", np.eye(p, p + shade)).limits(best)
