"""Fractions of three classes and their uncertainty, beside EMIT's algorithm: ``tests/bench/emit.py [SPECTRA] [PIXELS]
[ranges]``, and the product `unmix product emit-frcov` beside it: ``tests/bench/emit.py product [LINES]``.

A synthetic granule of 285 bands: each pixel has one spectrum each of soil, green and dry vegetation, fractions drawn
evenly, a brightness of 0.5 to 1, and noise of a given standard deviation per band. In ``known`` the spectra are among
those that pixels are unmixed with (SPECTRA of each class, 20), in ``unknown`` they are others of the same classes.
Prints a line of JSON for each way: RMSE of the fractions, the shares of truths within one and two standard deviations,
microseconds a pixel.

``models by likelihood`` are all of MESMA's (`unmix mesma --average likelihood`): mean and deviation over them.

``ranges`` are proved ones (`unmix run --ranges class`): the share of truths inside, and the median width, at 68 and 95
% confidence, one at a time, at 95 % simultaneous, and within RMSE; beside those over MESMA's models, and over the
mixtures of these (`unmix mesma --ranges class`). With the third argument ``ranges`` they and the widths of ±1 and ±2
deviations, of noise and of draws, are all that is printed.

``EMIT`` is our own plain reading of what EMIT's production does (SpectralUnmixing, mode sma): 20 draws of 30 spectra,
even over the classes, noise drawn evenly from ±σ, the same for all pixels, pixel and library divided by their quadratic
means, bounded least squares 0 ≤ x ≤ 1, then x over its sum, added by class; mean and standard deviation over the draws.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from common import say, seconds_of
from conftest import write_csv, write_cube
from scipy.optimize import lsq_linear

import unmix
from unmix.commands.synth.emit import axis, synthetic_library
from unmix.features.average.draws import class_even
from unmix.io import bytes_per_line
from unmix.library import ClassSums

DRAWS, SLOW, SAMPLES = 20, 150, 100
WITHIN = (0.0005, 0.0035, "all")


def granule(E: np.ndarray, classes: np.ndarray, count: int, random: np.random.Generator):
    """Return pixels (N, L) without noise, and the fractions of the classes (N, 3)."""
    names = list(dict.fromkeys(classes))
    fractions = random.dirichlet(np.ones(len(names)), count)
    brightness = random.uniform(0.5, 1.0, (count, 1))
    Y = np.zeros((count, len(E)))
    for c, name in enumerate(names):
        Y += fractions[:, [c]] * E[:, random.choice(np.flatnonzero(classes == name), count)].T
    return brightness * Y, fractions


def emit(Y: np.ndarray, E: np.ndarray, sums: ClassSums, sigma: np.ndarray, drawn: int) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of the fractions, by EMIT's algorithm."""
    random = np.random.default_rng(0)
    found = np.zeros((DRAWS, len(Y), len(sums.names)))
    E = E / np.sqrt(np.square(E).mean(axis=0))
    for d in range(DRAWS):
        chosen = class_even(sums, drawn, random)
        noisy = Y + sigma * random.uniform(-1, 1, len(sigma))
        noisy = noisy / np.sqrt(np.square(noisy).mean(axis=1, keepdims=True))
        for n, y in enumerate(noisy):
            x = np.maximum(lsq_linear(E[:, chosen], y, (0, 1), method="bvls").x, 0)
            x = x / x.sum()
            for c, members in enumerate(sums.members):
                found[d, n, c] = x[np.isin(chosen, members)].sum()
    return found.mean(axis=0), found.std(axis=0, ddof=1)


