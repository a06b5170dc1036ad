"""Fractions against the truth: ``python tests/bench/accuracy.py [chosen | table] [DATA]``.

For each scene, given the number of materials alone (or not even that: "counted"), the mean over materials of the RMSE of their
fractions, and the mean angle (radians) of the spectra, matched with the truth by angle. `chosen` takes scenes drawn like those on which
the constants of `unmix.endmembers.cone` were chosen; `table`, the default, 32 others of the first kind and 24 of the second, drawn
after that, and the real scenes in DATA (Samson, Jasper Ridge, sim1).

Kinds: `soft`, three to six USGS minerals, smooth fractions with pure pixels or of at most 85 %, brightness that varies smoothly by
30 %, spectra that vary by 5 % within a material, 35 dB. `patches`, the same minerals in patches with mixed edges, spectra that vary
by 4 to 10 %, 30 to 38 dB; in every other one a material reflects 12 % of what the others do. Fractions are shares of spectra at unit
length.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from scipy.io import loadmat
from scipy.ndimage import gaussian_filter, gaussian_filter1d
from scipy.optimize import linear_sum_assignment

sys.path.insert(0, str(Path(__file__).parents[1]))
import naive
from conftest import write_cube

import unmix
from unmix.io import bytes_per_line, spectra
from unmix.library import load
from unmix.scene.bands import choose_bands

SIZE = 80
Known = tuple[
    str, str, np.ndarray, np.ndarray, np.ndarray
]  # kind, name, cube, spectra (L, p), fractions (lines, samples, p)


def field(random: np.random.Generator, scale: float) -> np.ndarray:
    """Return a smooth random field of mean 0 and deviation 1."""
    values = gaussian_filter(random.standard_normal((SIZE, SIZE)), scale, mode="reflect")
    return (values - values.mean()) / values.std()


def minerals(random: np.random.Generator, data: Path, p: int) -> np.ndarray:
    """Return p spectra of the USGS library at unit length, every second band, at least 5° apart."""
    library = load(data / "libraries/USGS_1995_Library.mat")
    assert library.wavelengths is not None
    M = library.matrix[np.argsort(library.wavelengths)][::2]
    M = M[:, (M > 1e-4).all(axis=0)]
    while True:
        E = M[:, random.choice(M.shape[1], p, replace=False)]
        E = E / np.linalg.norm(E, axis=0)
        if np.degrees(np.arccos(np.clip(E.T @ E, -1, 1)))[np.triu_indices(p, 1)].min() > 5:
            return E


def varied(random: np.random.Generator, E: np.ndarray, F: np.ndarray, share: float, fine: bool) -> np.ndarray:
    """Return mixtures of spectra that vary smoothly over the bands and the scene; ``fine``, also from pixel to pixel."""
    L, total = len(E), np.zeros((SIZE, SIZE, len(E)))
    for j in range(E.shape[1]):
        change = np.zeros((SIZE, SIZE, L))
        for _ in range(3):
            shape = gaussian_filter1d(random.standard_normal(L), L / 8)
            where = (field(random, 3) + field(random, 0.7)) / np.sqrt(2) if fine else field(random, 3)
            change += where[..., None] * shape / shape.std() / np.sqrt(3)
        total += F[..., j : j + 1] * E[:, j] * (1 + share * change)
    return total


def soft(seed: int, data: Path) -> Known:
    """Return a scene of smooth fractions; of every eight, four have pure pixels and four at most 85 %."""
    random = np.random.default_rng(seed)
    p, pure = 3 + seed % 4, seed // 4 % 2 == 0
    E, scale = minerals(random, data, p), random.uniform(4, 9)
    F = np.exp(random.uniform(1.5, 3.5) * np.stack([field(random, scale) for _ in range(p)], -1))
    F /= F.sum(axis=-1, keepdims=True)
    F = np.maximum(F - 0.04, 0) if pure else F * (1 - 0.15 * p / (p - 1)) + 0.15 / (p - 1)
    F /= F.sum(axis=-1, keepdims=True)
    brightness = 1 + 0.3 * np.clip(field(random, 8) / 2, -1, 1)
    Y = varied(random, E, F, 0.05, False) * brightness[..., None]
    Y += np.sqrt(np.square(Y).mean() / 10**3.5) * random.standard_normal(Y.shape)
    return "soft, pure" if pure else "soft, 85 %", f"soft {seed}", Y, E, F


def patches(seed: int, data: Path) -> Known:
    """Return a scene of patches; those of odd seeds have a dark material."""
    random = np.random.default_rng(10_000 + seed)
    p, dark = 3 + seed // 2 % 4, seed % 2 == 1
    E, scale = minerals(random, data, p), random.uniform(4, 7)
    F = np.eye(p)[np.stack([field(random, scale) for _ in range(p)], -1).argmax(-1)]
    F = gaussian_filter(F, (*(random.uniform(0.6, 1.3),) * 2, 0), mode="nearest")
    F /= F.sum(axis=-1, keepdims=True)
    albedo = np.ones(p)
    if dark:
        albedo[random.integers(p)] = 0.12
    brightness = (1 + 0.3 * np.clip(field(random, 8) / 2, -1, 1)) * (F @ albedo)
    Y = varied(random, E, F, random.uniform(0.04, 0.1), True) * brightness[..., None]
    Y += np.sqrt(np.square(Y).mean() / 10 ** random.uniform(3, 3.8)) * random.standard_normal(Y.shape)
    return "patches, dark" if dark else "patches", f"patches {seed}", Y, E, F


def stored(path: Path) -> np.ndarray:
    """Return a cube in memory, (lines, samples, bands), scaled."""
    cube = unmix.open_cube(path)
    raw = cube.read(slice(0, cube.lines), np.empty(bytes_per_line(cube) * cube.lines, np.uint8))
    return spectra(raw, cube.interleave, choose_bands(cube, "good", None)).reshape(cube.lines, cube.samples, -1)


def real(data: Path) -> Iterator[Known]:
    """Yield the real scenes, and sim1 at 40 dB, no pixel of which is pure."""
    for name in ("samson", "jasper"):
        truth = load(data / name / f"{name}_truth_endmembers.csv").matrix
        yield (
            name,
            name,
            stored(data / name / f"{name}.hdr"),
            truth,
            stored(data / name / f"{name}_truth_abundance.hdr"),
        )
    clean, E, A = (loadmat(data / "sim1_synth" / f"{key}.mat")[key] for key in ("Y_clean", "E", "A_true"))
    noise = np.random.default_rng(0).standard_normal(clean.shape) * np.sqrt(np.square(clean).mean() / 1e4)
    yield "sim1, 40 dB", "sim1", clean + noise, E, A.reshape(*clean.shape[:2], -1)


def by_fcls(Y: np.ndarray, E: np.ndarray) -> np.ndarray:
    """Return fractions (n, p) that sum to one, of pixels as bright as they are."""
    return unmix.solve(Y, E, method="fcls").abundances


def by_length(Y: np.ndarray, E: np.ndarray) -> np.ndarray:
    """Return fractions (n, p) of nnls on spectra of unit length, over their sum: they do not depend on brightness."""
    A = unmix.solve(Y, E / np.linalg.norm(E, axis=0), method="nnls").abundances
    return A / np.maximum(A.sum(axis=1, keepdims=True), np.finfo(float).tiny)


def extracted(name: str, **how: object) -> Callable[[np.ndarray, Path, int], np.ndarray]:
    """Return the extraction by this name as a function of pixels, scene and count."""
    return lambda Y, path, p: unmix.extract(path, count=p, extract=name, **how).matrix


# Title: the spectra, and the fractions made with them.
RIVALS: dict[
    str, tuple[Callable[[np.ndarray, Path, int], np.ndarray], Callable[[np.ndarray, np.ndarray], np.ndarray]]
] = {
    "VCA, plain + fcls": (lambda Y, path, p: naive.vca(Y, p, 0)[1], by_fcls),
    "`vca` + fcls": (extracted("vca"), by_fcls),
    "`nfindr` + fcls": (extracted("nfindr"), by_fcls),
    "`sisal` + fcls": (extracted("sisal"), by_fcls),
    "`vca` + nnls, by length": (extracted("vca"), by_length),
    "`vca --smooth 100` + nnls, by length": (extracted("vca", smooth=100), by_length),
    "`cone` + nnls, by length": (extracted("cone"), by_length),
    "the same, counted": (lambda Y, path, p: unmix.extract(path, extract="cone").matrix, by_length),
}


def errors(Y: np.ndarray, E: np.ndarray, truth: np.ndarray, F: np.ndarray, fractions: Callable) -> tuple[float, float]:
    """Return the mean over materials of the RMSE of fractions, and the mean angle of the spectra.

    Materials without a spectrum of their own have fractions 0; those of spectra without a material are lost.
    """
    units = [some / np.linalg.norm(some, axis=0) for some in (truth, E)]
    angles = np.arccos(np.clip(units[0].T @ units[1], -1, 1))
    rows, columns = linear_sum_assignment(angles)
    found = np.zeros((len(Y), truth.shape[1]))
    found[:, rows] = fractions(Y, E)[:, columns]
    difference = found - F.reshape(len(Y), -1)
    return float(np.sqrt(np.square(difference).mean(axis=0)).mean()), float(angles[rows, columns].mean())


def main(which: str = "table", data: str = "") -> None:
    folder = Path(data or Path(__file__).parents[3] / "shared/data")
    first, others = (0, 0) if which == "chosen" else (1000, 1000)
    scenes: list[Callable[[], Known]] = [
        lambda k=k: soft(first + k, folder) for k in range(24 if which == "chosen" else 32)
    ]
    scenes += [lambda k=k: patches(others + k, folder) for k in range(24)]
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    counts: dict[str, list[tuple[int, int]]] = {}  # of each kind: found, and true
    with tempfile.TemporaryDirectory() as scratch:
        every = (make() for make in scenes)
        for known in [*every, *(real(folder) if which == "table" else ())]:
            kind, _, cube, truth, F = known
            Y, path = cube.reshape(-1, cube.shape[2]), write_cube(Path(scratch) / "scene.hdr", cube)
            rows = found.setdefault(kind, {})
            for title, (extract, fractions) in RIVALS.items():
                spectra_found = extract(Y, path, truth.shape[1])
                rows.setdefault(title, []).append(errors(Y, spectra_found, truth, F, fractions))
                if title.endswith("counted"):
                    counts.setdefault(kind, []).append((spectra_found.shape[1], truth.shape[1]))
            rows.setdefault("the true spectra + nnls, by length", []).append(errors(Y, truth, truth, F, by_length))
    kinds = list(found)
    print(
        "| spectra + fractions | "
        + " | ".join(f"{kind} ({len(next(iter(found[kind].values())))})" for kind in kinds)
        + " |"
    )
    print("| --- |" + " --- |" * len(kinds))
    for title in found[kinds[0]]:
        means = [np.mean(found[kind][title], axis=0) for kind in kinds]
        print(f"| {title} | " + " | ".join(f"{error:.3f} · {angle:.3f}" for error, angle in means) + " |", flush=True)
    for kind, some in counts.items():
        near = [abs(count - truth) for count, truth in some]
        told = f"; {some[0][0]} for {some[0][1]}" if len(some) == 1 else ""
        print(f"counts, {kind}: {near.count(0)} of {len(some)} right, {sum(n <= 1 for n in near)} within one{told}")


if __name__ == "__main__":
    main(*sys.argv[1:])
