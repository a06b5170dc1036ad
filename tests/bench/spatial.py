"""Spatial priors: ``python tests/bench/spatial.py proof|rivals|speed [DATA] [SCENE]``.

``proof``: the duality gap, steps and seconds on scenes like DC1 and DC2 (`squares`) of 240 and 12 spectra of the
USGS library, on Jasper and Samson. ``rivals``: runs with `--tv auto`, with the λ of the least error in the truth, and
SUnSAL-TV (Iordache, Bioucas-Dias and Plaza 2012), our own plain reading, at 200 iterations and at 1000, for the same λ:
cost beside ours, SRE and RMSE. ``speed``: a scene of 1 million pixels and 10 endmembers, from the correlations on. SRE
= 10 log10(Σ‖x‖² / Σ‖x − x̂‖²).
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.fft
from common import seconds_of, stored
from conftest import write_csv, write_cube
from reference.neighbours import cost_of_field, price
from sparse import libraries, sre
from squares import SparseChoice, sparse_scene

import unmix
from unmix.arrays.spatial import Prior, SpatialImage, SpatialSearch
from unmix.commands.synth import Fields, SyntheticScene
from unmix.library import Endmembers, load

MODE = sys.argv[1]
DATA = Path(sys.argv[2] if len(sys.argv) > 2 else Path(__file__).parents[3] / "shared/data")
ONLY = sys.argv[3] if len(sys.argv) > 3 else ""  # "dc1 30": that scene alone
# SUnSAL-TV's μ.
MU = 0.05
SCENES = [(like, snr) for like in ("dc1", "dc2") for snr in (20, 30, 40) if ONLY in (f"{like} {snr}", "")]


def library(most: int) -> Endmembers:
    """Return the 240 spectra of `sparse.libraries`, or ``most`` of them, evenly spread."""
    whole = libraries()[240]
    return whole.take(np.linspace(0, len(whole.names) - 1, most).round().astype(int).tolist())


def objective(Y: np.ndarray, E: np.ndarray, A: np.ndarray, tv: float) -> float:
    """Return the cost of abundances (lines, samples, p)."""
    p, total = A.shape[2], cost_of_field(Y.reshape(-1, len(E)), E, A.reshape(-1, A.shape[2]))
    for near, far in ((A[:, :-1], A[:, 1:]), (A[:-1], A[1:])):
        total += price(near.reshape(-1, p), far.reshape(-1, p), np.full(near.size // p, tv), False)
    return total


def sunsal_tv(Y: np.ndarray, E: np.ndarray, tv: float, iterations: int) -> np.ndarray:
    """Return abundances by the alternating direction method, with non-periodic differences."""
    (lines, samples, _), p = Y.shape, E.shape[1]
    inverse = np.linalg.inv(E.T @ E + 2 * np.eye(p))
    waves = [2 - 2 * np.cos(np.pi * np.arange(n) / n) for n in (lines, samples)]
    spectrum = 1 + np.add.outer(*waves)[..., None]
    differ = lambda A: (np.diff(A, axis=1), np.diff(A, axis=0))  # noqa: E731
    U = Y @ E @ inverse
    V1, V3, V5 = U @ E.T, U.copy(), np.maximum(U, 0)
    V4 = list(differ(U))
    D1, D3, D5, D4 = np.zeros_like(V1), np.zeros_like(U), np.zeros_like(U), [np.zeros_like(one) for one in V4]
    for _ in range(iterations):
        U = ((V1 + D1) @ E + V3 + D3 + V5 + D5) @ inverse
        fit = U @ E.T
        V1 = (Y + MU * (fit - D1)) / (1 + MU)
        right = U - D3
        across, down = (one + dual for one, dual in zip(V4, D4))
        right[:, :-1] -= across
        right[:, 1:] += across
        right[:-1] -= down
        right[1:] += down
        V3 = scipy.fft.idctn(scipy.fft.dctn(right, axes=(0, 1), norm="ortho") / spectrum, axes=(0, 1), norm="ortho")
        steps = differ(V3)
        moved = [step - dual for step, dual in zip(steps, D4)]
        V4 = [np.sign(one) * np.maximum(np.abs(one) - tv / MU, 0) for one in moved]
        V5 = np.maximum(U - D5, 0)
        D1, D3, D5 = D1 - fit + V1, D3 - U + V3, D5 - U + V5
        D4 = [dual - step + one for dual, step, one in zip(D4, steps, V4)]
    return V5


def errors(truth: np.ndarray, found: np.ndarray) -> str:
    """Return SRE in dB and RMSE."""
    return f"{sre(truth, found):.2f} | {np.sqrt(np.square(truth - found).mean()):.2e}"


def real(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return pixels of a real scene, brought to about 1, and its true endmembers."""
    Y = stored(DATA / name / f"{name}.hdr")
    E = load(DATA / name / f"{name}_truth_endmembers.csv").matrix
    return Y * (np.median(np.linalg.norm(E, axis=0)) / np.median(np.linalg.norm(Y, axis=2))), E


