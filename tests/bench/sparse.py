"""Sparse regression beside the field's codes: ``python tests/bench/sparse.py proof|rivals|choice|cuda [DATA]``.

Scenes like DC1 (`unmix.jobs.synth.squares`) of the USGS library of 1995, 224 bands: all 498 spectra, and the 240 that are at least
4.44° apart. ``proof``: the duality gap of every pixel in extended precision over half the square of its length, and on 300 pixels the
support against homotopy (`tests/naive.py`). ``rivals``: objective, abundances, SRE and time beside spams (if installed) and SUnSAL, our
own plain reading, on both cores. ``choice``: SRE over λ. ``cuda``: time and agreement on a GPU. SRE = 10 log10(Σ‖x‖² / Σ‖x − x̂‖²).
"""

import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
import naive

import unmix
from unmix.jobs.synth.squares import Sparse, sparse_scene
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


def pixels_of(library: Endmembers, snr: float) -> tuple[np.ndarray, np.ndarray]:
    """Return pixels (N, L) and true abundances (N, p) of a scene like DC1."""
    Y, A = sparse_scene(library, Sparse("dc1", snr, 1))
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


def sunsal(E: np.ndarray, Y: np.ndarray, l1: float, tolerance: float, most: int) -> tuple[np.ndarray, int]:
    """Return SUnSAL's abundances (N, p) and steps: alternating directions (Bioucas-Dias and Figueiredo 2010), as `sunsal.m` has it.

    It stops where both residuals are below ``√(N p)`` times the tolerance, which it looks at every ten steps; μ is adapted then.
    """
    N, p = len(Y), E.shape[1]
    G, F = E.T @ E, Y @ E
    size = np.sqrt(np.square(Y).mean())  # as there: everything is divided by this, and λ by its square
    mu = 10 * l1 / size**2 + 0.01
    F, G, l1 = F / size, G / size**2, l1 / size**2
    G, F = G, F / size
    values, vectors = np.linalg.eigh(G)
    B = (vectors / (values + mu)) @ vectors.T
    x = F @ B
    u, d = x.copy(), np.zeros_like(x)
    for step in range(1, most + 1):
        before = u if step % 10 == 1 else None
        u = np.maximum(x - d - l1 / mu, 0.0)
        x = (F + mu * (u + d)) @ B
        d -= x - u
        if before is not None:
            primal, dual = np.linalg.norm(x - u), mu * np.linalg.norm(u - before)
            if max(primal, dual) < np.sqrt(N * p) * tolerance:
                break
            if primal > 10 * dual:
                mu, d = 2 * mu, d / 2
            elif dual > 10 * primal:
                mu, d = mu / 2, d * 2
            B = (vectors / (values + mu)) @ vectors.T
    return u, step


def proof() -> None:
    """Print the largest gap of each case, and how many of 300 supports are those of homotopy."""
    print("| spectra | SNR, dB | λ | largest gap / ½|y|² | certified | endmembers | supports as by homotopy |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for p, library in libraries().items():
        for snr in SNRS:
            Y, _ = pixels_of(library, snr)
            some = np.linspace(0, len(Y) - 1, 300).astype(int)
            paths = [naive.lasso_path(library.matrix, y) for y in Y[some]]
            for l1 in LAMBDAS:
                found = unmix.solve(Y, library.matrix, method="nnls", l1=l1)
                by_path = np.array([naive.on_path(path, l1) for path in paths])
                same = ((found.abundances[some] > 0) == (by_path > 1e-9)).all(axis=1).sum()
                gap = relative_gaps(library.matrix, Y, found.abundances, l1).max()
                certified = (found.kappa <= 1e-10).sum()
                print(
                    f"| {p} | {snr} | {l1:g} | {gap:.1e} | {certified} of {len(Y)} | {(found.abundances > 0).sum(axis=1).mean():.1f} | "
                    f"{same} of {len(some)} |",
                    flush=True,
                )


def rivals() -> None:
    """Print objective, abundances, SRE and time of each code, the optimum's first."""
    try:
        import spams
    except ImportError:
        spams = None
    print(
        "| spectra | λ | code | objective above the optimum, mean; worst | abundances off by, mean of the largest | SRE, dB | s |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for p, library in libraries().items():
        E = library.matrix
        Y, truth = pixels_of(library, 30)
        for l1 in (1e-2, 1e-1):
            codes = {
                "unmix": lambda: unmix.solve(Y, E, method="nnls", l1=l1).abundances,
                "SUnSAL, stop 1e-4, 200 steps at most": lambda: sunsal(E, Y, l1, 1e-4, 200)[0],
                "SUnSAL, 5000 steps": lambda: sunsal(E, Y, l1, 0.0, 5000)[0],
            }
            if spams is not None:
                columns, D = np.asfortranarray(Y.T), np.asfortranarray(E)
                codes["spams.lasso, pos"] = lambda: (
                    spams.lasso(columns, D=D, lambda1=l1, mode=2, pos=True, numThreads=2).toarray().T
                )
            best = None
            for name, code in codes.items():
                code()
                start = time.perf_counter()
                A = code()
                seconds = time.perf_counter() - start
                best = A if best is None else best
                excess = objective(E, Y, A, l1) / objective(E, Y, best, l1) - 1
                off = np.abs(A - best).max(axis=1)
                print(
                    f"| {p} | {l1:g} | {name} | {excess.mean():.1e}; {excess.max():.1e} | {off.mean():.1e} | {sre(truth, A):.1f} | "
                    f"{seconds:.2f} |",
                    flush=True,
                )


def choice() -> None:
    """Print SRE over λ."""
    print("| spectra | SNR, dB | " + " | ".join(f"λ = {l1:g}" for l1 in LAMBDAS) + " |")
    print("| --- | --- |" + " --- |" * len(LAMBDAS))
    for p, library in libraries().items():
        for snr in SNRS:
            Y, truth = pixels_of(library, snr)
            row = [sre(truth, unmix.solve(Y, library.matrix, method="nnls", l1=l1).abundances) for l1 in LAMBDAS]
            print(f"| {p} | {snr} | " + " | ".join(f"{value:.1f}" for value in row) + " |", flush=True)


def on_gpu() -> None:
    """Print how far a GPU's abundances are from the CPU's, and its time for 20 times the scene, with the copies, by `unmix.solve`."""
    print("| spectra | λ | off the CPU's | certified | Mpixel/s |\n| --- | --- | --- | --- | --- |")
    for p, library in libraries().items():
        E = library.matrix
        Y, _ = pixels_of(library, 30)
        for l1 in (0.0, 1e-2, 1e-1):
            cpu = unmix.solve(Y, E, method="nnls", l1=l1)
            gpu = unmix.solve(Y, E, method="nnls", l1=l1, device="cuda")
            many = np.tile(Y, (20, 1)).astype(np.float32)
            unmix.solve(many, E, method="nnls", l1=l1, device="cuda")
            start = time.perf_counter()
            unmix.solve(many, E, method="nnls", l1=l1, device="cuda")
            seconds = time.perf_counter() - start
            off = np.abs(cpu.abundances - gpu.abundances).max()
            print(
                f"| {p} | {l1:g} | {off:.1e} | {(gpu.kappa <= 1e-10).sum()} of {len(Y)} | {len(many) / seconds / 1e6:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    {"proof": proof, "rivals": rivals, "choice": choice, "cuda": on_gpu}[MODE]()
