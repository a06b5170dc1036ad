"""Photon counts: ``python tests/bench/counts.py [PIXELS]``: `unmix.poisson` beside least squares and scipy's L-BFGS-B.

Mixtures of some of p spectra with 0.1 to 100 counts a band. Prints a line of JSON for each size: pixels a second, of
scipy one pixel after the other, with what its costs are above ours in the worst pixel; RMSE of the abundances, as a
share of that of least squares; the largest gap as a share of a pixel's counts.
"""

import sys

import numpy as np
from common import say, seconds_of
from scipy.optimize import minimize

import unmix

SLOW = 100  # pixels that scipy solves


def by_scipy(E: np.ndarray, y: np.ndarray, x: np.ndarray) -> float:
    """Return the cost that L-BFGS-B reaches from x."""

    def cost(x: np.ndarray) -> tuple[float, np.ndarray]:
        mean = np.maximum(E @ x, 1e-300)
        return float((mean - y * np.log(mean)).sum()), E.T @ (1 - y / mean)

    bounds, options = [(0, None)] * E.shape[1], {"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-10}
    return float(minimize(cost, x, jac=True, bounds=bounds, method="L-BFGS-B", options=options).fun)


def main(pixels: str = "5000") -> None:
    random, N = np.random.default_rng(0), int(pixels)
    for L, p in ((100, 5), (500, 20)):
        E = random.random((L, p)) ** 4
        for size in (0.1, 3.0, 100.0):
            X = size * random.random((N, p)) * (random.random((N, p)) < 0.5)
            Y = random.poisson(X @ E.T)
            unmix.poisson(Y[:50], E)
            seconds, found = seconds_of(1, unmix.poisson, Y, E)
            theirs, costs = seconds_of(1, lambda: np.array([by_scipy(E, y, np.full(p, size / 4)) for y in Y[:SLOW]]))  # noqa: B023
            least = unmix.nnls(E, Y).x
            rmse = [float(np.sqrt(np.square(x - X).mean())) for x in (found.x, least)]
            say(
                {
                    "bands": L,
                    "p": p,
                    "counts a band": round(float(Y.mean()), 2),
                    "pixels a second": round(N / seconds),
                    "scipy": round(SLOW / theirs),
                    "its costs above ours": float((costs - found.cost[:SLOW]).max()),
                    "below ours": float((found.cost[:SLOW] - costs).max()),
                    "RMSE over least squares'": round(rmse[0] / rmse[1], 3),
                    "gap": float((found.gap / np.maximum(1, Y.sum(axis=1))).max()),
                }
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
