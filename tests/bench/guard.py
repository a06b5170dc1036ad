"""Time two checkouts in turn and fail where this one is slower: ``python tests/bench/guard.py OTHER [DATA [DEVICE
[PAIRS [JOBS]]]]``.

OTHER is another checkout (``git worktree add OTHER COMMIT``). On a CPU: whole runs of Salinas-A, repeated to 200 000
pixels in memory, in scene order, as dense mixtures and as mixtures of four, of three endmembers to a library of 60,
with fractions, l1, residual and certificate; extraction from it in lines of 1000 and of 86 samples; the start of `unmix
--help` and of a run of ten pixels. With DEVICE cuda also the kernels of four million resident pixels, as kernels.py of
each checkout times them. JOBS are those of runs,extracts,starts,kernels that are timed. Prints a line for each case: the best
seconds of both, and the median of this one's over the other's in PAIRS (7) alternating pairs of processes. Where that
median and the ratio of the best are both above 1.03, as many pairs more are timed, and both are of all pairs: of thirty
cases one or two exceed 1.03 by noise. Exit code 1 where a case still does.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

HERE = Path(__file__).parents[2]
SAMPLES, PIXELS, PIXELS_ON_GPU = 1000, 200_000, 4_000_000
# Ratio of this checkout's time to the other's from which a case fails.
SLOWER = 1.03
RUNS = """
import json, logging, sys
sys.path.insert(0, sys.argv[1])
import unmix
assert unmix.__file__.startswith(sys.argv[1]), unmix.__file__
logging.getLogger("unmix").setLevel(logging.ERROR)
folder, device = sys.argv[2:4]
CASES = {
    **{f"{m} {p} {order}": (f"{order}.hdr", f"salinas_{p:02d}.csv", dict(method=m))
       for m in ("nnls", "fcls") for p in (3, 9, 25) for order in ("scene", "dense", "few")},
    "ucls 9": ("scene.hdr", "salinas_09.csv", dict(method="ucls")),
    "nnls 60": ("scene.hdr", "many.csv", dict(method="nnls")),
    "nnls 9 fractions": ("scene.hdr", "salinas_09.csv", dict(method="nnls", normalize="sum")),
    "nnls 9 l1": ("scene.hdr", "salinas_09.csv", dict(method="nnls", l1=1000.0)),
    "nnls 9 residual": ("scene.hdr", "salinas_09.csv", dict(method="nnls", residual=True, certificate=True)),
}
for name, (scene, library, options) in CASES.items():
    options |= dict(endmembers=f"{folder}/{library}", out_dir=f"{folder}/out", overwrite=True, device=device)
    best = min(unmix.run(f"{folder}/{scene}", **options)["seconds"]["total"] for _ in range(3))
    print(json.dumps([f"run {name}", best]), flush=True)
"""
EXTRACTS = """
import json, logging, sys, time
sys.path.insert(0, sys.argv[1])
import unmix
logging.getLogger("unmix").setLevel(logging.ERROR)
for name, scene in (("vca", "scene"), ("vca", "short"), ("nfindr", "scene"), ("spa", "scene"), ("sisal", "scene")):
    best = 1e9
    for _ in range(3):
        began = time.perf_counter()
        unmix.extract(f"{sys.argv[2]}/{scene}.hdr", count=9 if name != "sisal" else 4, extract=name)
        best = min(best, time.perf_counter() - began)
    print(json.dumps([f"extract {name} {scene}", best]), flush=True)
"""
KERNELS = """
import json, sys
from pathlib import Path
checkout, data, pixels = sys.argv[1], sys.argv[2], int(sys.argv[3])
sys.path[:0] = [checkout, checkout + "/tests/bench"]
sys.argv[1:] = [data]
import kernels, numpy as np
from unmix.library import load
scene = np.fromfile(data + "/salinas_a/salinas_a.img", np.int16).reshape(-1, 224)
for p in (3, 9, 15, 25):
    library = load(Path(data, f"paper_endmembers/salinas_{p:02d}.csv"))
    for order, block in kernels.orders(scene, library.matrix).items():
        for method in ("nnls", "fcls"):
            row = kernels.ready(block, library, method, "active-set", pixels, order)()
            assert row["fit"] == 1.0, row
            print(json.dumps([f"kernels {method} {p} {order}", row["ms"] / 1e3]), flush=True)
"""
STARTS = """
import json, subprocess, sys, time
checkout, folder = sys.argv[1:3]
main = [sys.executable, "-c", f"import sys; sys.path.insert(0, {checkout!r}); import cli.main; cli.main.main()"]
small = ["run", f"{folder}/small.hdr", "-e", f"{folder}/salinas_09.csv", "-o", f"{folder}/out", "--overwrite", "--device", "cpu", "-q"]
runs = {"--help": ["--help"], "run": small}
for name, words in runs.items():
    best = 1e9
    for _ in range(4):
        began = time.perf_counter()
        subprocess.run([*main, *words], check=True, stdout=subprocess.DEVNULL)
        best = min(best, time.perf_counter() - began)
    print(json.dumps([f"process {name}", best]), flush=True)
