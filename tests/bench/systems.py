"""Paper 000's Tables 7.1 to 7.3 again: batches of non-negative systems, beside a loop over scipy in two processes.

``python tests/bench/systems.py [cpu|cuda] [waveforms.npz]`` prints a line of JSON for each table and number of systems:
seconds of solving a batch (arrays in memory to answers in memory, certificate included; median of five after one that
warms up), of planning it once (Gram matrix, bound on σ_min, on a GPU the matrix sent there), steps, the worst κ, and on
a CPU seconds of the loop and their ratio. Waveforms are NEON's (shared/data/lidar_waveformlidar), read with the package
rdata, or from a file made by ``--npz OUT`` where that is not installed.
"""

import os
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from common import say, seconds_of

from unmix.arrays.nnls import solver_for, toeplitz

COUNTS = (1, 24, 48, 96, 192)
REPEATS = 5
SAMPLES = 208


def waveforms():
    """What was received (500, 208) and sent (500, 100), less their smallest value."""
    import rdata

    folder = Path(os.environ.get("UNMIX_DATA", Path(__file__).parents[3] / "shared/data")) / "lidar_waveformlidar"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        both = [np.asarray(rdata.read_rda(folder / f"{name}.rda")[name], float) for name in ("return", "outg")]
    return [one - np.nanmin(one, axis=1, keepdims=True) for one in both]


def pulse_of(sent):
    """A pulse from where it rises above a twentieth of its height to where it falls below, at height 1."""
    high = np.flatnonzero(sent > sent.max() / 20)
    return sent[high[0] : high[-1] + 1] / sent.max()


def tables(received, sent):
    """For each table: its name, and a function from the number of systems to (A, B)."""
    m = 512
    random = np.random.default_rng(0)
    places = np.arange(m)
    pulses = np.exp(-0.5 * ((places[:, None] - places) / 4.32) ** 2)
    right = random.random((COUNTS[-1], m))
    longest = max(len(pulse_of(one)) for one in sent[: COUNTS[-1]])
    own = np.stack([np.pad(p := pulse_of(one), (0, longest - len(p))) for one in sent[: COUNTS[-1]]])
    yield "7.1 lidar, one matrix each", lambda n: (toeplitz(own[:n], SAMPLES), received[:n])
    yield "7.1 lidar, one pulse", lambda n: (toeplitz(own[0], SAMPLES), received[:n])
    yield "7.2 Gaussian pulses", lambda n: (pulses, right[:n])
    each = random.random((COUNTS[-1], m, m))
    yield "7.3 random, one matrix each", lambda n: (each[:n], right[:n])


def loop(systems):
    """Scipy's own, one after the other."""
    from scipy.optimize import nnls as theirs

    A, B = systems
    return [theirs(A[i] if A.ndim == 3 else A, b, maxiter=100 * A.shape[-1])[0] for i, b in enumerate(B)]


def in_two(pool, A, B):
    """The loop in two processes, which have their data already but for the copy that starts them."""
    half = -(-len(B) // 2)
    parts = [(A[s] if A.ndim == 3 else A, B[s]) for s in (slice(0, half), slice(half, None)) if len(B[s])]
    return [one for part in pool.map(loop, parts) for one in part]


def length(A, B, x):
    """``|b − A x| / |b|`` of every system."""
    product = np.einsum("imn,in->im", A, x) if A.ndim == 3 else x @ A.T
    return np.linalg.norm(B - product, axis=1) / np.linalg.norm(B, axis=1)


def main():
    """Every table, every number of systems."""
    device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    if device == "--npz":
        received, sent = waveforms()
        np.savez(sys.argv[2], received=received, sent=sent)
        return
    received, sent = np.load(sys.argv[2]).values() if len(sys.argv) > 2 else waveforms()
    with ProcessPoolExecutor(2) as pool:
        for name, make in tables(received, sent):
            for count in COUNTS:
                A, B = make(count)
                began = time.perf_counter()
                with solver_for(A, count, device, None) as solve:
                    planned = time.perf_counter() - began
                    seconds, found = seconds_of(REPEATS, solve, B)
                row = {
                    "table": name,
                    "systems": count,
                    "device": device,
                    "seconds": round(seconds, 5),
                    "planning": round(planned, 5),
                    "steps": int(found.steps.sum()),
                    "worst_kappa": float(found.kappa.max()),
                }
                if device == "cpu":
                    list(pool.map(abs, range(2)))
                    slow, theirs = seconds_of(1, in_two, pool, A, B)
                    row |= {"scipy_two_processes": round(slow, 5), "ratio": round(slow / seconds, 2)}
                    # Of the answers themselves: on ill-conditioned systems scipy (1.17) returns a smaller norm than its
                    # answer has.
                    left, others = (length(A, B, x) for x in (found.x, np.array(theirs)))
                    row["worst_residual_above"] = float((left - others).max())
                    row["scipys_worst_above_ours"] = float((others - left).max())
                say(row)


if __name__ == "__main__":
    main()