def ours(folder: Path, Y: np.ndarray, **words) -> dict[str, np.ndarray]:
    """Return the maps of a run, (N, bands), and its microseconds a pixel."""
    if words.get("method") != "mesma":
        words = {"method": "nnls", "by": "class", "noise": folder / "noise.csv"} | words
    seconds, _ = seconds_of(
        1,
        unmix.run,
        folder / "x.hdr",
        endmembers=folder / "library.csv",
        device="cpu",
        overwrite=True,
        classes="class",
        **{"shade_normalize": True} | words,
    )
    maps = {"us": seconds / len(Y) * 1e6}
    for name in ("fraction", "sigma", "range", "average"):
        if (folder / f"x_{name}.img").exists():
            values = np.fromfile(folder / f"x_{name}.img", "<f4").reshape(len(Y) // SAMPLES, -1, SAMPLES)
            maps[name] = values.transpose(0, 2, 1).reshape(len(Y), -1)
    return maps


def show(name: str, truth: np.ndarray, mean: np.ndarray, deviation: np.ndarray, us: float, which=slice(None)) -> None:
    """Print RMSE and coverage of some pixels."""
    error = np.abs(mean - truth)[which]
    within = [] if not len(error) else [round(float((error <= k * deviation[which] + 1e-9).mean()), 3) for k in (1, 2)]
    rmse = round(float(np.sqrt(np.square(mean - truth).mean())), 4)
    say({"way": name, "rmse": rmse, "within": within, "pixels": len(error), "us": round(us, 1)})


def show_ranges(
    setting: str, folder: Path, Y: np.ndarray, truth: np.ndarray, maps: dict[str, np.ndarray], drawn: int
) -> None:
    """Print how many truths are in proved ranges, and in deviations around an answer, and how wide these are."""

    def show_one(name: str, least: np.ndarray, largest: np.ndarray, us: float = 0.0) -> None:
        known = least[:, 0] >= -1000
        inside = ((least - 1e-6 <= truth) & (truth <= largest + 1e-6))[known].mean()
        width = np.median((np.minimum(largest, 1) - np.maximum(least, 0))[known])
        say(
            {
                "way": f"{setting}: {name}",
                "inside": round(float(inside), 3),
                "median width": round(float(width), 3),
                "without a range": int((~known).sum()),
                "us": round(us, 1),
            }
        )

    C = truth.shape[1]
    draws = ours(folder, Y, average="plain", draws=DRAWS, draw_spectra=drawn)["average"]
    for k in (1, 2):
        mean, deviation = maps["fraction"][:, :C], k * maps["sigma"][:, :C]
        show_one(f"analytic, {k} σ", mean - deviation, mean + deviation)
        mean, deviation = draws[:, :C], k * draws[:, C + 1 : 2 * C + 1]
        show_one(f"{DRAWS} draws of {drawn} spectra, {k} σ", mean - deviation, mean + deviation)
    cases = [{"confidence": 0.68}, {"confidence": 0.95}, {"confidence": 0.95, "simultaneous": True}]
    for words in [*cases, *({"within": rmse, "noise": "auto"} for rmse in WITHIN[:2])]:
        found = ours(folder, Y, ranges="class", **words)
        show_one(f"ranges {words}", found["range"][:, 0::2], found["range"][:, 1::2], found["us"])


def main(spectra: str = "20", pixels: str = "20000", what: str = "all") -> None:
    of_each = int(spectra)
    drawn = max(3, 3 * of_each // 2)
    random = np.random.default_rng(1)
    both = synthetic_library(2 * of_each, random)
    classes = np.array(both.classes)
    inside = np.flatnonzero(np.arange(len(classes)) % (2 * of_each) < of_each)
    outside = np.setdiff1d(np.arange(len(classes)), inside)
    E = both.matrix[:, inside]
    sums = ClassSums.of(both.take(inside.tolist()), False)
    sigma = 0.002 + 0.004 * np.square(np.linspace(-1, 1, len(axis())))
    for setting, chosen in (("known", inside), ("unknown", outside)):
        Y, truth = granule(both.matrix[:, chosen], classes[chosen], int(pixels), random)
        Y = Y + sigma * random.standard_normal(Y.shape)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            names, kinds = [f"s{j}" for j in range(len(inside))], classes[inside].tolist()
            write_csv(folder / "library.csv", E, axis().tolist(), names=names, classes=kinds)
            (folder / "noise.csv").write_text("\n".join(map(repr, sigma.tolist())))
            cube = Y.astype("<f4").reshape(-1, SAMPLES, len(E))
            write_cube(folder / "x.hdr", cube, wavelength_units="Nanometers", wavelength=axis().tolist())
            C = len(sums.names)
            maps = ours(folder, Y, uncertainty=True)
            us = maps["us"]
            if what == "ranges":
                show_ranges(setting, folder, Y, truth, maps, drawn)
                continue
            trusted = maps["sigma"][:, -1] >= 3
            show(
                f"{setting}: analytic, validity >= 3", truth, maps["fraction"][:, :C], maps["sigma"][:, :C], us, trusted
            )
            show(f"{setting}: analytic, all", truth, maps["fraction"][:, :C], maps["sigma"][:, :C], us)
            for title, more in (("noise alone", {}), (f"{drawn} spectra", {"draw_spectra": drawn})):
                found = ours(folder, Y, average="plain", draws=DRAWS, **more)
                values, us = found["average"], found["us"]
                show(f"{setting}: {DRAWS} draws, {title}", truth, values[:, :C], values[:, C + 1 : 2 * C + 1], us)
            found = ours(folder, Y, method="mesma", levels="2-4", average="likelihood", shade_normalize=False)
            values, us = found["average"], found["us"]
            show(f"{setting}: models by likelihood", truth, values[:, :C], values[:, C + 2 : 2 * C + 2], us)
            seconds, (mean, deviation) = seconds_of(1, emit, Y[:SLOW], E, sums, sigma, drawn)
            us = seconds / SLOW * 1e6
            show(f"{setting}: EMIT", truth[:SLOW], mean, deviation, us)


def product(lines: str = "200") -> None:
    """Print the covers of the product and of EMIT's algorithm, beside the truth."""
    import rasterio

    from unmix.commands.synth.emit import Granule, synthesise_emit
    from unmix.features.emit.frcov import IGNORED, noise_of_granule
    from unmix.library import load_for
    from unmix.maps.derived.noise import NoiseCube
    from unmix.scene import ReadOptions, open_scene

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        synthesise_emit(folder / "emit.nc", Granule(int(lines), 150, 0))
        scene, noise = open_scene(folder / "emit.nc", ReadOptions(ignore_nm=IGNORED)), folder / "emit_uncertainty.nc"
        library = load_for(folder / "emit_library.csv", scene)
        sums, sigma = ClassSums.of(library, False), noise_of_granule(NoiseCube(noise, scene, ReadOptions()))
        covers, deviations = {}, {}
        for normalize in ("sum", "length"):
            seconds, found = seconds_of(
                1,
                unmix.emit_frcov,
                folder / "emit.nc",
                folder / "emit_library.csv",
                normalize=normalize,
                out_dir=folder / normalize,
            )
            us = seconds / found["pixels"] * 1e6
            maps = [rasterio.open(file).read(1) for file in found["files"][:6]]
            # In the order of the library's classes.
            order = [("pv", "npv", "soil").index(one) for one in sums.names]
            covers[normalize], deviations[normalize] = (
                np.stack([maps[3 * k + c] for c in order], axis=-1) for k in range(2)
            )
            say({"way": f"product, {normalize}", "pixels": found["pixels"], "us": round(us, 1)})
        place = scene.cube.placement
        line, sample, _ = place.look_up(slice(0, place.shape[0]), scene.cube.lines, scene.cube.samples)
        clear = np.argwhere((covers["sum"] >= 0).all(axis=-1))
        clear = clear[np.random.default_rng(0).choice(len(clear), SLOW, replace=False)]
        at = tuple(clear.T)
        Y = np.stack([pixel_of(scene, *where) for where in zip(line[at], sample[at])])
        truths = open_scene(folder / "emit_truth_fraction.hdr")
        truth = np.stack([pixel_of(truths, *where) for where in zip(line[at], sample[at])])
        truth = truth[:, [("soil", "pv", "npv").index(one) for one in sums.names]] / (1 - truth[:, 3:])
        seconds, (mean, deviation) = seconds_of(1, emit, Y, library.matrix, sums, sigma, len(library.names))
        us = seconds / SLOW * 1e6
        for title, one, spread in (
            *((f"product, {key}", covers[key][at], deviations[key][at]) for key in covers),
            ("EMIT", mean, deviation),
        ):
            show(title, truth, one, spread, us if title == "EMIT" else 0.0)
        apart = np.sqrt(np.square(covers["length"][at] - mean).mean())
        say({"product, length, from EMIT": round(float(apart), 4)})


def pixel_of(scene, line: int, sample: int) -> np.ndarray:
    """Return a pixel of a scene, (L,)."""
    raw = scene.cube.read(slice(line, line + 1), np.empty(bytes_per_line(scene.cube), np.uint8))
    return np.asarray(scene.spectra(raw)[sample])


if __name__ == "__main__":
    product(*sys.argv[2:]) if sys.argv[1:2] == ["product"] else main(*sys.argv[1:])
