"""What the page says of wrong inputs: ``python tests/bench/inputs.py [SEED [DATA]]``.

Sixteen scenes of `families.py` from SEED on, as they are with their true spectra, and made wrong: raw counts (a lamp's
curve and a dark current), radiance (a slope and absorption bands), wavelengths off by two to five bands, spectra of
another scene, a fifth of undeclared fill, and stripes. Prints for each kind how often the page's bar is green, fair or
poor, or the run is refused; then, of the scenes as they are, interpolated by 2, shuffled and cut to 20 x 20 pixels, how
often the count of endmembers is right, and within one.
"""

import logging
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from missing import FAMILIES
from odd_pixels import write
from scipy.ndimage import zoom

import unmix
from unmix.library import Endmembers
from unmix.pages.scene_page import verdict

COUNT = 4


def inputs(
    Y: np.ndarray, E: np.ndarray, random: np.random.Generator, data: Path
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield the kinds of inputs: a name, a cube, and the spectra."""
    L = Y.shape[2]
    x = np.linspace(-1, 1, L)
    yield "as it is", Y, E
    lamp = np.exp(-((1.5 * (x - random.uniform(-0.3, 0.3))) ** 2)) + 0.1
    yield "raw counts", Y * lamp + 0.03 * random.random(L) * Y.mean(), E
    bands = np.exp(-(((x[:, None] - np.array([-0.2, 0.3, 0.6])) / 0.03) ** 2)).sum(axis=1)
    yield "radiance", Y * np.exp(-x - 1) * (1 - 0.8 * bands), E
    yield "wavelengths off", Y, np.roll(E, int(random.integers(2, 6)), axis=0)
    other = FAMILIES["soft"](int(random.integers(1e6)), data).spectra
    if len(other) == L:
        yield "another library", Y, other
    filled = Y.copy()
    filled[: len(Y) // 5] = -0.05 * Y.max()
    yield "fill", filled, E
    columns = random.standard_normal((1, Y.shape[1], L))
    yield "stripes", Y * (1 + 0.1 * random.standard_normal((1, Y.shape[1], 1))) + 0.05 * Y.mean() * columns, E


def main(seed: int, data: Path) -> None:
    """Print both tables."""
    logging.disable(logging.CRITICAL)
    bars: dict[str, list[str]] = defaultdict(list)
    off: dict[str, list[int]] = defaultdict(list)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = Path(folder, "s.hdr")
        for k in range(4 * COUNT):
            family = ("soft", "level", "mixed", "flat")[k % 4]
            scene, random = FAMILIES[family](seed + k, data), np.random.default_rng(seed + k)
            for kind, Y, E in inputs(scene.cube, scene.spectra, random, data):
                write(path, Y)
                library = Endmembers(tuple(f"material {j}" for j in range(E.shape[1])), E, None)
                try:
                    report = unmix.run(path, endmembers=library, out_dir=folder, overwrite=True, device="cpu")
                except unmix.UnmixError:
                    bars[kind].append("refused")
                    continue
                bars[kind].append(verdict(report).split('"')[1].removeprefix("verdict").strip() or "green")
            pixels = scene.cube.reshape(-1, scene.cube.shape[2])
            changed = {
                "as they are": scene.cube,
                "interpolated": zoom(scene.cube, (2, 2, 1), order=1)[:100, :100],
                "shuffled": random.permutation(pixels).reshape(scene.cube.shape),
                "20 x 20": scene.cube[:20, :20],
            }
            for kind, Y in changed.items():
                write(path, Y)
                off[kind].append(
                    unmix.extract(path, count="auto", extract="vca").counted["auto"] - scene.spectra.shape[1]
                )
    for kind, found in bars.items():
        print(f"{kind:16} {', '.join(f'{count} {bar}' for bar, count in Counter(found).most_common())}")
    for kind, errors in off.items():
        far = np.abs(errors)
        print(f"{kind:16} of {len(far)} counts {int((far == 0).sum())} right, {int((far <= 1).sum())} within one")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0, Path(sys.argv[2] if len(sys.argv) > 2 else "../shared/data"))
