"""Time `rows` of whole runs: ``python tests/bench/rows_scene.py cuda:0|cpu [DATA [SIDE [FOLDER]]]``.

A draw of 100 x 100 pixels, nine of 240 spectra, 30 and 20 dB, and a scene of SIDE x SIDE pixels (1000) of nine of the 498, at 285
bands; in FOLDER (put it in memory, /dev/shm). Prints a line of JSON for each: wall seconds of a first run and of the best of three
after it, parts of the latter, the seconds of the choice in it, whether the rows are the true ones and those of the CPU, and by how much
abundances differ from the CPU's.
"""

import json
import logging
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rows import FIRST_DRAW, draw, gradients
from scipy.ndimage import zoom
from sparse import libraries

import unmix
from unmix.features.rows import scene as of_scene

DEVICE, SIDE = sys.argv[1], int(sys.argv[3]) if len(sys.argv) > 3 else 1000
BANDS = 285


def large(E: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return pixels (SIDE, SIDE, 285), float32, the true rows, and a library at as many bands."""
    random = np.random.default_rng(FIRST_DRAW)
    E = np.maximum(zoom(E, (BANDS / len(E), 1), order=1), 0.0)
    A, rows = gradients(random), np.sort(random.choice(E.shape[1], 9, replace=False))
    places = np.arange(SIDE) * len(A) // SIDE
    Y = np.empty((SIDE, SIDE, BANDS), np.float32)
    for line, place in enumerate(places):
        Y[line] = A[place][places] @ E[:, rows].T + 0.01 * random.standard_normal((SIDE, BANDS))
    return Y, rows, E


def timed(folder: Path, device: str) -> tuple[float, dict[str, object], np.ndarray]:
    """Run once; return wall seconds, the record with the seconds of the choice, and the abundances."""
    begin, spent = time.perf_counter(), []

    def chosen(*given: object) -> object:
        start = time.perf_counter()
        found = plain(*given)
        spent.append(time.perf_counter() - start)
        return found

    plain, of_scene.chosen = of_scene.chosen, chosen
    try:
        report = unmix.run(
            folder / "c.hdr", endmembers=folder / "e.csv", scale=1, method="fcls", rows="auto", device=device,
            browse=False, overwrite=True, out_dir=folder / "out",
        )  # fmt: skip
    finally:
        of_scene.chosen = plain
    seconds = time.perf_counter() - begin
    return seconds, report | {"choice": sum(spent)}, np.fromfile(folder / "out/c_abundance.img", "f4")


def measure(title: str, Y: np.ndarray, rows: np.ndarray, E: np.ndarray, folder: Path) -> None:
    """Print the times of a scene (lines, samples, L)."""
    lines, samples, bands = Y.shape
    header = f"ENVI\nsamples = {samples}\nlines = {lines}\nbands = {bands}\ndata type = 4\ninterleave = bip\nbyte order = 0\n"
    (folder / "c.hdr").write_text(header)
    Y.astype("<f4").tofile(folder / "c.img")
    table = np.column_stack([np.arange(bands), E])
    names = ",".join(f"s{j}" for j in range(E.shape[1]))
    np.savetxt(folder / "e.csv", table, delimiter=",", header=f"band,{names}", comments="", fmt="%.17g")
    runs = [timed(folder, DEVICE) for _ in range(4)]
    cpu = timed(folder, "cpu") if DEVICE != "cpu" else runs[0]
    seconds, report, A = min(runs[1:], key=lambda one: one[0])
    kept = [row["index"] for row in report["rows"]["rows"]]
    same = kept == [row["index"] for row in cpu[1]["rows"]["rows"]]
    print(json.dumps({
        "scene": title, "pixels": lines * samples, "bands": bands, "spectra": E.shape[1], "device": DEVICE,
        "first_s": round(runs[0][0], 2), "s": round(seconds, 3), "choice_s": round(report["choice"], 3), "parts_s": report["seconds"],
        "certified": report["certified"], "true_rows": kept == rows.tolist(), "rows_of_cpu": same,
        "off_cpu": float(np.abs(A - cpu[2]).max()) if same else None, "cpu_s": round(cpu[0], 2),
    }), flush=True)  # fmt: skip


def main() -> None:
    """Measure draws, then the large scene."""
    spectra = libraries()
    with tempfile.TemporaryDirectory(dir=sys.argv[4] if len(sys.argv) > 4 else None) as folder:
        for kind, snr in (("gradients", 30), ("squares", 30), ("squares", 20)):
            Y, _, rows, E = draw(spectra[240].matrix, kind, snr, FIRST_DRAW)
            measure(f"{kind}, {snr} dB", Y.reshape(100, 100, -1), rows, E, Path(folder))
        measure("large", *large(spectra[498].matrix), Path(folder))


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    main()
