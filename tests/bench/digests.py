"""Digests of all maps of the real scenes, four methods, all solvers, on the CPU: ``python tests/bench/digests.py [DATA] > FILE``.

Run it at two commits and compare the files: a change that should change no answer leaves every byte of every map. ``PYTHONPATH``
names the checkout. A line a map: scene, method, solver, file, SHA-256.
"""

import hashlib
import logging
import sys
import tempfile
from pathlib import Path

import unmix
from unmix.methods import METHODS

DATA = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[3] / "shared/data")
# Scene, library, options. Solvers that take a second for a hundred pixels see a few lines only.
SCENES = {
    "jasper": ("jasper/jasper.hdr", "jasper/jasper_truth_endmembers.csv", {"scale": 5000.0}),
    "samson": ("samson/samson.hdr", "samson/samson_truth_endmembers.csv", {}),
    "salinas_a 9": ("salinas_a/salinas_a.hdr", "paper_endmembers/salinas_09.csv", {}),
    "salinas_a 25": ("salinas_a/salinas_a.hdr", "paper_endmembers/salinas_25.csv", {}),
    "enmap": ("enmap_tiles/enmap_potsdam_tile_128_0.tif", None, {"count": 6, "scale": 10000.0}),
}
SLOW = {"multiplicative": "0:4", "qr": "0:30"}


def main() -> None:
    logging.getLogger("unmix").setLevel(logging.ERROR)
    for name, (scene, library, options) in SCENES.items():
        endmembers = library and DATA / library
        for method, row in METHODS.items():
            for solver in row.solvers:
                with tempfile.TemporaryDirectory() as folder:
                    part = {"lines": SLOW[solver]} if solver in SLOW else {}
                    unmix.run(
                        DATA / scene, method=method, solver=solver, endmembers=endmembers, out_dir=folder, residual=True,
                        certificate=True, device="cpu", **options, **part,
                    )  # fmt: skip
                    for path in sorted(Path(folder).iterdir()):
                        if path.suffix in (".img", ".csv"):
                            digest = hashlib.sha256(path.read_bytes()).hexdigest()
                            print(name.replace(" ", "_"), method, solver, path.name, digest, flush=True)


if __name__ == "__main__":
    main()
