"""`--at-most K` against the best of all subsets and the lasso path, and its speed: ``python tests/bench/at_most.py
DATA``.

DATA is the folder of real scenes. Prints a line of JSON for each case: of the pixels of a scene and 24 spectra, the
share whose support is the best of all, and RMSE over the least, mean and largest, for `at_most` and for nnls on the
support that the lasso path has before it exceeds K; then pixels a second with all 498 spectra, beside nnls.
"""

import itertools
import logging
import sys
import time
from pathlib import Path

import numpy as np
from common import say
from definitions import l1_path
from scipy.optimize import nnls

import unmix
from unmix.library import load_for
from unmix.scene import ReadOptions, open_scene
from unmix.scene.sample import sampled_spectra

LIBRARY = "libraries/USGS_1995_Library.mat"
SCENES = ("jasper/jasper.hdr", "berlin/EnMAP_BerlinUrbanGradient.hdr")


def best_of_all(E, Y, most):
    """The least squared misfit of each pixel over all subsets: the best one is positive."""
    least = np.square(Y).sum(axis=1)
    for size in range(1, most + 1):
        for subset in itertools.combinations(range(E.shape[1]), size):
            A = Y @ np.linalg.pinv(E[:, subset]).T
            squares = np.square(Y - A @ E[:, subset].T).sum(axis=1)
            least = np.where((A >= 0).all(axis=1), np.minimum(least, squares), least)
    return least


def of_path(E, y, most):
    """The squared misfit on the support that the lasso path has before it exceeds K."""
    present = np.array([a for _, a in l1_path(E, y)]) > 0
    counts = present.sum(axis=1)
    last = int(np.argmax(counts > most)) - 1 if (counts > most).any() else len(counts) - 1
    return nnls(E[:, present[last]], y)[1] ** 2


def compare(name, E, Y, most):
    """Print what K endmembers leave, over what the best of all leave."""
    least = np.sqrt(best_of_all(E, Y, most))
    ways = {"at_most": unmix.solve(Y, E, method="nnls", at_most=most).rmse * np.sqrt(len(E))}
    ways["path"] = np.sqrt([of_path(E, y, most) for y in Y])
    say(
        {"scene": name, "most": most}
        | {
            way: {
                "best": float((left <= least * (1 + 1e-6)).mean()),
                "mean": float((left / least).mean()),
                "largest": float((left / least).max()),
            }
            for way, left in ways.items()
        }
    )


def speed(name, E, Y):
    """Print pixels a second, the faster of two runs."""
    for most in (None, 1, 3, 5, 10):
        words = {} if most is None else {"at_most": most}
        unmix.solve(Y[:16], E, method="nnls", **words)
        took = []
        for _ in range(2):
            began = time.perf_counter(), time.process_time()
            unmix.solve(Y, E, method="nnls", **words)
            took.append((time.perf_counter() - began[0], time.process_time() - began[1]))
        seconds, cpu = min(took)
        say(
            {
                "scene": name,
                "most": most,
                "pixels_per_second": round(len(Y) / seconds),
                "cpu_us_per_pixel": round(1e6 * cpu / len(Y), 1),
            }
        )


def main(data: Path) -> None:
    logging.getLogger("unmix").setLevel(logging.ERROR)
    for name in SCENES:
        scene = open_scene(data / name, ReadOptions())
        E = load_for(data / LIBRARY, scene, None, None, None, True, True).matrix
        Y = sampled_spectra(scene, 4000)[0]
        random = np.random.default_rng(0)
        few, pixels = random.choice(E.shape[1], 24, replace=False), random.choice(len(Y), 100, replace=False)
        for most in (2, 3, 4):
            compare(name, E[:, few], Y[pixels], most)
        speed(name, E, Y)
    A = np.zeros((4000, E.shape[1]))
    for row in A:
        row[random.choice(len(row), 5, replace=False)] = random.dirichlet(np.ones(5))
    speed("mixtures of 5", E, A @ E.T + 0.003 * random.standard_normal((4000, len(E))))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
