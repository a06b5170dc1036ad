"""Averages over models beside other answers, on mixtures of a library of many spectra a class whose fractions are known:
``python tests/bench/averages.py [DATA] [DEVICE]``.

The Swiss mixtures (Sentinel-2, 10 bands, 264 spectra of three classes, shade) as they are and with noise of 0.005 by
three seeds, and three families of our own. Prints a line of JSON for each: RMSE of the class fractions by averages with
and without the noise told, by the best model, and by pcls; the share of truths within 1.645 deviations; CPU seconds.
"""

import sys
import time
from pathlib import Path

import numpy as np
from common import say, stored

import unmix
from unmix.library import load

SEEDS, NOISE = (1, 2, 3), 0.005
FAMILIES = ((3, 3, 3, 40), (12, 6, 3, 20), (40, 20, 8, 10))  # spectra of each of three classes; bands


def family(random: np.random.Generator, sizes: tuple[int, ...], L: int, N: int) -> tuple[np.ndarray, ...]:
    """Return mixtures, a library, classes and fractions: smooth spectra, alike within a class, some pixels with shade."""
    bands = np.linspace(0, 1, L)
    kinds = np.repeat(np.arange(len(sizes)), sizes)

    def smooth() -> np.ndarray:
        return sum(random.standard_normal() * np.cos(np.pi * k * bands) / (1 + k) for k in range(6))

    centres = [0.3 + 0.15 * smooth() for _ in sizes]
    E = np.stack([np.abs(centres[c] * random.uniform(0.5, 1.3) + 0.04 * smooth()) + 0.01 for c in kinds], axis=1)
    A, Y = np.zeros((N, len(sizes))), np.empty((N, L))
    for n in range(N):
        some = random.choice(len(sizes), random.integers(1, len(sizes) + 1), replace=False)
        share = random.dirichlet(np.ones(len(some) + (random.random() < 0.5)))[: len(some)]
        A[n, some] = share
        Y[n] = E[:, [random.choice(np.flatnonzero(kinds == c)) for c in some]] @ share
    return Y, E, kinds, A


def sums(A: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """Return the sums by class of abundances (N, p)."""
    return np.stack([A[:, kinds == c].sum(axis=1) for c in range(kinds.max() + 1)], axis=1)


def show(name: str, Y: np.ndarray, E: np.ndarray, kinds: np.ndarray, A: np.ndarray, noise: float, device: str) -> None:
    """Print the errors of all answers for some pixels."""
    labels = [str(c) for c in kinds]
    line: dict = {"pixels": name, "noise": noise}
    k = A.shape[1]
    for told in (None, noise or None):
        began = time.process_time()
        found = unmix.average(Y, E, labels, noise=told, device=device)
        which = "told" if told else "learned"
        line[f"average, noise {which}"] = round(float(np.sqrt(np.square(found.mean[:, :k] - A).mean())), 4)
        inside = np.abs(found.mean[:, :k] - A) <= 1.645 * found.deviation[:, :k] + 1e-9
        line[f"inside, {which}"] = round(float(inside.mean()), 3)
        line[f"CPU s, {which}"] = round(time.process_time() - began, 1)
    for way, A_of in (
        ("mesma", unmix.mesma(Y, E, labels).abundances),
        ("mesma like viper", unmix.mesma(Y, E, labels, like="viper").abundances),
        ("pcls", unmix.solve(Y, E, method="pcls").abundances[:, : E.shape[1]]),
    ):
        line[way] = round(float(np.sqrt(np.square(sums(A_of, kinds) - A).mean())), 4)
    say(line)


def main(data: str = "", device: str = "cpu") -> None:
    folder = (Path(data) if data else Path(__file__).parents[3] / "shared/data") / "swiss"
    library = load(folder / "swiss_lib.csv")
    names = list(dict.fromkeys(library.classes))
    kinds = np.array([names.index(one) for one in library.classes])
    truth = np.load(folder / "swiss_truth.npz")
    order = [list(truth["names"]).index(name) for name in names]
    A = truth["A"].reshape(-1, truth["A"].shape[-1])[:, order].astype(float)
    Y, E = stored(folder / "swiss.hdr").reshape(-1, len(library.matrix)).astype(float), library.matrix
    some = np.random.default_rng(0).permutation(len(Y))[:1000]
    unmix.average(Y[:64], E, [str(c) for c in kinds], device=device)  # compiles
    show("Swiss, 1000", Y[some], E, kinds, A[some], 0.0, device)
    for seed in SEEDS:
        noisy = Y + NOISE * np.random.default_rng(seed).standard_normal(Y.shape)
        show(f"Swiss, all, seed {seed}", noisy, E, kinds, A, NOISE, device)
    for *sizes, L in FAMILIES:
        random = np.random.default_rng(sum(sizes))
        clean, library_of, kinds_of, fractions = family(random, tuple(sizes), L, 2000)
        noisy = clean + NOISE * random.standard_normal(clean.shape)
        show(f"{sizes} spectra, {L} bands", noisy, library_of, kinds_of, fractions, NOISE, device)


if __name__ == "__main__":
    main(*sys.argv[1:])
