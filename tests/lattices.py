"""Every solver where ties are the rule, against rational arithmetic: ``python tests/lattices.py [PROBLEMS] [SEED]``.

Problems of small whole numbers, and of orthogonal spectra: several endmembers enter or leave at one λ, optima lie on
the edges of their supports, spectra depend on each other. Prints a line for each solver, and fails (exit code 1) where
an answer is further from the optimum than its δ, a certified answer is worse than κ says, a row is called absent that
is there, or an unbounded programme bounded.
"""

import itertools
import sys
import time
from fractions import Fraction

import flint
import numpy as np
from exact import distance, rational

import unmix
from unmix.certificate import CERTIFIED

# Hadamard's matrix: orthogonal spectra of equal length, every one of which has the same sums with pixels of whole
# numbers.
HADAMARD = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]], float)


def draw(random):
    """A problem E (L, p) and y (L,)."""
    kind = random.integers(0, 4)
    if kind == 0:
        L = p = int(random.integers(1, 6))
        E = np.eye(L)[random.permutation(L)] * random.integers(1, 3, p)
    elif kind == 1:
        E = HADAMARD[:, random.permutation(4)[: random.integers(1, 5)]]
    else:
        L, p = int(random.integers(1, 5)), int(random.integers(1, 6))
        low = -2 if kind == 2 else 0
        E = random.integers(low, 3, (L, p)).astype(float)
        E[:, ~E.any(axis=0)] = 1.0
    return E, random.integers(-1 if kind == 2 else 0, 4, len(E)).astype(float)


class Quadratic:
    """``min ½ aᵀG a − fᵀa`` over a ≥ 0 in rational numbers: by all supports, the likely one first."""

    def __init__(self, G, f):
        self.G, self.f, self.p = G, f, len(f)

    def on_support(self, support):
        """The optimum on a support, or None where it is not unique, negative, or not that of the programme."""
        x = []
        if support:
            matrix = flint.fmpq_mat([[self.G[i][j] for j in support] for i in support])
            try:
                x = matrix.solve(flint.fmpq_mat([[self.f[i]] for i in support]))
            except ZeroDivisionError:
                return None
            x = [x[i, 0] for i in range(len(support))]
        if min(x, default=0) < 0:
            return None
        duals = (self.f[j] - sum((self.G[j][i] * v for i, v in zip(support, x)), flint.fmpq(0)) for j in range(self.p))
        if max(duals) > 0:
            return None
        a = [flint.fmpq(0)] * self.p
        for j, value in zip(support, x):
            a[j] = value
        return a

    def optimum(self, guess):
        """An optimum, p rationals; None where there is none."""
        found = self.on_support([j for j in range(self.p) if guess[j] > 0])
        if found is not None:
            return found
        every = itertools.chain.from_iterable(itertools.combinations(range(self.p), k) for k in range(self.p + 1))
        return next((a for support in every if (a := self.on_support(list(support))) is not None), None)

    def cost(self, a):
        """The cost of p rationals."""
        products = (self.G[i][j] * a[i] * a[j] for i in range(self.p) for j in range(self.p))
        return sum(products, flint.fmpq(0)) / 2 - sum((f * v for f, v in zip(self.f, a)), flint.fmpq(0))


def lasso(E, y, penalty):
    """``min ½ |y − E a|² + penaltyᵀa`` in rational numbers, for a penalty of p rationals."""
    columns = [[rational(value) for value in column] for column in E.T]
    pixel = [rational(value) for value in y]
    G = [[sum((a * b for a, b in zip(one, two)), flint.fmpq(0)) for two in columns] for one in columns]
    f = [sum((a * b for a, b in zip(column, pixel)), flint.fmpq(0)) for column in columns]
    return Quadratic(G, [value - cost for value, cost in zip(f, penalty)])


