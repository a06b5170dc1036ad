"""Tables 1 to 4 of Li and Li's paper again: ``python tests/bench/paper.py FOLDER SCENE... > RESULTS.jsonl``.

SCENE is ``salinas`` (512 x 217 pixels of 224 bands, int16: tiled from the real Salinas-A), ``ksc`` (512 x 614 pixels of
176 bands, float32: synthesised from the paper's endmembers with two to five of them in a pixel, and noise) or ``sizes``
(Salinas-A pixels, p = 9, from ten thousand to ten million). The endmembers are the paper's own. Whole runs are timed:
from a file in FOLDER (put it in memory, /dev/shm) to maps in FOLDER, by `timed.bench`, medians of three after one that
warms up, on the CPU and, where there is one, the GPU; beside them one core of scipy's `nnls`, or for fcls of quadprog,
on 2000 pixels. A line of JSON each; `paper_report.py` makes tables and plots of them.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import quadprog
from common import say
from conftest import write_cube
from scipy.optimize import nnls
from timed import bench

from unmix.devices import count_gpus
from unmix.library import load

DATA = Path(os.environ.get("UNMIX_DATA", "../shared/data"))
COUNTS = {"salinas": [*range(3, 16), 20, 25], "ksc": [3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 32]}
SHAPES = {"salinas": (512, 217), "ksc": (512, 614)}
SOLVERS = ("active-set", "inverse", "delete-only")
SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)


def salinas(lines: int, samples: int) -> np.ndarray:
    """Salinas-A's pixels in scene order, again and again."""
    scene = np.fromfile(DATA / "salinas_a/salinas_a.img", np.int16).reshape(-1, 224)
    return scene[np.arange(lines * samples) % len(scene)].reshape(lines, samples, 224)


def ksc(lines: int, samples: int, E: np.ndarray) -> np.ndarray:
    """Sparse mixtures of the endmembers E, the same support in patches of 16 samples, with noise 40 dB below them."""
    random = np.random.default_rng(0)
    p = E.shape[1]
    A = np.zeros((lines, samples, p))
    for line in A:
        for first in range(0, samples, 16):
            support = random.choice(p, min(p, int(random.integers(2, 6))), replace=False)
            part = line[first : first + 16]
            part[:, support] = random.dirichlet(np.ones(len(support)), len(part))
    Y = A @ E.T
    return (Y + 0.01 * np.sqrt(np.mean(Y**2)) * random.standard_normal(Y.shape)).astype(np.float32)


def reference(pixels: np.ndarray, E: np.ndarray, method: str) -> float:
    """Seconds a pixel of a loop on one core, in Python as its users write it."""
    some = pixels.reshape(-1, pixels.shape[-1])[:: pixels.shape[0] * pixels.shape[1] // 2000].astype(float)
    size = np.abs(E).max()
    G = E.T @ E / size**2
    C, d = np.column_stack([np.ones(E.shape[1]), np.eye(E.shape[1])]), np.zeros(E.shape[1] + 1)
    d[0] = 1
    began = time.perf_counter()
    for y in some:
        if method == "nnls":
            nnls(E, y)
        else:
            quadprog.solve_qp(G, E.T @ y / size**2, C, d, 1)
    return (time.perf_counter() - began) / len(some)


def tables(folder: Path, name: str, gpu: bool) -> None:
    """Every p, method and solver of a scene."""
    for p in COUNTS[name]:
        library = DATA / f"paper_endmembers/{name}_{p:02d}.csv"
        E = load(library).matrix
        pixels = salinas(*SHAPES[name]) if name == "salinas" else ksc(*SHAPES[name], E)
        cube = write_cube(folder / "scene.hdr", pixels)
        for method in ("nnls", "fcls"):
            seconds = reference(pixels, E, method) * pixels.shape[0] * pixels.shape[1]
            solver = "scipy" if method == "nnls" else "quadprog"
            say(scene=name, p=p, method=method, solver=solver, device="one core", streams=1, seconds=round(seconds, 3))
            for solver in SOLVERS:
                for device, streams in (("cpu", [4]), ("cuda:0", [1, 4])):
                    if device != "cpu" and not gpu:
                        continue
                    for row in bench(
                        cube,
                        library,
                        method=method,
                        solver=solver,
                        devices=[device],
                        streams=streams,
                        out_dir=folder,
                        scale=1,
                    ):
                        say(
                            scene=name,
                            p=p,
                            method=method,
                            solver=solver,
                            device=row["device"],
                            streams=row["streams"],
                            seconds=row["run"]["total"],
                            copy=row["copy"]["total"],
                        )


def sizes(folder: Path, gpu: bool) -> None:
    """Throughput over the number of pixels."""
    for pixels in SIZES:
        cube = write_cube(folder / "scene.hdr", salinas(pixels // 1000, 1000))
        for device in ("cpu", "cuda:0") if gpu else ("cpu",):
            library = DATA / "paper_endmembers/salinas_09.csv"
            (row,) = bench(cube, library, devices=[device], out_dir=folder)
            say(
                scene="sizes",
                p=9,
                method="fcls",
                solver="active-set",
                device=device,
                pixels=pixels,
                seconds=row["run"]["total"],
                copy=row["copy"]["total"],
            )


def main() -> None:
    folder, gpu = Path(sys.argv[1]), count_gpus() > 0
    folder.mkdir(parents=True, exist_ok=True)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    say(commit=commit, cores=len(os.sched_getaffinity(0)), date=time.strftime("%Y-%m-%d"))
    for scene in sys.argv[2:] or [*COUNTS, "sizes"]:
        if scene == "sizes":
            sizes(folder, gpu)
        else:
            tables(folder, scene, gpu)


if __name__ == "__main__":
    main()
