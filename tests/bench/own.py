"""Pixels and systems with weights of their own: ``python tests/bench/own.py [PIXELS]``.

Mixtures of a few of p spectra and noise whose size differs by pixel and band. Prints a line of JSON for each library:
pixels a second of `unmix.solve` with weights for each pixel, without weights, and of scipy's nnls, pixel by pixel on
the weighted problem; the RMSE of the abundances with and without weights; the share that is certified.
"""

import sys
import time

import numpy as np
from common import say, seconds_of
from scipy.optimize import nnls

import unmix

SLOW = 300  # pixels that scipy solves


def main(pixels: str = "20000") -> None:
    random, N = np.random.default_rng(0), int(pixels)
    for L, p in ((224, 9), (285, 30), (285, 90)):
        smooth = np.cumsum(random.standard_normal((L, p)), axis=0)
        E = 0.2 + 0.3 * (smooth - smooth.min(axis=0)) / np.ptp(smooth, axis=0)
        A = random.random((N, p)) * (random.random((N, p)) < 3 / p)
        A[np.arange(N), random.integers(0, p, N)] += 0.1
        sigma = 10.0 ** random.uniform(-3.5, -1.5, (N, L))
        Y = A @ E.T + sigma * random.standard_normal((N, L))
        for method in ("nnls", "fcls"):
            if method == "fcls":
                A = A / A.sum(axis=1, keepdims=True)
                Y = A @ E.T + sigma * random.standard_normal((N, L))
            seconds, own = seconds_of(3, unmix.solve, Y, E, method=method, weights=sigma**-2.0, of=min)
            without, plain = seconds_of(3, unmix.solve, Y, E, method=method, of=min)
            began = time.perf_counter()
            for y, s in zip(Y[:SLOW], sigma):
                nnls(E / s[:, None], y / s)
            scipy = (time.perf_counter() - began) / SLOW
            off = [float(np.sqrt(np.square(one.abundances - A).mean())) for one in (own, plain)]
            certified = float(((own.kappa <= 1e-10) & np.isfinite(own.delta)).mean())
            say(
                {
                    "bands": L,
                    "p": p,
                    "method": method,
                    "pixels a second": round(N / seconds),
                    "without weights": round(N / without),
                    "scipy nnls": round(1 / scipy),
                    "RMSE": round(off[0], 5),
                    "RMSE without": round(off[1], 5),
                    "certified": certified,
                }
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