def fault_of(quadratic, a, delta, kappa, scale):
    """What is wrong with an answer, in words; or None."""
    best = quadratic.optimum(a)
    if not np.all(a >= 0) or np.isnan(delta) or np.isnan(kappa):
        return "no answer"
    if np.isfinite(delta) and not distance(a, best) <= delta:
        return f"off by {distance(a, best)}, δ {delta}"
    if kappa <= CERTIFIED:
        above = quadratic.cost([rational(value) for value in a]) - quadratic.cost(best)
        if not above <= rational(kappa * scale**2 / 100 + 1e-15 * scale**2):
            return f"cost {float(Fraction(int(above.p), int(above.q)))} above the optimum, κ {kappa}"
    return None


def of_l1(random):
    """A penalty at which something enters or leaves, or any other."""
    E, y = draw(random)
    l1 = float(random.choice([*np.unique(np.maximum(E.T @ y, 0.0)), 0.5, 1.0, 2.0]))
    found = unmix.solve(y, E, method="nnls", l1=l1)
    quadratic = lasso(E, y, [rational(l1)] * E.shape[1])
    fault = fault_of(quadratic, found.abundances, float(found.delta), float(found.kappa), float(np.linalg.norm(y)))
    return fault and f"E {E.tolist()} y {y.tolist()} λ {l1}: {fault}"


def of_nnls(random):
    """Plain systems, by both searches."""
    E, y = draw(random)
    quadratic = lasso(E, y, [flint.fmpq(0)] * E.shape[1])
    one, two = unmix.nnls(E, y), unmix.solve(y[None], E, method="nnls")
    for x, found in ((one.x[0], one), (two.abundances[0], two)):
        fault = fault_of(quadratic, x, float(found.delta[0]), float(found.kappa[0]), float(np.linalg.norm(y)))
        if fault or not (found.kappa[0] <= CERTIFIED or E.min() < 0):  # where a mixture is zero, nothing is proved
            return f"A {E.tolist()} b {y.tolist()}: {fault or 'not certified'}"
    return None


def of_nnqp(random):
    """Programmes with a Gram matrix, often singular, and any linear term: also those that are unbounded below."""
    E, _ = draw(random)
    h = random.integers(-3, 4, E.shape[1]).astype(float)
    found = unmix.nnqp(E.T @ E, h)
    quadratic = Quadratic([[rational(v) for v in row] for row in (E.T @ E).tolist()], [rational(-v) for v in h])
    about = f"Q = M'M, M {E.tolist()} h {h.tolist()}"
    unbounded = quadratic.optimum(found.x[0]) is None
    if unbounded != (len(found.unbounded) > 0):
        return f"{about}: {'unbounded' if unbounded else 'bounded'}, and the opposite is said"
    if unbounded:
        return None if np.isinf(found.delta[0]) and not found.kappa[0] <= CERTIFIED else f"{about}: certified"
    scale = float((np.abs(h) / np.sqrt(np.square(E).sum(axis=0))).max())
    fault = fault_of(quadratic, found.x[0], float(found.delta[0]), float(found.kappa[0]), 10 * scale)
    return f"{about}: {fault or 'not certified'}" if fault or not found.kappa[0] <= CERTIFIED else None


SOLVERS = {"l1": of_l1, "nnls": of_nnls, "nnqp": of_nnqp}


def main(problems, seed):
    """Try every solver on so many problems; return 1 where one was wrong."""
    wrong = 0
    for name, attempt in SOLVERS.items():
        random, began, faults = np.random.default_rng(seed), time.perf_counter(), []
        for _ in range(problems):
            fault = attempt(random)
            if fault:
                faults.append(fault)
        print(
            f"{name:6} {problems} problems, {len(faults)} wrong, {time.perf_counter() - began:.0f} s",
            *faults[:5],
            sep="\n  ",
        )
        wrong += len(faults)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(*(int(word) for word in (sys.argv[1:] + ["4000", "0"][len(sys.argv) - 1 :]))))
