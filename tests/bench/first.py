"""What a first run compiles: ``python tests/bench/first.py [CASE …]``.

Each case begins with an empty cache and is a list of commands in turn. Prints a line of JSON a command: CPU seconds (user and system,
of the process and its children), seconds of a clock, and pieces of code that were compiled, which are files in the cache.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DATA = Path(os.environ.get("UNMIX_DATA", Path(__file__).parents[2] / ".." / "shared" / "data")).resolve()
SAMSON, JASPER = DATA / "samson/samson.hdr", DATA / "jasper/jasper.hdr"
WEIGHTED = """
import numpy as np, unmix
random = np.random.default_rng(0)
unmix.nnls(random.random((40, 6)), random.random((50, 40)), weights=random.random((50, 40)) + 0.5)
"""


def run(scene: Path, *options: str) -> list[str]:
    """Return the command that unmixes a scene."""
    return [sys.executable, "-m", "unmix", "run", str(scene), "-o", "{out}", "--overwrite", *options]


FCLS = ("--method", "fcls", "--extract", "vca")
CASES: dict[str, list[list[str]]] = {
    "fcls": [run(SAMSON, "-n", "3", *FCLS)] * 2 + [run(SAMSON)] * 2 + [run(JASPER, *FCLS, "-n", "4")] * 2,
    "defaults": [run(SAMSON)] * 2,
    "nnls": [[sys.executable, "-c", WEIGHTED]] * 2,
    "ucls": [run(SAMSON, "-n", "3", "--method", "ucls", "--extract", "vca")] * 2,
    "import": [[sys.executable, "-c", "import numba"]],
}


def main() -> None:
    """Run the cases that are named, or all."""
    for name in sys.argv[1:] or CASES:
        with tempfile.TemporaryDirectory(prefix="unmix-first-") as folder:
            cache, before = Path(folder, "cache"), 0
            cache.mkdir(mode=0o700)
            for command in CASES[name]:
                began, used = time.perf_counter(), sum(os.times()[2:4])
                words = [word.format(out=f"{folder}/maps") if word == "{out}" else word for word in command]
                subprocess.run(words, check=True, capture_output=True, env=os.environ | {"UNMIX_CACHE_DIR": str(cache)})
                pieces = sum(1 for _ in cache.rglob("*.nbc"))
                print(json.dumps({
                    "case": name, "command": " ".join(Path(word).name for word in command[2:] if "\n" not in word),
                    "cpu": round(sum(os.times()[2:4]) - used, 1), "wall": round(time.perf_counter() - began, 1),
                    "pieces": pieces - before,
                }), flush=True)  # fmt: skip
                before = pieces


if __name__ == "__main__":
    main()
