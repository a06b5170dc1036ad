"""How many endmembers are counted: ``python tests/bench/counts.py [DATA]``.

Synthetic scenes of 3 to 15 materials (`unmix.commands.synth`: patchy and sparse), 100 x 100 pixels of 120 bands, 20 to 50 dB, with
white noise, noise that depends on the band, and noise averaged over three bands; and the real scenes in DATA. Prints a line of JSON
each; for each real scene its count by the factor of agreement that is best for all others; then how often a criterion is within 2
of the truth, of the scenes whose p-th eigenvalue of the signal is above twice the edge of noise.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

import unmix
from unmix import io
from unmix.commands.synth import Fields, Scene, endmember_spectra
from unmix.endmembers import count_endmembers, counts
from unmix.scene.bands import choose_bands

SIZE, BANDS = 100, 120
# Up to which factor two criteria may agree: that of `unmix.endmembers.counts` is among them.
FACTORS = (1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 2.0, 2.5, 3.0)
# The counts of a scene by criterion, and the truth where it is known.
Known = tuple[dict[str, int | None], int | None]
# Materials of the reference, where there is one.
REAL = {
    "jasper/jasper.hdr": 4, "samson/samson.hdr": 3, "salinas_a/salinas_a.hdr": 6, "berlin/EnMAP_BerlinUrbanGradient.hdr": None,
    "hysu/HySpex/full/DLR_HySU_HS_full.hdr": None, "enmap_tiles/enmap_potsdam_tile_128_0.tif": None,
}  # fmt: skip


def scene(p: int, snr: float, kind: str) -> tuple[np.ndarray, bool]:
    """Return pixels (lines, samples, bands), and whether the last material is above the noise."""
    seed = 7 * p + int(snr)
    settings = Scene(SIZE, SIZE, BANDS, p, seed=seed, snr=None, dtype="float32")
    E = endmember_spectra(BANDS, p, seed)[1]
    X = Fields(settings).abundances(slice(0, SIZE)).reshape(-1, p) @ E.T
    random = np.random.default_rng(seed)
    sigma = np.sqrt(np.square(X).mean() / 10 ** (snr / 10))
    N = random.standard_normal(X.shape)
    if kind == "by band":
        profile = np.exp(np.cos(np.linspace(0, 7, BANDS)))
        N *= profile / np.sqrt(np.square(profile).mean())
    elif kind == "shared by bands":
        N = (np.roll(N, 1, 1) + N + np.roll(N, -1, 1)) / np.sqrt(3)
    least = np.linalg.eigvalsh(X.T @ X / len(X))[-p]
    return (X + sigma * N).reshape(SIZE, SIZE, BANDS), bool(least > 2 * sigma**2 * np.sqrt(BANDS / len(X)))


def counts_of(path: Path) -> dict[str, int | None]:
    """Return the count by each criterion."""
    cube = unmix.open_cube(path)
    return count_endmembers(io.Scene(cube, choose_bands(cube, "good", None), cube.nodata), 2**30).all


def count_with(factor: float, by: dict[str, int | None]) -> int:
    """Return what ``auto`` would be if criteria agreed up to this factor."""
    counts.AGREE = factor
    return counts.Counts({name: by[name] for name in counts.CRITERIA}).auto


def left_out(real: dict[str, Known], synthetic: list[Known]) -> dict[str, list[int]]:
    """Return for each real scene the counts by the factors that are best for all other scenes, synthetic ones among them."""
    found = {}
    for left, (by, _) in real.items():
        others = [*synthetic, *(known for name, known in real.items() if name != left and known[1] is not None)]
        right = {factor: sum(is_near(count_with(factor, own), p) for own, p in others) for factor in FACTORS}
        best = [factor for factor in FACTORS if right[factor] == max(right.values())]
        found[left] = sorted({count_with(factor, by) for factor in best})
    return found


def is_near(count: int, p: int | None) -> bool:
    """Return whether a count is within 2 of the truth, or a factor of 1.7 if that is more."""
    return p is not None and (abs(count - p) <= 2 or max(count, p) <= 1.7 * min(count, p))


def main(data: str = "") -> None:
    good: dict[str, list[bool]] = {}
    synthetic: list[Known] = []
    with tempfile.TemporaryDirectory() as name:
        for kind in ("white", "by band", "shared by bands"):
            for p in range(3, 16):
                for snr in (20, 30, 40, 50):
                    Y, is_clear = scene(p, snr, kind)
                    Y.astype("<f4").tofile(Path(name, "x.img"))
                    Path(name, "x.hdr").write_text(
                        f"ENVI\nsamples = {SIZE}\nlines = {SIZE}\nbands = {BANDS}\ndata type = 4\ninterleave = bip\nbyte order = 0\n"
                    )
                    by = counts_of(Path(name, "x.hdr"))
                    print(json.dumps({"p": p, "snr": snr, "noise": kind, "clear": is_clear} | by), flush=True)
                    synthetic += [(by, p)] * is_clear
                    for criterion, count in by.items() if is_clear else ():
                        good.setdefault(f"{criterion}, {kind}", []).append(abs((count or 0) - p) <= 2)
    folder = Path(data) if data else Path(__file__).parents[3] / "shared/data"
    real = {name: (counts_of(folder / name), p) for name, p in REAL.items() if (folder / name).exists()}
    for scene_name, (by, p) in real.items():
        print(json.dumps({"scene": scene_name, "materials": p} | by))
    for left, count in left_out(real, synthetic).items():
        print(json.dumps({"scene": left, "auto without it": count}))
    for key, values in good.items():
        print(json.dumps({"within 2": key, "share": round(float(np.mean(values)), 3), "scenes": len(values)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
