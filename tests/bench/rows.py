"""The rows of a library that a scene needs: ``python tests/bench/rows.py draws|wrong|rivals|optimum [DATA [DRAWS
[SPECTRA]]]``.

``draws``: rows found, and SRE beside that of the true rows (the oracle), number not told, on DC1 and on draws of 100 x
100 pixels of nine spectra, of 240 and 498 (`sparse.py`): ``squares`` (equal parts of one to nine on a mixture of all),
``gradients`` (smooth fields, a third of which are 0) and ``patches`` (DC2); each kind, library and noise apart.
``wrong``: the same, of spectra that differ from the library's by a smooth factor of 1, 3 or 5 %. ``rivals``: SRE of
fcls of all, and of runs with `l1`, `tv`, `rows`, and `tv` after `rows`. ``optimum``: gaps of scenes of 20 spectra and
at most four rows (copies, ties, noise), beside all subsets.
The constants of the search were fixed on draws from 100 on, and others below 300 were seen while it was made; these are
the DRAWS (8) from 300 on. A material that a draw gives no pixel at all is no row of it. SRE = 10 log10(Σ‖x‖² / Σ‖x −
x̂‖²).
"""

import itertools
import logging
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.ndimage import gaussian_filter

sys.path.insert(0, str(Path(__file__).parents[1]))

from conftest import write_csv, write_cube
from sparse import DATA, libraries
from squares import fractions_dc2

import unmix

DRAWS = int(sys.argv[3]) if len(sys.argv) > 3 else 8
SIZES = [int(size) for size in sys.argv[4:] if size.isdigit()] or [240, 498]
SIDE, MATERIALS = 100, 9
# The first draw that is reported.
FIRST_DRAW = 300
# Bands over which the factor between a library's spectrum and the scene's varies.
SMOOTH = 12
Scene = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def squares(random: np.random.Generator) -> np.ndarray:
    """Return abundances (100, 100, 9): squares of some materials in equal parts on a mixture of all."""
    A = np.tile(random.dirichlet(np.full(MATERIALS, 2.0)), (SIDE, SIDE, 1))
    for line, sample in itertools.product(range(0, SIDE, 10), repeat=2):
        count = int(random.integers(1, MATERIALS + 1))
        part = np.zeros(MATERIALS)
        part[random.choice(MATERIALS, count, replace=False)] = 1 / count
        A[line + 2 : line + 8, sample + 2 : sample + 8] = part
    return A


def gradients(random: np.random.Generator) -> np.ndarray:
    """Return abundances (100, 100, 9): smooth fields, 0 where they are low."""
    noise = (random.standard_normal((SIDE, SIDE)) for _ in range(MATERIALS))
    fields = np.stack([gaussian_filter(one, 12, mode="wrap") for one in noise], axis=-1)
    fields = np.maximum(fields / fields.std(axis=(0, 1)) - 0.3, 0.0)
    fields[fields.sum(axis=-1) < 1e-3] = 1.0
    return fields / fields.sum(axis=-1, keepdims=True)


KINDS = {
    "gradients": gradients,
    "patches": lambda random: fractions_dc2(int(random.integers(1 << 30))),
    "squares": squares,
}


def draw(E: np.ndarray, kind: str, snr: float, seed: int, wrong: float = 0.0) -> Scene:
    """Return pixels (N, L), abundances (N, k), the true rows and the library."""
    random = np.random.default_rng([seed, [*sorted(KINDS), "dc1"].index(kind)])
    if kind == "dc1":
        dc1 = np.load(DATA / "dc/dc1.npz")
        A, rows, E = dc1["abundances"].astype(float), dc1["rows"], dc1["library"]
    else:
        A = KINDS[kind](random)
        rows = np.sort(random.choice(E.shape[1], MATERIALS, replace=False))
    there = A.any(axis=(0, 1))
    A, rows = A[..., there], rows[there]
    M = E[:, rows]
    if wrong:
        factor = gaussian_filter(random.standard_normal(M.shape), (SMOOTH, 0), mode="reflect")
        M = M * (1 + wrong * factor / factor.std(axis=0))
    A = A.reshape(-1, len(rows))
    Y = A @ M.T
    return Y + np.sqrt(np.square(Y).mean() / 10 ** (snr / 10)) * random.standard_normal(Y.shape), A, rows, E


