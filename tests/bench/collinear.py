"""Two minerals alike: ``python tests/bench/collinear.py``.

Noisy mixtures of nine spectra of 224 bands, two of which are the same but for one part in 1e2 to 1e7. Prints a line of
JSON for each spread and method: pixels a second (median of five), the share that is certified, and δ.
"""

import logging

import numpy as np
from common import say, seconds_of

import unmix
from unmix.certificate import CERTIFIED, MOST_DELTA

PIXELS = 20_000


def main() -> None:
    logging.getLogger("unmix").setLevel(logging.ERROR)
    for spread in (1e-2, 1e-4, 1e-5, 1e-6, 1e-7):
        random = np.random.default_rng(1)
        E = random.random((224, 9))
        E[:, 1] = E[:, 0] + spread * random.standard_normal(224)
        Y = random.dirichlet(np.full(9, 0.4), PIXELS) @ E.T + 0.02 * random.standard_normal((PIXELS, 224))
        for method in ("nnls", "fcls"):
            seconds, found = seconds_of(5, unmix.solve, Y, E, method=method)
            certified = (found.kappa <= CERTIFIED) & (found.delta <= MOST_DELTA)
            say(
                {
                    "spread": spread,
                    "condition": float(np.linalg.cond(E)),
                    "method": method,
                    "pixels_per_second": round(PIXELS / seconds),
                    "certified": float(certified.mean()),
                    "median_delta": float(np.median(found.delta)),
                    "worst_delta": float(found.delta.max()),
                }
            )


if __name__ == "__main__":
    main()
