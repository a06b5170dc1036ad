"""Time and memory of extracting endmembers: ``python tests/bench/extraction.py [MILLIONS] [FOLDER]``.

A synthetic scene of so many million pixels (2), 100 bands of float32 and six endmembers, mixtures with noise, is written to FOLDER.
Each algorithm extracts six, in a process of its own, twice, with `--memory 256M`: seconds of the second time, peak of memory. The
scene stays in the page cache.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

MILLIONS = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
L, P, SAMPLES = 100, 6, 1000
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


def write_scene(path: Path) -> None:
    """Write the scene."""
    lines, random = int(MILLIONS * 1e6 / SAMPLES), np.random.default_rng(0)
    E = random.uniform(0.1, 0.9, (L, P))
    with path.with_suffix(".img").open("wb") as file:
        for _ in range(lines):
            A = random.dirichlet(np.full(P, 0.8), SAMPLES)
            file.write((A @ E.T + 0.01 * random.standard_normal((SAMPLES, L))).astype("<f4").T.tobytes())
    path.write_text(
        f"ENVI\nsamples = {SAMPLES}\nlines = {lines}\nbands = {L}\nheader offset = 0\ndata type = 4\ninterleave = bil\nbyte order = 0\n"
    )


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as folder:
        path = Path(folder) / "scene.hdr"
        write_scene(path)
        print("| extract | seconds | MB |\n| --- | --- | --- |")
        for kind in KINDS:
            done = subprocess.run([sys.executable, "-c", ONE, path, kind], capture_output=True, text=True, check=True)
            seconds, peak = json.loads(done.stdout)
            print(f"| `{kind}` | {seconds:.1f} | {peak:.0f} |", flush=True)


if __name__ == "__main__":
    main()