def sre(truth: np.ndarray, rows: np.ndarray, A: np.ndarray, kept: np.ndarray, p: int) -> float:
    """Return the SRE of abundances A (N, K) of the rows that were kept."""
    T, X = np.zeros((len(A), p)), np.zeros((len(A), p))
    T[:, rows], X[:, kept] = truth, A
    return float(10 * np.log10(np.square(T).sum() / np.square(T - X).sum()))


def is_near(E: np.ndarray, rows: np.ndarray, kept: np.ndarray, degrees: float = 3.0) -> bool:
    """Return whether the rows are found, or exchanged each for one within an angle, and no others."""
    U = E / np.linalg.norm(E, axis=0)
    near = (U[:, rows].T @ U[:, kept]) >= np.cos(np.radians(degrees)) - 1e-12
    return len(kept) == len(rows) and bool(near.any(axis=0).all() and near.any(axis=1).all())


def table(snrs: tuple[int, ...], wrongs: tuple[float, ...], draws: int) -> None:
    """Print a line for each kind, library and noise."""
    print(
        "| library | scenes | SNR, dB | wrong by | draws | rows exact | exact or within 3° | SRE, dB: median | less "
        "than the oracle's: "
        "median, most | rows kept | CPU s |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    )
    for (p, library), snr, wrong, kind in itertools.product(libraries().items(), snrs, wrongs, [*sorted(KINDS), "dc1"]):
        if p not in SIZES or (kind == "dc1" and p > 240):
            continue
        found = []
        for seed in range(FIRST_DRAW, FIRST_DRAW + draws):
            Y, A, rows, E = draw(library.matrix, kind, snr, seed, wrong)
            begin, side = time.process_time(), int(np.sqrt(len(Y)))
            kept = unmix.rows(Y.reshape(side, side, -1), E).rows
            seconds = time.process_time() - begin
            ours, oracle = (sre(A, rows, unmix.solve(Y, E[:, one]).abundances, one, E.shape[1]) for one in (kept, rows))
            same = sorted(kept) == sorted(rows)
            found.append((same, is_near(E, rows, kept), ours, oracle - ours, len(kept), seconds))
        same, near, ours, less, count, seconds = np.array(found).T
        print(
            f"| {p} | {kind} | {snr} | {wrong:.0%} | {draws} | {same.mean():.0%} | {near.mean():.0%} | "
            f"{np.median(ours):.1f} | "
            f"{np.median(less):.1f}, {less.max():.1f} | {count.min():.0f} to {count.max():.0f} | "
            f"{np.median(seconds):.1f} |",
            flush=True,
        )


def ways_of(scene: Scene, folder: Path) -> dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]]:
    """Return ways to find rows and their abundances; runs read and write a folder."""
    Y, _, rows, E = scene
    side, every = int(np.sqrt(len(Y))), np.arange(E.shape[1])
    write_cube(folder / "c.hdr", Y.reshape(side, side, -1).astype(np.float32))
    write_csv(folder / "e.csv", E)

    def plain(kept: np.ndarray, method: str = "fcls") -> tuple[np.ndarray, np.ndarray]:
        return kept, unmix.solve(Y, E[:, kept], method=method).abundances

    def run(**words: str) -> tuple[np.ndarray, np.ndarray]:
        """Return rows and abundances of a run."""
        report = unmix.run(
            folder / "c.hdr", endmembers=folder / "e.csv", scale=1, browse=False, overwrite=True, **words
        )
        kept = np.array([row["index"] for row in report["rows"]["rows"]]) if "rows" in words else every
        X = np.fromfile(folder / "c_abundance.img", "f4").reshape(side, len(kept), side).transpose(0, 2, 1)
        return kept, X.reshape(len(Y), -1).astype(float)

    return {
        "fcls of all": lambda: plain(every),
        "the true rows, fcls": lambda: plain(rows),
        "fcls, rows auto": lambda: run(method="fcls", rows="auto"),
        "fcls, rows auto, tv auto": lambda: run(method="fcls", rows="auto", tv="auto"),
        "nnls, tv auto": lambda: run(method="nnls", tv="auto"),
    }


