"""Multiplicative updates, shares that are certified and seconds: ``python tests/bench/multiplicative.py [cpu|cuda]``, JSON lines.

Jasper (10 000 pixels, its 4 reference endmembers): the share of pixels that is certified by so many steps alone, and with the support
that shows solved at the end (numpy). Quadratic programmes with Q = AᵀA: dense beside `unmix.nnls`, and a sparse one of n = 20 000.
"""

import json
import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import scipy.sparse

import unmix
from unmix.io import bytes_per_line, open_cube, spectra
from unmix.library import load
from unmix.scene.bands import choose_bands

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


def timed(call, *arguments, **options):
    """The median of some calls, and what the last gave."""
    found, taken = call(*arguments, **options), []
    for _ in range(REPEATS):
        began = time.perf_counter()
        found = call(*arguments, **options)
        taken.append(time.perf_counter() - began)
    return round(statistics.median(taken), 5), found


def programmes(device):
    """Dense and sparse programmes."""
    random = np.random.default_rng(0)
    for n in (256, 512, 1024):
        A, B = random.random((n + n // 2, n)), random.random((24, n + n // 2))
        Q, H = A.T @ A, -B @ A
        seconds, found = timed(unmix.nnqp, Q, H, device=device)
        theirs, best = timed(unmix.nnls, A, B, device=device)
        yield {"what": f"dense {n}, 24 systems", "device": device, "multiplicative_s": seconds, "nnls_qr_s": theirs,
               "certified": 24 - len(found.failed),
               "worst_kappa": float(found.kappa.max()), "apart": float(np.abs(found.x - best.x).max())}  # fmt: skip
    n = 20_000
    A = scipy.sparse.random(2 * n, n, 4 / n, random_state=0, format="csr") + scipy.sparse.eye(2 * n, n) * 0.5
    Q, h = (A.T @ A).tocsr(), -(A.T @ random.standard_normal(2 * n))
    seconds, found = timed(unmix.nnqp, Q, h, device=device)
    yield {"what": "sparse 20 000", "device": device, "multiplicative_s": seconds, "entries": int(Q.nnz), "steps": int(found.steps[0]),
           "kappa": float(found.kappa[0]), "positive": int((found.x > 0).sum())}  # fmt: skip


def main():
    """Every row."""
    device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    folder = Path(os.environ.get("UNMIX_DATA", Path(__file__).parents[3] / "shared/data")) / "jasper"
    library, header = folder / "jasper_truth_endmembers.csv", folder / "jasper.hdr"
    if device == "cpu":
        cube = open_cube(header)
        raw = cube.read(slice(0, cube.lines), np.empty(bytes_per_line(cube) * cube.lines, np.uint8))
        for row in plain_steps(spectra(raw, cube.interleave, choose_bands(cube, "good", 5000.0)), load(library).matrix):
            print(json.dumps(row), flush=True)
    for row in programmes(device):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
