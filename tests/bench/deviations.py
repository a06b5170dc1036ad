"""How many truths are within one deviation, and how many unchanged pixels seem to change: ``python
tests/bench/deviations.py [SEED]``.

Scenes of 120 x 120 pixels of 4 to 200 bands, white noise, three random spectra (of 100 bands ten, too), in equal parts
of one (pure), two and three of them, by nnls and fcls with ``--uncertainty`` and no ``--noise``: the share of pixels in
which each abundance is within one deviation of the truth, the least of all materials, and the most where all are above
three deviations; of two such scenes that differ by noise alone, the share of |z| > 1.96 of materials above three
deviations, and of others; and, with ``--ranges each --confidence 0.95``, the least share of pixels whose ranges hold the
truth, and the most where all are above three deviations.
Exit code 1 where the first is below 0.66, the second above 0.72, the next two above 0.06, or the last two not within 0.94
and 0.97.
"""

import logging
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from conftest import read_map, write_csv, write_cube

import unmix

SIZE, NOISE = 120, 0.01
LEAST, MOST, MOST_CHANGED, LEAST_HELD, MOST_HELD = 0.66, 0.72, 0.06, 0.94, 0.97


def row_of(bands: int, p: int, materials: int, method: str, seed: int, folder: Path) -> tuple[float, ...]:
    """Return the six shares of a cell."""
    random = np.random.default_rng((seed, bands, p, materials))
    E = random.uniform(0.1, 0.9, (bands, p))
    a = (np.arange(p) < materials) / materials
    library, found = write_csv(folder / "e.csv", E), []
    for name in "ab":
        path = write_cube(folder / f"{name}.hdr", E @ a + NOISE * random.standard_normal((SIZE, SIZE, bands)))
        words = {"endmembers": library, "method": method, "uncertainty": True, "overwrite": True, "browse": False}
        words |= {"ranges": "each", "confidence": 0.95} if name == "a" else {}
        unmix.run(path, out_dir=folder, **words)
        found.append((read_map(folder / name, "abundance").astype(float), read_map(folder / name, "sigma")[..., :p]))
    (A, sigma), _ = found
    within = (np.abs(A - a) <= sigma).mean(axis=(0, 1))
    clear = a > 3 * np.median(sigma, axis=(0, 1))
    all_clear = clear.all()
    changed = np.array([row["significant"] for row in unmix.compare(folder / "a", folder / "b", "abundance")["pairs"]])
    R = read_map(folder / "a", "range")
    held = ((R[..., 0::2] <= a) & (a <= R[..., 1::2])).mean(axis=(0, 1))
    return (
        within.min(),
        within.max() if all_clear else 0.0,
        changed[clear].max(initial=0.0),
        changed[~clear].max(initial=0.0),
        held.min(),
        held.max() if all_clear else 0.0,
    )


def main(seed: int) -> int:
    """Print the table."""
    logging.disable(logging.CRITICAL)
    wrong = 0
    heads = (
        "bands,spectra,materials,method,within σ,most if clear,changed if clear,changed else,ranges hold,most if clear"
    )
    print("|", heads.replace(",", " | "), "|")
    print("|", " | ".join(["---"] * 10), "|")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        for bands, p in ((4, 3), (6, 3), (10, 3), (30, 3), (100, 3), (200, 3), (100, 10)):
            for materials in (1, 2, 3):
                for method in ("nnls", "fcls"):
                    row = row_of(bands, p, materials, method, seed, Path(folder))
                    wrong += row[0] < LEAST or row[1] > MOST or max(row[2:4]) > MOST_CHANGED
                    wrong += row[4] < LEAST_HELD or row[5] > MOST_HELD
                    cells = " | ".join(f"{share:.3f}" for share in row)
                    print(f"| {bands} | {p} | {materials} | {method} | {cells} |", flush=True)
    print(f"{wrong} of 42 cells outside")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
