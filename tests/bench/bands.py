"""Paper 001 again: phases 1 and 2 on 775 x 1050, and its Figures 2 and 3: the regression of a chain's prefixes up to
order 1000.

``python tests/bench/bands.py [cpu|cuda] [most]`` prints a line of JSON for each row. Near-infrared spectra are
synthetic (120 peaks of 15 to 200 nm on 400 to 2500 nm, noise of 1e-3), 517 for calibration and 258 for validation; for
the figures random normal ones, as the paper's. Seconds are medians of three after one that warms up; inverses of
prefixes are numpy's (`inv` of the gathered Gram matrix) for some of the chains, scaled to all, on a cpu.
"""

import sys

import numpy as np
from common import say, seconds_of

from unmix.features.bands.arrays import chain_engine, cut_folds, samples_of

N, K, M = 775, 1050, 100
ORDERS = (100, 200, 300, 400, 500, 700, 1000)
SOME = 8
LONG = 20.0  # what takes longer is timed once


def near_infrared():
    """Spectra and a target of three bands."""
    random = np.random.default_rng(0)
    axis = np.linspace(400, 2500, K)
    peaks = np.array(
        [
            np.exp(-0.5 * ((axis - c) / w) ** 2)
            for c, w in zip(random.uniform(400, 2500, 120), random.uniform(15, 200, 120))
        ]
    )
    X = random.random((N, 120)) @ peaks + 1e-3 * random.standard_normal((N, K))
    return X, X[:, [100, 400, 777]] @ [1.0, 2.0, -1.0] + 0.01 * random.standard_normal(N)


def by_numpy(samples, orders, counts):
    """Squared errors of every prefix, each matrix inverted."""
    squares = np.zeros(orders.shape)
    for i, (order, count) in enumerate(zip(orders, counts)):
        for m in range(1, count + 1):
            P = order[:m]
            weights = np.linalg.inv(samples.gram[np.ix_(P, P)]) @ samples.product[P]
            squares[i, m - 1] = np.square(samples.truth - weights @ samples.others[P]).sum()
    return squares


def apart_from_lstsq(X, y, order, squares):
    """The largest relative difference of RMSEP over the prefixes of a chain whose Gram matrix has a condition below 1e8."""
    calibration, validation = cut_folds(N, 1 / 3, None, 0)[0]
    own, others = X[calibration] - X[calibration].mean(axis=0), X[validation] - X[calibration].mean(axis=0)
    level, worst = y[calibration].mean(), 0.0
    for m in range(1, M + 1):
        P = order[:m]
        if np.linalg.cond(own[:, P]) < 1e4:
            weights = np.linalg.lstsq(own[:, P], y[calibration] - level, rcond=None)[0]
            expected = np.square(y[validation] - level - others[:, P] @ weights).sum()
            worst = max(worst, abs(float(np.sqrt(squares[m - 1] / expected)) - 1))
    return worst


def regressed(engine, samples, orders, counts, how):
    """Squared errors by an engine."""
    squares = np.zeros(orders.shape)
    engine.regress(samples, orders, counts, squares, how)
    return squares


def main():
    """Time every row on a device."""
    device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    highest = int(sys.argv[2]) if len(sys.argv) > 2 else ORDERS[-1]
    with chain_engine(device, None) as (engine, _):
        measure(engine, device, highest)


def measure(engine, device, highest):
    """Print every row."""
    X, y = near_infrared()
    samples = samples_of(X, y, *cut_folds(N, 1 / 3, None, 0)[0])
    one, (orders, counts) = seconds_of(3, engine.chains, samples.gram, M, long=LONG)
    two, squares = seconds_of(3, regressed, engine, samples, orders, counts, "sequential", long=LONG)
    row = {"what": f"{N} x {K}, M = {M}", "device": device, "phase_1_s": one, "phase_2_s": two}
    row |= {"chains_end_at": int(counts.min())}
    part = slice(0, K if device != "cpu" else 10 * SOME)
    swept, theirs = seconds_of(3, regressed, engine, samples, orders[part], counts[part], "gauss-jordan", long=LONG)
    row["gauss_jordan_s"] = round(swept * K / len(orders[part]), 3)
    if device == "cpu":
        inverted, checked = seconds_of(3, by_numpy, samples, orders[:SOME], counts[:SOME], long=LONG)
        row |= {"numpy_inverses_s": round(inverted * K / SOME, 2), "ratio": round(inverted * K / SOME / two, 1)}
        row["apart_from_inverses"] = float(np.abs(np.sqrt(squares[:SOME] / checked) - 1).max())
        row["apart_from_lstsq"] = max(apart_from_lstsq(X, y, orders[c], squares[c]) for c in range(0, K, K // SOME))
    row["gauss_jordan_apart"] = float(np.abs(np.sqrt(theirs / squares[part]) - 1).max())
    say(row)
    random = np.random.default_rng(0)
    X = random.standard_normal((2000, K))
    samples = samples_of(X, X[:, 0] + random.standard_normal(2000), *cut_folds(2000, 0.25, None, 0)[0])
    orders, counts = engine.chains(samples.gram, ORDERS[-1])
    for order in ORDERS:
        if order > highest:
            break
        row = {"what": "figures 2 and 3: prefixes of one chain", "order": order, "device": device}
        chain, length = np.ascontiguousarray(orders[:1, :order]), np.minimum(counts[:1], order)
        for how in ("sequential", "gauss-jordan"):
            row[f"{how}_s"], squares = seconds_of(3, regressed, engine, samples, chain, length, how, long=LONG)
        if device == "cpu":
            row["numpy_inverses_s"], _ = seconds_of(3, by_numpy, samples, chain, length, long=LONG)
        say(row)


if __name__ == "__main__":
    main()
