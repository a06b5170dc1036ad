"""Time of a pixel against the number of spectra, and against cond(E): ``python tests/bench/cliffs.py WHAT [DEVICE]
[SPECTRA,...]``.

WHAT is p, cond, resident, resident-cond or resident-large; SPECTRA may hold ranges (``2-72``).

Pixels are noisy mixtures of two to five of the p spectra (40 dB, 224 bands), solved and certified by `unmix.solve`; the
library is synthetic, with absorptions of many widths. ``cond`` makes one pair, or a cluster of five, so alike that
cond(E) is what is wanted. Prints a line of JSON each: the median of three, in microseconds per pixel, and how many
pixels are certified.
"""

import multiprocessing
import sys
import time
from typing import Any

import numpy as np
from common import say, seconds_of
from scipy.optimize import nnls

import unmix
from unmix.certificate import CERTIFIED, MOST_DELTA

BANDS = 224
SPECTRA = (9, 16, 25, 32, 33, 48, 64, 128, 240, 500, 1000)
CONDITIONED = (9, 16, 25, 64, 240)


def library(p: int, seed: int = 0) -> np.ndarray:
    """Return p reflectance spectra (224, p): a smooth continuum with three to nine absorptions, most of them narrow."""
    random = np.random.default_rng(seed)
    at = np.arange(BANDS)[:, None]
    levels = random.uniform(0.1, 0.9, (8, p))
    knots = np.linspace(0, BANDS - 1, 8)
    E = np.stack([np.interp(at[:, 0], knots, column) for column in levels.T], axis=1)
    for _ in range(9):
        centre, width = random.uniform(0, BANDS, p), np.exp(random.uniform(np.log(2), np.log(25), p))
        depth = random.uniform(0, 0.5, p) * (random.random(p) < 0.6)
        E *= 1 - depth * np.exp(-0.5 * ((at - centre) / width) ** 2)
    return E


def alike(p: int, condition: float, twins: int) -> np.ndarray:
    """Return p spectra of which the last ``twins`` are so alike that cond(E) is near ``condition``."""
    E = library(p)
    ripple = np.random.default_rng(1).standard_normal((BANDS, twins))
    low, high = -12.0, 0.0
    for _ in range(40):
        middle = (low + high) / 2
        changed = E.copy()
        changed[:, -twins:] = E[:, [-1]] * (1 + 10**middle * ripple)
        low, high = (middle, high) if np.linalg.cond(changed) > condition else (low, middle)
    return changed


def mixtures(E: np.ndarray, count: int, decibels: float = 40.0, seed: int = 2) -> np.ndarray:
    """Return ``count`` noisy mixtures of two to five spectra each."""
    random = np.random.default_rng(seed)
    Y = np.empty((count, len(E)))
    for n in range(count):
        chosen = random.choice(E.shape[1], random.integers(2, 6), replace=E.shape[1] < 6)
        Y[n] = E[:, chosen] @ random.dirichlet(np.ones(len(chosen)))
    return Y + np.sqrt(np.square(Y).mean() * 10 ** (-decibels / 10)) * random.standard_normal(Y.shape)


def time_pixels(E: np.ndarray, method: str, solver: str | None, device: str, **more) -> None:
    """Print the time of a pixel, from as many pixels as take about a second."""
    count, how = 2048, {"method": method, "solver": solver, "device": device}
    unmix.solve(mixtures(E, 64), E, **how)  # compiles
    while True:
        Y = mixtures(E, count)
        seconds, answer = seconds_of(1, unmix.solve, Y, E, **how)
        if seconds > 0.3 or count >= 500_000:
            break
        count = min(500_000, int(count * min(16, 0.6 / seconds)))
    seconds, answer = seconds_of(3, unmix.solve, Y, E, **how)
    certified = (answer.kappa <= CERTIFIED) & (answer.delta <= MOST_DELTA)
    say(
        {
            "p": E.shape[1],
            "cond": float(f"{np.linalg.cond(E):.2g}"),
            "method": method,
            "solver": solver or "default",
            "device": device,
            "pixels": count,
            "us": round(seconds / count * 1e6, 3),
            "certified": round(float(certified.mean()), 6),
            "fit": round(float((answer.kappa <= CERTIFIED).mean()), 6),
            "steps": round(float(answer.steps.mean()), 1),
            **more,
        }
    )


def time_scipy(E: np.ndarray) -> float:
    """Return microseconds a pixel of scipy's nnls on one core."""
    Y = mixtures(E, 32)
    start = time.perf_counter()
    for y in Y:
        nnls(E, y)
    return round((time.perf_counter() - start) / len(Y) * 1e6, 1)


def resident(p: int, condition: float | None = None, twins: int = 0, pixels: int = 1_000_000) -> list:
    """Bring 16-bit pixels onto the GPU, for both methods; return what times their kernels."""
    import kernels

    from unmix.library import Endmembers

    E = library(p) if condition is None else alike(p, condition, twins)
    Y = np.round(10_000 * mixtures(E, 20_000)).clip(-32768, 32767).astype(np.int16)
    spectra = Endmembers(tuple(map(str, range(p))), 10_000 * E, None, source="library")
    name = f"cond {np.linalg.cond(E):.1e}, {twins} alike"
    return [kernels.ready(Y, spectra, method, "active-set", pixels, name) for method in ("nnls", "fcls")]


def time_in_turn(case: tuple, prepared: Any, turn: Any) -> None:
    """Prepare a case beside the others, wait until all are, then have the GPU alone."""
    began = time.perf_counter()
    try:
        measures = resident(*case)
    finally:  # whoever fails must not keep the others waiting
        print(f"{case}: ready after {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
        prepared.wait()
    with turn:
        for measure in measures:
            say(measure())


def time_resident(cases: list[tuple], together: int = 16) -> None:
    """Print the GPU's own time of each case.

    Compiling takes a core a minute and measuring a second: each case has a process; ``together`` of them prepare at a
    time.
    """
    context = multiprocessing.get_context("spawn")
    for first in range(0, len(cases), together):
        batch = cases[first : first + together]
        prepared, turn = context.Barrier(len(batch)), context.Lock()
        workers = [context.Process(target=time_in_turn, args=(case, prepared, turn)) for case in batch]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()


def numbers(text: str) -> list[int]:
    """Return the numbers of ``9,16,33-40``."""
    ends = [[int(end) for end in part.split("-")] for part in text.split(",") if part]
    return [p for low, *high in ends for p in range(low, (high or [low])[0] + 1)]


def main(what: str, device: str = "cpu", spectra: str = "") -> None:
    chosen = numbers(spectra)
    if what == "p":
        for p in chosen or SPECTRA:
            E = library(p)
            for method in ("nnls", "fcls"):
                more = {"scipy_us": time_scipy(E)} if device == "cpu" and method == "nnls" else {}
                time_pixels(E, method, None, device, **more)
    elif what == "resident":
        time_resident([(p,) for p in chosen or SPECTRA])
    elif what == "resident-large":
        time_resident([(p, None, 0, 4_000_000) for p in chosen or (9, 25)])
    elif what == "resident-cond":
        time_resident([(p, condition, 2) for p in chosen or CONDITIONED for condition in (1e4, 1e6, 1e8)])
    else:
        for p in chosen or CONDITIONED:
            for twins in (2, 5):
                for condition in (None, 1e4, 1e6, 1e8):
                    E = library(p) if condition is None else alike(p, condition, twins)
                    for method in ("nnls", "fcls"):
                        time_pixels(E, method, None, device, twins=twins if condition else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