def rivals() -> None:
    """Print SRE by other ways, beside rows, and rows then total variation; one draw of each kind at 30 dB."""
    print("| scenes | way | SRE, dB | rows | CPU s |\n| --- | --- | --- | --- | --- |")
    for kind in ("dc1", *sorted(KINDS)):
        scene = draw(libraries()[240].matrix, kind, 30, FIRST_DRAW)
        with tempfile.TemporaryDirectory() as folder:
            for name, way in ways_of(scene, Path(folder)).items():
                begin = time.process_time()
                kept, X = way()
                seconds = time.process_time() - begin
                print(
                    f"| {kind} | {name} | {sre(scene[1], scene[2], X, kept, scene[3].shape[1]):.1f} | {len(kept)} | "
                    f"{seconds:.0f} |",
                    flush=True,
                )


def of_supports(Y: np.ndarray, E: np.ndarray, most: int, method: str) -> dict[tuple[int, ...], np.ndarray]:
    """Return the cost of each pixel on every support of at most so many columns, (N,), infinite where an abundance is negative."""
    costs = {(): np.full(len(Y), np.inf) if method == "fcls" else np.square(Y).sum(axis=1)}
    for T in (T for k in range(1, most + 1) for T in itertools.combinations(range(E.shape[1]), k)):
        F = E[:, list(T)]
        base = F[:, 0] if method == "fcls" else np.zeros(len(E))
        free = np.linalg.lstsq(F[:, 1:] - F[:, [0]] if method == "fcls" else F, (Y - base).T, rcond=None)[0]
        A = np.vstack([1 - free.sum(axis=0), free]) if method == "fcls" else free
        left = np.square(Y.T - F @ A).sum(axis=0)
        costs[T] = np.where((A >= -1e-12).all(axis=0), left, np.inf)
    return costs


def best_of_all(Y: np.ndarray, E: np.ndarray, count: int, method: str) -> float:
    """Return the least cost of all subsets, by all supports."""
    costs = of_supports(Y, E, count, method)
    inside = lambda S: (T for k in range(len(S) + 1) for T in itertools.combinations(S, k))  # noqa: E731
    subsets = itertools.combinations(range(E.shape[1]), count)
    return min(float(np.min([costs[T] for T in inside(S)], axis=0).sum()) for S in subsets)


def optimum(scenes: int = 500) -> None:
    """Print how often the gap is 0, and how far answers and bounds are from the best of all subsets."""
    closed = worse = below = 0
    for seed in range(scenes):
        random = np.random.default_rng(seed)
        E = np.abs(np.cumsum(random.standard_normal((25, 20)), axis=0) * 0.1 + random.uniform(0.3, 1.5, 20)) + 0.05
        if seed % 4 == 0:
            E[:, 19] = E[:, random.integers(0, 19)]
        count, method = int(random.integers(1, 5)), ("nnls", "fcls")[seed % 2]
        Y = random.dirichlet(np.full(count, 0.7), 40) @ E[:, random.choice(20, count, replace=False)].T
        Y += (0.0, 0.01, 0.05)[seed % 3] * random.standard_normal(Y.shape)
        found = unmix.rows(Y, E, count, method=method, seconds=30.0)
        ours = float(np.square(unmix.solve(Y, E[:, found.rows], method=method).rmse).sum() * len(E))
        least, tiny = best_of_all(Y, E, count, method), 1e-9 * float(np.square(Y).sum())
        closed += found.gap == 0
        worse += found.gap == 0 and ours > least + tiny
        below += ours * (1 - found.gap) > least + tiny
    print(f"{scenes} scenes: gap 0 in {closed}; of these not the optimum {worse}; optimum below the bound {below}")


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    assert isinstance(DATA, Path)
    MODES = {
        "draws": lambda: table((30, 20, 40), (0.0,), DRAWS),
        "wrong": lambda: table((30,), (0.01, 0.03, 0.05), DRAWS),
        "rivals": rivals,
        "optimum": optimum,
    }
    MODES[sys.argv[1]]()
