"""Sparse regression beside the field's codes: ``python tests/bench/sparse.py proof|rivals|cuda [DATA]``.

Scenes like DC1 (`squares`) of the USGS library of 1995, 224 bands: all 498 spectra, and the 240 that are at least
4.44° apart. ``proof``: the duality gap of every pixel in extended precision over half the square of its length, and on
300 pixels the support against homotopy (`definitions.l1_path`). ``rivals``: objective, abundances, SRE and time beside
spams (if installed) and SUnSAL, our own plain reading, on both cores. ``cuda``: time and agreement on a GPU.
SRE = 10 log10(Σ‖x‖² / Σ‖x − x̂‖²).
"""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import seconds_of
from definitions import l1_path, on_path
from squares import SparseChoice, sparse_scene

import unmix
from unmix.library import Endmembers, load

MODE = sys.argv[1]
DATA = Path(sys.argv[2] if len(sys.argv) > 2 else Path(__file__).parents[3] / "shared/data")
SNRS, LAMBDAS = (20, 30, 40), (0.0, 1e-3, 1e-2, 5e-2, 1e-1, 5e-1)
# The angle in degrees at which a greedy choice of the library has 240 spectra, as the papers have it.
APART = 4.44


def libraries() -> dict[int, Endmembers]:
    """Return the library, and those of its spectra that are no nearer than `APART` to one before."""
    whole = load(DATA / "libraries/USGS_1995_Library.mat")
    unit = whole.matrix / np.linalg.norm(whole.matrix, axis=0)
    kept: list[int] = []
    for j in range(unit.shape[1]):
        if not kept or (unit[:, kept].T @ unit[:, j]).max() < np.cos(np.radians(APART)):
            kept.append(j)
    return {len(kept): whole.take(kept), unit.shape[1]: whole}