"""


def write_scene(path: Path, spectra: np.ndarray, pixels: int, samples: int = SAMPLES) -> None:
    """Write spectra (n, 224), int16, repeated to so many pixels in lines of at most ``samples``."""
    samples = min(samples, pixels)
    lines = pixels // samples
    spectra[np.arange(lines * samples) % len(spectra)].tofile(path.with_suffix(".img"))
    size = f"samples = {samples}\nlines = {lines}\nbands = {spectra.shape[1]}\n"
    path.write_text(f"ENVI\n{size}data type = 2\ninterleave = bip\nbyte order = 0\n")


def write_inputs(folder: Path, data: Path) -> None:
    """Write the scenes and the libraries that the runs read."""
    scene = np.fromfile(data / "salinas_a/salinas_a.img", "<i2").reshape(-1, 224)
    for p in (3, 9, 25):
        (folder / f"salinas_{p:02d}.csv").write_bytes((data / f"paper_endmembers/salinas_{p:02d}.csv").read_bytes())
    random = np.random.default_rng(0)
    table = np.loadtxt(folder / "salinas_25.csv", delimiter=",", skiprows=1, usecols=range(1, 225))
    dense = random.dirichlet(np.ones(len(table)), len(scene)) @ table + 10 * random.standard_normal(scene.shape)
    shares = np.zeros((len(scene), len(table)))
    for row in shares:
        row[random.choice(len(table), 4, replace=False)] = random.dirichlet(np.ones(4))
    few = shares @ table + 10 * random.standard_normal(scene.shape)
    many = scene[random.choice(len(scene), 60, replace=False)]
    header = ",".join(["name", *map(str, range(1, 225))])
    rows = [",".join([f"pixel {j}", *map(str, row)]) for j, row in enumerate(many)]
    (folder / "many.csv").write_text("\n".join([header, *rows]) + "\n")
    write_scene(folder / "scene.hdr", scene, PIXELS)
    write_scene(folder / "short.hdr", scene, PIXELS, 86)
    write_scene(folder / "dense.hdr", dense.astype("<i2"), PIXELS)
    write_scene(folder / "few.hdr", few.astype("<i2"), PIXELS)
    write_scene(folder / "small.hdr", scene, 10)


def times_of(script: str, checkout: str, *words: str) -> dict[str, float]:
    """Return seconds by case, of one process of a checkout, whose compiled code lies in a folder of its own."""
    cache = Path(tempfile.gettempdir(), f"guard{checkout.replace('/', '_')}")
    cache.mkdir(mode=0o700, exist_ok=True)
    environment = os.environ | {"UNMIX_CACHE_DIR": str(cache), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script, checkout, *words], capture_output=True, text=True, env=environment, cwd="/"
    )
    if done.returncode:
        raise SystemExit(f"{checkout}: {done.stderr[-2000:]}")
    return dict(map(json.loads, done.stdout.splitlines()))


def is_slower(case: str, pair_times: list[tuple[float, float]]) -> bool:
    """Print the line of a case, and return whether it became slower."""
    old, new = map(min, zip(*pair_times))
    ratio = statistics.median(b / a for a, b in pair_times)
    print(f"{case:30} {old:9.4f} s {new:9.4f} s {ratio:7.3f}", flush=True)
    return min(ratio, new / old) > SLOWER


def timed_in_turn(script: str, words: Sequence[str], other: str, pairs: int) -> dict[str, list[tuple[float, float]]]:
    """Return the seconds of the other checkout and of this one by case, in turn."""
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(pairs):
        times = {one: times_of(script, one, *words) for one in (other, str(HERE))}
        for case in times[other]:
            found.setdefault(case, []).append((times[other][case], times[str(HERE)][case]))
    return found


def main(other: str, data: str, device: str, pairs: int, wanted: str) -> int:
    """Time both checkouts; return 1 where a case became slower."""
    slower: list[str] = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        write_inputs(Path(name), Path(data))
        jobs = {"runs": (RUNS, (name, device)), "extracts": (EXTRACTS, (name,)), "starts": (STARTS, (name,))}
        jobs |= {"kernels": (KERNELS, (data, str(PIXELS_ON_GPU)))} if device != "cpu" else {}
        for script, words in (job for kind, job in jobs.items() if kind in wanted.split(",")):
            timed_in_turn(script, words, other, 1)  # compiles
            found = timed_in_turn(script, words, other, pairs)
            seems = [case for case, pair_times in found.items() if is_slower(case, pair_times)]
            more = timed_in_turn(script, words, other, pairs) if seems else {}
            slower += [case for case in seems if is_slower(case, found[case] + more[case])]
    print(f"slower: {', '.join(slower) or 'nothing'}")
    return int(bool(slower))


if __name__ == "__main__":
    defaults = "", str(HERE.parent / "shared/data"), "cpu", "7", "runs,extracts,starts,kernels"
    words = [*sys.argv[1:], *defaults[len(sys.argv) - 1 :]]
    sys.exit(main(str(Path(words[0]).resolve()), words[1], words[2], int(words[3]), words[4]))
