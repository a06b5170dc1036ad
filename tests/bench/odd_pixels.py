"""Set one pixel of drawn scenes to odd values, run by defaults, and print how often count, method and fractions stay:
``python tests/bench/odd_pixels.py [SCENES [DATA [SEED]]]``.

Scenes are of the families of `families.py` in turn. The pixel, drawn too, becomes in turn each of `KINDS`. A line for
each scene: of how many kinds the number of endmembers, the method, and all other pixels' fractions, to 0.005 on the
mean, are those of the scene without the pixel.
"""

import json
import logging
import sys
import tempfile
from pathlib import Path

import numpy as np
from families import flat, mixed, patches, soft
from scipy.optimize import linear_sum_assignment

import unmix

KINDS = {
    "-9999": lambda y, top, random: np.full_like(y, -9999),
    "65535": lambda y, top, random: np.full_like(y, 65535),
    "1e30": lambda y, top, random: np.full_like(y, 1e30),
    "0": lambda y, top, random: 0 * y,
    "x 20": lambda y, top, random: 20 * y,
    "x 100": lambda y, top, random: 100 * y,
    "-5 %": lambda y, top, random: np.full_like(y, -0.05 * top),
    "-1": lambda y, top, random: -y,
    "top": lambda y, top, random: np.full_like(y, top),
    "noise": lambda y, top, random: 10 * top * random.standard_normal(y.shape).astype(y.dtype),
}
MOST_OFF = 0.005


def write(path: Path, Y: np.ndarray) -> None:
    """Write a scene (lines, samples, bands)."""
    Y.astype("<f4").tofile(path.with_suffix(".img"))
    size = f"samples = {Y.shape[1]}\nlines = {Y.shape[0]}\nbands = {Y.shape[2]}\n"
    path.write_text(f"ENVI\n{size}data type = 4\ninterleave = bip\nbyte order = 0\n")


def result(path: Path, shape: tuple[int, ...]) -> tuple[str, np.ndarray]:
    """Run by defaults; return the method and the fractions (p, lines, samples)."""
    out = path.parent / "out"
    unmix.run(path, out_dir=out, overwrite=True, device="cpu")
    record = json.loads((out / f"{path.stem}_run.json").read_text())
    A = np.fromfile(out / f"{path.stem}_abundance.img", "<f4").reshape(shape[0], -1, shape[1])
    return record["method"], A.transpose(1, 0, 2).astype(float)


def off(A: np.ndarray, B: np.ndarray) -> float:
    """Return by how much fractions differ on the mean, endmembers paired as is best."""
    each = np.abs(A[:, None] - B[None]).mean(axis=(2, 3))
    return float(each[linear_sum_assignment(each)].mean())


def main(scenes: int, data: Path, seed: int) -> None:
    """Print the table."""
    logging.getLogger("unmix").setLevel(logging.ERROR)
    kept = tried = 0
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = Path(folder, "scene.hdr")
        for k in range(scenes):
            known = (soft, patches, flat, mixed)[k % 4](seed + k, data)
            random = np.random.default_rng(seed + k)
            Y = known.cube.astype(np.float32)
            line, sample = (int(random.integers(size)) for size in Y.shape[:2])
            without = Y.copy()
            without[line, sample] = np.nan
            write(path, without)
            method, A = result(path, Y.shape)
            wrong = []
            for kind, change in KINDS.items():
                Z = Y.copy()
                Z[line, sample] = change(Y[line, sample], Y.max(), random)
                write(path, Z)
                found, B = result(path, Y.shape)
                B[:, line, sample] = A[:, line, sample] if len(A) == len(B) else 0.0
                moved = off(A, B) if len(A) == len(B) else np.inf
                if found != method or not moved <= MOST_OFF:
                    wrong.append(f"{kind}: {len(A)} -> {len(B)}, {method} -> {found}, {moved:.3f}")
            tried, kept = tried + len(KINDS), kept + len(KINDS) - len(wrong)
            print(f"{known.kind} {known.name}: {len(KINDS) - len(wrong)} of {len(KINDS)}", *wrong, sep="; ", flush=True)
    print(f"{kept} of {tried}: {100 * kept / tried:.1f} %")


if __name__ == "__main__":
    words = [*sys.argv[1:], *("40", str(Path(__file__).parents[2].parent / "shared/data"), "7000")[len(sys.argv) - 1 :]]
    main(int(words[0]), Path(words[1]), int(words[2]))
