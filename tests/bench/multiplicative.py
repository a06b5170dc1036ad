"""Multiplicative updates, shares that are certified and seconds: ``python tests/bench/multiplicative.py [cpu|cuda]``,
JSON lines.

Jasper (10 000 pixels, its 4 reference endmembers): the share of pixels that is certified by so many steps alone, and
with the support that shows solved at the end (numpy). Quadratic programmes with Q = AᵀA: dense beside `unmix.nnls`, and
a sparse one of n = 20 000.
"""

import sys

import numpy as np
import scipy.sparse
from common import DATA, say, seconds_of, stored

import unmix
from unmix.library import load

REPEATS = 5
CAPS = (1_000, 3_000, 10_000)


def kappa_of(Y, E, X):
    """κ of every pixel, as of `unmix.certificate`."""
    dual = (Y - X @ E.T) @ E
    dual = np.where((X <= 0) & (dual < 0), 0, dual)
    return np.maximum(
        (np.abs(dual) / np.linalg.norm(E, axis=0)).max(axis=1) / np.linalg.norm(Y, axis=1), (-X).max(axis=1)
    )


def on_supports(Y, E, X):
    """Least squares on what is above 1e-3 of the largest."""
    sizes = X * np.linalg.norm(E, axis=0)
    inside, answer = sizes > 1e-3 * sizes.max(axis=1, keepdims=True), np.zeros_like(X)
    for pattern in np.unique(inside, axis=0):
        rows = (inside == pattern).all(axis=1)
        answer[np.ix_(rows, pattern)] = np.linalg.lstsq(E[:, pattern], Y[rows].T, rcond=None)[0].T
    return answer


def plain_steps(Y, E):
    """Paper 003's loop in numpy; the shares at every cap."""
    G, F, lengths = E.T @ E, Y @ E, np.linalg.norm(E, axis=0)
    X = np.linalg.norm(Y, axis=1)[:, None] / (E.shape[1] * lengths)
    for step in range(1, CAPS[-1] + 1):
        X *= (np.maximum(F, 0) + X @ np.maximum(-G, 0)) / (np.maximum(-F, 0) + X @ np.maximum(G, 0))
        X[1e-7 * X.max(axis=1, keepdims=True) > X] = 0
        if step in CAPS:
            both = [float((kappa_of(Y, E, one) <= 1e-10).mean()) for one in (X, on_supports(Y, E, X))]
            yield {"what": "jasper, numpy", "steps": step, "alone": both[0], "support_solved": both[1]}


def programmes(device):
    """Dense and sparse programmes."""
    random = np.random.default_rng(0)
    for n in (256, 512, 1024):
        A, B = random.random((n + n // 2, n)), random.random((24, n + n // 2))
        Q, H = A.T @ A, -B @ A
        seconds, found = seconds_of(REPEATS, unmix.nnqp, Q, H, device=device)
        theirs, best = seconds_of(REPEATS, unmix.nnls, A, B, device=device)
        yield {
            "what": f"dense {n}, 24 systems",
            "device": device,
            "multiplicative_s": seconds,
            "nnls_qr_s": theirs,
            "certified": 24 - len(found.failed),
            "worst_kappa": float(found.kappa.max()),
            "apart": float(np.abs(found.x - best.x).max()),
        }
    n = 20_000
    A = scipy.sparse.random(2 * n, n, 4 / n, random_state=0, format="csr") + scipy.sparse.eye(2 * n, n) * 0.5
    Q, h = (A.T @ A).tocsr(), -(A.T @ random.standard_normal(2 * n))
    seconds, found = seconds_of(REPEATS, unmix.nnqp, Q, h, device=device)
    yield {
        "what": "sparse 20 000",
        "device": device,
        "multiplicative_s": seconds,
        "entries": int(Q.nnz),
        "steps": int(found.steps[0]),
        "kappa": float(found.kappa[0]),
        "positive": int((found.x > 0).sum()),
    }


def main():
    """Every row."""
    device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    folder = DATA / "jasper"
    if device == "cpu":
        Y = stored(folder / "jasper.hdr", 5000.0)
        say(plain_steps(Y.reshape(-1, Y.shape[2]), load(folder / "jasper_truth_endmembers.csv").matrix))
    say(programmes(device))


if __name__ == "__main__":
    main()
