"""Proved ranges: ``python tests/bench/ranges.py [PIXELS [DATA]]``, and ``… exact [ENDS [SEED]]``.

Mixtures of three of p USGS minerals of 224 bands with noise of 0.003 a band; the sums of three classes at 95 %, one at
a time, the noise known. Prints for each p the pixels a second, how many truths are inside, the median width, and the
share of bounds whose gap between proved and reached is above 1e-6 of the width.

``exact`` holds proved ends against rational numbers: libraries of two to five spectra, among them near-copies, copies
and mixtures of others; noise from 1e-8 of the signal on, pixels near and far, limits from 1e-10 on. Fails (exit code 1)
where an end lies inside of the exact one.
"""

import sys
from pathlib import Path

import numpy as np
from common import say, seconds_of
from exact import Ends, flint, limits_above, rational, root_down

import unmix
from unmix.features.ranges.limit import ALWAYS_FITS, FitLimit
from unmix.library import load

CASES = ((9, "nnls"), (30, "nnls"), (30, "fcls"), (90, "nnls"), (240, "nnls"))
DEVIATION = 0.003


def main(pixels: str = "20000", data: str = "") -> None:
    folder = Path(data) if data else Path(__file__).parents[3] / "shared/data"
    spectra = load(folder / "libraries/USGS_1995_Library.mat").matrix
    random = np.random.default_rng(0)
    print(
        "| spectra | | pixels a second | truths inside | median width | gaps above 1e-6 |\n| --- | --- | --- | --- | "
        "--- | --- |"
    )
    for p, method in CASES:
        E = np.ascontiguousarray(spectra[:, random.choice(spectra.shape[1], p, replace=False)])
        kinds = [f"class {j % 3}" for j in range(p)]
        A = np.zeros((int(pixels) * 9 // p, p))
        for a in A:
            a[random.choice(p, 3, replace=False)] = random.dirichlet(np.ones(3))
        Y = A @ E.T + DEVIATION * random.standard_normal((len(A), len(E)))
        words = {"method": method, "confidence": 0.95, "noise": DEVIATION}
        unmix.ranges(Y[:2000], E, kinds, **words)  # compiles
        seconds, found = seconds_of(1, unmix.ranges, Y, E, kinds, **words)
        rate = len(A) / seconds
        sums = np.stack([A[:, [kind == name for kind in kinds]].sum(axis=1) for name in found.names], axis=1)
        inside, width = (sums >= found.lower) & (sums <= found.upper), found.upper - found.lower
        gap = np.maximum(found.upper - found.upper_reached, found.lower_reached - found.lower)
        print(
            f"| {p} | {method} | {rate:.0f} | {inside.mean():.1%} | {np.median(width):.3f} | "
            f"{(gap > 1e-6 * width).mean():.2%} |",
            flush=True,
        )


KINDS = ("plain", "near copy", "near mixture", "near copy", "near mixture", "copy", "mixture")
NAMES = tuple(dict.fromkeys(KINDS))
PIXELS_A_LIBRARY = 12


def draw(random: np.random.Generator, kind: str) -> tuple[np.ndarray, np.ndarray, str, float, dict]:
    """Return spectra, pixels, the method, the noise as a share of the signal and the limit."""
    p = int(random.integers(2 if kind in ("plain", "near copy", "copy") else 3, 6))
    L = p + int(random.integers(1, 6))
    E = np.round(random.uniform(0.05, 1.0, (L, p)) * 1024) / 1024
    if kind != "plain":
        share = np.eye(p - 1)[0] if "copy" in kind else np.append([0.5, 0.5], np.zeros(p - 3))
        E[:, -1] = E[:, :-1] @ share
    if kind.startswith("near"):
        E[:, -1] += 10.0 ** random.uniform(-9, -4) * random.standard_normal(L)
    E = np.ascontiguousarray(E[:, random.permutation(p)])
    noise, method = 10.0 ** random.uniform(-8, -1.5), str(random.choice(["nnls", "fcls", "pcls"]))
    misfit = noise if random.random() < 0.5 else 10.0 ** random.uniform(-1, 0)  # pixels that no mixture is near to
    Y = random.dirichlet(np.full(p, 0.6), PIXELS_A_LIBRARY) @ E.T * (1.0 if method == "fcls" else 0.8)
    Y += misfit * random.standard_normal(Y.shape)
    limits = {"within": 10.0 ** random.uniform(-10, -2)}, {"confidence": 0.95, "noise": noise}
    limit = limits[int(random.integers(2))]
    return E, Y, method, noise, limit | ({"simultaneous": True} if "noise" in limit and random.random() < 0.3 else {})


def most_of(
    limit: FitLimit, above: np.ndarray | None, least: "flint.fmpq", bright: "flint.fmpq", L: int
) -> "flint.fmpq":
    """Return the largest square of a residual of mixtures that fit, a rational; ``above`` (1,) is a calibrated limit."""
    if limit.within is not None:
        within = rational(limit.within)
        most = least + 2 * within * root_down(least * L) + within * within * L
    else:
        most = rational(limit.most(np.zeros(1), L, above)[0]) + (0 if limit.simultaneous else least)
    return max(most, rational(ALWAYS_FITS) ** 2 * bright)


def exact(ends: str = "6000", seed: str = "0") -> int:
    random, rows, number = np.random.default_rng(int(seed)), [], 0
    while len(rows) < int(ends):
        kind = KINDS[number % len(KINDS)]
        number += 1
        E, Y, method, noise, words = draw(random, kind)
        found = unmix.ranges(Y, E, method=method, threads=1, **words)
        L, p = E.shape
        whole = np.pad(E, ((0, 0), (0, int(method == "pcls"))))
        reference = Ends(whole, np.full(L, words.get("noise", 1.0)), method != "nnls")
        limit = FitLimit(words.get("within"), words.get("confidence"), words.get("simultaneous", False))
        for n, y in enumerate(Y):
            is_calibrated = limit.confidence is not None and not limit.simultaneous
            above = limits_above(E, y[None], method, limit.confidence, noise) if is_calibrated else None
            most = most_of(limit, above, reference.take(y), reference.bright, L)
            for j, sign in ((j, sign) for j in range(p) for sign in (1, -1)):
                c = sign * np.eye(len(whole[0]), dtype=int)[j]
                end, given = reference.largest(c, most), sign * (found.upper if sign > 0 else found.lower)[n, j]
                if end is None:  # nothing fits: an end may be given where that is not proved
                    rows.append((NAMES.index(kind), noise, words.get("within", 0.0), np.nan, given, 0))
                    continue
                is_inside = np.isnan(given) or rational(given) < end
                rows.append(
                    (
                        NAMES.index(kind),
                        noise,
                        words.get("within", 0.0),
                        float(int(end.p) / int(end.q)),
                        given,
                        is_inside,
                    )
                )
    table = np.array(rows, float)
    say({"seed": int(seed), **summary(table)})
    return int(table[:, 5].any())


def summary(table: np.ndarray) -> dict:
    """Return the counts of ends: the columns are kind, noise, within, exact end, given end, whether that is inside."""
    end, given, inside = table[:, 3], table[:, 4], table[:, 5] > 0
    most = np.where(end > 0, 1.0, 0.0)  # of an upper end; a lower one has the other sign
    trivial = (given >= most) & (end < most - 1e-6)
    return {
        "ends": len(table),
        "inside": int(inside.sum()),
        "NaN where mixtures fit": int((np.isnan(given) & ~np.isnan(end)).sum()),
        "trivial": int(trivial.sum()),
        "trivial by kind": {kind: int(trivial[table[:, 0] == k].sum()) for k, kind in enumerate(NAMES)},
        "inside by kind": {kind: int(inside[table[:, 0] == k].sum()) for k, kind in enumerate(NAMES)},
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["exact"]:
        sys.exit(exact(*sys.argv[2:]))
    main(*sys.argv[1:])
