"""Proved ranges: ``python tests/bench/ranges.py [PIXELS [DATA [DEVICE]]]``.

Mixtures of three of p USGS minerals of 224 bands with noise of 0.003 a band; the sums of three classes at 95 %, one at a time, the
noise known. Prints for each p the pixels a second, how many truths are inside, the median width, and the share of bounds whose gap
between proved and reached is above 1e-6 of the width.
"""

import sys
import time
from pathlib import Path

import numpy as np

import unmix
from unmix.library import load

CASES = ((9, "nnls"), (30, "nnls"), (30, "fcls"), (90, "nnls"), (240, "nnls"))
DEVIATION = 0.003


def main(pixels: str = "20000", data: str = "", device: str = "cpu") -> None:
    folder = Path(data) if data else Path(__file__).parents[3] / "shared/data"
    spectra = load(folder / "libraries/USGS_1995_Library.mat").matrix
    random = np.random.default_rng(0)
    print(
        "| spectra | | pixels a second | truths inside | median width | gaps above 1e-6 |\n| --- | --- | --- | --- | --- | --- |"
    )
    for p, method in CASES:
        E = np.ascontiguousarray(spectra[:, random.choice(spectra.shape[1], p, replace=False)])
        kinds = [f"class {j % 3}" for j in range(p)]
        A = np.zeros((int(pixels) * 9 // p, p))
        for a in A:
            a[random.choice(p, 3, replace=False)] = random.dirichlet(np.ones(3))
        Y = A @ E.T + DEVIATION * random.standard_normal((len(A), len(E)))
        words = {"method": method, "confidence": 0.95, "noise": DEVIATION, "device": device}
        unmix.ranges(Y[:2000], E, kinds, **words)  # compiles
        began = time.perf_counter()
        found = unmix.ranges(Y, E, kinds, **words)
        rate = len(A) / (time.perf_counter() - began)
        sums = np.stack([A[:, [kind == name for kind in kinds]].sum(axis=1) for name in found.names], axis=1)
        inside, width = (sums >= found.lower) & (sums <= found.upper), found.upper - found.lower
        gap = np.maximum(found.upper - found.upper_reached, found.lower_reached - found.lower)
        print(
            f"| {p} | {method} | {rate:.0f} | {inside.mean():.1%} | {np.median(width):.3f} | {(gap > 1e-6 * width).mean():.2%} |",
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