def proof() -> None:
    """Print gaps."""
    print("| scene | spectra | prior | steps | gap | s |\n| --- | --- | --- | --- | --- | --- |")
    cases = [(name, *real(name)) for name in ("jasper", "samson") if (DATA / name).exists()]
    for most in (12, 240):
        spectra = library(most)
        for like, snr in SCENES:
            cases.append(
                (f"{like} {snr} dB", sparse_scene(spectra, SparseChoice(like, snr, 3))[0].astype(float), spectra.matrix)
            )
    for name, Y, E in cases:
        for prior, more in (({"tv": 0.005}, {}), ({"tv": 0.005}, {"sum_to_one": True}), ({"laplacian": 0.05}, {})):
            seconds, found = seconds_of(1, unmix.spatial, Y, E, **prior, **more)
            words = " ".join(f"{key} {value:g}" for key, value in prior.items()) + ", sum to one" * bool(more)
            print(
                f"| {name} | {E.shape[1]} | {words} | {found.steps} | {found.gap:.1e} | {seconds:.1f} |",
                flush=True,
            )


def rivals() -> None:
    """Print what a run, SUnSAL-TV, and pixels alone make of scenes of 240 spectra."""
    spectra = library(240)
    E = np.ascontiguousarray(spectra.matrix)
    print("| scene | SNR, dB | method | λ | cost over the optimum − 1 | gap | SRE, dB | RMSE | s |\n|" + " --- |" * 9)
    for like, snr in SCENES:
        Y, truth = (one.astype(float) for one in sparse_scene(spectra, SparseChoice(like, snr, 3)))
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_cube(folder / "c.hdr", Y.astype(np.float32))
            write_csv(folder / "e.csv", E)
            words = {"endmembers": folder / "e.csv", "method": "nnls", "scale": 1, "device": "cpu", "overwrite": True}
            words |= {"browse": False}
            rows = []
            for method in ("nnls", "l1", "tv"):
                began = time.perf_counter()
                report = unmix.run(folder / "c.hdr", **words, **({} if method == "nnls" else {method: "auto"}))
                A = (
                    np.fromfile(folder / "c_abundance.img", "f4")
                    .reshape(len(Y), 240, -1)
                    .transpose(0, 2, 1)
                    .astype(float)
                )
                about = report.get("spatial") or report.get("l1") or {"lambda": 0.0}
                rows.append((f"`{method}`" + " auto" * (method != "nnls"), about, A, time.perf_counter() - began))
        tv = float(rows[-1][1]["lambda"])
        best = objective(Y, E, rows[-1][2], tv)
        for method, about, A, seconds in rows:
            above = f"{objective(Y, E, A, tv) / best - 1:.1e} | {about['gap']:.1e}" if "gap" in about else " | "
            print(
                f"| {like} | {snr} | {method} | {about['lambda']:.3g} | {above} | {errors(truth, A)} | {seconds:.1f} |",
                flush=True,
            )
        for iterations in (200, 1000):
            seconds, A = seconds_of(1, sunsal_tv, Y, E, tv, iterations)
            above = objective(Y, E, A, tv) / best - 1
            name = f"SUnSAL-TV, {iterations}"
            print(
                f"| {like} | {snr} | {name} | {tv:.3g} | {above:.1e} | | {errors(truth, A)} | {seconds:.1f} |",
                flush=True,
            )
        grid = [tv * 2.0**k for k in (-2, -1, 0, 1, 2)]
        for method, solve in (
            ("`tv`, λ by the truth", lambda Y, one: unmix.spatial(Y, E, tv=one, proven=1e-3).abundances),
            ("SUnSAL-TV, 200, λ by the truth", lambda Y, one: sunsal_tv(Y, E, one, 200)),
        ):
            found = [solve(Y, one) for one in grid]
            k = int(np.argmin([np.square(truth - one).sum() for one in found]))
            print(f"| {like} | {snr} | {method} | {grid[k]:.3g} | | | {errors(truth, found[k])} | |", flush=True)


def speed() -> None:
    """Print seconds from the correlations to the proof."""
    E = np.ascontiguousarray(library(10).matrix)
    print("| pixels | prior | steps | gap | s |\n| --- | --- | --- | --- | --- |")
    A = Fields(SyntheticScene(1000, 1000, 224, 10, 1)).abundances(slice(0, 1000))
    image, random = SpatialImage.of(1000, 1000, 10), np.random.default_rng(0)
    sigma = float(np.sqrt(np.square(A[:20] @ E.T).mean() / 1000))
    for first in range(0, 1000, 50):
        Y = A[first : first + 50] @ E.T
        image.fill(first, Y + sigma * random.standard_normal(Y.shape), np.ones(Y.shape[:2], bool), E, 0.0)
    for kind, weight, sums in (("tv", 0.01, False), ("tv", 0.01, True), ("laplacian", 0.1, False)):
        image.connect(weight)
        seconds, found = seconds_of(1, lambda: SpatialSearch(image, E, sums).run(Prior(kind, weight)))  # noqa: B023
        words = f"{kind} {weight:g}" + ", sum to one" * sums
        print(f"| 1 million | {words} | {found.steps} | {found.gap:.1e} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    {"proof": proof, "rivals": rivals, "speed": speed}[MODE]()
