"""Whole runs of two checkouts, in alternating processes: ``python tests/bench/pairs.py OTHER [DATA] [DEVICE] [PIXELS]``.

Salinas-A tiled to 400 000 pixels (or so many), memory-backed; endmembers given. Prints a line of JSON for each method and p:
seconds of the best run of each checkout, and this one's over the other's.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).parents[2]
TURNS, SAMPLES = 2, 1000
PIXELS_IN_ALL = 10_000_000  # of all runs of a method and a p
SCRIPT = """
import json, logging, sys
sys.path.insert(0, sys.argv[1])
import unmix
logging.getLogger("unmix").setLevel(logging.ERROR)
scene, data, device = sys.argv[2:5]
for method in ("nnls", "fcls"):
    for p in (3, 9, 25):
        library = f"{data}/paper_endmembers/salinas_{p:02d}.csv"
        options = dict(endmembers=library, out_dir=scene + ".out", overwrite=True, device=device, method=method)
        best = min(unmix.run(scene, **options)["seconds"]["total"] for _ in range(int(sys.argv[5])))
        print(json.dumps([method, p, best]))
"""


def write_tiled(scene: Path, data: str | Path, pixels: int) -> None:
    """Write Salinas-A, repeated to so many pixels in lines of `SAMPLES`, and its header ``scene``."""
    spectra = np.fromfile(Path(data, "salinas_a/salinas_a.img"), "<i2").reshape(-1, 224)
    lines = pixels // SAMPLES
    spectra[np.arange(lines * SAMPLES) % len(spectra)].tofile(scene.with_suffix(".img"))
    size = f"samples = {SAMPLES}\nlines = {lines}\nbands = 224\n"
    scene.write_text(f"ENVI\n{size}data type = 2\ninterleave = bip\nbyte order = 0\n")


def main(other: str, data: str, device: str, wanted: int) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        scene = Path(folder, "s.hdr")
        write_tiled(scene, data, wanted)
        best: dict[tuple, dict] = {}
        for _ in range(TURNS):
            for checkout in (other, str(HERE)):
                words = [
                    sys.executable,
                    "-c",
                    SCRIPT,
                    checkout,
                    str(scene),
                    data,
                    device,
                    str(max(4, PIXELS_IN_ALL // wanted)),
                ]
                done = subprocess.run(words, capture_output=True, text=True, check=True)
                for method, p, seconds in map(json.loads, done.stdout.splitlines()):
                    own = best.setdefault((method, p), {})
                    own[checkout] = min(seconds, own.get(checkout, seconds))
        for (method, p), own in best.items():
            ratio = own[str(HERE)] / own[other]
            line = {"method": method, "p": p, "other": own[other], "this": own[str(HERE)], "ratio": round(ratio, 3)}
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    words = [*sys.argv[1:], *("", str(HERE.parent / "shared/data"), "cpu", "400000")[len(sys.argv) - 1 :]]
    main(str(Path(words[0]).resolve()), words[1], words[2], int(words[3]))
