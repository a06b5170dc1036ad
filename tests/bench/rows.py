"""Collaborative sparse regression beside the field's code: ``tests/bench/rows.py rivals|choice|patches|memory|speed [DATA [DEVICE]]``.

Scenes like DC1 and DC2 of the libraries of `sparse.py`. ``rivals``: cost, proven gap, SRE and time beside CLSUnSAL, our own plain
reading of it, at its usual stop and run long. ``choice``: SRE with the λ that Stein's estimate chooses, beside the best of a grid, and
of regression of each pixel alone. ``patches``: SRE of means of patches. ``memory``: most memory of whole
runs of DC2, and of ten and fifty of it. ``speed``: the search in 500 000 pixels.
"""

import itertools
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from sparse import SNRS, by_unmix, libraries, sre

import unmix
from unmix.arrays.collaborative import choose_l21, largest_l21, search
from unmix.arrays.correlations import Correlations, blocks_of
from unmix.commands.synth.squares import Sparse, sparse_scene
from unmix.library import Endmembers

# The λ of rivals, as shares of that from which on all abundances are 0.
SHARES = (3e-2, 1e-3, 1e-4)


def scene(library: Endmembers, like: str, snr: float, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Return pixels (N, L) and true abundances (N, p)."""
    Y, A = sparse_scene(library, Sparse(like, snr, seed))
    return Y.reshape(-1, Y.shape[2]).astype(float), A.reshape(-1, A.shape[2]).astype(float)


def cost_of(E: np.ndarray, Y: np.ndarray, X: np.ndarray, l21: float) -> float:
    """Return what is minimised."""
    return float(0.5 * np.square(Y - X @ E.T).sum() + l21 * np.sqrt(np.square(X).sum(axis=0)).sum())


def gap_of(E: np.ndarray, Y: np.ndarray, X: np.ndarray, l21: float) -> float:
    """Return the duality gap over the cost; the dual point is a multiple of the residuals."""
    R = Y - X @ E.T
    W = R @ E
    rows = np.sqrt(np.square(X).sum(axis=0)).sum()
    s = min(1.0, l21 / np.sqrt(np.square(np.maximum(W, 0.0)).sum(axis=0).max()))
    gap = 0.5 * np.square(R).sum() * (1 - s) ** 2 + l21 * rows - s * (X * W).sum()
    return float(gap / cost_of(E, Y, X, l21))


def clsunsal(E: np.ndarray, Y: np.ndarray, l21: float, tolerance: float, most: int) -> tuple[np.ndarray, int]:
    """Return CLSUnSAL's abundances (N, p) and steps: alternating directions (Iordache, Bioucas-Dias and Plaza 2014), non-negative.

    X, its fit, its short rows and its positive part are kept equal; it stops where they differ by less than ``√(N p)`` tolerances.
    """
    size, mu = np.sqrt(np.square(Y).mean()), 0.1  # as there
    E, Y, l21 = E / size, Y / size, l21 / size**2
    B = np.linalg.inv(E.T @ E + 2 * np.eye(E.shape[1]))
    X = Y @ E @ B
    fit, short, positive = X @ E.T, X, X
    d1, d2, d3 = 0 * fit, 0 * X, 0 * X
    for step in range(1, most + 1):
        X = ((fit + d1) @ E + short + d2 + positive + d3) @ B
        fitted = X @ E.T
        fit = (Y + mu * (fitted - d1)) / (1 + mu)
        short = X - d2
        lengths = np.sqrt(np.square(short).sum(axis=0))
        short = short * np.maximum(1 - l21 / mu / np.maximum(lengths, 1e-300), 0)
        before, positive = positive, np.maximum(X - d3, 0)
        d1, d2, d3 = d1 - (fitted - fit), d2 - (X - short), d3 - (X - positive)
        if step % 10 == 1:
            primal = np.sqrt(np.square(fitted - fit).sum() + np.square(X - short).sum() + np.square(X - positive).sum())
            dual = mu * np.sqrt(np.square(positive - before).sum())
            if max(primal, dual) < tolerance * np.sqrt(3 * X.size):
                break
            factor = 2.0 if primal > 10 * dual else 0.5 if dual > 10 * primal else 1.0
            mu, d1, d2, d3 = mu * factor, d1 / factor, d2 / factor, d3 / factor
    lengths = np.square(short).sum(axis=0)
    return positive * (lengths > 0), step


def rivals() -> None:
    """Print both codes for each λ."""
    print(
        "| spectra | λ, of the largest | code | proven gap | cost above ours | endmembers | SRE, dB | passes or steps | s |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for p, library in libraries().items():
        E = library.matrix
        Y, truth = scene(library, "dc2", 30)
        largest = largest_l21(Correlations(blocks_of(Y), E))
        unmix.collaborative(Y[:300], E, 0.1 * largest)
        for share in SHARES:
            l21, best = share * largest, None
            steps = {"unmix": 0, "CLSUnSAL, stop 1e-4, at most 200 steps": 200}
            steps |= {"CLSUnSAL, 2000 steps": 2000} if p == min(libraries()) else {}  # four minutes each
            for name, most in steps.items():
                start = time.perf_counter()
                if name == "unmix":
                    found = unmix.collaborative(Y, E, l21)
                    X, taken = found.abundances, found.passes
                else:
                    X, taken = clsunsal(E, Y, l21, 1e-4 if most == 200 else 0.0, most)
                seconds = time.perf_counter() - start
                cost = cost_of(E, Y, X, l21)
                best = cost if best is None else best
                kept = (np.sqrt(np.square(X).sum(axis=0)) > 0).sum()
                print(
                    f"| {p} | {share:g} | {name} | {gap_of(E, Y, X, l21):.1e} | {cost / best - 1:.1e} | {kept} | {sre(truth, X):.1f} | "
                    f"{taken} | {seconds:.1f} |",
                    flush=True,
                )


def choice() -> None:
    """Print SRE by Stein's choice, the noise being known, beside the best of a grid, and each pixel alone: medians of four scenes."""
    print("| spectra | SNR, dB | auto | best of the grid | λ over it | each pixel alone, best of the grid |")
    print("| --- | --- | --- | --- | --- | --- |")
    for p, library in libraries().items():
        for snr in SNRS:
            rows = []
            for seed in range(4):
                Y, truth = scene(library, "dc1", snr, seed)
                Y, truth, E = Y[::5], truth[::5], library.matrix
                l21 = choose_l21(Correlations(blocks_of(Y), E), float(np.square(Y - truth @ E.T).mean()))
                grid = [l21 * 4.0**k for k in (-1, 0, 1)]
                found = [sre(truth, unmix.collaborative(Y, E, one).abundances) for one in grid]
                alone = max(sre(truth, by_unmix(E, Y, one)) for one in (0.0, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3))
                rows.append([found[1], max(found), l21 / grid[int(np.argmax(found))], alone])
            a, b, c, d = np.median(rows, axis=0)
            print(f"| {p} | {snr} | {a:.1f} | {b:.1f} | {c:g} | {d:.1f} |", flush=True)


def patches() -> None:
    """Print SRE of pixels, of the means of squares of 5 x 5, and of MUA: each pixel drawn to its mean by a ridge (Borsoi et al. 2019).

    λ of pixels and means is chosen by Stein's estimate; MUA's λ and β, and that of each pixel alone, are the best of a grid.
    """
    print(
        "| scene | SNR, dB | draw | each pixel alone, best λ | MUA, best λ and β | `--l21 auto` | `--l21 auto` of means |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    library = libraries()[240]
    E, p = library.matrix, library.matrix.shape[1]
    for like, snr, seed in itertools.product(("dc1", "dc2"), SNRS, (3, 5, 7)):
        Y, truth = scene(library, like, snr, seed)
        side, variance = int(np.sqrt(len(Y))), float(np.square(Y - truth @ E.T).mean())
        square = (np.arange(side)[:, None] // 5 * side + np.arange(side) // 5).ravel()
        _, square = np.unique(square, return_inverse=True)
        means = np.stack([np.bincount(square, band) for band in Y.T], axis=1) / 25
        alone = max(sre(truth, by_unmix(E, Y, l1)) for l1 in (1e-3, 1e-2, 3e-2, 0.1))
        some, drawn = slice(None, None, 5), []
        for l1, ridge in itertools.product((0.0, 1e-3, 3e-3, 1e-2, 3e-2), (1e-3, 1e-2, 0.1, 1.0)):
            target = by_unmix(E, means, l1)[square[some]] * np.sqrt(ridge)
            found = by_unmix(np.vstack([E, np.sqrt(ridge) * np.eye(p)]), np.hstack([Y[some], target]), l1)
            drawn.append(sre(truth[some], found))
        l21 = choose_l21(Correlations(blocks_of(Y[::3]), E), variance) * np.sqrt(3)
        of_pixels = unmix.collaborative(Y, E, l21).abundances
        l21 = choose_l21(Correlations(blocks_of(means), E), variance / 25)
        of_means = unmix.collaborative(means, E, l21).abundances[square]
        cells = [alone, max(drawn), sre(truth, of_pixels), sre(truth, of_means)]
        print(f"| {like} | {snr} | {seed} | " + " | ".join(f"{value:.1f}" for value in cells) + " |", flush=True)


def speed() -> None:
    """Print seconds of the search in 500 000 pixels of 240 spectra, on the device that the next argument names, or the CPU."""
    device, library = sys.argv[3] if len(sys.argv) > 3 else "cpu", libraries()[240]
    E, Y = library.matrix, np.concatenate([scene(library, "dc2", 30, seed)[0] for seed in range(3, 53)])
    print("| λ, of the largest | endmembers | proven gap | passes | s |\n| --- | --- | --- | --- | --- |")
    for share in (1e-2, *SHARES):
        for some in (Y[:10000], Y):  # the first compiles
            start = time.perf_counter()
            pixels = Correlations(blocks_of(some), E, device=device)
            found = search(pixels, share * largest_l21(pixels))
            seconds = time.perf_counter() - start
        kept = np.count_nonzero(found.scales)
        print(f"| {share:g} | {kept} | {found.gap:.1e} | {found.passes + 1} | {seconds:.1f} |", flush=True)


def memory() -> None:
    """Print time and most memory of whole runs with `memory` 64M."""
    library = libraries()[240]
    Y, _ = sparse_scene(library, Sparse("dc2", 30, 3))
    program = (
        "import resource, sys, unmix; r = unmix.run(sys.argv[1], endmembers=sys.argv[2], method='nnls', l21=float(sys.argv[3]), "
        "memory='64M', device='cpu', browse=False, overwrite=True); "
        "print(r['l21']['gap'], r['l21']['kept'], r['l21']['passes'], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
    )
    print("| pixels | proven gap | endmembers | passes | s | most memory, MiB |")
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library.write(folder / "lib.csv", folder / "lib.hdr", folder / "lib.sli")
        pixels = blocks_of(Y.reshape(-1, Y.shape[2]).astype(float))
        l21 = 1e-3 * largest_l21(Correlations(pixels, library.matrix))
        for times in (1, 10, 50):
            with (folder / "c.img").open("wb") as file:
                for _ in range(times):
                    file.write(np.ascontiguousarray(Y.transpose(0, 2, 1), "<f4").tobytes())
            (folder / "c.hdr").write_text(
                f"ENVI\nsamples = {Y.shape[1]}\nlines = {times * len(Y)}\nbands = {Y.shape[2]}\nheader offset = 0\n"
                "data type = 4\ninterleave = bil\nbyte order = 0\n"
            )
            start = time.perf_counter()
            words = [sys.executable, "-c", program, folder / "c.hdr", folder / "lib.csv", str(l21 * times**0.5)]
            out = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
            seconds = time.perf_counter() - start
            pixels = times * Y.shape[0] * Y.shape[1]
            print(
                f"| {pixels} | {float(out[0]):.1e} | {out[1]} | {out[2]} | {seconds:.0f} | {out[3]} |",
                flush=True,
            )


if __name__ == "__main__":
    {"rivals": rivals, "choice": choice, "patches": patches, "memory": memory, "speed": speed}[sys.argv[1]]()
