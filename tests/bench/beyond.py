"""Is an answer ever farther from the optimum than its δ? ``python tests/bench/beyond.py [PROBLEMS] [poisson]``

Random problems with weights, allowed columns and a dictionary for each, of full rank and not, by `unmix.nnls`, or with
``poisson`` counts by `unmix.poisson`. The optimum on the support of an answer is refined in long doubles; where its
slopes prove that it is the optimum of all, its distance from the answer is compared with δ. Prints a line of JSON for
each kind of problem.
"""

import sys

import numpy as np
from common import say

import unmix

# A slope, of the sizes of its terms, below which a column that is not used counts as clearly none of the optimum.
CLEAR = -1e-15


def optimum(A: np.ndarray, b: np.ndarray, on: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the least squares on some columns, refined in long doubles, and the slopes of all over the sizes of their terms."""
    wide, right = A.astype(np.longdouble), b.astype(np.longdouble)
    x = np.zeros(A.shape[1], np.longdouble)
    if on.any():
        Q, R = np.linalg.qr(A[:, on])
        for _ in range(6):
            x[on] += np.linalg.solve(R, Q.T @ (right - wide @ x).astype(float))
    left = right - wide @ x
    sizes = np.abs(wide).T @ (np.abs(right) + np.abs(wide) @ np.abs(x)) + np.longdouble(1e-300)
    return x, (wide.T @ left) / sizes


def least_squares(random: np.random.Generator, count: int) -> dict:
    """Return how many of ``count`` problems could be compared, and how many answers are beyond their δ."""
    m, n, K = int(random.integers(2, 40)), int(random.integers(1, 12)), int(random.integers(1, 5))
    A = random.standard_normal((K, m, n)) if random.random() < 0.5 else random.random((K, m, n))
    if random.random() < 0.4 and n > 2:
        A[:, :, -1] = A[:, :, :-1] @ random.random(n - 1)  # a mixture of the others
    if random.random() < 0.3:
        A *= 10.0 ** random.uniform(-6, 6, n)
    B = random.standard_normal((count, m)) if random.random() < 0.5 else random.random((count, m))
    own = {"dictionary": random.integers(0, K, count)}
    if random.random() < 0.7:
        own["weights"] = 10.0 ** random.uniform(-3, 3, (count, m))
    if random.random() < 0.7:
        own["allowed"] = random.random((count, n)) < 0.7
    found = unmix.nnls(A, B, **own)
    compared = beyond = 0
    for i in np.flatnonzero(np.isfinite(found.delta)):
        root = np.sqrt(own["weights"][i]) if "weights" in own else np.ones(m)
        may = own["allowed"][i] if "allowed" in own else np.ones(n, bool)
        if np.linalg.matrix_rank((A[own["dictionary"][i]] * root[:, None])[:, found.x[i] > 0]) < (found.x[i] > 0).sum():
            continue
        best, slope = optimum(A[own["dictionary"][i]] * root[:, None], B[i] * root, found.x[i] > 0)
        if (best < 0).any() or (slope[may & (found.x[i] == 0)] > CLEAR).any():
            continue
        compared += 1
        beyond += float(np.linalg.norm((best - found.x[i]).astype(float))) > found.delta[i]
    return {
        "problems": count,
        "finite": int(np.isfinite(found.delta).sum()),
        "certified": int((found.kappa <= 1e-10).sum()),
        "compared": compared,
        "beyond": beyond,
    }


def counts(random: np.random.Generator, count: int) -> dict:
    """Return the same of counts."""
    L, p = int(random.integers(3, 40)), int(random.integers(1, 10))
    E = random.random((L, p)) ** 2 * (random.random((L, p)) < 0.8)
    E[random.integers(0, L, p), np.arange(p)] += 0.2
    X = random.random((count, p)) * (random.random((count, p)) < 0.5) * 10.0 ** random.uniform(-1, 6)
    b = random.random(L) * (random.random() < 0.5)
    Y = np.where(E.any(axis=1) | (b > 0), random.poisson(X @ E.T + b), 0).astype(float)
    found = unmix.poisson(Y, E, background=b)
    compared = beyond = 0
    for i in np.flatnonzero(np.isfinite(found.delta) & (Y.sum(axis=1) > 0)):
        x, y, on = found.x[i].astype(np.longdouble), Y[i].astype(np.longdouble), found.x[i] > 0
        for _ in range(6):
            mean = E @ x + b
            ratio = np.divide(y, mean, out=np.zeros_like(y), where=y > 0)
            H = ((E[:, on].T * np.divide(ratio, mean, out=np.zeros_like(y), where=y > 0)) @ E[:, on]).astype(float)
            if on.any():
                x[on] -= np.linalg.solve(H, (E[:, on].T @ (1 - ratio)).astype(float))
        slope = (E.T @ (1 - ratio)) / E.sum(axis=0)
        if (x < 0).any() or (slope[~on] < 1e-14).any() or np.abs(slope[on]).max(initial=0) > 1e-16:
            continue
        compared += 1
        beyond += float(np.linalg.norm((x - found.x[i]).astype(float))) > found.delta[i]
    return {
        "problems": count,
        "finite": int(np.isfinite(found.delta).sum()),
        "certified": int((found.kappa <= 1e-10).sum()),
        "compared": compared,
        "beyond": beyond,
    }


def main(problems: str = "100000", kind: str = "nnls") -> None:
    totals: dict[str, int] = {}
    for seed in range(max(1, int(problems) // 250)):
        random = np.random.default_rng(seed)
        for name, value in (counts if kind == "poisson" else least_squares)(random, 250).items():
            totals[name] = totals.get(name, 0) + int(value)
    say({"kind": kind, **totals})


if __name__ == "__main__":
    main(*sys.argv[1:])
