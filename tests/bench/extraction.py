"""Endmembers of scenes: ``python tests/bench/extraction.py [MILLIONS [FOLDER [SAMPLES]]]``, ``… archive [SCENES
[FOLDER]]``.

Time and memory: a synthetic scene of so many million pixels (2), lines of SAMPLES (1000), 100 bands of float32 and six
endmembers, mixtures with noise, is written to FOLDER. Each algorithm extracts six, in a process of its own, twice, with
`--memory 256M`: seconds of the second time, peak of memory. The scene stays in the page cache.

`archive`: CPU and wall seconds of a scene, of so many (200) of 100 × 100 pixels and 200 bands that one command unmixes
by defaults, with `--jobs` 1 and 2, twice by turns; the brightness of every second one varies.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from unmix.commands.synth import SyntheticScene, synthesise

L, P = 100, 6
KINDS = ("vca --no-refine", "vca", "spa", "nfindr", "sisal", "nfindr --subsets 10")
ONE = """
import json, resource, sys, time, unmix
name, *rest = sys.argv[2].split()
words = {"refine": "--no-refine" not in rest} | ({"subsets": int(rest[1])} if "--subsets" in rest else {})
for _ in range(2):
    start = time.perf_counter()
    unmix.extract(sys.argv[1], count=6, extract=name, memory="256M", **words)
    seconds = time.perf_counter() - start
print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""


def write_scene(path: Path, millions: float, samples: int) -> None:
    """Write the scene."""
    lines, random = int(millions * 1e6 / samples), np.random.default_rng(0)
    E = random.uniform(0.1, 0.9, (L, P))
    with path.with_suffix(".img").open("wb") as file:
        for _ in range(lines):
            A = random.dirichlet(np.full(P, 0.8), samples)
            file.write((A @ E.T + 0.01 * random.standard_normal((samples, L))).astype("<f4").T.tobytes())
    path.write_text(
        f"ENVI\nsamples = {samples}\nlines = {lines}\nbands = {L}\nheader offset = 0\ndata type = 4\ninterleave = "
        "bil\nbyte order = 0\n"
    )


def time_all(millions: float = 2.0, folder: str | None = None, samples: int = 1000) -> None:
    """Print seconds and memory of each algorithm."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        path = Path(name) / "scene.hdr"
        write_scene(path, millions, samples)
        print("| extract | seconds | MB |\n| --- | --- | --- |")
        for kind in KINDS:
            done = subprocess.run([sys.executable, "-c", ONE, path, kind], capture_output=True, text=True, check=True)
            seconds, peak = json.loads(done.stdout)
            print(f"| `{kind}` | {seconds:.2f} | {peak:.0f} |", flush=True)


def time_archive(count: int = 200, folder: str | None = None) -> None:
    """Print CPU and wall seconds of a scene of an archive."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        cubes = [Path(name) / f"s{k}.hdr" for k in range(count)]
        for k, cube in enumerate(cubes):
            synthesise(cube, SyntheticScene(bands=200, count=3 + k % 6, seed=1000 + k))
            if k % 2:
                values = np.fromfile(cube.with_suffix(".img"), "<i2").reshape(100, 200, 100)
                bright = np.random.default_rng(k).uniform(0.4, 1.0, (100, 1, 100))
                (values * bright).astype("<i2").tofile(cube.with_suffix(".img"))
        call = [sys.executable, "-m", "unmix", "run", "-q", "--overwrite", "-o", f"{name}/o"]
        subprocess.run([*call, *map(str, cubes[:4])], check=True)  # compiles
        print("| --jobs | CPU seconds a scene | wall |\n| --- | --- | --- |")
        for jobs in (1, 2, 1, 2):
            before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run([*call, "--jobs", str(jobs), *map(str, cubes)], check=True)
            after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - start
            spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            print(f"| {jobs} | {spent / count:.3f} | {wall / count:.3f} |", flush=True)


if __name__ == "__main__":
    words = sys.argv[1:]
    if words[:1] == ["archive"]:
        sys.exit(time_archive(*(kind(word) for kind, word in zip((int, str), words[1:]))))
    time_all(*(kind(word) for kind, word in zip((float, str, int), words)))
