"""Endmembers of scenes: ``python tests/bench/extraction.py [MILLIONS [FOLDER [SAMPLES]]]``, ``… compare OTHER [DATA]``,
``… archive [SCENES [FOLDER]]``.

Time and memory: a synthetic scene of so many million pixels (2), lines of SAMPLES (1000), 100 bands of float32 and six endmembers,
mixtures with noise, is written to FOLDER. Each algorithm extracts six, in a process of its own, twice, with `--memory 256M`: seconds
of the second time, peak of memory. The scene stays in the page cache.

`compare`: whether this checkout picks the same pixels as OTHER, another one, in every scene below DATA (../shared/data) that can be
opened and has at least ten bands, of three, six and nine endmembers. A line for each scene: "same", or what differs; exit code 1 where
a pixel is another and the simplex is not larger.

`archive`: CPU and wall seconds of a scene, of so many (200) of 100 × 100 pixels and 200 bands that one command unmixes by defaults,
with `--jobs` 1 and 2, twice by turns; the brightness of every second one varies.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from unmix.commands.synth import SyntheticScene, synthesise

HERE = Path(__file__).parents[2]
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
ALL = """
import json, logging, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import unmix
assert unmix.__file__.startswith(sys.argv[1]), unmix.__file__
logging.getLogger("unmix").setLevel(logging.CRITICAL)
for path in json.load(sys.stdin):
    try:
        cube = unmix.open_cube(path)
    except Exception:
        continue
    if cube.bands < 10 or cube.lines * cube.samples < 20:
        continue
    for name, refine in (("vca", False), ("vca", True), ("spa", True), ("nfindr", True), ("sisal", True)):
        for p in (3, 6, 9):
            try:
                found = unmix.extract(path, count=p, extract=name, refine=refine)
                simplex = found.simplex or {}
                size = simplex.get("value", simplex.get("log_volume"))
                answer = [found.pixels, found.matrix.sum(axis=0).tolist(), size, simplex.get("omega")]
            except Exception as error:
                answer = [type(error).__name__, str(error)[-60:]]
            print(json.dumps([path, f"{name}{'' if refine else ' --no-refine'} {p}", answer]), flush=True)
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
        f"ENVI\nsamples = {samples}\nlines = {lines}\nbands = {L}\nheader offset = 0\ndata type = 4\ninterleave = bil\nbyte order = 0\n"
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


def found_by(checkout: str, paths: list[str]) -> dict[tuple[str, str], list]:
    """Return what a checkout extracts, by scene and algorithm; its compiled code lies in a folder of its own."""
    cache = Path(tempfile.gettempdir(), f"guard{checkout.replace('/', '_')}")
    cache.mkdir(mode=0o700, exist_ok=True)
    environment = os.environ | {"UNMIX_CACHE_DIR": str(cache), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", ALL, checkout], input=json.dumps(paths), capture_output=True, text=True, env=environment, cwd="/"
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{checkout}: {done.stderr[-2000:]}")
    return {(path, kind): answer for path, kind, answer in map(json.loads, done.stdout.splitlines())}


def differs(old: list, new: list) -> str | None:
    """Return how an answer differs from another, None where it does not; "larger" where only the simplex is."""
    if old[0] == new[0] and (len(old) == 2 or old[2] is None or abs(old[2] - new[2]) <= 1e-8 * max(1.0, abs(old[2]))):
        is_near = len(old) == 2 or np.allclose(old[1], new[1], rtol=1e-6, atol=0)
        return None if is_near else f"spectra of {old[1]} became those of {new[1]}"
    if len(old) == len(new) == 4 and old[3] is not None and new[2] > old[2] - 1e-9:
        return "larger"
    return f"{old} became {new}"


def compare(other: str, data: str) -> int:
    """Print whether both checkouts extract the same; return 1 where this one does worse."""
    paths = sorted(str(path) for path in Path(data).rglob("*") if path.is_file())
    before, after = (found_by(checkout, paths) for checkout in (other, str(HERE)))
    if before.keys() != after.keys():
        raise SystemExit(f"not the same scenes: {before.keys() ^ after.keys()}")
    worse = 0
    for path in dict.fromkeys(path for path, _ in before):
        own = {kind: differs(before[path, kind], after[path, kind]) for at, kind in before if at == path}
        said = {kind: text for kind, text in own.items() if text is not None}
        worse += sum(text != "larger" for text in said.values())
        print(f"{Path(path).relative_to(data)}: {len(own) - len(said)} of {len(own)} the same {said or ''}", flush=True)
    return int(worse > 0)


if __name__ == "__main__":
    words = sys.argv[1:]
    if words[:1] == ["compare"]:
        sys.exit(
            compare(str(Path(words[1]).resolve()), words[2] if len(words) > 2 else str(HERE.parent / "shared/data"))
        )
    if words[:1] == ["archive"]:
        sys.exit(time_archive(*(kind(word) for kind, word in zip((int, str), words[1:]))))
    time_all(*(kind(word) for kind, word in zip((float, str, int), words)))
