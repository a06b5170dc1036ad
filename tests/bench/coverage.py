"""How many truths ranges hold at a confidence, noise known: ``python tests/bench/coverage.py [DRAWS [SEED
[SPECTRA,...]]]``.

For pure pixels, two and three materials in equal parts, of 3 to 25 spectra, random and alike, under nnls, fcls and
pcls: the least share of DRAWS (4000) pixels in which the range of a material that is there, or of one that is not,
holds the truth; the median width of the ranges of materials that are there, over that of χ² with one degree of freedom;
and seconds. Exit code 1 where a share is below 0.94 or, where all abundances exceed three deviations, above 0.97.
"""

import json
import logging
import sys

import numpy as np
from common import say, seconds_of

import unmix
from unmix.features.ranges.calibration import Calibration

LEAST, MOST = 0.94, 0.97
MATERIALS = {"pure": 1, "two": 2, "three": 3}


def spectra(random: np.random.Generator, p: int, kind: str) -> np.ndarray:
    """Return p spectra of 100 bands: any, or all within some hundredths of one."""
    if kind == "random":
        return random.uniform(0.1, 0.9, (100, p))
    return random.uniform(0.2, 0.6, 100)[:, None] + 0.05 * random.standard_normal((100, p))


def free(Y: np.ndarray, E: np.ndarray, method: str) -> unmix.Ranges:
    """Return ranges by the quantile of χ² with one degree of freedom, whatever the pixels hold."""
    limits, Calibration.limits = Calibration.limits, lambda self, A, *_: np.full(len(A), self.of_free)
    try:
        return unmix.ranges(Y, E, method=method, confidence=0.95, noise=0.005)
    finally:
        Calibration.limits = limits


def row_of(Y: np.ndarray, E: np.ndarray, a: np.ndarray, method: str) -> dict:
    """Return what the ranges of pixels (n, L) that are mixtures a (p,) hold."""
    seconds, found = seconds_of(1, unmix.ranges, Y, E, method=method, confidence=0.95, noise=0.005)
    held = ((found.lower <= a) & (a <= found.upper)).mean(axis=0)
    other = free(Y, E, method)
    there = a > 0
    widths = [np.median((one.upper - one.lower)[:, there]) for one in (found, other)]
    before = ((other.lower <= a) & (a <= other.upper)).mean(axis=0)
    return {
        "there": round(held[there].min(), 4),
        "absent": round(held[~there].min(initial=1.0), 4),
        "most": round(held[there].max(), 4),
        "of χ²": round(before[there].min(), 4),
        "width": round(widths[0] / widths[1], 3),
        "seconds": round(seconds, 2),
    }


def main(draws: str = "4000", seed: str = "0", sizes: str = "3,6,12,25") -> int:
    logging.disable(logging.CRITICAL)
    random, wrong = np.random.default_rng(int(seed)), 0
    for p in map(int, sizes.split(",")):
        for kind in ("random", "alike"):
            E = spectra(random, p, kind)
            for name, parts in MATERIALS.items():
                a = np.repeat([1 / parts, 0.0], [parts, p - parts])
                Y = E @ a + 0.005 * random.standard_normal((int(draws), 100))
                for method in ("nnls", "fcls", "pcls"):
                    row = row_of(Y, E, a, method)
                    is_free = parts == p and method != "pcls"
                    wrong += int(min(row["there"], row["absent"]) < LEAST or (is_free and row["most"] > MOST))
                    print(
                        json.dumps(
                            {"spectra": p, "kind": kind, "pixels": name, "method": method, **row}, ensure_ascii=False
                        ),
                        flush=True,
                    )
    say({"cells outside": wrong})
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