def pixels_of(library: Endmembers, snr: float, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Return pixels (N, L) and true abundances (N, p) of a scene like DC1."""
    Y, A = sparse_scene(library, SparseChoice("dc1", snr, seed))
    return Y.reshape(-1, Y.shape[2]).astype(float), A.reshape(-1, A.shape[2]).astype(float)


def relative_gaps(E: np.ndarray, Y: np.ndarray, A: np.ndarray, l1: float) -> np.ndarray:
    """Return each pixel's duality gap over ½|y|², in extended precision; the dual point is the residual less a number in every band."""
    E, Y, A = (values.astype(np.longdouble) for values in (E, Y, A))
    fitted = A @ E.T
    V = (Y - fitted) @ E - l1
    rho = np.maximum((V / E.sum(axis=0)).max(axis=1), 0)
    gaps = -(A * V).sum(axis=1) + rho * fitted.sum(axis=1) + 0.5 * rho**2 * E.shape[0]
    return np.asarray(gaps / (0.5 * np.square(Y).sum(axis=1)), float)


def objective(E: np.ndarray, Y: np.ndarray, A: np.ndarray, l1: float) -> np.ndarray:
    """Return ``½ |y − E a|² + λ Σa`` of each pixel."""
    return 0.5 * np.square(Y - A @ E.T).sum(axis=1) + l1 * A.sum(axis=1)


def sre(A: np.ndarray, found: np.ndarray) -> float:
    """Return the signal to reconstruction error, in dB."""
    return float(10 * np.log10(np.square(A).sum() / np.square(A - found).sum()))


def sunsal(
    E: np.ndarray, Y: np.ndarray, l1: float, tolerance: float, most: int, move: Any = np.asarray
) -> tuple[Any, int]:
    """Return SUnSAL's abundances (N, p) and steps: alternating directions (Bioucas-Dias and Figueiredo 2010), as
    `sunsal.m` has it.

    It stops where both residuals are below ``√(N p)`` times the tolerance, which it looks at every ten steps; μ is
    adapted then. ``move`` brings an array to where it is computed.
    """
    size = np.sqrt(np.square(Y).mean())  # as there: everything is divided by this, and λ by its square
    mu, threshold = 10 * l1 / size**2 + 0.01, l1 / size**2
    values, vectors = np.linalg.eigh(E.T @ E / size**2)
    F, B = move(Y @ E / size**2), move((vectors / (values + mu)) @ vectors.T)
    x = F @ B
    u, d, limit = x, 0.0 * x, np.sqrt(x.shape[0] * x.shape[1]) * tolerance
    for step in range(1, most + 1):
        before = u
        u = (x - d - threshold / mu).clip(min=0.0)
        x = (F + mu * (u + d)) @ B
        d = d - (x - u)
        if step % 10 == 1:
            primal = float(((x - u) ** 2).sum()) ** 0.5
            dual = mu * float(((u - before) ** 2).sum()) ** 0.5
            if max(primal, dual) < limit:
                break
            factor = 2.0 if primal > 10 * dual else 0.5 if dual > 10 * primal else 1.0
            mu, d = mu * factor, d / factor
            B = move((vectors / (values + mu)) @ vectors.T)
    return u, step


def proof() -> None:
    """Print the largest gap of each case, and how many of 300 supports are those of homotopy."""
    print("| spectra | SNR, dB | λ | largest gap / ½|y|² | certified | endmembers | supports as by homotopy |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for p, library in libraries().items():
        for snr in SNRS:
            Y, _ = pixels_of(library, snr)
            some = np.linspace(0, len(Y) - 1, 300).astype(int)
            paths = [l1_path(library.matrix, y) for y in Y[some]]
            for l1 in LAMBDAS:
                found = unmix.solve(Y, library.matrix, method="nnls", l1=l1)
                by_path = np.array([on_path(path, l1) for path in paths])
                same = ((found.abundances[some] > 0) == (by_path > 1e-9)).all(axis=1).sum()
                gap = relative_gaps(library.matrix, Y, found.abundances, l1).max()
                certified = (found.kappa <= 1e-10).sum()
                print(
                    f"| {p} | {snr} | {l1:g} | {gap:.1e} | {certified} of {len(Y)} | "
                    f"{(found.abundances > 0).sum(axis=1).mean():.1f} | "
                    f"{same} of {len(some)} |",
                    flush=True,
                )


def by_unmix(E: np.ndarray, Y: np.ndarray, l1: float) -> np.ndarray:
    """Return the optimum."""
    return unmix.solve(Y, E, method="nnls", l1=l1).abundances


def by_spams(E: np.ndarray, Y: np.ndarray, l1: float) -> np.ndarray:
    """Return LARS's abundances, on both cores."""
    import spams

    found = spams.lasso(np.asfortranarray(Y.T), D=np.asfortranarray(E), lambda1=l1, mode=2, pos=True, numThreads=2)
    return np.asarray(found.toarray().T)


CODES = {
    "unmix": by_unmix,
    "spams.lasso, pos": by_spams,
    "SUnSAL, stop 1e-4, at most 200 steps": lambda E, Y, l1: sunsal(E, Y, l1, 1e-4, 200)[0],
    "SUnSAL, 2000 steps": lambda E, Y, l1: sunsal(E, Y, l1, 0.0, 2000)[0],
}


def rivals() -> None:
    """Print objective, abundances, SRE and time of each code, the optimum's first."""
    print(
        "| spectra | λ | code | objective above the optimum, mean; worst | abundances off by, mean of the largest | "
        "SRE, dB | s |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for p, library in libraries().items():
        Y, truth = pixels_of(library, 30)
        for l1 in (1e-2, 1e-1):
            best = by_unmix(library.matrix, Y, l1)
            for name, code in CODES.items():
                code(library.matrix, Y[:64], l1)
                seconds, A = seconds_of(1, code, library.matrix, Y, l1)
                excess = objective(library.matrix, Y, A, l1) / objective(library.matrix, Y, best, l1) - 1
                off = np.abs(A - best).max(axis=1)
                print(
                    f"| {p} | {l1:g} | {name} | {excess.mean():.1e}; {excess.max():.1e} | {off.mean():.1e} | "
                    f"{sre(truth, A):.1f} | "
                    f"{seconds:.2f} |",
                    flush=True,
                )


def on_gpu() -> None:
    """Print how far a GPU's abundances are from the CPU's, its time for a million resident pixels, and SUnSAL's by PyTorch."""
    import kernels
    import torch

    print(
        "| spectra | λ | off the CPU's | certified | Mpixel/s | SUnSAL, stop 1e-4, at most 200 steps: Mpixel/s, off by "
        "| 2000 steps |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for p, library in libraries().items():
        E = library.matrix
        Y, _ = pixels_of(library, 30)
        stored = np.round(10_000 * Y).clip(-32768, 32767).astype(np.int16)
        for l1 in (0.0, 1e-2, 1e-1):
            cpu, gpu = (unmix.solve(Y, E, method="nnls", l1=l1, device=device) for device in ("cpu", "cuda"))
            off = np.abs(cpu.abundances - gpu.abundances).max()
            timed = kernels.ready(stored, library, "nnls", "active-set", 1_000_000, "DC1", gain=1e-4, l1=l1)()
            many, cells = np.tile(Y, (18, 1)), []
            for tolerance, most in ((1e-4, 200), (0.0, 2000)):
                for part in (many[:64], many):
                    torch.cuda.synchronize()
                    start = time.perf_counter()
                    found, _ = sunsal(E, part, l1, tolerance, most, lambda array: torch.from_numpy(array).cuda())
                    torch.cuda.synchronize()
                    seconds = time.perf_counter() - start
                wrong = np.abs(found[: len(Y)].cpu().numpy() - cpu.abundances).max(axis=1).mean()
                cells.append(f"{len(many) / seconds / 1e6:.3f}, {wrong:.1e}")
            certified = f"{(gpu.kappa <= 1e-10).sum()} of {len(Y)}"
            print(
                f"| {p} | {l1:g} | {off:.1e} | {certified} | {timed['Mpixel_per_s']} | " + " | ".join(cells) + " |",
                flush=True,
            )


if __name__ == "__main__":
    {"proof": proof, "rivals": rivals, "cuda": on_gpu}[MODE]()
