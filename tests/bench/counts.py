"""How many endmembers are counted: ``python tests/bench/counts.py [DATA]``.

Synthetic scenes of 3 to 15 materials (`unmix.jobs.synth`: patchy and sparse), 100 x 100 pixels of 120 bands, 20 to 50 dB, with white
noise, noise that depends on the band, and noise averaged over three bands; and the real scenes in DATA. Prints a line of JSON each,
then how often a criterion is within 2 of the truth, of the scenes whose p-th eigenvalue of the signal is above twice the edge of noise.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

import unmix
from unmix.endmembers import count_endmembers
from unmix.jobs.synth import Fields, Scene, endmember_spectra
from unmix.scene.bands import choose_bands

SIZE, BANDS = 100, 120
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
    return count_endmembers(cube, choose_bands(cube, "good", None), cube.nodata, 2**30).all


def main(data: str = "") -> None:
    good: dict[str, list[bool]] = {}
    with tempfile.TemporaryDirectory() as name:
        for kind in ("white", "by band", "shared by bands"):
            for p in range(3, 16):
                for snr in (20, 30, 40, 50):
                    Y, is_clear = scene(p, snr, kind)
                    Y.astype("<f4").tofile(Path(name, "x.img"))
                    Path(name, "x.hdr").write_text(
                        f"ENVI\nsamples = {SIZE}\nlines = {SIZE}\nbands = {BANDS}\ndata type = 4\ninterleave = bip\nbyte order = 0\n"
                    )
                    counts = counts_of(Path(name, "x.hdr"))
                    print(json.dumps({"p": p, "snr": snr, "noise": kind, "clear": is_clear} | counts), flush=True)
                    for criterion, count in counts.items() if is_clear else ():
                        good.setdefault(f"{criterion}, {kind}", []).append(abs((count or 0) - p) <= 2)
    folder = Path(data) if data else Path(__file__).parents[3] / "shared/data"
    for scene_name, p in REAL.items():
        if (folder / scene_name).exists():
            print(json.dumps({"scene": scene_name, "materials": p} | counts_of(folder / scene_name)))
    for key, values in good.items():
        print(json.dumps({"within 2": key, "share": round(float(np.mean(values)), 3), "scenes": len(values)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
